//! `gannet dev`: serves a folder to its author, and reloads what browsers show of it.
//!
//! ```text
//!  browser ──▶ front ──▶ server (a Unix socket; the usual engine, replaced after each change)
//!     ▲          │
//!     └─ events ─┴─ state ◀── session ◀── watcher, builds, signals
//! ```
//!
//! The engine knows nothing of this. `front` takes conditions and codings out of requests, puts the
//! script `dev.js` into pages and keeps browsers from storing anything. Script, events and messages
//! are for the author: [`hosts`] says under which names.

mod build;
mod front;
mod hosts;
mod limits;
mod page;
mod policy;
mod served;
mod state;
mod upstream;
mod watch;

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use gannet_server::config::{ContentOptions, ListenAddress, Scheme};
use gannet_server::notices::{self, ERRORS, OUTPUT};
use gannet_server::{OpenError, StartError};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::command_line::arguments;
use crate::commands::serve::addresses::{self, PORT, urls};
use crate::commands::serve::output::stopped_by;
use crate::messages::{Failure, printable};
use crate::quantities::counted;

use build::{Builds, Built};
use front::Front;
use limits::{QUIET, QUIET_MAX, ROUNDS_MAX};
use served::CurrentServer;
use state::{Change, Problem, State};
use watch::Watcher;

/// How many ports are tried if none is requested.
const PORTS_TRIED: u16 = 20;

/// What to serve, and how.
pub(crate) struct Options {
    /// The folder. It need not exist if a build makes it.
    pub(crate) folder: PathBuf,
    /// How it is served.
    pub(crate) content: ContentOptions,
    /// A command for the shell that makes the folder from its sources.
    pub(crate) build: Option<String>,
    /// The folders with these sources; without one, the current directory.
    pub(crate) watch: Vec<PathBuf>,
    /// The port, or the first free one from the default on.
    pub(crate) port: Option<u16>,
    /// Whether others on the network can connect, and get everything that the author gets.
    pub(crate) is_exposed: bool,
    /// Whether to open a browser.
    pub(crate) opens: bool,
}

/// What the session waits for.
enum Event {
    /// Something changed in a folder.
    Woken,
    /// A build ended.
    Built(Built),
    /// A signal asks for the end.
    Stop,
}

/// Serves until a signal ends it; returns the exit status.
///
/// # Errors
/// The folder cannot be served, or no port is free.
pub(crate) fn run(options: &Options) -> Result<u8, Failure> {
    let (events, inbox) = mpsc::channel();
    let builds = options.build.clone().map(Builds::new);
    stop_on_signals(events.clone(), builds.clone())?;
    let (listener, note) = listen(options)?;
    // Before the first build: what changes meanwhile is built, too.
    let mut watcher = watcher_of_sources(options, events.clone())?;
    let mut built = None;
    if let Some(builds) = &builds {
        match first_build(builds, &events, &inbox) {
            Some(Built { problem, .. }) => built = problem,
            None => return Ok(0),
        }
    }
    let folder = folder(options, built.as_ref())?;
    let server = CurrentServer::new(&folder, options.content.clone());
    let rules = match server.renew() {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(printed(of_start(&error))),
        Err(error) => {
            return Err(Failure {
                help: error.help(),
                ..Failure::new("serve", folder.display(), error)
            });
        }
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let front = Arc::new(Front {
        server,
        state: Arc::new(State::new(now.map_or(0, |it| it.as_nanos() as u64))),
        own_name: options.is_exposed.then(machine_name),
        count: AtomicUsize::new(0),
    });
    let mut session = Session {
        served: watcher.add(&folder, Vec::new()),
        watcher,
        front: Arc::clone(&front),
        builds,
        events,
        problems: [built, rules],
        is_building: false,
        missed: None,
        rounds: 0,
    };
    session.show_problems();
    let address = listener.local_addr();
    let address = address.map_err(|error| Failure::of_system("listen on", "a port", &error))?;
    OUTPUT.write(start_lines(options, &folder, address, note.as_deref()));
    notices::settle();
    thread::Builder::new()
        .name("gannet-dev-accept".into())
        .spawn(move || front::accept(&listener, &front))
        .map_err(|error| Failure::of_system("start", "a thread", &error))?;
    if options.opens {
        open(&url_of(address));
    }
    session.run(&inbox);
    Ok(0)
}

/// Runs the first build to its end; `None` if a signal ends it.
fn first_build(builds: &Builds, events: &Sender<Event>, inbox: &Receiver<Event>) -> Option<Built> {
    OUTPUT.write("building first; what it makes is served when that ends\n".into());
    begin(builds, events);
    loop {
        match inbox.recv() {
            Ok(Event::Built(built)) => {
                say_of_build(&built);
                return Some(built);
            }
            Ok(Event::Woken) => {}
            Ok(Event::Stop) | Err(_) => {
                builds.stop();
                return None;
            }
        }
    }
}

fn begin(builds: &Builds, events: &Sender<Event>) {
    let events = events.clone();
    builds.begin(move |built| {
        // The receiver is gone at the end.
        let _ = events.send(Event::Built(built));
    });
}

fn say_of_build(built: &Built) {
    let seconds = built.took.as_secs_f64();
    match &built.problem {
        None => OUTPUT.write(format!("built in {seconds:.1} s\n")),
        // Its output has been shown.
        Some(problem) => ERRORS.log(format_args!("gannet: {}", problem.title)),
    }
}

/// The state of a run.
struct Session {
    front: Arc<Front>,
    watcher: Watcher,
    /// The number of the folder that is served; the others have sources.
    served: usize,
    builds: Option<Builds>,
    events: Sender<Event>,
    /// Of the build, and of the rules.
    problems: [Option<Problem>; 2],
    is_building: bool,
    /// A source that changed while a build was running.
    missed: Option<PathBuf>,
    /// Builds in a row because of such changes.
    rounds: u32,
}

impl Session {
    fn run(&mut self, inbox: &Receiver<Event>) {
        if self.builds.is_some() {
            self.look();
        }
        loop {
            let event = match self.watcher.every() {
                Some(every) => inbox.recv_timeout(every),
                None => inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match event {
                Ok(Event::Stop) | Err(RecvTimeoutError::Disconnected) => break,
                Ok(Event::Built(built)) => self.built(built),
                Ok(Event::Woken) => {
                    if let Some(other) = settle(inbox) {
                        match other {
                            Event::Built(built) => self.built(built),
                            _ => break,
                        }
                    }
                    self.look();
                }
                Err(RecvTimeoutError::Timeout) => self.look(),
            }
        }
        if let Some(builds) = &self.builds {
            builds.stop();
        }
        self.front.state.end();
        self.front.server.stop();
    }

    /// Looks at what changed.
    fn look(&mut self) {
        match self.changed_source() {
            Some(_) if !self.is_building => {
                self.rounds = 0;
                self.build();
            }
            Some(path) => {
                if self.missed.is_none() {
                    let shown = printable(&path.to_string_lossy()).to_string();
                    OUTPUT.write(format!(
                        "changed  {shown}; built again when the build that is running ends\n"
                    ));
                }
                self.missed = Some(path);
            }
            None => {}
        }
        if !self.is_building {
            self.publish();
        }
    }

    /// A source that changed.
    fn changed_source(&mut self) -> Option<PathBuf> {
        let served = self.served;
        let sources = self.watcher.numbers().filter(|it| *it != served);
        let changed = sources.flat_map(|number| self.watcher.look(number));
        changed.last()
    }

    fn build(&mut self) {
        if let Some(builds) = &self.builds {
            self.is_building = true;
            begin(builds, &self.events);
        }
    }

    fn built(&mut self, built: Built) {
        self.is_building = false;
        say_of_build(&built);
        self.problems[0] = built.problem;
        // What the build did last may not have woken yet.
        let source = self.changed_source();
        self.publish();
        self.show_problems();
        let Some(path) = source.or(self.missed.take()) else {
            return;
        };
        self.missed = None;
        if self.rounds < ROUNDS_MAX {
            self.rounds += 1;
            return self.build();
        }
        ERRORS.log(format_args!(
            "gannet: not built again, although '{}' changed during the build: the build may have \
             changed it\nhelp: name the folders with the sources with --watch DIR; another change \
             builds again",
            printable(&path.to_string_lossy())
        ));
    }

    /// Serves what is in the folder now, and tells windows about it. While a build runs, it does not
    /// look at the folder: what it removes and writes again as it was has not changed.
    fn publish(&mut self) {
        let changed = self.watcher.look(self.served);
        let Some(first) = changed.first() else {
            return;
        };
        let rules = match self.front.server.renew() {
            Ok(Ok(())) => None,
            Ok(Err(error)) | Err(error) => Some(of_start(&error)),
        };
        match &rules {
            Some(problem) if self.problems[1].as_ref() != Some(problem) => {
                drop(printed(problem.clone()));
            }
            None if self.problems[1].is_some() => {
                OUTPUT.write("fixed: the site is served as it is\n".into())
            }
            _ => {}
        }
        self.problems[1] = rules;
        self.show_problems();
        let change = match changed.iter().all(|path| is_of_style(path)) {
            true => Change::Styles,
            false => Change::Page,
        };
        // Before they hear of it, and close their connections to load the page again.
        let windows = counted(self.front.state.windows() as u64, "window");
        self.front.state.change(change);
        let shown = printable(&first.to_string_lossy()).to_string();
        let more = match changed.len() - 1 {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let what = match change {
            Change::Styles => "styles reloaded",
            Change::Page => "reloaded",
        };
        OUTPUT.write(format!("changed  {shown}{more}; {what} in {windows}\n"));
    }

    fn show_problems(&self) {
        let problems = self.problems.iter().flatten().cloned();
        self.front.state.set_problems(problems.collect());
    }
}

/// Whether it is a style sheet, its source map, or a compressed copy of one.
fn is_of_style(path: &Path) -> bool {
    let mut name = path.file_name().unwrap_or_default().as_encoded_bytes();
    for suffix in [".gz", ".br", ".zst", ".map"] {
        name = name.strip_suffix(suffix.as_bytes()).unwrap_or(name);
    }
    name.ends_with(b".css")
}

/// Waits until nothing has changed for a moment. Returns what else happened.
fn settle(inbox: &Receiver<Event>) -> Option<Event> {
    let until = Instant::now() + QUIET_MAX;
    while Instant::now() < until {
        match inbox.recv_timeout(QUIET) {
            Ok(Event::Woken) => {}
            Ok(other) => return Some(other),
            Err(_) => return None,
        }
    }
    None
}

/// What keeps the rules of the folder from being used, or the folder from being served.
fn of_start(error: &StartError) -> Problem {
    let text = match error.help() {
        Some(help) => format!("{error}\nhelp: {help}"),
        None => error.to_string(),
    };
    let title = match error {
        StartError::Content(OpenError::Rules(..)) => "The rules of the site cannot be used",
        _ => "The site cannot be served as it is now",
    };
    Problem {
        title: title.into(),
        text,
    }
}

/// Prints a problem.
fn printed(problem: Problem) -> Problem {
    ERRORS.log(format_args!("gannet: {}", problem.text));
    problem
}

/// The folder to serve, by its full path. A link in its place is followed at each change.
fn folder(options: &Options, built: Option<&Problem>) -> Result<PathBuf, Failure> {
    let path = &options.folder;
    match path.canonicalize() {
        Ok(full) if full.is_dir() => {
            let absolute = std::path::absolute(path).unwrap_or_else(|_| full.clone());
            let named = absolute.parent().zip(absolute.file_name());
            let named = named.and_then(|(it, name)| Some(it.canonicalize().ok()?.join(name)));
            Ok(named.unwrap_or(full))
        }
        Ok(_) => Err(Failure::new("serve", path.display(), "not a directory")
            .help("name the folder to work at: 'gannet dev DIR'")),
        Err(_) if built.is_some() => Err(Failure::new(
            "serve",
            path.display(),
            "the build failed, and did not make it",
        )
        .help("fix the build: its output is above")),
        Err(error) => {
            let failure = Failure::of_system("serve", path.display(), &error);
            let port = path.to_str().and_then(arguments::port);
            Err(match port {
                Some(help) => failure.help(help),
                None => failure,
            })
        }
    }
}

/// Watches the sources, of which there are some if there is a build.
fn watcher_of_sources(options: &Options, events: Sender<Event>) -> Result<Watcher, Failure> {
    let mut watcher = Watcher::new(move || {
        // The receiver is gone at the end.
        let _ = events.send(Event::Woken);
    });
    if options.build.is_none() {
        return Ok(watcher);
    }
    let folder = std::path::absolute(&options.folder).unwrap_or_else(|_| options.folder.clone());
    let here = [PathBuf::from(".")];
    let sources = match options.watch.as_slice() {
        [] => &here,
        named => named,
    };
    for source in sources {
        let full = source
            .canonicalize()
            .map_err(|error| Failure::of_system("watch", source.display(), &error))?;
        if folder.canonicalize().is_ok_and(|it| full.starts_with(it)) {
            let cause = "it is served: what the build writes there would start the build again";
            return Err(Failure::new("watch", source.display(), cause)
                .as_usage()
                .help("name the folders with the sources with --watch DIR"));
        }
        watcher.add(&full, vec![folder.clone()]);
    }
    Ok(watcher)
}

/// Binds the port; the note says if it is another one than usual.
fn listen(options: &Options) -> Result<(TcpListener, Option<String>), Failure> {
    let bind = |port| match options.is_exposed {
        false => TcpListener::bind((Ipv4Addr::LOCALHOST, port)),
        // A kernel without IPv6 has the other.
        true => TcpListener::bind((Ipv6Addr::UNSPECIFIED, port))
            .or_else(|_| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))),
    };
    let first = options.port.unwrap_or(PORT);
    let tried = if options.port.is_some() {
        1
    } else {
        PORTS_TRIED
    };
    let mut port = first;
    loop {
        match bind(port) {
            Ok(listener) => {
                let note = (port != first).then(|| format!("port {first} is busy; using {port}"));
                return Ok((listener, note));
            }
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && port - first + 1 < tried => {
                port += 1;
            }
            Err(error) => {
                let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
                return Err(addresses::explain(&ListenAddress::Tcp(address), &error));
            }
        }
    }
}

/// The second signal ends the process at once, and the build with it.
fn stop_on_signals(events: Sender<Event>, builds: Option<Builds>) -> Result<(), Failure> {
    let refuse = |error: io::Error| Failure::of_system("listen for", "signals", &error);
    let mut signals = Signals::new([SIGINT, SIGQUIT, SIGTERM, SIGHUP]).map_err(refuse)?;
    let listen = move || {
        for (count, signal) in signals.forever().enumerate() {
            if count > 0 || events.send(Event::Stop).is_err() {
                if let Some(builds) = &builds {
                    builds.kill();
                }
                std::process::exit(128 + signal);
            }
        }
    };
    let thread = thread::Builder::new().name("gannet-signals".into());
    thread.spawn(listen).map_err(refuse)?;
    Ok(())
}

/// The address for a browser on this machine.
fn url_of(address: SocketAddr) -> String {
    let local = SocketAddr::from((Ipv4Addr::LOCALHOST, address.port()));
    let urls = urls(&ListenAddress::Tcp(local), Scheme::Http, &[]);
    urls.into_iter().map(|it| it.0).next().unwrap_or_default()
}

fn start_lines(
    options: &Options,
    folder: &Path,
    address: SocketAddr,
    note: Option<&str>,
) -> String {
    let shown = printable(&folder.to_string_lossy()).to_string();
    let mut text = format!(
        "gannet {}\nserving  {shown} (for development: pages reload when it changes)\n",
        env!("CARGO_PKG_VERSION")
    );
    let mut label = "at";
    let local = SocketAddr::from((Ipv4Addr::LOCALHOST, address.port()));
    let mut all = urls(&ListenAddress::Tcp(local), Scheme::Http, &[]);
    if options.is_exposed {
        let interfaces = addresses::interface_addresses();
        for any in [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()] {
            let any = ListenAddress::Tcp(SocketAddr::new(any, address.port()));
            let more = urls(&any, Scheme::Http, &interfaces).into_iter().skip(1);
            all.extend(more);
        }
    }
    for (url, _) in all {
        text.push_str(&format!("{label:9}{url}\n"));
        label = "";
    }
    if let Some(command) = &options.build {
        text.push_str(&format!("build    {}\n", printable(command)));
    }
    if let Some(note) = note {
        text.push_str(&format!("note     {note}\n"));
    }
    if options.is_exposed {
        text.push_str(
            "note     others on the network get everything, also messages of builds and rules\n",
        );
    }
    text.push_str(&format!("{} to stop\n", stopped_by()));
    text
}

/// The name of the machine, by which others reach it.
fn machine_name() -> String {
    let name = rustix::system::uname();
    name.nodename().to_string_lossy().into_owned()
}

/// Opens a browser, if there is a program for that.
fn open(url: &str) {
    let wish = std::env::var("BROWSER").unwrap_or_default();
    let first = wish.split(':').next().unwrap_or_default();
    let mut words: Vec<&str> = first.split_whitespace().collect();
    if words.is_empty() {
        words.push("xdg-open");
    }
    let mut command = Command::new(words[0]);
    match words[1..].contains(&"%s") {
        true => command.args(
            words[1..]
                .iter()
                .map(|it| if *it == "%s" { url } else { it }),
        ),
        false => command.args(&words[1..]).arg(url),
    };
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    match command.spawn() {
        Ok(mut child) => drop(thread::spawn(move || child.wait())),
        Err(_) => ERRORS.log(format_args!(
            "gannet: no browser is opened: '{}' cannot be run; the address is {url}",
            printable(words[0])
        )),
    }
}
