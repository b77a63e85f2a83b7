//! Reloads certificates when their files change.
//!
//! Like live directories, it uses a lookout (`watch/lookout`), which checks the files once a second
//! (`stat` follows the symbolic links that certificate managers swap). A change of the files that the
//! operator names takes effect when two checks agree, because a certificate and its key are rarely
//! written at the same moment. If the new pairs are unusable, the old ones stay in place, and the error
//! is reported once per change. The files in the folder of `gannet acme` are each looked at by themselves
//! (`folder`).

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::certificates::{
    Cause, CertificateError, CertificateSet, CertificateStore, Expected, Fallback, LoadOptions,
    Pair, PairPaths, Warning, WarningKind, check_count, load_one, now_unix,
};
use super::clients::{Demand, Verifier};
use super::config::Options;
use super::folder::{self, CertificateFolder};
use super::on_demand::{Announcer, OnDemand};
use crate::watch::in_time::{however_long, until_it_answers};
use crate::watch::lookout::{Quiet, Stamp};

/// Interval at which the files are checked.
pub const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The result of reloading certificates.
#[derive(Debug)]
pub enum Reload {
    /// The new certificates are in use.
    Replaced(Vec<Warning>),
    /// They are unusable; the old ones stay.
    Failed(CertificateError),
    /// Those of some hosts are gone or unusable; what was read of them before stays.
    Kept(Vec<Warning>),
    /// The certificate for a challenge is unusable, and the challenge is not answered.
    NoChallenge(CertificateError),
}

/// What `gannet acme`, another process, gets for a server.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Ordered {
    /// Its folder. All certificates in it are used, and challenges by TLS-ALPN-01 answered with those that
    /// it puts there.
    pub folder: PathBuf,
    /// The hosts of which it is known that they are ordered. A client that asks for one of them gets the
    /// certificate of no other host.
    pub hosts: Vec<String>,
    /// Another process makes the folder.
    pub is_apart: bool,
    /// Orders for hosts of sites that are requested.
    pub on_demand: Option<OnDemand>,
}

impl Ordered {
    /// The folder of certificates.
    #[must_use]
    pub fn certificates(&self) -> PathBuf {
        self.folder.join("certificates")
    }

    /// The folder of certificates for challenges.
    #[must_use]
    pub fn challenges(&self) -> PathBuf {
        self.folder.join("challenges")
    }
}

/// The source of a server's certificates.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CertificateSource {
    /// Pairs that are named one by one, the default first. Those of [`ordered`](Self::ordered) follow.
    pub pairs: Vec<PairPaths>,
    /// `pairs` are being ordered: each may be missing, or expired, until there is a new one.
    pub awaits_pairs: bool,
    /// Certificates that are ordered from an ACME server for this one.
    pub ordered: Option<Ordered>,
    /// The operator's other TLS options; `clients` is filled in from the files below.
    pub options: Options,
    /// PEM files of the authorities of which clients are asked for a certificate; they are not if it is
    /// empty.
    pub client_authorities: Vec<PathBuf>,
    /// Whether clients need it.
    pub client_demand: Demand,
}

impl CertificateSource {
    /// Reads the certificates for the first time.
    ///
    /// # Errors
    /// [`CertificateError`]
    pub fn open(&self) -> Result<OpenedSource, CertificateError> {
        let mut warnings = Vec::new();
        let mut held = LastGood::new(self);
        self.files().for_each(until_it_answers);
        held.read_named(self, &mut warnings)?;
        if let Some(ordered) = &self.ordered {
            let read = || held.read_folder(true, &mut warnings);
            however_long(&ordered.certificates(), read);
        }
        let set = held.set(self, None)?;
        if let Some(ordered) = &self.ordered {
            let folder = ordered.certificates();
            let awaited = ordered.hosts.iter().filter(|host| !held.has(host));
            warnings.extend(awaited.map(|host| Warning {
                path: folder::file_of(&folder, host),
                kind: WarningKind::Awaited,
            }));
            if ordered.is_apart && !folder.is_dir() {
                warnings.push(Warning {
                    path: folder,
                    kind: WarningKind::NoFolder,
                });
            }
            // What is unusable is reported once it is watched.
            set.challenges().read(&ordered.challenges());
        }
        Ok(OpenedSource {
            store: CertificateStore::new(set),
            warnings,
            held,
        })
    }

    /// The check with which a [`Lookout`](crate::watch::lookout::Lookout) keeps a store up to date:
    /// it calls `report` for every [`Reload`]; a requested one happens at once.
    pub(crate) fn watch(
        self,
        store: Arc<CertificateStore>,
        mut held: LastGood,
        mut report: impl FnMut(Reload) + Send + 'static,
    ) -> impl FnMut(bool) + Send + 'static {
        // Taken before the thread starts, so that any later change is noticed.
        let mut quiet = Quiet::new(self.stamps());
        let (mut challenges, mut has_full) = (None, false);
        let on_demand = held.expected.on_demand.clone();
        let mut announcer = on_demand.map(Announcer::new);
        move |is_asked| {
            if let Some(folder) = self.ordered.as_ref().map(Ordered::challenges) {
                // Files are put there whole.
                let stamp = Stamp::of(&folder);
                if challenges != Some(stamp) || is_asked {
                    challenges = Some(stamp);
                    let mut errors = store.current().challenges().read(&folder);
                    let is_full =
                        |error: &CertificateError| matches!(error.cause, Cause::TooManyChallenges);
                    let is_full_now = errors.iter().any(is_full);
                    // It is reported once, until there is room again.
                    errors.retain(|error| !(has_full && is_full(error)));
                    has_full = is_full_now;
                    errors
                        .into_iter()
                        .map(Reload::NoChallenge)
                        .for_each(&mut report);
                }
            }
            let mut warnings = Vec::new();
            let mut is_changed = held.read_folder(is_asked, &mut warnings);
            let stamps = self.stamps();
            if quiet.is_due(&stamps) || is_asked {
                quiet.acted(stamps);
                match held.read_named(&self, &mut warnings) {
                    Ok(()) => is_changed = true,
                    Err(error) => report(Reload::Failed(error)),
                }
            }
            if let (Some(announcer), Some(folder)) = (&mut announcer, &held.folder) {
                announcer.announce(folder, is_changed);
            }
            if is_changed {
                match held.set(&self, Some(&store.current())) {
                    Ok(set) => store.replace(set),
                    Err(error) => return report(Reload::Failed(error)),
                }
            }
            let is_kept = |warning: &Warning| warning.kind.is_kept();
            let (kept, noted): (Vec<_>, Vec<_>) = warnings.into_iter().partition(is_kept);
            if is_changed {
                report(Reload::Replaced(noted));
            }
            if !kept.is_empty() {
                report(Reload::Kept(kept));
            }
        }
    }

    /// The files that are named one by one.
    pub(crate) fn files(&self) -> impl Iterator<Item = &Path> {
        let pairs = self.pairs.iter();
        let pairs = pairs.flat_map(|pair| [&pair.certificate, &pair.key]);
        pairs.chain(&self.client_authorities).map(PathBuf::as_path)
    }

    fn stamps(&self) -> Vec<Option<Stamp>> {
        self.files().map(Stamp::of).collect()
    }
}

/// What [`CertificateSource::open`] has read.
pub struct OpenedSource {
    /// The certificates.
    pub store: Arc<CertificateStore>,
    /// Irregularities that do not prevent their use.
    pub warnings: Vec<Warning>,
    pub(crate) held: LastGood,
}

/// What was last read of a source and could be used.
pub(crate) struct LastGood {
    /// For each of [`CertificateSource::pairs`]; `None` if it is waited for.
    named: Vec<Option<Pair>>,
    folder: Option<CertificateFolder>,
    expected: Expected,
    clients: Option<Verifier>,
}

impl LastGood {
    fn new(source: &CertificateSource) -> Self {
        let ordered = source.ordered.as_ref();
        let hosts = ordered.map_or(&[][..], |ordered| &ordered.hosts);
        let names = hosts.iter().map(|host| host.as_str().into());
        Self {
            named: Vec::new(),
            folder: ordered.map(|ordered| CertificateFolder::new(ordered.certificates())),
            expected: Expected {
                ordered: Arc::new(names.collect()),
                on_demand: ordered.and_then(|ordered| ordered.on_demand.clone()),
                // Decided when there are certificates.
                fallback: Fallback::default(),
            },
            clients: None,
        }
    }

    /// Reads the pairs that are named one by one, and the authorities of clients. Of pairs that are
    /// waited for, each that is gone or unusable keeps what was read before.
    ///
    /// # Errors
    /// [`CertificateError`]: nothing has changed.
    fn read_named(
        &mut self,
        source: &CertificateSource,
        warnings: &mut Vec<Warning>,
    ) -> Result<(), CertificateError> {
        let is_first = self.named.is_empty();
        let now = now_unix();
        check_count(source.pairs.len())?;
        let mut noted = Vec::new();
        let mut named = Vec::with_capacity(source.pairs.len());
        for (number, paths) in source.pairs.iter().enumerate() {
            let before = self.named.get(number).cloned().flatten();
            // One that has expired is better than none: other hosts are served, and clients decide. But it
            // takes no valid one's place.
            let was_valid = before.as_ref().is_some_and(|it| it.is_valid_at(now));
            let options = LoadOptions {
                allow_expired: !was_valid || source.awaits_pairs,
                now,
            };
            named.push(match source.awaits_pairs {
                true => load_awaited(paths, before, is_first, &options, &mut noted)?,
                false => Some(load_one(paths, &options, &mut noted)?),
            });
        }
        let authorities = &source.client_authorities;
        let demand = source.client_demand;
        let clients = Verifier::read(authorities, demand, now, &mut noted)?;
        (self.named, self.clients) = (named, clients);
        warnings.append(&mut noted);
        Ok(())
    }

    /// Reads what has changed in the folder of certificates that are ordered; returns whether that
    /// changes the pairs.
    fn read_folder(&mut self, is_asked: bool, warnings: &mut Vec<Warning>) -> bool {
        // There will be a new one, and until then clients decide.
        let options = LoadOptions {
            allow_expired: true,
            now: now_unix(),
        };
        let folder = self.folder.as_mut();
        folder.is_some_and(|folder| folder.look(is_asked, &options, warnings))
    }

    /// Whether a file was found for a host that is ordered, whatever is in it.
    fn has(&self, host: &str) -> bool {
        self.folder.as_ref().is_some_and(|folder| folder.has(host))
    }

    fn set(
        &self,
        source: &CertificateSource,
        previous: Option<&CertificateSet>,
    ) -> Result<CertificateSet, CertificateError> {
        let mut options = source.options.clone();
        options.clients.clone_from(&self.clients);
        let ordered = source.ordered.as_ref();
        let first = ordered.map_or(&[][..], |ordered| &ordered.hosts);
        let folder = self.folder.iter();
        let of_folder = folder.flat_map(|folder| folder.pairs(first, &self.expected));
        let pairs: Vec<Pair> = self
            .named
            .iter()
            .flatten()
            .chain(of_folder)
            .cloned()
            .collect();
        if pairs.is_empty() && ordered.is_none() && !source.awaits_pairs {
            return Err(CertificateError::none());
        }
        let expected = Expected {
            fallback: self.fallback(first),
            ..self.expected.clone()
        };
        CertificateSet::expecting(pairs, expected, &options, previous)
    }

    /// Who else gets the first certificate. With those of many sites, some name is always the first: who
    /// asks for another one, or for none, is not shown whose sites there are.
    fn fallback(&self, first: &[String]) -> Fallback {
        let is_there = |host: &String| self.folder.as_ref().is_some_and(|it| it.has_pair(host));
        match self.expected.on_demand.is_some() {
            true if self.named.iter().flatten().next().is_some() => Fallback::All,
            true if first.iter().any(is_there) => Fallback::Nameless,
            true => Fallback::None,
            false => Fallback::All,
        }
    }
}

/// Reads a pair that is waited for; `before` is what was read of it before.
///
/// # Errors
/// It is there when it is read for the first time, and unusable.
fn load_awaited(
    paths: &PairPaths,
    before: Option<Pair>,
    is_first: bool,
    options: &LoadOptions,
    warnings: &mut Vec<Warning>,
) -> Result<Option<Pair>, CertificateError> {
    let kind = match paths.are_missing() {
        true if before.is_some() => WarningKind::Gone,
        true => WarningKind::Awaited,
        false => match load_one(paths, options, warnings) {
            Ok(pair) => return Ok(Some(pair)),
            Err(error) if is_first => return Err(error),
            Err(error) => WarningKind::Unusable {
                why: error.cause.to_string(),
            },
        },
    };
    warnings.push(Warning {
        path: paths.certificate.clone(),
        kind,
    });
    Ok(before)
}

#[cfg(test)]
mod tests;
