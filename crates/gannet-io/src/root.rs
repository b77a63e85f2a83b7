//! Root directories: opening, querying and listing below them.
//!
//! Everything here is a plain system call. Calls that may block are made on helper threads only;
//! the engines first try a lookup that fails with `EAGAIN` instead of blocking (`RESOLVE_CACHED`).

use std::ffi::{CStr, OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::file::{Blocking, File, OpenedFile, read_more};
pub(crate) use crate::how::LookupReach;
use crate::how::{self, Purpose};
use crate::limits;
use crate::links::{Names, Outside, Targets};
use crate::lookups::Lookups;
use crate::meta::{DirectoryEntry, FileKind, Meta, heard_of, meta_of, meta_of_statx};
use crate::store::Store;
use crate::walk;

/// A directory descriptor below which paths are resolved. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Root(Arc<RootInner>);

/// What a [`Root`] holds.
#[derive(Debug)]
enum RootInner {
    Os(OsRoot),
    /// A folder of a virtual disk: the prefix of all paths below it.
    Virtual(Box<[u8]>),
}

/// A descriptor and what is known about it.
#[derive(Debug)]
pub(crate) struct OsRoot {
    fd: OwnedFd,
    store: Store,
    /// Device and inode of the root itself: a file on another device is on a mount below the root,
    /// or on another layer or volume of the same file system.
    identity: (u64, u64),
    /// Files are opened by [`Purpose::ReadQuietly`]: none was met yet that belongs to another user.
    is_quiet: AtomicBool,
    targets: Arc<Targets>,
    lookups: Lookups,
    /// No symbolic link below is followed to open a file.
    is_straight: bool,
}

/// Why the target of a symbolic link is not opened.
const LEADS_OUT: &str = "a symbolic link leads out of the directory";

impl Root {
    /// Opens the directory `path` as a root.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `EACCES`, ...
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::open_with(path, &Outside::default())
    }

    /// As [`open`](Self::open), but files are opened without following any symbolic link: its parts belong to
    /// several owners, none of whom may show what another one has.
    ///
    /// # Errors
    /// Those of [`open`](Self::open).
    pub fn open_straight(path: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let targets = Targets {
            own: Names::of(path),
            outside: Outside::default(),
        };
        let fd = rustix::fs::open(path, flags, Mode::empty())?;
        let mut root = OsRoot::of(fd, Arc::new(targets), Lookups::of_process())?;
        root.is_straight = true;
        Ok(Self(Arc::new(RootInner::Os(root))))
    }

    /// As [`open`](Self::open); symbolic links may lead into these folders as well.
    ///
    /// # Errors
    /// Those of [`open`](Self::open).
    pub fn open_with(path: &Path, outside: &Outside) -> io::Result<Self> {
        Self::open_by(path, outside, Lookups::of_process())
    }

    /// As [`open_with`](Self::open_with); paths are resolved in this way.
    ///
    /// # Errors
    /// Those of [`open`](Self::open).
    pub fn open_by(path: &Path, outside: &Outside, lookups: Lookups) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let targets = Targets {
            own: Names::of(path),
            outside: outside.clone(),
        };
        let fd = rustix::fs::open(path, flags, Mode::empty())?;
        Self::of(fd, Arc::new(targets), lookups)
    }

    /// Opens the directory `path` below this one as a root of its own. Symbolic links are followed
    /// while they stay below this one, or in the folders outside of it that they may lead into.
    ///
    /// # Errors
    /// Those of [`open`](Self::open); a link leads outside, as in [`named_file::open_below`].
    ///
    /// [`named_file::open_below`]: crate::named_file::open_below
    pub fn open_below(&self, path: &Path) -> io::Result<Self> {
        let real = self.as_os();
        let targets = Targets {
            own: real.targets.own.below(path),
            outside: real.targets.outside.clone(),
        };
        let fd = self.below(path, Purpose::LookAtFolder)?;
        Self::of(fd, Arc::new(targets), real.lookups)
    }

    /// The names in the folder `path` below this one, and whether each is itself a folder. No link
    /// is followed.
    ///
    /// # Errors
    /// It does not exist, is not a folder, or cannot be read.
    pub fn names(&self, path: &Path) -> io::Result<Vec<(OsString, bool)>> {
        let folder = self.below(path, Purpose::ReadOwnFolder)?;
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(&folder)? {
            let entry = entry?;
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            let kind = match entry.file_type() {
                FileType::Unknown => {
                    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
                    let stat = rustix::fs::statat(&folder, name, flags);
                    stat.map_or(FileType::Unknown, |it| FileType::from_raw_mode(it.st_mode))
                }
                kind => kind,
            };
            let name = OsStr::from_bytes(name.to_bytes()).to_owned();
            names.push((name, kind == FileType::Directory));
        }
        Ok(names)
    }

    /// Whether it is on a file system that no kernel writes.
    pub(crate) fn is_never_written(&self) -> bool {
        Store::is_never_written(self.as_os().fd.as_fd())
    }

    /// One lookup, confined to this directory. May block.
    pub(crate) fn below(&self, path: &Path, purpose: Purpose) -> io::Result<OwnedFd> {
        let path = path.as_os_str().as_bytes();
        let opened = self.as_os().resolve(path, purpose, LookupReach::Everywhere);
        opened.map_err(|errno| match errno {
            Errno::XDEV => io::Error::new(io::ErrorKind::CrossesDevices, LEADS_OUT),
            errno => errno.into(),
        })
    }

    /// A folder of a virtual disk, which puts `start` before each path below it.
    pub(crate) fn of_virtual(start: &[u8]) -> Self {
        Self(Arc::new(RootInner::Virtual(start.into())))
    }

    /// One lookup of a folder, confined to this directory, without following any link. May block.
    pub(crate) fn straight_below(&self, path: &Path) -> Result<OwnedFd, Errno> {
        let path = path.as_os_str().as_bytes();
        loop {
            let root = self.as_os();
            let opened = root.resolve(path, Purpose::LookAtFolder, LookupReach::Straight);
            // Something was renamed on the way.
            if !matches!(opened, Err(Errno::AGAIN | Errno::INTR)) {
                return opened;
            }
        }
    }

    /// The prefix that a virtual disk puts before a path; empty for a directory of the kernel.
    pub(crate) fn virtual_start(&self) -> &[u8] {
        match &*self.0 {
            RootInner::Os(_) => b"",
            RootInner::Virtual(start) => start,
        }
    }

    fn of(fd: OwnedFd, targets: Arc<Targets>, lookups: Lookups) -> io::Result<Self> {
        let root = OsRoot::of(fd, targets, lookups)?;
        Ok(Self(Arc::new(RootInner::Os(root))))
    }

    /// The same directory under a separate descriptor: lookups by several threads through one
    /// descriptor would all write to its reference count.
    ///
    /// # Errors
    /// `EMFILE`, `ENFILE`, `EACCES` without permission to search it.
    pub fn reopen(&self) -> io::Result<Self> {
        match &*self.0 {
            RootInner::Os(root) => {
                let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
                let fd = rustix::fs::openat(&root.fd, ".", flags, Mode::empty())?;
                Self::of(fd, Arc::clone(&root.targets), root.lookups)
            }
            RootInner::Virtual(_) => Ok(self.clone()),
        }
    }

    /// Whether the directory was removed, so that it will never have a file again.
    #[must_use]
    pub fn is_removed(&self) -> bool {
        match &*self.0 {
            RootInner::Os(root) => rustix::fs::fstat(&root.fd).is_ok_and(|stat| stat.st_nlink == 0),
            RootInner::Virtual(_) => false,
        }
    }

    /// Device and inode. While the root is open, no other directory has them.
    #[must_use]
    pub fn identity(&self) -> (u64, u64) {
        match &*self.0 {
            RootInner::Os(root) => root.identity,
            RootInner::Virtual(_) => (0, 0),
        }
    }

    /// The descriptor and what is known about it. Panics on the root of a virtual disk, which a
    /// real engine never receives.
    pub(crate) fn as_os(&self) -> &OsRoot {
        match &*self.0 {
            RootInner::Os(root) => root,
            RootInner::Virtual(_) => panic!("a root of a virtual disk in a real engine"),
        }
    }
}

impl OsRoot {
    fn of(fd: OwnedFd, targets: Arc<Targets>, lookups: Lookups) -> io::Result<Self> {
        let store = Store::of(fd.as_fd());
        let stat = rustix::fs::fstat(&fd)?;
        Ok(Self {
            fd,
            store,
            identity: (stat.st_dev, stat.st_ino),
            is_quiet: AtomicBool::new(true),
            targets,
            lookups,
            is_straight: false,
        })
    }

    /// Whether files are opened without following links, which is never done without waiting.
    pub(crate) fn is_straight(&self) -> bool {
        self.is_straight
    }

    /// Whether any call on a path below may block: on a file system of another machine or process, and
    /// where the kernel cannot be asked for what it has cached.
    pub(crate) fn may_block(&self) -> bool {
        self.store == Store::Remote || self.lookups == Lookups::Walk
    }

    /// How far a lookup goes at first: as far as nothing but a disk is waited for, where that can be known.
    pub(crate) fn reach(&self) -> LookupReach {
        match self.may_block() {
            true => LookupReach::Everywhere,
            false => LookupReach::Mount,
        }
    }

    /// Opens `path` and reads its metadata.
    ///
    /// Two lookups: the first takes a mere reference (`O_PATH`), which has no side effects, and
    /// only regular files and directories are then opened for reading. If the path is swapped
    /// between the two, the second lookup is still confined to the root and does not block
    /// (`O_NONBLOCK`), and the metadata are always those of the returned descriptor.
    ///
    /// A file system that is mounted below the root may be slower than the root's own, and even a
    /// metadata query may block: callers that must not block do not cross into it.
    pub(crate) fn open(&self, path: &[u8], reach: LookupReach) -> Result<OpenedFile, Errno> {
        let reach = match self.is_straight {
            true => LookupReach::Straight,
            false => reach,
        };
        let reference = self.resolve(path, Purpose::Look, reach)?;
        let meta = meta_of(&rustix::fs::fstat(&reference)?);
        if meta.kind == FileKind::Other {
            return Ok(OpenedFile {
                file: File::os(reference, Store::Disk),
                meta,
                content: Vec::new(),
            });
        }
        self.open_to_read(path, reach, (0, &mut Vec::new()))
    }

    /// Opens `path` for reading and reads its metadata, without a look at what it is, and before that at
    /// most `ahead` bytes to `start` as far as they are in memory: see
    /// [`Disk::open_plain`](crate::disk::Disk::open_plain).
    pub(crate) fn open_to_read(
        &self,
        path: &[u8],
        reach: LookupReach,
        (ahead, start): (usize, &mut Vec<u8>),
    ) -> Result<OpenedFile, Errno> {
        let fd = match self.resolve_to_read(path, reach) {
            // A socket or a device without a driver took the path meanwhile.
            Err(Errno::NXIO) => return Err(Errno::NOENT),
            other => other?,
        };
        if ahead > 0 {
            self.read_ahead(fd.as_fd(), ahead, start);
        }
        let stat = rustix::fs::fstat(&fd)?;
        let is_far = matches!(reach, LookupReach::Everywhere | LookupReach::Straight);
        let is_own = !is_far || stat.st_dev == self.identity.0;
        let store = match is_own {
            true => self.store,
            false => Store::of(fd.as_fd()),
        };
        Ok(OpenedFile {
            file: File::os(fd, store),
            meta: meta_of(&stat),
            content: Vec::new(),
        })
    }

    /// Reads once, at most `ahead` bytes from the start of a file. Of what cannot be read now, such as a
    /// directory, there are none.
    fn read_ahead(&self, fd: BorrowedFd<'_>, ahead: usize, start: &mut Vec<u8>) {
        let how = match self.store {
            Store::Memory => Blocking::Yes,
            Store::Disk => Blocking::No,
            Store::Remote => return start.clear(),
        };
        start.clear();
        if start.try_reserve_exact(ahead).is_ok() {
            // Fewer bytes, or none, are not the whole file: it is then read again, with the error.
            let _ = read_more(fd, 0, ahead, start, how);
        }
    }

    /// Opens a file for reading, and leaves its access time alone if it belongs to this process's user. What
    /// belongs to others is tried once: most sites have one owner.
    fn resolve_to_read(&self, path: &[u8], reach: LookupReach) -> Result<OwnedFd, Errno> {
        if self.is_quiet.load(Ordering::Relaxed) {
            match self.resolve(path, Purpose::ReadQuietly, reach) {
                Err(Errno::PERM) => self.is_quiet.store(false, Ordering::Relaxed),
                other => return other,
            }
        }
        self.resolve(path, Purpose::Read, reach)
    }

    /// Metadata of what the path names now; see [`Disk::peek`](crate::disk::Disk::peek).
    ///
    /// Where the path led when its file was opened does not matter: anyone who may write below the
    /// root can put a link or a mount in its way.
    pub(crate) fn peek(&self, path: &[u8]) -> Option<Meta> {
        if self.may_block() {
            return None;
        }
        let reference = self
            .resolve(path, Purpose::Look, LookupReach::Cached)
            .ok()?;
        let stat = rustix::fs::fstat(&reference).ok()?;
        Some(meta_of(&stat))
    }

    /// One lookup, confined to the root.
    pub(crate) fn resolve(
        &self,
        path: &[u8],
        purpose: Purpose,
        reach: LookupReach,
    ) -> Result<OwnedFd, Errno> {
        let path = or_dot(path);
        let mut tries = 0;
        loop {
            let root = self.fd.as_fd();
            let opened = match self.lookups {
                Lookups::Kernel => how::open(root, path, purpose, reach),
                Lookups::Walk => Err(Errno::XDEV),
            };
            let opened = match opened {
                // A link leads out, perhaps to where it may lead. (In shorter reaches, this is to come.)
                Err(Errno::XDEV) => walk::open((root, &self.targets), path, purpose, reach),
                opened => opened,
            };
            match opened {
                // The kernel does not have all of the path cached.
                Err(Errno::AGAIN) if reach == LookupReach::Cached => return Err(Errno::AGAIN),
                // A rename inside the root raced with the lookup, or a signal arrived.
                Err(Errno::AGAIN | Errno::INTR) if tries < limits::OPEN_RETRIES => tries += 1,
                other => return other,
            }
        }
    }

    /// Lists the directory `path`, at most `max` entries, with its own metadata read beforehand. True
    /// if it has more.
    pub(crate) fn list(
        &self,
        path: &[u8],
        max: usize,
        reach: LookupReach,
    ) -> Result<(Meta, (Vec<DirectoryEntry>, bool)), Errno> {
        let path = or_dot(path);
        let directory = self.resolve(path, Purpose::ReadFolder, reach)?;
        let meta = meta_of(&rustix::fs::fstat(&directory)?);
        let mut entries = Vec::new();
        let (mut names_len, mut is_partial) = (0, false);
        let mut full = path.to_vec();
        full.push(b'/');
        let parent_len = full.len();
        for entry in rustix::fs::Dir::read_from(&directory)? {
            let entry = entry?;
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            names_len += name.count_bytes();
            is_partial = entries.len() == max || names_len > limits::LISTED_NAMES_MAX;
            if is_partial {
                break;
            }
            full.truncate(parent_len);
            full.extend_from_slice(name.to_bytes());
            let kind = entry.file_type();
            if let Some(meta) = self.entry_meta(&directory, name, kind, &full, reach)? {
                entries.push(DirectoryEntry::new(name.to_bytes(), &meta));
            }
        }
        // A directory that was deleted reads as an empty one.
        if entries.is_empty() && rustix::fs::fstat(&directory)?.st_nlink == 0 {
            return Err(Errno::NOENT);
        }
        Ok((meta, (entries, is_partial)))
    }

    /// Metadata of one entry, following a symbolic link inside the root only; `None` if
    /// unavailable. Cached metadata is good enough for a listing, and another file system may be
    /// mounted at the name.
    fn entry_meta(
        &self,
        directory: &OwnedFd,
        name: &CStr,
        file_type: FileType,
        full: &[u8],
        reach: LookupReach,
    ) -> Result<Option<Meta>, Errno> {
        if !matches!(file_type, FileType::Symlink | FileType::Unknown) {
            let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
            let Ok(found) = heard_of(directory, name, flags) else {
                return Ok(None);
            };
            if FileType::from_raw_mode(found.stx_mode.into()) != FileType::Symlink {
                return Ok(Some(meta_of_statx(&found)));
            }
        }
        match self.resolve(full, Purpose::Look, reach) {
            Ok(target) => Ok(heard_of(&target, c"", AtFlags::EMPTY_PATH)
                .ok()
                .map(|found| meta_of_statx(&found))),
            Err(Errno::XDEV) if reach == LookupReach::Mount => Err(Errno::XDEV),
            Err(_) => Ok(None),
        }
    }
}

/// A path below a root; the empty path names the root itself.
fn or_dot(path: &[u8]) -> &[u8] {
    if path.is_empty() { b"." } else { path }
}
