//! The sites of a folder of hosts: named, being opened, open, or failed.
//!
//! Nothing here waits for a disk with the state in its hands, or has threads: they are in the module
//! above. The time is an argument.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gannet_http::semantics::status::Status;

use super::at_start::unanswered;
use super::entries::{Entries, Follow, OpenedEntry};
use super::openings::{GivenUp, Number, Openings};
use crate::bounds::limits::{SITE_FAILED_S, SITE_IDLE_S, SITE_WAIT_S};
use crate::config::Content;
use crate::ground::inbox::Message;
use crate::ground::inbox::Remote;
use crate::release::on_demand::{Ask, HostTable};
use crate::release::opened::{Generations, OpenedContent};
use crate::start::open::OpenError;
use crate::start::published::Published;
use crate::tls::on_demand::OnDemand;
use crate::watch::lookout::Stamp;
use crate::watch::notices::Channel;

/// See the module documentation.
pub(crate) struct Sites {
    entries: Box<dyn Entries>,
    published: Arc<Published>,
    remotes: Vec<Remote>,
    messages: &'static Channel,
    /// How long an opening waits for the workers to let go of the site that was closed for it.
    patience: Duration,
    /// Sites that may be open.
    open_max: usize,
    on_demand: Option<OnDemand>,
    state: Mutex<SetState>,
    /// Threads that open sites may have something to do.
    work: Condvar,
}

/// What a set of sites starts with.
pub(crate) struct Beginning {
    pub(crate) table: Arc<HostTable>,
    /// The place of the first site among the contents.
    pub(crate) next_place: usize,
    pub(crate) open_max: usize,
    /// Receives the hosts.
    pub(crate) on_demand: Option<OnDemand>,
    /// See [`Sites::patience`].
    pub(crate) patience: Duration,
}

struct SetState {
    table: Arc<HostTable>,
    /// The folder when it was last read. At first none is known: the first look reads it again.
    stamp: Option<Stamp>,
    /// It was read twice since it changed: a change within the same moment would show in no stamp.
    is_settled: bool,
    /// A thread is reading it.
    is_read: bool,
    open: HashMap<Arc<[u8]>, OpenSite>,
    openings: Openings,
    failed: HashMap<Arc<[u8]>, Failed>,
    /// The place of the next site among the contents. None is used twice.
    next_place: usize,
    /// When it was last reported that what openings need is used up.
    shortage_reported: Option<Instant>,
}

struct OpenSite {
    place: usize,
    /// What was opened.
    content: Content,
    /// Set by workers.
    is_used: Arc<AtomicBool>,
    /// When that was last seen.
    used: Instant,
    /// It was found gone.
    is_gone: bool,
    /// Follows it, and has descriptors of it: it goes with the site. `None` while it looks.
    follower: Option<Box<dyn Follow>>,
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
    /// What was reported.
    text: String,
}

/// Certificates are ordered for these hosts if they are requested.
fn pass_names(on_demand: Option<&OnDemand>, table: &Arc<HostTable>) {
    if let Some(on_demand) = on_demand {
        let table = Arc::clone(table);
        on_demand.know(Arc::new(move |host| table.contains_key(host.as_bytes())));
    }
}

/// A site that a thread has begun to open.
pub(crate) struct OpenTask {
    host: Arc<[u8]>,
    number: Number,
    entry: Content,
}

impl Sites {
    pub(crate) fn new(
        entries: Box<dyn Entries>,
        published: Arc<Published>,
        (remotes, messages): (Vec<Remote>, &'static Channel),
        beginning: Beginning,
    ) -> Self {
        pass_names(beginning.on_demand.as_ref(), &beginning.table);
        Self {
            entries,
            published,
            remotes,
            messages,
            patience: beginning.patience,
            open_max: beginning.open_max,
            on_demand: beginning.on_demand,
            state: Mutex::new(SetState {
                table: beginning.table,
                stamp: None,
                is_settled: false,
                is_read: false,
                open: HashMap::new(),
                openings: Openings::default(),
                failed: HashMap::new(),
                next_place: beginning.next_place,
                shortage_reported: None,
            }),
            work: Condvar::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, SetState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer(&self, workers: &[usize], host: &Arc<[u8]>, opened: Result<(), Status>) {
        for remote in workers
            .iter()
            .filter_map(|worker| self.remotes.get(*worker))
        {
            remote.send(Message::SiteOpened(Arc::clone(host), opened));
        }
    }

    /// Answers a worker's question, or has it wait for the site.
    pub(crate) fn ask(&self, ask: &Ask, now: Instant) {
        let Ask { worker, host, .. } = ask;
        let since = now.checked_sub(ask.waited).unwrap_or(now);
        let mut state = self.state();
        let failed = state.failed.get(host).filter(|it| now < it.until);
        let answer = if let Some(failed) = failed {
            Err(failed.status)
        } else if state.open.contains_key(host) || !state.table.contains_key(host) {
            // The worker has learned that before this.
            Ok(())
        } else if state.openings.ask(*worker, host, (since, now)) {
            return;
        } else {
            Err(Status::SERVICE_UNAVAILABLE)
        };
        drop(state);
        self.answer(&[*worker], host, answer);
    }

    /// Takes the next site to be opened, if there is one and not too many are being opened.
    pub(crate) fn begin(&self, now: Instant) -> Option<OpenTask> {
        self.begin_one(&mut self.state(), now)
    }

    fn begin_one(&self, state: &mut SetState, now: Instant) -> Option<OpenTask> {
        loop {
            let (host, number) = state.openings.begin(now)?;
            if let Some(entry) = state.table.get(&host).cloned() {
                return Some(OpenTask {
                    host,
                    number,
                    entry,
                });
            }
            // It is gone, as workers know.
            let workers = state.openings.end(&host, number);
            self.answer(&workers, &host, Ok(()));
        }
    }

    /// Waits for the next site to be opened; `None` if the thread is not needed any more.
    pub(super) fn wait_for_work(&self) -> Option<OpenTask> {
        let mut state = self.state();
        loop {
            if let Some(begun) = self.begin_one(&mut state, Instant::now()) {
                return Some(begun);
            }
            if state.openings.dismiss() {
                return None;
            }
            state = self
                .work
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Counts one more thread that waits for work.
    pub(super) fn hired(&self) {
        self.state().openings.hired();
    }

    /// Wakes threads for what may be opened now; whether one more is needed, which is counted.
    pub(crate) fn hires(&self, now: Instant) -> bool {
        let mut state = self.state();
        for _ in 0..state.openings.ready(now) {
            self.work.notify_one();
        }
        state.openings.hire(now)
    }

    /// It could not be started.
    pub(super) fn not_hired(&self) {
        self.state().openings.not_hired();
    }

    /// Whether a request waits for a site.
    pub(super) fn are_waited_for(&self) -> bool {
        self.state().openings.are_waited_for()
    }

    /// Opens a site: this may take long.
    pub(crate) fn open(&self, begun: &OpenTask) -> Result<OpenedEntry, OpenError> {
        let host = String::from_utf8_lossy(&begun.host);
        self.entries.open(&host, &begun.entry)
    }

    /// Publishes a site that was opened, or notes why it was not, and answers those who wait.
    pub(crate) fn end(
        &self,
        begun: OpenTask,
        opened: Result<OpenedEntry, OpenError>,
        now: Instant,
    ) {
        let OpenTask { host, number, .. } = &begun;
        let answer = match opened {
            Ok(entry) => self.publish(&begun, entry, now),
            // It is not requested any more.
            Err(_) if !self.state().openings.is_current(host, *number) => Ok(()),
            Err(error) => Err(self.failed(host, &error, now)),
        };
        self.answer_waiting(&begun, answer);
    }

    /// Answers those who wait for a site. By then it may be closed again, for others.
    pub(crate) fn answer_waiting(&self, begun: &OpenTask, answer: Result<(), Status>) {
        let workers = self.state().openings.end(&begun.host, begun.number);
        self.answer(&workers, &begun.host, answer);
    }

    fn publish(&self, begun: &OpenTask, opened: OpenedEntry, now: Instant) -> Result<(), Status> {
        let OpenTask {
            host,
            number,
            entry,
        } = begun;
        let generations = Generations::only(OpenedContent {
            hosts: vec![String::from_utf8_lossy(host).into_owned()],
            what: opened.what,
        });
        let current = Arc::clone(&generations.current);
        let is_used = Arc::new(AtomicBool::new(true));
        let mut state = self.state();
        let is_current = state.openings.is_current(host, *number);
        if !is_current || state.table.get(host) != Some(entry) {
            // It was replaced meanwhile: the next request finds what is there.
            return Err(Status::SERVICE_UNAVAILABLE);
        }
        state.failed.remove(host);
        let place = state.next_place;
        state.next_place += 1;
        let closed = state.make_room(self.open_max, now);
        let applied = self.published.publish(|opened| {
            if let Some(OpenSite { place, .. }) = &closed {
                opened.contents.remove(place);
                opened.uses.remove(place);
            }
            opened.contents.insert(place, generations);
            opened.uses.insert(place, Arc::clone(&is_used));
        });
        let site = OpenSite {
            place,
            content: opened.content,
            is_used,
            used: now,
            is_gone: false,
            follower: Some((opened.follow)(place, current)),
        };
        state.open.insert(Arc::clone(host), site);
        drop(state);
        if let Some(closed) = closed {
            drop(closed);
            // Until no worker has it any more: openings do not run ahead of what is closed for them.
            applied.wait(self.patience);
        }
        Ok(())
    }

    /// Notes why a site cannot be opened, and reports it unless that was reported last.
    fn failed(&self, host: &Arc<[u8]>, error: &OpenError, now: Instant) -> Status {
        let status = match error {
            OpenError::Other(_) => Status::SERVICE_UNAVAILABLE,
            // A disk, a right, or a resource.
            _ if error.is_shortage() || error.of_system().is_some() => Status::SERVICE_UNAVAILABLE,
            _ => Status::INTERNAL_SERVER_ERROR,
        };
        let help = error.help().map(|help| format!("\nhelp: {help}"));
        let host_shown = String::from_utf8_lossy(host);
        let text = format!(
            "gannet: no site for '{host_shown}': {error}{}",
            help.unwrap_or_default()
        );
        if error.is_shortage() {
            // Not the site's fault: the next request may find what is missing.
            self.log_shortage(&text, now);
            return status;
        }
        let failed = Failed {
            until: now + PAUSE,
            status,
            text,
        };
        let mut state = self.state();
        let before = state.failed.get(host);
        if before.is_none_or(|before| before.text != failed.text) {
            self.messages.log(&failed.text);
        }
        state.failed.insert(Arc::clone(host), failed);
        status
    }

    /// Logs what many sites lack, once in a while.
    fn log_shortage(&self, text: &str, now: Instant) {
        let mut state = self.state();
        let reported = state.shortage_reported;
        if reported.is_none_or(|at| now.duration_since(at) >= PAUSE) {
            state.shortage_reported = Some(now);
            self.messages.log(text);
        }
    }

    /// Answers those who have waited too long.
    pub(crate) fn give_up(&self, now: Instant) {
        let given_up = self.state().openings.give_up(now);
        for GivenUp {
            host,
            workers,
            hangs,
        } in given_up
        {
            let name = String::from_utf8_lossy(&host);
            match hangs {
                true => self
                    .messages
                    .log(format_args!("gannet: {}", unanswered(&name))),
                false => self.log_shortage(
                    &format!(
                        "gannet: no site for '{name}': others have been opening for {SITE_WAIT_S} s, \
                         and hold it up\nhelp: see which disk or network file system does not answer"
                    ),
                    now,
                ),
            }
            self.answer(&workers, &host, Err(Status::SERVICE_UNAVAILABLE));
        }
    }

    /// Reads the names again if the folder has changed, unless another thread does. This may take long.
    pub(crate) fn read_folder(&self, is_asked: bool) {
        let mut state = self.state();
        if is_asked {
            state.failed.clear();
            // Those that hang may be of a file system that is mounted no more.
            state.openings.forget(|_| false, true);
        }
        if !std::mem::replace(&mut state.is_read, true) {
            drop(state);
            self.read_names(is_asked);
            self.state().is_read = false;
        }
    }

    fn read_names(&self, is_asked: bool) {
        let stamp = self.entries.stamp();
        let state = self.state();
        let is_same = state.stamp == stamp;
        // A folder that is gone for a moment keeps its sites.
        if (is_same && state.is_settled && !is_asked) || stamp.is_none() {
            return;
        }
        drop(state);
        let Ok(next) = self.entries.find().map(Arc::new) else {
            return;
        };
        let mut state = self.state();
        state.is_settled = is_same;
        state.stamp = stamp;
        if *next == *state.table {
            return;
        }
        // Workers know the names first: a worker that learns that a host is gone finds it gone.
        self.published.publish(|opened| {
            if let Some(hosts) = &mut opened.on_demand {
                hosts.set_table(Arc::clone(&next));
            }
        });
        pass_names(self.on_demand.as_ref(), &next);
        state.failed.retain(|host, _| next.contains_key(host));
        let before = std::mem::replace(&mut state.table, Arc::clone(&next));
        let is_other = |host: &Arc<[u8]>| before.get(host) != next.get(host);
        state.openings.forget(is_other, false);
    }

    /// The open sites that are not being looked at, with their places.
    pub(crate) fn to_look_at(&self) -> Vec<(Arc<[u8]>, usize)> {
        let state = self.state();
        let sites = state.open.iter();
        let sites = sites.filter(|(_, site)| site.follower.is_some());
        sites
            .map(|(host, site)| (Arc::clone(host), site.place))
            .collect()
    }

    /// Looks for changes of the site of a host, if it is the one at this place. This may take long.
    pub(crate) fn look_at(&self, host: &Arc<[u8]>, place: usize, is_asked: bool) {
        let Some((content, mut follower)) = self.state().take_follower(host, place) else {
            return;
        };
        let is_there = self.entries.is_there(&content);
        if is_there {
            follower.look(is_asked);
        }
        let left = self.state().put_back(follower, host, place, !is_there);
        // A file system may take long to close a file as well.
        drop(left);
    }

    /// Closes sites that are gone, lead elsewhere now, or were not asked for.
    pub(crate) fn close(&self, now: Instant) {
        let mut state = self.state();
        let table = Arc::clone(&state.table);
        let is_over = |host: &Arc<[u8]>, site: &mut OpenSite| {
            site.note_use(now);
            let entry = table.get(host).cloned();
            let path = site.content.clone().into_path();
            let is_named = entry.is_some_and(|entry| entry.into_path() == path);
            !is_named || site.is_gone || site.is_idle(now)
        };
        let closed: Vec<_> = state.open.extract_if(is_over).collect();
        if closed.is_empty() {
            return;
        }
        self.published.publish(|opened| {
            for (_, OpenSite { place, .. }) in &closed {
                opened.contents.remove(place);
                opened.uses.remove(place);
            }
        });
        drop(state);
        drop(closed);
    }
}

/// For this long, what has failed is not tried, and what has been reported not reported again.
const PAUSE: Duration = Duration::from_secs(SITE_FAILED_S);

impl SetState {
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

    /// What follows the site at this place, to look without keeping others from the state.
    fn take_follower(&mut self, host: &[u8], place: usize) -> Option<(Content, Box<dyn Follow>)> {
        let site = self.open.get_mut(host).filter(|it| it.place == place)?;
        Some((site.content.clone(), site.follower.take()?))
    }

    /// Gives it back to its site. Returned if that was closed meanwhile.
    fn put_back(
        &mut self,
        follower: Box<dyn Follow>,
        host: &[u8],
        place: usize,
        is_gone: bool,
    ) -> Option<Box<dyn Follow>> {
        let site = self.open.get_mut(host).filter(|it| it.place == place);
        let Some(site) = site else {
            return Some(follower);
        };
        site.is_gone |= is_gone;
        site.follower.replace(follower)
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
            is_gone: false,
            follower: None,
        };
        let name = |place: usize| Arc::from(place.to_string().as_bytes());
        let mut state = SetState {
            table: Arc::default(),
            stamp: None,
            is_settled: false,
            is_read: false,
            open: (0..3).map(|place| (name(place), site(place))).collect(),
            openings: Openings::default(),
            failed: HashMap::new(),
            next_place: 3,
            shortage_reported: None,
        };
        let make_room = |state: &mut SetState, open_max, now| {
            let closed = state.make_room(open_max, now);
            closed.map(|site| site.place)
        };
        assert_eq!(make_room(&mut state, 4, begun), None, "there is room");
        let later = begun + Duration::from_secs(SITE_IDLE_S);
        state.open[&name(0)].is_used.store(true, Ordering::Relaxed);
        assert_eq!(make_room(&mut state, 3, later), Some(1));
        let is_idle = |state: &SetState, place| state.open[&name(place)].is_idle(later);
        assert!(!is_idle(&state, 0), "a request came");
        assert!(is_idle(&state, 2));
        assert_eq!(make_room(&mut state, 2, later), Some(2));
        let last = make_room(&mut state, 1, later);
        assert_eq!(last, Some(0), "all were asked for");
    }
}
