//! `gannet` and `gannet serve`: prepare (inspect the path, bind, open), serve, wait for signals.

pub mod addresses;
pub mod content_kind;
mod effects;
mod port_owner;
mod process_limits;
mod qr_code;
mod signals;
pub mod start_lines;
pub mod tls;

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use clap::ArgMatches;
use gannet_archive::{SUPERBLOCK_LEN, SectionKind, Superblock};
use gannet_io::named_file;
use gannet_server::config::{
    Config, Content, ContentOptions, Hosted, ListenAddress, LogFormat, Scheme, UnknownHost,
};
use gannet_server::notices::{self, ERRORS, OUTPUT};
use gannet_server::tls::certificates::Warning;
use gannet_server::{OpenError, Prepared, Running, StartError};
use gannet_site::host_folders::HostFolders;
use rustix::fs::fstat;
use signal_hook::consts::SIGHUP;

use super::failure::signature_help;
use super::{print, resolve};
use crate::command_line::arguments::mistyped_command;
use crate::command_line::layers::Origins;
use crate::command_line::serve_flags::SERVE_FLAGS;
use crate::command_line::serve_flags::needs::Kind;
use crate::command_line::settings::{ColourChoice, LogChoice, Settings};
use crate::commands::serve::addresses::Listening;
use crate::commands::serve::effects::Situation;
use crate::commands::serve::process_limits::{Needs, Used};
use crate::commands::serve::signals::{Command, Commands};
use crate::commands::serve::start_lines::Lines;
use crate::messages::{Exit, Failure, printable};

/// How often the main thread checks whether the workers have ended by themselves.
const LOOK: Duration = Duration::from_secs(1);
/// The same during shutdown.
const LOOK_STOPPING: Duration = Duration::from_millis(10);
/// Checks after which a slow shutdown is announced.
const LOOKS_UNTIL_TOLD: u32 = 20;

/// Serves, or reports what is wrong with the configuration.
///
/// # Errors
/// Anything that prevents the server from starting.
pub fn run(matches: &ArgMatches) -> Result<u8, Failure> {
    let (settings, origins) = resolve(SERVE_FLAGS, "", matches)?;
    if matches.get_flag("check-config") {
        let notes = check(&settings, &origins)?;
        return print(&format!("{notes}the configuration is valid\n"));
    }
    serve(&settings, &origins)
}

/// Serves until a signal stops it; returns the exit status.
fn serve(settings: &Settings, origins: &Origins) -> Result<u8, Failure> {
    let used = Used::now(settings);
    let commands = match signals::listen() {
        Ok(commands) => commands,
        Err(error) => {
            // Too low a limit is the likely cause: if so, that is the error to report.
            prepare(settings, origins, used)?;
            return Err(Failure::of_system("listen for", "signals", &error));
        }
    };
    let Ready {
        prepared,
        lines,
        people,
    } = prepare(settings, origins, used)?;
    let mut running = prepared
        .serve()
        .map_err(|error| start_failure(&error, settings))?;
    let sender = commands.sender.clone();
    running
        .watch_certificates(move |reload| {
            // The receiver is gone once the server has ended.
            let _ = sender.send(Command::Certificates(reload));
        })
        .map_err(|error| Failure::of_system("watch", "the certificates", &error))?;
    commands.serve();
    people.say(lines);
    // These lines are written before requests are logged, unless their reader stalls.
    notices::settle();
    Ok(wait(running, &commands, people))
}

/// Runs the whole start short of serving; returns notes about anything unusual.
///
/// # Errors
/// Anything that would prevent the server from starting.
fn check(settings: &Settings, origins: &Origins) -> Result<String, Failure> {
    let ready = prepare(settings, origins, Used::now(settings))?;
    let report = ready.prepared.report();
    let warning = |one: &Warning| format!("note     {one}; {}\n", one.help());
    let mut notes: String = report.certificate_warnings.iter().map(warning).collect();
    for missing in report.http3.iter().flat_map(|http3| &http3.missing) {
        notes.push_str(&format!("note     {missing}; {}\n", missing.help()));
    }
    Ok(notes)
}

/// A server ready to serve.
struct Ready {
    prepared: Prepared,
    /// The lines printed when it begins.
    lines: String,
    people: People,
}

/// Prepares everything short of serving: shared by the start and `--check-config`. `used` is what
/// the process had before.
fn prepare(settings: &Settings, origins: &Origins, used: Used) -> Result<Ready, Failure> {
    let content = content(settings)?;
    let wanted = addresses::wanted(settings, origins)?;
    let terminal = Terminal::look(settings.colour);
    let (tls, development) = tls::prepare(settings)?.unzip();
    let config = Config {
        log: log_format(settings, &terminal),
        log_file: log_file(settings),
        tls,
        content: ContentOptions {
            routing: settings.site.routing(),
            defaults: settings.site.defaults(),
            node: match &*settings.server.content.node {
                "" => host_name(),
                name => name.into(),
            },
            unknown_host: match settings.ignore_host {
                true => UnknownHost::Ignore,
                false => settings.server.content.unknown_host,
            },
            ..settings.server.content.clone()
        },
        ..settings.server.clone()
    };
    let kinds: Vec<Content> = content
        .iter()
        .map(|hosted| hosted.content.clone())
        .collect();
    let schemes = || wanted.addresses.iter();
    let situation = Situation {
        kinds: kinds.iter().map(kind).collect(),
        has_hosts: content.iter().any(has_hosts),
        has_https: schemes().any(|(_, scheme)| *scheme == Scheme::Https),
        has_tcp: schemes().any(|(address, _)| matches!(address, ListenAddress::Tcp(_))),
        is_logging: config.log != LogFormat::Off,
    };
    effects::check(settings, origins, &situation)?;
    addresses::check_once(&wanted, settings)?;
    let count = wanted.addresses.len() + usize::from(settings.tls.redirect.is_some());
    process_limits::set(settings, &Needs::of(&config, &kinds, count), used)?;
    let Listening { mut bound, note } = addresses::bind(&wanted, config.workers)?;
    if let Some(address) = settings.tls.redirect {
        let clear = addresses::Wanted {
            addresses: vec![(ListenAddress::Tcp(address), Scheme::Redirect)],
            movable: None,
        };
        bound.extend(addresses::bind(&clear, config.workers)?.bound);
    }
    let addresses: Vec<(ListenAddress, Scheme)> = bound
        .iter()
        .map(|one| (one.address.clone(), one.scheme))
        .collect();
    let (log, log_file) = (config.log, config.log_file.clone());
    let prepared = gannet_server::prepare(config, content.clone(), bound)
        .map_err(|error| start_failure(&error, settings))?;
    tell_of_missing_front_pages(&prepared.report().no_front_page);
    let interfaces = addresses::interface_addresses();
    let lines = Lines {
        contents: &content,
        addresses: &addresses,
        development: development.as_ref().and_then(Option::as_ref),
        interfaces: &interfaces,
        report: prepared.report(),
        log: (log, log_file.as_deref()),
        note: note.as_deref(),
        qr: qr_code::wanted(settings.qr, &addresses, &interfaces, &terminal),
        colour: terminal.colour,
    };
    Ok(Ready {
        lines: lines.render(),
        prepared,
        people: People::choose(settings.quiet, (log, log_file.is_some())),
    })
}

/// The machine's name.
fn host_name() -> String {
    let name = rustix::system::uname();
    name.nodename().to_string_lossy().into_owned()
}

fn kind(content: &Content) -> Kind {
    match content {
        Content::Directory(_) | Content::HostFolder(_) => Kind::Directory,
        Content::File(_) => Kind::File,
        Content::Archive(_) => Kind::Archive,
        Content::Store(_) => Kind::Store,
    }
}

/// Converts a server's error to our form.
fn start_failure(error: &StartError, settings: &Settings) -> Failure {
    if let StartError::Listen(address, error) = error {
        return addresses::explain(address, error);
    }
    let owner = match error {
        StartError::Metrics(address, error) if error.kind() == io::ErrorKind::AddrInUse => {
            addresses::owner_text(&ListenAddress::Tcp(*address))
        }
        _ => String::new(),
    };
    let failure = Failure {
        exit: Exit::Failed,
        ..Failure::usage(format!("{error}{owner}"))
    };
    let of_flags = match error {
        StartError::Resource(_) => process_limits::help(settings),
        StartError::Content(OpenError::Signature(_, error)) => Some(signature_help(error).into()),
        _ => None,
    };
    Failure {
        help: of_flags.or_else(|| error.help()),
        ..failure
    }
}

/// The content to serve; without a terminal, refuses to guess.
fn content(settings: &Settings) -> Result<Vec<Hosted>, Failure> {
    let mut contents = Vec::new();
    if settings.server.content.dummy.is_some() {
        return Ok(contents);
    }
    check_hosts_once(&settings.sites)?;
    for (hosts, path) in &settings.sites {
        contents.push(Hosted {
            hosts: hosts.clone(),
            content: look(path)?,
        });
    }
    if settings.path.is_none() && !contents.is_empty() {
        return Ok(contents);
    }
    let content = main_content(settings)?;
    match &content {
        Content::Directory(path) if settings.hosts => contents.extend(host_folders(path)?),
        _ if settings.hosts => {
            let path = settings.path.as_deref().unwrap_or(Path::new("."));
            let cause = "not a directory, which --hosts needs";
            return Err(Failure::new("serve", path.display(), cause)
                .as_usage()
                .help("omit --hosts; an archive knows its hosts"));
        }
        _ => contents.push(Hosted {
            hosts: Vec::new(),
            content,
        }),
    }
    Ok(contents)
}

/// Rejects a host that names two sites: the second would never be served.
fn check_hosts_once(sites: &[(Vec<String>, PathBuf)]) -> Result<(), Failure> {
    let mut known: BTreeMap<&str, &Path> = BTreeMap::new();
    for (hosts, path) in sites {
        for host in hosts {
            let Some(first) = known.insert(host, path) else {
                continue;
            };
            let shown = |path: &Path| printable(&path.to_string_lossy());
            let (first, second) = (shown(first), shown(path));
            return Err(Failure::usage(format!(
                "the host '{host}' is named twice: for '{first}' and for '{second}'"
            ))
            .help("leave it out of one --site; case and a dot at the end make no other host"));
        }
    }
    Ok(())
}

/// Whether a site is for some hosts only, or an archive with several. Unreadable archives are
/// rejected elsewhere.
fn has_hosts(hosted: &Hosted) -> bool {
    let of_archive = |path: &Path| {
        let file = named_file::open(path)?;
        let len = file.metadata()?.len();
        let mut first = Vec::new();
        file.take(SUPERBLOCK_LEN as u64).read_to_end(&mut first)?;
        let superblock = Superblock::parse(&first, len).ok();
        let sections = superblock.iter().flat_map(Superblock::sections);
        let has_names = sections.into_iter().any(|it| it.kind == SectionKind::Hosts);
        io::Result::Ok(superblock.is_none() || has_names)
    };
    match &hosted.content {
        _ if !hosted.hosts.is_empty() => true,
        Content::Archive(path) => of_archive(path).unwrap_or(true),
        // A release of it may have hosts.
        Content::Store(_) => true,
        Content::Directory(_) | Content::HostFolder(_) | Content::File(_) => false,
    }
}

/// The folders of a directory that are named after hosts.
fn host_folders(root: &Path) -> Result<Vec<Hosted>, Failure> {
    let fail = |error: io::Error| Failure::of_system("read", root.display(), &error);
    let HostFolders { folders, others } = HostFolders::of(root).map_err(fail)?;
    let is_hidden = |path: &Path| {
        let name = path.file_name().unwrap_or_default();
        name.as_encoded_bytes().starts_with(b".")
    };
    for (path, cause) in others {
        if path.is_dir() && !is_hidden(&path) {
            let path = path.to_string_lossy();
            ERRORS.tell(format_args!(
                "gannet: no site for the folder '{}': {cause}",
                printable(&path)
            ));
        }
    }
    if folders.is_empty() {
        let cause = "no folder has the name of a host";
        return Err(Failure::new("serve", root.display(), cause)
            .help("make one such as 'example.org', or leave --hosts out"));
    }
    let hosted = |(host, path): (Option<String>, PathBuf)| Hosted {
        hosts: host.into_iter().collect(),
        content: match gannet_store::Store::is_store(&path) {
            true => Content::Store(path),
            false => Content::HostFolder(path),
        },
    };
    Ok(folders.into_iter().map(hosted).collect())
}

/// The content for hosts without a site of their own.
fn main_content(settings: &Settings) -> Result<Content, Failure> {
    match &settings.path {
        Some(path) => look(path),
        None if io::stdin().is_terminal() || io::stdout().is_terminal() => {
            content_kind::examine(Path::new("."))
        }
        None => Err(
            Failure::usage("no path given, and not running in a terminal")
                .help("name what to serve: 'gannet PATH'; for the current directory 'gannet .'"),
        ),
    }
}

fn look(path: &Path) -> Result<Content, Failure> {
    content_kind::examine(path).map_err(|failure| {
        match mistyped_command(Some(&path.as_os_str().to_owned())) {
            Some(meant) => failure.help(format!("did you mean the command 'gannet {meant}'?")),
            None if failure.help.is_none() && !path.exists() => failure.help("check the path"),
            None => failure,
        }
    })
}

fn log_format(settings: &Settings, terminal: &Terminal) -> LogFormat {
    let pretty = LogFormat::Pretty {
        colour: terminal.colour,
    };
    match (settings.log, settings.server.log_file.is_some()) {
        (LogChoice::Off, _) => LogFormat::Off,
        (LogChoice::Json, _) => LogFormat::Json,
        (LogChoice::Combined, _) => LogFormat::Combined,
        (LogChoice::CombinedHost, _) => LogFormat::CombinedHost,
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
fn log_file(settings: &Settings) -> Option<PathBuf> {
    let path = settings.server.log_file.as_ref()?;
    let is_output = || {
        let out = fstat(io::stdout()).ok()?;
        let file = std::fs::metadata(path).ok()?;
        Some((out.st_dev, out.st_ino) == (file.dev(), file.ino()))
    };
    (is_output() != Some(true)).then(|| path.clone())
}

fn tell_of_missing_front_pages(missing: &[(PathBuf, Vec<String>)]) {
    for (path, hosts) in missing {
        // A live directory may get its front page later.
        let yet = if path.is_dir() { " yet" } else { "" };
        let path = path.to_string_lossy();
        let hosts = match hosts.join(", ") {
            names if names.is_empty() => names,
            names => format!(" (for {names})"),
        };
        ERRORS.tell(format_args!(
            "gannet: --spa has no effect{yet} on '{}'{}: there is no index.html to serve",
            printable(&path),
            printable(&hosts)
        ));
    }
}

/// The capabilities of standard output.
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

/// Where messages for people go.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum People {
    Out,
    Err,
    Nobody,
}

impl People {
    /// Standard output, unless the request log goes there for another program.
    fn choose(is_quiet: bool, (log, has_file): (LogFormat, bool)) -> Self {
        match log {
            _ if is_quiet => Self::Nobody,
            LogFormat::Combined | LogFormat::CombinedHost | LogFormat::Json if !has_file => {
                Self::Err
            }
            _ => Self::Out,
        }
    }

    fn say(self, text: impl Into<String>) {
        match self {
            Self::Out => OUTPUT.write(text.into()),
            Self::Err => ERRORS.write(text.into()),
            Self::Nobody => {}
        }
    }
}

/// Waits until the workers have ended; returns the exit status.
fn wait(running: Running, commands: &Commands, people: People) -> u8 {
    let mut stopping = None;
    let mut looks = 0;
    let mut killed_by = None;
    let has_terminal = io::stdin().is_terminal();
    while !running.is_finished() {
        let patience = if stopping.is_some() {
            LOOK_STOPPING
        } else {
            LOOK
        };
        match commands.inbox.recv_timeout(patience) {
            Ok(Command::Stop(signal)) if stopping.is_none() => {
                stopping = Some(signal);
                running.stop();
            }
            Ok(Command::Stop(signal)) => {
                killed_by = Some(signal);
                running.stop_now();
            }
            // The terminal was closed: Ctrl-C is no longer possible.
            Ok(Command::ReadAgain) if has_terminal && !io::stdin().is_terminal() => {
                stopping = Some(SIGHUP);
                running.stop();
            }
            Ok(Command::ReadAgain) => {
                running.reopen_logs();
                running.read_again();
            }
            // Requested explicitly, so printed even with --quiet; never among logged requests.
            Ok(Command::Summary) => {
                ERRORS.write(running.summary());
            }
            Ok(Command::Signals) => ERRORS.tell(
                "gannet: SIGUSR2 does nothing; SIGUSR1 prints a summary, SIGHUP reloads \
                 certificates and rules and reopens the log, SIGTERM stops",
            ),
            Ok(Command::Certificates(reload)) => match tls::reloaded(&reload) {
                Ok(text) => people.say(text),
                Err(failure) => failure.report(),
            },
            Err(RecvTimeoutError::Timeout) if stopping.is_some() => {
                looks += 1;
                if looks == LOOKS_UNTIL_TOLD {
                    people.say(
                        "stopping when running answers have finished; a second signal stops \
                        at once\n",
                    );
                }
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
        }
    }
    let is_clean = running.wait();
    match (killed_by, stopping) {
        (Some(signal), _) => 128 + u8::try_from(signal).unwrap_or(0),
        (None, Some(_)) if is_clean => 0,
        // The grace period ended, or the workers ended without a stop.
        _ => 1,
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
        let check = |quiet: bool, log: LogFormat, has_file: bool, expect: People| {
            assert_eq!(People::choose(quiet, (log, has_file)), expect);
        };
        check(false, LogFormat::Off, false, People::Out);
        check(
            false,
            LogFormat::Pretty { colour: true },
            false,
            People::Out,
        );
        check(false, LogFormat::Json, false, People::Err);
        check(false, LogFormat::Combined, false, People::Err);
        check(false, LogFormat::Combined, true, People::Out);
        check(true, LogFormat::Json, false, People::Nobody);
    }
}
