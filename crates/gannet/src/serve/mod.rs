//! `gannet` and `gannet serve`: look at the path, bind, start, tell, wait for signals.

pub mod addresses;
mod port_owner;
mod signals;
pub mod start_lines;
pub mod what;

use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use gannet_server::Running;
use gannet_server::config::{Config, Content, ListenAddress, LogFormat};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::command_line::arguments::mistyped_command;
use crate::command_line::layers::Origins;
use crate::command_line::settings::{ColourChoice, LogChoice, Settings};
use crate::messages::{Failure, cause};
use crate::serve::addresses::Listening;
use crate::serve::signals::Wish;
use crate::serve::start_lines::Lines;

/// How often a running server is asked whether its workers have ended by themselves.
const LOOK: Duration = Duration::from_secs(1);
/// The same once a stop was asked for.
const LOOK_STOPPING: Duration = Duration::from_millis(10);
/// A stop that takes longer than this is told about.
const LOOKS_UNTIL_TOLD: u32 = 20;

/// Serves until a signal ends it; gives the exit status.
///
/// # Errors
/// Whatever keeps the server from starting.
pub fn run(settings: &Settings, origins: &Origins) -> Result<u8, Failure> {
    let content = content(settings)?;
    let wanted = addresses::wanted(settings, origins)?;
    let terminal = Terminal::look(settings.colour);
    let config = Config {
        log: log_format(settings, &terminal),
        ..settings.server.clone()
    };
    raise_descriptor_limit();
    let wishes =
        signals::listen().map_err(|error| Failure::new("listen for", "signals", cause(&error)))?;
    let Listening { bound, note } = addresses::bind(&wanted, config.workers)?;
    let addresses: Vec<ListenAddress> = bound.iter().map(|one| one.address.clone()).collect();
    let sockets = SocketFiles::of(&addresses);
    let log = (config.log, config.log_file.is_some());
    let running =
        gannet_server::start(config, content.clone(), bound).map_err(|error| Failure {
            message: error.to_string(),
            help: error.help(),
            exit: crate::messages::Exit::Failed,
        })?;
    let mut people = People::choose(settings.quiet, log);
    let interfaces = addresses::interface_addresses();
    let lines = Lines {
        content: &content,
        addresses: &addresses,
        interfaces: &interfaces,
        report: running.report(),
        note: note.as_deref(),
        colour: terminal.colour,
    };
    people.say(&lines.render());
    let status = wait(running, &wishes, &mut people);
    drop(sockets);
    Ok(status)
}

/// Finds every mistake that can be found without binding or serving.
///
/// # Errors
/// The first mistake.
pub fn check(settings: &Settings, origins: &Origins) -> Result<(), Failure> {
    addresses::wanted(settings, origins)?;
    match &settings.path {
        Some(path) => look(path).map(|_| ()),
        None => Ok(()),
    }
}

/// What to serve; refuses to guess when nobody is watching.
fn content(settings: &Settings) -> Result<Content, Failure> {
    match &settings.path {
        Some(path) => look(path),
        None if io::stdin().is_terminal() || io::stdout().is_terminal() => {
            what::look(Path::new("."))
        }
        None => Err(Failure::usage("no path given, and no terminal to ask")
            .help("name what to serve: 'gannet PATH'; for the current directory 'gannet .'")),
    }
}

fn look(path: &Path) -> Result<Content, Failure> {
    what::look(path).map_err(
        |failure| match mistyped_command(Some(&path.as_os_str().to_owned())) {
            Some(meant) => failure.help(format!("did you mean the command 'gannet {meant}'?")),
            None if failure.help.is_none() && !path.exists() => failure.help("check the path"),
            None => failure,
        },
    )
}

fn log_format(settings: &Settings, terminal: &Terminal) -> LogFormat {
    let pretty = LogFormat::Pretty {
        colour: terminal.colour,
    };
    match (settings.log, settings.server.log_file.is_some()) {
        (LogChoice::Off, _) => LogFormat::Off,
        (LogChoice::Json, _) => LogFormat::Json,
        (LogChoice::Combined, _) => LogFormat::Combined,
        // Colours are for terminals, and a file is none.
        (LogChoice::Pretty, true) => LogFormat::Pretty { colour: false },
        (LogChoice::Pretty, false) => pretty,
        // Whoever names a file wants something in it.
        (LogChoice::Auto, true) => LogFormat::Combined,
        (LogChoice::Auto, false) if settings.quiet || !terminal.is_output => LogFormat::Off,
        (LogChoice::Auto, false) => pretty,
    }
}

/// What standard output can show.
pub(crate) struct Terminal {
    /// Standard output is a terminal.
    is_output: bool,
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

/// Where words for people go.
enum People {
    Out,
    Err,
    Nobody,
}

impl People {
    /// Standard output, unless another program reads requests from it.
    fn choose(is_quiet: bool, (log, has_file): (LogFormat, bool)) -> Self {
        match log {
            _ if is_quiet => Self::Nobody,
            LogFormat::Combined | LogFormat::Json if !has_file => Self::Err,
            _ => Self::Out,
        }
    }

    fn say(&mut self, text: &str) {
        // A reader that has gone away is no reason to stop serving.
        let _ = match self {
            Self::Out => io::stdout()
                .write_all(text.as_bytes())
                .and_then(|()| io::stdout().flush()),
            Self::Err => io::stderr().write_all(text.as_bytes()),
            Self::Nobody => Ok(()),
        };
    }
}

/// Serves until the workers have ended; gives the exit status.
fn wait(running: Running, wishes: &Receiver<Wish>, people: &mut People) -> u8 {
    let mut stopping = None;
    let mut looks = 0;
    let mut killed_by = None;
    while !running.is_finished() {
        let patience = if stopping.is_some() {
            LOOK_STOPPING
        } else {
            LOOK
        };
        match wishes.recv_timeout(patience) {
            Ok(Wish::Stop(signal)) if stopping.is_none() => {
                stopping = Some(signal);
                running.stop();
            }
            Ok(Wish::Stop(signal)) => {
                killed_by = Some(signal);
                running.stop_now();
            }
            Ok(Wish::ReopenLogs) => running.reopen_logs(),
            // Asked for, so it is printed even when quiet; never among logged requests.
            Ok(Wish::Summary) => {
                let _ = io::stderr().write_all(running.summary().as_bytes());
            }
            Err(RecvTimeoutError::Timeout) if stopping.is_some() => {
                looks += 1;
                if looks == LOOKS_UNTIL_TOLD {
                    people.say("stopping when running answers have ended; again ends at once\n");
                }
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
        }
    }
    let is_clean = running.wait();
    match (killed_by, stopping) {
        (Some(signal), _) => 128 + u8::try_from(signal).unwrap_or(0),
        (None, Some(_)) if is_clean => 0,
        // The grace was over, or the workers ended although nobody had asked them to.
        _ => 1,
    }
}

/// Removes the files of Unix sockets at the end.
struct SocketFiles(Vec<std::path::PathBuf>);

impl SocketFiles {
    fn of(addresses: &[ListenAddress]) -> Self {
        let paths = addresses.iter().filter_map(|address| match address {
            ListenAddress::Unix(path) => Some(path.clone()),
            ListenAddress::Tcp(_) => None,
        });
        Self(paths.collect())
    }
}

impl Drop for SocketFiles {
    fn drop(&mut self) {
        for path in &self.0 {
            // Somebody may have removed it already.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Every connection and open file is a descriptor; the soft limit is often 1024 for the sake of
/// programs that use `select`.
fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    // Refused in a sandbox: the server then has fewer connections, as `--max-connections 0` says.
    let _ = setrlimit(Resource::Nofile, raised);
}
