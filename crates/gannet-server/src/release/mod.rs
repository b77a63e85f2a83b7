//! What a worker serves: everything that decides an answer, in one [`Release`] that never changes.
//!
//! Another release takes its place whole, by one message (`worker::Message::Release`). A request that
//! waits keeps the one that it began with, and is answered from that; what is being sent keeps the
//! bytes that it needs. So no answer is of two releases, and what only an old one has is given back
//! when the last who uses it ends.
//!
//! What a worker remembers belongs to the site that it is of. A site of which nothing has changed is
//! the same in the next release, with all that is remembered. Any other is retired
//! (`worker::Shared::serve`): it forgets what it has remembered, and remembers no more.
//!
//! ```text
//!   start/open, start/follow ──▶ Opened (one, shared) ──message──▶ Release (one per worker)
//! ```

pub(crate) mod archive;
pub(crate) mod bodies;
pub(crate) mod directory;
pub(crate) mod files;
pub(crate) mod opened;
pub(crate) mod rules;
mod selected;

use std::cell::Cell;
use std::collections::HashMap;
use std::net::Ipv6Addr;
use std::ops::Range;
use std::rc::Rc;
use std::sync::{Arc, Weak};

use gannet_content::rules::limits::HOST_MAX;
use gannet_content::rules::matcher::normal_host;
use gannet_http::semantics::response::Status;
use gannet_io::driver::Nanos;

use self::archive::ArchiveSite;
use self::directory::DirectorySite;
pub(crate) use self::files::ServedFile;
use self::opened::{Opened, OpenedContent, Policy, What};
use self::rules::SiteRules;
pub(crate) use self::selected::{Resolved, Selected, Source, Wanted};
use crate::config::UnknownHost;

/// See the module's description.
pub(crate) struct Release {
    sites: Vec<Site>,
    /// What they were made of, each with the numbers of its sites.
    contents: Vec<(Weak<OpenedContent>, Range<usize>)>,
    /// Sites by host name; empty if one site answers for every host.
    names: HashMap<Box<[u8]>, usize, foldhash::fast::RandomState>,
    /// What answers for a host without a name here.
    unknown: Result<usize, Status>,
    /// Fields that answers have whatever is served.
    pub(crate) policy: Arc<Policy>,
    /// Bytes that may be cached of all contents together.
    pub(crate) cache_memory: u64,
    /// The sites of this release or of one before it may keep files open that somebody may delete.
    has_live: Rc<Cell<bool>>,
}

/// What answers for a host.
#[derive(Clone)]
pub(crate) enum Site {
    /// A compiled archive.
    Archive(Rc<ArchiveSite>),
    /// A live directory, or one file of it.
    Directory(Rc<DirectorySite>),
}

impl Release {
    /// The release of this worker; sites of which nothing has changed are those of `previous`.
    pub(crate) fn new(opened: &Opened, worker: usize, previous: Option<&Self>) -> Self {
        let mut sites = Vec::new();
        let mut contents = Vec::with_capacity(opened.contents.len());
        let mut hosts: Vec<&[String]> = Vec::new();
        for (place, content) in opened.contents.iter().enumerate() {
            let start = sites.len();
            match previous.and_then(|it| it.sites_of(place, &Arc::downgrade(content))) {
                Some(same) => sites.extend_from_slice(same),
                None => sites.extend(content.sites(worker, opened.room)),
            }
            contents.push((Arc::downgrade(content), start..sites.len()));
            hosts.extend(content.host_lists());
        }
        let mut names = HashMap::default();
        for (number, hosts) in hosts.iter().enumerate() {
            for host in *hosts {
                let host = host.as_bytes().into();
                names.entry(host).or_insert(number);
            }
        }
        let default = hosts.iter().position(|hosts| hosts.is_empty());
        if opened.unknown_host == UnknownHost::Ignore {
            names = HashMap::default();
        }
        let unknown = match (opened.unknown_host, default) {
            (UnknownHost::Ignore, default) => Ok(default.unwrap_or(0)),
            (UnknownHost::Default, Some(default)) => Ok(default),
            (UnknownHost::NotFound, _) => Err(Status::NOT_FOUND),
            (UnknownHost::Default | UnknownHost::Misdirected, _) => {
                Err(Status::MISDIRECTED_REQUEST)
            }
        };
        let room = opened.room.memory.saturating_mul(contents.len() as u64);
        Self {
            contents,
            names,
            unknown,
            policy: Arc::clone(&opened.policy),
            cache_memory: room,
            has_live: previous.map_or_else(Rc::default, |it| Rc::clone(&it.has_live)),
            sites,
        }
    }

    /// The sites of a content, if this release has it at that place.
    fn sites_of(&self, place: usize, content: &Weak<OpenedContent>) -> Option<&[Site]> {
        let (own, numbers) = self.contents.get(place)?;
        Weak::ptr_eq(own, content).then(|| &self.sites[numbers.clone()])
    }

    /// Those of its sites that `next` does not have.
    pub(crate) fn gone(&self, next: &Self) -> impl Iterator<Item = &Site> {
        let contents = self.contents.iter().enumerate();
        let gone = contents.filter(|(at, (own, _))| next.sites_of(*at, own).is_none());
        gone.flat_map(|(_, (_, numbers))| &self.sites[numbers.clone()])
    }

    /// The site that answers for an authority; else the status to answer with.
    #[inline]
    pub(crate) fn select(&self, authority: Option<&[u8]>) -> Result<&Site, Status> {
        let number = match self.names.is_empty() {
            true => self.unknown?,
            false => self.named(authority)?,
        };
        Ok(&self.sites[number])
    }

    fn named(&self, authority: Option<&[u8]>) -> Result<usize, Status> {
        let mut buffer = [0; HOST_MAX];
        let host = normal_host(authority.unwrap_or_default(), &mut buffer);
        match self.names.get(host) {
            Some(site) => Ok(*site),
            None if host.first() == Some(&b'[') => self.named_address(host),
            None => self.unknown,
        }
    }

    /// The same for an IPv6 address, which has several forms; sites have the shortest.
    #[cold]
    fn named_address(&self, host: &[u8]) -> Result<usize, Status> {
        let text = str::from_utf8(host).unwrap_or_default();
        let inner = text.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
        let address = inner.and_then(|it| it.parse::<Ipv6Addr>().ok());
        let found = address.and_then(|it| self.names.get(format!("[{it}]").as_bytes()));
        found.map_or(self.unknown, |site| Ok(*site))
    }

    /// A live directory keeps a file open that somebody may delete.
    pub(crate) fn note_live(&self) {
        self.has_live.set(true);
    }

    /// Whether there may be files to let go of.
    pub(crate) fn has_live(&self) -> bool {
        self.has_live.get()
    }

    /// Lets go of files that may change and that nobody has asked for in a while.
    pub(crate) fn close_idle(&self, now: Nanos) {
        let is_left = self.directories().fold(false, |is_left, site| {
            // Every one of them closes its own.
            site.close_idle(now) | is_left
        });
        self.has_live.set(is_left);
    }

    /// Closes files that are kept open for later requests, the oldest first. False if none is.
    pub(crate) fn drop_descriptors(&self) -> bool {
        self.directories().any(|site| site.drop_descriptors())
    }

    /// What is cached of the sites' content is forgotten.
    pub(crate) fn forget(&self) {
        self.directories().for_each(|site| site.forget());
        self.forget_bodies();
    }

    /// Bodies that were read or decoded are forgotten, but for those that somebody still sends.
    pub(crate) fn forget_bodies(&self) {
        for site in &self.sites {
            match site {
                Site::Archive(archive) => archive.bodies.forget(),
                Site::Directory(directory) => directory.forget_bodies(),
            }
        }
    }

    fn directories(&self) -> impl Iterator<Item = &DirectorySite> {
        self.sites.iter().filter_map(|site| match site {
            Site::Directory(directory) => Some(&**directory),
            Site::Archive(_) => None,
        })
    }
}

impl Site {
    /// The site's own rules, if it has any.
    #[inline]
    pub(crate) fn rules(&self) -> Option<&SiteRules> {
        match self {
            Self::Archive(archive) => archive.rules.as_deref(),
            Self::Directory(directory) => directory.rules(),
        }
    }
}

impl OpenedContent {
    /// Its sites as a worker has them, with room to remember what is asked for.
    fn sites(&self, worker: usize, room: directory::Room) -> Vec<Site> {
        match &self.what {
            What::Directory(directory) => {
                let site = DirectorySite::new(directory, worker, room);
                vec![Site::Directory(Rc::new(site))]
            }
            What::Archive(archive) => {
                let sites = ArchiveSite::all(archive, worker, room);
                sites.map(|site| Site::Archive(Rc::new(site))).collect()
            }
        }
    }

    /// The names of the hosts of each of its sites.
    fn host_lists(&self) -> Vec<&[String]> {
        match &self.what {
            What::Directory(_) => vec![&self.hosts],
            What::Archive(archive) => {
                let hosts = archive.hosts.iter();
                // An archive's own names go before those that it is served under.
                let names = hosts.map(|(_, own, _)| match own.is_empty() {
                    true => &self.hosts[..],
                    false => own,
                });
                names.collect()
            }
        }
    }
}
