//! Where a writer keeps what it collects: sections that grow with the site, strings, digests.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use crate::layout::slice;
use crate::superblock::SectionKind;

/// Keeps the sections that grow with the site until the archive is finished, in memory or
/// elsewhere. Errors are sticky: the spool records them, and reports them when the archive is
/// finished.
pub trait Spool: fmt::Debug {
    /// Appends bytes to a section.
    fn append(&mut self, section: SectionKind, bytes: &[u8]);

    /// Passes all bytes of a section to `take`, in pieces, in order.
    fn read(&mut self, section: SectionKind, take: &mut dyn FnMut(&[u8]));
}

/// A spool in memory.
#[derive(Clone, Debug, Default)]
pub struct MemorySpool {
    sections: BTreeMap<u32, Vec<u8>>,
}

impl Spool for MemorySpool {
    fn append(&mut self, section: SectionKind, bytes: &[u8]) {
        let section = self.sections.entry(section.number()).or_default();
        section.extend_from_slice(bytes);
    }

    fn read(&mut self, section: SectionKind, take: &mut dyn FnMut(&[u8])) {
        if let Some(bytes) = self.sections.get(&section.number()) {
            take(bytes);
        }
    }
}

/// A section in a spool, with its values for the section table.
pub(super) struct Spooled {
    kind: SectionKind,
    /// Including reserved bytes that have not been filled in yet.
    pub(super) len: u64,
    appended: u64,
    hasher: Box<Xxh3>,
}

impl fmt::Debug for Spooled {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {} bytes", self.kind, self.len)
    }
}

impl Spooled {
    pub(super) fn new(kind: SectionKind) -> Self {
        Self {
            kind,
            len: 0,
            appended: 0,
            hasher: Box::new(Xxh3::new()),
        }
    }

    /// Appends bytes; returns their offset in the section.
    pub(super) fn append(&mut self, spool: &mut dyn Spool, bytes: &[u8]) -> u64 {
        let offset = self.reserve(bytes.len() as u64);
        self.fill(spool, bytes);
        offset
    }

    /// Reserves room for bytes to be filled in later; returns its offset.
    pub(super) fn reserve(&mut self, len: u64) -> u64 {
        let offset = self.len;
        self.len += len;
        offset
    }

    /// Appends bytes into reserved room.
    pub(super) fn fill(&mut self, spool: &mut dyn Spool, bytes: &[u8]) {
        spool.append(self.kind, bytes);
        self.hasher.update(bytes);
        self.appended += bytes.len() as u64;
    }

    /// Whether all reserved room has been filled.
    pub(super) fn is_filled(&self) -> bool {
        self.appended == self.len
    }

    pub(super) fn checksum(&self) -> u64 {
        self.hasher.digest()
    }
}

/// Byte strings, each stored once.
#[derive(Debug, Default)]
pub(super) struct Pool {
    pub(super) bytes: Vec<u8>,
    /// The place of the string with this hash. If two strings had the same hash, which no archive
    /// will ever see, the second would be stored each time.
    places: HashMap<u64, (u64, usize)>,
}

impl Pool {
    /// The offset of the string, and whether it is new.
    pub(super) fn add(&mut self, string: &[u8]) -> (u64, bool) {
        let offset = self.bytes.len() as u64;
        let place = *self
            .places
            .entry(xxh3_64(string))
            .or_insert((offset, string.len()));
        if place.0 < offset && slice(&self.bytes, place.0 as usize, place.1) == string {
            return (place.0, false);
        }
        (self.append(string), true)
    }

    /// The offset of the string, if it is stored.
    pub(super) fn find(&self, string: &[u8]) -> Option<u64> {
        let (start, len) = *self.places.get(&xxh3_64(string))?;
        (slice(&self.bytes, start as usize, len) == string).then_some(start)
    }

    /// Adds a string that is not stored yet.
    pub(super) fn append(&mut self, string: &[u8]) -> u64 {
        let offset = self.bytes.len() as u64;
        self.bytes.extend_from_slice(string);
        offset
    }
}
