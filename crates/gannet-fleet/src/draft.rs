//! Puts the file of a release together: from what local releases have, and from ranges of the store.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use gannet_archive::{SUPERBLOCK_LEN, Superblock};
use gannet_store::{Pointer, ReleaseId};
use rustix::fs::OFlags;

use crate::error::{Cause, FleetError};
use crate::limits::BLOBS_MAX;
use crate::pace::Meter;
use crate::plan::Blobs;
use crate::remote::Remote;
use crate::unpacking::{Packed, Unpacking};

/// A file of the final length, of which some bytes are still missing.
pub(crate) struct Draft<'d> {
    file: File,
    path: &'d Path,
    pointer: &'d Pointer,
}

impl<'d> Draft<'d> {
    /// Opens the file, and resumes from what it has.
    pub(crate) fn open(path: &'d Path, pointer: &'d Pointer) -> Result<Self, FleetError> {
        let refuse = |error| FleetError::io("write", path)(error);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        // A link would lead the bytes to another file.
        options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
        let file = options.open(path).map_err(refuse)?;
        if file.metadata().map_err(refuse)?.len() != pointer.size {
            // What has not been written yet reads as zeros and takes no room.
            file.set_len(0).map_err(refuse)?;
            file.set_len(pointer.size).map_err(refuse)?;
        }
        Ok(Self {
            file,
            path,
            pointer,
        })
    }

    /// Writes what is missing. `archives` are local ones that may have some of it.
    pub(crate) async fn fill(
        &self,
        remote: &Remote,
        archives: &[PathBuf],
        meter: &mut Meter,
    ) -> Result<(), FleetError> {
        let begun = self.superblock();
        let superblock = match &begun {
            Some(superblock) => superblock.clone(),
            None => {
                let first = self.fetch_first(remote, meter).await?;
                self.fetch_metadata(remote, first, Packed::Kept, meter)
                    .await?
            }
        };
        for range in self.lacking(&superblock, begun.is_some(), archives)? {
            self.fetch(remote, range, meter).await?;
        }
        Ok(())
    }

    /// Writes superblock and metadata, unless that has more than `most` bytes. Returns how many it has. `may_unpack`:
    /// it may be what the packed form of it says.
    pub(crate) async fn fill_head(
        &self,
        remote: &Remote,
        (most, may_unpack): (u64, bool),
        meter: &mut Meter,
    ) -> Result<u64, FleetError> {
        let head_len = |it: &Superblock| it.metadata_range().end - it.metadata_range().start;
        let superblock = match self.superblock() {
            Some(superblock) => return Ok(head_len(&superblock)),
            None => self.fetch_first(remote, meter).await?,
        };
        let len = head_len(&superblock.1);
        if len <= most {
            let packed = match may_unpack {
                true => Packed::Dropped,
                false => Packed::Unused,
            };
            self.fetch_metadata(remote, superblock, packed, meter)
                .await?;
        }
        Ok(len)
    }

    /// The ranges that are missing once superblock and metadata are there, after what local archives have
    /// is copied from them. If the draft `is_resumed`, so may be what was written before.
    pub(crate) fn lacking(
        &self,
        superblock: &Superblock,
        is_resumed: bool,
        archives: &[PathBuf],
    ) -> Result<Vec<Range<u64>>, FleetError> {
        let Some(mut blobs) = Blobs::of(&self.file, superblock, BLOBS_MAX) else {
            let all = SUPERBLOCK_LEN as u64..superblock.metadata_range().start;
            return Ok(Vec::from([all]));
        };
        if is_resumed {
            blobs.resume(&self.file);
        }
        for archive in archives {
            let taken = blobs.take(archive, &self.file);
            taken.map_err(FleetError::io("write", self.path))?;
        }
        Ok(blobs.ranges())
    }

    /// Fetches all of it, whatever is there.
    pub(crate) async fn fill_whole(
        &self,
        remote: &Remote,
        meter: &mut Meter,
    ) -> Result<(), FleetError> {
        self.fetch(remote, 0..self.pointer.size, meter).await
    }

    /// Its superblock, which is written when the metadata is there.
    pub(crate) fn superblock(&self) -> Option<Superblock> {
        let mut first = [0; SUPERBLOCK_LEN];
        self.file.read_exact_at(&mut first, 0).ok()?;
        let superblock = Superblock::parse(&first, self.pointer.size).ok()?;
        self.is_of(&superblock).then_some(superblock)
    }

    fn is_of(&self, superblock: &Superblock) -> bool {
        ReleaseId::of_build_id(superblock.build_id()) == self.pointer.release
    }

    /// Fetches the superblock.
    async fn fetch_first(
        &self,
        remote: &Remote,
        meter: &mut Meter,
    ) -> Result<(Vec<u8>, Superblock), FleetError> {
        let refuse = |cause| remote.refuse_release(self.pointer.release, cause);
        let mut first = Vec::with_capacity(SUPERBLOCK_LEN);
        let range = 0..(SUPERBLOCK_LEN as u64).min(self.pointer.size);
        let mut hold = |_: u64, piece: &[u8]| {
            first.extend_from_slice(piece);
            Ok(())
        };
        remote.range(self.object(), range, meter, &mut hold).await?;
        let superblock = self.head(&first).map_err(refuse)?;
        Ok((first, superblock))
    }

    /// Fetches the metadata, for a whole copy also whatever follows it, and writes the superblock.
    async fn fetch_metadata(
        &self,
        remote: &Remote,
        (first, superblock): (Vec<u8>, Superblock),
        packed: Packed,
        meter: &mut Meter,
    ) -> Result<Superblock, FleetError> {
        let mut rest = superblock.metadata_range();
        if packed == Packed::Kept {
            rest.end = self.file_len();
        }
        if let Some(mut unpacking) = Unpacking::of(self, &superblock, packed) {
            let packed = unpacking.packed();
            let mut take = |at: u64, piece: &[u8]| unpacking.take(at, piece);
            remote
                .range(self.object(), packed, meter, &mut take)
                .await?;
            rest = unpacking.rest(&superblock)?;
        }
        self.fetch(remote, rest, meter).await?;
        self.begin(&first)?;
        Ok(superblock)
    }

    /// Reads the first bytes of the release's archive.
    pub(crate) fn head(&self, first: &[u8]) -> Result<Superblock, Cause> {
        let superblock = Superblock::parse(first, self.pointer.size);
        let superblock = superblock.map_err(Cause::NotAnArchive)?;
        match self.is_of(&superblock) {
            true => Ok(superblock),
            false => Err(Cause::OtherArchive),
        }
    }

    /// Writes the first bytes, once the metadata is there.
    pub(crate) fn begin(&self, first: &[u8]) -> Result<(), FleetError> {
        let written = self.file.sync_data();
        let written = written.and_then(|()| self.file.write_all_at(first, 0));
        written.map_err(FleetError::io("write", self.path))
    }

    /// Writes a piece at its place.
    pub(crate) fn write(&self, at: u64, piece: &[u8]) -> Result<(), FleetError> {
        let written = self.file.write_all_at(piece, at);
        written.map_err(FleetError::io("write", self.path))
    }

    /// Whether the metadata is what the superblock says.
    pub(crate) fn has_metadata_of(&self, superblock: &Superblock) -> Result<bool, FleetError> {
        let mut read = |at: u64, buffer: &mut [u8]| self.file.read_exact_at(buffer, at);
        let build_id = superblock.compute_build_id_from(&mut read);
        let build_id = build_id.map_err(FleetError::io("read", self.path))?;
        Ok(build_id == *superblock.build_id())
    }

    /// Bytes of the release's file.
    pub(crate) fn file_len(&self) -> u64 {
        self.pointer.size
    }

    fn object(&self) -> (ReleaseId, u64) {
        (self.pointer.release, self.pointer.size)
    }

    async fn fetch(
        &self,
        remote: &Remote,
        range: Range<u64>,
        meter: &mut Meter,
    ) -> Result<(), FleetError> {
        let mut write = |at: u64, piece: &[u8]| self.write(at, piece);
        remote.range(self.object(), range, meter, &mut write).await
    }
}

/// Removes a file that is not what its pointer names; one that had the name of its release already is gone.
pub(crate) fn discard(part: &Path) -> Result<(), FleetError> {
    match fs::remove_file(part) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(FleetError::io("remove", part)(error))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_that_is_gone_is_discarded_and_one_that_stays_is_an_error() {
        assert!(discard(Path::new("/proc/no-such-part")).is_ok());
        assert!(discard(Path::new("/proc")).is_err());
    }
}
