//! The content and policy that a worker serves: everything that decides a response, in one
//! immutable [`Release`].
//!
//! One message (`ground::inbox::Message::Release`) replaces a release as a whole. A waiting request keeps
//! the release that it began with and is answered from it; a send in progress keeps the bytes that
//! it needs. So no response mixes two releases, and an old release's resources are freed when their
//! last user ends.
//!
//! The current release of a site may have others beside it, staged or kept, that answer for their
//! immutable assets where the current one has nothing ([`Archived`]).
//!
//! A worker's caches belong to sites. A site that has not changed is shared with the next release,
//! including its caches. Any other is retired (`exchange::Shared::serve`): its caches are dropped and
//! stay empty.
//!
//! ```text
//!   start/open, start/follow ──▶ Opened (one, shared) ──message──▶ Release (one per worker)
//! ```

pub(crate) mod access;
pub(crate) mod archive;
pub(crate) mod archive_room;
pub(crate) mod bodies;
pub(crate) mod body;
pub(crate) mod challenges;
mod dictionaries;
pub(crate) mod directory;
pub(crate) mod error_pages;
pub(crate) mod files;
pub(crate) mod growing;
pub(crate) mod on_demand;
pub(crate) mod opened;
pub(crate) mod own_fields;
pub(crate) mod partial;
mod previews;
pub(crate) mod redirect;
pub(crate) mod room;
pub(crate) mod rules;
mod selected;
pub(crate) mod wakeup;

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::Ipv6Addr;
use std::ops::Range;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use gannet_content::rules::limits::HOST_MAX;
use gannet_content::rules::matcher::normal_host;
use gannet_http::semantics::response::Status;
use gannet_io::driver::{Driver, Nanos};

use self::archive::ArchiveSite;
use self::bodies::Bodies;
use self::directory::{DirectorySite, LongCopies};
pub(crate) use self::files::ServedFile;
use self::opened::{CheckedContent, Generations, Opened, OpenedContent, Policy};
use self::previews::Previews;
use self::room::{Ageing, Pool, Room};
use self::rules::SiteRules;
pub(crate) use self::selected::{RequestView, Resolved, Selected, Source};
use crate::bounds::limits::{AGED_PER_TURN_MAX, SHARED_PAGES_PART};
use crate::config::UnknownHost;
use crate::observe::measures::{Measures, OTHER};
use crate::passwords::file::PasswordFile;
use crate::release::on_demand::OnDemandHosts;

/// See the module documentation.
pub(crate) struct Release {
    sites: Vec<Site>,
    /// The contents that the sites were made from, each with the indices of its sites.
    contents: BTreeMap<usize, (Weak<OpenedContent>, Range<usize>)>,
    /// Sites by host name, under the empty one those of all hosts that have no other.
    names: Numbers,
    /// For each site what its paths start with, which it does not know; shorter if none has that.
    prefixes: Vec<Box<[u8]>>,
    /// Some names are those of all hosts below one: `*.example.org`.
    has_wildcards: bool,
    /// Hosts whose sites are opened at the first request.
    on_demand: Option<OnDemandHosts>,
    /// Of the sites that were opened so: whether they were requested. Empty if there are none.
    uses: Vec<Option<Arc<AtomicBool>>>,
    /// Sites of names below the domain of previews.
    previews: Option<Previews>,
    /// The labels of sites in the metrics; shorter if none are counted.
    labels: Vec<u16>,
    /// No name leads to another site than `unknown`.
    is_one_for_all: bool,
    /// The site or the status for a host without a name here.
    unknown: Result<usize, Status>,
    /// Fields of responses, independent of the content.
    pub(crate) policy: Arc<Policy>,
    /// The operator's users, who alone may have some paths.
    pub(crate) passwords: Option<Arc<PasswordFile>>,
    /// Bytes that may be cached of all contents in total.
    pub(crate) cache_memory: u64,
    /// The room of the caches of all sites, of this release and the next ones.
    pool: Rc<Pool>,
    long_copies: Arc<LongCopies>,
    /// Whether sites of this release or an earlier one may keep files open that can be deleted.
    has_live: Rc<Cell<bool>>,
}

/// The number of no site.
pub(crate) const NO_SITE: usize = usize::MAX;

/// Why a release has no site for a host.
pub(crate) enum NoSite<'a> {
    /// The host is not known; the status to answer with.
    Unknown(Status),
    /// There is a site for it that is not open.
    Unopened(&'a Arc<[u8]>),
}

/// The content that answers for a host.
#[derive(Clone)]
pub(crate) enum Site {
    /// A compiled archive.
    Archive(Archived),
    /// A live directory, or one file of it.
    Directory(Rc<DirectorySite>),
}

/// The numbers of sites by the names of hosts.
type Numbers = HashMap<Box<[u8]>, HostSites, foldhash::fast::RandomState>;

/// The numbers of the sites of a host.
#[derive(Default)]
struct HostSites {
    /// That of all paths without one of their own.
    whole: Option<usize>,
    /// Those of paths below a prefix, the longest first.
    below: Vec<(Box<[u8]>, usize)>,
}

impl HostSites {
    /// The number of the site that has a path.
    #[inline]
    fn at(&self, path: &[u8]) -> Option<usize> {
        let mut below = self.below.iter();
        let found = below.find(|(prefix, _)| is_below(prefix, path));
        found.map(|(_, number)| *number).or(self.whole)
    }

    /// Adds a site, unless there is one for the same paths.
    fn add(&mut self, prefix: &str, number: usize) {
        if prefix.is_empty() {
            self.whole.get_or_insert(number);
            return;
        }
        let prefix: Box<[u8]> = prefix.as_bytes().into();
        if self.below.iter().all(|(known, _)| *known != prefix) {
            let longer = |(known, _): &(Box<[u8]>, usize)| known.len() >= prefix.len();
            let at = self.below.partition_point(longer);
            self.below.insert(at, (prefix, number));
        }
    }
}

/// The numbers of sites with these names, of which the operator has `given` some. Another name, which an archive
/// may have itself, does not count if the operator has named the host, or the folder has an entry for it.
fn numbers(names: &[SiteNames<'_>], given: &[&[String]], opened: &Opened) -> Numbers {
    let entries = opened.on_demand.as_ref();
    let has_entry = |host: &str| entries.is_some_and(|it| it.host(host.as_bytes()).is_some());
    let all_given = given.iter().copied().flatten().map(String::as_str);
    let whole: HashSet<&str> = all_given.filter(|name| !name.contains('/')).collect();
    let mut numbers = Numbers::default();
    for is_given in [true, false] {
        for ((number, names), given) in names.iter().enumerate().zip(given) {
            for name in names.iter().filter(|it| given.contains(it) == is_given) {
                let (host, prefix) = split_name(name);
                if !is_given && (whole.contains(host) || has_entry(host)) {
                    continue;
                }
                let host = match opened.unknown_host {
                    // All hosts have the same sites, those without prefix aside: one answers for all.
                    UnknownHost::Ignore if prefix.is_empty() => continue,
                    UnknownHost::Ignore => "",
                    UnknownHost::NotFound | UnknownHost::Misdirected if host.is_empty() => continue,
                    _ => host,
                };
                let of_host = numbers.entry(host.as_bytes().into()).or_default();
                of_host.add(prefix, number);
            }
        }
    }
    numbers
}

/// An archive, and other releases of it.
#[derive(Clone)]
pub(crate) struct Archived {
    /// Answers requests.
    pub(crate) current: Rc<ArchiveSite>,
    /// Answer for immutable assets that the current one does not have, in this order.
    pub(crate) others: Rc<[Rc<ArchiveSite>]>,
}

impl Release {
    /// The release for this worker; it shares unchanged sites with `previous`. Its sites are counted in
    /// `measures`.
    pub(crate) fn new(
        opened: &Opened,
        worker: usize,
        previous: Option<&Self>,
        measures: Option<&mut Measures>,
    ) -> Self {
        let mut sites = Vec::new();
        let mut contents = BTreeMap::new();
        let mut hosts: Vec<SiteNames<'_>> = Vec::new();
        // The hosts that the operator has named for each site, none for that of all others.
        let mut given: Vec<&[String]> = Vec::new();
        let mut uses = Vec::new();
        let pool = previous.map_or_else(Rc::default, |it| Rc::clone(&it.pool));
        pool.set(opened.room, opened.contents.len());
        let long_copies = Arc::clone(&opened.long_copies);
        long_copies.set_room(opened.room.memory, opened.contents.len());
        for (&place, generations) in &opened.contents {
            let content = &generations.current;
            let start = sites.len();
            match previous.and_then(|it| it.sites_of(place, &Arc::downgrade(content))) {
                Some(same) => sites.extend_from_slice(same),
                None => sites.extend(content.sites(worker, &pool, &long_copies)),
            }
            generations.add_others(&mut sites[start..], worker);
            contents.insert(place, (Arc::downgrade(content), start..sites.len()));
            hosts.extend(content.host_lists());
            given.resize(sites.len(), &content.hosts);
            if opened.on_demand.is_some() {
                uses.resize(sites.len(), opened.uses.get(&place).cloned());
            }
        }
        let labels = measures.map_or_else(Vec::new, |measures| {
            let names = hosts.iter().map(|hosts| hosts.first());
            let names = names.map(|name| name.map_or("default", String::as_str));
            names.map(|name| measures.label(name)).collect()
        });
        let prefixes = hosts.iter().map(|names| prefix_of(names).as_bytes().into());
        let mut prefixes: Vec<Box<[u8]>> = prefixes.collect();
        let previews = opened.previews.as_deref();
        let previews = previews.map(|domain| {
            let to = (&mut sites, &mut prefixes);
            Previews::new(domain, opened, to, worker)
        });
        let previews = previews.filter(|_| opened.unknown_host != UnknownHost::Ignore);
        if prefixes.iter().all(|prefix| prefix.is_empty()) {
            prefixes.clear();
        }
        let names = numbers(&hosts, &given, opened);
        let unknown = of_unknown_hosts(opened.unknown_host, &hosts);
        Self {
            prefixes,
            contents,
            is_one_for_all: names.is_empty() && previews.is_none() && opened.on_demand.is_none(),
            has_wildcards: names.keys().any(|name| name.starts_with(b"*."))
                || opened
                    .on_demand
                    .as_ref()
                    .is_some_and(OnDemandHosts::has_wildcards),
            names,
            on_demand: opened.on_demand.clone(),
            uses,
            previews,
            labels,
            unknown,
            policy: Arc::clone(&opened.policy),
            passwords: opened.passwords.clone(),
            cache_memory: opened.room.memory,
            pool,
            long_copies,
            has_live: previous.map_or_else(Rc::default, |it| Rc::clone(&it.has_live)),
            sites,
        }
    }

    /// The same without sites, for a request that waits for its own: it keeps no other one open.
    pub(crate) fn without_sites(&self) -> Self {
        Self {
            sites: Vec::new(),
            contents: BTreeMap::new(),
            names: HashMap::default(),
            prefixes: Vec::new(),
            has_wildcards: false,
            on_demand: None,
            uses: Vec::new(),
            previews: None,
            labels: Vec::new(),
            is_one_for_all: false,
            unknown: Err(Status::SERVICE_UNAVAILABLE),
            policy: Arc::clone(&self.policy),
            passwords: self.passwords.clone(),
            cache_memory: 0,
            pool: Rc::clone(&self.pool),
            long_copies: Arc::clone(&self.long_copies),
            has_live: Rc::clone(&self.has_live),
        }
    }

    /// The sites of a content, if this release has it at that index.
    fn sites_of(&self, place: usize, content: &Weak<OpenedContent>) -> Option<&[Site]> {
        let (own, numbers) = self.contents.get(&place)?;
        Weak::ptr_eq(own, content).then(|| &self.sites[numbers.clone()])
    }

    /// The sites that `next` does not share.
    pub(crate) fn gone(&self, next: &Self) -> impl Iterator<Item = &Site> {
        let contents = self.contents.iter();
        let gone = contents.filter(|(at, (own, _))| next.sites_of(**at, own).is_none());
        gone.flat_map(|(_, (_, numbers))| &self.sites[numbers.clone()])
    }

    /// The number of the site for a path at an authority, or the status to answer with.
    #[inline]
    pub(crate) fn number(
        &self,
        authority: Option<&[u8]>,
        path: &[u8],
    ) -> Result<usize, NoSite<'_>> {
        match self.is_one_for_all {
            true => self.unknown.map_err(NoSite::Unknown),
            false => self.named(authority, path),
        }
    }

    /// What the paths of the site with a number start with, which the site itself does not know. Empty
    /// for all but the sites of a part of a host.
    #[inline]
    pub(crate) fn prefix(&self, number: usize) -> &[u8] {
        self.prefixes.get(number).map_or(b"", |prefix| prefix)
    }

    /// The site with a number.
    #[inline]
    pub(crate) fn site(&self, number: usize) -> &Site {
        &self.sites[number]
    }

    /// How many sites there are.
    pub(crate) fn site_count(&self) -> usize {
        self.sites.len()
    }

    /// The label in the metrics of the site with a number. Previews and [`NO_SITE`] have none of their
    /// own.
    pub(crate) fn label(&self, number: usize) -> u16 {
        self.labels.get(number).copied().unwrap_or(OTHER)
    }

    /// Notes that the site with a number was requested, unless it stays open anyway.
    #[inline]
    pub(crate) fn note_use(&self, number: usize) {
        if let Some(Some(is_used)) = self.uses.get(number)
            && !is_used.load(Ordering::Relaxed)
        {
            is_used.store(true, Ordering::Relaxed);
        }
    }

    /// Asks for the site of a host to be opened, for a worker's request that has `waited` before; false if
    /// too many are requested.
    pub(crate) fn ask_to_open(&self, worker: usize, host: &Arc<[u8]>, waited: Duration) -> bool {
        let hosts = self.on_demand.as_ref();
        hosts.is_some_and(|hosts| hosts.ask(worker, host, waited))
    }

    fn named(&self, authority: Option<&[u8]>, path: &[u8]) -> Result<usize, NoSite<'_>> {
        let mut buffer = [0; HOST_MAX];
        let host = normal_host(authority.unwrap_or_default(), &mut buffer);
        match self.names.get(host).and_then(|sites| sites.at(path)) {
            Some(site) => Ok(site),
            None if host.first() == Some(&b'[') => self.named_address(host, path),
            None => self.unopened(host, path),
        }
    }

    /// The same for an IPv6 address, which has several forms; sites use the shortest.
    #[cold]
    fn named_address(&self, host: &[u8], path: &[u8]) -> Result<usize, NoSite<'_>> {
        let text = str::from_utf8(host).unwrap_or_default();
        let inner = text.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
        let address = inner.and_then(|it| it.parse::<Ipv6Addr>().ok());
        let host = match address {
            Some(address) => format!("[{address}]"),
            None => return self.unnamed(host, path),
        };
        let host = host.as_bytes();
        match self.names.get(host).and_then(|sites| sites.at(path)) {
            Some(site) => Ok(site),
            None => self.unopened(host, path),
        }
    }

    /// The same for a host without an open site that has the path.
    fn unopened(&self, host: &[u8], path: &[u8]) -> Result<usize, NoSite<'_>> {
        if let Some(host) = self.on_demand.as_ref().and_then(|hosts| hosts.host(host)) {
            return Err(NoSite::Unopened(host));
        }
        if self.has_wildcards
            && let Some(found) = self.by_wildcard(host, path)
        {
            return found;
        }
        match self.previews.as_ref().and_then(|it| it.named(host)) {
            // Below the prefix of its site: what passwords protect is there.
            Some(Ok(preview)) => match is_below(self.prefix(preview), path) {
                true => Ok(preview),
                false => Err(NoSite::Unknown(Status::NOT_FOUND)),
            },
            Some(Err(status)) => Err(NoSite::Unknown(status)),
            None => self.unnamed(host, path),
        }
    }

    /// The site of all hosts by the longest wildcard that has the path.
    #[cold]
    fn by_wildcard(&self, host: &[u8], path: &[u8]) -> Option<Result<usize, NoSite<'_>>> {
        let mut buffer = [0; HOST_MAX];
        let name = buffer.get_mut(..host.len())?;
        name.copy_from_slice(host);
        // One look-up for each label at most, of which a name has 128.
        for dot in (1..host.len()).filter(|at| host[*at] == b'.') {
            name[dot - 1] = b'*';
            let name = &name[dot - 1..];
            if let Some(site) = self.names.get(name).and_then(|sites| sites.at(path)) {
                return Some(Ok(site));
            }
            if let Some(host) = self.on_demand.as_ref().and_then(|hosts| hosts.host(name)) {
                return Some(Err(NoSite::Unopened(host)));
            }
        }
        None
    }

    /// The same for a path that no site of its host has.
    fn unnamed(&self, host: &[u8], path: &[u8]) -> Result<usize, NoSite<'_>> {
        let for_all = self.names.get(&b""[..]);
        if let Some(site) = for_all.and_then(|sites| sites.at(path)) {
            return Ok(site);
        }
        // If only for other paths: a client has no better server to ask.
        let is_known = for_all.is_some() || self.names.contains_key(host);
        match self.unknown {
            Err(Status::MISDIRECTED_REQUEST) if is_known => Err(NoSite::Unknown(Status::NOT_FOUND)),
            unknown => unknown.map_err(NoSite::Unknown),
        }
    }

    /// Records that a live directory keeps a file open that may be deleted.
    pub(crate) fn note_live(&self) {
        self.has_live.set(true);
    }

    /// Whether there may be idle files to close.
    pub(crate) fn has_live(&self) -> bool {
        self.has_live.get()
    }

    /// Closes files that may change and have not been requested for a while.
    pub(crate) fn close_idle(&self, now: Nanos) {
        let has_copies = self.long_copies.drop_unused(now);
        let is_left = self.directories().fold(has_copies, |is_left, site| {
            // No short circuit: every site closes its own.
            site.close_idle(now) | is_left
        });
        self.has_live.set(is_left);
    }

    /// Closes files kept open for later requests, the oldest first. False if none is open.
    pub(crate) fn drop_descriptors(&self) -> bool {
        self.sites.iter().any(|site| match site {
            Site::Archive(archive) => archive.current.bodies.drop_descriptors(),
            Site::Directory(directory) => directory.drop_descriptors(),
        })
    }

    /// Drops all cached content of the sites.
    pub(crate) fn forget(&self) {
        self.long_copies.forget();
        self.directories().for_each(|site| site.forget());
        self.forget_bodies();
    }

    /// Has the caches of all sites age, if they have used up their room. Returns bytes of huge pages that no copy
    /// has.
    #[inline]
    pub(crate) fn fit_caches<D: Driver>(&self, driver: &mut D) -> u64 {
        let lost = self.take_lost(driver);
        match self.pool.is_due() {
            true => self.age_caches(driver),
            false => lost,
        }
    }

    fn take_lost<D: Driver>(&self, driver: &mut D) -> u64 {
        let lost = driver.share_copies(self.pool.memory() / SHARED_PAGES_PART);
        self.pool.set_taken(self.long_copies.taken() + lost);
        lost
    }

    /// Whether caches continue to age in the next turn.
    pub(crate) fn is_ageing(&self) -> bool {
        self.pool.is_due()
    }

    #[cold]
    fn age_caches<D: Driver>(&self, driver: &mut D) -> u64 {
        let own = self.pool.own();
        let mut aged = 0;
        while self.pool.is_due()
            && let Some(mut ageing) = self.pool.begin()
        {
            for (&place, (_, numbers)) in self.contents.range(ageing.next..) {
                if aged > AGED_PER_TURN_MAX {
                    ageing.next = place;
                    self.pool.go_on(ageing);
                    return self.take_lost(driver);
                }
                // The sites of one content share a cache.
                if let Some(site) = self.sites[numbers.clone()].first() {
                    let held = site.age(&ageing);
                    aged += held.memory;
                    ageing.kept = ageing.kept + held.within(own);
                }
            }
            self.pool.end(ageing);
            // A dropped copy whose page others have leaves less room.
            self.take_lost(driver);
        }
        self.take_lost(driver)
    }

    /// Drops bodies that were read or decoded, except those still being sent.
    pub(crate) fn forget_bodies(&self) {
        for site in &self.sites {
            match site {
                Site::Archive(archive) => archive.current.bodies.forget(),
                Site::Directory(directory) => directory.forget_bodies(),
            }
        }
    }

    /// Live directories.
    pub(crate) fn directory_count(&self) -> usize {
        self.directories().count()
    }

    /// Bytes of memory of what is known about their folders.
    pub(crate) fn folder_memory(&self) -> u64 {
        self.directories().map(DirectorySite::folder_memory).sum()
    }

    /// Bytes of copies of longer files.
    pub(crate) fn long_copies(&self) -> u64 {
        self.long_copies.held()
    }

    /// How many bytes copies of longer files may have.
    pub(crate) fn long_max(&self) -> u64 {
        match self.directory_count() {
            0 => 0,
            _ => self.long_copies.max(),
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
    /// Has its cache age. Returns what that had.
    fn age(&self, ageing: &Ageing) -> Room {
        match self {
            Self::Archive(archive) => archive.current.bodies.age(ageing),
            Self::Directory(directory) => directory.age(ageing),
        }
    }

    /// The site's own rules, if it has any.
    #[inline]
    pub(crate) fn rules(&self) -> Option<&SiteRules> {
        match self {
            Self::Archive(archive) => archive.current.rules.as_deref(),
            Self::Directory(directory) => directory.rules(),
        }
    }
}

impl Generations {
    /// Sets the other releases of a worker's `sites` of this content.
    fn add_others(&self, sites: &mut [Site], worker: usize) {
        let hosts = match &self.current.what {
            CheckedContent::Archive(archive) => &archive.hosts,
            CheckedContent::Directory(_) => return,
        };
        let others = self.others.iter().map(|opened| {
            // Kept answers are rare: their bodies are not cached.
            let sites = ArchiveSite::all(opened, worker, Bodies::uncached()).map(Rc::new);
            (opened, sites.collect::<Vec<_>>())
        });
        let others: Vec<_> = others.collect();
        for (site, (_, names, _)) in sites.iter_mut().zip(hosts) {
            let Site::Archive(archived) = site else {
                continue;
            };
            let of_host = others.iter().filter_map(|(opened, sites)| {
                let number = opened.hosts.iter().position(|(_, own, _)| own == names)?;
                Some(Rc::clone(&sites[number]))
            });
            archived.others = of_host.collect();
        }
    }
}

impl OpenedContent {
    /// A worker's sites of this content, whose caches have room in `pool`.
    fn sites(&self, worker: usize, pool: &Rc<Pool>, long_copies: &Arc<LongCopies>) -> Vec<Site> {
        match &self.what {
            CheckedContent::Directory(directory) => {
                let site = DirectorySite::new(directory, worker, pool, long_copies);
                vec![Site::Directory(Rc::new(site))]
            }
            CheckedContent::Archive(archive) => {
                let sites = ArchiveSite::all(archive, worker, Bodies::with_room(pool));
                let archived = |site| Archived {
                    current: Rc::new(site),
                    others: Rc::default(),
                };
                sites.map(|site| Site::Archive(archived(site))).collect()
            }
        }
    }

    /// The names of each of its sites.
    fn host_lists(&self) -> Vec<SiteNames<'_>> {
        match &self.what {
            CheckedContent::Directory(_) => vec![Cow::Borrowed(&self.hosts)],
            CheckedContent::Archive(archive) => {
                let hosts = archive.hosts.iter();
                let prefix = prefix_of(&self.hosts);
                // An archive's own host names take precedence over configured ones.
                let names = hosts.map(|(_, own, _)| match (own.is_empty(), prefix) {
                    (true, _) => Cow::Borrowed(&self.hosts[..]),
                    (false, "") => Cow::Borrowed(&own[..]),
                    (false, _) => own.iter().map(|host| format!("{host}{prefix}")).collect(),
                });
                names.collect()
            }
        }
    }
}

/// The site of these that answers for all hosts that none has, if it is to, or the status.
fn of_unknown_hosts(answer: UnknownHost, names: &[SiteNames<'_>]) -> Result<usize, Status> {
    let default = names.iter().position(|it| it.is_empty());
    match (answer, default) {
        (UnknownHost::Ignore, default) => {
            // A site with a prefix has no other paths.
            let first = || names.iter().position(|it| prefix_of(it).is_empty());
            default.or_else(first).ok_or(Status::NOT_FOUND)
        }
        (UnknownHost::Default, Some(default)) => Ok(default),
        (UnknownHost::NotFound, _) => Err(Status::NOT_FOUND),
        (UnknownHost::Default | UnknownHost::Misdirected, _) => Err(Status::MISDIRECTED_REQUEST),
    }
}

/// The names of a site: hosts, each perhaps with a prefix of paths.
type SiteNames<'a> = Cow<'a, [String]>;

/// Whether a path starts with a prefix, by whole segments.
fn is_below(prefix: &[u8], path: &[u8]) -> bool {
    let rest = path.strip_prefix(prefix);
    rest.is_some_and(|rest| rest.first().is_none_or(|byte| *byte == b'/'))
}

/// A name as a host, empty for all, and a prefix of paths, empty for all.
fn split_name(name: &str) -> (&str, &str) {
    name.split_at(name.find('/').unwrap_or(name.len()))
}

/// The prefix of the names of a site, all of which have the same.
fn prefix_of(names: &[String]) -> &str {
    names.first().map_or("", |name| split_name(name).1)
}
