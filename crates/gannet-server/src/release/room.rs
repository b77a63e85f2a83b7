//! The room of a worker's caches: one for all sites.
//!
//! Whichever site is asked for uses it. When it is exceeded, all caches age at once: what was not asked for
//! since they last aged is dropped, the rest is next. Half of the room is divided equally among the sites: one
//! that has no more than its own part of this half keeps what it has, however much of others is requested.
//! While everything fits nothing is dropped. So that there is something old when it no longer does, caches
//! also age, without dropping anything, each time that half of what is not kept anyway was added. If all was
//! asked for nevertheless, the older half of it goes; and half of the rest, until there is room.

use std::cell::Cell;
use std::ops::{Add, Div, Sub};
use std::rc::Rc;

use crate::bounds::limits::CACHE_OWN_PART;

/// What caches have, or may have.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Room {
    /// Bytes of bodies, and of what is known about them.
    pub(crate) memory: u64,
    /// Open files.
    pub(crate) descriptors: usize,
}

impl Room {
    /// All that there may be.
    const MAX: Self = Self {
        memory: u64::MAX,
        descriptors: usize::MAX,
    };

    /// Whether it is more of either.
    pub(crate) fn exceeds(self, other: Self) -> bool {
        self.memory > other.memory || self.descriptors > other.descriptors
    }

    /// This much of that which `all` has more of than `most`, and no limit of the other.
    fn where_exceeded(self, all: Self, most: Self) -> Self {
        Self {
            memory: match all.memory > most.memory {
                true => self.memory,
                false => u64::MAX,
            },
            descriptors: match all.descriptors > most.descriptors {
                true => self.descriptors,
                false => usize::MAX,
            },
        }
    }

    /// What it has no more of than `most`.
    pub(crate) fn within(self, most: Self) -> Self {
        Self {
            memory: match self.memory > most.memory {
                true => 0,
                false => self.memory,
            },
            descriptors: match self.descriptors > most.descriptors {
                true => 0,
                false => self.descriptors,
            },
        }
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
    /// What was added since they last aged.
    grown: Cell<Room>,
    /// What sites with no more than their own part had then.
    kept: Cell<Room>,
    /// Where ageing continues.
    rest: Cell<Option<Ageing>>,
    /// What was old has just been dropped, of what exceeded this, and perhaps more has to go.
    has_dropped: Cell<Option<Room>>,
    /// Something was dropped since they began to age.
    has_shrunk: Cell<bool>,
    /// Whether caches may have to age, or continue to.
    is_due: Cell<bool>,
}

/// How all caches age, one site after the other.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Ageing {
    /// A site that has no more than this keeps all.
    pub(crate) keeps: Room,
    /// What was old has been dropped, and that was not enough: the older half of the rest goes.
    pub(crate) is_more: bool,
    /// The place of the next site.
    pub(crate) next: usize,
    /// What sites with no more than their own part have had so far.
    pub(crate) kept: Room,
}

impl Pool {
    /// Has this limit from now on, for so many sites.
    pub(crate) fn set(&self, limit: Room, sites: usize) {
        self.limit.set(limit);
        self.sites.set(sites.max(1));
        self.is_due.set(true);
    }

    /// So many bytes of it are used otherwise.
    #[inline]
    pub(crate) fn set_taken(&self, bytes: u64) {
        if self.taken.replace(bytes) != bytes {
            self.is_due.set(true);
        }
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

    /// Whether caches may have to age: something was added, or there is more or less room, or ageing continues.
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        self.is_due.get()
    }

    /// How all caches are to age, or to continue; `None` if they need not.
    #[cold]
    pub(crate) fn begin(&self) -> Option<Ageing> {
        self.is_due.set(false);
        if let Some(rest) = self.rest.take() {
            return Some(rest);
        }
        let (all, room, own) = (self.all.get(), self.room(), self.own());
        let quarter = (room - self.kept.get()) / 4;
        // A pass for one kind leaves the other one, if that fits.
        let more = self.has_dropped.take().map(|keeps| Room {
            memory: match keeps.memory {
                u64::MAX => all.memory,
                _ => all.memory + quarter.memory,
            },
            descriptors: match keeps.descriptors {
                usize::MAX => all.descriptors,
                _ => all.descriptors + quarter.descriptors,
            },
        });
        let more = more.filter(|more| more.exceeds(room));
        let is_more = more.is_some();
        let keeps = if let Some(more) = more {
            own.where_exceeded(more, room)
        } else if all.exceeds(room) {
            own.where_exceeded(all, room)
        } else if self.has_old_soon(quarter) {
            Room::MAX
        } else {
            return None;
        };
        self.grown.set(Room::default());
        self.has_shrunk.set(false);
        Some(Ageing {
            keeps,
            is_more,
            next: 0,
            kept: Room::default(),
        })
    }

    /// Whether half of what is not kept anyway was added, and a quarter of it is left: when that is used up
    /// as well, the quarter is young, and stays.
    fn has_old_soon(&self, quarter: Room) -> bool {
        let (grown, all, room) = (self.grown.get(), self.all.get(), self.room());
        let of_memory =
            grown.memory > 2 * quarter.memory && all.memory + quarter.memory <= room.memory;
        let of_descriptors = grown.descriptors > 2 * quarter.descriptors
            && all.descriptors + quarter.descriptors <= room.descriptors;
        of_memory || of_descriptors
    }

    /// It continues in the next turn.
    pub(crate) fn go_on(&self, ageing: Ageing) {
        self.rest.set(Some(ageing));
        self.is_due.set(true);
    }

    /// All caches have aged. What was added meanwhile, and what was dropped, is looked at once more; after
    /// dropping half of it, only while that helps and there is still no room.
    pub(crate) fn end(&self, ageing: Ageing) {
        self.kept.set(ageing.kept);
        let has_dropped = match ageing.is_more {
            true => self.has_shrunk.get() && self.all.get().exceeds(self.room()),
            false => ageing.keeps != Room::MAX,
        };
        self.has_dropped.set(has_dropped.then_some(ageing.keeps));
        if has_dropped || !ageing.is_more {
            self.is_due.set(true);
        }
    }
}

/// What one cache has of it; given back when it is dropped.
pub(crate) struct Part {
    pool: Rc<Pool>,
    all: Room,
}

impl Part {
    /// Nothing yet.
    pub(crate) fn new(pool: &Rc<Pool>) -> Self {
        Self {
            pool: Rc::clone(pool),
            all: Room::default(),
        }
    }

    /// The whole.
    pub(crate) fn pool(&self) -> &Rc<Pool> {
        &self.pool
    }

    /// It has this now.
    pub(crate) fn set(&mut self, all: Room) {
        let pool = &self.pool;
        pool.all.set(pool.all.get() + all - self.all);
        if all.exceeds(self.all) {
            pool.grown.set(pool.grown.get() + (all - self.all));
            pool.is_due.set(true);
        }
        if self.all.exceeds(all) {
            pool.has_shrunk.set(true);
        }
        self.all = all;
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.set(Room::default());
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

    /// Has caches age that have nothing to drop; how often, and the last time.
    fn ageings(pool: &Pool) -> (usize, Option<Ageing>) {
        let (mut count, mut last) = (0, None);
        while pool.is_due() {
            if let Some(ageing) = pool.begin() {
                (count, last) = (count + 1, Some(ageing));
                pool.end(ageing);
            }
        }
        (count, last)
    }

    /// What a site keeps, if it is to drop something.
    fn keeps(pool: &Pool) -> Option<Room> {
        let ageing = pool.begin().filter(|it| it.keeps != Room::MAX);
        ageing.map(|it| it.keeps)
    }

    #[test]
    fn nothing_is_dropped_while_all_fits() {
        let pool = Rc::new(Pool::default());
        pool.set(room(100), 4);
        let mut parts = [Part::new(&pool), Part::new(&pool)];
        assert_eq!(ageings(&pool), (0, None));
        parts[0].set(bytes(50));
        assert_eq!(ageings(&pool), (0, None));
        parts[1].set(bytes(1));
        let (count, last) = ageings(&pool);
        assert_eq!((count, last.map(|it| it.keeps)), (1, Some(Room::MAX)));
        parts[1].set(bytes(50));
        assert_eq!(ageings(&pool), (0, None));
        for _ in 0..10 {
            parts[1].set(bytes(30));
            parts[1].set(bytes(50));
            assert_eq!(ageings(&pool), (0, None), "a quarter has to be left");
        }
        parts[1].set(bytes(51));
        let own = Room {
            memory: 12,
            descriptors: usize::MAX,
        };
        assert_eq!(keeps(&pool), Some(own), "files stay open");
        drop(parts);
        assert_eq!(pool.all.get(), Room::default());
    }

    #[test]
    fn it_is_exceeded_by_either() {
        let pool = Rc::new(Pool::default());
        pool.set(room(100), 4);
        let mut part = Part::new(&pool);
        part.set(Room {
            memory: 1,
            descriptors: 9,
        });
        let own = Room {
            memory: u64::MAX,
            descriptors: 1,
        };
        assert_eq!(keeps(&pool), Some(own));
        // With less room as well, and when more is used otherwise.
        part.set(bytes(40));
        pool.set(room(40), 4);
        assert_eq!(keeps(&pool), None);
        pool.set_taken(0);
        assert!(!pool.is_due(), "as before");
        pool.set_taken(1);
        assert!(keeps(&pool).is_some());
    }

    /// One open file too many costs no site its memory, though that is nearly full, and the other way round.
    #[test]
    fn one_kind_that_is_exceeded_leaves_the_other() {
        for (over, then, is_memory) in [((80, 9), (80, 8), false), ((101, 7), (90, 7), true)] {
            let of = |(memory, descriptors)| Room {
                memory,
                descriptors,
            };
            let pool = Rc::new(Pool::default());
            pool.set(room(100), 2);
            let mut part = Part::new(&pool);
            part.set(of(over));
            pool.end(pool.begin().expect("exceeded"));
            part.set(of(then));
            let more = pool.begin().expect("a quarter is not left");
            assert!(more.is_more);
            assert_eq!(more.keeps.memory == u64::MAX, !is_memory);
            assert_eq!(more.keeps.descriptors == usize::MAX, is_memory);
        }
    }

    /// What must stay does not make caches age again and again.
    #[test]
    fn what_cannot_be_dropped_is_tried_once() {
        let pool = Rc::new(Pool::default());
        pool.set(room(100), 2);
        let mut part = Part::new(&pool);
        for memory in [101, 102] {
            part.set(bytes(memory));
            let (count, last) = ageings(&pool);
            assert_eq!((count, last.map(|it| it.is_more)), (2, Some(true)));
        }
        // There is more to drop, too, if what was old was little.
        part.set(bytes(0));
        part.set(bytes(101));
        pool.end(pool.begin().expect("exceeded"));
        part.set(bytes(75));
        assert_eq!(ageings(&pool), (0, None), "a quarter is left");
    }

    /// With much less room than before, nothing has to be added until it is kept.
    #[test]
    fn half_of_the_rest_goes_until_there_is_room() {
        let pool = Rc::new(Pool::default());
        pool.set(room(1_000), 2);
        let mut part = Part::new(&pool);
        part.set(bytes(1_000));
        pool.set(room(100), 2);
        let mut all = Vec::new();
        while pool.is_due() {
            let Some(ageing) = pool.begin() else {
                continue;
            };
            if ageing.is_more {
                part.set(bytes(part.all.memory / 2));
                all.push(part.all.memory);
            }
            pool.end(ageing);
        }
        assert_eq!(all, [500, 250, 125, 62]);
    }

    #[test]
    fn what_is_kept_anyway_does_not_count() {
        let pool = Rc::new(Pool::default());
        pool.set(room(100), 2);
        let mut part = Part::new(&pool);
        pool.kept.set(bytes(40));
        part.set(bytes(30));
        assert_eq!(ageings(&pool), (0, None));
        part.set(bytes(31));
        assert_eq!(ageings(&pool).0, 1);
    }

    #[test]
    fn ageing_goes_on_where_it_was_interrupted() {
        let pool = Rc::new(Pool::default());
        pool.set(room(100), 2);
        let mut part = Part::new(&pool);
        part.set(bytes(101));
        let mut ageing = pool.begin().expect("exceeded");
        (ageing.next, ageing.kept) = (7, bytes(3));
        pool.go_on(ageing);
        assert!(pool.is_due());
        // What was dropped until then is full again in the last turn.
        part.set(bytes(60));
        part.set(bytes(110));
        assert_eq!(pool.begin(), Some(ageing));
        pool.end(ageing);
        assert!(pool.is_due());
        assert_eq!(pool.begin().map(|it| it.next), Some(0));
    }

    #[test]
    fn half_of_it_is_divided_equally() {
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
