//! The state of an interrupted download: `FILE.part.tag`, beside the bytes in `FILE.part`.
//!
//! ```text
//! "the entity tag"
//! 0 1000 250
//! 1000 1000 1000
//! ```
//!
//! The first line is the strong entity tag of the content. Each further line is a part: its first
//! byte, its length, and how many of its bytes are present. Without such lines, all bytes of the
//! file are present and the rest of the content is missing.

use std::fmt::Write;

use super::limits::CONNECTIONS_MAX;
use super::output::{Part, shares};

/// The parts present, and the content they belong to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct PartialDownload {
    /// The entity tag.
    pub(super) tag: String,
    /// Length of the file.
    len: u64,
    /// Parts with the bytes present in each; empty if there is a single part.
    parts: Vec<(u64, u64, u64)>,
}

impl PartialDownload {
    /// Parses the state of a file of `len` bytes, at least one. `None` if it is inconsistent.
    pub(super) fn read(text: &str, len: u64) -> Option<Self> {
        let mut lines = text.lines();
        let tag = lines.next().filter(|tag| is_tag(tag))?.to_owned();
        let (mut parts, mut at) = (Vec::new(), 0);
        for line in lines {
            let mut numbers = line.split(' ').map(str::parse::<u64>);
            let mut next = || numbers.next()?.ok();
            let (start, part, written) = (next()?, next()?, next()?);
            // They are in order, without a gap, and none has more than its length.
            if start != at || part == 0 || written > part || parts.len() == CONNECTIONS_MAX {
                return None;
            }
            // Recorded bytes are present.
            if written > 0 && start.checked_add(written)? > len {
                return None;
            }
            at = start.checked_add(part)?;
            parts.push((start, part, written));
        }
        Some(Self { tag, len, parts })
    }

    /// Formats the text that [`PartialDownload::read`] parses.
    pub(super) fn write(tag: &str, parts: &[Part], written: impl Iterator<Item = u64>) -> String {
        let mut text = format!("{tag}\n");
        if parts.len() > 1 {
            for (part, written) in parts.iter().zip(written) {
                let (start, len) = (part.start, part.len.unwrap_or(0));
                let _ = writeln!(text, "{start} {len} {written}");
            }
        }
        text
    }

    /// First byte, and last if known, of the first request. If nothing is missing, it is the last
    /// byte: the response carries the digest of the whole.
    fn first_missing(&self) -> (u64, Option<u64>) {
        let missing = self.parts.iter().find(|(_, len, written)| written < len);
        match missing {
            Some((start, len, written)) => (start + written, Some(start + len - 1)),
            None => (self.len - 1, None),
        }
    }

    /// The value of `range` that requests it.
    pub(super) fn range(&self) -> String {
        match self.first_missing() {
            (first, Some(last)) => format!("bytes={first}-{last}"),
            (first, None) => format!("bytes={first}-"),
        }
    }

    /// Whether `range` (first, last, whole length) is the requested one, of the same content.
    pub(super) fn fits(&self, (first, last, whole): (u64, u64, u64)) -> bool {
        let whole_before = self.parts.last().map(|(start, len, _)| start + len);
        let (start, end) = self.first_missing();
        first == start
            && last == end.unwrap_or(whole - 1)
            && whole_before.is_none_or(|before| before == whole)
    }

    /// All parts of a content of `whole` bytes, and how much of each is present. If there is a
    /// single part, the rest of it is divided among `connections`.
    pub(super) fn parts(&self, whole: u64, connections: usize) -> (Vec<Part>, Vec<u64>) {
        let (first, last) = self.first_missing();
        if last.is_none() {
            let there = Part {
                start: 0,
                len: Some(first),
            };
            let rest = shares(first, whole.saturating_sub(first), connections);
            let before = if first > 0 { vec![there] } else { Vec::new() };
            let written = [vec![first; before.len()], vec![0; rest.len()]].concat();
            return ([before, rest].concat(), written);
        }
        let parts = self.parts.iter();
        let parts = parts.map(|&(start, len, written)| {
            let len = Some(len);
            (Part { start, len }, written)
        });
        parts.unzip()
    }
}

/// Whether `text` is a strong entity tag (RFC 9110 section 8.8.3): it goes into a request.
fn is_tag(text: &str) -> bool {
    let inner = text.strip_prefix('"').and_then(|t| t.strip_suffix('"'));
    inner.is_some_and(|t| t.bytes().all(|b| b > 0x20 && b != b'"' && b != 0x7f))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_goes_on_at_the_first_gap() {
        let parts = shares(0, 100, 3);
        let text = PartialDownload::write("\"a\"", &parts, [33, 10, 0].into_iter());
        let partial = PartialDownload::read(&text, 43).expect("ours");
        assert_eq!(partial.range(), "bytes=43-65");
        assert!(partial.fits((43, 65, 100)) && !partial.fits((43, 65, 101)));
        assert!(!partial.fits((43, 99, 100)) && !partial.fits((0, 65, 100)));
        assert_eq!(partial.parts(100, 1), (parts.clone(), vec![33, 10, 0]));
        // Nothing is missing: requesting the last byte verifies that.
        let whole = PartialDownload::write("\"a\"", &parts, [33, 33, 34].into_iter());
        let whole = PartialDownload::read(&whole, 100).expect("ours");
        assert_eq!(whole.range(), "bytes=99-");
        assert!(whole.fits((99, 99, 100)));
    }

    #[test]
    fn one_part_goes_on_with_its_last_byte_in_as_many_as_there_are_connections() {
        let one = Part {
            start: 0,
            len: Some(100),
        };
        let text = PartialDownload::write("\"a\"", &[one], [40].into_iter());
        let partial = PartialDownload::read(&text, 40).expect("ours");
        assert_eq!(partial.range(), "bytes=39-");
        assert!(partial.fits((39, 99, 100)) && !partial.fits((39, 98, 100)));
        let (parts, written) = partial.parts(100, 2);
        let found: Vec<_> = parts.iter().map(|part| (part.start, part.len)).collect();
        assert_eq!(found, [(0, Some(39)), (39, Some(30)), (69, Some(31))]);
        assert_eq!(written, [39, 0, 0]);
        let (parts, written) = PartialDownload::read(&text, 1).expect("ours").parts(100, 1);
        assert_eq!((parts, written), (vec![one], vec![0]));
    }

    #[test]
    fn what_makes_no_sense_is_not_gone_on_with() {
        for bad in [
            "",
            "a",
            "W/\"a\"",
            "\"a\r\"",
            "\"a\"\n0 10",
            "\"a\"\n5 10 0",
            "\"a\"\n0 10 11",
            "\"a\"\n0 10 0\n11 10 0",
            "\"a\"\n0 50 50",
            "\"a\"\n0 18446744073709551615 1\n18446744073709551615 9 1",
            "\"a\"\n0 0 0",
        ] {
            assert_eq!(PartialDownload::read(bad, 40), None, "{bad:?}");
        }
        let many = (0..2000).map(|n| format!("{n} 1 0\n"));
        let many = format!("\"a\"\n{}", many.collect::<String>());
        assert_eq!(PartialDownload::read(&many, 40), None);
    }
}
