//! Where a writer keeps what it gathers: sections that grow with the site, strings, digests.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use crate::layout::slice;
use crate::superblock::SectionKind;

/// Keeps the sections that grow with the site until the archive is finished, in memory or out of
/// it. Errors are sticky: the spool records them, and reports them when the archive is finished.
pub trait Spool: fmt::Debug {
    /// Appends bytes to a section.
    fn append(&mut self, section: SectionKind, bytes: &[u8]);

    /// Gives all bytes of a section to `take`, in pieces, in their order.
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

/// A section in a spool, with what the section table says of it.
pub(super) struct Spooled {
    kind: SectionKind,
    /// With what was reserved and has not come yet.
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

    /// Appends bytes; gives where in the section they are.
    pub(super) fn append(&mut self, spool: &mut dyn Spool, bytes: &[u8]) -> u64 {
        let offset = self.reserve(bytes.len() as u64);
        self.fill(spool, bytes);
        offset
    }

    /// Keeps a place for bytes that come later; gives where it is.
    pub(super) fn reserve(&mut self, len: u64) -> u64 {
        let offset = self.len;
        self.len += len;
        offset
    }

    /// Appends bytes for which there is a place.
    pub(super) fn fill(&mut self, spool: &mut dyn Spool, bytes: &[u8]) {
        spool.append(self.kind, bytes);
        self.hasher.update(bytes);
        self.appended += bytes.len() as u64;
    }

    /// Whether all bytes that a place was kept for have come.
    pub(super) fn is_filled(&self) -> bool {
        self.appended == self.len
    }

    pub(super) fn checksum(&self) -> u64 {
        self.hasher.digest()
    }
}

/// Byte strings kept once each.
#[derive(Debug, Default)]
pub(super) struct Pool {
    pub(super) bytes: Vec<u8>,
    /// Where a string with this hash lies. Of two strings with one hash, which no archive will ever
    /// see, the second is kept as often as it comes.
    places: HashMap<u64, (u64, usize), BuildHasherDefault<Hashed>>,
}

/// For keys that are hashes already.
#[derive(Default)]
pub(super) struct Hashed(u64);

impl Hasher for Hashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = self.0.rotate_left(5) ^ hash;
    }
}

impl Pool {
    /// Where the string is, and whether it is new.
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

    /// Where the string is, if it is there.
    pub(super) fn find(&self, string: &[u8]) -> Option<u64> {
        let (start, len) = *self.places.get(&xxh3_64(string))?;
        (slice(&self.bytes, start as usize, len) == string).then_some(start)
    }

    /// Adds a string that is not there yet.
    pub(super) fn append(&mut self, string: &[u8]) -> u64 {
        let offset = self.bytes.len() as u64;
        self.bytes.extend_from_slice(string);
        offset
    }
}
