//! Which units of a partial release are there.
//!
//! ```text
//! releases/<id>.partial    the archive, with holes for what has not been fetched
//! releases/<id>.present    which units are no holes
//! ```
//!
//! The file has a header of one page, and blocks of 64 bytes: how often units of the block went, 8 bytes,
//! little-endian, and a bit for each of 448 units, the lowest first. It is written by one process, and read
//! by any number of servers, which need not know when that process ends or begins:
//!
//! - a unit is on the disk before its bit is set, so that a bit is right after a loss of power, too;
//! - before a hole is made, the bit is cleared, then the block's number is raised, and both are on the disk.
//!
//! The header names the one file whose units these are. A copy of that, or another one made later under its name, has
//! another identity: nothing is there of it.
//!
//! So a reader takes the number, then the bits, then the bytes of the units, and then the number again: if
//! it is the same, no unit of the block became a hole meanwhile.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use gannet_io::named_file;

/// What a server knows of the units of a partial release, read from its file each time.
#[derive(Debug)]
pub struct Presence {
    file: File,
    count: u64,
}

/// What was there at some moment.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Look {
    first_block: u64,
    /// The numbers of the first block and the next one.
    gone: [[u8; 8]; 2],
    blocks: usize,
    present: u64,
}

impl Look {
    /// How many units there are, from the first one that was looked at to the first one that is lacking; at
    /// most [`LOOK_MAX`].
    #[must_use]
    pub fn present(&self) -> u64 {
        self.present
    }

    /// A number that is another one if any of them went meanwhile.
    #[must_use]
    pub fn stamp(&self) -> u64 {
        let gone = self.gone.map(u64::from_le_bytes);
        gone.into_iter().fold(0, u64::wrapping_add)
    }
}

impl Presence {
    /// Opens the file that has the units of another one.
    ///
    /// # Errors
    /// It cannot be read; `InvalidData` if it has those of yet another, or none.
    pub(crate) fn open(path: &Path, of: &Origin) -> io::Result<Self> {
        let file = named_file::open(path)?;
        let mut start = [0; HEADER_READ];
        file.read_exact_at(&mut start, 0)?;
        let count = read_header(&start, of, file.metadata()?.len());
        let count = count.ok_or(io::ErrorKind::InvalidData)?;
        Ok(Self { file, count })
    }

    /// How many units the release has.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Looks which units of a range are there.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn look(&self, units: Range<u64>) -> io::Result<Look> {
        let end = units
            .end
            .min(self.count)
            .min(units.start.saturating_add(LOOK_MAX));
        let first_block = units.start / BLOCK_UNITS;
        let mut look = Look {
            first_block,
            gone: [[0; 8]; 2],
            blocks: 0,
            present: 0,
        };
        if units.start >= end {
            return Ok(look);
        }
        look.blocks = ((end - 1) / BLOCK_UNITS - first_block) as usize + 1;
        look.gone = self.numbers(&look)?;
        let mut blocks = [0; 2 * BLOCK_LEN];
        let blocks = &mut blocks[..look.blocks * BLOCK_LEN];
        self.file.read_exact_at(blocks, block_at(first_block))?;
        let is_there = |unit: &u64| {
            let place = place_of(*unit - first_block * BLOCK_UNITS);
            blocks[place.0] & place.1 != 0
        };
        look.present = (units.start..end).take_while(is_there).count() as u64;
        Ok(look)
    }

    /// Whether no unit of the blocks that were looked at went since. Bytes of units that were there, and were
    /// read in between, are those of the release.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn is_still(&self, look: &Look) -> io::Result<bool> {
        Ok(self.numbers(look)? == look.gone)
    }

    /// The numbers of the blocks of a look.
    fn numbers(&self, look: &Look) -> io::Result<[[u8; 8]; 2]> {
        let mut numbers = [[0; 8]; 2];
        for (block, number) in (look.first_block..).zip(&mut numbers[..look.blocks]) {
            self.file.read_exact_at(number, block_at(block))?;
        }
        Ok(numbers)
    }
}

/// The file whose units are there.
pub(crate) struct Origin {
    /// The build id of its release.
    pub(crate) build_id: [u8; 32],
    /// [`SparseFile::identity`](crate::SparseFile::identity).
    pub(crate) identity: [u8; 24],
}

/// The units that are there, in the memory of the process that changes them, and as they are in the file.
#[derive(Clone, Debug)]
pub(crate) struct PresenceImage {
    blocks: Vec<u8>,
    count: u64,
}

impl PresenceImage {
    /// None is there, of so many.
    pub(crate) fn new(count: u64) -> Self {
        let blocks = count.div_ceil(BLOCK_UNITS) as usize;
        let blocks = vec![0; blocks * BLOCK_LEN];
        Self { blocks, count }
    }

    /// Reads a whole file; `None` if it has not the units of this one, which are so many.
    pub(crate) fn parse(file: &[u8], of: &Origin, count: u64) -> Option<Self> {
        let found = read_header(file.first_chunk()?, of, file.len() as u64)?;
        let blocks = file.get(HEADER_LEN..)?.to_vec();
        let mut image = Self { blocks, count };
        // Bits without a unit would never be cleared.
        for unit in count..image.blocks.len() as u64 / BLOCK_LEN as u64 * BLOCK_UNITS {
            image.put(unit, false);
        }
        (found == count).then_some(image)
    }

    /// The bytes of the file.
    pub(crate) fn to_file(&self, of: &Origin) -> Vec<u8> {
        let mut file = vec![0; HEADER_LEN];
        file[..16].copy_from_slice(&MAGIC);
        file[16..48].copy_from_slice(&of.build_id);
        file[48..56].copy_from_slice(&self.count.to_le_bytes());
        file[56..80].copy_from_slice(&of.identity);
        file.extend_from_slice(&self.blocks);
        file
    }

    /// The length of a file for so many units, in bytes.
    pub(crate) fn len_of(count: u64) -> u64 {
        HEADER_LEN as u64 + count.div_ceil(BLOCK_UNITS) * BLOCK_LEN as u64
    }

    pub(crate) fn has(&self, unit: u64) -> bool {
        let (at, bit) = place_of(unit);
        self.blocks.get(at).is_some_and(|byte| byte & bit != 0)
    }

    pub(crate) fn put(&mut self, unit: u64, is_there: bool) {
        let (at, bit) = place_of(unit);
        if let Some(byte) = self.blocks.get_mut(at) {
            *byte = *byte & !bit | if is_there { bit } else { 0 };
        }
    }

    /// Raises the number of a unit's block.
    pub(crate) fn raise(&mut self, unit: u64) {
        let at = (unit / BLOCK_UNITS) as usize * BLOCK_LEN;
        if let Some(number) = self.blocks.get_mut(at..).and_then(<[u8]>::first_chunk_mut) {
            *number = u64::from_le_bytes(*number).wrapping_add(1).to_le_bytes();
        }
    }

    /// The bits of a unit's block, and where they are in the file.
    pub(crate) fn bits(&self, unit: u64) -> (u64, &[u8]) {
        self.part(unit, 8..BLOCK_LEN)
    }

    /// The same for the block's number.
    pub(crate) fn number(&self, unit: u64) -> (u64, &[u8]) {
        self.part(unit, 0..8)
    }

    fn part(&self, unit: u64, part: Range<usize>) -> (u64, &[u8]) {
        let block = unit / BLOCK_UNITS;
        let start = block as usize * BLOCK_LEN + part.start;
        let bytes = self.blocks.get(start..start + part.len());
        (
            block_at(block) + part.start as u64,
            bytes.unwrap_or_default(),
        )
    }
}

/// How many units there are, by the first bytes of a file of `len` bytes.
fn read_header(start: &[u8; HEADER_READ], of: &Origin, len: u64) -> Option<u64> {
    let count = u64::from_le_bytes(*start[48..].first_chunk()?);
    let blocks = len.checked_sub(HEADER_LEN as u64)?;
    let is_whole = count.div_ceil(BLOCK_UNITS).checked_mul(BLOCK_LEN as u64)? == blocks;
    let is_of = start[16..48] == of.build_id && start[56..] == of.identity;
    (start[..16] == MAGIC && is_of && is_whole).then_some(count)
}

/// Where a block begins in the file.
fn block_at(block: u64) -> u64 {
    HEADER_LEN as u64 + block * BLOCK_LEN as u64
}

/// The byte and the bit of a unit, counted from the first block's start.
fn place_of(unit: u64) -> (usize, u8) {
    let (block, within) = ((unit / BLOCK_UNITS) as usize, (unit % BLOCK_UNITS) as usize);
    (block * BLOCK_LEN + 8 + within / 8, 1 << (within % 8))
}

/// The first bytes of the file.
const MAGIC: [u8; 16] = *b"\x89gnpresent\r\n\x1a\n\x01\0";
/// Bytes of the header that say something: magic, build id, number of units, identity of the other file.
const HEADER_READ: usize = 80;
/// A page, so that blocks do not share one with it.
const HEADER_LEN: usize = 4096;
/// A cache line.
const BLOCK_LEN: usize = 64;
/// Units of a block.
const BLOCK_UNITS: u64 = (BLOCK_LEN as u64 - 8) * 8;

/// Units that one look can find: so they are in two blocks at most.
pub const LOOK_MAX: u64 = BLOCK_UNITS;
