//! The program's error messages, in one form.
//!
//! ```text
//! gannet: cannot open archive 'site.gannet': wrong magic at offset 0 (found 504b0304)
//! help: this is a zip file; build an archive with 'gannet pack DIR -o site.gannet'
//! ```

use std::fmt;
use std::io;

pub use gannet_io::cause::{cause, next_step, printable};
use gannet_server::notices::{self, ERRORS};

/// The exit status of a failure, documented in the manual.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Exit {
    /// 0: the reader of our output has closed it, which is normal; nothing is printed.
    ReaderGone,
    /// 1: the command was understood but failed.
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

/// An error for the user of the command line.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Failure {
    /// What was being done, with the object as the user typed it, and why it failed: one line, or
    /// more for a list of findings; lower case, no final stop, without the leading `gannet: `.
    pub message: String,
    /// The next step, if known.
    pub help: Option<String>,
    /// The exit status.
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

    /// Wraps an error of the system, with a next step if known.
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

    /// Wraps an error of writing to standard output.
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

    /// Prints the failure on standard error.
    pub fn report(&self) {
        if self.exit != Exit::ReaderGone {
            ERRORS.log(self);
        }
    }

    /// Adds the next step.
    #[must_use]
    pub fn help(mut self, next_step: impl Into<String>) -> Self {
        self.help = Some(next_step.into());
        self
    }

    /// Changes the exit status to 2.
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

/// Prints a violated invariant readably: what, where, and where to report it. The process then ends
/// as with any panic.
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
        notices::settle();
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
}
