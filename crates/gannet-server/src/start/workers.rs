//! The workers' threads: an engine for each, on which they wait for the start signal.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;

use gannet_io::cause::cause;
use gannet_io::descriptors;
use gannet_io::driver::{Driver, EngineReport, Waker};
use gannet_io::epoll::Epoll;
use gannet_io::fixed::Fixed;
use gannet_io::options::EngineOptions;
use gannet_io::process::random_bytes;
use gannet_io::sandbox::Domain;
use gannet_io::uring::Uring;

use super::bound::Bound;
use super::quic::Datagrams;
use super::running::{SiteReport, StartReport, Stopped, WorkerHandle};
use super::start_error::StartError;
use super::{Tls, wants_http3};
use crate::bounds::limits::{OPEN_FILES_MAX, OPEN_FILES_PART, SPARE_DESCRIPTORS_PART};
use crate::bounds::tls::ENCRYPTED_RECORDS_MAX;
use crate::clients::Clients;
use crate::config::{Config, EngineChoice, ListenAddress, SandboxChoice, Scheme};
use crate::ground::inbox::Message;
use crate::ground::settings::{ListenerKind, WorkerSettings};
use crate::observe::incidents::Incidents;
use crate::observe::log::{LogFactory, LogSink};
use crate::observe::measures::Measures;
use crate::passwords::checker::Checker;
use crate::release::Release;
use crate::release::opened::{CheckedContent, Generations, Opened};
use crate::release::redirect::Redirect;
use crate::watch::notices::ERRORS;
use crate::worker::Worker;

/// All that starting the workers needs.
pub(super) struct Plan<'a> {
    pub(super) config: &'a Config,
    pub(super) workers: usize,
    /// The descriptor budget of each worker.
    pub(super) descriptors: Descriptors,
    pub(super) opened: &'a Arc<Opened>,
    pub(super) listeners: &'a [Bound],
    pub(super) factory: &'a LogFactory,
    pub(super) tls: Option<&'a Tls>,
    pub(super) datagrams: &'a Datagrams,
    pub(super) clients: Option<Arc<Clients>>,
    pub(super) checker: Arc<Checker>,
    pub(super) incidents: Arc<Incidents>,
}

/// How a worker divides its share of the process's descriptors.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Descriptors {
    /// Maximum number of connections.
    connections: usize,
    /// Maximum number of files kept open for later requests.
    pub(super) files: usize,
}

impl Descriptors {
    /// The budget of each worker in the current process, given the number of sockets that each
    /// opens.
    pub(super) fn share(workers: usize, opened_by_each: usize) -> Self {
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
    /// Starts all workers on the engine that is wanted, or on epoll where io_uring is only preferred;
    /// the reason comes with them then.
    pub(super) fn start_workers(&self) -> Result<Started, StartError> {
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

    /// What is known of the server when its workers have started on this engine.
    pub(super) fn report(&self, engine: EngineReport, fallback: Option<String>) -> StartReport {
        let tls = self.tls;
        StartReport {
            engine,
            fallback,
            workers: self.workers,
            site: self.site(),
            fixed: self.fixed(),
            has_passwords: self.opened.has_passwords(),
            asked_of_clients: tls.and_then(|tls| tls.store.current().asked()),
            certificate_warnings: tls.map_or_else(Vec::new, |tls| tls.warnings.clone()),
            kernel_tls: tls.map(|tls| tls.kernel.clone()),
            http3: wants_http3(self.config).then(|| self.datagrams.report.clone()),
            ..StartReport::default()
        }
    }

    /// Facts about the content: complete if it is a single archive.
    fn site(&self) -> SiteReport {
        let mut contents = self.opened.contents.values();
        match (contents.next(), contents.next()) {
            (Some(only), None) => match &only.current.what {
                CheckedContent::Directory(_) => SiteReport::default(),
                CheckedContent::Archive(opened) => SiteReport {
                    files: Some(opened.archive.stats().file_count),
                    bytes: Some(opened.len),
                    build_id: Some(opened.short_id()),
                    is_copied: opened.is_copied,
                },
            },
            _ => SiteReport::default(),
        }
    }

    /// Why what is served from its files cannot change, of each content of which that is so.
    fn fixed(&self) -> Vec<Fixed> {
        let why = |it: &Generations| match &it.current.what {
            CheckedContent::Directory(opened) => opened.roots.first().and_then(Fixed::of_all),
            CheckedContent::Archive(opened) if opened.is_copied => None,
            CheckedContent::Archive(opened) => Fixed::of(&opened.origin.as_ref()?.file),
        };
        self.opened.contents.values().filter_map(why).collect()
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
        let restricts = self.config.sandbox != SandboxChoice::Off;
        let main = move || {
            let seat = Seat {
                settings,
                opened,
                log,
                inbox,
                ready,
                on_go,
            };
            let engine = EngineOptions {
                restricts,
                ..EngineOptions::default()
            };
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
                let _: std::thread::Result<Stopped> = thread.join();
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
        let mut all = Vec::new();
        for bound in self.listeners {
            all.extend(bound.of_worker(index, self.workers)?);
        }
        Ok(all)
    }

    /// What these listeners are, in the same order.
    fn kinds_of(&self, index: usize) -> Vec<ListenerKind> {
        let of_address = |(address, bound): (usize, &Bound)| {
            let count = bound.count_of(index, self.workers);
            std::iter::repeat_n(kind(bound, address), count)
        };
        let listeners = self.listeners.iter().enumerate();
        listeners.flat_map(of_address).collect()
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
            workers: self.workers,
            limits,
            connections_max: total
                .div_ceil(self.workers)
                .min(self.descriptors.connections),
            listeners: self.kinds_of(index),
            addresses: self
                .listeners
                .iter()
                .map(|bound| bound.address.to_string())
                .collect(),
            incidents: Arc::clone(&self.incidents),
            has_clear_http2: self.config.http.http2,
            clients: self.clients.clone(),
            checker: Arc::clone(&self.checker),
            supply: self.config.content.supply.clone(),
            redirect: Redirect {
                from: self.port_of(Scheme::Redirect),
                to: self.port_of(Scheme::Https),
            },
            certificates: self.tls.map(|tls| Arc::clone(&tls.store)),
            quic: self.datagrams.settings(index),
            kernel_tls: self.tls.map(|tls| tls.kernel.clone()),
            tail_len: self.config.content.tail_len(),
            key_records_max: tls.map_or(ENCRYPTED_RECORDS_MAX, |tls| tls.key_records_max),
            archive_copied: match index {
                0 => self.opened.copied_len(),
                _ => 0,
            },
            secret: random_bytes(),
            is_measuring: self.config.metrics.is_some() || self.config.report_every.is_some(),
        }
    }
}

fn kind(bound: &Bound, address: usize) -> ListenerKind {
    ListenerKind {
        scheme: bound.scheme,
        is_proxied: bound.is_proxied,
        // Each is given on a command line.
        address: u16::try_from(address).unwrap_or(u16::MAX),
    }
}

/// A worker that is ready to serve.
pub(super) struct ReadyWorker {
    pub(super) handle: WorkerHandle,
    /// Confines and starts the worker; dropping it ends the worker instead.
    pub(super) go: Sender<Go>,
}

/// A message to a waiting worker.
pub(super) enum Go {
    /// Enter this domain, and answer whether it was entered.
    Confine(Arc<Domain>, Sender<io::Result<()>>),
    /// Serve.
    Serve,
}

type ReadySender = Sender<Result<(Waker, EngineReport), Declined>>;

/// The inputs of a worker's thread.
struct Seat {
    settings: WorkerSettings,
    opened: Arc<Opened>,
    log: LogSink,
    inbox: Receiver<Message>,
    ready: ReadySender,
    /// Receives the signal to start serving.
    on_go: Receiver<Go>,
}

impl Seat {
    /// Serves from the start signal until a stop.
    fn serve<D: Driver>(self, mut driver: D) -> Stopped {
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
        if ready.send(Ok((waker, report))).is_err() {
            return Stopped::default();
        }
        loop {
            match on_go.recv() {
                Ok(Go::Confine(domain, entered)) => {
                    // The receiver waits for all workers, or has ended the server.
                    let _ = entered.send(domain.enter());
                }
                Ok(Go::Serve) => break,
                Err(_) => return Stopped::default(),
            }
        }
        driver.start_helpers();
        let mut measures = settings.is_measuring.then(Box::<Measures>::default);
        let release = Release::new(&opened, settings.number, None, measures.as_deref_mut());
        // Otherwise this would keep replaced content in memory.
        drop(opened);
        let worker = Worker::new(driver, settings, release, measures, log, inbox);
        match worker.run() {
            Ok(cut) => Stopped {
                cut,
                ..Stopped::default()
            },
            Err(errno) => {
                let cause = cause(&errno.into());
                ERRORS.log(format_args!("gannet: a worker has stopped: {cause}"));
                Stopped::failed()
            }
        }
    }

    fn decline(self, declined: Declined) -> Stopped {
        // The receiver is waiting for this answer.
        let _ = self.ready.send(Err(declined));
        Stopped::default()
    }
}

/// A worker's thread.
pub(super) type Thread = JoinHandle<Stopped>;

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
