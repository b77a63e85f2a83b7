//! Can this kernel do the ring, and what reading files needs? And if not, why, in words and with
//! the fix.

use rustix::io::Errno;

use crate::options::EngineOptions;
use crate::residency::last_errno;
pub use crate::unavailable::Unavailable;
use crate::uring::Uring;

/// Sets a ring up on this thread, tries it out, and throws it away.
///
/// # Errors
/// As for [`Uring::new`].
pub fn check(options: &EngineOptions) -> Result<(), Unavailable> {
    Uring::new(Vec::new(), options).map(drop)
}

/// Tries out the system calls without which no file can be served: `openat2` opens below a
/// directory, `preadv2` reads without waiting, `sendfile` sends. A sandbox may lack them, or refuse
/// them, and every answer would be an error.
///
/// # Errors
/// The first that is not there. With invalid descriptors, calls that exist fail.
pub fn check_files(has_directories: bool) -> Result<(), Unavailable> {
    use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};

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
    if has_directories {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let confined = ResolveFlags::BENEATH;
        let errno = rustix::fs::openat2(CWD, c".", flags, Mode::empty(), confined).err();
        check_call("openat2", errno.unwrap_or(Errno::BADF))?;
    }
    check_call("preadv2", call(libc::SYS_preadv2))?;
    check_call("sendfile", call(libc::SYS_sendfile))
}

/// Whether the error is that of a system call that is missing or refused.
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
