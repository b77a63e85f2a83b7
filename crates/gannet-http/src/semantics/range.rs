//! Byte ranges (RFC 9110 section 14): the `Range` field against a length, and `Content-Range`.

use super::decimal::write_decimal;
use super::limits::RANGES_MAX;

/// A range of bytes that lies inside a representation: `start < end <= length`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ByteRange {
    /// Offset of the first byte.
    pub start: u64,
    /// Offset after the last byte.
    pub end: u64,
}

impl ByteRange {
    /// Bytes in the range; never 0 for a range that was parsed.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.end - self.start
    }

    /// Whether the range has no byte; never true for a range that was parsed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Appends the value of `Content-Range` for this range: `bytes 0-4/10`.
    pub fn write_content_range(&self, complete_len: u64, out: &mut Vec<u8>) {
        debug_assert!(
            self.start < self.end && self.end <= complete_len,
            "range in bounds"
        );
        out.extend_from_slice(b"bytes ");
        write_decimal(self.start, out);
        out.push(b'-');
        write_decimal(self.end - 1, out);
        out.push(b'/');
        write_decimal(complete_len, out);
    }
}

/// Appends the value of `Content-Range` for a 416: `bytes */10`.
pub fn write_unsatisfied_range(complete_len: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(b"bytes */");
    write_decimal(complete_len, out);
}

/// Up to [`RANGES_MAX`] non-overlapping ranges, in request order; never empty.
#[derive(Clone, Copy, Eq, PartialEq)]
pub struct RangeSet {
    ranges: [ByteRange; RANGES_MAX],
    count: u8,
}

impl RangeSet {
    /// The ranges.
    #[must_use]
    pub fn as_slice(&self) -> &[ByteRange] {
        &self.ranges[..usize::from(self.count)]
    }

    /// Adds a range; false if there is no room for it or it overlaps an earlier one.
    fn add(&mut self, range: ByteRange) -> bool {
        let overlaps = |other: &ByteRange| range.start < other.end && other.start < range.end;
        if usize::from(self.count) == RANGES_MAX || self.as_slice().iter().any(overlaps) {
            return false;
        }
        self.ranges[usize::from(self.count)] = range;
        self.count += 1;
        true
    }
}

impl std::fmt::Debug for RangeSet {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.as_slice().fmt(formatter)
    }
}

/// The result of a `Range` field.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[expect(
    clippy::large_enum_variant,
    reason = "short-lived, on the stack, and free of allocation"
)]
pub enum RangeRequest {
    /// Nothing to honour: send the whole representation. For other units, invalid syntax, and too
    /// many or overlapping ranges.
    Ignore,
    /// No range is satisfiable: 416.
    Unsatisfiable,
    /// These ranges: 206.
    Satisfiable(RangeSet),
}

/// Parses a `Range` field's value against the length of the selected representation.
///
/// Ranges that begin beyond the end are left out if others remain. Numbers that exceed 64 bits are
/// taken as the largest, which means the same.
#[must_use]
pub fn parse_range(value: &[u8], complete_len: u64) -> RangeRequest {
    parse_set(value, complete_len).unwrap_or(RangeRequest::Ignore)
}

/// As [`parse_range`], `None` for [`RangeRequest::Ignore`].
fn parse_set(value: &[u8], complete_len: u64) -> Option<RangeRequest> {
    let (unit, specs) = value.split_at_checked(UNIT.len())?;
    if !unit.eq_ignore_ascii_case(UNIT) {
        return None;
    }
    let mut set = RangeSet {
        ranges: [ByteRange::default(); RANGES_MAX],
        count: 0,
    };
    let mut spec_count = 0;
    for spec in specs.split(|&byte| byte == b',') {
        let spec = trim(spec);
        if spec.is_empty() {
            continue; // RFC 9110 5.6.1.2
        }
        spec_count += 1;
        if spec_count > RANGES_MAX {
            return None;
        }
        if let Some(range) = parse_spec(spec, complete_len)?
            && !set.add(range)
        {
            return None;
        }
    }
    match (spec_count, set.count) {
        (0, _) => None,
        (_, 0) => Some(RangeRequest::Unsatisfiable),
        _ => Some(RangeRequest::Satisfiable(set)),
    }
}

/// One range specifier: outer `None` if it or the length causes the whole field to be ignored,
/// inner `None` if it is unsatisfiable (RFC 9110 section 14.1.2).
fn parse_spec(spec: &[u8], complete_len: u64) -> Option<Option<ByteRange>> {
    let dash = spec.iter().position(|&byte| byte == b'-')?;
    let (first, last) = (&spec[..dash], &spec[dash + 1..]);
    if first.is_empty() {
        let suffix_len = position(last)?;
        if suffix_len == 0 {
            return Some(None);
        }
        if complete_len == 0 {
            // Satisfiable, but a Content-Range cannot express it: the whole, empty, content is
            // sent.
            return None;
        }
        let start = complete_len.saturating_sub(suffix_len);
        return Some(Some(ByteRange {
            start,
            end: complete_len,
        }));
    }
    let first = position(first)?;
    let last = if last.is_empty() {
        u64::MAX
    } else {
        position(last)?
    };
    if first > last {
        return None;
    }
    if first >= complete_len {
        return Some(None);
    }
    Some(Some(ByteRange {
        start: first,
        end: last.saturating_add(1).min(complete_len),
    }))
}

/// One or more digits, saturating.
fn position(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |number, byte| {
        byte.is_ascii_digit().then(|| {
            number
                .saturating_mul(10)
                .saturating_add(u64::from(byte - b'0'))
        })
    })
}

/// Without spaces and tabs at both ends.
fn trim(mut text: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = text {
        text = rest;
    }
    text
}

const UNIT: &[u8] = b"bytes=";

#[cfg(test)]
mod tests {
    use super::*;

    /// `expect`: `ignore`, `416`, or the ranges as `start..end`.
    fn check(value: &str, len: u64, expect: &str) {
        let found = match parse_range(value.as_bytes(), len) {
            RangeRequest::Ignore => "ignore".to_owned(),
            RangeRequest::Unsatisfiable => "416".to_owned(),
            RangeRequest::Satisfiable(set) => {
                let texts = set
                    .as_slice()
                    .iter()
                    .map(|r| format!("{}..{}", r.start, r.end));
                texts.collect::<Vec<_>>().join(" ")
            }
        };
        assert_eq!(found, expect, "{value:?} of {len}");
    }

    #[test]
    fn single_ranges() {
        check("bytes=0-", 10, "0..10");
        check("bytes=0-0", 10, "0..1");
        check("bytes=3-5", 10, "3..6");
        check("bytes=3-99", 10, "3..10");
        check("bytes=9-", 10, "9..10");
        check("bytes=-3", 10, "7..10");
        check("bytes=-99", 10, "0..10");
        check("BYTES=0-1", 10, "0..2");
        check("bytes=0-18446744073709551615", 10, "0..10");
        check("bytes=0-99999999999999999999999", 10, "0..10");
        check("bytes=-99999999999999999999999", 10, "0..10");
    }

    #[test]
    fn unsatisfiable_ranges() {
        check("bytes=10-", 10, "416");
        check("bytes=10-20", 10, "416");
        check("bytes=-0", 10, "416");
        check("bytes=0-", 0, "416");
        check("bytes=-5", 0, "ignore");
        check("bytes=99999999999999999999999-", 10, "416");
        check("bytes=10-,20-30", 10, "416");
    }

    #[test]
    fn sets() {
        check("bytes=0-1,4-5", 10, "0..2 4..6");
        check("bytes=4-5, 0-1", 10, "4..6 0..2");
        check("bytes=0-1\t, ,2-3,", 10, "0..2 2..4");
        check("bytes=0-1,50-60", 10, "0..2");
        check("bytes=0-4,4-5", 10, "ignore");
        check("bytes=0-,-1", 10, "ignore");
        let sixteen: Vec<_> = (0..16).map(|i| format!("{0}-{0}", i * 2)).collect();
        let all = (0..16)
            .map(|i| format!("{}..{}", i * 2, i * 2 + 1))
            .collect::<Vec<_>>();
        check(&format!("bytes={}", sixteen.join(",")), 100, &all.join(" "));
        check(&format!("bytes={},50-50", sixteen.join(",")), 100, "ignore");
    }

    #[test]
    fn invalid_syntax_is_ignored() {
        for bad in [
            "",
            "bytes",
            "bytes=",
            "bytes=,",
            "bytes=-",
            "bytes=5",
            "bytes=5-4",
            "bytes=a-b",
            "bytes=1-2-3",
            "bytes =0-1",
            "bytes= 0 -1",
            "bytes=+0-1",
            "bytes=0-0x5",
            "lines=0-1",
            "bytes=0-1;2-3",
            "bytes=--1",
            "bytes=0-1,x",
        ] {
            check(bad, 10, "ignore");
        }
    }

    #[test]
    fn content_ranges_are_written() {
        let mut out = Vec::new();
        ByteRange { start: 0, end: 5 }.write_content_range(10, &mut out);
        assert_eq!(out, b"bytes 0-4/10");
        out.clear();
        write_unsatisfied_range(10, &mut out);
        assert_eq!(out, b"bytes */10");
    }
}
