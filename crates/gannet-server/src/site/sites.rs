//! The sites of a worker, by the host that a request is for.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use gannet_content::rules::limits::HOST_MAX;
use gannet_content::rules::matcher::normal_host;
use gannet_http::semantics::response::Status;
use gannet_io::driver::File;

use super::files::ServedFiles;
use super::rules::SiteRules;
use super::{ServedFile, Site};
use crate::config::UnknownHost;

/// All sites of a worker.
pub(crate) struct Sites {
    sites: Vec<Site>,
    /// Sites by host name; empty if one site answers for every host.
    names: HashMap<Box<[u8]>, u32, foldhash::fast::RandomState>,
    /// What answers for a host without a name here.
    unknown: Result<u32, Status>,
    /// The files of all of them.
    files: ServedFiles,
}

impl Sites {
    /// Sites with the names of their hosts; one without names answers for all others, as far as
    /// `unknown` lets it. `files` is the list that the sites put theirs into.
    pub(crate) fn new(
        list: Vec<(Vec<String>, Site)>,
        unknown: UnknownHost,
        files: ServedFiles,
    ) -> Self {
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
            files,
        }
    }

    /// One site for every host.
    pub(crate) fn one(site: Site, files: ServedFiles) -> Self {
        Self::new(vec![(Vec::new(), site)], UnknownHost::Default, files)
    }

    /// The number of the site that answers for an authority; else the status to answer with.
    #[inline]
    pub(crate) fn select(&self, authority: Option<&[u8]>) -> Result<u32, Status> {
        if self.names.is_empty() {
            return self.unknown;
        }
        let mut buffer = [0; HOST_MAX];
        let host = normal_host(authority.unwrap_or_default(), &mut buffer);
        self.names.get(host).map_or(self.unknown, |site| Ok(*site))
    }

    /// A site by its number.
    #[inline]
    pub(crate) fn at(&mut self, number: u32) -> &mut Site {
        &mut self.sites[number as usize]
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Site> {
        self.sites.iter()
    }

    /// The file with this identifier, if it is still in use.
    pub(crate) fn file(&self, id: u32) -> Option<Rc<ServedFile>> {
        self.files.at(id)
    }

    /// The rules of a live directory are these from now on.
    pub(crate) fn set_rules(&mut self, number: u32, rules: Option<Arc<SiteRules>>) {
        if let Some(Site::Directory(site)) = self.sites.get_mut(number as usize) {
            site.set_rules(rules);
        }
    }

    /// Files that nobody serves any more, and whose guards have to be ended.
    pub(crate) fn take_dropped(&self) -> Vec<File> {
        self.files.take_dropped()
    }
}
