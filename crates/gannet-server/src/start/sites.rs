//! Sites that are opened at the first request: the entries of a folder with one for each of many hosts.
//!
//! ```text
//!   named ──request──▶ opening ──▶ open ──idle, or too many──▶ named
//!                         └──▶ failed, for some seconds ──▶ named
//! ```
//!
//! Workers have the table of names. For a host in it without an open site they queue a question, and
//! the request waits. A thread opens the site, publishes a release that has it, and tells the workers.
//! Another thread looks for changes: of the folder, by its own metadata, and of each open site, by
//! the followers that every site has. It closes what was not asked for.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use gannet_http::semantics::status::Status;
use gannet_io::descriptors;
use gannet_io::driver::Root;
use gannet_io::named_file;
use gannet_io::process::lower_priority;
use gannet_store::Store;

use crate::coder::Coder;
use crate::config::{Content, Hosted, Many};
use crate::limits::{
    APPLIED_MS, LOOKS_PART, OPEN_SITES_MAX, OPEN_SITES_MIN, SITE_DESCRIPTORS,
    SITE_DESCRIPTORS_PART, SITE_FAILED_S, SITE_IDLE_S, SITE_OPENERS, SITE_QUEUE_MAX, SITES_LOOK_MS,
};
use crate::release::opened::{Generations, OpenedContent};
use crate::start::follow;
use crate::start::lookout::{Lookout, Stamp};
use crate::start::open::{Followed, OpenError, Opening};
use crate::start::releases::{self, Surroundings};
use crate::start::running::Remote;
use crate::start::sandbox::Readable;
use crate::worker::Message;

/// Hosts with their entries.
type Table = HashMap<Arc<[u8]>, Content, foldhash::fast::RandomState>;

/// The hosts whose sites are opened when they are asked for, as workers know them.
#[derive(Clone)]
pub(crate) struct Named {
    table: Arc<Table>,
    asks: SyncSender<Ask>,
}

/// A worker wants the site of a host.
pub(crate) struct Ask {
    worker: usize,
    host: Arc<[u8]>,
}

impl Named {
    /// The host as the table has it.
    pub(crate) fn host(&self, host: &[u8]) -> Option<&Arc<[u8]>> {
        self.table.get_key_value(host).map(|(host, _)| host)
    }

    /// Queues a question; false if too many are queued.
    pub(crate) fn ask(&self, worker: usize, host: &Arc<[u8]>) -> bool {
        let host = Arc::clone(host);
        self.asks.try_send(Ask { worker, host }).is_ok()
    }
}

/// Sites that nobody opens yet.
pub(crate) struct Waiting {
    many: Many,
    stamp: Option<Stamp>,
    table: Arc<Table>,
    asked: Receiver<Ask>,
    next_place: usize,
    open_max: usize,
}

/// How many of these sites may be open at a time besides those that are opened at the start: all of
/// them, or some that may come, within the descriptors of the process.
fn open_max(many: &Many, workers: usize) -> usize {
    let each = workers as u64 + SITE_DESCRIPTORS;
    let fit = descriptors::limit() / SITE_DESCRIPTORS_PART / each;
    let fit = usize::try_from(fit).unwrap_or(OPEN_SITES_MAX);
    let fit = fit.clamp(OPEN_SITES_MIN, OPEN_SITES_MAX);
    match many.are_opened_at_start() {
        true => OPEN_SITES_MIN,
        false => many.found.len().min(fit),
    }
}

impl Waiting {
    /// The sites of a folder; contents from `next_place` on are theirs.
    pub(crate) fn new(many: Many, next_place: usize, workers: usize) -> (Self, Named) {
        let (asks, asked) = sync_channel(SITE_QUEUE_MAX);
        let table = Arc::new(table(&many.found));
        let waiting = Self {
            // The entries were read before: the first look reads them again.
            stamp: None,
            table: Arc::clone(&table),
            open_max: open_max(&many, workers),
            many,
            asked,
            next_place,
        };
        (waiting, Named { table, asks })
    }

    /// How many may be open at a time.
    pub(crate) fn open_max(&self) -> usize {
        self.open_max
    }

    /// Starts the threads, which live as long as the process: one may hang in a file system.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub(crate) fn start(
        self,
        surroundings: &Surroundings,
        coder: &Arc<Coder>,
        remotes: &[Remote],
        readable: Option<Readable>,
    ) -> io::Result<Lookout> {
        let sites = Arc::new(Sites {
            many: self.many,
            surroundings: surroundings.clone(),
            coder: Arc::clone(coder),
            remotes: remotes.to_vec(),
            readable,
            open_max: self.open_max,
            state: Mutex::new(State {
                table: self.table,
                stamp: self.stamp,
                is_settled: false,
                open: HashMap::new(),
                opening: HashMap::new(),
                failed: HashMap::new(),
                next_place: self.next_place,
                shortage_told: None,
            }),
        });
        let asked = Arc::new(Mutex::new(self.asked));
        for _ in 0..SITE_OPENERS {
            let (sites, asked) = (Arc::clone(&sites), Arc::clone(&asked));
            let work = move || {
                // Opening must not delay answers.
                let _ = lower_priority();
                loop {
                    let ask = asked.lock().unwrap_or_else(PoisonError::into_inner).recv();
                    let Ok(ask) = ask else { return };
                    sites.answer(ask);
                }
            };
            thread::Builder::new()
                .name("gannet-opener".into())
                .spawn(work)?;
        }
        let every = Duration::from_millis(SITES_LOOK_MS);
        Lookout::start("gannet-sites", every, LOOKS_PART, move |is_asked| {
            sites.look(is_asked);
        })
    }
}

fn table(found: &[Hosted]) -> Table {
    let mut table = Table::default();
    for Hosted { hosts, content } in found {
        for host in hosts {
            table.insert(host.as_bytes().into(), content.clone());
        }
    }
    table
}

/// All sites of a folder.
struct Sites {
    many: Many,
    surroundings: Surroundings,
    coder: Arc<Coder>,
    remotes: Vec<Remote>,
    readable: Option<Readable>,
    /// Sites that may be open.
    open_max: usize,
    state: Mutex<State>,
}

struct State {
    table: Arc<Table>,
    /// The folder when it was last read.
    stamp: Option<Stamp>,
    /// It was read twice since it changed: a change within the same moment would show in no stamp.
    is_settled: bool,
    open: HashMap<Arc<[u8]>, OpenSite>,
    /// Hosts whose sites are being opened, with the workers that want them.
    opening: HashMap<Arc<[u8]>, Vec<usize>>,
    failed: HashMap<Arc<[u8]>, Failed>,
    /// The place of the next site among the contents. None is used twice.
    next_place: usize,
    /// When it was last told that descriptors or memory are used up.
    shortage_told: Option<Instant>,
}

struct OpenSite {
    place: usize,
    /// What was opened.
    content: Content,
    /// Set by workers.
    is_used: Arc<AtomicBool>,
    /// When that was last seen.
    used: Instant,
    /// Follows it, and has descriptors of it: it goes with the site. `None` while it looks.
    follower: Option<Follower>,
}

impl OpenSite {
    /// Takes note of requests since the last time.
    fn note_use(&mut self, now: Instant) {
        if self.is_used.swap(false, Ordering::Relaxed) {
            self.used = now;
        }
    }

    fn is_idle(&self, now: Instant) -> bool {
        now.duration_since(self.used) >= Duration::from_secs(SITE_IDLE_S)
    }
}

struct Failed {
    until: Instant,
    status: Status,
    /// What was told.
    text: String,
}

/// Follows one open site.
enum Follower {
    Directory(Box<follow::Follower>),
    Releases(Box<releases::Follower>),
}

impl Follower {
    fn look(&mut self, is_asked: bool) {
        match self {
            Self::Directory(follower) => follower.look(is_asked),
            Self::Releases(follower) => follower.look(is_asked),
        }
    }
}

impl Sites {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, worker: usize, host: &Arc<[u8]>, opened: Result<(), Status>) {
        if let Some(remote) = self.remotes.get(worker) {
            remote.tell(Message::SiteOpened(Arc::clone(host), opened));
        }
    }

    /// Answers a worker's question, or leaves that to the thread that is about to.
    fn answer(&self, Ask { worker, host }: Ask) {
        let content = {
            let mut state = self.state();
            let failed = state.failed.get(&host);
            let failed = failed.filter(|it| Instant::now() < it.until);
            if let Some(status) = failed.map(|it| it.status) {
                return self.tell(worker, &host, Err(status));
            }
            if let Some(workers) = state.opening.get_mut(&host) {
                workers.push(worker);
                return;
            }
            let content = state.table.get(&host).cloned();
            // If it is open, or gone, the worker has been told of that before this.
            let Some(content) = content.filter(|_| !state.open.contains_key(&host)) else {
                return self.tell(worker, &host, Ok(()));
            };
            state.opening.insert(Arc::clone(&host), vec![worker]);
            content
        };
        let opened = self.open(&host, &content);
        let workers = self.state().opening.remove(&host);
        for worker in workers.into_iter().flatten() {
            self.tell(worker, &host, opened);
        }
    }

    /// Opens a site and publishes it.
    fn open(&self, host: &Arc<[u8]>, content: &Content) -> Result<(), Status> {
        let options = &self.surroundings.options;
        let name = String::from_utf8_lossy(host);
        let opening = Opening {
            options,
            workers: self.surroundings.workers,
            room: &self.surroundings.room,
            coder: Some(&self.coder),
            host: Some(&name),
        };
        let real = real(content.clone());
        let opened = self.inside(&real).and_then(|()| opening.open(&real));
        let (what, followed) = opened.map_err(|error| self.failed(host, &error))?;
        let generations = Generations::only(OpenedContent {
            hosts: vec![name.clone().into_owned()],
            what,
        });
        let published = &self.surroundings.published;
        let current = Arc::clone(&generations.current);
        let is_used = Arc::new(AtomicBool::new(true));
        let mut state = self.state();
        if state.table.get(host) != Some(content) {
            // It was replaced meanwhile: the next request finds what is there.
            return Err(Status::SERVICE_UNAVAILABLE);
        }
        state.failed.remove(host);
        let place = state.next_place;
        state.next_place += 1;
        let closed = state.make_room(self.open_max, Instant::now());
        let applied = published.publish(|opened| {
            if let Some(OpenSite { place, .. }) = &closed {
                opened.contents.remove(place);
                opened.uses.remove(place);
            }
            opened.contents.insert(place, generations);
            opened.uses.insert(place, Arc::clone(&is_used));
        });
        let follower = match followed {
            Followed::Directory(source) => {
                let follower = follow::Follower::new(source, place, Arc::clone(published));
                Follower::Directory(Box::new(follower.within(self.readable.clone())))
            }
            Followed::Releases(origin) => {
                let source = releases::Source {
                    place,
                    name: real.clone().into_path(),
                    origin,
                    host: Some(name.into_owned()),
                };
                let surroundings = self.surroundings.clone();
                let follower = releases::Follower::new(source, current, surroundings);
                Follower::Releases(Box::new(follower))
            }
        };
        let site = OpenSite {
            place,
            content: real,
            is_used,
            used: Instant::now(),
            follower: Some(follower),
        };
        state.open.insert(Arc::clone(host), site);
        drop(state);
        if let Some(closed) = closed {
            drop(closed);
            // Until no worker has it any more: openings do not run ahead of what is closed for them.
            applied.wait(Duration::from_millis(APPLIED_MS));
        }
        Ok(())
    }

    /// Checks that an archive or a store is in the folder: a link that leads out of it is not served.
    /// Directories are opened in a way that follows none.
    fn inside(&self, content: &Content) -> Result<(), OpenError> {
        let (Content::Archive(path) | Content::Store(path)) = content else {
            return Ok(());
        };
        let name = path.file_name().unwrap_or_default();
        let found = Root::open(&self.many.folder)
            .and_then(|root| named_file::metadata_below(&root, Path::new(name)));
        found
            .map(drop)
            .map_err(|error| OpenError::Io("site", path.clone(), error))
    }

    /// Notes why a site cannot be opened, and tells it unless that was told last.
    fn failed(&self, host: &Arc<[u8]>, error: &OpenError) -> Status {
        let status = match error {
            OpenError::Other(_) => Status::SERVICE_UNAVAILABLE,
            // A disk, a right, or a resource.
            _ if error.of_system().is_some() => Status::SERVICE_UNAVAILABLE,
            _ => Status::INTERNAL_SERVER_ERROR,
        };
        let help = error.help().map(|help| format!("\nhelp: {help}"));
        let host_shown = String::from_utf8_lossy(host);
        let text = format!(
            "gannet: no site for '{host_shown}': {error}{}",
            help.unwrap_or_default()
        );
        let now = Instant::now();
        let pause = Duration::from_secs(SITE_FAILED_S);
        if error.is_shortage() {
            // Not the site's fault: the next request may find what is missing.
            let mut state = self.state();
            let told = state.shortage_told;
            if told.is_none_or(|told| now.duration_since(told) >= pause) {
                state.shortage_told = Some(now);
                self.surroundings.messages.tell(format_args!("{text}"));
            }
            return status;
        }
        let until = now + pause;
        let failed = Failed {
            until,
            status,
            text,
        };
        let mut state = self.state();
        let before = state.failed.get(host);
        if before.is_none_or(|before| before.text != failed.text) {
            self.surroundings
                .messages
                .tell(format_args!("{}", failed.text));
        }
        state.failed.insert(Arc::clone(host), failed);
        status
    }

    /// Looks for changes, and closes what is idle.
    fn look(&self, is_asked: bool) {
        self.read_folder(is_asked);
        self.close();
        let state = self.state();
        let open = state.open.iter();
        let open: Vec<_> = open
            .map(|(host, site)| (Arc::clone(host), site.place))
            .collect();
        drop(state);
        for (host, place) in open {
            let taken = self.state().take_follower(&host, place);
            if let Some(mut follower) = taken {
                follower.look(is_asked);
                self.state().put_back(follower, &host, place);
            }
        }
    }

    /// Reads the names again if the folder has changed.
    fn read_folder(&self, is_asked: bool) {
        let stamp = Stamp::of(&self.many.folder);
        let mut state = self.state();
        let is_same = state.stamp == stamp;
        if is_asked {
            state.failed.clear();
        }
        // A folder that is gone for a moment keeps its sites.
        if (is_same && state.is_settled && !is_asked) || stamp.is_none() {
            return;
        }
        drop(state);
        let Ok(found) = (self.many.find)(&self.many.folder) else {
            return;
        };
        let next = Arc::new(table(&found));
        let mut state = self.state();
        state.is_settled = is_same;
        state.stamp = stamp;
        if *next == *state.table {
            return;
        }
        // Workers know the names first: whoever reads that a host is gone finds it gone.
        self.surroundings.published.publish(|opened| {
            if let Some(named) = &mut opened.named {
                named.table = Arc::clone(&next);
            }
        });
        state.failed.retain(|host, _| next.contains_key(host));
        state.table = next;
    }

    /// Closes sites that are gone, lead elsewhere now, or were not asked for.
    fn close(&self) {
        let state = self.state();
        let look = |(host, site): (&Arc<[u8]>, &OpenSite)| {
            let entry = state.table.get(host).cloned();
            let is_named =
                entry.is_some_and(|it| it.into_path() == site.content.clone().into_path());
            (site.place, (site.content.clone(), is_named))
        };
        let mut looked: HashMap<usize, (Content, bool)> = state.open.iter().map(look).collect();
        drop(state);
        // This may take a while.
        for (content, is_there) in looked.values_mut() {
            *is_there &= real_of(content) == *content && self.inside(content).is_ok();
        }
        let now = Instant::now();
        let mut state = self.state();
        let is_gone = |_: &Arc<[u8]>, site: &mut OpenSite| {
            site.note_use(now);
            // One that was opened meanwhile is looked at the next time.
            let is_there = looked
                .get(&site.place)
                .is_none_or(|(_, is_there)| *is_there);
            !is_there || site.is_idle(now)
        };
        let gone: Vec<_> = state.open.extract_if(is_gone).collect();
        if gone.is_empty() {
            return;
        }
        self.surroundings.published.publish(|opened| {
            for (_, OpenSite { place, .. }) in &gone {
                opened.contents.remove(place);
                opened.uses.remove(place);
            }
        });
    }
}

impl State {
    /// Takes out the site to close if another one is opened: the one that was asked for longest ago.
    fn make_room(&mut self, open_max: usize, now: Instant) -> Option<OpenSite> {
        if self.open.len() < open_max {
            return None;
        }
        self.open.values_mut().for_each(|site| site.note_use(now));
        let sites = self.open.iter();
        let oldest = sites.min_by_key(|(_, site)| (site.used, site.place));
        let host = oldest.map(|(host, _)| Arc::clone(host))?;
        self.open.remove(&host)
    }

    /// The follower of the site at this place, to look without keeping others from the state.
    fn take_follower(&mut self, host: &[u8], place: usize) -> Option<Follower> {
        let site = self.open.get_mut(host)?;
        site.follower.take_if(|_| site.place == place)
    }

    /// Returns it, unless its site was closed meanwhile.
    fn put_back(&mut self, follower: Follower, host: &[u8], place: usize) {
        let site = self.open.get_mut(host);
        if let Some(site) = site.filter(|site| site.place == place) {
            site.follower = Some(follower);
        }
    }
}

/// What an entry is: a folder may be a store.
fn real(content: Content) -> Content {
    match content {
        Content::HostFolder(path) if Store::is_store(&path) => Content::Store(path),
        content => content,
    }
}

/// What is at the path of an open site now.
fn real_of(content: &Content) -> Content {
    match content {
        Content::Store(path) => real(Content::HostFolder(path.clone())),
        content => real(content.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_site_that_was_asked_for_longest_ago_makes_room() {
        let begun = Instant::now();
        let site = |place| OpenSite {
            place,
            content: Content::HostFolder("site".into()),
            is_used: Arc::default(),
            used: begun,
            follower: None,
        };
        let name = |place: usize| Arc::from(place.to_string().as_bytes());
        let mut state = State {
            table: Arc::default(),
            stamp: None,
            is_settled: false,
            open: (0..3).map(|place| (name(place), site(place))).collect(),
            opening: HashMap::new(),
            failed: HashMap::new(),
            next_place: 3,
            shortage_told: None,
        };
        let make_room = |state: &mut State, open_max, now| {
            let closed = state.make_room(open_max, now);
            closed.map(|site| site.place)
        };
        assert_eq!(make_room(&mut state, 4, begun), None, "there is room");
        let later = begun + Duration::from_secs(SITE_IDLE_S);
        state.open[&name(0)].is_used.store(true, Ordering::Relaxed);
        assert_eq!(make_room(&mut state, 3, later), Some(1));
        let is_idle = |state: &State, place| state.open[&name(place)].is_idle(later);
        assert!(!is_idle(&state, 0), "a request came");
        assert!(is_idle(&state, 2));
        assert_eq!(make_room(&mut state, 2, later), Some(2));
        let last = make_room(&mut state, 1, later);
        assert_eq!(last, Some(0), "all were asked for");
    }
}
