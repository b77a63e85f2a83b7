//! Which certificate a client gets for the name that it asks for.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use foldhash::fast::RandomState;

use crate::tls::on_demand::{Asked, OnDemand};

/// Maps names to the hosts of a set. The first host is the default.
#[derive(Debug, Default)]
pub(in crate::tls) struct Names {
    /// Names without a wildcard.
    exact: HashMap<Box<str>, usize, RandomState>,
    /// Names behind `*.`, without it.
    wildcard: HashMap<Box<str>, usize, RandomState>,
    /// Names that will have a certificate of their own.
    expected: Expected,
}

/// Names that never get the certificate of another host, whether they have one already or not.
#[derive(Clone, Debug, Default)]
pub(in crate::tls) struct Expected {
    /// The operator has ordered one for each.
    pub(in crate::tls) ordered: Arc<HashSet<Box<str>, RandomState>>,
    /// One is ordered when it is asked for.
    pub(in crate::tls) on_demand: Option<OnDemand>,
}

/// What a client gets for a name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::tls) enum Chosen {
    /// The certificate of this host.
    Host(usize),
    /// There is none for the name yet.
    Awaited,
    /// The same; it was ordered just now, and may be there in a few seconds.
    Coming,
}

impl Names {
    pub(super) fn new(expected: Expected) -> Self {
        Self {
            expected,
            ..Self::default()
        }
    }

    /// Adds the names of a host. If two hosts have a name, the first one keeps it.
    pub(super) fn add(&mut self, names: &[Box<str>], host: usize) {
        for name in names {
            match name.strip_prefix("*.") {
                Some(suffix) => self.wildcard.entry(suffix.into()).or_insert(host),
                None => self.exact.entry(name.clone()).or_insert(host),
            };
        }
    }

    pub(super) fn find(&self, name: &str) -> Option<usize> {
        let wildcard = || {
            // A wildcard matches one label (RFC 9525 section 6.3).
            let (label, suffix) = name.split_once('.')?;
            if label.is_empty() {
                None
            } else {
                self.wildcard.get(suffix)
            }
        };
        self.exact.get(name).or_else(wildcard).copied()
    }

    /// What a client gets that requests `server_name` (lower case): the certificate of the host with
    /// exactly that name, otherwise of one with a matching wildcard; none, if the name will have its own;
    /// otherwise the default, which a set without certificates does not have.
    pub(in crate::tls) fn choose(&self, server_name: Option<&str>) -> Chosen {
        let Some(name) = server_name else {
            return Chosen::Host(0);
        };
        if let Some(host) = self.find(name) {
            return Chosen::Host(host);
        }
        let on_demand = self.expected.on_demand.as_ref();
        match on_demand.map_or(Asked::Unknown, |it| it.ask(name)) {
            Asked::Coming => Chosen::Coming,
            Asked::Awaited => Chosen::Awaited,
            Asked::Unknown if self.expected.ordered.contains(name) => Chosen::Awaited,
            Asked::Unknown => Chosen::Host(0),
        }
    }

    /// The names that have been ordered and have no certificate.
    pub(super) fn awaited(&self) -> impl Iterator<Item = &str> {
        let ordered = self.expected.ordered.iter().map(|name| &**name);
        ordered.filter(|name| self.find(name).is_none())
    }
}
