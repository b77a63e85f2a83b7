//! What of a new archive has to be fetched: all but the blobs that local files have.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use gannet_archive::{Inventory, SUPERBLOCK_LEN, SectionKind, Superblock};
use gannet_io::named_file;

use crate::limits::{BLOBS_MAX, JOIN_GAP_MAX};

/// The blobs of an archive that are between its superblock and its metadata, in their order.
pub(crate) struct Blobs {
    all: Vec<Lacking>,
    /// The places of those that no release here has, by their digests.
    lacking: HashMap<[u8; 32], usize>,
}

/// A blob, and whether it is still to be fetched.
struct Lacking {
    place: Range<u64>,
    is_lacking: bool,
}

impl Blobs {
    /// Reads those of an archive whose superblock and metadata are in a file. `None` if their
    /// places are unknown, or there are too many.
    pub(crate) fn of(file: &File, superblock: &Superblock) -> Option<Self> {
        let inventory = inventory(file, superblock).ok()?;
        let metadata = superblock.metadata_range().start;
        let mut blobs = Self {
            all: Vec::new(),
            lacking: HashMap::new(),
        };
        let mut end = SUPERBLOCK_LEN as u64;
        for blob in inventory.blobs() {
            if blob.is_tiny || blob.coded.is_some() {
                continue;
            }
            let place = blob.offset..blob.offset.checked_add(blob.len)?;
            if place.start < end || place.end > metadata {
                return None;
            }
            end = place.end;
            let digest = blob.digest.try_into().ok()?;
            blobs.lacking.insert(digest, blobs.all.len());
            blobs.all.push(Lacking {
                place,
                is_lacking: true,
            });
        }
        Some(blobs)
    }

    /// Takes what a file has already, which was being made of the same archive.
    pub(crate) fn resume(&mut self, file: &File) {
        let all = &mut self.all;
        self.lacking.retain(|digest, index| {
            let place = &all[*index].place;
            let is_there = copy(file, place.clone(), digest, &mut |_, _| Ok(()));
            all[*index].is_lacking = !matches!(is_there, Ok(true));
            all[*index].is_lacking
        });
    }

    /// Copies what another archive has. What cannot be read there is still lacking.
    ///
    /// # Errors
    /// Those of writing to `file`.
    pub(crate) fn take(&mut self, archive: &Path, file: &File) -> io::Result<()> {
        if self.lacking.is_empty() {
            return Ok(());
        }
        let Ok((source, inventory)) = open(archive) else {
            return Ok(());
        };
        for blob in inventory.blobs() {
            let Some(index) = self.lacking.get(blob.digest).copied() else {
                continue;
            };
            let there = blob.offset..blob.offset.saturating_add(blob.len);
            let here = self.all[index].place.clone();
            if blob.coded.is_some() || there.end - there.start != here.end - here.start {
                continue;
            }
            let mut failed = None;
            let copied = copy(&source, there, blob.digest, &mut |at, bytes| {
                let written = file.write_all_at(bytes, here.start + at);
                written.map_err(|error| failed = Some(error)).or(Ok(()))
            });
            if let Some(error) = failed {
                return Err(error);
            }
            if let Ok(true) = copied {
                self.all[index].is_lacking = false;
                self.lacking.remove(blob.digest);
            }
        }
        Ok(())
    }

    /// The ranges to fetch, in order.
    pub(crate) fn ranges(&self) -> Vec<Range<u64>> {
        let lacking = self.all.iter().filter(|it| it.is_lacking);
        join(lacking.map(|it| it.place.clone()))
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

/// An archive with its blobs, of which nothing is checked.
fn open(path: &Path) -> io::Result<(File, Inventory)> {
    let file = named_file::open(path)?;
    let len = file.metadata()?.len();
    let mut first = [0; SUPERBLOCK_LEN];
    file.read_exact_at(&mut first, 0)?;
    let superblock = Superblock::parse(&first, len).map_err(|_| io::ErrorKind::InvalidData)?;
    let inventory = inventory(&file, &superblock)?;
    Ok((file, inventory))
}

fn inventory(file: &File, superblock: &Superblock) -> io::Result<Inventory> {
    for (kind, len) in [(SectionKind::Blobs, 16), (SectionKind::Digests, 32)] {
        let mut sections = superblock.sections().iter();
        if sections.any(|it| it.kind == kind && it.len > BLOBS_MAX * len) {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
    }
    Inventory::of_blobs(superblock, &mut |at, buffer| file.read_exact_at(buffer, at))
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
    use super::*;

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
