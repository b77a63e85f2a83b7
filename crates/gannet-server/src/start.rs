//! From a configuration to running workers.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;

use gannet_io::driver::{Driver, EngineReport, Waker};
use gannet_io::epoll::Epoll;
use gannet_io::net;
use gannet_io::options::EngineOptions;
use gannet_io::uring::Uring;

use crate::archive_room::ArchiveRoom;
use crate::config::{Config, ContentOptions, EngineChoice, Hosted, ListenAddress, Scheme};
use crate::log::{LogFactory, LogSink, LogWriter};
use crate::metrics_server::MetricsServer;
use crate::open::{OpenError, OpenedContent, hosts};
use crate::own_fields::OwnFields;
use crate::redirect::Redirect;
use crate::rules_watch::RulesSource;
use crate::running::{CertificateNews, Running, SiteReport, StartReport, WorkerHandle};
use crate::site::Site;
use crate::site::files::ServedFiles;
use crate::site::sites::Sites;
use crate::start_error::StartError;
use crate::tls::certificates::{CertificateStore, Warning};
use crate::tls::kernel::KernelTls;
use crate::tls::limits::SEALED_RECORDS_MAX;
use crate::tls::watch::{self, Watch};
use crate::worker::{Message, Worker, WorkerSettings};

/// A bound address: one listening socket per worker.
#[derive(Debug)]
pub struct Bound {
    /// The address, with the port that the kernel chose if it was asked to.
    pub address: ListenAddress,
    /// What is spoken there; [`bind`] says HTTP in clear text.
    pub scheme: Scheme,
    sockets: Vec<OwnedFd>,
}

impl Bound {
    /// Has the kernel hand connections over when their first bytes are there; TCP only.
    fn defer_accept(&self) -> Result<(), StartError> {
        match self.address {
            ListenAddress::Tcp(address) => {
                let refuse = |error| StartError::DeferAccept(address, error);
                let mut sockets = self.sockets.iter();
                sockets.try_for_each(net::defer_accept).map_err(refuse)
            }
            ListenAddress::Unix(_) => Ok(()),
        }
    }
}

/// Binds an address for a number of workers (0: as many as [`start`] would use).
///
/// # Errors
/// What the kernel says: `EADDRINUSE`, `EACCES`, `EADDRNOTAVAIL`, ...
pub fn bind(address: &ListenAddress, workers: usize) -> io::Result<Bound> {
    let count = worker_count(workers);
    match address {
        ListenAddress::Tcp(wanted) => {
            // The first socket is bound alone: SO_REUSEPORT would let a second server of the same
            // user share the port without a word.
            let real = {
                let first = net::bind_exclusive(*wanted)?;
                net::local_addr(&first)?.unwrap_or(*wanted)
            };
            let sockets = (0..count)
                .map(|_| net::bind(real))
                .collect::<io::Result<_>>()?;
            Ok(Bound {
                address: ListenAddress::Tcp(real),
                scheme: Scheme::Http,
                sockets,
            })
        }
        ListenAddress::Unix(path) => {
            let first = net::bind_unix(path)?;
            let mut sockets = Vec::with_capacity(count);
            for _ in 1..count {
                sockets.push(first.as_fd().try_clone_to_owned()?);
            }
            sockets.push(first);
            Ok(Bound {
                address: address.clone(),
                scheme: Scheme::Http,
                sockets,
            })
        }
    }
}

/// How many workers a configured number means.
fn worker_count(configured: usize) -> usize {
    match configured {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        n => n,
    }
}

/// Starts the workers. They serve when this returns.
///
/// # Errors
/// See [`StartError`].
pub fn start(
    config: Config,
    content: Vec<Hosted>,
    listeners: Vec<Bound>,
) -> Result<Running, StartError> {
    let workers = worker_count(config.workers);
    if config.defer_accept {
        for bound in &listeners {
            bound.defer_accept()?;
        }
    }
    let mut opened = Vec::with_capacity(content.len());
    let mut room = ArchiveRoom::new(config.content.cache_memory);
    for hosted in content {
        let content = OpenedContent::open(&hosted.content, &config.content, &mut room);
        opened.push((hosted.hosts, content.map_err(StartError::Content)?));
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
    let plan = Plan {
        config,
        workers,
        opened: Arc::new(opened),
        listeners,
        factory,
        certificates: tls.as_ref().map(|tls| Arc::clone(&tls.store)),
        kernel_tls: tls.as_ref().map(|tls| tls.kernel.clone()),
    };
    let warnings = tls.as_ref().map(|tls| tls.warnings.clone());
    let kernel_tls = tls.as_ref().map(|tls| tls.kernel.clone());
    // Before the workers: nobody serves if it fails.
    let certificates = tls
        .map(Tls::watch)
        .transpose()
        .map_err(StartError::Resource)?;
    let (handles, engine, fallback) = plan.start_workers()?;
    let report = StartReport {
        engine,
        fallback,
        workers,
        site: report(&plan.opened),
        metrics: metrics.as_ref().map(MetricsServer::address),
        certificate_warnings: warnings.unwrap_or_default(),
        kernel_tls,
    };
    let mut running = Running::new(handles, report, log, metrics, certificates);
    running.watch(rules_sources(&plan.opened));
    Ok(running)
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

    /// Reads them again when they change, from now on.
    fn watch(self) -> io::Result<CertificateNews> {
        let (sender, news) = mpsc::channel();
        let report = move |reload| {
            // Nobody listens any more when the server ends.
            let _ = sender.send(reload);
        };
        let watch = Watch::start(self.source, self.store, watch::LOOK_EVERY, report)?;
        Ok(CertificateNews { watch, news })
    }
}

struct Plan {
    config: Config,
    workers: usize,
    opened: Arc<Vec<(Vec<String>, OpenedContent)>>,
    listeners: Vec<Bound>,
    factory: LogFactory,
    certificates: Option<Arc<CertificateStore>>,
    kernel_tls: Option<KernelTls>,
}

/// Why an engine is not used: the cause, and what to do about it.
struct NoEngine {
    cause: String,
    help: Option<String>,
}

/// Why a worker does not begin.
enum Declined {
    /// Another engine may do.
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

type Started = (Vec<WorkerHandle>, EngineReport, Option<String>);

impl Plan {
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

    /// Starts every worker on one engine, or none of them.
    fn start_all(&self, uring: bool) -> Result<(Vec<WorkerHandle>, EngineReport), Declined> {
        let mut handles: Vec<WorkerHandle> = Vec::new();
        let mut report = None;
        for index in 0..self.workers {
            match self.start_one(index, uring) {
                Ok((handle, engine)) => {
                    handles.push(handle);
                    report = Some(engine);
                }
                Err(declined) => {
                    for handle in handles {
                        handle.tell(Message::StopNow);
                        handle.join();
                    }
                    return Err(declined);
                }
            }
        }
        Ok((handles, report.expect("there is at least one worker")))
    }

    fn start_one(
        &self,
        index: usize,
        uring: bool,
    ) -> Result<(WorkerHandle, EngineReport), Declined> {
        let sockets = self.sockets(index)?;
        let settings = self.settings(index);
        let opened = Arc::clone(&self.opened);
        let options = self.config.content.clone();
        let workers = self.workers;
        let log = self.factory.sink();
        let (sender, inbox) = mpsc::channel();
        let (ready, answer) = mpsc::channel();
        let main = move || {
            let seat = Seat {
                settings,
                opened,
                options,
                workers,
                log,
                inbox,
                ready,
            };
            let engine = EngineOptions::default();
            if uring {
                match Uring::new(sockets, &engine) {
                    Ok(driver) => seat.serve(driver),
                    Err(no) => {
                        let cause = format!("io_uring: {no}");
                        let help = no.help;
                        seat.decline(Declined::Engine(NoEngine { cause, help }))
                    }
                }
            } else {
                match Epoll::new(sockets, &engine) {
                    Ok(driver) => seat.serve(driver),
                    Err(error) => {
                        let cause = format!("epoll: {error}");
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
            Ok((waker, report)) => Ok((WorkerHandle::new(sender, waker, thread), report)),
            Err(declined) => {
                let _: std::thread::Result<bool> = thread.join();
                Err(declined)
            }
        }
    }

    /// The fields of answers over TLS. What the operator has set goes before what we would.
    fn secure_fields(&self) -> Vec<(String, String)> {
        let mut fields = self.config.content.fields.clone();
        let is_wanted = self.config.tls.as_ref().is_some_and(|tls| tls.hsts);
        if is_wanted && fields.iter().all(|(name, _)| name != HSTS.0) {
            fields.push((HSTS.0.into(), HSTS.1.into()));
        }
        // Who promises HTTPS for years can promise it for what pages name, too.
        let has_policy = fields.iter().any(|(name, _)| name == UPGRADE.0);
        if is_wanted && self.config.content.defaults.security && !has_policy {
            fields.push((UPGRADE.0.into(), UPGRADE.1.into()));
        }
        fields
    }

    /// The port of the first address with this scheme; 0 if there is none.
    fn port_of(&self, scheme: Scheme) -> u16 {
        let port = |bound: &Bound| match bound.address {
            ListenAddress::Tcp(address) if bound.scheme == scheme => Some(address.port()),
            _ => None,
        };
        self.listeners.iter().find_map(port).unwrap_or(0)
    }

    /// This worker's listeners. Copies: if another engine has to be tried, they are needed again.
    fn sockets(&self, index: usize) -> io::Result<Vec<OwnedFd>> {
        self.listeners
            .iter()
            .map(|bound| {
                bound.sockets[index % bound.sockets.len()]
                    .as_fd()
                    .try_clone_to_owned()
            })
            .collect()
    }

    fn settings(&self, index: usize) -> WorkerSettings {
        let limits = self.config.limits;
        let total = match limits.connections_max {
            0 => usize::MAX,
            n => n as usize,
        };
        let tls = self.config.tls.as_ref();
        WorkerSettings {
            limits,
            connections_max: total.div_ceil(self.workers),
            listeners: self.listeners.iter().map(|bound| bound.scheme).collect(),
            fields: Arc::new(self.config.content.fields.clone()),
            secure_fields: Arc::new(self.secure_fields()),
            redirect: Redirect {
                from: self.port_of(Scheme::Redirect),
                to: self.port_of(Scheme::Https),
            },
            certificates: self.certificates.clone(),
            defaults: Arc::new(OwnFields::new(&self.config.content)),
            kernel_tls: self.kernel_tls.clone(),
            key_records_max: tls.map_or(SEALED_RECORDS_MAX, |tls| tls.key_records_max),
            archive_copied: if index == 0 {
                copied_len(&self.opened)
            } else {
                0
            },
            seed: random_seed(),
        }
    }
}

/// RFC 6797 section 6.1: for two years, which is what browsers' lists ask for.
const HSTS: (&str, &str) = ("strict-transport-security", "max-age=63072000");

/// A policy of its own, which browsers keep beside those of the page. Without a development
/// certificate only, as `--hsts` is: pages that are written on a machine without TLS may well name
/// parts by `http`.
pub(crate) const UPGRADE: (&str, &str) = ("content-security-policy", "upgrade-insecure-requests");

/// Something that peers cannot foresee; the standard library seeds its hash maps so.
fn random_seed() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::collections::hash_map::RandomState::new()
        .build_hasher()
        .finish()
}

type Ready = Sender<Result<(Waker, EngineReport), Declined>>;

/// What a worker's thread begins with.
struct Seat {
    settings: WorkerSettings,
    opened: Arc<Vec<(Vec<String>, OpenedContent)>>,
    options: crate::config::ContentOptions,
    workers: usize,
    log: LogSink,
    inbox: Receiver<Message>,
    ready: Ready,
}

impl Seat {
    /// Serves until told to stop; false if a response was cut off.
    fn serve<D: Driver>(self, mut driver: D) -> bool {
        let sites = match sites(&self.opened, &self.options, self.workers) {
            Ok(sites) => sites,
            Err(error) => return self.decline(Declined::Start(StartError::Content(error))),
        };
        let waker = driver.waker(Worker::<D>::wake_token());
        let report = driver.report();
        let Self {
            settings,
            log,
            inbox,
            ready,
            ..
        } = self;
        let worker = Worker::new(driver, settings, sites, log, inbox);
        if ready.send(Ok((waker, report))).is_err() {
            return true;
        }
        match worker.run() {
            Ok(clean) => clean,
            Err(errno) => {
                eprintln!("gannet: a worker has stopped: {errno}");
                false
            }
        }
    }

    fn decline(self, declined: Declined) -> bool {
        // Whoever asked is waiting for exactly this.
        let _ = self.ready.send(Err(declined));
        true
    }
}

pub(crate) type Thread = JoinHandle<bool>;

/// All content as one of `workers` workers sees it.
fn sites(
    opened: &[(Vec<String>, OpenedContent)],
    options: &ContentOptions,
    workers: usize,
) -> Result<Sites, OpenError> {
    let copied = match options.archive_memory {
        // Asked for whatever it takes, and no part of the budget.
        true => 0,
        false => copied_len(opened),
    };
    let memory = options.cache_memory.saturating_sub(copied);
    let memory = memory / workers.max(1) as u64 / opened.len().max(1) as u64;
    let files = ServedFiles::default();
    let mut list: Vec<(Vec<String>, Site)> = Vec::new();
    for (names, content) in opened {
        for (own_hosts, site) in content.sites(options, &files, memory)? {
            // An archive's own names go before those that it is served under.
            let names = if own_hosts.is_empty() {
                names.clone()
            } else {
                own_hosts
            };
            list.push((names, site));
        }
    }
    Ok(Sites::new(list, options.unknown_host, files))
}

/// Bytes of archives that are copied into memory.
fn copied_len(opened: &[(Vec<String>, OpenedContent)]) -> u64 {
    opened.iter().map(|(_, content)| content.copied_len()).sum()
}

/// What is told of the content: all that is known if it is one archive.
fn report(opened: &[(Vec<String>, OpenedContent)]) -> SiteReport {
    match opened {
        [(_, only)] => only.report(),
        _ => SiteReport::default(),
    }
}

/// Rules files to be watched, with the number of their site.
fn rules_sources(
    opened: &[(Vec<String>, OpenedContent)],
) -> impl Iterator<Item = (u32, RulesSource)> {
    let mut number = 0;
    opened.iter().filter_map(move |(_, content)| {
        let this = number;
        number += content.site_count();
        Some((this, content.rules_source()?))
    })
}

impl OpenedContent {
    /// How many sites [`OpenedContent::sites`] gives.
    fn site_count(&self) -> u32 {
        match self {
            Self::Directory { .. } => 1,
            Self::Archive { archive, .. } => hosts(archive).len() as u32,
        }
    }

    fn report(&self) -> SiteReport {
        match self {
            Self::Directory { .. } => SiteReport::default(),
            Self::Archive { archive, len, .. } => {
                let stats = archive.stats();
                let id = archive.superblock().build_id();
                let build_id = id[..8].iter().map(|b| format!("{b:02x}")).collect();
                SiteReport {
                    files: Some(stats.file_count),
                    bytes: Some(*len),
                    build_id: Some(build_id),
                }
            }
        }
    }
}
