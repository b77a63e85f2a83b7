//! Finds what a mistyped word was probably meant to be.

/// The candidate that `word` most resembles, if it is near enough to be worth naming: at most one
/// mistake in three letters (an exchange of neighbours is one mistake), or a prefix of exactly one.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Longer than any name; a bound on the quadratic work below.
    if word.len() > 64 {
        return None;
    }
    let candidates: Vec<&str> = candidates.into_iter().collect();
    let best = candidates
        .iter()
        .map(|candidate| (distance(word, candidate), *candidate))
        .min_by_key(|(mistakes, _)| *mistakes)?;
    let allowed = (word.chars().count().max(best.1.chars().count()) / 3).max(1);
    if best.0 <= allowed {
        return Some(best.1);
    }
    let mut extended = candidates
        .iter()
        .filter(|c| word.len() >= 3 && c.starts_with(word));
    match (extended.next(), extended.next()) {
        (Some(only), None) => Some(only),
        _ => None,
    }
}

/// Insertions, deletions, replacements and exchanges of neighbours that lead from `a` to `b`.
fn distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().collect();
    let b: Vec<char> = b.chars().collect();
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replaced = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = replaced.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(before[j - 2] + 1);
            }
            row.push(least);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_words_are_found_and_far_ones_are_not() {
        let names = [
            "port",
            "listen",
            "expose",
            "head-timeout",
            "idle-timeout",
            "log",
            "log-file",
        ];
        let check = |word: &str, expect: Option<&str>| {
            assert_eq!(nearest(word, names), expect, "{word:?}");
        };
        check("prot", Some("port"));
        check("lisetn", Some("listen"));
        check("head_timeout", Some("head-timeout"));
        check("expo", Some("expose"));
        check("lgo", Some("log"));
        check("log-fil", Some("log-file"));
        check("frobnicate", None);
        check("", None);
        check(&"x".repeat(10_000), None);
    }
}
