//! The dynamic table (RFC 7541 section 2.3.2) of a decoder, with the entries ready as lines.
//!
//! Fields that a client repeats with every request are dynamic entries, so an entry is checked and
//! rendered once, when it is inserted, and then costs one copy per use.

use std::collections::VecDeque;

use crate::binary::line::{Line, NameKind};
use crate::h2::limits::DYNAMIC_TABLE_MAX;

/// Entries from the newest (0) to the oldest.
///
/// Invariants: `size <= size_max <= DYNAMIC_TABLE_MAX`; the entries' lines are in `bytes`, oldest
/// first, without gaps, up to its end; `bytes.len() <= 2 * DYNAMIC_TABLE_MAX`.
#[derive(Clone, Debug)]
pub(crate) struct DynamicTable {
    entries: VecDeque<Entry>,
    bytes: Vec<u8>,
    size: u32,
    size_max: u32,
}

/// An entry: the position of its line, and its meaning.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    start: u16,
    name_len: u16,
    value_len: u16,
    pub(crate) kind: NameKind,
    is_well_formed: bool,
}

impl Entry {
    #[inline]
    fn line(&self, start: u32) -> Line {
        Line {
            kind: self.kind,
            is_well_formed: self.is_well_formed,
            start,
            name_len: self.name_len,
            value_len: self.value_len,
        }
    }

    fn line_len(&self) -> usize {
        self.line(0).end()
    }
}

impl DynamicTable {
    /// An empty table; nothing is allocated before the first entry.
    pub(crate) fn new() -> Self {
        Self {
            entries: VecDeque::new(),
            bytes: Vec::new(),
            size: 0,
            size_max: DYNAMIC_TABLE_MAX,
        }
    }

    /// Appends the line of an entry to `out`.
    #[inline]
    pub(crate) fn write_line(&self, index: usize, out: &mut Vec<u8>) -> Option<Line> {
        let entry = self.entries.get(index)?;
        let from = usize::from(entry.start);
        let line = entry.line(out.len() as u32);
        out.extend_from_slice(&self.bytes[from..from + entry.line_len()]);
        Some(line)
    }

    /// Appends the name of an entry to `out`; returns its meaning.
    pub(crate) fn write_name(&self, index: usize, out: &mut Vec<u8>) -> Option<NameKind> {
        let entry = self.entries.get(index)?;
        let from = usize::from(entry.start);
        out.extend_from_slice(&self.bytes[from..from + usize::from(entry.name_len)]);
        Some(entry.kind)
    }

    /// Inserts an entry: `bytes` of a line, which `line` describes. An entry larger than the table
    /// empties it (RFC 7541 section 4.4).
    pub(crate) fn insert(&mut self, line: &Line, bytes: &[u8]) {
        let size = line.size();
        if size > self.size_max {
            self.evict_to(0);
            return;
        }
        self.evict_to(self.size_max - size);
        // A line has 4 bytes beyond name and value, an entry counts 32: so all lines together fit
        // in the table's size, and 16 bits hold every offset.
        debug_assert!(
            bytes.len() <= size as usize,
            "lines are smaller than their entries"
        );
        if self.bytes.len() + bytes.len() > 2 * DYNAMIC_TABLE_MAX as usize {
            self.compact();
        }
        self.entries.push_front(Entry {
            start: self.bytes.len() as u16,
            name_len: line.name_len,
            value_len: line.value_len,
            kind: line.kind,
            is_well_formed: line.is_well_formed,
        });
        self.bytes.extend_from_slice(bytes);
        self.size += size;
    }

    /// Changes the size, as an update in a block requests; `size_max` is within the limit.
    pub(crate) fn resize(&mut self, size_max: u32) {
        debug_assert!(size_max <= DYNAMIC_TABLE_MAX, "the limit is checked");
        self.size_max = size_max;
        self.evict_to(size_max);
    }

    fn evict_to(&mut self, size: u32) {
        while self.size > size {
            match self.entries.pop_back() {
                Some(oldest) => self.size -= oldest.line(0).size(),
                None => unreachable!("a table without entries has size 0"),
            }
        }
        if self.entries.is_empty() {
            self.bytes.clear();
        }
    }

    /// Moves the lines to the beginning of the buffer. Between two moves at least a whole table of
    /// new lines arrives, so a byte is moved about once.
    fn compact(&mut self) {
        let start = self.entries.back().map_or(0, |oldest| oldest.start);
        self.bytes.drain(..usize::from(start));
        for entry in &mut self.entries {
            entry.start -= start;
        }
    }

    #[cfg(test)]
    pub(crate) fn size(&self) -> u32 {
        self.size
    }

    /// Bytes on the heap.
    pub(crate) fn memory(&self) -> usize {
        self.bytes.capacity() + self.entries.capacity() * size_of::<Entry>()
    }
}
