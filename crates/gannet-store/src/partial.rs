//! A release of which some units are there: read by servers, written by the follower of a store.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use gannet_archive::limits::PAGE_ALIGN;
use gannet_archive::{SUPERBLOCK_LEN, Superblock, Unit, Units, archive_start};
use gannet_io::named_file;
use rustix::fs::{AtFlags, FallocateFlags, OFlags, StatxFlags, fallocate, statx};

use crate::pointer::Pointer;
use crate::presence::{Origin, Presence, PresenceImage};
use crate::release_id::ReleaseId;
use crate::store::Store;

/// How the name of a partial release ends, and that of what it has.
pub const PARTIAL: &str = ".partial";
pub(crate) const PRESENT: &str = "present";

/// A partial release, for servers. Everything but the blobs is there, and so are the blobs whose units
/// [`Presence`] finds.
#[derive(Debug)]
pub struct PartialRelease {
    /// The file, in which everything is where the archive has it.
    pub file: File,
    /// The first bytes of the archive: the file has another magic.
    pub first: Vec<u8>,
    /// Which units are there.
    pub presence: Presence,
}

impl PartialRelease {
    /// Opens the file of [`Store::partial_path`](crate::Store::partial_path).
    ///
    /// # Errors
    /// It cannot be read; `InvalidData` if it is no partial release, or its presence is unknown.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = named_file::open(path)?;
        let (first, superblock) = read_head(&file, file.metadata()?.len())?;
        let of = origin(&file, &superblock)?;
        let presence = Presence::open(&path.with_extension(PRESENT), &of)?;
        Ok(Self {
            file,
            first,
            presence,
        })
    }
}

impl Store {
    /// Whether the partial release of a pointer is here, with what is present of it. Its metadata is read: what the
    /// disk has damaged is not here, nor is a copy of such a file.
    #[must_use]
    pub fn has_partial(&self, pointer: &Pointer) -> bool {
        let found = PartialRelease::open(&self.partial_path(pointer.release));
        found.is_ok_and(|it| it.is_of(pointer).unwrap_or(false))
    }
}

impl PartialRelease {
    fn is_of(&self, pointer: &Pointer) -> io::Result<bool> {
        let len = self.file.metadata()?.len();
        let Ok(superblock) = Superblock::parse(&self.first, len) else {
            return Ok(false);
        };
        let mut read = |at: u64, buffer: &mut [u8]| SparseFile::read_at(&self.file, buffer, at);
        let build_id = superblock.compute_build_id_from(&mut read)?;
        let units = Units::read(&superblock, &mut read)?;
        Ok(len == pointer.size
            && build_id == *superblock.build_id()
            && ReleaseId::of_build_id(&build_id) == pointer.release
            && units.count() == self.presence.count())
    }
}

/// The first bytes of the archive of a partial release of so many bytes, and what they say.
pub(crate) fn read_head(file: &impl SparseFile, len: u64) -> io::Result<(Vec<u8>, Superblock)> {
    let mut first = [0; SUPERBLOCK_LEN];
    file.read_at(&mut first, 0)?;
    let superblock = Superblock::parse_partial(&first, len);
    let superblock = superblock.map_err(|_| io::ErrorKind::InvalidData)?;
    Ok((archive_start(&first), superblock))
}

/// A file that may have holes. A trait, so that a test can cut the power.
pub trait SparseFile: Send + Sync {
    /// Fills a buffer from an offset on.
    ///
    /// # Errors
    /// The file ends before, or cannot be read.
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()>;

    /// Writes all of the bytes at an offset. They are on the disk after [`SparseFile::sync`].
    ///
    /// # Errors
    /// The system refuses it.
    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()>;

    /// Waits until everything is on the disk that was written before.
    ///
    /// # Errors
    /// The system refuses it.
    fn sync(&self) -> io::Result<()>;

    /// Makes a hole of whole pages, which reads as zeros and takes no room.
    ///
    /// # Errors
    /// The file system has no holes.
    fn punch(&self, range: Range<u64>) -> io::Result<()>;

    /// What tells it from other files, also from a copy of it: its inode, and when that was made, if the file system
    /// knows.
    ///
    /// # Errors
    /// The system refuses it.
    fn identity(&self) -> io::Result<[u8; 24]>;

    /// Bytes that it takes on the disk.
    ///
    /// # Errors
    /// The system refuses it.
    fn allocated(&self) -> io::Result<u64>;
}

impl SparseFile for File {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        self.read_exact_at(buffer, at)
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.write_all_at(bytes, at)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }

    fn punch(&self, range: Range<u64>) -> io::Result<()> {
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(fallocate(self, how, range.start, range.end - range.start)?)
    }

    fn identity(&self) -> io::Result<[u8; 24]> {
        let wanted = StatxFlags::INO | StatxFlags::BTIME;
        let found = statx(self, "", AtFlags::EMPTY_PATH, wanted)?;
        let mut identity = [0; 24];
        identity[..8].copy_from_slice(&found.stx_ino.to_le_bytes());
        if StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::BTIME) {
            identity[8..16].copy_from_slice(&found.stx_btime.tv_sec.to_le_bytes());
            identity[16..20].copy_from_slice(&found.stx_btime.tv_nsec.to_le_bytes());
        }
        Ok(identity)
    }

    fn allocated(&self) -> io::Result<u64> {
        Ok(self.metadata()?.blocks().saturating_mul(512))
    }
}

/// A partial release, for the one process that fetches and removes its units: the holder of the store's lock.
#[derive(Debug)]
pub struct PartialWriter<F = File> {
    data: Arc<F>,
    /// Its length.
    len: u64,
    presence: F,
    superblock: Superblock,
    units: Units,
    image: PresenceImage,
    /// Units that were written and are not there yet, or for readers are still there after a failure.
    written: HashSet<u64>,
}

impl PartialWriter {
    /// Opens the file of [`Store::partial_path`](crate::Store::partial_path), which has `len` bytes.
    ///
    /// # Errors
    /// As for [`PartialRelease::open`], and for [`Units::read`].
    pub fn open(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        // A link would lead the bytes to another file.
        options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
        let data = options.open(path)?;
        let presence = options.open(path.with_extension(PRESENT))?;
        let len = data.metadata()?.len();
        let bits_len = presence.metadata()?.len();
        Self::of(data, len, presence, bits_len)
    }
}

impl<F: SparseFile> PartialWriter<F> {
    /// The same for files that are open, with their lengths.
    ///
    /// # Errors
    /// As for [`PartialWriter::open`].
    pub fn of(data: F, len: u64, presence: F, presence_len: u64) -> io::Result<Self> {
        let (_, superblock) = read_head(&data, len)?;
        let units = Units::read(&superblock, &mut |at, buffer| data.read_at(buffer, at))?;
        let invalid = || io::Error::from(io::ErrorKind::InvalidData);
        if presence_len != PresenceImage::len_of(units.count()) {
            return Err(invalid());
        }
        let mut file = vec![0; usize::try_from(presence_len).map_err(|_| invalid())?];
        presence.read_at(&mut file, 0)?;
        let image = PresenceImage::parse(&file, &origin(&data, &superblock)?, units.count());
        Ok(Self {
            data: Arc::new(data),
            len,
            presence,
            image: image.ok_or_else(invalid)?,
            superblock,
            units,
            written: HashSet::new(),
        })
    }

    /// Bytes of the release's file.
    #[must_use]
    pub fn file_len(&self) -> u64 {
        self.len
    }

    /// Its units.
    #[must_use]
    pub fn units(&self) -> &Units {
        &self.units
    }

    /// Its superblock, as the archive has it.
    #[must_use]
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// Whether a unit is there.
    #[must_use]
    pub fn has(&self, unit: u64) -> bool {
        self.image.has(unit)
    }

    /// The file with the blobs, to be synced while others are fetched.
    #[must_use]
    pub fn data(&self) -> &Arc<F> {
        &self.data
    }

    /// The unit with this number.
    ///
    /// # Errors
    /// The metadata cannot be read, or was changed; there are not so many (`InvalidInput`).
    pub fn unit(&self, number: u64) -> io::Result<Unit> {
        let unit = self.units.unit(number, &mut self.reader())?;
        unit.ok_or(io::ErrorKind::InvalidInput.into())
    }

    /// Whether these are the bytes of a unit.
    ///
    /// # Errors
    /// The metadata cannot be read.
    pub fn verify(&self, unit: &Unit, bytes: &[u8]) -> io::Result<bool> {
        self.units.verify(unit, bytes, &mut self.reader())
    }

    fn reader(&self) -> impl FnMut(u64, &mut [u8]) -> io::Result<()> + use<'_, F> {
        |at, buffer| self.data.read_at(buffer, at)
    }

    /// Writes the verified bytes of a unit that is not there. It is there once [`PartialWriter::data`] was synced
    /// after this, and [`PartialWriter::set`] was called after that.
    ///
    /// # Errors
    /// The system refuses it.
    pub fn write(&mut self, (number, unit): (u64, &Unit), bytes: &[u8]) -> io::Result<()> {
        self.written.insert(number);
        self.data.write_at(bytes, unit.offset)
    }

    /// Units are there: they were written, and synced after that.
    ///
    /// # Errors
    /// The system refuses it; then they are not.
    pub fn set(&mut self, units: impl IntoIterator<Item = u64>) -> io::Result<()> {
        for unit in units {
            self.image.put(unit, true);
            let (at, bits) = self.image.bits(unit);
            if let Err(error) = self.presence.write_at(bits, at) {
                self.image.put(unit, false);
                return Err(error);
            }
            self.written.remove(&unit);
        }
        Ok(())
    }

    /// Makes holes of units. Readers know before that; see [`Presence`].
    ///
    /// # Errors
    /// The system refuses it. Units whose bits could not be cleared on the disk are still there for this
    /// process's successors, whose bytes are right: no hole was made.
    pub fn remove(&mut self, units: &[u64]) -> io::Result<()> {
        // Until it is on the disk that they go, no hole takes their pages.
        self.written.extend(units);
        for unit in units {
            self.image.put(*unit, false);
            let (at, bits) = self.image.bits(*unit);
            self.presence.write_at(bits, at)?;
        }
        for unit in units {
            self.image.raise(*unit);
            let (at, number) = self.image.number(*unit);
            self.presence.write_at(number, at)?;
        }
        self.presence.sync()?;
        for unit in units {
            self.written.remove(unit);
        }
        for unit in units {
            let hole = self.hole_around(*unit)?;
            if !hole.is_empty() {
                self.data.punch(hole)?;
            }
        }
        Ok(())
    }

    /// The pages of a unit that no unit needs which is there, or was written.
    fn hole_around(&self, number: u64) -> io::Result<Range<u64>> {
        let unit = self.unit(number)?;
        let mut hole = Range {
            start: unit.offset / PAGE_ALIGN * PAGE_ALIGN,
            end: (unit.offset + unit.len).next_multiple_of(PAGE_ALIGN),
        };
        let is_needed = |unit: u64| self.has(unit) || self.written.contains(&unit);
        // Each takes a part of the page.
        for before in (0..number).rev() {
            let unit = self.unit(before)?;
            if unit.offset + unit.len <= hole.start {
                break;
            }
            if is_needed(before) {
                hole.start += PAGE_ALIGN;
                break;
            }
        }
        for after in number + 1..self.units.count() {
            if self.unit(after)?.offset >= hole.end {
                break;
            }
            if is_needed(after) {
                hole.end -= PAGE_ALIGN;
                break;
            }
        }
        Ok(hole)
    }
}

fn origin(data: &impl SparseFile, superblock: &Superblock) -> io::Result<Origin> {
    Ok(Origin {
        build_id: *superblock.build_id(),
        identity: data.identity()?,
    })
}

/// What is present of a release's file of which no unit is there.
///
/// # Errors
/// The system refuses to identify the file.
pub(crate) fn nothing_present(
    data: &impl SparseFile,
    superblock: &Superblock,
    units: &Units,
) -> io::Result<Vec<u8>> {
    Ok(PresenceImage::new(units.count()).to_file(&origin(data, superblock)?))
}
