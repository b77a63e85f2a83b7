//! What the program says when something goes wrong, in one form.
//!
//! ```text
//! gannet: cannot open archive 'site.gannet': wrong magic at offset 0 (found 504b0304)
//! help: this is a zip file; build an archive with 'gannet pack DIR -o site.gannet'
//! ```

use std::fmt;
use std::io::{self, Write};

pub use gannet_io::cause::cause;
use rustix::io::Errno;

/// The exit status of a failure, documented in the manual.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Exit {
    /// 0: the reader of our output is gone, which is normal; nothing is printed.
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

    /// The same for an error of the system, with what can be done about it.
    pub fn of_system(doing: &str, object: impl fmt::Display, error: &io::Error) -> Self {
        Self {
            help: next_step(error).map(Into::into),
            ..Self::new(doing, object, cause(error))
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
            ..Self::of_system("write to", "standard output", &error)
        }
    }

    /// Reports it to the user, on standard error.
    pub fn report(&self) {
        if self.exit != Exit::ReaderGone {
            // Without standard error there is no one to inform.
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

/// What can be done about an error of the system where nothing more is known of it; `None` where only
/// the cause itself can tell.
#[must_use]
pub fn next_step(error: &io::Error) -> Option<&'static str> {
    let is = |errno: Errno| error.raw_os_error() == Some(errno.raw_os_error());
    Some(match error.kind() {
        io::ErrorKind::NotFound => "check the path",
        io::ErrorKind::AlreadyExists => "choose another name, or remove what is there",
        io::ErrorKind::PermissionDenied => {
            "check its permissions and those of its folder ('namei -l PATH'), and the user that \
             gannet runs as"
        }
        io::ErrorKind::IsADirectory => "it is a folder: name a file",
        io::ErrorKind::NotADirectory => "a component of the path is not a folder: check the path",
        io::ErrorKind::InvalidInput => "name a regular file",
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "free some space there, or choose another place"
        }
        io::ErrorKind::ReadOnlyFilesystem => "choose a writable place",
        io::ErrorKind::FileTooLarge => {
            "the file system or a limit (ulimit -f) does not allow files of this length"
        }
        io::ErrorKind::OutOfMemory => "free memory, or raise a limit on it (ulimit -v)",
        io::ErrorKind::CrossesDevices => "choose a place on the same file system",
        _ if is(Errno::MFILE) => "raise the limit of descriptors: 'ulimit -n'",
        _ if is(Errno::NFILE) => "raise the system's limit of open files: the sysctl fs.file-max",
        _ if is(Errno::AGAIN) => {
            "raise the limit of threads, or of memory: 'ulimit -u', 'ulimit -v'"
        }
        _ if is(Errno::LOOP) => "its symbolic links form a loop: check the path",
        _ if is(Errno::IO) => "the disk or its cable is failing: see 'dmesg'",
        _ => return None,
    })
}

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

/// Prints a broken invariant readably: what, where, and where to report it. Afterwards the process
/// ends, as panics do.
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
    fn an_error_of_the_system_has_a_next_step() {
        let check = |errno: Errno, expect: &str| {
            let error = io::Error::from(errno);
            let failure = Failure::of_system("open", "x", &error);
            let help = failure.help.unwrap_or_default();
            assert!(help.contains(expect), "{errno:?}: {help:?}");
        };
        check(Errno::NOENT, "check the path");
        check(Errno::ACCESS, "permissions");
        check(Errno::ISDIR, "name a file");
        check(Errno::NOSPC, "free some space");
        check(Errno::ROFS, "writable");
        check(Errno::MFILE, "ulimit -n");
        check(Errno::LOOP, "form a loop");
        assert_eq!(next_step(&io::Error::other("damaged")), None);
    }
}
