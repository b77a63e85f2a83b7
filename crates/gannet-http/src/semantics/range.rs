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

/// Up to [`RANGES_MAX`] ranges, of which no two overlap or touch, in request order; never empty.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RangeSet(Ranges);

/// One range, as nearly every request has, needs no memory of its own.
#[derive(Clone, Debug, Eq, PartialEq)]
enum Ranges {
    One(ByteRange),
    Several(Vec<ByteRange>),
}

impl RangeSet {
    /// The ranges.
    #[must_use]
    pub fn as_slice(&self) -> &[ByteRange] {
        match &self.0 {
            Ranges::One(range) => std::slice::from_ref(range),
            Ranges::Several(ranges) => ranges,
        }
    }

    /// Adds a range; whether it follows the one before, without touching it.
    fn add(&mut self, range: ByteRange) -> bool {
        match &mut self.0 {
            Ranges::One(first) => {
                let is_behind = range.start > first.end;
                let mut ranges = Vec::with_capacity(USUAL_COUNT);
                ranges.extend([*first, range]);
                self.0 = Ranges::Several(ranges);
                is_behind
            }
            Ranges::Several(ranges) => {
                let is_behind = ranges.last().is_some_and(|last| range.start > last.end);
                ranges.push(range);
                is_behind
            }
        }
    }

    /// Joins ranges that overlap or touch (RFC 9110 section 15.3.7.2); each has the place of the
    /// one that was requested first.
    #[cold]
    fn joined(self) -> Self {
        let ranges = self.as_slice().iter().copied();
        let mut places: Vec<(usize, ByteRange)> = ranges.enumerate().collect();
        places.sort_unstable_by_key(|(place, range)| (range.start, *place));
        places.dedup_by(|(place, range), (kept_place, kept)| {
            let is_joined = range.start <= kept.end;
            if is_joined {
                kept.end = kept.end.max(range.end);
                *kept_place = (*kept_place).min(*place);
            }
            is_joined
        });
        places.sort_unstable_by_key(|(place, _)| *place);
        let ranges = places.into_iter().map(|(_, range)| range);
        Self(Ranges::Several(ranges.collect()))
    }
}

/// The result of a `Range` field.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum RangeRequest {
    /// Nothing to honour: send the whole representation. For other units, invalid syntax, too many
    /// ranges, and an empty representation.
    Ignore,
    /// No range is satisfiable: 416.
    Unsatisfiable,
    /// These ranges: 206.
    Satisfiable(RangeSet),
}

/// Parses a `Range` field's value against the length of the selected representation.
///
/// Ranges that begin beyond the end are left out if others remain. Numbers that exceed 64 bits are
/// taken as the largest, which means the same. Any range of nothing is all of it: caches that fetch
/// by ranges ask for one before they know the length, and 416 has no content to store.
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
    if complete_len == 0 {
        return None;
    }
    let (mut set, mut is_ascending) = (None::<RangeSet>, true);
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
        match (parse_spec(spec, complete_len)?, &mut set) {
            (None, _) => {}
            (Some(range), None) => set = Some(RangeSet(Ranges::One(range))),
            (Some(range), Some(set)) => is_ascending &= set.add(range),
        }
    }
    match set {
        None if spec_count == 0 => None,
        None => Some(RangeRequest::Unsatisfiable),
        Some(set) if is_ascending => Some(RangeRequest::Satisfiable(set)),
        Some(set) => Some(RangeRequest::Satisfiable(set.joined())),
    }
}

/// One range specifier: outer `None` if it causes the whole field to be ignored, inner `None` if it
/// is unsatisfiable (RFC 9110 section 14.1.2).
fn parse_spec(spec: &[u8], complete_len: u64) -> Option<Option<ByteRange>> {
    let dash = spec.iter().position(|&byte| byte == b'-')?;
    let (first, last) = (&spec[..dash], &spec[dash + 1..]);
    if first.is_empty() {
        let suffix_len = position(last)?;
        if suffix_len == 0 {
            return Some(None);
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

/// As many ranges as document viewers request at once.
const USUAL_COUNT: usize = 8;

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
        check("bytes=0-", 0, "ignore");
        check("bytes=-5", 0, "ignore");
        check("bytes=7-9,-0", 0, "ignore");
        check("bytes=99999999999999999999999-", 10, "416");
        check("bytes=10-,20-30", 10, "416");
    }

    #[test]
    fn sets() {
        check("bytes=0-1,4-5", 10, "0..2 4..6");
        check("bytes=4-5, 0-1", 10, "4..6 0..2");
        check("bytes=0-1,50-60", 10, "0..2");
        check("bytes=50-60,0-1", 10, "0..2");
    }

    #[test]
    fn ranges_that_overlap_or_touch_are_joined() {
        check("bytes=0-1\t, ,2-3,", 10, "0..4");
        check("bytes=0-4,4-5", 10, "0..6");
        check("bytes=0-,-1", 10, "0..10");
        check("bytes=5-6,0-0,6-7", 10, "5..8 0..1");
        check("bytes=8-8,0-1,7-7,3-3,1-2", 10, "7..9 0..4");
        check("bytes=0-9,3-4,0-0,9-9", 10, "0..10");
        check("bytes=4-4,4-4,4-4", 10, "4..5");
    }

    #[test]
    fn as_many_as_the_limit_are_honoured() {
        let specs: Vec<_> = (0..RANGES_MAX).map(|i| format!("{0}-{0}", i * 2)).collect();
        let all = (0..RANGES_MAX).map(|i| format!("{}..{}", i * 2, i * 2 + 1));
        let all = all.collect::<Vec<_>>().join(" ");
        check(&format!("bytes={}", specs.join(",")), 1_000, &all);
        check(&format!("bytes={},999-", specs.join(",")), 1_000, "ignore");
        let whole = ["0-"; RANGES_MAX].join(",");
        check(&format!("bytes={whole}"), 1_000, "0..1000");
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
