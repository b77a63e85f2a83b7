//! A folder below a root, in which files are read, made and replaced.
//!
//! It is reached without any symbolic link, and stays the same folder whatever the owner of the folders
//! around it renames or replaces: a program with more rights than that owner writes nowhere else.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::root::Root;

/// See the module's description.
#[derive(Debug)]
pub struct Folder(OwnedFd);

impl Folder {
    /// Opens the folder `path` below a root; `None` if a symbolic link is on the way.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `EACCES`, ...
    pub fn open(root: &Root, path: &Path) -> io::Result<Option<Self>> {
        match root.straight_below(path) {
            Ok(fd) => Ok(Some(Self(fd))),
            Err(Errno::LOOP) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Opens a file for reading; `None` if it is something other than a file. Never waits for a peer.
    ///
    /// # Errors
    /// `ENOENT`, `EACCES`, ...
    pub fn read(&self, name: &OsStr) -> io::Result<Option<File>> {
        // Checked before opening as well: opening a device may have effects.
        let found = rustix::fs::statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
            return Ok(None);
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        let flags = flags | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(&self.0, name, flags, Mode::empty()) {
            Ok(fd) => File::from(fd),
            Err(Errno::LOOP) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        Ok(file.metadata()?.is_file().then_some(file))
    }

    /// Makes a file for this user alone that has no name yet: unless it is [linked](Self::link), it
    /// vanishes with its descriptor. `None` if the file system has no such files.
    ///
    /// # Errors
    /// `EACCES`, `ENOSPC`, ...
    pub fn create_unnamed(&self) -> io::Result<Option<File>> {
        let flags = OFlags::WRONLY | OFlags::TMPFILE | OFlags::CLOEXEC;
        match rustix::fs::openat(&self.0, ".", flags, OWN) {
            Ok(fd) => Ok(Some(fd.into())),
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes a file for this user alone.
    ///
    /// # Errors
    /// `EEXIST`, `EACCES`, `ENOSPC`, ...
    pub fn create(&self, name: &OsStr) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(&self.0, name, flags, OWN)?.into())
    }

    /// Opens a folder, which is made for this user alone if it is missing: whatever its owner puts in its place
    /// meanwhile, no link is followed.
    ///
    /// # Errors
    /// `ENOTDIR`, `ELOOP`, `EACCES`, ...
    pub fn make(&self, name: &OsStr) -> io::Result<File> {
        match rustix::fs::mkdirat(&self.0, name, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(&self.0, name, flags, Mode::empty())?.into())
    }

    /// Gives a file without a name this one.
    ///
    /// # Errors
    /// `EEXIST`, `EACCES`, ...
    pub fn link(&self, file: &File, name: &OsStr) -> io::Result<()> {
        // Without a privilege, only a path can name the file.
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let flags = AtFlags::SYMLINK_FOLLOW;
        Ok(rustix::fs::linkat(CWD, path, &self.0, name, flags)?)
    }

    /// Renames a file, replacing another one.
    ///
    /// # Errors
    /// `ENOENT`, `EACCES`, ...
    pub fn rename(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::renameat(&self.0, from, &self.0, to)?)
    }

    /// Removes a file.
    ///
    /// # Errors
    /// `ENOENT`, `EACCES`, ...
    pub fn remove(&self, name: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.0, name, AtFlags::empty())?)
    }
}

/// No other user may read a file that is not complete.
const OWN: Mode = Mode::RUSR.union(Mode::WUSR);
