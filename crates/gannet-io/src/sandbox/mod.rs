//! Takes rights away from threads: what they may open (Landlock) and which system calls they may
//! make (seccomp).
//!
//! ```text
//!  forbid_privileges ─▶ ... bind, open, read ... ─▶ Domain::new ─▶ Domain::enter, on each thread
//! ```
//!
//! A thread hands its domain on to the threads that it starts. No domain can be left or widened.

mod calls;
mod landlock;
mod seccomp;

use std::io;
use std::path::PathBuf;

use rustix::io::Errno;

use self::landlock::Ruleset;
use self::seccomp::Filter;

/// What the kernel can enforce.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Kernel {
    /// The version of Landlock's interface.
    pub landlock: Result<u32, Errno>,
    /// Whether system calls can be filtered, on this kind of processor too.
    pub seccomp: Result<(), Errno>,
}

impl Kernel {
    /// Asks the kernel.
    #[must_use]
    pub fn look() -> Self {
        Self {
            landlock: landlock::version(),
            seccomp: seccomp::check(),
        }
    }
}

/// The files that threads may reach, by path. What is open already stays usable.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Reach {
    /// Files and folders, with all below them, that may be read.
    pub read: Vec<PathBuf>,
    /// The same, and written: files may also be created in folders.
    pub write: Vec<PathBuf>,
    /// Folders in which files may be removed.
    pub remove: Vec<PathBuf>,
}

/// The system calls that a thread needs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Calls {
    /// Those of a worker and of the threads that it starts, which have the bytes of peers. With
    /// `opens`, files may be opened.
    Worker {
        /// Whether files may be opened.
        opens: bool,
    },
    /// Those of the threads that read content and certificates again, write logs, and wait for
    /// signals.
    Control,
}

/// The rights that threads are left with.
#[derive(Debug)]
pub struct Domain {
    ruleset: Option<Ruleset>,
    filter: Option<Filter>,
}

impl Domain {
    /// A domain of what `kernel` can enforce. Paths that do not exist are left out.
    ///
    /// # Errors
    /// The kernel refused a ruleset.
    pub fn new(kernel: &Kernel, reach: &Reach, calls: Calls) -> io::Result<Self> {
        let ruleset = kernel.landlock.ok();
        let ruleset = ruleset.map(|version| Ruleset::new(version, reach));
        Ok(Self {
            ruleset: ruleset.transpose()?,
            filter: kernel.seccomp.is_ok().then(|| Filter::new(calls)),
        })
    }

    /// Confines the calling thread, and all that it starts from now on, for ever.
    ///
    /// # Errors
    /// `EPERM` without [`forbid_privileges`]; `E2BIG` in too many domains; `ENOMEM`. The thread may
    /// be confined in part then.
    pub fn enter(&self) -> io::Result<()> {
        if let Some(ruleset) = &self.ruleset {
            ruleset.enter()?;
        }
        if let Some(filter) = &self.filter {
            // Last, as it permits none of these calls.
            filter.enter()?;
        }
        Ok(())
    }
}

/// Gives up what could add rights later, on this thread and all that it starts: programs with
/// other users' rights (`PR_SET_NO_NEW_PRIVS`), and for the whole process, being traced and dumped
/// (`PR_SET_DUMPABLE`).
///
/// # Errors
/// The kernel refused.
pub fn forbid_privileges() -> io::Result<()> {
    rustix::thread::set_no_new_privs(true)?;
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?;
    Ok(())
}
