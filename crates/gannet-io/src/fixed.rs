//! Files whose bytes cannot be changed: their pages may stay in any queue.

use std::fmt::{self, Display};
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{AtFlags, StatxAttributes, StatxFlags};
use rustix::io::Errno;
use rustix::ioctl::{Opcode, Setter, Updater, ioctl, opcode};

use crate::named_file;
use crate::root::Root;
use crate::store::Store;

/// Why the bytes of a file cannot be changed. A mount for reading alone is not enough: the same file system
/// may be mounted elsewhere.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fixed {
    /// It has fs-verity, which stays as long as the file.
    Verity,
    /// It has the immutable flag.
    Immutable,
    /// It is on a file system that no kernel writes.
    FileSystem,
}

impl Fixed {
    /// Why the bytes of an open file cannot be changed; `None` if they can.
    pub fn of(file: impl AsFd) -> Option<Self> {
        let found = rustix::fs::statx(&file, c"", AtFlags::EMPTY_PATH, StatxFlags::empty());
        let attributes = found.map_or(StatxAttributes::empty(), |found| found.stx_attributes);
        match () {
            () if attributes.contains(StatxAttributes::VERITY) => Some(Self::Verity),
            // EROFS says that its files are immutable, too.
            () if Store::is_never_written(file.as_fd()) => Some(Self::FileSystem),
            () if attributes.contains(StatxAttributes::IMMUTABLE) => Some(Self::Immutable),
            () => None,
        }
    }

    /// The same of all files in a directory, but those that are mounted below it.
    pub fn of_all(root: &Root) -> Option<Self> {
        root.is_never_written().then_some(Self::FileSystem)
    }
}

impl Display for Fixed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Verity => "fs-verity",
            Self::Immutable => "the immutable flag",
            Self::FileSystem => "its file system",
        })
    }
}

/// Gives a file fs-verity: from then on it can be removed, but not changed.
///
/// # Errors
/// Its file system cannot (`EOPNOTSUPP`, `ENOTTY`), it is open for writing (`ETXTBSY`), or it may not
/// be written.
pub fn fix(path: &Path) -> io::Result<()> {
    let file = named_file::open(path)?;
    let wish = EnableVerity {
        version: 1,
        hash_algorithm: SHA_256,
        block_size: 4096,
        ..EnableVerity::default()
    };
    // SAFETY: the request has this number, and the kernel reads a structure of this type.
    unsafe { ioctl(&file, Setter::<ENABLE_VERITY, _>::new(wish)) }.map_err(io::Error::from)
}

/// Whether a file could have fs-verity if its file system had the feature, which this kernel has: ext4 alone can be
/// given it later.
pub fn lacks_feature(path: &Path) -> bool {
    let is_known = Path::new("/sys/fs/ext4/features/verity").exists();
    let Some(file) = named_file::open(path).ok().filter(|_| is_known) else {
        return false;
    };
    let mut room = [0_u16; 2];
    // SAFETY: the request has this number, and the kernel writes at most the four bytes of the head of a digest,
    // which says that there is no room for more.
    let measured = unsafe { ioctl(&file, Updater::<MEASURE_VERITY, _>::new(&mut room)) };
    // Of another file system it is ENOTTY, of a file without fs-verity ENODATA.
    Store::is_ext4(file.as_fd()) && measured == Err(Errno::OPNOTSUPP)
}

/// `FS_IOC_MEASURE_VERITY`, of `struct fsverity_digest`: the algorithm, and how long a digest may be.
const MEASURE_VERITY: Opcode = opcode::read_write::<[u16; 2]>(b'f', 134);

/// `FS_IOC_ENABLE_VERITY` (`linux/fsverity.h`).
pub(crate) const ENABLE_VERITY: Opcode = opcode::write::<EnableVerity>(b'f', 133);

/// `FS_VERITY_HASH_ALG_SHA256`.
const SHA_256: u32 = 1;

/// `struct fsverity_enable_arg`, without salt and signature.
#[repr(C)]
#[derive(Default)]
pub(crate) struct EnableVerity {
    version: u32,
    hash_algorithm: u32,
    block_size: u32,
    none: [u32; 29],
}
