//! Certificates are read again when their files change.
//!
//! A thread of the control plane looks at the files once a second (`stat` follows the symbolic
//! links that certificate managers swap). A change is acted upon when the files have been quiet
//! for one look, because a certificate and its key are rarely written at the same moment. New
//! pairs that cannot be used leave the old ones in place and are reported once per change.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use super::certificates::{
    CertificateError, CertificateSet, CertificateStore, LoadOptions, PairPaths, Warning, load,
    now_unix,
};
use super::config::Options;

/// How often the files are looked at.
pub const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What came of reading certificates again.
#[derive(Debug)]
pub enum Reload {
    /// The new certificates are in use.
    Replaced(Vec<Warning>),
    /// They cannot be used; the old ones stay.
    Failed(CertificateError),
}

/// Where a server's certificates come from.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Source {
    /// The pairs, the default first.
    pub pairs: Vec<PairPaths>,
    /// Expired certificates are used, with a warning.
    pub allow_expired: bool,
    /// What the operator decides beside them.
    pub options: Options,
}

impl Source {
    /// Reads the certificates for the first time.
    ///
    /// # Errors
    /// [`CertificateError`]
    pub fn open(&self) -> Result<(Arc<CertificateStore>, Vec<Warning>), CertificateError> {
        let (set, warnings) = self.read(None)?;
        Ok((CertificateStore::new(set), warnings))
    }

    /// Reads them again, and replaces the store's if all is well.
    pub fn reload(&self, store: &CertificateStore) -> Reload {
        match self.read(Some(&store.current())) {
            Ok((set, warnings)) => {
                store.replace(set);
                Reload::Replaced(warnings)
            }
            Err(error) => Reload::Failed(error),
        }
    }

    fn read(
        &self,
        previous: Option<&CertificateSet>,
    ) -> Result<(CertificateSet, Vec<Warning>), CertificateError> {
        let options = LoadOptions {
            allow_expired: self.allow_expired,
            now: now_unix(),
        };
        let (pairs, warnings) = load(&self.pairs, &options)?;
        Ok((
            CertificateSet::new(pairs, &self.options, previous)?,
            warnings,
        ))
    }

    fn stamps(&self) -> Vec<Option<Stamp>> {
        let files = self
            .pairs
            .iter()
            .flat_map(|pair| [&pair.certificate, &pair.key]);
        files.map(|path| Stamp::of(path)).collect()
    }
}

/// What changes when a file does.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Stamp {
    device: u64,
    inode: u64,
    len: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn of(path: &Path) -> Option<Self> {
        let meta = fs::metadata(path).ok()?;
        Some(Self {
            device: meta.dev(),
            inode: meta.ino(),
            len: meta.len(),
            modified: (meta.mtime(), meta.mtime_nsec()),
            changed: (meta.ctime(), meta.ctime_nsec()),
        })
    }
}

/// The thread that watches. Dropping it ends the thread.
pub struct Watch {
    asks: Option<Sender<Ask>>,
    thread: Option<JoinHandle<()>>,
}

enum Ask {
    /// Read again now.
    Reload,
}

impl Watch {
    /// Starts to watch. `report` is called on the watching thread, for every [`Reload`].
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(
        source: Source,
        store: Arc<CertificateStore>,
        every: Duration,
        report: impl FnMut(Reload) + Send + 'static,
    ) -> io::Result<Self> {
        let (asks, inbox) = mpsc::channel();
        // Taken before the thread runs: a change from now on is seen.
        let stamps = source.stamps();
        let thread = std::thread::Builder::new()
            .name("gannet-tls".into())
            .spawn(move || watch(&source, &store, stamps, every, &inbox, report))?;
        Ok(Self {
            asks: Some(asks),
            thread: Some(thread),
        })
    }

    /// Has the certificates read now, whether they have changed or not (SIGHUP).
    pub fn reload(&self) {
        if let Some(asks) = &self.asks {
            // The thread lives as long as this value.
            let _ = asks.send(Ask::Reload);
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.asks = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the reporter was printed when it happened.
            let _ = thread.join();
        }
    }
}

fn watch(
    source: &Source,
    store: &CertificateStore,
    mut known: Vec<Option<Stamp>>,
    every: Duration,
    inbox: &Receiver<Ask>,
    mut report: impl FnMut(Reload),
) {
    let mut last = known.clone();
    loop {
        let is_asked = match inbox.recv_timeout(every) {
            Ok(Ask::Reload) => true,
            Err(RecvTimeoutError::Timeout) => false,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        let stamps = source.stamps();
        let is_quiet = stamps == last;
        last.clone_from(&stamps);
        if is_asked || (stamps != known && is_quiet) {
            known = stamps;
            report(source.reload(store));
        }
    }
}

#[cfg(test)]
mod tests;
