//! Where the request log and messages for people go.

use std::io::{self, IsTerminal};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;

use gannet_server::config::LogFormat;
use gannet_server::however_long;
use gannet_server::notices::{ERRORS, OUTPUT};
use rustix::fs::fstat;

use crate::command_line::settings::{ColourChoice, LogChoice, Settings};

/// The format of the request log.
pub(super) fn log_format(settings: &Settings, terminal: &Terminal) -> LogFormat {
    let pretty = LogFormat::Pretty {
        colour: terminal.colour,
    };
    match (&settings.log, settings.server.log_file.is_some()) {
        (LogChoice::Own(own), _) => LogFormat::Own(Arc::clone(own)),
        (LogChoice::Off, _) => LogFormat::Off,
        (LogChoice::Json, _) => LogFormat::Json,
        (LogChoice::Combined, _) => LogFormat::Combined,
        (LogChoice::Vcombined, _) => LogFormat::Vcombined,
        // Colours are for terminals, not files.
        (LogChoice::Pretty, true) => LogFormat::Pretty { colour: false },
        (LogChoice::Pretty, false) => pretty,
        // A named file implies that logging is wanted.
        (LogChoice::Auto, true) => LogFormat::Combined,
        (LogChoice::Auto, false) if settings.quiet || !terminal.is_output => LogFormat::Off,
        (LogChoice::Auto, false) => pretty,
    }
}

/// The file that requests are logged to. If it is standard output under another name, such as
/// `/dev/stdout`, returns `None`: a socket or a pipe cannot be reopened, and messages for people
/// must not appear between log lines.
pub(super) fn log_file(settings: &Settings) -> Option<PathBuf> {
    let path = settings.server.log_file.as_ref()?;
    let is_output = || {
        let out = fstat(io::stdout()).ok()?;
        let file = however_long(path, || std::fs::metadata(path)).ok()?;
        Some((out.st_dev, out.st_ino) == (file.dev(), file.ino()))
    };
    (is_output() != Some(true)).then(|| path.clone())
}

/// The capabilities of standard output.
pub(crate) struct Terminal {
    /// Standard output is a terminal.
    pub is_output: bool,
    /// ANSI colours are wanted.
    pub(crate) colour: bool,
}

impl Terminal {
    pub(crate) fn look(choice: ColourChoice) -> Self {
        let is_output = io::stdout().is_terminal();
        let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let is_dumb = std::env::var_os("TERM").is_some_and(|value| value == "dumb");
        let colour = match choice {
            ColourChoice::Always => true,
            ColourChoice::Never => false,
            ColourChoice::Auto => is_output && !is_set("NO_COLOR") && !is_dumb,
        };
        Self { is_output, colour }
    }
}

/// What stops the program for who has started it: there is no Ctrl-C where there is no terminal. Either may be
/// redirected at one.
pub(crate) fn stopped_by() -> &'static str {
    match io::stdin().is_terminal() || io::stdout().is_terminal() {
        true => "Ctrl-C",
        false => "SIGTERM",
    }
}

/// Where messages for people go.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum People {
    Out,
    Err,
    Nowhere,
}

impl People {
    /// Standard output, unless the request log goes there for another program.
    pub(super) fn choose(is_quiet: bool, (log, has_file): (&LogFormat, bool)) -> Self {
        match log {
            _ if is_quiet => Self::Nowhere,
            LogFormat::Off | LogFormat::Pretty { .. } => Self::Out,
            _ if has_file => Self::Out,
            _ => Self::Err,
        }
    }

    /// Writes it there.
    pub(super) fn say(self, text: impl Into<String>) {
        match self {
            Self::Out => OUTPUT.write(text.into()),
            Self::Err => ERRORS.write(text.into()),
            Self::Nowhere => {}
        }
    }

    /// The same for what a signal has requested: if nothing else is printed, to standard error.
    pub(super) fn answer(self, text: impl Into<String>) {
        match self {
            Self::Nowhere => Self::Err.say(text),
            said => said.say(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_logged_prettily_only_for_people() {
        let check = |log, has_file: bool, is_output: bool, quiet: bool, expect: LogFormat| {
            let mut settings = Settings {
                log,
                quiet,
                ..Settings::default()
            };
            settings.server.log_file = has_file.then(|| "log".into());
            let terminal = Terminal {
                is_output,
                colour: is_output,
            };
            assert_eq!(log_format(&settings, &terminal), expect);
        };
        check(
            LogChoice::Auto,
            false,
            true,
            false,
            LogFormat::Pretty { colour: true },
        );
        check(LogChoice::Auto, false, true, true, LogFormat::Off);
        check(LogChoice::Auto, false, false, false, LogFormat::Off);
        check(LogChoice::Auto, true, true, false, LogFormat::Combined);
        check(
            LogChoice::Pretty,
            false,
            false,
            false,
            LogFormat::Pretty { colour: false },
        );
        check(
            LogChoice::Pretty,
            true,
            true,
            false,
            LogFormat::Pretty { colour: false },
        );
        check(LogChoice::Json, false, true, true, LogFormat::Json);
        check(LogChoice::Off, true, true, false, LogFormat::Off);
    }

    #[test]
    fn words_for_people_never_mix_with_what_a_program_reads() {
        let check = |quiet: bool, log: &LogFormat, has_file: bool, expect: People| {
            assert_eq!(People::choose(quiet, (log, has_file)), expect);
        };
        check(false, &LogFormat::Off, false, People::Out);
        check(
            false,
            &LogFormat::Pretty { colour: true },
            false,
            People::Out,
        );
        check(false, &LogFormat::Json, false, People::Err);
        check(false, &LogFormat::Combined, false, People::Err);
        check(false, &LogFormat::Combined, true, People::Out);
        check(true, &LogFormat::Json, false, People::Nowhere);
    }
}
