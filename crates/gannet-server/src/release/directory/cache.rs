//! Request paths and their resolutions, bounded in count, and with the caches of other sites in bytes and
//! descriptors.
//!
//! Two generations approximate least-recently-used at the cost of a hash map: a used entry moves to
//! the young one; when the caches of all sites age ([`Pool`]), the old one is dropped, as far as there is no
//! room for it, and the young one takes its place.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::rc::Rc;

use gannet_http::semantics::response::Status;
use gannet_io::driver::Nanos;

use super::Cached;
use crate::bounds::limits::{
    ADMITTED_FREELY_MAX, ASKED_ONCE_MAX, BELIEVED_MS, CACHED_PATHS_MAX, CONFIRMED_MS, OPEN_IDLE_MS,
};
use crate::release::room::{Ageing, Part, Pool, Room};

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

impl Remembered {
    fn held(&self) -> Room {
        Room {
            memory: self.weight,
            descriptors: self.descriptors,
        }
    }
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

    /// Adds another one, whose entries are not in this one.
    fn absorb(&mut self, other: Self) {
        if self.paths.is_empty() {
            *self = other;
            return;
        }
        for (path, value) in other.paths {
            self.insert(path, value);
        }
    }

    fn held(&self) -> Room {
        Room {
            memory: self.weight,
            descriptors: self.descriptors,
        }
    }
}

/// How many of the paths requested once share a place: without, a third of 10,000 would displace each other.
const ASKED_ONCE_WAYS: usize = 4;

/// See the module documentation.
pub(super) struct Cache {
    young: Generation,
    old: Generation,
    /// What it has of the room for all sites.
    part: Part,
    /// Hashes of paths that were requested and not admitted, in sets of which the newest is first; empty until
    /// one was.
    asked_once: Vec<[u32; ASKED_ONCE_WAYS]>,
}

impl Cache {
    pub(super) fn new(pool: &Rc<Pool>) -> Self {
        Self {
            young: Generation::default(),
            old: Generation::default(),
            part: Part::new(pool),
            asked_once: Vec::new(),
        }
    }

    /// The room for all sites.
    pub(super) fn pool(&self) -> &Rc<Pool> {
        self.part.pool()
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        *self = Self::new(&Rc::clone(self.pool()));
    }

    /// Forgets what was not requested since it last aged, or the half of it that was confirmed longest ago,
    /// unless it has no more than it may keep. Returns what it had.
    pub(super) fn age(&mut self, ageing: &Ageing) -> Room {
        let held = self.young.held() + self.old.held();
        let is_memory = held.memory > ageing.keeps.memory;
        let is_files = held.descriptors > ageing.keeps.descriptors;
        let goes = |value: &Remembered| is_memory || (is_files && value.descriptors > 0);
        if ageing.is_more {
            let mut half = held / 2;
            if !is_memory {
                half.memory = u64::MAX;
            }
            if !is_files {
                half.descriptors = usize::MAX;
            }
            // Of very many paths the young ones have stayed young.
            let all = [&self.old, &self.young].into_iter();
            let all = all.flat_map(|it| &it.paths);
            let all = all.filter(|(_, value)| goes(value));
            let all = all.map(|(path, value)| (value.confirmed, path.clone(), value.held()));
            let mut all: Vec<_> = all.collect();
            all.sort_unstable_by(|one, other| (other.0, &other.1).cmp(&(one.0, &one.1)));
            // A long one that does not fit lets shorter ones stay that were confirmed before it.
            let mut left = Room::default();
            for (_, path, held) in all {
                match (left + held).exceeds(half) {
                    true => self.take(&path),
                    false => left = left + held,
                }
            }
        } else if is_memory || is_files {
            self.old.retain(|value| !goes(value));
        }
        // What it has alone may be old, which has a bound by count.
        if !ageing.is_more && self.young.paths.len() + self.old.paths.len() <= CACHED_PATHS_MAX / 2
        {
            let young = std::mem::take(&mut self.young);
            self.old.absorb(young);
        }
        self.note();
        held
    }

    /// Notes what it has.
    fn note(&mut self) {
        self.part.set(self.young.held() + self.old.held());
    }

    /// Forgets a path.
    pub(super) fn remove(&mut self, path: &[u8]) {
        self.take(path);
        self.note();
    }

    fn take(&mut self, path: &[u8]) {
        self.young.take(path);
        self.old.take(path);
    }

    /// Closes cached open files that no response is being sent from: those of the old generation, or
    /// if it has none, those of the young one. False if there are none.
    pub(super) fn drop_descriptors(&mut self) -> bool {
        let is_any = [&mut self.old, &mut self.young]
            .into_iter()
            .any(|generation| {
                let before = generation.descriptors;
                generation.retain(|value| value.descriptors == 0 || value.cached.is_in_use());
                generation.descriptors < before
            });
        self.note();
        is_any
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
        const SETS: usize = ASKED_ONCE_MAX / ASKED_ONCE_WAYS;
        let is_free = self.young.paths.len() + self.old.paths.len() < ADMITTED_FREELY_MAX;
        let has = |it: &Generation| it.paths.contains_key(path);
        if is_free || !cached.is_short() || has(&self.young) || has(&self.old) {
            return true;
        }
        if self.asked_once.is_empty() {
            self.asked_once = vec![[0; ASKED_ONCE_WAYS]; SETS];
        }
        let hash = self.young.paths.hasher().hash_one(path);
        let mark = (hash >> 32) as u32 | 1;
        let set = &mut self.asked_once[hash as usize % SETS];
        let was_asked = set.contains(&mark);
        if !was_asked {
            set.rotate_right(1);
            set[0] = mark;
        }
        was_asked
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
        self.grown();
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
        self.note();
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
        self.note();
        is_left
    }

    fn rejuvenate(&mut self, path: &[u8]) -> Option<()> {
        let (path, value) = self.old.take(path)?;
        self.young.insert(path, value);
        self.grown();
        Some(())
    }

    /// The young generation has grown.
    fn grown(&mut self) {
        if self.young.paths.len() > CACHED_PATHS_MAX / 2 {
            self.old = std::mem::take(&mut self.young);
        }
        self.note();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Room for so many bytes of so many sites.
    fn pool(memory: u64, sites: usize) -> Rc<Pool> {
        let pool = Rc::new(Pool::default());
        let descriptors = 8;
        pool.set(
            Room {
                memory,
                descriptors,
            },
            sites,
        );
        pool
    }

    /// What a worker does at the end of a turn.
    fn fit(pool: &Pool, caches: &mut [&mut Cache]) {
        while pool.is_due() {
            let Some(mut ageing) = pool.begin() else {
                continue;
            };
            for cache in &mut *caches {
                ageing.kept = ageing.kept + cache.age(&ageing).within(pool.own());
            }
            pool.end(ageing);
        }
    }

    /// Caches an entry.
    fn put(cache: &mut Cache, number: u32) {
        let path = number.to_string();
        cache.insert(path.as_bytes(), cached(), Status(200), Nanos(0));
    }

    fn has(cache: &Cache, number: u32) -> bool {
        cache.any(number.to_string().as_bytes()).is_some()
    }

    /// Requests an entry, which is there.
    fn ask(cache: &mut Cache, number: u32) -> bool {
        let path = number.to_string();
        cache.fresh(path.as_bytes(), Nanos(0), |_| true).is_some()
    }

    fn count(cache: &Cache) -> usize {
        cache.young.paths.len() + cache.old.paths.len()
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
        let (mut cache, start) = (Cache::new(&pool(1 << 20, 1)), Nanos(0));
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
        let pool = pool(20 * 1_024, 1);
        let mut cache = Cache::new(&pool);
        for number in 0..100 {
            put(&mut cache, number);
            assert!(number == 0 || ask(&mut cache, 0), "{number}");
            fit(&pool, &mut [&mut cache]);
            let kept = count(&cache);
            assert!(kept <= 20, "{kept} entries of a kilobyte in a budget of 20");
        }
        assert!(!has(&cache, 50));
        assert_eq!(
            cache.young.weight + cache.old.weight,
            1_024 * count(&cache) as u64
        );
    }

    #[test]
    fn with_less_room_the_older_part_goes_first() {
        let pool = pool(20 * 1_024, 1);
        let mut cache = Cache::new(&pool);
        for number in 0..15 {
            put(&mut cache, number);
            fit(&pool, &mut [&mut cache]);
        }
        assert!(has(&cache, 0) && has(&cache, 14));
        let less = |cache: &mut Cache, memory| {
            let limit = Room {
                memory,
                descriptors: 8,
            };
            pool.set(limit, 1);
            fit(&pool, &mut [cache]);
        };
        less(&mut cache, 16 * 1_024);
        assert!(has(&cache, 0), "it still fits");
        less(&mut cache, 8 * 1_024);
        assert!(!has(&cache, 0) && has(&cache, 14));
        less(&mut cache, 512);
        assert!(!has(&cache, 14));
    }

    /// Also if all of it was requested.
    #[test]
    fn with_much_less_room_nothing_has_to_be_added_until_it_fits() {
        let pool = pool(64 * 1_024, 1);
        let mut cache = Cache::new(&pool);
        for number in 0..32 {
            put(&mut cache, number);
        }
        fit(&pool, &mut [&mut cache]);
        assert_eq!(count(&cache), 32);
        let limit = Room {
            memory: 3 * 1_024,
            descriptors: 8,
        };
        pool.set(limit, 1);
        fit(&pool, &mut [&mut cache]);
        assert!((1..=3).contains(&count(&cache)), "{}", count(&cache));
    }

    /// Too many paths to be old together, the young ones of which have more open files than there may be.
    #[test]
    fn open_files_have_a_bound_among_very_many_paths() {
        const OPEN: u32 = 100;
        let most = CACHED_PATHS_MAX as u32 / 2;
        let pool = pool(1 << 30, 1);
        let mut cache = Cache::new(&pool);
        for number in 0..most + 1 + OPEN {
            put(&mut cache, number);
        }
        for open in cache.young.paths.values_mut() {
            open.descriptors = 1;
        }
        cache.young.descriptors = cache.young.paths.len();
        assert_eq!(cache.young.descriptors, OPEN as usize);
        cache.note();
        fit(&pool, &mut [&mut cache]);
        let left = cache.young.descriptors + cache.old.descriptors;
        assert!((1..=8).contains(&left), "{left} open files");
        assert!(count(&cache) > most as usize, "short ones stay");
    }

    /// One site has all that others do not need; when they do, what it is not asked for is theirs.
    #[test]
    fn a_busy_site_has_the_room_of_idle_ones() {
        let pool = pool(64 * 1_024, 4);
        let mut first = Cache::new(&pool);
        let mut second = Cache::new(&pool);
        for number in 0..60 {
            put(&mut first, number);
            fit(&pool, &mut [&mut first, &mut second]);
        }
        assert_eq!(count(&first), 60, "nearly all the room");
        for number in 0..60 {
            put(&mut second, number);
            fit(&pool, &mut [&mut first, &mut second]);
            assert!(count(&first) + count(&second) <= 64);
        }
        assert!(count(&second) > 40 && count(&first) == 0);
        // All is given back.
        drop(first);
        let mut third = Cache::new(&pool);
        second.clear();
        for number in 0..60 {
            put(&mut third, number);
            fit(&pool, &mut [&mut second, &mut third]);
        }
        assert_eq!(count(&third), 60);
    }

    /// A site with no more than its own part of half the room keeps it, and any keeps what is requested of it.
    #[test]
    fn a_flood_of_one_site_leaves_others_their_part_and_what_they_are_asked_for() {
        let pool = pool(64 * 1_024, 4);
        let [mut small, mut busy, mut flooded] = [0; 3].map(|_| Cache::new(&pool));
        (0..8).for_each(|number| put(&mut small, number));
        (0..16).for_each(|number| put(&mut busy, number));
        for number in 0..10_000 {
            put(&mut flooded, number);
            assert!((0..4).all(|number| ask(&mut busy, number)), "{number}");
            fit(&pool, &mut [&mut small, &mut busy, &mut flooded]);
            let all = count(&small) + count(&busy) + count(&flooded);
            assert!(all <= 64, "{all} entries of a kilobyte");
            // What has just been cached stays for a while.
            assert!(has(&flooded, number) && has(&flooded, number.saturating_sub(5)));
        }
        assert!((0..8).all(|number| has(&small, number)));
        assert!((4..16).all(|number| !has(&busy, number)));
    }

    #[test]
    fn hits_drop_nothing_while_all_fits() {
        let pool = pool(64 * 1_024, 2);
        let [mut first, mut second] = [0; 2].map(|_| Cache::new(&pool));
        for number in 0..30 {
            put(&mut first, number);
            put(&mut second, number);
            fit(&pool, &mut [&mut first, &mut second]);
        }
        for _ in 0..10 {
            for number in 0..30 {
                assert!(ask(&mut first, number));
                assert!(!pool.is_due(), "a hit is no reason to age");
            }
        }
        assert!((0..30).all(|number| ask(&mut second, number)));
        // And if all was requested when something else comes, half of it stays.
        for number in 30..35 {
            put(&mut first, number);
            fit(&pool, &mut [&mut first, &mut second]);
        }
        let left = count(&first) + count(&second);
        assert!((16..=48).contains(&left), "{left} entries");
    }

    /// Of a site with more open files than its part, those go that were not asked for, and its short ones stay.
    #[test]
    fn open_files_and_memory_have_a_part_each() {
        let pool = pool(64 * 1_024, 4);
        let mut cache = Cache::new(&pool);
        for number in 0..8 {
            put(&mut cache, number);
        }
        for path in [&b"6"[..], b"7"] {
            let open = cache.young.paths.get_mut(path).expect("it was put there");
            open.descriptors = 1;
            cache.young.descriptors += 1;
        }
        let keeps = Room {
            descriptors: 1,
            ..pool.own()
        };
        let ageing = |keeps, is_more| Ageing {
            keeps,
            is_more,
            next: 0,
            kept: Room::default(),
        };
        cache.age(&ageing(keeps, false));
        assert!(ask(&mut cache, 7));
        let held = cache.age(&ageing(keeps, false));
        assert!((0..6).all(|number| has(&cache, number)));
        assert!(!has(&cache, 6) && has(&cache, 7));
        assert_eq!((held.descriptors, held.within(keeps).descriptors), (2, 0));
        assert_eq!(held.within(keeps).memory, 8 * 1_024);
        // With no more open files than its part it keeps these.
        cache.age(&ageing(keeps, false));
        cache.age(&ageing(keeps, true));
        assert!(has(&cache, 7) && count(&cache) == 7);
        cache.age(&ageing(Room::default(), true));
        assert!(count(&cache) <= 3);
    }

    /// A large cache admits a path at its second request, and so keeps what is used.
    #[test]
    fn a_crawler_displaces_nothing() {
        let mut cache = Cache::new(&pool(1 << 30, 1));
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
        // Of a site of a size that is common, nearly all are known at their second request.
        let number = ASKED_ONCE_MAX / 4;
        let again = [0, 1].map(|_| {
            let admitted =
                (0..number).filter(|number| asked(&mut cache, &format!("twice{number}")));
            admitted.count()
        });
        assert_eq!(again[0], 0);
        assert!(again[1] > number * 9 / 10, "{again:?}");
    }
}
