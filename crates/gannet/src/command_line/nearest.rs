//! Finds the known word that a mistyped one most resembles.

/// The candidate that `word` most resembles, if it is near enough to be worth naming: at most one
/// mistake in three letters (an exchange of neighbours is one mistake), or the beginning, or a part, of exactly
/// one.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Longer than any name; bounds the quadratic work below.
    if word.len() > 64 {
        return None;
    }
    let candidates: Vec<&str> = candidates.into_iter().collect();
    let best = candidates
        .iter()
        .map(|candidate| (strsim::osa_distance(word, candidate), *candidate))
        .min_by_key(|(mistakes, _)| *mistakes)?;
    let allowed = (word.chars().count().max(best.1.chars().count()) / 3).max(1);
    if best.0 <= allowed {
        return Some(best.1);
    }
    let only = |is_like: fn(&str, &str) -> bool| {
        let is_like = |it: &&&str| word.len() >= 3 && is_like(it, word);
        let mut like = candidates.iter().filter(is_like);
        like.next().filter(|_| like.next().is_none()).copied()
    };
    only(|it, word| it.starts_with(word)).or_else(|| only(|it, word| it.contains(word)))
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
        check("file", Some("log-file"));
        check("timeout", None);
        check("frobnicate", None);
        check("", None);
        check(&"x".repeat(10_000), None);
    }
}
