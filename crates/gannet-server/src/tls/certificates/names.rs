//! Which certificate a client gets for the name that it asks for.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use foldhash::fast::RandomState;

use crate::tls::on_demand::{NameAnswer, OnDemand};

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
    /// One is ordered when it is requested.
    pub(in crate::tls) on_demand: Option<OnDemand>,
    /// Who else gets the certificate of the first host.
    pub(in crate::tls) fallback: Fallback,
}

/// Who gets the certificate of the first host, besides those that ask for its names.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(in crate::tls) enum Fallback {
    /// Clients that request a name that was not expected, or none.
    #[default]
    All,
    /// Clients that request no name.
    Nameless,
    /// No client: that it is the first one was not chosen.
    None,
}

/// Why there is no certificate for a client.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::tls) enum Without {
    /// That of the name was ordered just now, and may be there in a few seconds.
    Coming,
    /// There is none for the name yet.
    Awaited,
    /// There will be none: no site has the name, or no authority issues for it.
    Unknown,
    /// The client asks for no name.
    Nameless,
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

    /// The host whose certificate a client gets that requests `server_name` (lower case): the one with
    /// exactly that name, otherwise one with a matching wildcard; none, if the name will have its own;
    /// otherwise the default, which a set without certificates does not have.
    ///
    /// # Errors
    /// There is none for it.
    pub(in crate::tls) fn choose(&self, server_name: Option<&str>) -> Result<usize, Without> {
        let Expected {
            ordered,
            on_demand,
            fallback,
        } = &self.expected;
        let Some(name) = server_name else {
            return match fallback {
                Fallback::All | Fallback::Nameless => Ok(0),
                Fallback::None => Err(Without::Nameless),
            };
        };
        if let Some(host) = self.find(name) {
            return Ok(host);
        }
        match on_demand
            .as_ref()
            .map_or(NameAnswer::Unknown, |it| it.ask(name))
        {
            NameAnswer::Coming => Err(Without::Coming),
            NameAnswer::Awaited => Err(Without::Awaited),
            NameAnswer::Unknown if ordered.contains(name) => Err(Without::Awaited),
            NameAnswer::Unknown => match fallback {
                Fallback::All => Ok(0),
                Fallback::Nameless | Fallback::None => Err(Without::Unknown),
            },
        }
    }

    /// The names that have been ordered and have no certificate.
    pub(super) fn awaited(&self) -> impl Iterator<Item = &str> {
        let ordered = self.expected.ordered.iter().map(|name| &**name);
        ordered.filter(|name| self.find(name).is_none())
    }
}
