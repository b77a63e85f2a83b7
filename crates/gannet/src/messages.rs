//! What the program says when something goes wrong, in one form.
//!
//! ```text
//! gannet: cannot open archive 'site.gannet': wrong magic at offset 0 (found 504b0304)
//! help: this is a zip file; build an archive with 'gannet pack DIR -o site.gannet'
//! ```

use std::fmt;
use std::io::{self, Write};

/// The exit status of a failure, documented in the manual.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Exit {
    /// 0: whoever read our output has gone away, which is their right; nothing is said.
    ReaderGone,
    /// 1: the command was understood and could not be done.
    Failed,
    /// 2: the command line, the environment or the configuration is wrong.
    Usage,
}

impl Exit {
    /// The process's exit status.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Self::ReaderGone => 0,
            Self::Failed => 1,
            Self::Usage => 2,
        }
    }
}

/// An error for the person who typed the command.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Failure {
    /// What was being done, with the object as the user typed it, and why it failed: one line, or
    /// more for a list of findings; lower case, no final stop, without the leading `gannet: `.
    pub message: String,
    /// The next step, if we know one.
    pub help: Option<String>,
    /// What the process ends with.
    pub exit: Exit,
}

impl Failure {
    /// `cannot <doing> '<object>': <cause>`, ending with status 1.
    pub fn new(doing: &str, object: impl fmt::Display, cause: impl fmt::Display) -> Self {
        Self {
            message: format!(
                "cannot {doing} '{}': {cause}",
                printable(&object.to_string())
            ),
            help: None,
            exit: Exit::Failed,
        }
    }

    /// A mistake on the command line, in the environment or in the configuration: status 2.
    pub fn usage(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            help: None,
            exit: Exit::Usage,
        }
    }

    /// An error of writing to standard output.
    #[must_use]
    pub fn from_output(error: io::Error) -> Self {
        let exit = match error.kind() {
            io::ErrorKind::BrokenPipe => Exit::ReaderGone,
            _ => Exit::Failed,
        };
        Self {
            exit,
            ..Self::new("write to", "standard output", cause(&error))
        }
    }

    /// Tells the user, on standard error.
    pub fn report(&self) {
        if self.exit != Exit::ReaderGone {
            // Without standard error there is nobody to tell.
            let _ = writeln!(io::stderr(), "{self}");
        }
    }

    /// The same with the next step.
    #[must_use]
    pub fn help(mut self, next_step: impl Into<String>) -> Self {
        self.help = Some(next_step.into());
        self
    }

    /// The same, ending with status 2.
    #[must_use]
    pub fn as_usage(mut self) -> Self {
        self.exit = Exit::Usage;
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "gannet: {}", self.message)?;
        if let Some(help) = &self.help {
            write!(f, "\nhelp: {help}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}

/// Names come from disks, networks and other programs: what could steer a terminal is shown, not
/// sent.
#[must_use]
pub fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        if letter.is_control() {
            shown.extend(letter.escape_default());
        } else {
            shown.push(letter);
        }
    }
    shown
}

/// Makes a broken invariant of ours readable: what, where, and where to tell it. Afterwards the
/// process ends, as panics do.
pub fn hide_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let payload = panic.payload();
        let what = match (
            payload.downcast_ref::<&str>(),
            payload.downcast_ref::<String>(),
        ) {
            (Some(text), _) => text,
            (None, Some(text)) => text.as_str(),
            (None, None) => "an invariant does not hold",
        };
        let place = panic
            .location()
            .map(ToString::to_string)
            .unwrap_or_default();
        let failure = Failure::new("go on", place, what)
            .help("this is a bug in gannet: please report this line and what led to it");
        failure.report();
    }));
}

/// An operating system error in words, with its name: `permission denied (EACCES)`.
#[must_use]
pub fn cause(error: &io::Error) -> String {
    let Some(number) = error.raw_os_error() else {
        return error.to_string();
    };
    let text = error.to_string();
    // The standard library writes "Permission denied (os error 13)".
    let words = text.split(" (os error").next().unwrap_or(&text);
    let mut letters = words.chars();
    let words: String = match letters.next() {
        Some(first) => first.to_lowercase().chain(letters).collect(),
        None => String::new(),
    };
    match errno_name(number) {
        Some(name) => format!("{words} ({name})"),
        None => format!("{words} (errno {number})"),
    }
}

/// The name of an errno that a user may meet here.
fn errno_name(number: i32) -> Option<&'static str> {
    use rustix::io::Errno;
    const NAMES: &[(Errno, &str)] = &[
        (Errno::PERM, "EPERM"),
        (Errno::NOENT, "ENOENT"),
        (Errno::IO, "EIO"),
        (Errno::BADF, "EBADF"),
        (Errno::AGAIN, "EAGAIN"),
        (Errno::NOMEM, "ENOMEM"),
        (Errno::ACCESS, "EACCES"),
        (Errno::BUSY, "EBUSY"),
        (Errno::EXIST, "EEXIST"),
        (Errno::XDEV, "EXDEV"),
        (Errno::NODEV, "ENODEV"),
        (Errno::NOTDIR, "ENOTDIR"),
        (Errno::ISDIR, "EISDIR"),
        (Errno::INVAL, "EINVAL"),
        (Errno::NFILE, "ENFILE"),
        (Errno::MFILE, "EMFILE"),
        (Errno::TXTBSY, "ETXTBSY"),
        (Errno::FBIG, "EFBIG"),
        (Errno::NOSPC, "ENOSPC"),
        (Errno::ROFS, "EROFS"),
        (Errno::NAMETOOLONG, "ENAMETOOLONG"),
        (Errno::NOSYS, "ENOSYS"),
        (Errno::NOTEMPTY, "ENOTEMPTY"),
        (Errno::LOOP, "ELOOP"),
        (Errno::OPNOTSUPP, "EOPNOTSUPP"),
        (Errno::AFNOSUPPORT, "EAFNOSUPPORT"),
        (Errno::ADDRINUSE, "EADDRINUSE"),
        (Errno::ADDRNOTAVAIL, "EADDRNOTAVAIL"),
        (Errno::CONNREFUSED, "ECONNREFUSED"),
        (Errno::CONNRESET, "ECONNRESET"),
        (Errno::TIMEDOUT, "ETIMEDOUT"),
        (Errno::DQUOT, "EDQUOT"),
        (Errno::STALE, "ESTALE"),
    ];
    let number = Errno::from_raw_os_error(number);
    NAMES
        .iter()
        .find(|(errno, _)| *errno == number)
        .map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_doing_object_cause_and_next_step() {
        let failure = Failure::new("open archive", "site.gannet", "wrong magic").help("pack it");
        assert_eq!(
            failure.to_string(),
            "gannet: cannot open archive 'site.gannet': wrong magic\nhelp: pack it"
        );
        assert_eq!(failure.exit.code(), 1);
        assert_eq!(failure.as_usage().exit.code(), 2);
    }

    #[test]
    fn causes_are_lower_case_and_carry_the_errno_name() {
        let check = |number: i32, expect: &str| {
            assert_eq!(cause(&io::Error::from_raw_os_error(number)), expect);
        };
        check(13, "permission denied (EACCES)");
        check(2, "no such file or directory (ENOENT)");
        check(20, "not a directory (ENOTDIR)");
    }
}
