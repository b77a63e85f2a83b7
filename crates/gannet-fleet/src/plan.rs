//! What of a new archive has to be fetched: all but the blobs that local files have.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use gannet_archive::{Blob, Inventory, SUPERBLOCK_LEN, SectionKind, Superblock, each_blob};
use gannet_io::named_file;

use crate::limits::JOIN_GAP_MAX;

/// The blobs of an archive that are between its superblock and its metadata, in their order.
pub(crate) struct Blobs {
    inventory: Inventory,
    /// Whether each of them is still to be fetched.
    is_lacking: Vec<bool>,
    /// The numbers of those in the order of their digests. A table would have places for digests, of which who writes an
    /// archive can choose many with the same one.
    by_digest: Vec<u32>,
}

impl Blobs {
    /// Reads those of an archive whose superblock and metadata are in a file. `None` if their
    /// places are unknown, or there are more than `most`.
    pub(crate) fn of(file: &File, superblock: &Superblock, most: u64) -> Option<Self> {
        for (kind, len) in [(SectionKind::Blobs, 16), (SectionKind::Digests, 32)] {
            let mut sections = superblock.sections().iter();
            if sections.any(|it| it.kind == kind && it.len > most * len) {
                return None;
            }
        }
        let mut read = |at: u64, buffer: &mut [u8]| file.read_exact_at(buffer, at);
        let inventory = Inventory::of_blobs(superblock, &mut read).ok()?;
        let metadata = superblock.metadata_range().start;
        let (mut is_lacking, mut by_digest) = (Vec::new(), Vec::new());
        let mut end = SUPERBLOCK_LEN as u64;
        for (number, blob) in (0..).zip(inventory.blobs()) {
            let is_stored = !blob.is_tiny && blob.coded.is_none();
            is_lacking.push(is_stored);
            if !is_stored {
                continue;
            }
            let place = blob.offset..blob.offset.checked_add(blob.len)?;
            if place.start < end || place.end > metadata {
                return None;
            }
            end = place.end;
            by_digest.push(number);
        }
        by_digest.sort_unstable_by_key(|number| inventory.digest(*number));
        Some(Self {
            inventory,
            is_lacking,
            by_digest,
        })
    }

    /// Where a blob is in the file, if it is still to be fetched.
    fn place(&self, number: u32) -> Option<Range<u64>> {
        let is_lacking = self.is_lacking.get(number as usize).copied();
        let blob = self
            .inventory
            .blob(number)
            .filter(|_| is_lacking == Some(true))?;
        Some(blob.offset..blob.offset + blob.len)
    }

    /// The number of a blob that has this digest and is still to be fetched.
    fn find(&self, digest: &[u8]) -> Option<(u32, Range<u64>)> {
        let digest_of = |number: &u32| self.inventory.digest(*number).map(|it| &it[..]);
        let at = self
            .by_digest
            .binary_search_by_key(&Some(digest), digest_of);
        let number = self.by_digest[at.ok()?];
        Some((number, self.place(number)?))
    }

    fn is_here(&mut self, number: u32) {
        self.is_lacking[number as usize] = false;
    }

    /// What is here is not searched for in the next archive.
    fn forget_found(&mut self) {
        self.by_digest
            .retain(|number| self.is_lacking[*number as usize]);
    }

    /// Takes what a file has already, which was being made of the same archive.
    pub(crate) fn resume(&mut self, file: &File) {
        for number in 0..self.is_lacking.len() as u32 {
            if let (Some(place), Some(digest)) = (self.place(number), self.inventory.digest(number))
                && let Ok(true) = copy(file, place, digest, &mut |_, _| Ok(()))
            {
                self.is_here(number);
            }
        }
        self.forget_found();
    }

    /// Copies what another archive has. What cannot be read there is still lacking.
    ///
    /// # Errors
    /// Those of writing to `file`.
    pub(crate) fn take(&mut self, archive: &Path, file: &File) -> io::Result<()> {
        if self.by_digest.is_empty() {
            return Ok(());
        }
        let Ok((source, superblock)) = open(archive) else {
            return Ok(());
        };
        let (mut end, mut failed) = (0, None);
        let mut take = |blob: Blob<'_>| {
            let there = blob.offset..blob.offset.saturating_add(blob.len);
            // They are in order, and none overlaps another: whatever the archive says, it is read once.
            if blob.coded.is_some() || there.start < end {
                return Ok(());
            }
            let found = self.find(blob.digest);
            let Some((number, here)) = found.filter(|(_, it)| it.end - it.start == blob.len) else {
                return Ok(());
            };
            end = there.end;
            let mut write = |at, bytes: &[u8]| {
                let written = file.write_all_at(bytes, here.start + at);
                written.map_err(|error| failed.insert(error).kind().into())
            };
            match copy(&source, there, blob.digest, &mut write) {
                Ok(true) => self.is_here(number),
                Err(error) if failed.is_some() => return Err(error),
                Ok(false) | Err(_) => {}
            }
            Ok(())
        };
        let mut read = |at: u64, buffer: &mut [u8]| source.read_exact_at(buffer, at);
        // What cannot be read is lacking.
        let _ = each_blob(&superblock, &mut read, &mut take);
        if let Some(error) = failed {
            return Err(error);
        }
        self.forget_found();
        Ok(())
    }

    /// The ranges to fetch, in order.
    pub(crate) fn ranges(&self) -> Vec<Range<u64>> {
        let numbers = 0..self.is_lacking.len() as u32;
        join(numbers.filter_map(|number| self.place(number)))
    }
}

/// Joins ranges, which are in order, with at most [`JOIN_GAP_MAX`] bytes in between.
fn join(ranges: impl Iterator<Item = Range<u64>>) -> Vec<Range<u64>> {
    let mut joined: Vec<Range<u64>> = Vec::new();
    for range in ranges.filter(|it| !it.is_empty()) {
        match joined.last_mut() {
            Some(last) if range.start - last.end <= JOIN_GAP_MAX => last.end = range.end,
            _ => joined.push(range),
        }
    }
    joined
}

/// An archive, of which nothing but the superblock is checked.
fn open(path: &Path) -> io::Result<(File, Superblock)> {
    let file = named_file::open(path)?;
    let len = file.metadata()?.len();
    let mut first = [0; SUPERBLOCK_LEN];
    file.read_exact_at(&mut first, 0)?;
    let superblock = Superblock::parse(&first, len).map_err(|_| io::ErrorKind::InvalidData)?;
    Ok((file, superblock))
}

/// Passes a range of a file on, in pieces with their places in it; returns whether it has this
/// digest.
fn copy(
    file: &File,
    range: Range<u64>,
    digest: &[u8],
    pass: &mut dyn FnMut(u64, &[u8]) -> io::Result<()>,
) -> io::Result<bool> {
    let mut hasher = blake3::Hasher::new();
    let mut piece = vec![0; PIECE.min(usize::try_from(range.end - range.start).unwrap_or(PIECE))];
    let mut at = range.start;
    while at < range.end {
        let left = usize::try_from(range.end - at).unwrap_or(PIECE);
        let piece = &mut piece[..left.min(PIECE)];
        file.read_exact_at(piece, at)?;
        hasher.update(piece);
        pass(at - range.start, piece)?;
        at += piece.len() as u64;
    }
    Ok(hasher.finalize().as_bytes() == digest)
}

/// Bytes copied at one time.
const PIECE: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use gannet_testkit::Folder;

    use super::*;
    use crate::demand::tests::archive;

    /// An archive of blobs with these seeds and lengths.
    fn written(folder: &Folder, name: &str, blobs: &[(u64, u64)]) -> (PathBuf, File, Superblock) {
        let path = folder.join(name);
        fs::write(&path, archive(blobs)).unwrap();
        let (_, superblock) = open(&path).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        (path, file, superblock)
    }

    #[test]
    fn an_archive_with_too_many_blobs_is_not_compared() {
        let folder = Folder::new();
        let (_, file, superblock) = written(&folder, "new", &[(1, 5000), (2, 6000), (3, 7000)]);
        assert!(Blobs::of(&file, &superblock, 2).is_none());
        let blobs = Blobs::of(&file, &superblock, 3).unwrap();
        assert_eq!(blobs.by_digest.len(), 3);
    }

    /// Who writes an archive can have it say that all its blobs are in one place, and have one digest.
    #[test]
    fn no_byte_of_another_archive_is_read_twice() {
        let folder = Folder::new();
        let (_, file, superblock) = written(&folder, "new", &[(1, 5000)]);
        let (path, other, others) = written(&folder, "old", &[(2, 5000), (1, 5000)]);
        let section = |kind| others.sections().iter().find(|it| it.kind == kind).unwrap();
        let (places, digests) = (SectionKind::Blobs, SectionKind::Digests);
        let mut digest = [0; 32];
        let second = section(digests).offset + 32;
        other.read_exact_at(&mut digest, second).unwrap();
        other
            .write_all_at(&digest, section(digests).offset)
            .unwrap();
        let mut place = [0; 8];
        let second = section(places).offset + 16;
        other.read_exact_at(&mut place, second).unwrap();
        let place = u64::from_le_bytes(place);
        // The first of them has other content. The second one is read unless it overlaps that.
        for (first, is_found) in [(SUPERBLOCK_LEN as u64, true), (place - 64, false)] {
            let at = section(places).offset;
            other.write_all_at(&first.to_le_bytes(), at).unwrap();
            let mut blobs = Blobs::of(&file, &superblock, 1).unwrap();
            blobs.take(&path, &file).unwrap();
            assert_eq!(blobs.ranges().is_empty(), is_found);
        }
    }

    #[test]
    fn ranges_are_joined_over_short_gaps_only() {
        let check = |ranges: &[(u64, u64)], expect: &[(u64, u64)]| {
            let joined = join(ranges.iter().map(|(start, end)| *start..*end));
            let joined: Vec<_> = joined.iter().map(|it| (it.start, it.end)).collect();
            assert_eq!(joined, expect);
        };
        let gap = JOIN_GAP_MAX;
        check(&[], &[]);
        check(&[(0, 0), (5, 5)], &[]);
        check(&[(0, 1), (1, 2)], &[(0, 2)]);
        check(&[(0, 1), (gap + 1, gap + 2)], &[(0, gap + 2)]);
        check(&[(0, 1), (gap + 2, gap + 3)], &[(0, 1), (gap + 2, gap + 3)]);
    }
}
