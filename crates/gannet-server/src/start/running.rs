//! A running server: the program's interface to it.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use gannet_io::driver::{EngineReport, Waker};
use gannet_io::fixed::Fixed;
use gannet_io::parcels::Parcels;
use gannet_io::probe::Unavailable;
use gannet_io::unix_socket::SocketFile;

use crate::bounds::limits::LOOKS_PART;
use crate::coder::CoderThreads;
use crate::config::{Hosted, ListenAddress, UnixAddress};
use crate::ground::inbox::Message;
use crate::ground::inbox::Peers;
use crate::ground::inbox::Remote;
use crate::observe::log::LogWriter;
use crate::observe::metrics;
use crate::quic::elders;
use crate::report::exposition::About;
use crate::report::metrics_server::MetricsServer;
use crate::report::snapshots::Snapshots;
use crate::report::traffic::Reporter;
use crate::start::estate::{Estate, Inheritance, Item};
use crate::start::quic::Http3Report;
use crate::start::sandbox::SandboxReport;
use crate::start::workers::Thread;
use crate::tls::certificates::{CertificateStore, Warning};
use crate::tls::clients::ClientCertificates;
use crate::tls::kernel::KernelTls;
use crate::tls::watch::{CertificateSource, LOOK_EVERY, LastGood, Reload};
use crate::watch::lookout::Lookout;
use crate::watch::notices;

/// Facts about a server at its start.
#[derive(Clone, Debug, Default)]
pub struct StartReport {
    /// The workers' I/O engine.
    pub engine: EngineReport,
    /// Why io_uring is not used although it was allowed, and how to fix it.
    pub fallback: Option<String>,
    /// Number of workers.
    pub workers: usize,
    /// Facts about the content.
    pub site: SiteReport,
    /// Why what is served from its files cannot change, of each content of which that is so.
    pub fixed: Vec<Fixed>,
    /// All that is served, as it was found. What of a folder of hosts did not answer is only in that
    /// folder's content.
    pub contents: Vec<Hosted>,
    /// Some path is for users alone.
    pub has_passwords: bool,
    /// Content served with `--spa` that lacks the page to answer with, and the hosts of an archive
    /// that lack it.
    pub no_front_page: Vec<(PathBuf, Vec<String>)>,
    /// Text is not coded, since the limit of the process leaves less memory than was supposed.
    pub lacks_room_to_code: bool,
    /// Why the kernel resolves no paths of live directories, if there are any: see
    /// [`Lookups::Walk`](gannet_io::lookups::Lookups::Walk).
    pub without_lookups: Option<&'static Unavailable>,
    /// Address of the metrics endpoint.
    pub metrics: Option<SocketAddr>,
    /// The authorities of clients' certificates, if clients need any.
    pub asked_of_clients: Option<ClientCertificates>,
    /// Irregularities of the certificates that do not prevent their use.
    pub certificate_warnings: Vec<Warning>,
    /// The addresses with HTTP/3, if it is enabled.
    pub http3: Option<Http3Report>,
    /// Whether the kernel encrypts large bodies, if any address speaks TLS.
    pub kernel_tls: Option<KernelTls>,
    /// The parts of the sandbox, if there is one.
    pub sandbox: Option<SandboxReport>,
}

/// The certificates in use, and their source.
pub(crate) struct Certificates {
    pub(crate) source: CertificateSource,
    pub(crate) store: Arc<CertificateStore>,
    pub(crate) held: LastGood,
}

/// Facts about the content: complete for an archive, none for a live directory.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct SiteReport {
    /// Files in it.
    pub files: Option<u64>,
    /// Bytes of the archive.
    pub bytes: Option<u64>,
    /// The archive's identifier: the first 16 hexadecimal digits.
    pub build_id: Option<String>,
    /// Its bytes are sent from a copy in memory.
    pub is_copied: bool,
}

/// Access to a worker, and its thread.
pub(crate) struct WorkerHandle {
    remote: Remote,
    thread: Thread,
}

impl WorkerHandle {
    pub(crate) fn new(sender: Sender<Message>, waker: Waker, thread: Thread) -> Self {
        Self {
            remote: Remote::new(sender, waker),
            thread,
        }
    }

    /// Waits for the thread.
    pub(crate) fn join(self) -> Stopped {
        self.thread.join().unwrap_or_else(|_| Stopped::failed())
    }
}

/// How a server has ended.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Stopped {
    /// Connections that were cut off in the middle of an answer.
    pub cut: u64,
    /// A worker has ended by itself.
    pub has_failed: bool,
}

impl Stopped {
    /// A worker that has ended by itself.
    pub(crate) fn failed() -> Self {
        Self {
            cut: 0,
            has_failed: true,
        }
    }
}

/// A running server. Dropping it leaves the workers running; see [`Running::wait`].
pub struct Running {
    workers: Vec<WorkerHandle>,
    remotes: Vec<Remote>,
    snapshots: Snapshots,
    report: StartReport,
    log: LogWriter,
    metrics: Option<MetricsServer>,
    /// Writes lines about the traffic.
    reporter: Option<Reporter>,
    certificates: Option<Certificates>,
    /// Threads that follow certificates, live directories and their rules.
    lookouts: Vec<Lookout>,
    /// Code text of the live directories.
    coders: Option<CoderThreads>,
    /// Removed at the end.
    socket_files: Vec<SocketFile>,
    /// Closed when it stops.
    estate: Estate,
    peers: Peers,
    /// The workers are to end.
    is_ending: bool,
}

impl Running {
    pub(crate) fn new(
        workers: Vec<WorkerHandle>,
        report: StartReport,
        log: LogWriter,
        certificates: Option<Certificates>,
        estate: Estate,
    ) -> Self {
        let remotes: Vec<_> = workers.iter().map(|w| w.remote.clone()).collect();
        Self {
            workers,
            snapshots: Snapshots::new(remotes.iter().cloned()),
            remotes,
            report,
            log,
            metrics: None,
            reporter: None,
            certificates,
            lookouts: Vec::new(),
            coders: None,
            socket_files: Vec::new(),
            estate,
            peers: Peers::default(),
            is_ending: false,
        }
    }

    pub(crate) fn remotes(&self) -> &[Remote] {
        &self.remotes
    }

    /// Keeps the threads that follow the live directories.
    pub(crate) fn follow(&mut self, lookouts: Vec<Lookout>) {
        self.lookouts.extend(lookouts);
    }

    /// Keeps the threads that code text.
    pub(crate) fn code_text(&mut self, threads: CoderThreads) {
        self.coders = Some(threads);
    }

    /// Keeps access to the workers for datagrams that another process receives for them.
    pub(crate) fn reach_workers(&mut self, peers: Peers) {
        self.peers = peers;
    }

    /// Starts serving metrics.
    pub(crate) fn serve_metrics(&mut self, metrics: MetricsServer, about: About) -> io::Result<()> {
        self.metrics = Some(metrics.serve(self.snapshots.clone(), about)?);
        Ok(())
    }

    /// Starts writing lines about the traffic.
    pub(crate) fn report_every(&mut self, every: Duration) -> io::Result<()> {
        let reporter = Reporter::start(every, self.snapshots.clone(), &notices::ERRORS)?;
        self.reporter = Some(reporter);
        Ok(())
    }

    /// Keeps the files of Unix sockets until the end.
    pub(crate) fn keep_socket_files(&mut self, files: impl IntoIterator<Item = SocketFile>) {
        self.socket_files.extend(files);
    }

    /// It serves: files that another process has left to it are its own.
    pub(crate) fn own_socket_files(&mut self) {
        self.socket_files.iter_mut().for_each(SocketFile::own);
    }

    /// From now on, reads certificates again when they change. `report` is called with the result,
    /// on a thread of its own.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn watch_certificates(
        &mut self,
        mut report: impl FnMut(Reload) + Send + 'static,
    ) -> io::Result<()> {
        if let Some(Certificates {
            source,
            store,
            held,
        }) = self.certificates.take()
        {
            let ordered = source.ordered.as_ref();
            let may_wait = ordered.is_some_and(|ordered| ordered.on_demand.is_some());
            let remotes = self.remotes.clone();
            let report = move |reload| {
                if may_wait && matches!(reload, Reload::Replaced(_)) {
                    remotes.iter().for_each(|it| it.send(Message::Certificates));
                }
                report(reload);
            };
            let look = source.watch(store, held, report);
            let lookout = Lookout::start("gannet-tls", LOOK_EVERY, LOOKS_PART, look)?;
            self.lookouts.push(lookout);
        }
        Ok(())
    }

    /// Facts about the server at its start.
    #[must_use]
    pub fn report(&self) -> &StartReport {
        &self.report
    }

    /// What another process needs to serve in place of this one, besides
    /// [`inheritance`](Self::inheritance); nothing once the server stops.
    pub fn items(&self) -> impl Iterator<Item = Item<'_>> {
        self.estate.items()
    }

    /// What another process takes over without descriptors, and the links to earlier processes. The
    /// link to this process has still to be added.
    ///
    /// # Errors
    /// `EMFILE`.
    pub fn inheritance(&self) -> io::Result<Inheritance> {
        Ok(Inheritance {
            metrics: None,
            generation: self.estate.quic.generation,
            secrets: self.estate.quic.secrets,
            elders: self.estate.elders()?,
        })
    }

    /// Leaves all further clients to a process that now serves in place of this one; responses in
    /// progress finish within the grace period. `is_taken` says for each of the
    /// [`items`](Self::items) whether that process has taken it. Connections that the kernel has queued
    /// are still served. `link` takes datagrams for HTTP/3 connections of this
    /// process.
    ///
    /// # Errors
    /// The thread that receives these cannot be started: these connections end by their timeouts.
    pub fn hand_over(&mut self, is_taken: &[bool], link: Parcels) -> io::Result<()> {
        // The other process reports now.
        self.reporter = None;
        let mut taken = is_taken.iter().copied();
        let estate = std::mem::take(&mut self.estate);
        let listeners: Vec<bool> = taken.by_ref().take(estate.listeners.len()).collect();
        let of_taken = |file: &SocketFile| {
            let mut all = estate.listeners.iter().zip(&listeners);
            all.any(|((address, _), is_taken)| {
                let is_same = |unix: &UnixAddress| unix.path == file.path();
                *is_taken && matches!(address, ListenAddress::Unix(unix) if is_same(unix))
            })
        };
        let (left, kept) = std::mem::take(&mut self.socket_files)
            .into_iter()
            .partition(of_taken);
        self.socket_files = kept;
        let left: Vec<SocketFile> = left;
        left.into_iter().for_each(SocketFile::leave);
        let addresses: Vec<SocketAddr> = estate
            .quic
            .sockets
            .iter()
            .map(|(address, _)| *address)
            .collect();
        let datagrams: Arc<[bool]> = taken.take(addresses.len()).collect();
        let peers = self.peers.clone();
        let receive = move || elders::receive(&link, &addresses, &peers);
        let thread = std::thread::Builder::new().name("gannet-passed".into());
        let started = thread.spawn(receive).map(drop);
        drop(estate);
        self.is_ending = true;
        // Before workers end, which would be reported as a failure.
        if let Some(metrics) = self.metrics.take() {
            metrics.stop();
        }
        for remote in &self.remotes {
            remote.send(Message::HandOver(Arc::clone(&datagrams)));
        }
        started
    }

    /// Whether every worker makes turns: each has answered a question in the last moments. While the
    /// server stops, they may have ended.
    #[must_use]
    pub fn makes_turns(&self) -> bool {
        let workers = self.workers.iter().zip(self.snapshots.take());
        workers
            .into_iter()
            .all(|(worker, counts)| counts.is_up || (self.is_ending && worker.thread.is_finished()))
    }

    /// Notices a worker that has ended by itself, since its engine failed: its listeners are closed, so
    /// that clients come to the other workers. Returns whether that has happened now; from then on there
    /// is nothing to hand over.
    pub fn gives_up_lost_workers(&mut self) -> bool {
        let has_lost = !self.is_ending && self.workers.iter().any(|it| it.thread.is_finished());
        let is_new = has_lost && !self.estate.listeners.is_empty();
        if is_new {
            self.estate = Estate::default();
        }
        is_new
    }

    /// Stops accepting; responses in progress finish within the grace period.
    pub fn stop(&mut self) {
        self.is_ending = true;
        // Before the workers close theirs: else clients would wait in a queue that is never emptied.
        self.estate = Estate::default();
        for remote in &self.remotes {
            remote.send(Message::Stop);
        }
    }

    /// Ends at once.
    pub fn stop_now(&mut self) {
        self.is_ending = true;
        self.estate = Estate::default();
        for remote in &self.remotes {
            remote.send(Message::StopNow);
        }
    }

    /// Reopens the log file after a rotation.
    pub fn reopen_logs(&self) {
        self.log.reopen();
    }

    /// Reads certificates and rules again and checks the paths of the live directories, whether
    /// anything has changed or not. What is returned disconnects when all of that is done.
    pub fn read_again(&self) -> Receiver<()> {
        let (done, all_done) = channel();
        for lookout in &self.lookouts {
            lookout.ask(done.clone());
        }
        all_done
    }

    /// The engine and the counters, for people.
    #[must_use]
    pub fn summary(&self) -> String {
        let engine = &self.report.engine;
        let mut text = format!("engine: {}: {}", engine.name, engine.in_use.join(", "));
        for (feature, why) in &engine.missing {
            text.push_str(&format!("; without {feature}: {why}"));
        }
        text.push('\n');
        if let Some(sandbox) = &self.report.sandbox {
            text.push_str(&format!("sandbox: {sandbox}\n"));
        }
        text.push_str(&metrics::summary(&self.snapshots.take()));
        text
    }

    /// Whether all workers have ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.workers.iter().all(|w| w.thread.is_finished())
    }

    /// Waits until all workers have ended.
    pub fn wait(self) -> Stopped {
        let Self {
            workers,
            log,
            metrics,
            ..
        } = self;
        let mut stopped = Stopped::default();
        for worker in workers {
            let one = worker.join();
            stopped.cut += one.cut;
            stopped.has_failed |= one.has_failed;
        }
        if let Some(metrics) = metrics {
            metrics.stop();
        }
        log.finish();
        stopped
    }
}
