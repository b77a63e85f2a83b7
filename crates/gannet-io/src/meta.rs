//! Metadata of files, and of the entries of a directory.

use std::ffi::CStr;
use std::io;
use std::os::fd::AsFd;

use rustix::fs::{AtFlags, FileType, Stat, Statx, StatxFlags};
use rustix::io::Errno;

/// The kind of file that a path names.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum FileKind {
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// A FIFO, socket or device: never served.
    Other,
}

/// Metadata of a file.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Meta {
    /// Regular file, directory or neither.
    pub kind: FileKind,
    /// Length in bytes.
    pub len: u64,
    /// Last modification, nanoseconds since the Unix epoch (negative before it).
    pub mtime_ns: i128,
    /// Last status change, nanoseconds since the Unix epoch.
    pub ctime_ns: i128,
    /// Device and inode: the file's identity.
    pub identity: (u64, u64),
    /// Number of names of the file (hard links); 0 once it was deleted or replaced by rename.
    pub links: u64,
}

/// One entry of a directory.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DirectoryEntry {
    /// Its name: one segment, not necessarily UTF-8.
    pub name: Box<[u8]>,
    /// What it is, with symbolic links followed inside the root; an entry that cannot be resolved
    /// inside the root is left out of a listing.
    pub kind: FileKind,
    /// Its length in bytes.
    pub len: u64,
    /// When it was modified, in Unix seconds.
    pub modified: i64,
}

impl DirectoryEntry {
    /// An entry with the part of its metadata that a listing shows: a directory may have very many.
    pub(crate) fn new(name: &[u8], meta: &Meta) -> Self {
        let seconds = meta.mtime_ns.div_euclid(1_000_000_000);
        Self {
            name: name.into(),
            kind: meta.kind,
            len: meta.len,
            modified: i64::try_from(seconds).unwrap_or(if seconds < 0 {
                i64::MIN
            } else {
                i64::MAX
            }),
        }
    }
}

impl Meta {
    /// The metadata of an open file, now.
    ///
    /// # Errors
    /// Those of `fstat`.
    pub fn of(file: impl AsFd) -> io::Result<Self> {
        Ok(meta_of(&rustix::fs::fstat(file)?))
    }
}

/// The kernel's cached metadata of a file, without querying the file system again. The time of the
/// last access is left out: any read makes it unknown, and it would then be queried.
pub(crate) fn heard_of(at: impl AsFd, path: &CStr, flags: AtFlags) -> Result<Statx, Errno> {
    let wanted = StatxFlags::TYPE
        | StatxFlags::MODE
        | StatxFlags::NLINK
        | StatxFlags::INO
        | StatxFlags::SIZE
        | StatxFlags::MTIME
        | StatxFlags::CTIME;
    rustix::fs::statx(at, path, flags | AtFlags::STATX_DONT_SYNC, wanted)
}

/// Translates a `stat`.
pub(crate) fn meta_of(stat: &Stat) -> Meta {
    Meta {
        kind: kind_of(stat.st_mode),
        len: stat.st_size as u64,
        mtime_ns: time(stat.st_mtime, stat.st_mtime_nsec),
        ctime_ns: time(stat.st_ctime, stat.st_ctime_nsec),
        identity: (stat.st_dev, stat.st_ino),
        #[allow(
            clippy::unnecessary_cast,
            reason = "it has 32 bits on other processors"
        )]
        links: stat.st_nlink as u64,
    }
}

/// Translates a `statx`, to the same as [`meta_of`] for the same file.
pub(crate) fn meta_of_statx(found: &Statx) -> Meta {
    let device = rustix::fs::makedev(found.stx_dev_major, found.stx_dev_minor);
    Meta {
        kind: kind_of(found.stx_mode.into()),
        len: found.stx_size,
        mtime_ns: time(found.stx_mtime.tv_sec, found.stx_mtime.tv_nsec.into()),
        ctime_ns: time(found.stx_ctime.tv_sec, found.stx_ctime.tv_nsec.into()),
        identity: (device, found.stx_ino),
        links: found.stx_nlink.into(),
    }
}

fn kind_of(mode: u32) -> FileKind {
    match FileType::from_raw_mode(mode) {
        FileType::RegularFile => FileKind::Regular,
        FileType::Directory => FileKind::Directory,
        _ => FileKind::Other,
    }
}

fn time(seconds: i64, ns: u64) -> i128 {
    i128::from(seconds) * 1_000_000_000 + i128::from(ns)
}
