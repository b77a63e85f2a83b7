//! Startup, from a configuration to running workers, and the threads that keep their content
//! current.

pub(crate) mod archive;
pub(crate) mod bound;
mod contents;
pub(crate) mod estate;
mod follow;
pub(crate) mod open;
mod origins;
mod partial;
mod password_file;
pub(crate) mod published;
pub(crate) mod quic;
pub(crate) mod releases;
pub(crate) mod rights;
pub(crate) mod running;
pub(crate) mod sandbox;
pub(crate) mod sites;
pub(crate) mod start_error;
mod workers;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::Duration;

use gannet_io::cause::cause;
use gannet_io::sandbox::Domain;
use gannet_io::{lookups, probe};

use self::bound::{Bound, worker_count};
use self::contents::Contents;
use self::estate::{Estate, Inheritance};
use self::origins::Origins;
use self::published::Published;
use self::quic::{Datagrams, Http3Report};
use self::releases::Surroundings;
use self::rights::Again;
use self::running::{Certificates, Running, StartReport};
use self::sandbox::Sandbox;
use self::sites::at_start::Means;
use self::start_error::StartError;
use self::workers::{Descriptors, Go, Plan, ReadyWorker};
use crate::bounds::limits::APPLIED_MS;
use crate::clients::Clients;
use crate::coder::{Coder, CoderThreads};
use crate::config::receipts::Receipts;
use crate::config::supply::{Supply, SupplyReply};
use crate::config::{Config, Content, ContentOptions, Hosted, Scheme};
use crate::exchange::fetching::Fetching;
use crate::ground::inbox::Message;
use crate::ground::inbox::Peers;
use crate::ground::inbox::Remote;
use crate::observe::board::Board;
use crate::observe::board::unix_now;
use crate::observe::incidents::Incidents;
use crate::observe::log::{LogFactory, LogWriter};
use crate::passwords::checker::{Checker, Jobs};
use crate::passwords::file::PasswordFile;
use crate::release::archive_room::ArchiveRoom;
use crate::release::opened::{Opened, Policy};
use crate::release::own_fields::{ALT_SVC, UPGRADE};
use crate::release::room::Room;
use crate::report::exposition::About;
use crate::report::metrics_server::MetricsServer;
use crate::tls::certificates::{CertificateStore, Warning};
use crate::tls::kernel::KernelTls;
use crate::tls::watch;
use crate::watch::in_time::however_long;
use crate::watch::notices::{self, ERRORS};

/// A fully prepared server whose workers wait for the start signal. Dropping it leaves nothing
/// behind.
pub struct Prepared {
    workers: Vec<ReadyWorker>,
    report: StartReport,
    listeners: Vec<Bound>,
    datagrams: Datagrams,
    log: LogWriter,
    metrics: Option<MetricsServer>,
    tls: Option<Tls>,
    opened: Arc<Opened>,
    origins: Origins,
    /// Budget for archives copied into memory by default.
    room: Arc<ArchiveRoom>,
    /// A worker's cache limits once an archive is copied, if they are other ones until then.
    room_beside_archives: Option<Room>,
    options: Arc<ContentOptions>,
    board: Arc<Board>,
    /// Codes text of the live directories.
    coder: Arc<Coder>,
    /// Passwords that the workers want compared with hashes.
    password_jobs: Jobs,
    sandbox: Sandbox,
    report_every: Option<Duration>,
    /// What a process beside the server has received.
    receipts: Option<Receipts>,
}

/// Performs every step that can fail before a server serves: opens content, log, certificates and
/// engines. `inheritance` is what it takes over from another process besides listeners.
///
/// # Errors
/// See [`StartError`].
pub fn prepare(
    config: Config,
    content: Vec<Hosted>,
    mut listeners: Vec<Bound>,
    mut inheritance: Inheritance,
) -> Result<Prepared, StartError> {
    let workers = worker_count(config.workers);
    check(&config, &content)?;
    let has_live = content.iter().any(is_live);
    let means = Means::new(&config.content, has_live, workers);
    let mut contents = Contents::open(content, &config, &means)?;
    let board = Arc::new(Board::default());
    let (log, factory) = open_log(&config)?;
    let metrics = bind_metrics(&config, &mut inheritance)?;
    let tls = Tls::open(&config, &listeners)?;
    let inherited = (workers, &mut inheritance);
    let (datagrams, alt_svc) = bind_datagrams(&config, tls.as_ref(), &mut listeners, inherited);
    let passwords = PasswordFile::open(&config.passwords, &contents.hosted, &config.content)
        .map_err(StartError::Passwords)?;
    let (checker, password_jobs) = Checker::new();
    let open_max = contents.origins.open_max();
    let descriptors = Descriptors::share(workers, listeners.len() + datagrams.count() + open_max);
    let share = Share::of(&contents.hosted, &config.content, &means.room);
    let memory = config.content.cache_memory();
    let room_of = move |share| room(share, memory, workers, descriptors.files);
    let (policy, room) = (policy(&config, alt_svc, &board), room_of(share));
    let opened = contents.take_opened((&config.content, policy), passwords, room, workers);
    let plan = Plan {
        config: &config,
        workers,
        descriptors,
        opened: &opened,
        listeners: &listeners,
        factory: &factory,
        tls: tls.as_ref(),
        datagrams: &datagrams,
        clients: Clients::new(&config.clients),
        checker: Arc::new(checker),
        incidents: Arc::new(Incidents::new(&ERRORS)),
    };
    let (waiting, engine, fallback) = plan.start_workers()?;
    // With the log file in place.
    report_denied(&config, &contents.hosted)?;
    let sandbox = Sandbox::plan(&config, &contents.hosted, &listeners, &engine);
    let report = StartReport {
        sandbox: sandbox.report(&engine)?,
        contents: contents.hosted,
        no_front_page: contents.no_front_page,
        lacks_room_to_code: means.coder.lacks_room(),
        without_lookups: lookups::without_kernel().filter(|_| has_live),
        metrics: metrics.as_ref().map(MetricsServer::address),
        ..plan.report(engine, fallback)
    };
    Ok(Prepared {
        workers: waiting,
        report,
        listeners,
        datagrams,
        log,
        metrics,
        tls,
        opened,
        origins: contents.origins,
        room: means.room,
        room_beside_archives: (share == Share::Later).then(|| room_of(Share::Now)),
        options: Arc::new(config.content),
        board,
        coder: means.coder,
        password_jobs,
        sandbox,
        report_every: config.report_every,
        receipts: config.receipts,
    })
}

/// Whether files are served as they are now.
fn is_live(hosted: &Hosted) -> bool {
    !matches!(hosted.content, Content::Archive(_) | Content::Store(_))
}

/// Checks what needs no content to be opened.
fn check(config: &Config, content: &[Hosted]) -> Result<(), StartError> {
    if !content.is_empty() {
        probe::check_files().map_err(StartError::Files)?;
    }
    if let Err((path, error)) = config.content.follow_links.check() {
        let error = open::OpenError::Io("directory", path.to_owned(), error);
        return Err(StartError::Content(error));
    }
    Ok(())
}

fn open_log(config: &Config) -> Result<(LogWriter, LogFactory), StartError> {
    let path = config.log_file.as_deref();
    let owner = config.run_as.as_ref().map(|run_as| &run_as.user);
    let open = || LogWriter::start((&config.log, config.log_lines), path, owner);
    let opened = match path {
        Some(path) => however_long(path, open),
        None => open(),
    };
    opened.map_err(|error| {
        let path = path.unwrap_or_else(|| Path::new("-"));
        StartError::Log(path.display().to_string(), error)
    })
}

fn bind_metrics(
    config: &Config,
    inheritance: &mut Inheritance,
) -> Result<Option<MetricsServer>, StartError> {
    let bind = |address| {
        let bound = MetricsServer::bind(address, inheritance.metrics.take());
        bound.map_err(|error| StartError::Metrics(address, error))
    };
    config.metrics.map(bind).transpose()
}

fn wants_http3(config: &Config) -> bool {
    config.tls.as_ref().is_some_and(|tls| tls.http3)
}

/// Binds the sockets of HTTP/3, if it is wanted. Returns the value of `alt-svc` with them.
fn bind_datagrams(
    config: &Config,
    tls: Option<&Tls>,
    listeners: &mut [Bound],
    (workers, inheritance): (usize, &mut Inheritance),
) -> (Datagrams, Option<String>) {
    let mut datagrams = match wants_http3(config) {
        true => Datagrams::bind(listeners, workers, inheritance),
        false => Datagrams::default(),
    };
    if let Some(tls) = tls {
        let set = tls.store.current();
        let names = set.facts().flat_map(|facts| &facts.names);
        datagrams.report.names = names.cloned().collect();
    }
    let asks_clients = tls.is_some_and(|tls| tls.store.current().asked().is_some());
    let alt_svc = alt_svc(config, asks_clients, &mut datagrams.report);
    (datagrams, alt_svc)
}

/// Reports what the user that the server becomes cannot open again.
fn report_denied(config: &Config, hosted: &[Hosted]) -> Result<(), StartError> {
    let Some(run_as) = &config.run_as else {
        return Ok(());
    };
    let again = Again {
        contents: hosted,
        rules: config.content.routing.rules,
        certificates: config.tls.as_ref().map(|tls| &tls.source),
        passwords: config.passwords.file.as_deref(),
        copies: config.content.copies.as_deref(),
        log: config.log_file.as_deref(),
    };
    for denied in again.denied_to(run_as)? {
        ERRORS.log(format_args!("gannet: {denied}\nhelp: {}", denied.help()));
    }
    Ok(())
}

impl Prepared {
    /// The facts of the server about to start.
    #[must_use]
    pub fn report(&self) -> &StartReport {
        &self.report
    }

    /// Starts serving. With a sandbox, the calling thread is confined from then on.
    ///
    /// # Errors
    /// A thread cannot be started or confined, or another server has taken the path of a Unix
    /// socket.
    pub fn serve(self) -> Result<Running, StartError> {
        self.serve_once(|_| Ok(()))
    }

    /// Starts serving once `may_begin` returns. After that nothing can fail.
    ///
    /// # Errors
    /// As for [`serve`](Self::serve); and those of `may_begin`.
    pub fn serve_once(
        mut self,
        may_begin: impl FnOnce(&mut Running) -> Result<(), StartError>,
    ) -> Result<Running, StartError> {
        let files = self.listeners.iter_mut().map(Bound::publish);
        let files: Vec<_> = files.collect::<Result<_, _>>()?;
        let domain = self.sandbox.begin()?;
        notices::begin().map_err(StartError::Resource)?;
        let about = About {
            engine: self.report.engine.name,
            certificates: self.tls.as_ref().map(|tls| Arc::clone(&tls.store)),
            board: Arc::clone(&self.board),
            coder: Arc::clone(&self.coder),
            receipts: self.receipts,
        };
        let certificates = self.tls.map(Tls::into_certificates);
        let listeners = self.listeners.into_iter().map(Bound::into_sockets);
        let estate = Estate {
            listeners: listeners.collect(),
            metrics: (self.metrics.as_ref().map(MetricsServer::listener))
                .transpose()
                .map_err(StartError::Resource)?,
            quic: self.datagrams.into_estate(),
        };
        self.log.begin().map_err(StartError::Resource)?;
        let (handles, starts): (Vec<_>, Vec<_>) = self
            .workers
            .into_iter()
            .map(|worker| (worker.handle, worker.go))
            .unzip();
        let mut running = Running::new(handles, self.report, self.log, certificates, estate);
        running.keep_socket_files(files.into_iter().flatten());
        if let Some(metrics) = self.metrics {
            let serving = running.serve_metrics(metrics, about);
            serving.map_err(StartError::Resource)?;
        }
        if let Some(every) = self.report_every {
            running.report_every(every).map_err(StartError::Resource)?;
        }
        introduce_workers(&mut running);
        if self.origins.has_live() && self.options.codes_text() && self.coder.can_make_any() {
            let threads = CoderThreads::start(Arc::clone(&self.coder));
            running.code_text(threads.map_err(StartError::Resource)?);
        }
        let workers = running.remotes().to_vec();
        check_passwords(self.password_jobs, workers.clone())?;
        if let Some(supply) = self.options.supply.clone() {
            hand_on_replies(supply, workers.clone())?;
        }
        let surroundings = Surroundings {
            options: self.options,
            workers: workers.len(),
            room: self.room,
            published: Arc::new(Published::new(Arc::clone(&self.opened), workers)),
            board: self.board,
            patience: Duration::from_millis(APPLIED_MS),
            clock: unix_now,
            messages: &notices::ERRORS,
        };
        if let Some(less) = self.room_beside_archives {
            surroundings.make_room_for_copies(less);
        }
        let (opened, coder, sandbox) = (&self.opened, &self.coder, &self.sandbox);
        self.origins
            .follow(&mut running, &surroundings, opened, coder, sandbox)?;
        // A worker that has ended meanwhile is detected like one that ends later.
        if let Some(domain) = domain {
            confine(&starts, &domain, &self.sandbox)?;
        }
        may_begin(&mut running)?;
        running.own_socket_files();
        for go in starts {
            let _ = go.send(Go::Serve);
        }
        Ok(running)
    }
}

/// Starts comparing passwords with hashes for these workers.
fn check_passwords(jobs: Jobs, workers: Vec<Remote>) -> Result<(), StartError> {
    let deliver = move |answer| Remote::deliver(&workers, answer);
    jobs.start(deliver).map_err(StartError::Resource)
}

/// Starts handing answers about parts of releases on to the workers that have asked.
fn hand_on_replies(supply: Supply, workers: Vec<Remote>) -> Result<(), StartError> {
    let deliver = move |reply: SupplyReply| {
        if let Some(worker) = workers.get(Fetching::worker_of(reply.number)) {
            worker.send(Message::Supplied(reply));
        }
    };
    let hand_on = move || {
        if let Err(error) = supply.read_replies(deliver) {
            let cause = cause(&error);
            ERRORS.log(format_args!(
                "gannet: cannot fetch parts of releases: {cause}"
            ));
        }
    };
    let thread = thread::Builder::new().name("gannet-supply".to_owned());
    let started = thread.spawn(hand_on).map(drop);
    started.map_err(StartError::Resource)
}

/// Confines the waiting workers.
fn confine(
    starts: &[Sender<Go>],
    domain: &Arc<Domain>,
    sandbox: &Sandbox,
) -> Result<(), StartError> {
    let (entered, confined) = mpsc::channel();
    for go in starts {
        let _ = go.send(Go::Confine(Arc::clone(domain), entered.clone()));
    }
    drop(entered);
    confined
        .into_iter()
        .try_for_each(|result| result.or_else(|error| sandbox.refused(&error)))
}

/// Lets the workers forward datagrams to each other.
fn introduce_workers(running: &mut Running) {
    // Shared by all: each forwarding worker counts the datagrams that the other has not taken yet.
    let peers = Peers::new(running.remotes());
    running.reach_workers(peers.clone());
    for remote in running.remotes() {
        remote.send(Message::Peers(peers.clone()));
    }
}

/// The certificates of a server that is about to start.
struct Tls {
    source: watch::CertificateSource,
    store: Arc<CertificateStore>,
    warnings: Vec<Warning>,
    held: watch::LastGood,
    kernel: KernelTls,
}

impl Tls {
    /// Reads the certificates, if any address needs them.
    fn open(config: &Config, listeners: &[Bound]) -> Result<Option<Self>, StartError> {
        if listeners.iter().all(|bound| bound.scheme != Scheme::Https) {
            return Ok(None);
        }
        let tls = config.tls.as_ref().ok_or(StartError::NoCertificate)?;
        let kernel = KernelTls::new(tls.kernel).map_err(StartError::KernelTls)?;
        let opened = tls.source.open().map_err(StartError::Certificate)?;
        Ok(Some(Self {
            source: tls.source.clone(),
            store: opened.store,
            warnings: opened.warnings,
            held: opened.held,
            kernel,
        }))
    }

    fn into_certificates(self) -> Certificates {
        Certificates {
            source: self.source,
            store: self.store,
            held: self.held,
        }
    }
}

fn policy(config: &Config, alt_svc: Option<String>, board: &Board) -> Policy {
    let secure = secure_fields(config);
    Policy::new(&config.content, secure, alt_svc, board.late())
}

/// The fields of responses over TLS. Fields set by the operator take precedence.
fn secure_fields(config: &Config) -> Vec<(String, String)> {
    let mut fields = config.content.fields.clone();
    let is_wanted = config.hsts;
    if is_wanted && fields.iter().all(|(name, _)| name != HSTS.0) {
        fields.push((HSTS.0.into(), HSTS.1.into()));
    }
    // A site committed to HTTPS for years can require it of the resources in its pages, too.
    let has_policy = fields.iter().any(|(name, _)| name == UPGRADE.0);
    if is_wanted && config.content.defaults.security && !has_policy {
        fields.push((UPGRADE.0.into(), UPGRADE.1.into()));
    }
    fields
}

/// The `alt-svc` value that advertises HTTP/3 in responses over HTTP/1 and HTTP/2 (RFC 7838 section
/// 3), unless the operator sets that field. Its port is noted in the report.
fn alt_svc(config: &Config, asks_clients: bool, http3: &mut Http3Report) -> Option<String> {
    let mut fields = config.content.fields.iter();
    if fields.any(|(name, _)| name == ALT_SVC) {
        return None;
    }
    if let Some(value) = config.tls.as_ref().and_then(|tls| tls.alt_svc.clone()) {
        return (!value.is_empty()).then_some(value);
    }
    // Browsers send no certificates over it: they would have to come back, or they would be unknown.
    if asks_clients {
        return None;
    }
    let mut ports = http3.addresses.iter().map(SocketAddr::port);
    let port = ports.next()?;
    // Any port would be wrong at the other addresses.
    if ports.any(|other| other != port) {
        return None;
    }
    http3.announced = Some(port);
    Some(format!("h3=\":{port}\"; ma=86400"))
}

/// RFC 6797 section 6.1: two years, as browsers' preload lists require.
const HSTS: (&str, &str) = ("strict-transport-security", "max-age=63072000");

/// Whether half of the caches' memory is for copies of archives.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Share {
    /// None of the content is an archive, or all are copied, outside of that memory.
    None,
    /// Once an archive is copied: a host that has one may come to a folder, and releases on demand are copied only
    /// while all of them is here.
    Later,
    /// From the start: there is an archive, or what may have one as its next release.
    Now,
}

impl Share {
    fn of(content: &[Hosted], options: &ContentOptions, room: &ArchiveRoom) -> Self {
        let is_archive =
            |it: &Hosted| matches!(it.content, Content::Archive(_) | Content::Store(_));
        let is_many = |it: &Hosted| matches!(it.content, Content::Many(_));
        match () {
            () if options.copies_archives() => Self::None,
            () if room.is_used() => Self::Now,
            () if options.supply.is_some() => Self::Later,
            () if content.iter().any(is_archive) => Self::Now,
            () if content.iter().any(is_many) => Self::Later,
            () => Self::None,
        }
    }
}

/// The cache limits of each of `workers`, of `memory` bytes for all, with `files` open files.
fn room(share: Share, memory: u64, workers: usize, files: usize) -> Room {
    let copies = match share {
        Share::Now => ArchiveRoom::within(memory),
        Share::None | Share::Later => 0,
    };
    Room {
        memory: (memory - copies) / workers.max(1) as u64,
        descriptors: files,
    }
}
