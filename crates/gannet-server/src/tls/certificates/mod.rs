//! Certificates and keys, and their selection for a client.
//!
//! A [`CertificateSet`] is immutable. The [`CertificateStore`] holds the current one for the whole
//! server; a worker has its own reference ([`Adopted`]) and checks for a newer set before use, so
//! that a replacement disturbs no connection, and connections take no lock.

mod authorities;
mod distinguished;
mod error;
mod facts;
mod identity;
mod load;
mod names;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

pub(super) use authorities::Authorities;
pub use error::{Cause, CertificateError, Warning, WarningKind};
pub use facts::Facts;
pub(super) use facts::subject;
pub(crate) use identity::Identity;
pub use load::{LoadOptions, Pair, PairPaths, load_one, now_unix};
pub(super) use load::{challenge, check_count};
pub(super) use names::{Expected, Fallback, Names, Without};

use foldhash::fast::RandomState;
use quinn_proto::crypto::ServerConfig as QuicCrypto;

use super::challenges::ChallengeCertificates;
use super::clients::{ClientCertificates, Demand, Verifier};
use super::config::{HostConfig, Options};
use super::quic;

/// All certificates of a server at one time, with their configurations for the TLS library.
pub struct CertificateSet {
    hosts: Vec<Host>,
    /// Hosts by the SHA-256 of their first leaf.
    by_leaf: HashMap<[u8; 32], usize, RandomState>,
    names: Arc<Names>,
    quic: Arc<dyn QuicCrypto>,
    clients: Option<Verifier>,
    /// The same for every set of a server.
    challenges: Arc<ChallengeCertificates>,
}

/// Certificates with the same names; they differ in the kind of key.
struct Host {
    config: HostConfig,
    /// SHA-256 of each leaf, to detect whether a host is unchanged in a newer set.
    fingerprints: Vec<[u8; 32]>,
    facts: Vec<Facts>,
}

impl Host {
    fn new(
        group: Vec<Pair>,
        options: &Options,
        previous: Option<&CertificateSet>,
    ) -> Result<Self, CertificateError> {
        let fingerprints: Vec<_> = group.iter().map(|pair| pair.facts.fingerprint).collect();
        let reusable = previous.filter(|set| set.clients == options.clients);
        let unchanged = reusable.and_then(|set| set.host_of(&fingerprints));
        let config = match unchanged {
            Some(host) => host.config.clone(),
            None => {
                let keys = group.iter().map(|pair| Arc::clone(&pair.key)).collect();
                HostConfig::new(keys, options).map_err(group[0].refuses())?
            }
        };
        Ok(Self {
            config,
            fingerprints,
            facts: group.into_iter().map(|pair| pair.facts).collect(),
        })
    }
}

impl CertificateSet {
    /// Creates a set from pairs, the default first. Hosts unchanged since `previous` keep their
    /// ticket keys.
    ///
    /// # Errors
    /// There is no pair, or the TLS library rejects a key.
    pub fn new(
        pairs: Vec<Pair>,
        options: &Options,
        previous: Option<&Self>,
    ) -> Result<Self, CertificateError> {
        if pairs.is_empty() {
            return Err(CertificateError::none());
        }
        Self::expecting(pairs, Expected::default(), options, previous)
    }

    /// The same, for names of which some have no certificate yet; there may be none at all.
    pub(super) fn expecting(
        pairs: Vec<Pair>,
        expected: Expected,
        options: &Options,
        previous: Option<&Self>,
    ) -> Result<Self, CertificateError> {
        let mut groups: Vec<Vec<Pair>> = Vec::new();
        let mut group_of: HashMap<Vec<Box<str>>, usize, RandomState> = HashMap::default();
        for pair in pairs {
            let next = groups.len();
            match *group_of.entry(pair.facts.names.clone()).or_insert(next) {
                at if at == next => groups.push(vec![pair]),
                at => groups[at].push(pair),
            }
        }
        let (mut hosts, mut names) = (Vec::new(), Names::new(expected));
        let first = groups.first().map(|group| group[0].refuses());
        for mut group in groups {
            group.sort_by_key(|pair| !pair.is_valid_at(now_unix()));
            names.add(&group[0].facts.names, hosts.len());
            hosts.push(Host::new(group, options, previous)?);
        }
        Self::of_hosts(hosts, names, options, previous).map_err(|why| match first {
            Some(refused) => refused(why),
            None => CertificateError {
                path: None,
                cause: Cause::Library(why),
            },
        })
    }

    fn of_hosts(
        hosts: Vec<Host>,
        names: Names,
        options: &Options,
        previous: Option<&Self>,
    ) -> Result<Self, String> {
        let names = Arc::new(names);
        let keys = hosts.iter().map(|host| Arc::clone(&host.config.keys));
        let quic = quic::config(&names, keys.collect(), options)?;
        let number = |(number, host): (usize, &Host)| (host.fingerprints[0], number);
        Ok(Self {
            by_leaf: hosts.iter().enumerate().map(number).collect(),
            hosts,
            names,
            quic,
            clients: options.clients.clone(),
            challenges: previous.map_or_else(Arc::default, |it| Arc::clone(&it.challenges)),
        })
    }

    /// The certificates with which challenges are answered.
    pub(super) fn challenges(&self) -> &ChallengeCertificates {
        &self.challenges
    }

    fn host_of(&self, fingerprints: &[[u8; 32]]) -> Option<&Host> {
        let host = &self.hosts[*self.by_leaf.get(fingerprints.first()?)?];
        (host.fingerprints == fingerprints).then_some(host)
    }

    /// The configuration for a client that requests `server_name`: the certificate with exactly
    /// that name, otherwise one with a matching wildcard, otherwise the default. A client that
    /// requests an unknown name gets the default as well, and rejects it itself (RFC 6066 section 3
    /// allows either), unless certificates are ordered on demand and the operator has given none besides.
    ///
    /// # Errors
    /// There is no certificate at all, or none for the name.
    pub(super) fn choose(&self, server_name: Option<&str>) -> Result<&HostConfig, Without> {
        let host = self.hosts.get(self.names.choose(server_name)?);
        host.map(|host| &host.config).ok_or(Without::Awaited)
    }

    /// The names that have been ordered and have no certificate.
    pub fn awaited(&self) -> impl Iterator<Item = &str> {
        self.names.awaited()
    }

    /// The TLS configuration of QUIC connections.
    pub(crate) fn quic(&self) -> &Arc<dyn QuicCrypto> {
        &self.quic
    }

    /// Whether clients are asked for a certificate, and need it.
    pub(super) fn client_demand(&self) -> Option<Demand> {
        self.clients.as_ref().map(Verifier::demand)
    }

    /// The authorities of clients' certificates, if clients need any.
    #[must_use]
    pub fn asked(&self) -> Option<ClientCertificates> {
        self.clients.as_ref().map(Verifier::asked)
    }

    /// Facts about these authorities.
    pub fn facts_of_authorities(&self) -> impl Iterator<Item = &Facts> {
        self.clients.iter().flat_map(Verifier::facts)
    }

    /// Whether there is a certificate for the name (lower case).
    #[must_use]
    pub fn has(&self, server_name: &str) -> bool {
        self.names.find(server_name).is_some()
    }

    /// Facts about the certificates, the default first.
    pub fn facts(&self) -> impl Iterator<Item = &Facts> {
        self.hosts.iter().flat_map(|host| &host.facts)
    }
}

/// The current set of a server, shared by its workers and the code that replaces it.
pub struct CertificateStore {
    current: Mutex<Arc<CertificateSet>>,
    /// Counts replacements; read without the lock.
    generation: AtomicU64,
}

impl CertificateStore {
    /// A store that starts with this set.
    #[must_use]
    pub fn new(set: CertificateSet) -> Arc<Self> {
        Arc::new(Self {
            current: Mutex::new(Arc::new(set)),
            generation: AtomicU64::new(0),
        })
    }

    /// Replaces the set. Handshakes in progress finish with the old one; established connections
    /// are not affected.
    pub fn replace(&self, set: CertificateSet) {
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(set);
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// The current set.
    #[must_use]
    pub fn current(&self) -> Arc<CertificateSet> {
        Arc::clone(&self.current.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// How often the set was replaced.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }
}

/// A worker's own reference to the current set.
pub struct Adopted {
    store: Arc<CertificateStore>,
    set: Arc<CertificateSet>,
    generation: u64,
}

impl Adopted {
    /// Adopts the current set.
    #[must_use]
    pub fn new(store: &Arc<CertificateStore>) -> Self {
        let generation = store.generation();
        Self {
            store: Arc::clone(store),
            set: store.current(),
            generation,
        }
    }

    /// Whether clients are asked for a certificate: the same for every set of a server.
    pub(crate) fn asks_clients(&self) -> bool {
        self.set.client_demand().is_some()
    }

    /// How often the set had been replaced when this reference was taken.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// The current set. Costs one read of shared memory unless it was replaced.
    pub fn current(&mut self) -> &CertificateSet {
        let generation = self.store.generation();
        if generation != self.generation {
            self.set = self.store.current();
            self.generation = generation;
        }
        &self.set
    }
}

#[cfg(test)]
mod tests;
