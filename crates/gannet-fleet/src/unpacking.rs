//! The metadata of a release, from the packed form that follows its archive.

use std::ops::Range;

use gannet_archive::Superblock;
use gannet_archive::limits::PACKED_WINDOW_LOG;
use zstd::stream::raw::{DParameter, Decoder, InBuffer, Operation, OutBuffer};

use crate::draft::Draft;
use crate::error::FleetError;

/// Unpacks as the packed form comes. What it unpacks to is not known to be right: the build id is of that.
pub(crate) struct Unpacking<'d> {
    draft: &'d Draft<'d>,
    decoder: Decoder<'static>,
    packed: Range<u64>,
    metadata: Range<u64>,
    /// Bytes that are there of the metadata.
    len: u64,
    is_sound: bool,
    piece: Vec<u8>,
}

impl<'d> Unpacking<'d> {
    /// `None` if the archive has no packed form.
    pub(crate) fn of(draft: &'d Draft<'d>, superblock: &Superblock) -> Option<Self> {
        let packed = superblock.packed_metadata(draft.file_len())?;
        let mut decoder = Decoder::new().ok()?;
        let window = DParameter::WindowLogMax(PACKED_WINDOW_LOG);
        decoder.set_parameter(window).ok()?;
        Some(Self {
            draft,
            decoder,
            packed,
            metadata: superblock.metadata_range(),
            len: 0,
            is_sound: true,
            piece: vec![0; PIECE],
        })
    }

    /// Where the release has the packed form.
    pub(crate) fn packed(&self) -> Range<u64> {
        self.packed.clone()
    }

    /// Writes a piece of it at its place, and what it unpacks to, as far as that is of the metadata.
    pub(crate) fn take(&mut self, at: u64, piece: &[u8]) -> Result<(), FleetError> {
        self.draft.write(at, piece)?;
        let mut input = InBuffer::around(piece);
        while self.is_sound {
            let mut output = OutBuffer::around(&mut self.piece[..]);
            let ran = self.decoder.run(&mut input, &mut output);
            let len = output.pos();
            let to = self.metadata.start + self.len;
            self.len += len as u64;
            self.is_sound = ran.is_ok() && to + len as u64 <= self.metadata.end;
            if self.is_sound {
                self.draft.write(to, &self.piece[..len])?;
            }
            if input.pos() == piece.len() && len < PIECE {
                break;
            }
        }
        Ok(())
    }

    /// What is to be fetched of the metadata after all: nothing, or all of it.
    pub(crate) fn rest(&self) -> Range<u64> {
        let Range { start, end } = self.metadata;
        match self.is_sound && start + self.len == end {
            true => start..start,
            false => start..end,
        }
    }
}

/// Bytes that are unpacked at one time.
const PIECE: usize = 256 << 10;
