//! Request paths and their resolutions, bounded in count, bytes and descriptors.
//!
//! Two generations approximate least-recently-used at the cost of a hash map: a used entry moves to
//! the young one; when that reaches half the budget, the old one is dropped and the young one takes
//! its place.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::rc::Rc;

use gannet_http::semantics::response::Status;
use gannet_io::driver::Nanos;

use super::Cached;
use crate::limits::{
    ADMITTED_FREELY_MAX, ASKED_ONCE_MAX, BELIEVED_MS, CACHED_PATHS_MAX, CONFIRMED_MS, OPEN_IDLE_MS,
};

struct Remembered {
    cached: Rc<Cached>,
    /// Its weight when inserted. (Content that is read later is counted when the entry is inserted
    /// again.)
    weight: u64,
    descriptors: usize,
    status: Status,
    /// When the path was last looked up.
    looked_up: Nanos,
    /// When its file was last confirmed unchanged.
    confirmed: Nanos,
}

#[derive(Default)]
struct Generation {
    paths: HashMap<Box<[u8]>, Remembered, foldhash::fast::RandomState>,
    weight: u64,
    descriptors: usize,
}

impl Generation {
    fn insert(&mut self, path: Box<[u8]>, value: Remembered) {
        self.weight += value.weight;
        self.descriptors += value.descriptors;
        if let Some(before) = self.paths.insert(path, value) {
            self.forget(&before);
        }
    }

    fn take(&mut self, path: &[u8]) -> Option<(Box<[u8]>, Remembered)> {
        let (path, value) = self.paths.remove_entry(path)?;
        self.forget(&value);
        Some((path, value))
    }

    fn retain(&mut self, mut is_kept: impl FnMut(&Remembered) -> bool) {
        let Self {
            paths,
            weight,
            descriptors,
        } = self;
        paths.retain(|_, value| {
            let is_kept = is_kept(value);
            if !is_kept {
                *weight -= value.weight;
                *descriptors -= value.descriptors;
            }
            is_kept
        });
    }

    fn forget(&mut self, value: &Remembered) {
        self.weight -= value.weight;
        self.descriptors -= value.descriptors;
    }

    fn exceeds(&self, bytes: u64, descriptors: usize) -> bool {
        self.weight > bytes || self.descriptors > descriptors
    }
}

/// Limits of a site's cache.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Room {
    /// Bytes of bodies.
    pub(crate) memory: u64,
    /// Open files.
    pub(crate) descriptors: usize,
}

impl Room {
    /// An equal part for each of `count`.
    pub(crate) fn share(self, count: usize) -> Self {
        let count = count.max(1);
        Self {
            memory: self.memory / count as u64,
            descriptors: self.descriptors / count,
        }
    }
}

/// See the module documentation.
pub(super) struct Cache {
    young: Generation,
    old: Generation,
    room: Room,
    /// Bytes of that which are used otherwise.
    taken: u64,
    /// Hashes of paths that were requested and not admitted; empty until one was.
    asked_once: Vec<u32>,
}

impl Cache {
    pub(super) fn new(room: Room) -> Self {
        Self {
            young: Generation::default(),
            old: Generation::default(),
            room,
            taken: 0,
            asked_once: Vec::new(),
        }
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        *self = Self::new(self.room);
    }

    /// Has this room from now on. What does not fit is forgotten, the older part first.
    pub(super) fn set_room(&mut self, room: Room) {
        self.room = room;
        self.age();
        if self.old.exceeds(self.bytes(), room.descriptors) {
            self.old = Generation::default();
        }
    }

    /// Bytes that it may cache.
    pub(super) fn memory(&self) -> u64 {
        self.room.memory
    }

    /// Caches less: so many bytes of its memory are used otherwise.
    pub(super) fn set_taken(&mut self, bytes: u64) {
        self.taken = bytes;
    }

    /// Forgets a path.
    pub(super) fn remove(&mut self, path: &[u8]) {
        self.young.take(path);
        self.old.take(path);
    }

    /// Closes cached open files that no response is being sent from: those of the old generation, or
    /// if it has none, those of the young one. False if there are none.
    pub(super) fn drop_descriptors(&mut self) -> bool {
        let mut ages = [&mut self.old, &mut self.young].into_iter();
        ages.any(|generation| {
            let before = generation.descriptors;
            generation.retain(|value| value.descriptors == 0 || value.cached.is_in_use());
            generation.descriptors < before
        })
    }

    /// The resolution of a path, if the disk confirmed it recently or `is_same` confirms it now.
    /// When a whole lookup is due, one request performs it; concurrent requests, possibly thousands
    /// in one turn, rely on `is_same` for a little longer.
    pub(super) fn fresh(
        &mut self,
        path: &[u8],
        now: Nanos,
        is_same: impl FnOnce(&Cached) -> bool,
    ) -> Option<(Rc<Cached>, Status)> {
        if !self.young.paths.contains_key(path) {
            self.rejuvenate(path)?;
        }
        let found = self.young.paths.get_mut(path)?;
        if found.cached.is_brief && now != found.confirmed {
            // Valid for the requests of one turn.
            return None;
        }
        if now > found.confirmed.plus_ms(BELIEVED_MS) {
            if now > found.looked_up.plus_ms(CONFIRMED_MS) {
                let grace_ms = CONFIRMED_MS - BELIEVED_MS;
                found.looked_up = Nanos(now.0.saturating_sub(grace_ms * 1_000_000));
                return None;
            }
            if !is_same(&found.cached) {
                return None;
            }
            found.confirmed = now;
        }
        Some((Rc::clone(&found.cached), found.status))
    }

    /// The resolution of a path, fresh or stale.
    pub(super) fn any(&self, path: &[u8]) -> Option<Rc<Cached>> {
        let found = self
            .young
            .paths
            .get(path)
            .or_else(|| self.old.paths.get(path))?;
        Some(Rc::clone(&found.cached))
    }

    /// Whether to cache the resolution of a path. Once there are many, a short file is cached at its
    /// second request: most of a large site's files are requested once in a long time, and caching
    /// those costs as much as looking them up, and displaces others.
    pub(super) fn admits(&mut self, path: &[u8], cached: &Cached) -> bool {
        let is_free = self.young.paths.len() + self.old.paths.len() < ADMITTED_FREELY_MAX;
        let has = |it: &Generation| it.paths.contains_key(path);
        if is_free || !cached.is_short() || has(&self.young) || has(&self.old) {
            return true;
        }
        if self.asked_once.is_empty() {
            self.asked_once = vec![0; ASKED_ONCE_MAX];
        }
        let hash = self.young.paths.hasher().hash_one(path);
        let mark = (hash >> 32) as u32 | 1;
        let place = &mut self.asked_once[hash as usize % ASKED_ONCE_MAX];
        std::mem::replace(place, mark) == mark
    }

    /// Caches the resolution of a path as of `now`. For the same resolution, later times are kept.
    pub(super) fn insert(&mut self, path: &[u8], cached: Rc<Cached>, status: Status, now: Nanos) {
        let old = self.old.take(path).map(|(_, value)| value);
        let before = old.as_ref().or_else(|| self.young.paths.get(path));
        let same = before.filter(|before| Rc::ptr_eq(&before.cached, &cached));
        let (looked_up, confirmed) = same.map_or((now, now), |it| {
            (it.looked_up.max(now), it.confirmed.max(now))
        });
        self.young.insert(
            path.into(),
            Remembered {
                weight: cached.weight(),
                descriptors: cached.descriptors(),
                cached,
                status,
                looked_up,
                confirmed,
            },
        );
        self.age();
    }

    /// Counts again what a cached resolution weighs, after it has grown.
    pub(super) fn weigh_again(&mut self, path: &[u8]) {
        for generation in [&mut self.young, &mut self.old] {
            if let Some(value) = generation.paths.get_mut(path) {
                let weight = value.cached.weight();
                generation.weight = generation.weight - value.weight + weight;
                value.weight = weight;
            }
        }
        self.age();
    }

    /// Removes entries that go when they are idle and were not confirmed for a while. True if other such
    /// entries remain.
    pub(super) fn close_idle(&mut self, now: Nanos) -> bool {
        let mut is_left = false;
        for generation in [&mut self.young, &mut self.old] {
            generation.retain(|value| {
                let goes = value.cached.goes_when_idle();
                let is_kept = !goes || now <= value.confirmed.plus_ms(OPEN_IDLE_MS);
                is_left |= goes && is_kept;
                is_kept
            });
        }
        is_left
    }

    fn rejuvenate(&mut self, path: &[u8]) -> Option<()> {
        let (path, value) = self.old.take(path)?;
        self.young.insert(path, value);
        self.age();
        Some(())
    }

    /// Bytes of entries that there is room for.
    pub(super) fn bytes(&self) -> u64 {
        self.room.memory.saturating_sub(self.taken)
    }

    fn age(&mut self) {
        let (young, old) = (&self.young, &self.old);
        let (bytes, descriptors) = (self.bytes(), self.room.descriptors);
        // Of what was cached with more room, the old part can be more than half.
        if young.exceeds(bytes / 2, descriptors / 2)
            || young.paths.len() > CACHED_PATHS_MAX / 2
            || young.weight + old.weight > bytes
            || young.descriptors + old.descriptors > descriptors
        {
            self.old = std::mem::take(&mut self.young);
        }
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

    /// An entry that weighs a kilobyte.
    fn cached() -> Rc<Cached> {
        Rc::new(Cached {
            is_ruled: false,
            is_brief: false,
            read_again_at: None,
            is_own: true,
            content_type: "text/plain".into(),
            last_modified: None,
            variants: Vec::new(),
            forms: Vec::new(),
            on_the_fly: None,
        })
    }

    #[test]
    fn is_believed_for_less_than_a_second_and_then_compared() {
        let (mut cache, start) = (Cache::new(room(1 << 20)), Nanos(0));
        cache.insert(b"/a", cached(), Status(200), start);
        let believed = start.plus_ms(BELIEVED_MS);
        assert!(
            cache
                .fresh(b"/a", believed, |_| panic!("not compared yet"))
                .is_some()
        );
        let later = believed.plus_ms(1);
        assert!(cache.fresh(b"/a", later, |_| false).is_none());
        assert!(cache.fresh(b"/a", later, |_| true).is_some());
        assert!(
            cache
                .fresh(b"/a", later, |_| panic!("compared just now"))
                .is_some()
        );
        let stale = start.plus_ms(CONFIRMED_MS + 1);
        assert!(
            cache.fresh(b"/a", stale, |_| true).is_none(),
            "a whole lookup is due"
        );
        assert!(
            cache.fresh(b"/a", stale, |_| false).is_none(),
            "another version"
        );
        assert!(
            cache.fresh(b"/a", stale, |_| true).is_some(),
            "during the lookup"
        );
        let forgotten = stale.plus_ms(BELIEVED_MS + 1);
        assert!(
            cache.fresh(b"/a", forgotten, |_| true).is_none(),
            "the next lookup is due"
        );
        assert!(cache.any(b"/a").is_some());
        assert!(cache.fresh(b"/b", start, |_| true).is_none());
    }

    #[test]
    fn what_is_used_stays_and_the_rest_goes() {
        let mut cache = Cache::new(room(20 * 1_024));
        for i in 0..100 {
            cache.insert(format!("/{i}").as_bytes(), cached(), Status(200), Nanos(0));
            assert!(
                i == 0 || cache.fresh(b"/0", Nanos(0), |_| true).is_some(),
                "{i}"
            );
            let kept = cache.young.paths.len() + cache.old.paths.len();
            assert!(kept <= 21, "{kept} entries of a kilobyte in a budget of 20");
        }
        assert!(cache.any(b"/50").is_none());
        assert_eq!(
            cache.young.weight + cache.old.weight,
            1_024 * (cache.young.paths.len() + cache.old.paths.len()) as u64
        );
    }

    #[test]
    fn with_less_room_the_older_part_goes_first() {
        let mut cache = Cache::new(room(20 * 1_024));
        let fill = |cache: &mut Cache, numbers: std::ops::Range<u32>| {
            for number in numbers {
                let path = number.to_string();
                cache.insert(path.as_bytes(), cached(), Status(200), Nanos(0));
            }
        };
        let has = |cache: &Cache, number: u32| cache.any(number.to_string().as_bytes()).is_some();
        fill(&mut cache, 0..15);
        assert!(has(&cache, 0) && has(&cache, 14));
        cache.set_room(room(16 * 1_024));
        assert!(has(&cache, 0), "it still fits");
        cache.set_room(room(8 * 1_024));
        assert!(!has(&cache, 0) && has(&cache, 14));
        fill(&mut cache, 20..30);
        let weight = cache.young.weight + cache.old.weight;
        assert!(weight <= 9 * 1_024, "{weight} bytes with room for 8 KiB");
        cache.set_room(room(512));
        assert!(!has(&cache, 29));
        cache.set_room(room(20 * 1_024));
        fill(&mut cache, 40..50);
        assert!(has(&cache, 40) && has(&cache, 49));
        let share = room(100).share(3);
        assert_eq!((share.memory, share.descriptors), (33, 2));
        assert_eq!(room(100).share(0), room(100));
    }

    /// A large cache admits a path at its second request, and so keeps what is used.
    #[test]
    fn a_crawler_displaces_nothing() {
        let mut cache = Cache::new(room(1 << 30));
        let asked = |cache: &mut Cache, path: &str| {
            let found = cached();
            let admits = cache.admits(path.as_bytes(), &found);
            if admits {
                cache.insert(path.as_bytes(), found, Status(200), Nanos(0));
            }
            admits
        };
        for number in 0..ADMITTED_FREELY_MAX {
            assert!(asked(&mut cache, &number.to_string()));
        }
        assert!(!asked(&mut cache, "new"));
        assert!(asked(&mut cache, "new"));
        assert!(asked(&mut cache, "new"), "a newer state of it");
        assert!(!(0..100_000).any(|number| asked(&mut cache, &format!("once{number}"))));
        let kept = cache.young.paths.len() + cache.old.paths.len();
        assert_eq!(kept, ADMITTED_FREELY_MAX + 1);
    }
}
