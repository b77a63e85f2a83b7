//! Where a writer keeps what it gathers: sections that grow with the site, strings, digests.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use crate::layout::slice;
use crate::superblock::SectionKind;

/// Keeps the sections that grow with the site until the archive is finished, in memory or out of
/// it. Errors are the keeper's: it remembers them, and tells them who finishes the archive.
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
    pub(super) len: u64,
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
            hasher: Box::new(Xxh3::new()),
        }
    }

    /// Appends bytes; gives where in the section they are.
    pub(super) fn append(&mut self, spool: &mut dyn Spool, bytes: &[u8]) -> u64 {
        spool.append(self.kind, bytes);
        self.hasher.update(bytes);
        let offset = self.len;
        self.len += bytes.len() as u64;
        offset
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
    places: HashMap<u64, (u64, usize)>,
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

    /// Whether a string is there; none at all always is.
    pub(super) fn has(&self, string: &[u8]) -> bool {
        let place = self.places.get(&xxh3_64(string));
        string.is_empty()
            || place.is_some_and(|(start, len)| slice(&self.bytes, *start as usize, *len) == string)
    }

    /// Adds a string that is not there yet.
    pub(super) fn append(&mut self, string: &[u8]) -> u64 {
        let offset = self.bytes.len() as u64;
        self.bytes.extend_from_slice(string);
        offset
    }
}

/// Numbers of blobs by their digests: four bytes each, and some room between. A map that had the
/// digests as its keys would hold them a second time.
#[derive(Debug, Default)]
pub(super) struct DigestTable {
    /// A power of two, at most 0.7 full.
    slots: Vec<u32>,
    count: usize,
}

const EMPTY: u32 = u32::MAX;

impl DigestTable {
    /// The number of the blob with this digest, if it is there; `digest_of` tells those of others.
    pub(super) fn find(
        &self,
        digest: &[u8; 32],
        digest_of: impl Fn(u32) -> Option<[u8; 32]>,
    ) -> Option<u32> {
        let mut slot = self.home(digest)?;
        loop {
            match self.slots[slot] {
                EMPTY => return None,
                number if digest_of(number).as_ref() == Some(digest) => return Some(number),
                _ => slot = (slot + 1) % self.slots.len(),
            }
        }
    }

    /// Adds a number whose digest is not there yet.
    pub(super) fn insert(
        &mut self,
        number: u32,
        digest: &[u8; 32],
        digest_of: impl Fn(u32) -> Option<[u8; 32]>,
    ) {
        if (self.count + 1) * 10 > self.slots.len() * 7 {
            let wider = (self.slots.len() * 2).max(1024);
            let old = std::mem::replace(&mut self.slots, vec![EMPTY; wider]);
            for number in old.into_iter().filter(|number| *number != EMPTY) {
                if let Some(digest) = digest_of(number) {
                    self.put(number, &digest);
                }
            }
        }
        self.put(number, digest);
        self.count += 1;
    }

    fn put(&mut self, number: u32, digest: &[u8; 32]) {
        let Some(mut slot) = self.home(digest) else {
            return;
        };
        while self.slots[slot] != EMPTY {
            slot = (slot + 1) % self.slots.len();
        }
        self.slots[slot] = number;
    }

    /// Digests are spread evenly as they are.
    fn home(&self, digest: &[u8; 32]) -> Option<usize> {
        let first = u64::from_le_bytes(*digest.first_chunk()?);
        (first as usize).checked_rem(self.slots.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_found_by_number() {
        let digests: Vec<[u8; 32]> = (0..5000u32)
            .map(|number| *blake3::hash(&number.to_le_bytes()).as_bytes())
            .collect();
        let digest_of = |number: u32| digests.get(number as usize).copied();
        let mut table = DigestTable::default();
        for (number, digest) in (0..).zip(&digests) {
            assert_eq!(table.find(digest, digest_of), None);
            table.insert(number, digest, digest_of);
        }
        for (number, digest) in (0..).zip(&digests) {
            assert_eq!(table.find(digest, digest_of), Some(number));
        }
    }
}
