//! The thread that writes log lines, so that no worker waits for a disk or a pipe.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender};
use std::thread::JoinHandle;

use super::LogSink;
use crate::config::LogFormat;
use crate::limits::{LOG_FINISH_MS, LOG_QUEUE_MAX};

/// What the writer thread is told besides lines.
enum Order {
    Reopen,
}

/// The writer thread and the way to it.
pub(crate) struct LogWriter {
    queue: Option<SyncSender<Vec<u8>>>,
    orders: Sender<Order>,
    thread: Option<JoinHandle<()>>,
    /// Its other end is dropped when the thread has ended.
    ended: Receiver<()>,
}

impl LogWriter {
    /// Starts the writer; with [`LogFormat::Off`] there is no thread.
    ///
    /// # Errors
    /// When the log file cannot be opened.
    pub(crate) fn start(format: LogFormat, path: Option<&Path>) -> io::Result<(Self, LogFactory)> {
        let (orders, order_inbox) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel();
        if format == LogFormat::Off {
            let writer = Self {
                queue: None,
                orders,
                thread: None,
                ended,
            };
            return Ok((
                writer,
                LogFactory {
                    format,
                    queue: None,
                    failed: Arc::default(),
                },
            ));
        }
        let target = Target::open(path)?;
        let (queue, lines) = std::sync::mpsc::sync_channel::<Vec<u8>>(LOG_QUEUE_MAX);
        let failed = Arc::new(AtomicU64::new(0));
        let factory = LogFactory {
            format,
            queue: Some(queue.clone()),
            failed: Arc::clone(&failed),
        };
        let thread = std::thread::Builder::new()
            .name("gannet-log".into())
            .spawn(move || {
                write_lines(target, &lines, &order_inbox, &failed);
                drop(end);
            })?;
        Ok((
            Self {
                queue: Some(queue),
                orders,
                thread: Some(thread),
                ended,
            },
            factory,
        ))
    }

    /// Has the writer open its file anew (after a rotation).
    pub(crate) fn reopen(&self) {
        // The writer is gone only when the server is.
        let _ = self.orders.send(Order::Reopen);
        if let Some(queue) = &self.queue {
            let _ = queue.try_send(Vec::new());
        }
    }

    /// Waits until everything handed over is written; not for ever, because whoever reads a pipe
    /// may have stopped doing so. All sinks must be gone.
    pub(crate) fn finish(mut self) {
        drop(self.queue.take());
        let patience = std::time::Duration::from_millis(LOG_FINISH_MS);
        if self.ended.recv_timeout(patience) == Err(RecvTimeoutError::Timeout) {
            return;
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Makes the sinks of the workers.
#[derive(Clone)]
pub(crate) struct LogFactory {
    format: LogFormat,
    queue: Option<SyncSender<Vec<u8>>>,
    failed: Arc<AtomicU64>,
}

impl LogFactory {
    /// A sink for one worker.
    pub(crate) fn sink(&self) -> LogSink {
        LogSink::new(self.format, self.queue.clone(), Arc::clone(&self.failed))
    }
}

enum Target {
    Stdout,
    File { path: PathBuf, file: std::fs::File },
}

impl Target {
    fn open(path: Option<&Path>) -> io::Result<Self> {
        let Some(path) = path else {
            return Ok(Self::Stdout);
        };
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Self::File {
            path: path.to_owned(),
            file,
        })
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Stdout => io::stdout().lock().write_all(bytes),
            Self::File { file, .. } => file.write_all(bytes),
        }
    }

    fn reopen(&mut self) {
        let Self::File { path, file } = self else {
            return;
        };
        match OpenOptions::new().create(true).append(true).open(&*path) {
            Ok(new) => *file = new,
            Err(error) => complain(&error, "reopen"),
        }
    }
}

fn complain(error: &io::Error, doing: &str) {
    let _ = writeln!(
        io::stderr(),
        "gannet: cannot {doing} the access log: {error}"
    );
}

fn write_lines(
    mut target: Target,
    lines: &Receiver<Vec<u8>>,
    orders: &Receiver<Order>,
    failed: &AtomicU64,
) {
    // A full disk must not fill standard error as well: one complaint until a write succeeds.
    let mut complained = false;
    while let Ok(batch) = lines.recv() {
        if let Ok(Order::Reopen) = orders.try_recv() {
            target.reopen();
        }
        let Err(error) = target.write(&batch) else {
            complained = false;
            continue;
        };
        // Some of them may have been written: better one too many than one too few.
        let lines = batch.iter().filter(|byte| **byte == b'\n').count();
        failed.fetch_add(lines as u64, Ordering::Relaxed);
        if !complained {
            complained = true;
            complain(&error, "write");
        }
    }
}
