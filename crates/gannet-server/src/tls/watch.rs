//! Reloads certificates when their files change.
//!
//! Like live directories, it uses a lookout (`start/lookout`), which checks the files once a second
//! (`stat` follows the symbolic links that certificate managers swap). A change takes effect when
//! two checks agree, because a certificate and its key are rarely written at the same moment. If
//! the new pairs are unusable, the old ones stay in place, and the error is reported once per
//! change.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::certificates::{
    CertificateError, CertificateSet, CertificateStore, LoadOptions, PairPaths, Warning,
    WarningKind, load, now_unix,
};
use super::clients::Verifier;
use super::config::Options;
use crate::start::lookout::{Quiet, Stamp};

/// Interval at which the files are checked.
pub const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The result of reloading certificates.
#[derive(Debug)]
pub enum Reload {
    /// The new certificates are in use.
    Replaced(Vec<Warning>),
    /// They are unusable; the old ones stay.
    Failed(CertificateError),
    /// The certificate for a challenge is unusable, and the challenge is not answered.
    NoChallenge(CertificateError),
}

/// What `gannet acme`, another process, does for a server.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Ordered {
    /// It puts certificates for challenges by TLS-ALPN-01 into this folder.
    pub challenges: Option<PathBuf>,
}

/// The source of a server's certificates.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Source {
    /// The pairs, the default first.
    pub pairs: Vec<PairPaths>,
    /// Use expired certificates, with a warning.
    pub allow_expired: bool,
    /// Pairs are ordered from an ACME server: they may be missing, or expired, until there are new ones.
    pub ordered: Option<Ordered>,
    /// The operator's other TLS options; `clients` is filled in from the files below.
    pub options: Options,
    /// PEM files of the authorities of which every client needs a certificate; none if it is empty.
    pub client_authorities: Vec<PathBuf>,
}

impl Source {
    /// Reads the certificates for the first time.
    ///
    /// # Errors
    /// [`CertificateError`]
    pub fn open(&self) -> Result<(Arc<CertificateStore>, Vec<Warning>), CertificateError> {
        let (set, warnings) = self.read(None)?;
        if let Some(folder) = self.challenge_folder() {
            // What is unusable is reported once it is watched.
            set.challenges().read(folder);
        }
        Ok((CertificateStore::new(set), warnings))
    }

    /// Reads them again, and replaces those of the store if they are valid.
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
        let checks = LoadOptions {
            allow_expired: self.allow_expired || self.ordered.is_some(),
            now: now_unix(),
        };
        let is_there = |pair: &PairPaths| {
            let is_missing = |path: &Path| matches!(path.try_exists(), Ok(false));
            let is_awaited = is_missing(&pair.certificate) || is_missing(&pair.key);
            self.ordered.is_none() || !is_awaited
        };
        let (there, awaited): (Vec<PairPaths>, Vec<PairPaths>) =
            self.pairs.iter().cloned().partition(is_there);
        let (pairs, mut warnings) = load(&there, &checks)?;
        warnings.extend(awaited.into_iter().map(|pair| Warning {
            path: pair.certificate,
            kind: WarningKind::Awaited,
        }));
        let mut options = self.options.clone();
        options.clients = Verifier::read(&self.client_authorities, checks.now, &mut warnings)?;
        let set = match pairs.is_empty() && self.ordered.is_some() {
            true => CertificateSet::empty(&options, previous)?,
            false => CertificateSet::new(pairs, &options, previous)?,
        };
        Ok((set, warnings))
    }

    /// The check with which a [`Lookout`](crate::start::lookout::Lookout) keeps a store up to date:
    /// it calls `report` for every [`Reload`]; a requested one happens at once.
    pub(crate) fn watch(
        self,
        store: Arc<CertificateStore>,
        mut report: impl FnMut(Reload) + Send + 'static,
    ) -> impl FnMut(bool) + Send + 'static {
        // Taken before the thread starts, so that any later change is noticed.
        let mut quiet = Quiet::new(self.stamps());
        let mut challenges = None;
        move |is_asked| {
            if let Some(folder) = self.challenge_folder() {
                // Files are put there whole.
                let stamp = Stamp::of(folder);
                if challenges != Some(stamp) || is_asked {
                    challenges = Some(stamp);
                    let errors = store.current().challenges().read(folder);
                    errors
                        .into_iter()
                        .map(Reload::NoChallenge)
                        .for_each(&mut report);
                }
            }
            let stamps = self.stamps();
            if quiet.is_due(&stamps) || is_asked {
                quiet.acted(stamps);
                report(self.reload(&store));
            }
        }
    }

    /// The folder of certificates for challenges.
    pub(crate) fn challenge_folder(&self) -> Option<&Path> {
        self.ordered.as_ref()?.challenges.as_deref()
    }

    /// The files that it reads.
    pub(crate) fn files(&self) -> impl Iterator<Item = &Path> {
        let pairs = self.pairs.iter();
        let pairs = pairs.flat_map(|pair| [&pair.certificate, &pair.key]);
        pairs.chain(&self.client_authorities).map(PathBuf::as_path)
    }

    fn stamps(&self) -> Vec<Option<Stamp>> {
        self.files().map(Stamp::of).collect()
    }
}

#[cfg(test)]
mod tests;
