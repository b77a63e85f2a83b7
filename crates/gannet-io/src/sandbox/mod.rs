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
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::Access;
use rustix::io::Errno;
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

use self::landlock::Ruleset;
use self::seccomp::Filter;
use crate::how;

/// What the kernel can enforce.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Kernel {
    /// The version of Landlock's interface.
    pub landlock: Result<u32, Errno>,
    /// Whether system calls can be filtered, on this kind of processor too.
    pub seccomp: Result<(), Errno>,
    /// Whether workers have rings that take operations of all kinds, as the kernel refused to restrict
    /// them. A ring can open files too, and no filter sees how.
    pub has_free_rings: bool,
}

impl Kernel {
    /// Tries all of it but rings, on a thread that ends: some sandboxes around a process have the calls and
    /// refuse their use.
    #[must_use]
    pub fn look() -> Self {
        let trial = || {
            let privileges = rustix::thread::set_no_new_privs(true);
            let landlock = privileges.and_then(|()| {
                let version = landlock::version()?;
                Ruleset::new(version, &Reach::default(), false)
                    .and_then(|ruleset| ruleset.enter())
                    .map_err(|error| errno(&error))?;
                Ok(version)
            });
            let seccomp = privileges.and_then(|()| {
                seccomp::check()?;
                // One that lets another thread change the user of all meanwhile.
                Filters::new(Calls::Control, None)
                    .enter()
                    .map_err(|error| errno(&error))
            });
            Self {
                landlock,
                seccomp,
                has_free_rings: false,
            }
        };
        let none = |errno| Self {
            landlock: Err(errno),
            seccomp: Err(errno),
            has_free_rings: false,
        };
        match std::thread::Builder::new().spawn(trial) {
            Ok(thread) => thread.join().unwrap_or_else(|_| none(Errno::IO)),
            Err(error) => none(errno(&error)),
        }
    }
}

fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
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
    /// Folders, with all below them, in which files and folders may be read, written, made, renamed and
    /// removed.
    pub change: Vec<PathBuf>,
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
    /// Those of a process that writes a store, with what comes by connections to sockets that it has.
    Store,
}

/// The filters of a thread.
#[derive(Debug)]
struct Filters {
    without_clone3: Filter,
    main: Filter,
}

impl Filters {
    fn new(calls: Calls, hows: Option<&[u64]>) -> Self {
        Self {
            without_clone3: Filter::without_clone3(),
            main: Filter::new(calls, hows),
        }
    }

    fn enter(&self) -> io::Result<()> {
        self.without_clone3.enter()?;
        // Last, as it permits no other one.
        self.main.enter()
    }
}

/// The rights that threads are left with.
#[derive(Debug)]
pub struct Domain {
    ruleset: Option<Ruleset>,
    /// Takes what the ruleset grants only to threads with a filter.
    without_filter: Option<Ruleset>,
    filters: Option<Filters>,
    keeps_capabilities: bool,
}

/// What is left of root's capabilities: access to files of others, which root may have been started
/// for. Landlock decides which.
const KEPT: CapabilitySet = CapabilitySet::DAC_OVERRIDE.union(CapabilitySet::DAC_READ_SEARCH);

impl Domain {
    /// A domain of what `kernel` can enforce. Paths that do not exist are left out.
    ///
    /// # Errors
    /// The kernel refused a ruleset.
    pub fn new(kernel: &Kernel, reach: &Reach, calls: Calls) -> io::Result<Self> {
        let has_filters = kernel.seccomp.is_ok();
        let hows = match calls {
            Calls::Worker { opens: true } if has_filters && !kernel.has_free_rings => how::sealed(),
            _ => None,
        };
        let hows = hows.as_ref().map(|hows| &hows[..]);
        let ruleset = |may_empty| {
            let version = kernel.landlock.ok();
            let ruleset = version.map(|version| Ruleset::new(version, reach, may_empty));
            ruleset.transpose()
        };
        Ok(Self {
            ruleset: ruleset(hows.is_some())?,
            without_filter: match hows {
                Some(_) => ruleset(false)?,
                None => None,
            },
            filters: has_filters.then(|| Filters::new(calls, hows)),
            keeps_capabilities: false,
        })
    }

    /// For a thread that is to become another user's later, and loses them then.
    #[must_use]
    pub fn keeping_capabilities(mut self) -> Self {
        self.keeps_capabilities = true;
        self
    }

    /// Confines the calling thread, and all that it starts from now on, for ever. Of root's
    /// capabilities only those to files of others are left.
    ///
    /// # Errors
    /// `EPERM` without [`forbid_privileges`]; `E2BIG` in too many domains; `ENOMEM`. The thread may
    /// be confined in part then.
    pub fn enter(&self) -> io::Result<()> {
        if !self.keeps_capabilities {
            drop_capabilities()?;
        }
        if let Some(ruleset) = &self.ruleset {
            ruleset.enter()?;
            IS_HIDING.store(true, Ordering::Relaxed);
        }
        if let Some(filters) = &self.filters {
            // Last, as they permit none of these calls.
            if let Err(error) = filters.enter() {
                if let Some(ruleset) = &self.without_filter {
                    ruleset.enter()?;
                }
                return Err(error);
            }
        }
        Ok(())
    }
}

/// Takes the capabilities of the calling thread but those to files.
fn drop_capabilities() -> io::Result<()> {
    let mut sets = capabilities(None)?;
    if KEPT.contains(sets.permitted | sets.inheritable) {
        return Ok(());
    }
    for set in [
        &mut sets.effective,
        &mut sets.permitted,
        &mut sets.inheritable,
    ] {
        *set &= KEPT;
    }
    Ok(set_capabilities(None, sets)?)
}

/// Whether any thread of this process is confined to some files.
static IS_HIDING: AtomicBool = AtomicBool::new(false);

/// What to say of a file that [`is_hidden`].
pub const HIDDEN: &str = "the sandbox does not reach it, as a folder on its way was made again or a \
                          link leads elsewhere; start gannet again";

/// Whether a file could not be opened because of the sandbox: the user has the rights (`writes`: to
/// change or make it as well).
#[must_use]
pub fn is_hidden(path: &Path, writes: bool, error: &io::Error) -> bool {
    let has = |path: &Path, access| rustix::fs::access(path, access).is_ok();
    if error.raw_os_error() != Some(libc::EACCES) || !IS_HIDING.load(Ordering::Relaxed) {
        return false;
    }
    match (writes, path.exists()) {
        (false, _) => has(path, Access::READ_OK),
        (true, true) => has(path, Access::WRITE_OK),
        (true, false) => path
            .parent()
            .is_some_and(|folder| has(folder, Access::WRITE_OK | Access::EXEC_OK)),
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

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;

    use super::*;

    /// Whether a thread that `enter` confines can empty a file that it can read.
    fn empties(domain: Domain, enter: impl FnOnce(&Domain) + Send + 'static) -> bool {
        // The C library opens by `openat`, which Landlock alone decides about here.
        let file = folder().join("page");
        std::fs::write(&file, "page").unwrap();
        let confined = move || {
            forbid_privileges().unwrap();
            enter(&domain);
            let file = folder().join("page");
            assert_eq!(std::fs::read(&file).unwrap(), b"page");
            let flags = libc::O_TRUNC;
            let mut options = OpenOptions::new();
            let opened = std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, flags)
                .read(true)
                .open(file);
            opened.is_ok()
        };
        std::thread::spawn(confined).join().unwrap()
    }

    fn folder() -> PathBuf {
        let name = format!("gannet-sandbox-inner-{}", std::process::id());
        std::env::temp_dir().join(name)
    }

    /// What Landlock leaves to the filter is left to nothing else.
    #[test]
    fn files_can_be_emptied_by_nobody_whose_filter_does_not_see_to_it() {
        let kernel = Kernel::look();
        let has_truncate = kernel.landlock.is_ok_and(|version| version >= 3);
        if !has_truncate || kernel.seccomp.is_err() || how::sealed().is_none() {
            return gannet_testkit::left_out("a whole sandbox", "the kernel lacks a part");
        }
        std::fs::create_dir_all(folder()).unwrap();
        let domain = |has_free_rings| {
            let kernel = Kernel {
                has_free_rings,
                ..kernel
            };
            let reach = Reach {
                read: vec![folder()],
                ..Reach::default()
            };
            Domain::new(&kernel, &reach, Calls::Worker { opens: true }).unwrap()
        };
        // As a ring would, for which there is no filter.
        let by_rules = |domain: &Domain| domain.ruleset.as_ref().unwrap().enter().unwrap();
        assert!(empties(domain(false), by_rules), "the filter has to refuse");
        assert!(!empties(domain(true), by_rules));
        let mut refused = domain(false);
        refused.filters.as_mut().unwrap().main = Filter::refused();
        let is_told = |domain: &Domain| {
            let errno = domain.enter().unwrap_err().raw_os_error();
            assert_eq!(errno, Some(libc::EINVAL));
        };
        assert!(!empties(refused, is_told));
        std::fs::remove_dir_all(folder()).unwrap();
    }
}
