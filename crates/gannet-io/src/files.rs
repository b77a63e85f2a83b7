//! Files and root directories: opening below a root, metadata, reading, listing.
//!
//! Everything here is a plain system call. What may block is called on helper threads only; the
//! engines try first with a lookup that the kernel ends with `EAGAIN` instead of blocking
//! (`RESOLVE_CACHED`).

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, OnceLock};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat, Statx, StatxFlags};
use rustix::io::Errno;

use crate::driver::{DirectoryEntry, File, FileKind, Meta, OpenedFile, Root};
use crate::helpers::Closer;
use crate::limits;
use crate::memory::Memory;
use crate::residency::{Residency, last_errno};
use crate::sim::{SimFile, SimRoot};

/// What a [`File`] holds.
#[derive(Debug)]
pub(crate) enum FileInner {
    Real(RealFile),
    Sim(SimFile),
}

/// What a [`Root`] holds.
#[derive(Debug)]
pub(crate) enum RootInner {
    Real(RealRoot),
    Sim(SimRoot),
}

/// A descriptor and what we learned about it.
#[derive(Debug)]
pub(crate) struct RealFile {
    /// Present until dropped.
    fd: Option<OwnedFd>,
    pub(crate) store: Store,
    pub(crate) residency: Residency,
    /// Who closes the descriptor, where closing may block.
    pub(crate) closer: OnceLock<Closer>,
    /// Its mapping, if it is sealed memory and somebody has asked.
    sealed: OnceLock<Option<Arc<Memory>>>,
}

#[derive(Debug)]
pub(crate) struct RealRoot {
    fd: OwnedFd,
    store: Store,
    /// The device of the root itself: files on another one are on a mount below the root.
    device: u64,
}

/// How the file system behind a file may block.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Store {
    /// Content is memory (tmpfs, ramfs): never cold.
    Memory,
    /// A disk: what is in the page cache does not block.
    Disk,
    /// Another machine or process (NFS, FUSE, 9p): any call may block, even on cached content.
    Remote,
}

impl Store {
    /// Classifies by the magic number of `statfs` (`linux/magic.h` and the file systems' sources).
    pub(crate) fn of(fd: BorrowedFd<'_>) -> Self {
        const MEMORY: [u64; 3] = [0x0102_1994, 0x8584_58f6, 0x9584_58f6];
        // nfs, smb, cifs, smb2, fuse (and virtiofs), 9p, ceph, afs twice, coda, gfs2, ocfs2,
        // lustre, gpfs, vboxsf, orangefs.
        const REMOTE: [u64; 16] = [
            0x6969,
            0x517b,
            0xff53_4d42,
            0xfe53_4d42,
            0x6573_5546,
            0x0102_1997,
            0x00c3_6400,
            0x5346_414f,
            0x6b41_4653,
            0x7375_7245,
            0x0116_1970,
            0x7461_636f,
            0x0bd0_0bd0,
            0x4750_4653,
            0x786f_4256,
            0x2003_0528,
        ];
        // Unknown on an error: the careful answer.
        let Ok(found) = rustix::fs::fstatfs(fd) else {
            return Self::Remote;
        };
        // 32 significant bits, sign-extended on some machines.
        let magic = found.f_type as u64 & 0xffff_ffff;
        if MEMORY.contains(&magic) {
            Self::Memory
        } else if REMOTE.contains(&magic) {
            Self::Remote
        } else {
            Self::Disk
        }
    }
}

impl Root {
    /// Opens the directory `path` as a root.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `EACCES`, ...
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::empty())?;
        let store = Store::of(fd.as_fd());
        let device = rustix::fs::fstat(&fd)?.st_dev;
        Ok(Self(Arc::new(RootInner::Real(RealRoot {
            fd,
            store,
            device,
        }))))
    }
}

impl From<std::fs::File> for File {
    fn from(file: std::fs::File) -> Self {
        let fd = OwnedFd::from(file);
        let store = Store::of(fd.as_fd());
        Self::real(fd, store)
    }
}

impl File {
    pub(crate) fn real(fd: OwnedFd, store: Store) -> Self {
        let residency = Residency::default();
        let closer = OnceLock::new();
        Self(Arc::new(FileInner::Real(RealFile {
            fd: Some(fd),
            store,
            residency,
            closer,
            sealed: OnceLock::new(),
        })))
    }

    /// Its content, if it is sealed memory, which user code may read.
    #[must_use]
    pub fn sealed_memory(&self) -> Option<&Arc<Memory>> {
        let FileInner::Real(real) = &*self.0 else {
            return None;
        };
        if real.store != Store::Memory {
            return None;
        }
        let map = || Memory::map_sealed(real).ok().map(Arc::new);
        real.sealed.get_or_init(map).as_ref()
    }

    /// The descriptor and its circumstances. Panics on a file of the simulator, which a real
    /// engine never gave out.
    pub(crate) fn as_real(&self) -> &RealFile {
        match &*self.0 {
            FileInner::Real(file) => file,
            FileInner::Sim(_) => panic!("a file of the simulator in a real engine"),
        }
    }
}

impl Root {
    pub(crate) fn as_real(&self) -> &RealRoot {
        match &*self.0 {
            RootInner::Real(root) => root,
            RootInner::Sim(_) => panic!("a root of the simulator in a real engine"),
        }
    }
}

/// Whether a call may wait for a disk or a network.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Blocking {
    /// Fail with `EAGAIN` instead.
    No,
    /// On a helper thread.
    Yes,
}

impl RealRoot {
    /// Whether anything below may block at any call.
    pub(crate) fn is_remote(&self) -> bool {
        self.store == Store::Remote
    }

    /// Opens `path` and reads its metadata.
    ///
    /// Two lookups: the first takes a mere reference (`O_PATH`), which has no side effects on
    /// anything, and only regular files and directories are then opened for reading. Should the
    /// path be swapped between the two, the second is still confined to the root and does not
    /// block (`O_NONBLOCK`), and the metadata are always those of the descriptor that is returned.
    pub(crate) fn open(&self, path: &[u8], blocking: Blocking) -> Result<OpenedFile, Errno> {
        let path = if path.is_empty() {
            b".".as_slice()
        } else {
            path
        };
        let reference = self.resolve(path, OFlags::PATH, blocking)?;
        let meta = meta_of(&rustix::fs::fstat(&reference)?);
        if meta.kind == FileKind::Other {
            return Ok(OpenedFile {
                file: File::real(reference, Store::Disk),
                meta,
            });
        }
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let fd = match self.resolve(path, flags, blocking) {
            // A socket or a device without a driver took the path meanwhile.
            Err(Errno::NXIO) => return Err(Errno::NOENT),
            other => other?,
        };
        let stat = rustix::fs::fstat(&fd)?;
        let store = if stat.st_dev == self.device {
            self.store
        } else {
            Store::of(fd.as_fd())
        };
        Ok(OpenedFile {
            file: File::real(fd, store),
            meta: meta_of(&stat),
        })
    }

    /// Metadata of what the path names now, wherever links lead; see
    /// [`Driver::peek`](crate::driver::Driver::peek).
    pub(crate) fn peek(&self, path: &[u8]) -> Option<Meta> {
        if self.is_remote() {
            return None;
        }
        let path = if path.is_empty() {
            b".".as_slice()
        } else {
            path
        };
        let stat = rustix::fs::statat(&self.fd, path, AtFlags::NO_AUTOMOUNT).ok()?;
        Some(meta_of(&stat))
    }

    /// One `openat2`, confined to the root.
    fn resolve(&self, path: &[u8], flags: OFlags, blocking: Blocking) -> Result<OwnedFd, Errno> {
        let flags = flags | OFlags::CLOEXEC;
        let confined = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        if blocking == Blocking::No {
            let resolve = confined | ResolveFlags::CACHED;
            return rustix::fs::openat2(&self.fd, path, flags, Mode::empty(), resolve);
        }
        let mut tries = 0;
        loop {
            match rustix::fs::openat2(&self.fd, path, flags, Mode::empty(), confined) {
                // A rename inside the root raced with a `..`; or a signal came.
                Err(Errno::AGAIN | Errno::INTR) if tries < limits::OPEN_RETRIES => tries += 1,
                other => return other,
            }
        }
    }

    /// Lists the directory `path`, at most `max` entries.
    pub(crate) fn list(&self, path: &[u8], max: usize) -> Result<Vec<DirectoryEntry>, Errno> {
        let path = if path.is_empty() {
            b".".as_slice()
        } else {
            path
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let directory = self.resolve(path, flags, Blocking::Yes)?;
        let mut entries = Vec::new();
        let mut full = path.to_vec();
        full.push(b'/');
        let parent_len = full.len();
        for entry in rustix::fs::Dir::read_from(&directory)? {
            let entry = entry?;
            if entries.len() == max {
                break;
            }
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            full.truncate(parent_len);
            full.extend_from_slice(name.to_bytes());
            if let Some(meta) = self.entry_meta(&directory, name, entry.file_type(), &full) {
                entries.push(DirectoryEntry {
                    name: name.to_bytes().to_vec(),
                    meta,
                });
            }
        }
        Ok(entries)
    }

    /// Metadata of one entry, following a symbolic link inside the root only.
    fn entry_meta(
        &self,
        directory: &OwnedFd,
        name: &CStr,
        file_type: FileType,
        full: &[u8],
    ) -> Option<Meta> {
        if !matches!(file_type, FileType::Symlink | FileType::Unknown) {
            let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
            let stat = rustix::fs::statat(directory, name, flags).ok()?;
            if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink {
                return Some(meta_of(&stat));
            }
        }
        let target = self.resolve(full, OFlags::PATH, Blocking::Yes).ok()?;
        rustix::fs::fstat(&target).ok().map(|stat| meta_of(&stat))
    }
}

impl Drop for RealFile {
    fn drop(&mut self) {
        if let (Some(closer), Some(fd)) = (self.closer.get(), self.fd.take()) {
            closer.close(fd);
        }
    }
}

impl AsFd for RealFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_ref().expect("taken by drop only").as_fd()
    }
}

impl RealFile {
    /// Metadata of the descriptor, now. On a file system that may block, what the kernel last
    /// heard of it: opening the path again, on a helper, is how to hear more.
    pub(crate) fn meta(&self) -> Result<Meta, Errno> {
        if self.store == Store::Remote {
            let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
            return rustix::fs::statx(self, c"", flags, StatxFlags::BASIC_STATS)
                .map(|found| meta_of_statx(&found));
        }
        rustix::fs::fstat(self).map(|stat| meta_of(&stat))
    }

    /// Reads `len` bytes at `offset`, fewer only at the end of the file.
    ///
    /// With [`Blocking::No`], `EAGAIN` when any of it is not in memory, and `EOPNOTSUPP` when the
    /// file system cannot tell.
    pub(crate) fn read(&self, offset: u64, len: usize, how: Blocking) -> Result<Vec<u8>, Errno> {
        let mut bytes = Vec::new();
        self.read_into(offset, len, &mut bytes, how)?;
        Ok(bytes)
    }

    /// As [`read`](Self::read), into a vector whose memory is used again. Nothing is cleared first:
    /// that would cost half as much as reading.
    pub(crate) fn read_into(
        &self,
        offset: u64,
        len: usize,
        bytes: &mut Vec<u8>,
        how: Blocking,
    ) -> Result<(), Errno> {
        bytes.clear();
        bytes.try_reserve_exact(len).map_err(|_| Errno::NOMEM)?;
        while bytes.len() < len {
            let at = offset.saturating_add(bytes.len() as u64);
            let left = len - bytes.len();
            match self.read_more(at, left, bytes, how) {
                Ok(0) => break,
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    /// Reads once, at most `len` bytes, behind what is in the vector. It must have room for them.
    fn read_more(
        &self,
        offset: u64,
        len: usize,
        bytes: &mut Vec<u8>,
        how: Blocking,
    ) -> Result<usize, Errno> {
        let flags = match how {
            Blocking::Yes => 0,
            Blocking::No => libc::RWF_NOWAIT,
        };
        let room = &mut bytes.spare_capacity_mut()[..len];
        let room = libc::iovec {
            iov_base: room.as_mut_ptr().cast(),
            iov_len: room.len(),
        };
        // The system call takes the offset in two words; on a 64-bit machine the second is empty.
        let half = libc::c_long::BITS / 2;
        let (low, high) = (offset, offset >> half >> half);
        let (low, high) = (low as libc::c_long, high as libc::c_long);
        let fd = self.as_fd().as_raw_fd();
        // SAFETY: `room` is one entry for `iov_len` bytes of spare capacity, which `bytes` owns and
        // which nobody else looks at during the call; the kernel writes there alone. The arguments
        // are of the types that preadv2(2) takes.
        let count =
            unsafe { libc::syscall(libc::SYS_preadv2, fd, &raw const room, 1, low, high, flags) };
        let Ok(count) = usize::try_from(count) else {
            return Err(last_errno());
        };
        assert!(
            count <= len,
            "the kernel reads no more than it was asked for"
        );
        // SAFETY: the kernel has written the `count` bytes behind `len()`, within the capacity.
        unsafe { bytes.set_len(bytes.len() + count) };
        Ok(count)
    }

    /// Sets who closes the descriptor, if closing it may block.
    pub(crate) fn close_by(&self, closer: impl FnOnce() -> Closer) {
        if self.store == Store::Remote {
            self.closer.get_or_init(closer);
        }
    }

    /// Reads a range into the page cache, through a small buffer.
    pub(crate) fn warm(&self, offset: u64, len: u64) -> Result<(), Errno> {
        let len_hint = std::num::NonZeroU64::new(len);
        // One large request to the disk instead of a row of small ones; only a hint.
        let _ = rustix::fs::fadvise(self, offset, len_hint, rustix::fs::Advice::WillNeed);
        let mut scratch = [0; 16 * 1024];
        let mut done = 0;
        while done < len {
            let room = (len - done).min(scratch.len() as u64) as usize;
            match rustix::io::pread(self, &mut scratch[..room], offset + done) {
                Ok(0) => break,
                Ok(count) => done += count as u64,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }
}

/// Translates a `stat`.
fn meta_of(stat: &Stat) -> Meta {
    Meta {
        kind: kind_of(stat.st_mode),
        len: stat.st_size as u64,
        mtime_ns: time(stat.st_mtime, stat.st_mtime_nsec),
        ctime_ns: time(stat.st_ctime, stat.st_ctime_nsec),
        identity: (stat.st_dev, stat.st_ino),
    }
}

/// Translates a `statx`, to the same as [`meta_of`] for the same file.
fn meta_of_statx(found: &Statx) -> Meta {
    let device = rustix::fs::makedev(found.stx_dev_major, found.stx_dev_minor);
    Meta {
        kind: kind_of(found.stx_mode.into()),
        len: found.stx_size,
        mtime_ns: time(found.stx_mtime.tv_sec, found.stx_mtime.tv_nsec.into()),
        ctime_ns: time(found.stx_ctime.tv_sec, found.stx_ctime.tv_nsec.into()),
        identity: (device, found.stx_ino),
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Both ways to ask for metadata give the same, and both ways to read.
    #[test]
    fn remote_files_look_the_same() {
        let open = || OwnedFd::from(std::fs::File::open("/proc/self/exe").unwrap());
        let local = File::real(open(), Store::Disk);
        let remote = File::real(open(), Store::Remote);
        assert_eq!(
            local.as_real().meta().unwrap(),
            remote.as_real().meta().unwrap()
        );
    }

    /// Known file systems are told apart.
    #[test]
    fn classifies_file_systems() {
        let proc = std::fs::File::open("/proc/self/stat").unwrap();
        assert_eq!(Store::of(proc.as_fd()), Store::Disk);
        let flags = rustix::fs::MemfdFlags::CLOEXEC;
        let memfd = rustix::fs::memfd_create("test", flags).unwrap();
        assert_eq!(Store::of(memfd.as_fd()), Store::Memory);
    }
}
