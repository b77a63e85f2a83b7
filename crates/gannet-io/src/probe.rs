//! Checks whether this kernel supports the ring, and the calls that reading files needs; if not,
//! says why and how to fix that.

use rustix::io::Errno;

use crate::options::EngineOptions;
use crate::residency::last_errno;
pub use crate::unavailable::Unavailable;
use crate::uring::Uring;

/// Sets up a ring on this thread, tries it, and drops it.
///
/// # Errors
/// As for [`Uring::new`].
pub fn check(options: &EngineOptions) -> Result<(), Unavailable> {
    Uring::new(Vec::new(), options).map(drop)
}

/// Tries the system calls without which no file can be served: `preadv2` reads without waiting,
/// `sendfile` sends. A sandbox may lack or refuse them, and every response would be an error.
///
/// # Errors
/// The first call that is missing. Calls that exist fail on the invalid descriptors.
pub fn check_files() -> Result<(), Unavailable> {
    let call = |number| {
        const NONE: libc::c_long = -1;
        const ZERO: libc::c_long = 0;
        // SAFETY: the first two arguments are invalid descriptors (the second of `preadv2` an
        // address, of zero entries), so the call ends before it reads or writes any memory.
        let result = unsafe { libc::syscall(number, NONE, NONE, ZERO, ZERO, ZERO, ZERO) };
        if result < 0 {
            last_errno()
        } else {
            Errno::BADF
        }
    };
    check_call("preadv2", call(libc::SYS_preadv2))?;
    check_call("sendfile", call(libc::SYS_sendfile))
}

/// Whether the error means that a system call is missing or refused.
fn check_call(step: &'static str, errno: Errno) -> Result<(), Unavailable> {
    let why = match errno {
        Errno::NOSYS => "not implemented (ENOSYS): a kernel that is too old, or a sandbox",
        Errno::PERM => "not permitted (EPERM): probably the container's seccomp profile",
        _ => return Ok(()),
    };
    Err(Unavailable {
        step,
        errno,
        why: why.to_owned(),
        help: Some(format!(
            "allow {step} in the seccomp profile, or use Linux 6.1 or newer"
        )),
    })
}
