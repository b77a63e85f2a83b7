//! Reading parts of an archive by position.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;

/// Bytes that can be read by position.
pub trait Positioned {
    /// The total length.
    ///
    /// # Errors
    /// The length cannot be determined.
    fn total_len(&self) -> io::Result<u64>;

    /// Reads from `offset` on.
    ///
    /// # Errors
    /// The bytes cannot be read.
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize>;
}

impl Positioned for &[u8] {
    fn total_len(&self) -> io::Result<u64> {
        Ok((**self).len() as u64)
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let mut rest = self.get(start..).unwrap_or_default();
        rest.read(bytes)
    }
}

impl Positioned for File {
    fn total_len(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        FileExt::read_at(self, bytes, offset)
    }
}

/// A range of the file.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) struct InputRange {
    pub(super) offset: u64,
    pub(super) len: u64,
}

/// Reads a range. Ending before the range does is an error.
pub(super) struct RangeReader<'f> {
    pub(super) file: &'f dyn Positioned,
    pub(super) range: InputRange,
}

impl Read for RangeReader<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.range.len).unwrap_or(usize::MAX);
        let len = bytes.len().min(left);
        let count = self.file.read_at(&mut bytes[..len], self.range.offset)?;
        if count == 0 && len > 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.range.offset += count as u64;
        self.range.len -= count as u64;
        Ok(count)
    }
}
