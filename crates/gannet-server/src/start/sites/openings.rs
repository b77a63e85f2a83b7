//! Which sites are being opened, who waits for them, and for how long.
//!
//! ```text
//!   asked ──▶ queued ──thread──▶ begun ──▶ ended
//!               │                  │
//!               └──too long────────┴──▶ no request waits for it any more
//! ```
//!
//! A file system may hang, and then holds up the thread that opens a site on it. One that takes long no
//! longer counts among those that are opened at a time, so that others continue; one without waiting requests
//! any more is not asked for again until its thread comes back. So each such site costs one thread. An
//! opening is forgotten when there is something else in the site's place: what its thread brings is of no
//! use then.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::bounds::limits::{
    SITE_OPENERS, SITE_OPENERS_MAX, SITE_QUEUE_MAX, SITE_SLOW_MS, SITE_WAIT_S,
};

/// See the module documentation.
#[derive(Default)]
pub(super) struct Openings {
    /// Those that no thread has begun, in the order in which they were requested.
    queue: VecDeque<Arc<[u8]>>,
    all: HashMap<Arc<[u8]>, SiteOpening>,
    /// Threads that open sites, or wait for one to open.
    threads: usize,
    /// Of these, those whose opening was forgotten, until they come back.
    strays: usize,
    /// The number of the next opening.
    next: u64,
}

/// The number of an opening: a host may have another one later.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Number(u64);

struct SiteOpening {
    number: Number,
    asked: Instant,
    began: Option<Instant>,
    /// The workers that want it.
    workers: Vec<usize>,
}

impl SiteOpening {
    fn is_late(&self, now: Instant) -> bool {
        now.duration_since(self.asked) >= Duration::from_secs(SITE_WAIT_S)
    }

    fn is_slow(&self, now: Instant) -> bool {
        let slow = Duration::from_millis(SITE_SLOW_MS);
        let began = self.began;
        began.is_some_and(|began| now.duration_since(began) >= slow)
    }
}

/// A host for whose site no request waits any more, because it took too long.
pub(super) struct GivenUp {
    pub(super) host: Arc<[u8]>,
    pub(super) workers: Vec<usize>,
    /// A thread has begun with it, and is not back yet.
    pub(super) hangs: bool,
}

impl Openings {
    /// Has a worker wait for the site of a host, for a request that waits since a time. False if it
    /// cannot be opened in time.
    pub(super) fn ask(
        &mut self,
        worker: usize,
        host: &Arc<[u8]>,
        (since, now): (Instant, Instant),
    ) -> bool {
        if let Some(opening) = self.all.get_mut(host) {
            opening.asked = opening.asked.min(since);
            let may_wait = !opening.is_late(now);
            if may_wait && !opening.workers.contains(&worker) {
                opening.workers.push(worker);
            }
            return may_wait;
        }
        if self.queue.len() >= SITE_QUEUE_MAX || self.are_stuck(now) {
            return false;
        }
        let opening = SiteOpening {
            number: Number(self.next),
            asked: since,
            began: None,
            workers: vec![worker],
        };
        self.next += 1;
        self.all.insert(Arc::clone(host), opening);
        self.queue.push_back(Arc::clone(host));
        true
    }

    /// The next site for a thread to open; `None` while enough are being opened.
    pub(super) fn begin(&mut self, now: Instant) -> Option<(Arc<[u8]>, Number)> {
        if self.at_once(now) >= SITE_OPENERS {
            return None;
        }
        let host = self.queue.pop_front()?;
        let opening = self.all.get_mut(&host)?;
        opening.began = Some(now);
        Some((host, opening.number))
    }

    /// Whether an opening that was begun is still wanted.
    pub(super) fn is_current(&self, host: &[u8], number: Number) -> bool {
        self.all.get(host).is_some_and(|it| it.number == number)
    }

    /// A site was opened, or cannot be; the workers that wait for it.
    pub(super) fn end(&mut self, host: &[u8], number: Number) -> Vec<usize> {
        if !self.is_current(host, number) {
            self.strays -= 1;
            return Vec::new();
        }
        let opening = self.all.remove(host);
        opening.map_or(Vec::new(), |opening| opening.workers)
    }

    /// Forgets openings that were begun of what is no longer in a host's place, and, if they may be tried
    /// again, all without waiting requests. Those that wait continue, no longer than before.
    pub(super) fn forget(&mut self, is_other: impl Fn(&Arc<[u8]>) -> bool, may_try_again: bool) {
        let over = self.all.extract_if(|host, opening| {
            let is_over = is_other(host) || (may_try_again && opening.workers.is_empty());
            is_over && opening.began.is_some()
        });
        let over: Vec<_> = over.collect();
        self.strays += over.len();
        for (host, opening) in over {
            if opening.workers.is_empty() {
                continue;
            }
            let opening = SiteOpening {
                number: Number(self.next),
                began: None,
                ..opening
            };
            self.next += 1;
            self.all.insert(Arc::clone(&host), opening);
            self.queue.push_back(host);
        }
    }

    /// Those that have taken too long. What was not begun is not opened.
    pub(super) fn give_up(&mut self, now: Instant) -> Vec<GivenUp> {
        let late = self.all.iter_mut();
        let late = late.filter(|(_, it)| it.is_late(now) && !it.workers.is_empty());
        let given_up = late.map(|(host, opening)| GivenUp {
            host: Arc::clone(host),
            workers: std::mem::take(&mut opening.workers),
            hangs: opening.began.is_some(),
        });
        let given_up: Vec<_> = given_up.collect();
        if !given_up.is_empty() {
            let all = &self.all;
            let is_waited_for = |host: &Arc<[u8]>| {
                let workers = all.get(host).map(|opening| &opening.workers);
                workers.is_some_and(|workers| !workers.is_empty())
            };
            self.queue.retain(is_waited_for);
            let is_left = |it: &SiteOpening| it.began.is_some() || !it.workers.is_empty();
            self.all.retain(|_, opening| is_left(opening));
        }
        given_up
    }

    /// Whether a request waits.
    pub(super) fn are_waited_for(&self) -> bool {
        self.all.values().any(|it| !it.workers.is_empty())
    }

    /// How many may begin now.
    pub(super) fn ready(&self, now: Instant) -> usize {
        let may_begin = SITE_OPENERS.saturating_sub(self.at_once(now));
        self.queue.len().min(may_begin)
    }

    /// Counts one more thread if more are of use.
    pub(super) fn hire(&mut self, now: Instant) -> bool {
        let hires = self.ready(now) > self.idle() && self.threads < SITE_OPENERS_MAX;
        self.threads += usize::from(hires);
        hires
    }

    /// Counts a thread that ends, if more wait for work than can be of use.
    pub(super) fn dismiss(&mut self) -> bool {
        let dismisses = self.idle() > SITE_OPENERS;
        self.threads -= usize::from(dismisses);
        dismisses
    }

    /// Counts a thread that waits for work.
    pub(super) fn hired(&mut self) {
        self.threads += 1;
    }

    /// A thread could not be started.
    pub(super) fn not_hired(&mut self) {
        self.threads -= 1;
    }

    fn begun(&self) -> impl Iterator<Item = &SiteOpening> {
        self.all.values().filter(|it| it.began.is_some())
    }

    /// Those being opened that are not slow.
    fn at_once(&self, now: Instant) -> usize {
        self.begun().filter(|it| !it.is_slow(now)).count()
    }

    fn idle(&self) -> usize {
        self.threads - self.begun().count() - self.strays
    }

    /// Whether each of the threads there may be has been away for long.
    fn are_stuck(&self, now: Instant) -> bool {
        self.begun().filter(|it| it.is_slow(now)).count() + self.strays >= SITE_OPENERS_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOW: Duration = Duration::from_millis(SITE_SLOW_MS);
    const WAIT: Duration = Duration::from_secs(SITE_WAIT_S);

    fn host(number: usize) -> Arc<[u8]> {
        Arc::from(number.to_string().as_bytes())
    }

    /// The number of a host's opening.
    fn number(openings: &Openings, of: usize) -> Number {
        openings.all[&host(of)].number
    }

    /// Asks for a request that has just come.
    fn ask(openings: &mut Openings, worker: usize, host: &Arc<[u8]>, now: Instant) -> bool {
        openings.ask(worker, host, (now, now))
    }

    /// The thread that opens a host's site comes back.
    fn come_back(openings: &mut Openings, of: usize) -> Vec<usize> {
        let number = number(openings, of);
        openings.end(&host(of), number)
    }

    /// Threads begin all that they may; how many did.
    fn work(openings: &mut Openings, now: Instant) -> usize {
        while openings.hire(now) {}
        std::iter::from_fn(|| openings.begin(now)).count()
    }

    #[test]
    fn a_site_is_opened_once_for_all_who_wait() {
        let now = Instant::now();
        let mut openings = Openings::default();
        assert!(ask(&mut openings, 0, &host(1), now));
        assert!(ask(&mut openings, 1, &host(1), now));
        assert!(ask(&mut openings, 1, &host(1), now));
        assert_eq!(work(&mut openings, now), 1);
        assert!(ask(&mut openings, 2, &host(1), now));
        assert!(openings.are_waited_for());
        assert_eq!(come_back(&mut openings, 1), [0, 1, 2]);
        assert!(!openings.are_waited_for());
        assert!(openings.give_up(now + WAIT).is_empty());
    }

    /// A request that waits for another time has the rest of its time, as have those that come to it.
    #[test]
    fn who_has_waited_before_has_the_rest_of_the_time() {
        let begun = Instant::now();
        let (mut openings, now) = (Openings::default(), begun + WAIT / 2);
        assert!(openings.ask(0, &host(1), (begun, now)));
        assert!(ask(&mut openings, 1, &host(2), now));
        assert!(openings.ask(0, &host(2), (begun, now)));
        assert!(ask(&mut openings, 1, &host(3), now));
        assert_eq!(openings.give_up(begun + WAIT).len(), 2);
        assert_eq!(openings.give_up(now + WAIT).len(), 1);
    }

    /// Sites that hang keep a thread each, and nothing else from others.
    #[test]
    fn those_that_hang_make_room() {
        let begun = Instant::now();
        let mut openings = Openings::default();
        for number in 0..10 {
            assert!(ask(&mut openings, 0, &host(number), begun));
        }
        assert_eq!(work(&mut openings, begun), SITE_OPENERS);
        assert_eq!(work(&mut openings, begun + SLOW / 2), 0);
        assert_eq!(work(&mut openings, begun + SLOW), SITE_OPENERS);
        assert_eq!(come_back(&mut openings, 0), [0]);
        assert_eq!(work(&mut openings, begun + 2 * SLOW), 2);
        // Nine hang. Who asks for one of them after its time gets an answer at once.
        let given_up = openings.give_up(begun + WAIT);
        assert_eq!(given_up.len(), 9);
        assert!(given_up.iter().all(|it| it.hangs && it.workers == [0]));
        assert!(openings.give_up(begun + WAIT).is_empty(), "reported once");
        assert!(!ask(&mut openings, 0, &host(1), begun + WAIT));
        assert!(ask(&mut openings, 0, &host(100), begun + WAIT));
        assert_eq!(work(&mut openings, begun + WAIT), 1);
        // One answers after all.
        assert!(come_back(&mut openings, 1).is_empty());
        assert!(ask(&mut openings, 0, &host(1), begun + WAIT));
    }

    /// A site that hangs is replaced: what is there now is opened, and what comes back late is not taken
    /// for it.
    #[test]
    fn what_was_replaced_is_forgotten() {
        let begun = Instant::now();
        let mut openings = Openings::default();
        for number in 0..2 {
            assert!(ask(&mut openings, 0, &host(number), begun));
        }
        assert_eq!(work(&mut openings, begun), 2);
        let late = number(&openings, 0);
        openings.give_up(begun + WAIT);
        assert!(ask(&mut openings, 1, &host(2), begun + WAIT));
        let is = |of: usize| move |it: &Arc<[u8]>| **it == *host(of);
        openings.forget(is(0), false);
        assert!(!openings.is_current(&host(0), late));
        assert!(
            ask(&mut openings, 0, &host(0), begun + WAIT),
            "it is opened anew"
        );
        assert_eq!(work(&mut openings, begun + WAIT), 2);
        assert_eq!(openings.threads, 4, "two hang, two work");
        assert!(openings.end(&host(0), late).is_empty());
        assert_eq!(come_back(&mut openings, 0), [0]);
        // Of what an operator asks for, the hanging one is tried again; others are left alone.
        openings.forget(|_| false, true);
        assert!(
            ask(&mut openings, 0, &host(1), begun + WAIT),
            "it is opened anew"
        );
        assert_eq!(work(&mut openings, begun + WAIT), 1);
        // Who waits goes on waiting, no longer than before.
        let later = begun + WAIT + WAIT / 2;
        openings.forget(is(2), false);
        assert_eq!(work(&mut openings, later), 1);
        let given_up = openings.give_up(later + WAIT / 2);
        assert!(
            given_up
                .iter()
                .any(|it| it.host == host(2) && it.workers == [1])
        );
    }

    #[test]
    fn threads_and_those_who_wait_are_bounded() {
        let begun = Instant::now();
        let mut openings = Openings::default();
        let mut now = begun;
        let mut number = 0;
        while ask(&mut openings, 0, &host(number), now) {
            work(&mut openings, now);
            number += 1;
            now += SLOW;
        }
        assert_eq!(number, SITE_OPENERS_MAX);
        assert_eq!(openings.threads, SITE_OPENERS_MAX);
        openings.give_up(now + WAIT);
        // They come back, and few stay.
        for number in 0..SITE_OPENERS_MAX {
            come_back(&mut openings, number);
        }
        while openings.dismiss() {}
        assert_eq!(openings.threads, SITE_OPENERS);
        // What is queued is not being opened.
        for number in 0..SITE_QUEUE_MAX {
            assert!(ask(&mut openings, 0, &host(number), now));
        }
        assert!(!ask(&mut openings, 0, &host(SITE_QUEUE_MAX), now));
        let given_up = openings.give_up(now + WAIT);
        assert_eq!(given_up.len(), SITE_QUEUE_MAX);
        assert!(given_up.iter().all(|it| !it.hangs));
        assert_eq!(work(&mut openings, now + WAIT), 0);
        assert!(ask(&mut openings, 0, &host(SITE_QUEUE_MAX), now + WAIT));
    }
}
