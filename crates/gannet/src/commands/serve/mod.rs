//! `gannet` and `gannet serve`: prepare (inspect the path, bind, open), serve, wait for signals.

pub mod acme;
pub mod addresses;
mod binding;
mod companions;
mod configured;
mod confinement;
mod content;
pub mod content_kind;
mod effects;
mod followed;
mod notify;
pub(crate) mod outlook;
pub(crate) mod output;
mod port_owner;
mod process_limits;
mod qr_code;
mod received;
mod signals;
mod sockets;
mod stand_ins;
pub mod start_lines;
mod state_folder;
pub mod tls;
mod upgrade;
mod waiting;

use std::io;
use std::path::PathBuf;

use clap::ArgMatches;
use gannet_io::starter::Starter;
use gannet_server::config::receipts::Receipts;
use gannet_server::config::supply::Supply;
use gannet_server::config::{
    Config, Content, ContentOptions, ListenAddress, LogFormat, Scheme, TlsConfig,
};
use gannet_server::notices::{self, ERRORS};
use gannet_server::tls::certificates::Warning;
use gannet_server::tls::on_demand::OnDemand;
use gannet_server::{Inheritance, Network, OpenError, Prepared, StartError};
use rustix::process::{Pid, getppid};

use super::failure::signature_help;
use super::{print, resolve_with_file};
use crate::command_line::layers::Origins;
use crate::command_line::serve_flags::SERVE_FLAGS;
use crate::command_line::settings::Settings;
use crate::commands::serve::addresses::{ListenPlan, Listening};
use crate::commands::serve::companions::Companions;
use crate::commands::serve::configured::Configured;
pub(crate) use crate::commands::serve::confinement::FOLDER_OF_ITS_OWN;
use crate::commands::serve::content::{content, have_hosts, kinds};
use crate::commands::serve::effects::Situation;
use crate::commands::serve::followed::{Followed, Tie};
use crate::commands::serve::notify::Notify;
use crate::commands::serve::output::{People, Terminal, log_file, log_format, stopped_by};
pub(crate) use crate::commands::serve::process_limits::Budget;
use crate::commands::serve::process_limits::{Needs, UsedAtStart};
use crate::commands::serve::signals::SignalCommand;
use crate::commands::serve::sockets::{Sockets, Uses};
use crate::commands::serve::stand_ins::stand_ins;
use crate::commands::serve::start_lines::{Lines, NAME_BY_NAME, TRUST_PROXIES};
use crate::commands::serve::upgrade::{Predecessor, Upgrades};
use crate::commands::serve::waiting::{Reloads, Waiting};
use crate::messages::{Exit, Failure, cause, printable};

/// Serves, or reports what is wrong with the configuration.
///
/// # Errors
/// Anything that prevents the server from starting.
pub fn run(matches: &ArgMatches) -> Result<u8, Failure> {
    let (settings, origins, file) = resolve_with_file(SERVE_FLAGS, "", matches)?;
    if matches.get_flag("check-config") {
        let notes = check(&settings, &origins)?;
        return print(&format!("{notes}the configuration is valid\n"));
    }
    let configured = file.source.map(Configured::of);
    serve(&settings, &origins, configured)
}

/// Serves until a signal stops it; returns the exit status.
fn serve(
    settings: &Settings,
    origins: &Origins,
    configured: Option<Configured>,
) -> Result<u8, Failure> {
    let mut before = Before::find()?;
    let used = UsedAtStart::now(settings);
    let notify = Notify::connect();
    // Before any other thread starts, and before rights are given up: what they are taken from hands
    // that on to the programs that it executes.
    let upgrades = Upgrades::new(before.starter(), before.sockets.of_manager());
    let followed = Followed::of(settings)?;
    let is_successor = before.predecessor.is_some();
    let mut companions = beside(settings, followed.as_ref(), is_successor, &mut before)?;
    confinement::begin(settings.server.sandbox)?;
    let commands = match signals::listen(settings.server.sandbox, settings.user.is_some()) {
        Ok(commands) => commands,
        Err(error) => {
            // Too low a limit is the likely cause: if so, that is the error to report.
            prepare(settings, origins, used, &mut before)?;
            return Err(Failure::of_system("listen for", "signals", &error));
        }
    };
    // Before it is looked at: it may be replaced at any time.
    let part = followed.as_ref().and_then(Followed::part);
    let has_release = followed.as_ref().is_none_or(Followed::has_release);
    if has_release && before.supply.is_some() && !is_successor {
        // Pages for errors that are not here are requested when the release is opened.
        companions.begin_first();
    }
    if let Some(followed) = followed.filter(|_| !has_release) {
        refuse_at_once(settings, origins)?;
        if is_successor {
            followed.may_succeed()?;
        }
        companions.begin_first();
        if !settings.quiet {
            ERRORS.write(followed.waiting_line());
        }
        if let Some(signal) = followed.await_first(part, &commands, &mut companions)? {
            return Ok(128 + u8::try_from(signal).unwrap_or(0));
        }
    }
    let Ready {
        prepared,
        lines,
        people,
        taken,
    } = prepare(settings, origins, used, &mut before)?;
    let Before { predecessor, .. } = before;
    let sender = commands.sender.clone();
    let running = prepared
        .serve_once(|running| {
            let watched = running.watch_certificates(move |reload| {
                // The receiver is gone once the server has ended.
                let _ = sender.send(SignalCommand::Certificates(reload));
            });
            watched.map_err(StartError::Resource)?;
            let begun = predecessor.map_or(Ok(()), |it| it.ask_to_begin(&taken));
            begun.map_err(StartError::NotBegun)
        })
        .map_err(|error| start_failure(&error, settings))?;
    commands.serve();
    // The follower of a server whose place this one takes has ended by now.
    companions.begin();
    people.say(lines);
    notify.ready("serving");
    // These lines are written before requests are logged, unless their reader stalls.
    notices::settle();
    let waiting = Waiting {
        running,
        people,
        notify,
        upgrades,
        companions,
        configured,
        reloads: Reloads::default(),
        grace_ms: settings.server.limits.grace_ms,
    };
    Ok(waiting.wait(&commands))
}

/// Makes ready what runs beside the server, and notes how the server reaches it.
fn beside(
    settings: &Settings,
    followed: Option<&Followed>,
    is_successor: bool,
    before: &mut Before,
) -> Result<Companions, Failure> {
    let user = confinement::run_as(settings.user.as_deref())?.map(|it| it.user);
    let follower = followed
        .map(|it| it.companion(settings, is_successor))
        .transpose()?;
    let (follower, tie) = follower.unzip();
    followed.map_or(Ok(()), |it| it.make_room(user.as_ref()))?;
    let (orderer, on_demand) = acme::orderer(settings, user.as_ref())?.unzip();
    before.on_demand = on_demand.flatten();
    match tie {
        Some(Tie::Supply(supply)) => before.supply = Some(supply),
        Some(Tie::Receipts(receipts)) => before.receipts = Some(receipts),
        Some(Tie::None) | None => {}
    }
    Companions::fork(follower.into_iter().chain(orderer), user.as_ref())
}

/// Runs the whole start short of serving; returns notes about anything unusual.
///
/// # Errors
/// Anything that would prevent the server from starting.
fn check(settings: &Settings, origins: &Origins) -> Result<String, Failure> {
    let run_as = confinement::run_as(settings.user.as_deref())?;
    acme::arguments(settings, run_as.as_ref().map(|it| &it.user))?;
    let followed = Followed::of(settings)?;
    followed.as_ref().map_or(Ok(()), Followed::check_address)?;
    let followed = followed.filter(|it| !it.has_release());
    let without = followed.as_ref().map(|_| without_content(settings));
    if followed.is_some() {
        refuse_at_once(settings, origins)?;
    }
    let nothing = Origins::default();
    let (settings, origins) = match &without {
        Some(without) => (without, &nothing),
        None => (settings, origins),
    };
    let (sockets, in_use) = stand_ins(settings, origins)?;
    let mut before = Before {
        sockets,
        ..Before::default()
    };
    let ready = prepare(settings, origins, UsedAtStart::now(settings), &mut before)?;
    let report = ready.prepared.report();
    let warning = |one: &Warning| format!("note     {one}; {}\n", one.help());
    let mut notes: String = report.certificate_warnings.iter().map(warning).collect();
    notes.push_str(&in_use);
    if let Some(asked) = &report.asked_of_clients {
        notes.push_str(&format!("note     {}\n", printable(&asked.to_string())));
    }
    if let Some(meaning) = trusts_every_peer(settings) {
        notes.push_str(&format!("note     {meaning}: {TRUST_PROXIES}\n"));
    }
    if let Some(why) = report.without_lookups {
        let help = why.help.as_deref().unwrap_or_default();
        notes.push_str(&format!("note     {NAME_BY_NAME}: {why}; {help}\n"));
    }
    for reached in confinement::within_reach(settings, &report.contents) {
        notes.push_str(&format!(
            "note     {reached}: {}\n",
            confinement::FOLDER_OF_ITS_OWN
        ));
    }
    notes.extend(followed.map(|it| it.note()));
    for missing in report.http3.iter().flat_map(|http3| &http3.missing) {
        notes.push_str(&format!("note     {missing}; {}\n", missing.help()));
    }
    Ok(notes)
}

/// What it means that a network of `--trust` has all addresses of a family, if one has.
pub(crate) fn trusts_every_peer(settings: &Settings) -> Option<&'static str> {
    let clients = &settings.server.clients;
    let is_so = clients.trust.iter().any(Network::is_everybody);
    is_so.then_some(match clients.trust_host {
        true => "every peer is trusted, and can name any client, scheme and host",
        false => "every peer is trusted, and can name any client and scheme",
    })
}

/// Settings of a server of constant answers with everything else as it is, to check that without a
/// content, which is yet to be copied. Flags that need one count as not given.
fn without_content(settings: &Settings) -> Settings {
    let mut settings = settings.clone();
    settings.server.content.dummy = Some("");
    settings
}

/// Tells what is wrong with the settings before the first release is waited for.
fn refuse_at_once(settings: &Settings, origins: &Origins) -> Result<(), Failure> {
    let mut refusals = outlook::Outlook::new(settings, origins).refusals;
    match refusals.is_empty() {
        true => Ok(()),
        false => Err(refusals.swap_remove(0)),
    }
}

/// Whether a supervisor watches this very process, and cannot watch another one instead.
fn is_supervised(own: u32) -> bool {
    if std::env::var_os("NOTIFY_SOCKET").is_some() {
        return false;
    }
    let is_own = |pid: String| pid == own.to_string();
    let is_init = |parent: Pid| parent.as_raw_nonzero().get() == 1;
    std::env::var("SYSTEMD_EXEC_PID").is_ok_and(is_own) || getppid().is_some_and(is_init)
}

/// What another process has left for this one, or takes from it.
#[derive(Default)]
struct Before {
    sockets: Sockets,
    predecessor: Option<Predecessor>,
    inheritance: Inheritance,
    /// Names for which certificates are to be ordered.
    on_demand: Option<OnDemand>,
    /// Who fetches parts of releases.
    supply: Option<Supply>,
    /// What publishers have brought.
    receipts: Option<Receipts>,
}

impl Before {
    /// Looks for sockets of a predecessor, or of a service manager.
    fn find() -> Result<Self, Failure> {
        Ok(match Predecessor::find()? {
            Some((predecessor, sockets, inheritance)) => Self {
                sockets,
                predecessor: Some(predecessor),
                inheritance,
                ..Self::default()
            },
            None => Self {
                sockets: Sockets::of_service_manager()?,
                ..Self::default()
            },
        })
    }

    /// The process that starts the program again for an upgrade, or the reason why there is none.
    fn starter(&self) -> Result<Starter, String> {
        let own = std::process::id();
        if own == 1 {
            let why = "this is the first process of a container, which would end with it: start \
                       another container";
            return Err(why.into());
        }
        if self.predecessor.is_none() && is_supervised(own) {
            let why = "the supervisor of this server takes it for ended when this process ends: \
                       under systemd use Type=notify, elsewhere restart the service";
            return Err(why.into());
        }
        // The watchdog of this process is the new server's as well; that of another one is not.
        let is_own = |pid: String| pid == own.to_string();
        let without: &[&str] = match std::env::var("WATCHDOG_PID").is_ok_and(is_own) {
            true => &["WATCHDOG_PID"],
            false => &[],
        };
        Starter::fork(without).map_err(|error| format!("no starter: {}", cause(&error)))
    }
}

/// A server ready to serve.
struct Ready {
    prepared: Prepared,
    /// Which of the sockets of [`Before`] it uses.
    taken: Vec<bool>,
    /// The lines printed when it begins.
    lines: String,
    people: People,
}

/// The server's configuration, but for the memory of its caches.
fn config(
    settings: &Settings,
    (sockets, before): (&Sockets, &mut Before),
    terminal: &Terminal,
    tls: Option<TlsConfig>,
) -> Result<Config, Failure> {
    Ok(Config {
        log: log_format(settings, terminal),
        log_file: log_file(settings),
        tls,
        hsts: settings.tls.hsts,
        run_as: confinement::run_as(settings.user.as_deref())?,
        metrics: sockets.metrics_address(settings.server.metrics),
        receipts: before.receipts.take(),
        content: ContentOptions {
            routing: settings.site.routing(),
            defaults: settings.site.defaults(),
            node: node(settings),
            refuses_http1: !settings.server.http.http1,
            supply: before.supply.take(),
            ..settings.server.content.clone()
        },
        ..settings.server.clone()
    })
}

fn situation(
    contents: &[Content],
    plan: &ListenPlan,
    has_hosts: bool,
    is_logging: bool,
) -> Situation {
    let listening = || plan.addresses.iter();
    Situation {
        kinds: contents.iter().flat_map(kinds).copied().collect(),
        has_hosts,
        has_https: listening().any(|it| it.scheme == Scheme::Https),
        has_tcp: listening().any(|it| matches!(it.address, ListenAddress::Tcp(_))),
        has_unix: listening().any(|it| matches!(it.address, ListenAddress::Unix(_))),
        is_logging,
    }
}

fn check_password_flags(settings: &Settings) -> Result<(), Failure> {
    let passwords = &settings.server.passwords;
    if passwords.file.is_none() && !passwords.paths.is_empty() {
        let what = "--password-path has no effect without --password-file";
        return Err(
            Failure::usage(what.to_owned()).help("add --password-file FILE, or leave it out")
        );
    }
    Ok(())
}

/// Prepares everything short of serving: shared by the start and `--check-config`. `used` is what
/// the process had before.
fn prepare(
    settings: &Settings,
    origins: &Origins,
    used: UsedAtStart,
    before: &mut Before,
) -> Result<Ready, Failure> {
    let content = content(settings)?;
    let sockets = std::mem::take(&mut before.sockets);
    let plan = addresses::plan(settings, origins, &sockets)?;
    let terminal = Terminal::look(settings.colour);
    let (tls, development) = tls::prepare(settings, before.on_demand.take())?.unzip();
    let mut config = config(settings, (&sockets, before), &terminal, tls)?;
    let contents: Vec<Content> = content
        .iter()
        .map(|hosted| hosted.content.clone())
        .collect();
    let has_hosts = have_hosts(settings, &content);
    let situation = situation(&contents, &plan, has_hosts, config.log != LogFormat::Off);
    effects::check(settings, origins, &situation)?;
    check_password_flags(settings)?;
    addresses::check_once(&plan, settings)?;
    let count = plan.addresses.len() + settings.tls.redirects.len();
    let needs = Needs::of(&config, &contents, count);
    process_limits::set(settings, &needs, used)?;
    let budget = Budget::of(settings, &needs, used);
    budget.apply(&mut config.content);
    let Listening { mut bound, note } = addresses::bind(&plan, config.workers, &sockets)?;
    let clear = addresses::redirects(settings);
    bound.extend(addresses::bind(&clear, config.workers, &sockets)?.bound);
    let for_proxies = bound.iter().filter(|one| one.is_proxied);
    let for_proxies: Vec<_> = for_proxies.map(|one| one.address.clone()).collect();
    let addresses: Vec<(ListenAddress, Scheme)> = bound
        .iter()
        .map(|one| (one.address.clone(), one.scheme))
        .collect();
    let mut inheritance = std::mem::take(&mut before.inheritance);
    inheritance.metrics = sockets
        .metrics(settings.server.metrics)
        .map_err(|error| Failure::of_system("listen for", "metrics", &error))?;
    let (log, log_file) = (config.log.clone(), config.log_file.clone());
    let prepared = gannet_server::prepare(config, content, bound, inheritance)
        .map_err(|error| start_failure(&error, settings))?;
    let report = prepared.report();
    let taken = sockets.taken(&Uses {
        addresses: &addresses,
        http3: report.http3.as_ref().map_or(&[], |it| &it.addresses),
        has_metrics: report.metrics.is_some(),
        metrics: settings.server.metrics,
    });
    sockets.refuse_unused(&taken)?;
    warn_of_missing_front_pages(&report.no_front_page);
    let interfaces = addresses::interface_addresses();
    let within_reach = confinement::within_reach(settings, &report.contents);
    let lines = Lines {
        addresses: &addresses,
        for_proxies: &for_proxies,
        development: development.as_ref().and_then(Option::as_ref),
        hosts: &settings.tls.acme.hosts,
        interfaces: &interfaces,
        report,
        log: (&log, log_file.as_deref()),
        note: note.as_deref(),
        has_trust: settings.server.clients.trusts_anyone(),
        trusts_every_peer: trusts_every_peer(settings),
        within_reach: &within_reach,
        hardly_codes: budget.hardly_codes() || report.lacks_room_to_code,
        stopped_by: stopped_by(),
        qr: qr_code::wanted(settings, &addresses, &interfaces, &terminal),
        colour: terminal.colour,
    };
    Ok(Ready {
        taken,
        lines: lines.render(),
        prepared,
        people: People::choose(settings.quiet, (&log, log_file.is_some())),
    })
}

/// The name of the server among those that follow a store: by default the machine's.
fn node(settings: &Settings) -> String {
    match &*settings.server.content.node {
        "" => {
            let machine = rustix::system::uname();
            machine.nodename().to_string_lossy().into_owned()
        }
        name => name.to_owned(),
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

fn warn_of_missing_front_pages(missing: &[(PathBuf, Vec<String>)]) {
    for (path, hosts) in missing {
        // A live directory may get its front page later.
        let yet = if path.is_dir() { " yet" } else { "" };
        let path = path.to_string_lossy();
        let hosts = match hosts.join(", ") {
            names if names.is_empty() => names,
            names => format!(" (for {names})"),
        };
        ERRORS.log(format_args!(
            "gannet: --spa has no effect{yet} on '{}'{}: there is no index.html to serve",
            printable(&path),
            printable(&hosts)
        ));
    }
}
