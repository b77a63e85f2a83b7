//! Landlock: three system calls, for which no library is needed (landlock(7)).

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use super::Reach;
use crate::residency::last_errno;

const EXECUTE: u64 = 1 << 0;
const WRITE_FILE: u64 = 1 << 1;
const READ_FILE: u64 = 1 << 2;
const READ_DIR: u64 = 1 << 3;
const REMOVE_DIR: u64 = 1 << 4;
const REMOVE_FILE: u64 = 1 << 5;
const MAKE_DIR: u64 = 1 << 7;
const MAKE_REG: u64 = 1 << 8;
/// All file rights of the first version.
const FIRST: u64 = (1 << 13) - 1;
/// Version 2: moving a file to another folder.
const REFER: u64 = 1 << 13;
/// Version 3.
const TRUNCATE: u64 = 1 << 14;
/// Version 5.
const IOCTL_DEV: u64 = 1 << 15;
/// The rights that a file itself can have; the others are those of folders.
const OF_FILES: u64 = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV;
/// Version 4: binding and connecting TCP sockets.
const NETWORK: u64 = 0b11;
/// Version 6: abstract Unix sockets, and signals to other processes.
const SCOPES: u64 = 0b11;

const CREATE_RULESET_VERSION: u32 = 1;
const RULE_PATH_BENEATH: u32 = 1;

/// `struct landlock_ruleset_attr`.
#[repr(C)]
struct RulesetAttributes {
    files: u64,
    network: u64,
    scoped: u64,
}

/// `struct landlock_path_beneath_attr`.
#[repr(C, packed)]
struct PathBeneath {
    access: u64,
    parent: i32,
}

/// The version of the kernel's interface; `ENOSYS` and `EOPNOTSUPP` without Landlock.
pub(super) fn version() -> Result<u32, Errno> {
    // SAFETY: with this flag the kernel reads no attributes.
    let result = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::null::<RulesetAttributes>(),
            0_usize,
            CREATE_RULESET_VERSION,
        )
    };
    u32::try_from(result).map_err(|_| last_errno())
}

/// Rules that threads can be made to follow.
#[derive(Debug)]
pub(super) struct Ruleset {
    fd: OwnedFd,
    /// The rights that the rules decide about.
    handled: u64,
}

impl Ruleset {
    /// Forbids all that this version can forbid, except this reach. `may_empty` what can be read is
    /// for threads whose filter lets them open nothing in such a way.
    ///
    /// At each opening the kernel asks whether the file may be truncated later (`hook_file_open`).
    /// Without that right, it looks for it up to `/`.
    pub(super) fn new(version: u32, reach: &Reach, may_empty: bool) -> io::Result<Self> {
        let since = |first: u32, rights: u64| if version >= first { rights } else { 0 };
        let handled = FIRST | since(2, REFER) | since(3, TRUNCATE) | since(5, IOCTL_DEV);
        let attributes = RulesetAttributes {
            files: handled,
            network: since(4, NETWORK),
            scoped: since(6, SCOPES),
        };
        let len = match version {
            ..=3 => size_of::<u64>(),
            4..=5 => 2 * size_of::<u64>(),
            _ => size_of::<RulesetAttributes>(),
        };
        // SAFETY: the kernel reads `len` bytes of the attributes, which are as long at least.
        let result = unsafe {
            libc::syscall(
                libc::SYS_landlock_create_ruleset,
                &raw const attributes,
                len,
                0_u32,
            )
        };
        let fd = i32::try_from(result).ok().filter(|fd| *fd >= 0);
        let fd = fd.ok_or_else(last_errno)?;
        // SAFETY: the call returned this descriptor, which has no other owner.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let ruleset = Self { fd, handled };
        let read = READ_FILE | READ_DIR;
        let write = read | WRITE_FILE | TRUNCATE | MAKE_REG;
        let rules = [
            (&reach.read, read | if may_empty { TRUNCATE } else { 0 }),
            (&reach.write, write),
            (&reach.remove, REMOVE_FILE),
            (&reach.change, write | MAKE_DIR | REMOVE_DIR | REMOVE_FILE),
        ];
        for (paths, access) in rules {
            for path in paths {
                ruleset.allow(path, access)?;
            }
        }
        Ok(ruleset)
    }

    /// Allows this below a path.
    fn allow(&self, path: &Path, access: u64) -> io::Result<()> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let Ok(parent) = rustix::fs::open(path, flags, Mode::empty()) else {
            // Nothing that is not there can be reached.
            return Ok(());
        };
        let stat = rustix::fs::fstat(&parent)?;
        let possible = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => self.handled,
            _ => self.handled & OF_FILES,
        };
        let rule = PathBeneath {
            access: access & possible,
            parent: parent.as_raw_fd(),
        };
        if access & possible == 0 {
            return Ok(());
        }
        // SAFETY: the kernel reads one `landlock_path_beneath_attr`, and the descriptor in it is
        // open.
        let result = unsafe {
            libc::syscall(
                libc::SYS_landlock_add_rule,
                self.fd.as_raw_fd(),
                RULE_PATH_BENEATH,
                &raw const rule,
                0_u32,
            )
        };
        match result {
            0 => Ok(()),
            _ => match last_errno() {
                // Pipes and other files without a folder, which no rules concern.
                Errno::BADFD => Ok(()),
                errno => Err(errno.into()),
            },
        }
    }

    /// Makes the calling thread follow the rules.
    pub(super) fn enter(&self) -> io::Result<()> {
        // SAFETY: the call takes a descriptor and flags, no memory.
        let result =
            unsafe { libc::syscall(libc::SYS_landlock_restrict_self, self.fd.as_raw_fd(), 0_u32) };
        match result {
            0 => Ok(()),
            _ => Err(last_errno().into()),
        }
    }
}
