//! Counts and durations in words, for messages.

/// Formats a count with its noun: `1 file`, `12 files`.
#[must_use]
pub fn counted(count: u64, noun: &str) -> String {
    let ending = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{ending}")
}

/// Formats a duration in one unit: `90 seconds`, `119 minutes`, `47 hours`, `89 days`.
#[must_use]
pub fn lasting(seconds: u64) -> String {
    let units = [(86_400, "day"), (3600, "hour"), (60, "minute")];
    // Of a day and a half, the hours count.
    match units.iter().find(|(length, _)| seconds / length > 1) {
        Some((length, noun)) => counted(seconds / length, noun),
        None => counted(seconds, "second"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_shown_in_one_unit() {
        let check = |seconds, expect: &str| assert_eq!(lasting(seconds), expect);
        check(0, "0 seconds");
        check(1, "1 second");
        check(119, "119 seconds");
        check(120, "2 minutes");
        check(7199, "119 minutes");
        check(47 * 3600 + 3599, "47 hours");
        check(90 * 86_400 - 1, "89 days");
    }
}
