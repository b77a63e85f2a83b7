//! An archive file, opened for reading.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use gannet_archive::{
    Archive, ArchiveError, Body, Coding, Entry, SUPERBLOCK_LEN, Stored, Superblock, Variant, decode,
};
use gannet_io::named_file;

use super::{OPEN_ARCHIVE, SiteError};
use crate::pack::decoder;

/// An archive file with its metadata region in memory.
#[derive(Debug)]
pub struct ArchiveFile {
    path: PathBuf,
    file: File,
    /// Where it begins in the file.
    base: u64,
    packed_len: u64,
    archive: Archive<Vec<u8>>,
}

impl ArchiveFile {
    /// Opens and validates an archive.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or is not a valid archive.
    pub fn open(path: &Path) -> Result<Self, SiteError> {
        let refuse = |error| SiteError::io(OPEN_ARCHIVE, path)(error);
        let file = named_file::open(path).map_err(refuse)?;
        let len = file.metadata().map_err(refuse)?.len();
        Self::within(path, file, (0, len))
    }

    /// The same, also for a release of which only a part is here: nothing but its metadata can be relied on.
    ///
    /// # Errors
    /// As [`ArchiveFile::open`].
    pub fn open_metadata(path: &Path) -> Result<Self, SiteError> {
        let refuse = |error| SiteError::io(OPEN_ARCHIVE, path)(error);
        let file = named_file::open(path).map_err(refuse)?;
        let len = file.metadata().map_err(refuse)?.len();
        Self::parsed(path, file, (0, len), |first, len| {
            Superblock::parse_partial(first, len).or_else(|_| Superblock::parse(first, len))
        })
    }

    /// The same for `len` bytes of a file from `base` on, which errors call `path`.
    pub(crate) fn within(path: &Path, file: File, place: (u64, u64)) -> Result<Self, SiteError> {
        Self::parsed(path, file, place, Superblock::parse)
    }

    fn parsed(
        path: &Path,
        file: File,
        (base, len): (u64, u64),
        parse: fn(&[u8], u64) -> Result<Superblock, ArchiveError>,
    ) -> Result<Self, SiteError> {
        let refuse = |error| SiteError::io(OPEN_ARCHIVE, path)(error);
        let mut first = Vec::with_capacity(SUPERBLOCK_LEN);
        let mut start = Range {
            file: &file,
            offset: base,
            end: base + len.min(SUPERBLOCK_LEN as u64),
        };
        start.read_to_end(&mut first).map_err(refuse)?;
        let wrong = |error: ArchiveError| SiteError::Open(path.to_path_buf(), error);
        let superblock = parse(&first, len).map_err(wrong)?;
        let packed = superblock.packed_metadata(len);
        let packed_len = packed.map_or(0, |it| it.end.saturating_sub(it.start));
        let range = superblock.metadata_range();
        // The superblock was validated against the length of the file.
        let len = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
        let region = gannet_io::memory::read_large(&file, base + range.start, len);
        let archive = Archive::new(superblock, region.map_err(refuse)?).map_err(wrong)?;
        Ok(Self {
            path: path.to_path_buf(),
            file,
            base,
            packed_len,
            archive,
        })
    }

    /// Length of the metadata region as it follows the archive, packed; 0 if it does not. Nobody has verified that.
    #[must_use]
    pub fn packed_len(&self) -> u64 {
        self.packed_len
    }

    /// The archive's metadata.
    #[must_use]
    pub fn archive(&self) -> &Archive<Vec<u8>> {
        &self.archive
    }

    /// The path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file itself, to be read from its start, and its length in bytes.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn into_file(mut self) -> io::Result<(File, u64)> {
        self.file.rewind()?;
        let len = self.file.metadata()?.len();
        Ok((self.file, len))
    }

    /// The bytes of a variant as they are sent.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or a body stored only in a coding is corrupt.
    pub fn stored<'f>(&'f self, variant: &Variant<'f>) -> io::Result<Box<dyn Read + 'f>> {
        match variant.body() {
            Body::Plain(Stored::Tiny(bytes)) => Ok(Box::new(bytes)),
            Body::Plain(Stored::Blob { offset, len }) => Ok(Box::new(self.range(offset, len))),
            Body::Decoded {
                stored,
                coding,
                len,
            } => {
                let mut coded = Vec::new();
                // Shorter than the body, whose length is bounded.
                match stored {
                    Stored::Tiny(bytes) => coded.extend_from_slice(bytes),
                    Stored::Blob { offset, len } => {
                        self.range(offset, len).read_to_end(&mut coded)?;
                    }
                }
                Ok(Box::new(io::Cursor::new(decoded(coding, &coded, len)?)))
            }
        }
    }

    /// The uncoded content of an entry, decoded if necessary; `None` if the entry has no content.
    ///
    /// # Errors
    ///
    /// The file cannot be read. Reading fails if the stored coding is corrupt.
    pub fn content<'f>(&'f self, entry: &Entry<'f>) -> io::Result<Option<Box<dyn Read + 'f>>> {
        let identity = entry.select(Coding::Identity.into());
        let Some(variant) = identity.or_else(|| entry.variants().next()) else {
            return Ok(None);
        };
        decoder(variant.coding(), self.stored(&variant)?).map(Some)
    }

    /// `len` bytes of the archive from `offset` on. Each reader has its own position.
    pub(super) fn range(&self, offset: u64, len: u64) -> Range<'_> {
        Range {
            file: &self.file,
            offset: self.base.saturating_add(offset),
            end: self.base.saturating_add(offset).saturating_add(len),
        }
    }
}

/// Decodes a body stored only in a coding. Corrupt input is described in the decoder's words.
pub(super) fn decoded(coding: Coding, coded: &[u8], len: u64) -> io::Result<Vec<u8>> {
    decode(coding, coded, len).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// A range of a file, read at its own position.
#[derive(Debug)]
pub(super) struct Range<'f> {
    file: &'f File,
    offset: u64,
    end: u64,
}

impl Read for Range<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.end - self.offset).unwrap_or(usize::MAX);
        let len = bytes.len().min(left);
        let count = self.file.read_at(&mut bytes[..len], self.offset)?;
        self.offset += count as u64;
        Ok(count)
    }
}
