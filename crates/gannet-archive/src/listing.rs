//! The entries of an archive, found and read in its file: for who has no room for its metadata in memory.

use core::cmp::Ordering;
use std::io;

use crate::archive::Namespace;
use crate::inventory::{ReadAt, section};
use crate::layout::{entry, u8_at, u16_at, u32_at, u64_at, variant};
use crate::limits::{PATH_LEN_MAX, VARIANT_COUNT_MAX};
use crate::superblock::{SectionKind, Superblock};

/// Where an archive has its entries. As of an [`Inventory`](crate::Inventory), nothing is checked: what is invalid is
/// left out.
#[derive(Clone, Debug)]
pub struct Listing {
    /// Of the sections: offset and length.
    entries: (u64, u64),
    variants: (u64, u64),
    strings: (u64, u64),
}

/// An entry with content.
#[derive(Clone, Copy, Debug)]
pub struct Listed {
    host: u16,
    path: (u64, u32),
    first_variant: u32,
    variant_count: u8,
}

impl Listing {
    /// That of an archive.
    pub fn of(superblock: &Superblock) -> Self {
        let place = |kind| section(superblock, kind).map_or((0, 0), |it| (it.offset, it.len));
        Self {
            entries: place(SectionKind::Entries),
            variants: place(SectionKind::Variants),
            strings: place(SectionKind::Strings),
        }
    }

    /// How many entries there are, of all kinds.
    pub fn count(&self) -> u64 {
        self.entries.1 / entry::LEN as u64
    }

    /// The entry with this number, if it is content at a path of its own.
    ///
    /// # Errors
    /// Those of `read`.
    pub fn entry(&self, number: u64, read: ReadAt<'_>) -> io::Result<Option<Listed>> {
        let record = self.record(number, read)?;
        let is_content = u8_at(&record, entry::KIND) == entry::KIND_CONTENT
            && u8_at(&record, entry::NAMESPACE) == Namespace::Content as u8;
        Ok(is_content.then(|| listed(&record)))
    }

    /// The content at a path of a host, by number.
    ///
    /// # Errors
    /// Those of `read`.
    pub fn find(&self, host: u16, path: &[u8], read: ReadAt<'_>) -> io::Result<Option<Listed>> {
        let (mut low, mut high) = (0, self.count());
        while low < high {
            let middle = low + (high - low) / 2;
            let record = self.record(middle, read)?;
            let found = listed(&record);
            let space = u8_at(&record, entry::NAMESPACE);
            let order = match (found.host, space).cmp(&(host, Namespace::Content as u8)) {
                Ordering::Equal => self.path(&found, read)?.as_slice().cmp(path),
                order => order,
            };
            match order {
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
                Ordering::Equal => return self.entry(middle, read),
            }
        }
        Ok(None)
    }

    /// The path of an entry; empty if it is nowhere.
    ///
    /// # Errors
    /// Those of `read`.
    pub fn path(&self, listed: &Listed, read: ReadAt<'_>) -> io::Result<Vec<u8>> {
        let (offset, len) = (listed.path.0, u64::from(listed.path.1));
        let end = offset.checked_add(len).filter(|end| *end <= self.strings.1);
        if end.is_none() || len > PATH_LEN_MAX {
            return Ok(Vec::new());
        }
        let mut path = vec![0; listed.path.1 as usize];
        read(self.strings.0 + offset, &mut path)?;
        Ok(path)
    }

    /// The codings of an entry, by number, with the numbers of their blobs.
    ///
    /// # Errors
    /// Those of `read`.
    pub fn blobs(&self, listed: &Listed, read: ReadAt<'_>) -> io::Result<Vec<(u8, u32)>> {
        let mut some = [0; VARIANT_COUNT_MAX as usize * variant::LEN];
        let count = listed.variant_count.min(VARIANT_COUNT_MAX);
        let some = &mut some[..usize::from(count) * variant::LEN];
        let offset = u64::from(listed.first_variant) * variant::LEN as u64;
        if offset + some.len() as u64 > self.variants.1 {
            return Ok(Vec::new());
        }
        read(self.variants.0 + offset, some)?;
        let records = some.chunks_exact(variant::LEN);
        let blob = |it: &[u8]| (u8_at(it, variant::CODING), u32_at(it, variant::BLOB));
        Ok(records.map(blob).collect())
    }

    fn record(&self, number: u64, read: ReadAt<'_>) -> io::Result<[u8; entry::LEN]> {
        let mut record = [0; entry::LEN];
        read(self.entries.0 + number * entry::LEN as u64, &mut record)?;
        Ok(record)
    }
}

impl Listed {
    /// The number of its host.
    pub fn host(&self) -> u16 {
        self.host
    }
}

fn listed(record: &[u8; entry::LEN]) -> Listed {
    Listed {
        host: u16_at(record, entry::HOST),
        path: (
            u64_at(record, entry::PATH_OFFSET),
            u32_at(record, entry::PATH_LEN),
        ),
        first_variant: u32_at(record, entry::FIRST_VARIANT),
        variant_count: u8_at(record, entry::VARIANT_COUNT),
    }
}
