//! Startup, from a configuration to running workers, and the threads that keep their content
//! current.

mod archive_room;
pub(crate) mod bound;
mod follow;
pub(crate) mod lookout;
pub(crate) mod open;
pub(crate) mod published;
pub(crate) mod quic;
pub(crate) mod running;
pub(crate) mod start_error;

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;

use gannet_io::cause::cause;
use gannet_io::descriptors;
use gannet_io::driver::{Driver, EngineReport, Waker};
use gannet_io::epoll::Epoll;
use gannet_io::options::EngineOptions;
use gannet_io::probe;
use gannet_io::uring::Uring;

use self::archive_room::ArchiveRoom;
use self::bound::{Bound, worker_count};
use self::follow::Source;
use self::open::Opening;
use self::published::Published;
use self::quic::{Datagrams, Http3Report};
use self::running::{Certificates, Running, SiteReport, StartReport, WorkerHandle};
use self::start_error::StartError;
use crate::config::{Config, Content, ContentOptions, EngineChoice, Hosted, ListenAddress, Scheme};
use crate::exchange::redirect::Redirect;
use crate::limits::{OPEN_FILES_MAX, OPEN_FILES_PART, SPARE_DESCRIPTORS_PART};
use crate::observe::log::{LogFactory, LogSink, LogWriter};
use crate::observe::metrics::exposition::About;
use crate::observe::metrics_server::MetricsServer;
use crate::observe::notices::{self, ERRORS};
use crate::quic::routing::Peers;
use crate::release::Release;
use crate::release::directory::Room;
use crate::release::opened::{Opened, OpenedArchive, OpenedContent, Policy, What};
use crate::tls::certificates::{CertificateStore, Warning};
use crate::tls::kernel::KernelTls;
use crate::tls::limits::ENCRYPTED_RECORDS_MAX;
use crate::tls::watch;
use crate::worker::{Message, Worker, WorkerSettings};

/// A fully prepared server whose workers wait for the start signal. Dropping it leaves nothing
/// behind.
pub struct Prepared {
    workers: Vec<ReadyWorker>,
    report: StartReport,
    listeners: Vec<Bound>,
    log: LogWriter,
    metrics: Option<MetricsServer>,
    tls: Option<Tls>,
    opened: Arc<Opened>,
    /// The origins of the live directories, with their indices among the contents.
    sources: Vec<(usize, Source)>,
}

/// Performs every step that can fail before a server serves: opens content, log, certificates and
/// engines.
///
/// # Errors
/// See [`StartError`].
pub fn prepare(
    config: Config,
    content: Vec<Hosted>,
    listeners: Vec<Bound>,
) -> Result<Prepared, StartError> {
    let workers = worker_count(config.workers);
    if !content.is_empty() {
        let is_live = |it: &Hosted| !matches!(it.content, Content::Archive(_));
        probe::check_files(content.iter().any(is_live)).map_err(StartError::Files)?;
    }
    if config.defer_accept {
        for bound in &listeners {
            bound.defer_accept()?;
        }
    }
    let mut opening = Opening {
        options: &config.content,
        workers,
        room: ArchiveRoom::new(config.content.cache_memory),
    };
    let mut contents = Vec::with_capacity(content.len());
    let mut sources = Vec::new();
    let mut no_front_page = Vec::new();
    for (place, Hosted { hosts, content }) in content.into_iter().enumerate() {
        let (what, source) = opening.open(&content).map_err(StartError::Content)?;
        no_front_page.extend(open::no_front_page(&content, &what));
        sources.extend(source.map(|source| (place, source)));
        contents.push(Arc::new(OpenedContent { hosts, what }));
    }
    let (log, factory) = LogWriter::start(config.log, config.log_file.as_deref()).map_err(|e| {
        let path = config.log_file.as_deref().unwrap_or_else(|| Path::new("-"));
        StartError::Log(path.display().to_string(), e)
    })?;
    let metrics = match config.metrics {
        Some(address) => {
            Some(MetricsServer::bind(address).map_err(|e| StartError::Metrics(address, e))?)
        }
        None => None,
    };
    let tls = Tls::open(&config, &listeners)?;
    let is_http3 = config.tls.as_ref().is_some_and(|tls| tls.http3);
    let mut datagrams = match is_http3 {
        true => Datagrams::bind(&listeners, workers),
        false => Datagrams::default(),
    };
    let alt_svc = alt_svc(&config, &mut datagrams.report);
    if let Some(tls) = &tls {
        let set = tls.store.current();
        let names = set.facts().flat_map(|facts| &facts.names);
        datagrams.report.names = names.cloned().collect();
    }
    let descriptors = Descriptors::share(workers, listeners.len() + datagrams.count());
    let opened = Arc::new(Opened {
        room: room(&contents, &config.content, workers, descriptors.files),
        contents,
        unknown_host: config.content.unknown_host,
        policy: Arc::new(Policy::new(
            &config.content,
            secure_fields(&config),
            alt_svc,
        )),
    });
    let plan = Plan {
        config: &config,
        workers,
        descriptors,
        opened: &opened,
        listeners: &listeners,
        factory: &factory,
        tls: tls.as_ref(),
        datagrams: &datagrams,
    };
    let (waiting, engine, fallback) = plan.start_workers()?;
    let report = StartReport {
        engine,
        fallback,
        workers,
        site: report(&opened.contents),
        no_front_page,
        metrics: metrics.as_ref().map(MetricsServer::address),
        certificate_warnings: tls
            .as_ref()
            .map_or_else(Vec::new, |tls| tls.warnings.clone()),
        kernel_tls: tls.as_ref().map(|tls| tls.kernel.clone()),
        http3: is_http3.then_some(datagrams.report),
    };
    Ok(Prepared {
        workers: waiting,
        report,
        listeners,
        log,
        metrics,
        tls,
        opened,
        sources,
    })
}

impl Prepared {
    /// The facts of the server about to start.
    #[must_use]
    pub fn report(&self) -> &StartReport {
        &self.report
    }

    /// Starts serving.
    ///
    /// # Errors
    /// A thread cannot be started, or another server has taken the path of a Unix socket.
    pub fn serve(self) -> Result<Running, StartError> {
        notices::begin().map_err(StartError::Resource)?;
        let about = About {
            engine: self.report.engine.name,
            certificates: self.tls.as_ref().map(|tls| Arc::clone(&tls.store)),
        };
        let certificates = self.tls.map(|tls| Certificates {
            source: tls.source,
            store: tls.store,
        });
        let files = self.listeners.into_iter().map(Bound::publish);
        let files: Vec<_> = files.collect::<Result<_, _>>()?;
        let mut log = self.log;
        log.keep();
        let (handles, starts): (Vec<_>, Vec<_>) = self
            .workers
            .into_iter()
            .map(|worker| (worker.handle, worker.go))
            .unzip();
        let mut running = Running::new(handles, self.report, log, certificates);
        running.own_socket_files(files.into_iter().flatten());
        if let Some(metrics) = self.metrics {
            let serving = running.serve_metrics(metrics, about);
            serving.map_err(StartError::Resource)?;
        }
        // Shared by all: each forwarding worker counts the datagrams that the other has not taken
        // yet.
        let peers = Peers::new(running.remotes());
        for remote in running.remotes() {
            remote.tell(Message::Peers(peers.clone()));
        }
        let published = Published::new(self.opened, running.remotes().to_vec());
        let lookouts = follow::follow(self.sources, &Arc::new(published));
        running.follow(lookouts.map_err(StartError::Resource)?);
        for go in starts {
            // A worker that has ended meanwhile is detected like one that ends later.
            let _ = go.send(());
        }
        Ok(running)
    }
}

/// A worker that is ready to serve.
struct ReadyWorker {
    handle: WorkerHandle,
    /// Starts the worker; dropping it ends the worker instead.
    go: Sender<()>,
}

/// The certificates of a server that is about to start.
struct Tls {
    source: watch::Source,
    store: Arc<CertificateStore>,
    warnings: Vec<Warning>,
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
        let (store, warnings) = tls.source.open().map_err(StartError::Certificate)?;
        Ok(Some(Self {
            source: tls.source.clone(),
            store,
            warnings,
            kernel,
        }))
    }
}

struct Plan<'a> {
    config: &'a Config,
    workers: usize,
    /// The descriptor budget of each worker.
    descriptors: Descriptors,
    opened: &'a Arc<Opened>,
    listeners: &'a [Bound],
    factory: &'a LogFactory,
    tls: Option<&'a Tls>,
    datagrams: &'a Datagrams,
}

/// How a worker divides its share of the process's descriptors.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Descriptors {
    /// Maximum number of connections.
    connections: usize,
    /// Maximum number of files kept open for later requests.
    files: usize,
}

impl Descriptors {
    /// The budget of each worker in the current process, given the number of sockets that each
    /// opens.
    fn share(workers: usize, opened_by_each: usize) -> Self {
        // The engine, its waker, and the ring that probes io_uring.
        const ENGINE: u64 = 3;
        let taken = workers as u64 * (opened_by_each as u64 + ENGINE);
        let free = descriptors::limit().saturating_sub(descriptors::open_now() + taken);
        Self::of(free / workers as u64)
    }

    fn of(share: u64) -> Self {
        let files = (share / OPEN_FILES_PART).min(OPEN_FILES_MAX as u64);
        // Files kept open are closed to make room for connections.
        let connections = share - share / SPARE_DESCRIPTORS_PART;
        Self {
            connections: usize::try_from(connections).unwrap_or(usize::MAX).max(1),
            files: files as usize,
        }
    }
}

/// Why an engine cannot be used: the cause, and how to fix it.
struct NoEngine {
    cause: String,
    help: Option<String>,
}

/// Why a worker cannot start.
enum Declined {
    /// Another engine may work.
    Engine(NoEngine),
    /// Another engine would not help.
    Start(StartError),
}

impl From<io::Error> for Declined {
    fn from(error: io::Error) -> Self {
        Self::Start(StartError::Resource(error))
    }
}

impl From<Declined> for StartError {
    fn from(declined: Declined) -> Self {
        match declined {
            Declined::Engine(NoEngine { cause, help }) => Self::Engine { cause, help },
            Declined::Start(error) => error,
        }
    }
}

type Started = (Vec<ReadyWorker>, EngineReport, Option<String>);

impl Plan<'_> {
    fn start_workers(&self) -> Result<Started, StartError> {
        let mut fallback = None;
        let (handles, report) = match self.config.engine {
            EngineChoice::Uring => self.start_all(true)?,
            EngineChoice::Epoll => self.start_all(false)?,
            EngineChoice::Auto => match self.start_all(true) {
                Err(Declined::Engine(no)) => {
                    let help = no.help.map(|help| format!("; {help}")).unwrap_or_default();
                    fallback = Some(format!("{}{help}", no.cause));
                    self.start_all(false)?
                }
                begun => begun?,
            },
        };
        Ok((handles, report, fallback))
    }

    /// Starts all workers on one engine, or none.
    fn start_all(&self, uring: bool) -> Result<(Vec<ReadyWorker>, EngineReport), Declined> {
        let mut all: Vec<ReadyWorker> = Vec::new();
        let mut report = None;
        for index in 0..self.workers {
            match self.start_one(index, uring) {
                Ok((worker, engine)) => {
                    all.push(worker);
                    report = Some(engine);
                }
                Err(declined) => {
                    for ReadyWorker { handle, go } in all {
                        drop(go);
                        handle.join();
                    }
                    return Err(declined);
                }
            }
        }
        Ok((all, report.expect("there is at least one worker")))
    }

    fn start_one(
        &self,
        index: usize,
        uring: bool,
    ) -> Result<(ReadyWorker, EngineReport), Declined> {
        let sockets = self.sockets(index)?;
        let datagrams = self.datagrams.of_worker(index)?;
        let settings = self.settings(index);
        let opened = Arc::clone(self.opened);
        let log = self.factory.sink();
        let (sender, inbox) = mpsc::channel();
        let (ready, answer) = mpsc::channel();
        let (go, on_go) = mpsc::channel();
        let main = move || {
            let seat = Seat {
                settings,
                opened,
                log,
                inbox,
                ready,
                on_go,
            };
            let engine = EngineOptions::default();
            if uring {
                match Uring::new(sockets, &engine) {
                    Ok(driver) => seat.serve(driver.with_datagrams(datagrams)),
                    Err(no) => {
                        let cause = format!("io_uring: {no}");
                        let help = no.help;
                        seat.decline(Declined::Engine(NoEngine { cause, help }))
                    }
                }
            } else {
                let driver = Epoll::new(sockets, &engine);
                match driver.and_then(|driver| driver.with_datagrams(datagrams)) {
                    Ok(driver) => seat.serve(driver),
                    Err(error) => {
                        let cause = format!("epoll: {}", cause(&error));
                        seat.decline(Declined::Engine(NoEngine { cause, help: None }))
                    }
                }
            }
        };
        let thread = std::thread::Builder::new()
            .name(format!("gannet-{index}"))
            .spawn(main)?;
        let ended = |_| io::Error::other("a worker ended before it began");
        match answer.recv().map_err(ended)? {
            Ok((waker, report)) => {
                let handle = WorkerHandle::new(sender, waker, thread);
                Ok((ReadyWorker { handle, go }, report))
            }
            Err(declined) => {
                let _: std::thread::Result<bool> = thread.join();
                Err(declined)
            }
        }
    }

    /// The port of the first address with this scheme; 0 if there is none.
    fn port_of(&self, scheme: Scheme) -> u16 {
        let port = |bound: &Bound| match bound.address {
            ListenAddress::Tcp(address) if bound.scheme == scheme => Some(address.port()),
            _ => None,
        };
        self.listeners.iter().find_map(port).unwrap_or(0)
    }

    /// This worker's listeners. Duplicates: falling back to another engine needs them again.
    fn sockets(&self, index: usize) -> io::Result<Vec<OwnedFd>> {
        let sockets = self.listeners.iter();
        sockets.map(|bound| bound.socket(index)).collect()
    }

    fn settings(&self, index: usize) -> WorkerSettings {
        let limits = self.config.limits;
        let total = match limits.connections_max {
            0 => usize::MAX,
            n => n as usize,
        };
        let tls = self.config.tls.as_ref();
        WorkerSettings {
            number: index,
            limits,
            connections_max: total
                .div_ceil(self.workers)
                .min(self.descriptors.connections),
            listeners: self.listeners.iter().map(|bound| bound.scheme).collect(),
            redirect: Redirect {
                from: self.port_of(Scheme::Redirect),
                to: self.port_of(Scheme::Https),
            },
            certificates: self.tls.map(|tls| Arc::clone(&tls.store)),
            quic: self.datagrams.settings(),
            kernel_tls: self.tls.map(|tls| tls.kernel.clone()),
            tail_len: self.config.content.tail_len(),
            key_records_max: tls.map_or(ENCRYPTED_RECORDS_MAX, |tls| tls.key_records_max),
            archive_copied: if index == 0 {
                copied_len(&self.opened.contents)
            } else {
                0
            },
            secret: secret(),
        }
    }
}

/// The fields of responses over TLS. Fields set by the operator take precedence.
fn secure_fields(config: &Config) -> Vec<(String, String)> {
    let mut fields = config.content.fields.clone();
    let is_wanted = config.tls.as_ref().is_some_and(|tls| tls.hsts);
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
fn alt_svc(config: &Config, http3: &mut Http3Report) -> Option<String> {
    let mut fields = config.content.fields.iter();
    if fields.any(|(name, _)| name == ALT_SVC) {
        return None;
    }
    if let Some(value) = config.tls.as_ref().and_then(|tls| tls.alt_svc.clone()) {
        return (!value.is_empty()).then_some(value);
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

/// Random bytes.
fn secret() -> [u8; 32] {
    let mut secret = [0; 32];
    aws_lc_rs::rand::fill(&mut secret).expect("the kernel has random bytes");
    secret
}

/// RFC 6797 section 6.1: two years, as browsers' preload lists require.
const HSTS: (&str, &str) = ("strict-transport-security", "max-age=63072000");

/// A separate policy, which browsers enforce in addition to those of the page. Like `--hsts`, not
/// with a development certificate: pages under development on a machine without TLS may well use
/// `http` URLs.
pub(crate) const UPGRADE: (&str, &str) = ("content-security-policy", "upgrade-insecure-requests");

/// The field whose value [`alt_svc`] makes.
pub(crate) const ALT_SVC: &str = "alt-svc";

type Ready = Sender<Result<(Waker, EngineReport), Declined>>;

/// The inputs of a worker's thread.
struct Seat {
    settings: WorkerSettings,
    opened: Arc<Opened>,
    log: LogSink,
    inbox: Receiver<Message>,
    ready: Ready,
    /// Receives the signal to start serving.
    on_go: Receiver<()>,
}

impl Seat {
    /// Serves from the start signal until a stop; false if a response was cut off.
    fn serve<D: Driver>(self, mut driver: D) -> bool {
        let waker = driver.waker(Worker::<D>::wake_token());
        let report = driver.report();
        let Self {
            settings,
            opened,
            log,
            inbox,
            ready,
            on_go,
        } = self;
        if ready.send(Ok((waker, report))).is_err() || on_go.recv().is_err() {
            return true;
        }
        let release = Release::new(&opened, settings.number, None);
        // Otherwise this would keep replaced content in memory.
        drop(opened);
        let worker = Worker::new(driver, settings, release, log, inbox);
        match worker.run() {
            Ok(clean) => clean,
            Err(errno) => {
                let cause = cause(&errno.into());
                ERRORS.tell(format_args!("gannet: a worker has stopped: {cause}"));
                false
            }
        }
    }

    fn decline(self, declined: Declined) -> bool {
        // The receiver is waiting for this answer.
        let _ = self.ready.send(Err(declined));
        true
    }
}

pub(crate) type Thread = JoinHandle<bool>;

/// The cache limits of each of `workers` for one content, with `files` open files in all.
fn room(
    contents: &[Arc<OpenedContent>],
    options: &ContentOptions,
    workers: usize,
    files: usize,
) -> Room {
    let copied = match options.copies_archives() {
        // Requested regardless of its length, and not part of the budget.
        true => 0,
        false => copied_len(contents),
    };
    let memory = options.cache_memory.saturating_sub(copied);
    let count = contents.len().max(1);
    Room {
        memory: memory / workers.max(1) as u64 / count as u64,
        descriptors: files / count,
    }
}

/// Bytes of archives that are copied into memory.
fn copied_len(contents: &[Arc<OpenedContent>]) -> u64 {
    contents.iter().map(|content| content.copied_len()).sum()
}

/// Facts about the content: complete if it is a single archive.
fn report(contents: &[Arc<OpenedContent>]) -> SiteReport {
    match contents {
        [only] => match &only.what {
            What::Directory(_) => SiteReport::default(),
            What::Archive(OpenedArchive { archive, len, .. }) => {
                let stats = archive.stats();
                let id = archive.superblock().build_id();
                let build_id = id[..8].iter().map(|b| format!("{b:02x}")).collect();
                SiteReport {
                    files: Some(stats.file_count),
                    bytes: Some(*len),
                    build_id: Some(build_id),
                }
            }
        },
        _ => SiteReport::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_shared_out_and_never_all() {
        for share in [0, 1, 7, 100, 1_000, 100_000, u64::MAX / 2] {
            let Descriptors { connections, files } = Descriptors::of(share);
            assert!(connections >= 1, "a server without connections is useless");
            assert!(files <= OPEN_FILES_MAX);
            let connections = connections as u64;
            assert!(connections <= share.max(1), "{connections} of {share}");
            assert!(share < 8 || connections < share, "none to spare of {share}");
        }
    }
}
