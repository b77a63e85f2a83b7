//! Dates in fields (RFC 9110 section 5.6.7): written as IMF-fixdate, read in all three forms. Dates
//! outside of fields: timestamps in UTC (RFC 3339).
//!
//! Moments are whole seconds since the Unix epoch, without leap seconds. Nothing allocates.

/// Bytes of an IMF-fixdate, `Sun, 06 Nov 1994 08:49:37 GMT`.
pub const DATE_LEN: usize = 29;

/// Bytes of a timestamp, `1994-11-06T08:49:37Z`.
pub const TIMESTAMP_LEN: usize = 20;

/// Bytes of a whole `date` field line with its CRLF.
pub const DATE_LINE_LEN: usize = 37;

/// Offset of the value in such a line.
pub(crate) const DATE_START: usize = b"Date: ".len();

/// The earliest moment that can be written: 0000-01-01 00:00:00.
pub const DATE_MIN: i64 = -62_167_219_200;

/// The latest moment that can be written: 9999-12-31 23:59:59.
pub const DATE_MAX: i64 = 253_402_300_799;

/// The `date` field line of one second, rendered once and reused until the second changes.
#[derive(Clone, Debug)]
pub struct DateLine {
    second: i64,
    line: [u8; DATE_LINE_LEN],
}

impl DateLine {
    /// The line for this second.
    #[must_use]
    pub fn new(unix_seconds: i64) -> Self {
        let mut line = *b"Date: Thu, 01 Jan 1970 00:00:00 GMT\r\n";
        line[6..35].copy_from_slice(&write_date(unix_seconds));
        Self {
            second: unix_seconds,
            line,
        }
    }

    /// The line for this second; rendered again only if the second has changed.
    pub fn at(&mut self, unix_seconds: i64) -> &[u8; DATE_LINE_LEN] {
        if self.second != unix_seconds {
            *self = Self::new(unix_seconds);
        }
        &self.line
    }

    /// The line as last rendered: `Date: ... GMT` and CRLF.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; DATE_LINE_LEN] {
        &self.line
    }
}

/// The IMF-fixdate of a moment; one outside [`DATE_MIN`]`..=`[`DATE_MAX`] is clamped.
#[must_use]
pub fn write_date(unix_seconds: i64) -> [u8; DATE_LEN] {
    let moment = unix_seconds.clamp(DATE_MIN, DATE_MAX);
    let day = moment.div_euclid(DAY_SECONDS);
    let second = moment.rem_euclid(DAY_SECONDS);
    let (year, month, day_of_month) = civil_from_days(day);

    let mut text = *b"Thu, 01 Jan 1970 00:00:00 GMT";
    text[0..3].copy_from_slice(&WEEKDAYS[weekday(day)].as_bytes()[..3]);
    text[5..7].copy_from_slice(&two_digits(day_of_month));
    text[8..11].copy_from_slice(MONTHS[month - 1]);
    text[12..14].copy_from_slice(&two_digits((year / 100) as usize));
    text[14..16].copy_from_slice(&two_digits((year % 100) as usize));
    text[17..19].copy_from_slice(&two_digits((second / 3600) as usize));
    text[20..22].copy_from_slice(&two_digits((second / 60 % 60) as usize));
    text[23..25].copy_from_slice(&two_digits((second % 60) as usize));
    text
}

/// Reads an IMF-fixdate, or one of the two obsolete forms (RFC 850, asctime).
///
/// `now` (Unix seconds) settles the century of an RFC 850 date: one that would be more than 50
/// years ahead is in the past. Strict: exact widths and case, existing days, the right day of the
/// week if the year is given in full. `None` for anything else; such a field is to be ignored.
#[must_use]
pub fn parse_date(value: &[u8], now: i64) -> Option<i64> {
    match value.get(3)? {
        b',' => parse_imf_fixdate(value),
        b' ' => parse_asctime(value),
        _ => parse_rfc850(value, now),
    }
}

/// The timestamp of a moment in UTC, `2026-11-21T07:26:32Z` (RFC 3339); one outside
/// [`DATE_MIN`]`..=`[`DATE_MAX`] is clamped.
#[must_use]
pub fn write_timestamp(unix_seconds: i64) -> [u8; TIMESTAMP_LEN] {
    // `Sun, 06 Nov 1994 08:49:37 GMT`, rearranged.
    let moment = unix_seconds.clamp(DATE_MIN, DATE_MAX);
    let date = write_date(moment);
    let (_, month, _) = civil_from_days(moment.div_euclid(DAY_SECONDS));
    let mut text = *b"0000-00-00T00:00:00Z";
    text[0..4].copy_from_slice(&date[12..16]);
    text[5..7].copy_from_slice(&two_digits(month));
    text[8..10].copy_from_slice(&date[5..7]);
    text[11..19].copy_from_slice(&date[17..25]);
    text
}

/// Reads a timestamp in the form of [`write_timestamp`] alone: whole seconds, capital letters, no
/// offset but `Z`. `None` for anything else.
#[must_use]
pub fn parse_timestamp(value: &[u8]) -> Option<i64> {
    let value: &[u8; TIMESTAMP_LEN] = value.try_into().ok()?;
    expect(&value[4..5], b"-")?;
    expect(&value[7..8], b"-")?;
    expect(&value[10..11], b"T")?;
    expect(&value[19..], b"Z")?;
    let month = usize::try_from(number(&value[5..7])?).ok()?;
    (1..=12).contains(&month).then_some(())?;
    let day = days_from_civil(number(&value[..4])?, month, number(&value[8..10])?)?;
    Some(day * DAY_SECONDS + time_of_day(&value[11..19])?)
}

/// `Sun, 06 Nov 1994 08:49:37 GMT`
fn parse_imf_fixdate(value: &[u8]) -> Option<i64> {
    let value: &[u8; DATE_LEN] = value.try_into().ok()?;
    expect(&value[3..5], b", ")?;
    expect(&value[7..8], b" ")?;
    expect(&value[11..12], b" ")?;
    expect(&value[16..17], b" ")?;
    expect(&value[25..], b" GMT")?;
    let day = days_from_civil(
        number(&value[12..16])?,
        month(&value[8..11])?,
        number(&value[5..7])?,
    )?;
    (value[..3] == WEEKDAYS[weekday(day)].as_bytes()[..3]).then_some(())?;
    Some(day * DAY_SECONDS + time_of_day(&value[17..25])?)
}

/// `Sunday, 06-Nov-94 08:49:37 GMT`
fn parse_rfc850(value: &[u8], now: i64) -> Option<i64> {
    let name = WEEKDAYS
        .iter()
        .find(|name| value.starts_with(name.as_bytes()))?;
    let rest: &[u8; 24] = value[name.len()..].try_into().ok()?;
    expect(&rest[..2], b", ")?;
    expect(&rest[4..5], b"-")?;
    expect(&rest[8..9], b"-")?;
    expect(&rest[11..12], b" ")?;
    expect(&rest[20..], b" GMT")?;
    let day_of_month = number(&rest[2..4])?;
    let month = month(&rest[5..8])?;
    let time = time_of_day(&rest[12..20])?;

    // RFC 9110 5.6.7: more than 50 years in the future means the most recent past year.
    let today = now.clamp(DATE_MIN, DATE_MAX);
    let (year_now, ..) = civil_from_days(today.div_euclid(DAY_SECONDS));
    let mut year = year_now - year_now % 100 + number(&rest[9..11])?;
    if year > year_now + 50 {
        year -= 100;
    } else if year + 50 <= year_now {
        year += 100;
    }
    Some(days_from_civil(year, month, day_of_month)? * DAY_SECONDS + time)
}

/// `Sun Nov  6 08:49:37 1994`
fn parse_asctime(value: &[u8]) -> Option<i64> {
    let value: &[u8; 24] = value.try_into().ok()?;
    expect(&value[3..4], b" ")?;
    expect(&value[7..8], b" ")?;
    expect(&value[10..11], b" ")?;
    expect(&value[19..20], b" ")?;
    let day_of_month = match value[8] {
        b' ' => number(&value[9..10])?,
        _ => number(&value[8..10])?,
    };
    let day = days_from_civil(number(&value[20..])?, month(&value[4..7])?, day_of_month)?;
    (value[..3] == WEEKDAYS[weekday(day)].as_bytes()[..3]).then_some(())?;
    Some(day * DAY_SECONDS + time_of_day(&value[11..19])?)
}

/// `08:49:37` as seconds; a leap second (60) counts as the first of the next minute.
fn time_of_day(text: &[u8]) -> Option<i64> {
    expect(&text[2..3], b":")?;
    expect(&text[5..6], b":")?;
    let (hour, minute, second) = (
        number(&text[..2])?,
        number(&text[3..5])?,
        number(&text[6..])?,
    );
    (hour < 24 && minute < 60 && second <= 60).then_some(hour * 3600 + minute * 60 + second)
}

fn expect(found: &[u8], wanted: &[u8]) -> Option<()> {
    (found == wanted).then_some(())
}

fn number(digits: &[u8]) -> Option<i64> {
    digits.iter().try_fold(0, |number, byte| {
        byte.is_ascii_digit()
            .then(|| number * 10 + i64::from(byte - b'0'))
    })
}

fn two_digits(number: usize) -> [u8; 2] {
    [b'0' + (number / 10) as u8, b'0' + (number % 10) as u8]
}

/// 1 for `Jan`.
fn month(name: &[u8]) -> Option<usize> {
    Some(MONTHS.iter().position(|known| *known == name)? + 1)
}

/// 0 for Sunday; the epoch was a Thursday.
fn weekday(day: i64) -> usize {
    (day + 4).rem_euclid(7) as usize
}

/// Year, month (from 1) and day (from 1) of a count of days since the epoch, proleptic Gregorian.
///
/// Counts in years that begin in March, so that the leap day is the last of its year.
fn civil_from_days(days: i64) -> (i64, usize, usize) {
    let shifted = days + DAYS_TO_MARCH_0000;
    let era = shifted.div_euclid(ERA_DAYS);
    let day_of_era = shifted.rem_euclid(ERA_DAYS);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    (year, month as usize, day_of_month as usize)
}

/// The reverse of [`civil_from_days`]; `None` if the month has no such day.
fn days_from_civil(year: i64, month: usize, day_of_month: i64) -> Option<i64> {
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let month_len = match month {
        2 if is_leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    if !(1..=month_len).contains(&day_of_month) {
        return None;
    }
    let month = month as i64;
    let march_year = year - i64::from(month <= 2);
    let era = march_year.div_euclid(400);
    let year_of_era = march_year.rem_euclid(400);
    let month_from_march = (month + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + day_of_month - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    Some(era * ERA_DAYS + day_of_era - DAYS_TO_MARCH_0000)
}

const DAY_SECONDS: i64 = 86_400;
/// Days of 400 years, after which the calendar repeats.
const ERA_DAYS: i64 = 146_097;
/// Days from 0000-03-01 to the epoch.
const DAYS_TO_MARCH_0000: i64 = 719_468;
const WEEKDAYS: [&str; 7] = [
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
];
const MONTHS: [&[u8; 3]; 12] = [
    b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec",
];

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_790_000_000;

    fn check(text: &str, expect: Option<i64>) {
        assert_eq!(parse_date(text.as_bytes(), NOW), expect, "{text:?}");
    }

    #[test]
    fn the_three_forms_of_the_rfc_name_one_moment() {
        check("Sun, 06 Nov 1994 08:49:37 GMT", Some(784_111_777));
        check("Sunday, 06-Nov-94 08:49:37 GMT", Some(784_111_777));
        check("Sun Nov  6 08:49:37 1994", Some(784_111_777));
    }

    #[test]
    fn two_digit_years_lie_at_most_fifty_years_ahead() {
        check("Monday, 01-Jan-70 00:00:00 GMT", Some(3_155_760_000)); // 2070
        check("Friday, 01-Jan-99 00:00:00 GMT", Some(915_148_800)); // 1999
        check("Friday, 01-Jan-77 00:00:00 GMT", Some(220_924_800)); // 1977, not 2077
    }

    #[test]
    fn what_is_not_exactly_a_date_is_refused() {
        for bad in [
            "",
            "0",
            "Sun, 06 Nov 1994 08:49:37",
            "Sun, 06 Nov 1994 08:49:37 UTC",
            "Sun, 6 Nov 1994 08:49:37 GMT",
            "Mon, 06 Nov 1994 08:49:37 GMT",
            "sun, 06 Nov 1994 08:49:37 GMT",
            "Sun, 06 nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 24:00:00 GMT",
            "Sun, 06 Nov 1994 08:60:37 GMT",
            "Sun, 06 Nov 1994 08:49:61 GMT",
            "Wed, 30 Feb 1994 08:49:37 GMT",
            "Sun, 00 Nov 1994 08:49:37 GMT",
            "Sun, +6 Nov 1994 08:49:37 GMT",
            " Sun, 06 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:37 GMT ",
            "Sun, 06-Nov-94 08:49:37 GMT",
            "Sun Nov 06 08:49:37 94",
        ] {
            check(bad, None);
        }
    }

    #[test]
    fn leap_days_exist_only_in_leap_years() {
        check("Tue, 29 Feb 2000 00:00:00 GMT", Some(951_782_400));
        check("Thu, 29 Feb 1900 00:00:00 GMT", None);
        check("Thu, 29 Feb 2024 23:59:59 GMT", Some(1_709_251_199));
    }

    #[test]
    fn known_moments_are_written() {
        assert_eq!(&write_date(0), b"Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(&write_date(784_111_777), b"Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(&write_date(-1), b"Wed, 31 Dec 1969 23:59:59 GMT");
        assert_eq!(&write_date(i64::MAX), b"Fri, 31 Dec 9999 23:59:59 GMT");
        assert_eq!(&write_date(i64::MIN), b"Sat, 01 Jan 0000 00:00:00 GMT");
    }

    #[test]
    fn timestamps_are_read_as_they_are_written() {
        for (moment, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (-1, "1969-12-31T23:59:59Z"),
            (784_111_777, "1994-11-06T08:49:37Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (DATE_MAX, "9999-12-31T23:59:59Z"),
            (DATE_MIN, "0000-01-01T00:00:00Z"),
        ] {
            assert_eq!(&write_timestamp(moment), text.as_bytes());
            assert_eq!(parse_timestamp(text.as_bytes()), Some(moment), "{text}");
        }
        for bad in [
            "",
            "1994-11-06T08:49:37",
            "1994-11-06T08:49:37z",
            "1994-11-06 08:49:37Z",
            "1994-11-06T08:49:37.0Z",
            "1994-00-06T08:49:37Z",
            "1994-13-06T08:49:37Z",
            "1994-02-29T08:49:37Z",
            "1994-11-06T24:00:00Z",
            "1994-11-06T08:49:37+00:00",
        ] {
            assert_eq!(parse_timestamp(bad.as_bytes()), None, "{bad:?}");
        }
    }

    #[test]
    fn the_line_follows_the_second() {
        let mut line = DateLine::new(0);
        assert_eq!(line.as_bytes(), b"Date: Thu, 01 Jan 1970 00:00:00 GMT\r\n");
        assert_eq!(
            line.at(784_111_777),
            b"Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n"
        );
        assert_eq!(
            line.at(784_111_777),
            b"Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n"
        );
    }
}
