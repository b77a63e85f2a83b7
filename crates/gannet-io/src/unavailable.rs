//! Why a kernel cannot be used, and how to fix that.

use std::fmt;

use rustix::io::Errno;

/// Why io_uring cannot be used here.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Unavailable {
    /// The step that failed: `io_uring_setup`, `multishot receive`, ...
    pub step: &'static str,
    /// The error that the kernel returned.
    pub errno: Errno,
    /// The cause, in words.
    pub why: String,
    /// How to fix it, if known.
    pub help: Option<String>,
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.step, self.why)
    }
}

impl std::error::Error for Unavailable {}

impl Unavailable {
    /// Explains an error from setting up the ring or from its first use.
    pub(crate) fn explain(step: &'static str, errno: Errno) -> Self {
        let (why, help) = reason(errno);
        Self {
            step,
            errno,
            why,
            help,
        }
    }
}

/// The usual causes. `io_uring_setup(2)` and `io_uring_register(2)` name the errors.
fn reason(errno: Errno) -> (String, Option<String>) {
    let text = |s: &str| Some(s.to_owned());
    match errno {
        Errno::PERM | Errno::ACCESS => match disabled_sysctl() {
            Some(value @ (1 | 2)) => (
                format!("not permitted (EPERM): the sysctl kernel.io_uring_disabled is {value}"),
                text("set it to 0, or start with --engine=epoll"),
            ),
            _ => (
                "not permitted (EPERM): probably the container's seccomp profile".to_owned(),
                text("allow io_uring_setup, io_uring_enter and io_uring_register in the profile"),
            ),
        },
        Errno::NOSYS => (
            "not implemented (ENOSYS): a kernel without io_uring, or a seccomp profile".to_owned(),
            text("use a kernel built with CONFIG_IO_URING, or allow io_uring in the profile"),
        ),
        Errno::NOMEM => (
            "out of memory (ENOMEM): free memory is in too small pieces, or a limit of locked memory \
             or of address space is too low"
                .to_owned(),
            text(
                "raise the limit (ulimit -l or -v, LimitMEMLOCK= or LimitAS= in the service file), \
                 or start with --engine=epoll",
            ),
        ),
        Errno::INVAL | Errno::OPNOTSUPP => (
            format!("this kernel is too old ({})", name(errno)),
            text("use Linux 6.1 or newer"),
        ),
        Errno::MFILE | Errno::NFILE => (
            format!("no descriptor is free ({})", name(errno)),
            text("raise the limit of open files: ulimit -n"),
        ),
        other => (format!("{other} ({})", name(other)), None),
    }
}

fn name(errno: Errno) -> String {
    match errno {
        Errno::INVAL => "EINVAL".to_owned(),
        Errno::OPNOTSUPP => "EOPNOTSUPP".to_owned(),
        Errno::MFILE => "EMFILE".to_owned(),
        Errno::NFILE => "ENFILE".to_owned(),
        other => format!("error {}", other.raw_os_error()),
    }
}

/// The sysctl `kernel.io_uring_disabled` (Linux 6.6): 0 allowed, 1 for one group, 2 forbidden.
fn disabled_sysctl() -> Option<u8> {
    let text = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled").ok()?;
    text.trim().parse().ok()
}
