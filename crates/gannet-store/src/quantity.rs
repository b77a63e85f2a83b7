//! Durations, sizes and moments as a pointer has them: each value has one form.

use std::fmt::Write as _;

use gannet_http::semantics::date::{parse_timestamp, write_timestamp};

use crate::limits::{DURATION_MAX_S, TIME_MAX};

/// A count in decimal digits, without sign or leading zeros.
pub(crate) fn parse_count(text: &str) -> Option<u64> {
    let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_plain = is_plain && (text == "0" || !text.starts_with('0'));
    is_plain.then(|| text.parse().ok()).flatten()
}

/// Seconds in the largest unit that divides them: `0s`, `90s`, `10m`, `36h`, `7d`.
pub(crate) fn duration_text(seconds: u64) -> String {
    in_unit(seconds, &DURATIONS)
}

/// The reverse of [`duration_text`]; other multiples are taken as well.
pub(crate) fn parse_duration(text: &str) -> Option<u64> {
    of_unit(text, &DURATIONS).filter(|seconds| *seconds <= DURATION_MAX_S)
}

/// Bytes in the largest unit that divides them: `10GiB`, `1500B`.
pub(crate) fn size_text(bytes: u64) -> String {
    in_unit(bytes, &SIZES)
}

/// The reverse of [`size_text`]; other multiples are taken as well.
pub(crate) fn parse_size(text: &str) -> Option<u64> {
    of_unit(text, &SIZES)
}

/// A moment as `2026-11-23T08:30:00Z`; one after [`TIME_MAX`] is clamped.
#[must_use]
pub fn time_text(unix_seconds: u64) -> String {
    let moment = unix_seconds.min(TIME_MAX);
    String::from_utf8_lossy(&write_timestamp(moment.cast_signed())).into_owned()
}

/// The reverse of [`time_text`], from 1970 on.
#[must_use]
pub fn parse_time(text: &str) -> Option<u64> {
    u64::try_from(parse_timestamp(text.as_bytes())?).ok()
}

fn in_unit(value: u64, units: &[(&str, u64)]) -> String {
    let divides = |(_, factor): &&(&str, u64)| value >= *factor && value.is_multiple_of(*factor);
    let (unit, factor) = units
        .iter()
        .find(divides)
        .unwrap_or(&units[units.len() - 1]);
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write!(text, "{}{unit}", value / factor);
    text
}

fn of_unit(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let is_digit = |letter: char| letter.is_ascii_digit();
    let number = text.trim_end_matches(|letter| !is_digit(letter));
    let unit = &text[number.len()..];
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    parse_count(number)?.checked_mul(*factor)
}

/// The largest first; the last divides everything.
const DURATIONS: [(&str, u64); 4] = [("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)];
const SIZES: [(&str, u64); 5] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("B", 1),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_has_one_form() {
        for (seconds, text) in [(0, "0s"), (90, "90s"), (600, "10m"), (604_800, "7d")] {
            assert_eq!(duration_text(seconds), text);
            assert_eq!(parse_duration(text), Some(seconds));
        }
        for (bytes, text) in [(0, "0B"), (1500, "1500B"), (10 << 30, "10GiB")] {
            assert_eq!(size_text(bytes), text);
            assert_eq!(parse_size(text), Some(bytes));
        }
        for bad in ["", "7", "d", "-1d", "+1d", "07d", "1w", "1 d", "3651d", "é"] {
            assert_eq!(parse_duration(bad), None, "{bad}");
        }
        for bad in ["1", "1K", "1GB", "99999999TiB"] {
            assert_eq!(parse_size(bad), None, "{bad}");
        }
        assert_eq!(time_text(1_795_422_600), "2026-11-23T08:30:00Z");
        assert_eq!(parse_time("2026-11-23T08:30:00Z"), Some(1_795_422_600));
        assert_eq!(parse_time("1969-12-31T23:59:59Z"), None);
    }
}
