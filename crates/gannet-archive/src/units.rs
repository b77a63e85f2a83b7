//! Units: the parts of an archive that are fetched and verified one by one, where it is not copied whole.
//!
//! A stored blob of up to [`UNIT_LEN_MAX`] bytes is one unit, which its digest verifies; each group of
//! [`GROUP_LEN`] bytes of a longer one is a unit, which its tree verifies. Units are numbered in the order of
//! the blobs, which is that of the file. Tiny blobs have none, nor have those stored only in a coding.

use core::ops::Range;
use std::io;

use crate::inventory::{ReadAt, pieces, records_at_once, section};
use crate::layout::{blob, u64_at};
use crate::limits::{BLOB_ALIGN, GROUP_LEN, UNIT_LEN_MAX};
use crate::superblock::{SUPERBLOCK_LEN, SectionKind, Superblock};
use crate::tree::{GroupHash, group_hash, has_tree};

/// The units of an archive. They take memory for its long blobs alone.
#[derive(Clone, Debug, Default)]
pub struct Units {
    /// Blobs that have units: the first so many.
    blobs: u32,
    /// Longer blobs by number.
    long: Vec<Long>,
    count: u64,
    /// Where the metadata region begins.
    metadata: u64,
    /// Where the file has the records of blobs, their digests, and the trees.
    records: u64,
    digests: u64,
    trees: u64,
}

/// A blob that has a tree.
#[derive(Clone, Copy, Debug)]
struct Long {
    number: u32,
    /// Its first unit.
    first: u64,
    groups: u64,
    /// Groups of the long blobs before it.
    groups_before: u64,
}

/// One unit.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Unit {
    /// The number of its blob.
    pub blob: u32,
    /// Its number among the groups of a long blob; `None` if it is all of its blob.
    pub group: Option<u64>,
    /// Where it is in the file.
    pub offset: u64,
    /// Its length in bytes: at most [`UNIT_LEN_MAX`].
    pub len: u64,
}

impl Units {
    /// Reads those of an archive, and checks the places of its blobs: each unit is between superblock and
    /// metadata region, and none overlaps another. The metadata is known to be sound otherwise, by its build id.
    ///
    /// # Errors
    /// Those of `read`; `InvalidData` if blobs are not in order or leave their part of the file, or the trees
    /// are not those of its long blobs; `Unsupported` if it has long blobs, but no trees, as archives of
    /// earlier versions.
    pub fn read(superblock: &Superblock, read: ReadAt<'_>) -> io::Result<Self> {
        let invalid = || io::Error::from(io::ErrorKind::InvalidData);
        let place = |kind| section(superblock, kind).map_or((0, 0), |it| (it.offset, it.len));
        let metadata = superblock.metadata_range().start;
        let trees = place(SectionKind::Trees);
        let records = place(SectionKind::Blobs);
        let digests = place(SectionKind::Digests);
        let mut units = Self {
            metadata,
            records: records.0,
            digests: digests.0,
            trees: trees.0,
            ..Self::default()
        };
        let mut groups = 0;
        let mut end = SUPERBLOCK_LEN as u64;
        let mut empty_at = None;
        let mut some = vec![0; records_at_once(blob::LEN)];
        'records: for (at, len) in pieces(section(superblock, SectionKind::Blobs), some.len()) {
            read(at, &mut some[..len])?;
            for record in some[..len].chunks_exact(blob::LEN) {
                let (offset, len) = (u64_at(record, blob::OFFSET), u64_at(record, blob::BYTES));
                // Also the marks of what is not stored.
                if offset >= metadata {
                    break 'records;
                }
                let is_placed = offset >= end && offset.is_multiple_of(BLOB_ALIGN);
                // Of empty ones, too, a page has few.
                let is_again = len == 0 && empty_at.replace(offset) == Some(offset);
                let is_placed = is_placed && !is_again;
                let fits = offset.checked_add(len).filter(|end| *end <= metadata);
                end = fits.filter(|_| is_placed).ok_or_else(invalid)?;
                units.add(len, &mut groups)?;
            }
        }
        if u64::from(units.blobs) * blob::DIGEST_LEN as u64 > digests.1 {
            return Err(invalid());
        }
        match trees.1 == groups * blob::DIGEST_LEN as u64 {
            true => Ok(units),
            false if trees.1 == 0 => Err(io::ErrorKind::Unsupported.into()),
            false => Err(invalid()),
        }
    }

    fn add(&mut self, len: u64, groups_before: &mut u64) -> io::Result<()> {
        let number = self.blobs;
        let next = number.checked_add(1).ok_or(io::ErrorKind::InvalidData)?;
        self.blobs = next;
        if !has_tree(len) {
            self.count += 1;
            return Ok(());
        }
        let groups = len.div_ceil(GROUP_LEN);
        self.long.push(Long {
            number,
            first: self.count,
            groups,
            groups_before: *groups_before,
        });
        *groups_before += groups;
        self.count += groups;
        Ok(())
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// How many blobs have any: the first so many.
    pub fn blobs(&self) -> u32 {
        self.blobs
    }

    /// Whether a blob has any.
    pub fn has(&self, blob: u32) -> bool {
        blob < self.blobs
    }

    /// The units that have bytes of a range of a blob, which is counted from its start and may go beyond its
    /// end; none of a blob that is tiny, or stored only in a coding.
    pub fn in_blob(&self, blob: u32, range: Range<u64>) -> Range<u64> {
        if !self.has(blob) || range.is_empty() {
            return 0..0;
        }
        let before = self.long.partition_point(|it| it.number <= blob);
        let Some(last) = before.checked_sub(1).and_then(|at| self.long.get(at)) else {
            let unit = u64::from(blob);
            return unit..unit + 1;
        };
        if last.number != blob {
            let unit = last.first + last.groups - 1 + u64::from(blob - last.number);
            return unit..unit + 1;
        }
        let start = (range.start / GROUP_LEN).min(last.groups);
        let end = range.end.div_ceil(GROUP_LEN).min(last.groups);
        last.first + start..last.first + end
    }

    /// The unit with this number; `None` if there are not so many. `read` is as for [`Units::read`].
    ///
    /// # Errors
    /// Those of `read`; `InvalidData` for an archive that was changed since.
    pub fn unit(&self, number: u64, read: ReadAt<'_>) -> io::Result<Option<Unit>> {
        if number >= self.count {
            return Ok(None);
        }
        let before = self.long.partition_point(|it| it.first <= number);
        let last = before.checked_sub(1).and_then(|at| self.long.get(at));
        let (blob, group) = match last {
            Some(last) if number < last.first + last.groups => {
                (u64::from(last.number), Some(number - last.first))
            }
            Some(last) => {
                let after = number - (last.first + last.groups);
                (u64::from(last.number) + 1 + after, None)
            }
            None => (number, None),
        };
        let mut record = [0; blob::LEN];
        read(self.records + blob * blob::LEN as u64, &mut record)?;
        let (offset, len) = (u64_at(&record, blob::OFFSET), u64_at(&record, blob::BYTES));
        let start = group.map_or(0, |group| group * GROUP_LEN);
        let most = group.map_or(UNIT_LEN_MAX, |_| GROUP_LEN);
        let end = offset.checked_add(len).filter(|end| *end <= self.metadata);
        let left = len
            .checked_sub(start)
            .filter(|left| group.is_some() || *left <= most);
        let (Some(left), Some(_), Ok(blob)) = (left, end, u32::try_from(blob)) else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        Ok(Some(Unit {
            blob,
            group,
            offset: offset + start,
            len: left.min(most),
        }))
    }

    /// The tree of a long blob; empty for another one. `read` is as for [`Units::read`].
    ///
    /// # Errors
    /// Those of `read`.
    pub fn tree(&self, blob: u32, read: ReadAt<'_>) -> io::Result<Vec<GroupHash>> {
        let Some(long) = self.long_of(blob) else {
            return Ok(Vec::new());
        };
        let mut tree = vec![[0; 32]; long.groups as usize];
        read(self.group_at(long.groups_before), tree.as_flattened_mut())?;
        Ok(tree)
    }

    fn long_of(&self, blob: u32) -> Option<&Long> {
        let at = self.long.binary_search_by_key(&blob, |it| it.number);
        self.long.get(at.ok()?)
    }

    /// Where a chaining value is in the file.
    fn group_at(&self, number: u64) -> u64 {
        self.trees + number * size_of::<GroupHash>() as u64
    }

    /// Whether these are the bytes of a unit. `read` is as for [`Units::read`].
    ///
    /// # Errors
    /// Those of `read`.
    pub fn verify(&self, unit: &Unit, bytes: &[u8], read: ReadAt<'_>) -> io::Result<bool> {
        let mut expect: GroupHash = [0; 32];
        let found = match unit.group {
            None => {
                expect = self.digest(unit.blob, read)?;
                *blake3::hash(bytes).as_bytes()
            }
            Some(group) => {
                let Some(long) = self.long_of(unit.blob) else {
                    return Ok(false);
                };
                read(self.group_at(long.groups_before + group), &mut expect)?;
                match bytes.is_empty() {
                    true => return Ok(false),
                    false => group_hash(group, bytes),
                }
            }
        };
        Ok(bytes.len() as u64 == unit.len && found == expect)
    }

    /// The digest of a blob that has units. `read` is as for [`Units::read`].
    ///
    /// # Errors
    /// Those of `read`.
    pub fn digest(&self, blob: u32, read: ReadAt<'_>) -> io::Result<[u8; 32]> {
        let mut digest = [0; 32];
        read(self.digest_at(blob), &mut digest)?;
        Ok(digest)
    }

    /// Where the digest of a blob is in the file.
    fn digest_at(&self, blob: u32) -> u64 {
        self.digests + u64::from(blob) * blob::DIGEST_LEN as u64
    }

    /// The digests of all blobs that have units, in pieces, with the number of the first of each.
    ///
    /// # Errors
    /// Those of `read`.
    pub fn digests(
        &self,
        read: ReadAt<'_>,
        found: &mut dyn FnMut(u32, &[u8; 32]),
    ) -> io::Result<()> {
        let mut some = vec![0; records_at_once(blob::DIGEST_LEN)];
        let mut number = 0;
        while number < self.blobs {
            let left = (self.blobs - number) as usize;
            let count = left.min(some.len() / blob::DIGEST_LEN);
            let part = &mut some[..count * blob::DIGEST_LEN];
            read(self.digest_at(number), part)?;
            for (number, digest) in (number..).zip(part.as_chunks().0) {
                found(number, digest);
            }
            number += count as u32;
        }
        Ok(())
    }
}
