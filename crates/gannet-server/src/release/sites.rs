//! The sites of a worker, by the host that a request is for.

use std::collections::HashMap;
use std::net::Ipv6Addr;
use std::rc::Rc;
use std::sync::Arc;

use gannet_content::rules::limits::HOST_MAX;
use gannet_content::rules::matcher::normal_host;
use gannet_http::semantics::response::Status;
use gannet_io::driver::{Nanos, Root};

use super::Site;
use super::directory::Cached;
use super::directory::fill::Fill;
use super::rules::SiteRules;
use crate::config::UnknownHost;

/// All sites of a worker.
pub(crate) struct Sites {
    sites: Vec<Site>,
    /// Sites by host name; empty if one site answers for every host.
    names: HashMap<Box<[u8]>, u32, foldhash::fast::RandomState>,
    /// What answers for a host without a name here.
    unknown: Result<u32, Status>,
    /// Some of them may keep files open that somebody may delete.
    has_live: bool,
}

impl Sites {
    /// Sites with the names of their hosts; one without names answers for all others, as far as
    /// `unknown` lets it.
    pub(crate) fn new(list: Vec<(Vec<String>, Site)>, unknown: UnknownHost) -> Self {
        let mut sites = Vec::with_capacity(list.len());
        let mut names = HashMap::default();
        let mut default = None;
        for (number, (hosts, site)) in (0..).zip(list) {
            if hosts.is_empty() {
                default.get_or_insert(number);
            }
            for host in hosts {
                names.entry(host.into_bytes().into()).or_insert(number);
            }
            sites.push(site);
        }
        if unknown == UnknownHost::Ignore {
            names = HashMap::default();
        }
        let unknown = match (unknown, default) {
            (UnknownHost::Ignore, default) => Ok(default.unwrap_or(0)),
            (UnknownHost::Default, Some(default)) => Ok(default),
            (UnknownHost::NotFound, _) => Err(Status::NOT_FOUND),
            (UnknownHost::Default | UnknownHost::Misdirected, _) => {
                Err(Status::MISDIRECTED_REQUEST)
            }
        };
        Self {
            sites,
            names,
            unknown,
            has_live: false,
        }
    }

    /// One site for every host.
    pub(crate) fn one(site: Site) -> Self {
        Self::new(vec![(Vec::new(), site)], UnknownHost::Default)
    }

    /// The number of the site that answers for an authority; else the status to answer with.
    #[inline]
    pub(crate) fn select(&self, authority: Option<&[u8]>) -> Result<u32, Status> {
        if self.names.is_empty() {
            return self.unknown;
        }
        let mut buffer = [0; HOST_MAX];
        let host = normal_host(authority.unwrap_or_default(), &mut buffer);
        match self.names.get(host) {
            Some(site) => Ok(*site),
            None if host.first() == Some(&b'[') => self.select_address(host),
            None => self.unknown,
        }
    }

    /// The same for an IPv6 address, which has several forms; sites have the shortest.
    #[cold]
    fn select_address(&self, host: &[u8]) -> Result<u32, Status> {
        let text = str::from_utf8(host).unwrap_or_default();
        let inner = text.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
        let address = inner.and_then(|it| it.parse::<Ipv6Addr>().ok());
        let found = address.and_then(|it| self.names.get(format!("[{it}]").as_bytes()));
        found.map_or(self.unknown, |site| Ok(*site))
    }

    /// A site by its number.
    #[inline]
    pub(crate) fn at(&mut self, number: u32) -> &mut Site {
        &mut self.sites[number as usize]
    }

    /// Remembers what a request path of a live directory came to.
    pub(crate) fn remember(&mut self, fill: &Fill, cached: Rc<Cached>, status: Status) {
        if let Site::Directory(site) = self.at(fill.site())
            && fill.is_current(site)
        {
            self.has_live |= site.remember(&fill.key(), cached, status, fill.began());
        }
    }

    /// Whether there may be files to let go of.
    pub(crate) fn has_live(&self) -> bool {
        self.has_live
    }

    /// Lets go of files that may change and that nobody has asked for in a while.
    pub(crate) fn close_idle(&mut self, now: Nanos) {
        self.has_live = false;
        for site in &mut self.sites {
            if let Site::Directory(site) = site {
                self.has_live |= site.close_idle(now);
            }
        }
    }

    /// The rules of a live directory are these from now on.
    pub(crate) fn set_rules(&mut self, number: u32, rules: Option<Arc<SiteRules>>) {
        if let Some(Site::Directory(site)) = self.sites.get_mut(number as usize) {
            site.set_rules(rules);
        }
    }

    /// Closes files that are kept open for later requests, the oldest first. False if none is.
    pub(crate) fn drop_descriptors(&mut self) -> bool {
        self.sites.iter_mut().any(|site| match site {
            Site::Directory(site) => site.drop_descriptors(),
            Site::Archive(_) => false,
        })
    }

    /// At the path of a live directory is this one from now on, with these rules, or none.
    pub(crate) fn set_root(&mut self, number: u32, found: Option<(Root, Option<Arc<SiteRules>>)>) {
        if let Some(Site::Directory(site)) = self.sites.get_mut(number as usize) {
            site.set_root(found);
        }
    }

    /// What is remembered of live directories is forgotten.
    pub(crate) fn forget(&mut self) {
        for site in &mut self.sites {
            if let Site::Directory(directory) = site {
                directory.forget();
            }
        }
    }

    /// Bytes that may be remembered of all live directories together.
    pub(crate) fn cache_memory(&self) -> u64 {
        let each = self.sites.iter().map(|site| match site {
            Site::Directory(directory) => directory.memory(),
            Site::Archive(_) => 0,
        });
        each.fold(0, u64::saturating_add)
    }
}
