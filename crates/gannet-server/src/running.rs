//! A running server, as the program sees it.

use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

use gannet_io::driver::{EngineReport, Waker};

use crate::log::LogWriter;
use crate::metrics::{self, Counters};
use crate::metrics_server::MetricsServer;
use crate::rules_watch::{RulesSource, RulesWatch};
use crate::start::Thread;
use crate::tls::certificates::Warning;
use crate::tls::kernel::KernelTls;
use crate::tls::watch::{Reload, Watch};
use crate::worker::Message;

/// What was started.
#[derive(Clone, Debug)]
pub struct StartReport {
    /// The engine of the workers.
    pub engine: EngineReport,
    /// Why io_uring is not used although it could have been, and what to do about it.
    pub fallback: Option<String>,
    /// How many workers serve.
    pub workers: usize,
    /// What is known of the content.
    pub site: SiteReport,
    /// Where metrics are answered.
    pub metrics: Option<SocketAddr>,
    /// What is unusual about the certificates, but does not keep them from being used.
    pub certificate_warnings: Vec<Warning>,
    /// Whether the kernel seals large bodies, if any address speaks TLS.
    pub kernel_tls: Option<KernelTls>,
}

/// The thread that reads certificates again, and what it has to tell.
pub(crate) struct CertificateNews {
    pub(crate) watch: Watch,
    pub(crate) news: Receiver<Reload>,
}

/// What is known of the content: everything of an archive, nothing of a live directory.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct SiteReport {
    /// Files in it.
    pub files: Option<u64>,
    /// Bytes of the archive.
    pub bytes: Option<u64>,
    /// The archive's identifier: the first 16 hexadecimal digits.
    pub build_id: Option<String>,
}

/// How long a worker may take to answer a question; a turn of its loop takes far less.
const ANSWER_MAX: Duration = Duration::from_secs(2);

/// A way to a worker, and its thread.
pub(crate) struct WorkerHandle {
    remote: Remote,
    thread: Thread,
}

/// A way to a worker from any thread.
#[derive(Clone)]
pub(crate) struct Remote {
    sender: Sender<Message>,
    waker: Waker,
}

impl Remote {
    pub(crate) fn tell(&self, message: Message) {
        // A worker that has ended needs to be told nothing.
        if self.sender.send(message).is_ok() {
            self.waker.wake();
        }
    }
}

/// The counters of all workers that answer in time.
pub(crate) fn snapshots(remotes: &[Remote]) -> Vec<Counters> {
    let asked: Vec<_> = remotes
        .iter()
        .map(|remote| {
            let (reply, answer) = std::sync::mpsc::channel();
            remote.tell(Message::Snapshot(reply));
            answer
        })
        .collect();
    asked
        .iter()
        .filter_map(|answer| answer.recv_timeout(ANSWER_MAX).ok())
        .collect()
}

impl WorkerHandle {
    pub(crate) fn new(sender: Sender<Message>, waker: Waker, thread: Thread) -> Self {
        Self {
            remote: Remote { sender, waker },
            thread,
        }
    }

    pub(crate) fn tell(&self, message: Message) {
        self.remote.tell(message);
    }

    /// Waits for the thread; true if no response was cut off.
    pub(crate) fn join(self) -> bool {
        self.thread.join().unwrap_or(false)
    }
}

/// A running server. Dropping it leaves the workers running; see [`Running::wait`].
pub struct Running {
    workers: Vec<WorkerHandle>,
    remotes: Vec<Remote>,
    report: StartReport,
    log: LogWriter,
    metrics: Option<MetricsServer>,
    certificates: Option<CertificateNews>,
    /// Watches the rules files of live directories.
    watches: Vec<RulesWatch>,
}

impl Running {
    pub(crate) fn new(
        workers: Vec<WorkerHandle>,
        report: StartReport,
        log: LogWriter,
        metrics: Option<MetricsServer>,
        certificates: Option<CertificateNews>,
    ) -> Self {
        let remotes: Vec<_> = workers.iter().map(|w| w.remote.clone()).collect();
        let metrics = metrics.map(|metrics| metrics.serve(remotes.clone()));
        Self {
            workers,
            remotes,
            report,
            log,
            metrics,
            certificates,
            watches: Vec::new(),
        }
    }

    /// Has the workers told when rules files of live directories change.
    pub(crate) fn watch(&mut self, sources: impl IntoIterator<Item = (u32, RulesSource)>) {
        let watch = |(site, source)| RulesWatch::start(site, source, self.remotes.clone());
        self.watches = sources.into_iter().map(watch).collect();
    }

    /// What was started.
    #[must_use]
    pub fn report(&self) -> &StartReport {
        &self.report
    }

    /// Accepts no more, finishes running responses within the grace period.
    pub fn stop(&self) {
        for remote in &self.remotes {
            remote.tell(Message::Stop);
        }
    }

    /// Ends at once.
    pub fn stop_now(&self) {
        for remote in &self.remotes {
            remote.tell(Message::StopNow);
        }
    }

    /// Opens the log file anew, after a rotation.
    pub fn reopen_logs(&self) {
        self.log.reopen();
    }

    /// Reads the certificates again, whether they have changed or not.
    pub fn reload_certificates(&self) {
        if let Some(certificates) = &self.certificates {
            certificates.watch.reload();
        }
    }

    /// What came of reading certificates again since the last call.
    pub fn certificate_news(&self) -> impl Iterator<Item = Reload> {
        let news = self.certificates.as_ref();
        news.into_iter()
            .flat_map(|certificates| certificates.news.try_iter())
    }

    /// Counts, for people.
    #[must_use]
    pub fn summary(&self) -> String {
        metrics::summary(&snapshots(&self.remotes))
    }

    /// Whether all workers have ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.workers.iter().all(|w| w.thread.is_finished())
    }

    /// Waits until all workers have ended; true if no response was cut off.
    pub fn wait(self) -> bool {
        let Self {
            workers,
            log,
            metrics,
            ..
        } = self;
        let mut clean = true;
        for worker in workers {
            clean &= worker.join();
        }
        if let Some(metrics) = metrics {
            metrics.stop();
        }
        log.finish();
        clean
    }
}
