//! The room of a worker's caches: one for all sites.
//!
//! Whichever site is asked for uses it. When it is used up, all caches age at once: what was not asked for
//! since they last aged is dropped, the rest is next. Half of the room is for sites alike: one that has no
//! more than its own part of this half keeps what it has, however much of others is asked for.

use std::cell::Cell;
use std::ops::{Add, Div, Sub};
use std::rc::Rc;

use crate::limits::CACHE_OWN_PART;

/// What caches have, or may have.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Room {
    /// Bytes of bodies, and of what is known about them.
    pub(crate) memory: u64,
    /// Open files.
    pub(crate) descriptors: usize,
}

impl Room {
    /// Whether it is more of either.
    pub(crate) fn exceeds(self, other: Self) -> bool {
        self.memory > other.memory || self.descriptors > other.descriptors
    }
}

impl Add for Room {
    type Output = Self;

    fn add(self, more: Self) -> Self {
        Self {
            memory: self.memory + more.memory,
            descriptors: self.descriptors + more.descriptors,
        }
    }
}

/// What is left; nothing rather than less.
impl Sub for Room {
    type Output = Self;

    fn sub(self, less: Self) -> Self {
        Self {
            memory: self.memory.saturating_sub(less.memory),
            descriptors: self.descriptors.saturating_sub(less.descriptors),
        }
    }
}

impl Div<usize> for Room {
    type Output = Self;

    fn div(self, parts: usize) -> Self {
        Self {
            memory: self.memory / parts as u64,
            descriptors: self.descriptors / parts,
        }
    }
}

/// See the module documentation.
#[derive(Default)]
pub(crate) struct Pool {
    limit: Cell<Room>,
    sites: Cell<usize>,
    /// Bytes of the limit that are used otherwise.
    taken: Cell<u64>,
    /// What all caches have.
    all: Cell<Room>,
    /// What was cached or asked for since they last aged.
    young: Cell<Room>,
    /// What sites with no more than their own part had then.
    kept: Cell<Room>,
    /// Where ageing goes on, and what was kept so far.
    rest: Cell<Option<(usize, Room)>>,
    /// Whether caches may have to age, or go on to.
    is_due: Cell<bool>,
}

impl Pool {
    /// Has this limit from now on, for so many sites.
    pub(crate) fn set(&self, limit: Room, sites: usize) {
        self.limit.set(limit);
        self.sites.set(sites.max(1));
        self.is_due.set(true);
    }

    /// So many bytes of it are used otherwise.
    pub(crate) fn set_taken(&self, bytes: u64) {
        self.taken.set(bytes);
        self.is_due.set(true);
    }

    /// Bytes that may be cached of all sites, or used otherwise.
    pub(crate) fn memory(&self) -> u64 {
        self.limit.get().memory
    }

    /// What the caches may have.
    fn room(&self) -> Room {
        let taken = Room {
            memory: self.taken.get(),
            descriptors: 0,
        };
        self.limit.get() - taken
    }

    /// What each site keeps, whatever is asked for of others.
    pub(crate) fn own(&self) -> Room {
        self.room() / CACHE_OWN_PART / self.sites.get()
    }

    /// Bytes that one site may have, if each of the others has its own part.
    pub(crate) fn possible(&self) -> u64 {
        let others = self.own().memory * (self.sites.get() as u64 - 1);
        self.room().memory - others
    }

    /// Whether that may change in this turn: something was cached or asked for, or there is more or less
    /// room, or ageing goes on.
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        self.is_due.get()
    }

    /// Where all caches are to age from, if there is no room left, or if half of what is not kept anyway is
    /// young; or where that goes on, with what was kept so far.
    #[cold]
    pub(crate) fn begin(&self) -> Option<(usize, Room)> {
        self.is_due.set(false);
        if let Some(rest) = self.rest.take() {
            return Some(rest);
        }
        let room = self.room();
        let half = (room - self.kept.get()) / 2;
        let is_used_up = self.all.get().exceeds(room) || self.young.get().exceeds(half);
        is_used_up.then_some((0, Room::default()))
    }

    /// Ageing goes on in the next turn.
    pub(crate) fn go_on_at(&self, place: usize, kept: Room) {
        self.rest.set(Some((place, kept)));
        self.is_due.set(true);
    }

    /// All caches have aged. Those of sites with no more than their own part have kept this.
    pub(crate) fn aged(&self, kept: Room) {
        self.kept.set(kept);
    }
}

/// What one cache has of it; given back when it is dropped.
pub(crate) struct Part {
    pool: Rc<Pool>,
    all: Room,
    young: Room,
}

impl Part {
    /// Nothing yet.
    pub(crate) fn new(pool: &Rc<Pool>) -> Self {
        Self {
            pool: Rc::clone(pool),
            all: Room::default(),
            young: Room::default(),
        }
    }

    /// The whole.
    pub(crate) fn pool(&self) -> &Rc<Pool> {
        &self.pool
    }

    /// It has this now, so much of it `young`.
    pub(crate) fn set(&mut self, all: Room, young: Room) {
        let pool = &self.pool;
        pool.all.set(pool.all.get() + all - self.all);
        pool.young.set(pool.young.get() + young - self.young);
        if all.exceeds(self.all) || young.exceeds(self.young) {
            pool.is_due.set(true);
        }
        (self.all, self.young) = (all, young);
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.set(Room::default(), Room::default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(memory: u64) -> Room {
        Room {
            memory,
            descriptors: 8,
        }
    }

    fn bytes(memory: u64) -> Room {
        Room {
            memory,
            descriptors: 0,
        }
    }

    fn is_used_up(pool: &Pool) -> bool {
        pool.is_due() && pool.begin().is_some()
    }

    #[test]
    fn it_is_used_up_when_it_is_exceeded_or_half_of_it_is_young() {
        let pool = Rc::new(Pool::default());
        pool.set(room(100), 4);
        let mut parts = [Part::new(&pool), Part::new(&pool)];
        assert!(!is_used_up(&pool));
        parts[0].set(bytes(50), bytes(50));
        assert!(!is_used_up(&pool));
        parts[1].set(bytes(1), bytes(1));
        assert!(is_used_up(&pool));
        assert!(!is_used_up(&pool), "nothing has grown since");
        parts[0].set(bytes(50), bytes(0));
        parts[1].set(bytes(50), bytes(1));
        assert!(!is_used_up(&pool));
        parts[1].set(bytes(51), bytes(2));
        assert!(is_used_up(&pool));
        drop(parts);
        assert_eq!((pool.all.get(), pool.young.get()), Default::default());
        let mut files = Part::new(&pool);
        let open = |descriptors| Room {
            memory: 0,
            descriptors,
        };
        files.set(open(8), open(4));
        assert!(!is_used_up(&pool));
        files.set(open(8), open(5));
        assert!(is_used_up(&pool));
        // With less room as well, and when more is used otherwise.
        files.set(bytes(40), bytes(0));
        pool.set(room(40), 4);
        assert!(!is_used_up(&pool));
        pool.set_taken(1);
        assert!(is_used_up(&pool));
    }

    /// What is kept anyway does not make caches age again and again.
    #[test]
    fn half_of_what_is_not_kept_anyway_may_be_young() {
        let pool = Rc::new(Pool::default());
        pool.set(room(100), 2);
        let mut part = Part::new(&pool);
        pool.aged(bytes(40));
        part.set(bytes(70), bytes(30));
        assert!(!is_used_up(&pool));
        part.set(bytes(71), bytes(31));
        assert!(is_used_up(&pool));
    }

    #[test]
    fn ageing_goes_on_where_it_was_interrupted() {
        let pool = Pool::default();
        pool.set(room(100), 2);
        assert!(!is_used_up(&pool) && !pool.is_due());
        pool.go_on_at(7, bytes(3));
        assert!(pool.is_due());
        assert_eq!(pool.begin(), Some((7, bytes(3))));
        assert!(!pool.is_due());
    }

    #[test]
    fn half_of_it_is_for_sites_alike() {
        let pool = Pool::default();
        for (sites, own, possible) in [(1, 500, 1_000), (2, 250, 750), (50, 10, 510)] {
            pool.set(room(1_000), sites);
            assert_eq!((pool.own().memory, pool.possible()), (own, possible));
        }
        pool.set_taken(500);
        assert_eq!((pool.own().memory, pool.possible()), (5, 255));
        pool.set_taken(2_000);
        assert_eq!((pool.own().memory, pool.possible()), (0, 0));
    }
}
