//! How paths below a root are resolved, which depends on what this process may ask the kernel.

use std::sync::OnceLock;

use rustix::fs::CWD;
use rustix::io::Errno;

use crate::how::{self, LookupReach, Purpose};
use crate::unavailable::Unavailable;

/// How paths below a root are resolved. Both ways give the same answers, and neither leaves the root.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Lookups {
    /// By the kernel, in one call (`openat2`), and without a helper thread if it has the path cached.
    Kernel,
    /// Name by name, each without following a link, always on a helper thread: where a sandbox around
    /// this process forbids `openat2`, as systemd's `RestrictSUIDSGID=yes` and older container runtimes do.
    Walk,
}

impl Lookups {
    /// The way of this process, which is found out once.
    #[must_use]
    pub fn of_process() -> Self {
        match without_kernel() {
            None => Self::Kernel,
            Some(_) => Self::Walk,
        }
    }
}

/// Why paths are resolved name by name, if they are.
#[must_use]
pub fn without_kernel() -> Option<&'static Unavailable> {
    static WHY: OnceLock<Option<Unavailable>> = OnceLock::new();
    let try_it = || {
        let opened = how::open(CWD, b".", Purpose::LookAtFolder, LookupReach::Everywhere);
        let errno = opened.err()?;
        let why = match errno {
            Errno::NOSYS => "not implemented (ENOSYS): a sandbox around gannet",
            Errno::PERM => "not permitted (EPERM): a sandbox around gannet",
            // The call exists. (The working directory may be gone or closed to this user.)
            _ => return None,
        };
        Some(Unavailable {
            step: "openat2",
            errno,
            why: why.to_owned(),
            help: Some(
                "allow openat2: remove RestrictSUIDSGID= from the systemd unit, or update the container \
                 runtime's seccomp profile"
                    .to_owned(),
            ),
        })
    };
    WHY.get_or_init(try_it).as_ref()
}
