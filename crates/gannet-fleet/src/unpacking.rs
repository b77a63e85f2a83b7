//! The metadata of a release, from the packed form that follows its archive.

use std::ops::Range;

use gannet_archive::Superblock;
use gannet_archive::limits::PACKED_WINDOW_LOG;
use zstd::stream::raw::{DParameter, Decoder, InBuffer, Operation, OutBuffer};

use crate::draft::Draft;
use crate::error::FleetError;
use crate::limits::UNPACKED_TIMES_MAX;

/// What becomes of the packed form.
#[derive(Clone, Copy, Eq, PartialEq)]
pub(crate) enum Packed {
    /// It is a part of the copy.
    Kept,
    /// It is unpacked, and takes no room. Who takes over what it unpacks to compares the build id.
    Dropped,
    /// It is not looked at.
    Unused,
}

/// Unpacks as the packed form comes. What it unpacks to is not known to be right: the build id is of that.
pub(crate) struct Unpacking<'d> {
    draft: &'d Draft<'d>,
    decoder: Decoder<'static>,
    packed: Range<u64>,
    becomes: Packed,
    metadata: Range<u64>,
    /// Bytes that are there of the metadata.
    len: u64,
    is_sound: bool,
    piece: Vec<u8>,
}

impl<'d> Unpacking<'d> {
    /// `None` if the archive has no packed form, or one that says more than it can, or it is unused.
    pub(crate) fn of(
        draft: &'d Draft<'d>,
        superblock: &Superblock,
        becomes: Packed,
    ) -> Option<Self> {
        let packed = superblock.packed_metadata(draft.file_len())?;
        let metadata = superblock.metadata_range();
        let most = (packed.end - packed.start).saturating_mul(UNPACKED_TIMES_MAX);
        if becomes == Packed::Unused || metadata.end - metadata.start > most {
            return None;
        }
        let mut decoder = Decoder::new().ok()?;
        let window = DParameter::WindowLogMax(PACKED_WINDOW_LOG);
        decoder.set_parameter(window).ok()?;
        Some(Self {
            draft,
            decoder,
            packed,
            becomes,
            metadata,
            len: 0,
            is_sound: true,
            piece: vec![0; PIECE],
        })
    }

    /// Where the release has the packed form.
    pub(crate) fn packed(&self) -> Range<u64> {
        self.packed.clone()
    }

    /// Writes a piece of it at its place, if it is kept, and what it unpacks to, as far as that is of the metadata.
    pub(crate) fn take(&mut self, at: u64, piece: &[u8]) -> Result<(), FleetError> {
        if self.becomes == Packed::Kept {
            self.draft.write(at, piece)?;
        }
        let arrived = at + piece.len() as u64 - self.packed.start;
        let most = arrived.saturating_mul(UNPACKED_TIMES_MAX);
        let most = most.saturating_add(UNPACKED_AHEAD).min(self.metadata_len());
        let mut input = InBuffer::around(piece);
        while self.is_sound {
            let mut output = OutBuffer::around(&mut self.piece[..]);
            let ran = self.decoder.run(&mut input, &mut output);
            let len = output.pos();
            let to = self.metadata.start + self.len;
            self.len += len as u64;
            self.is_sound = ran.is_ok() && self.len <= most;
            if self.is_sound {
                let written = self.draft.write(to, &self.piece[..len]);
                // Who makes room passes the piece again, of which the decoder has had some.
                self.is_sound = written.is_ok();
                written?;
            }
            if input.pos() == piece.len() && len < PIECE {
                break;
            }
        }
        Ok(())
    }

    /// What is to be fetched of the metadata after all: nothing, or all of it.
    pub(crate) fn rest(&self, superblock: &Superblock) -> Result<Range<u64>, FleetError> {
        let Range { start, end } = self.metadata;
        let is_there = self.is_sound
            && self.len == self.metadata_len()
            && (self.becomes == Packed::Dropped || self.draft.has_metadata_of(superblock)?);
        Ok(match is_there {
            true => start..start,
            false => start..end,
        })
    }

    fn metadata_len(&self) -> u64 {
        self.metadata.end - self.metadata.start
    }
}

/// Bytes that are unpacked at one time.
const PIECE: usize = 256 << 10;

/// Bytes that may be unpacked before as many have arrived as that takes: a window, in which some parts are shorter.
const UNPACKED_AHEAD: u64 = 1 << PACKED_WINDOW_LOG;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt;

    use gannet_archive::{Key, Options, Writer};
    use gannet_testkit::Folder;

    use super::*;
    use crate::samples::pointer_to;

    /// Zeros unpack to a thousand times as many.
    #[test]
    fn a_few_bytes_do_not_become_many() {
        let mut writer = Writer::new(Options::default());
        for number in 0..60_000 {
            let path = format!("/{number:0200}");
            writer.add_redirect(Key::content(path.as_bytes()), 301, b"/");
        }
        writer.pack_metadata_from(0);
        let finished = writer.finish_into(&mut |_| {}).expect("sound");
        let size = finished.file_len + (1 << 20);
        let superblock = Superblock::parse(&finished.superblock, size).expect("sound");
        let folder = Folder::new();
        let path = folder.join("part");
        let pointer = pointer_to(&superblock, size);
        let draft = Draft::open(&path, &pointer).expect("there is room");
        let unpacking = Unpacking::of(&draft, &superblock, Packed::Kept);
        let mut unpacking = unpacking.expect("it has a packed form");
        let zeros = vec![0; 16 << 20];
        let few = zstd::encode_all(&zeros[..], 3).expect("zeros");
        let at = unpacking.packed().start;
        unpacking.take(at, &few).expect("there is room");
        let most = few.len() as u64 * UNPACKED_TIMES_MAX + UNPACKED_AHEAD;
        let metadata = superblock.metadata_range();
        assert!(metadata.end - metadata.start > most + (1 << 20));
        assert!(!unpacking.is_sound && unpacking.len <= most + PIECE as u64);
        let taken = fs::metadata(&path).expect("it is there").blocks() * 512;
        assert!(taken <= most + (64 << 10), "{taken} bytes");
        assert_eq!(unpacking.rest(&superblock).expect("readable"), metadata);
    }
}
