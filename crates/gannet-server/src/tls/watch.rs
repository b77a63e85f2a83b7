//! Certificates are read again when their files change.
//!
//! A lookout, as live directories have (`start/lookout`), looks at the files once a second (`stat`
//! follows the symbolic links that certificate managers swap). A change is acted upon when the files have been quiet
//! for one look, because a certificate and its key are rarely written at the same moment. New
//! pairs that cannot be used leave the old ones in place and are reported once per change.

use std::sync::Arc;
use std::time::Duration;

use super::certificates::{
    CertificateError, CertificateSet, CertificateStore, LoadOptions, PairPaths, Warning, load,
    now_unix,
};
use super::config::Options;
use crate::start::lookout::{Quiet, Stamp};

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

    /// What a [`Lookout`](crate::start::lookout::Lookout) does to keep a store up to date: it calls
    /// `report` for every [`Reload`], of which one that was asked for comes at once.
    pub(crate) fn watch(
        self,
        store: Arc<CertificateStore>,
        mut report: impl FnMut(Reload) + Send + 'static,
    ) -> impl FnMut(bool) + Send + 'static {
        // Taken before the thread runs: a change from now on is seen.
        let mut quiet = Quiet::new(self.stamps());
        move |is_asked| {
            let stamps = self.stamps();
            if quiet.is_due(&stamps) || is_asked {
                quiet.acted(stamps);
                report(self.reload(&store));
            }
        }
    }

    fn stamps(&self) -> Vec<Option<Stamp>> {
        let files = self
            .pairs
            .iter()
            .flat_map(|pair| [&pair.certificate, &pair.key]);
        files.map(|path| Stamp::of(path)).collect()
    }
}

#[cfg(test)]
mod tests;
