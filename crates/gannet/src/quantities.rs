//! Parses and formats sizes, durations and counts.

pub use gannet_io::quantities::{counted, lasting};

/// Parses bytes: `4096`, `256M`, `256MiB` (powers of 1024), `256MB` (powers of 1000), `1.5G`.
///
/// # Errors
/// The message says what was expected.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let (number, unit) = split_unit(text);
    let factor: u64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        _ => return Err("not a size: write bytes, or a number with K, M, G or T".into()),
    };
    scale(number, factor)
        .ok_or_else(|| "not a size: write bytes, or a number with K, M, G or T".into())
}

/// Parses a duration into milliseconds: `15s`, `500ms`, `2m`, `1h`, `7d`, `1.5s`; a bare number is
/// seconds.
///
/// # Errors
/// The message says what was expected.
pub fn parse_duration_ms(text: &str) -> Result<u64, String> {
    let (number, unit) = split_unit(text);
    let factor: u64 = match unit {
        "ms" => 1,
        "" | "s" => 1_000,
        "m" | "min" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err("not a duration: write a number with ms, s, m, h or d".into()),
    };
    scale(number, factor)
        .ok_or_else(|| "not a duration: write a number with ms, s, m, h or d".into())
}

/// Formats a length in powers of 1024.
#[must_use]
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 999.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

fn split_unit(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    (&text[..end], text[end..].trim_start())
}

/// `number` (digits with at most one point) times `factor`, without floating point.
fn scale(number: &str, factor: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    // More than nine decimals are meaningless for bytes and milliseconds.
    if whole.is_empty() || fraction.len() > 9 || fraction.contains('.') {
        return None;
    }
    if number.contains('.') && fraction.is_empty() {
        return None;
    }
    let mut value = whole.parse::<u64>().ok()?.checked_mul(factor)?;
    if !fraction.is_empty() {
        let parts = u128::from(fraction.parse::<u64>().ok()?) * u128::from(factor);
        let parts = parts / 10_u128.pow(u32::try_from(fraction.len()).ok()?);
        value = value.checked_add(u64::try_from(parts).ok()?)?;
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_shown_in_powers_of_1024() {
        let check = |bytes, expect: &str| assert_eq!(size(bytes), expect);
        check(0, "0 B");
        check(1023, "1023 B");
        check(1024, "1.0 KiB");
        check(1_572_864, "1.5 MiB");
        check(1_048_575, "1.0 MiB");
        check(u64::MAX, "16384.0 PiB");
    }

    #[test]
    fn sizes_take_both_kinds_of_units() {
        let check = |text: &str, expect: Option<u64>| {
            assert_eq!(parse_size(text).ok(), expect, "{text:?}");
        };
        check("0", Some(0));
        check("4096", Some(4096));
        check("256M", Some(256 << 20));
        check("256 MiB", Some(256 << 20));
        check("256MB", Some(256_000_000));
        check("1.5g", Some(3 << 29));
        check("", None);
        check("M", None);
        check("1.", None);
        check("1.2.3", None);
        check("-1", None);
        check("1X", None);
        check("99999999999T", None);
        check("18446744073709551616", None);
    }

    #[test]
    fn durations_are_seconds_unless_they_say_otherwise() {
        let check = |text: &str, expect: Option<u64>| {
            assert_eq!(parse_duration_ms(text).ok(), expect, "{text:?}");
        };
        check("15", Some(15_000));
        check("15s", Some(15_000));
        check("1.5s", Some(1_500));
        check("500ms", Some(500));
        check("2m", Some(120_000));
        check("1h", Some(3_600_000));
        check("0", Some(0));
        check("s", None);
        check("2 weeks", None);
        check("99999999999999999h", None);
    }
}
