//! Copies of longer live files in sealed memory, shared by all workers.
//!
//! To a peer on the same machine, a live file is sent as bytes that were read for it, slice by
//! slice: pages of the file itself might change in the peer's queue. A copy that cannot change is
//! sent as pages, for a third of the CPU time. Files up to
//! [`SNAPSHOT_MAX`](crate::bounds::limits::SNAPSHOT_MAX) are copied for their first request, which waits; a
//! longer one is copied in the background, once it has been requested repeatedly, while requests are
//! answered from the file. Copies of all sites take at most half of the room of the caches, which shrink
//! by it; one that was requested within [`LONG_COPY_IDLE_MS`] is not displaced, so that files
//! that do not fit together are not copied over and over: unless its site has more than an equal part of
//! the room, and it is in the way of one that has less.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use gannet_io::driver::{Driver, File, Meta, Nanos};

use super::{Cached, CachedVariant, DirectoryOptions, DirectorySite, is_recent, is_settled};
use crate::bounds::limits::{
    CONFIRMED_MS, LONG_COPY_AFTER, LONG_COPY_IDLE_MS, LONG_COPY_PART, LONG_COPY_UNUSED_MS,
    SMALL_FILE_MAX,
};
use crate::release::body::Body;
use crate::release::files::meta_of_version;

/// The copies of the files of all directories, for all workers. Consulted when a file is looked up, never
/// for a response from memory.
pub(crate) struct LongCopies {
    copies: Mutex<Copies>,
    /// Bytes of all copies, those included that are being made, or sent after they were dropped.
    held: Arc<AtomicU64>,
    /// How many that may be.
    max: AtomicU64,
    /// Bytes that each site may have whatever others have.
    own: AtomicU64,
    workers: u64,
}

#[derive(Default)]
struct Copies {
    all: Vec<LongCopy>,
    /// Bytes for which copies of other sites were dropped, which may still be sent; and until when they are
    /// left to sites with less than their own part.
    claimed: (u64, Nanos),
}

struct LongCopy {
    /// Of the site that it was made for.
    owner: Weak<DirectoryOptions>,
    /// The version of the file.
    meta: Meta,
    file: File,
    used: Nanos,
    /// The file had changed so recently that the copy counts only until then.
    until: Option<Nanos>,
}

/// Room for one copy, given back when it is dropped: with the last user of the copy.
pub(crate) struct LongCharge {
    held: Arc<AtomicU64>,
    len: u64,
}

impl Drop for LongCharge {
    fn drop(&mut self) {
        self.held.fetch_sub(self.len, Ordering::Relaxed);
    }
}

impl LongCopies {
    /// None yet, and no room for any.
    pub(crate) fn new(workers: usize) -> Self {
        Self {
            copies: Mutex::default(),
            held: Arc::default(),
            max: AtomicU64::new(0),
            own: AtomicU64::new(0),
            workers: workers.max(1) as u64,
        }
    }

    /// Bytes of all copies.
    pub(crate) fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// How many bytes they may have.
    pub(crate) fn max(&self) -> u64 {
        self.max.load(Ordering::Relaxed)
    }

    /// Bytes by which the room of each worker's caches shrinks.
    pub(crate) fn taken(&self) -> u64 {
        self.held() / self.workers
    }

    /// Has a part of `memory` bytes of each worker for so many sites from now on.
    pub(crate) fn set_room(&self, memory: u64, sites: usize) {
        let max = memory * self.workers / LONG_COPY_PART;
        self.max.store(max, Ordering::Relaxed);
        let own = max / sites.max(1) as u64;
        self.own.store(own, Ordering::Relaxed);
        self.drop_beyond(max);
    }

    /// The copy of this version of a file.
    pub(super) fn find(&self, meta: &Meta, now: Nanos) -> Option<File> {
        let copies = &mut self.copies().all;
        // Who made it may be closed, and then has no part of the room.
        let is_it = |copy: &LongCopy| copy.meta == *meta && copy.owner.strong_count() > 0;
        let place = copies.iter().position(is_it)?;
        let copy = &mut copies[place];
        if copy.until.is_some_and(|until| now > until) {
            copies.swap_remove(place);
            return None;
        }
        copy.used = now;
        Some(copy.file.clone())
    }

    /// Takes room for a copy of `len` bytes for a site, if there is any. Copies that were not requested for
    /// a while make room; if that is not enough, and the site has no more than its own part, those of sites
    /// that have more.
    pub(super) fn take_room(
        &self,
        len: u64,
        site: &Arc<DirectoryOptions>,
        now: Nanos,
    ) -> Option<LongCharge> {
        let max = self.max();
        let Copies { all, claimed } = &mut *self.copies();
        let own = self.own.load(Ordering::Relaxed);
        let has_part = bytes_of(all, &Arc::downgrade(site)) + len > own;
        if now > claimed.1 {
            claimed.0 = 0;
        }
        let len_and_claimed = if has_part { len + claimed.0 } else { len };
        let is_full = || self.held() + len_and_claimed > max;
        while is_full() {
            let idle = all.iter().enumerate();
            let idle = idle.filter(|(_, copy)| now > copy.used.plus_ms(LONG_COPY_IDLE_MS));
            let Some((oldest, _)) = idle.min_by_key(|(_, copy)| copy.used) else {
                break;
            };
            // Its room is free once no response uses it, either.
            all.swap_remove(oldest);
        }
        if is_full() && !has_part && drop_of_others(all, max.saturating_sub(len), own) && is_full()
        {
            *claimed = (claimed.0 + len, now.plus_ms(LONG_COPY_IDLE_MS));
        }
        // What is still being sent, or made, has its room until it is not.
        if is_full() {
            return None;
        }
        if !has_part {
            claimed.0 = claimed.0.saturating_sub(len);
        }
        self.held.fetch_add(len, Ordering::Relaxed);
        Some(LongCharge {
            held: Arc::clone(&self.held),
            len,
        })
    }

    /// Keeps the copy of this version of a file, possibly for a limited time.
    pub(super) fn keep(
        &self,
        (meta, file): (Meta, File),
        site: &Arc<DirectoryOptions>,
        now: Nanos,
        until: Option<Nanos>,
    ) {
        let copies = &mut self.copies().all;
        copies.retain(|copy| copy.meta.identity != meta.identity);
        copies.push(LongCopy {
            owner: Arc::downgrade(site),
            meta,
            file,
            used: now,
            until,
        });
    }

    /// Drops copies, those requested longest ago first, until the rest is at most `max` bytes.
    fn drop_beyond(&self, max: u64) {
        let copies = &mut self.copies().all;
        let mut kept: u64 = copies.iter().map(|copy| copy.meta.len).sum();
        while kept > max
            && let Some((oldest, copy)) = copies.iter().enumerate().min_by_key(|(_, it)| it.used)
        {
            kept -= copy.meta.len;
            copies.swap_remove(oldest);
        }
    }

    /// Drops copies that were not requested for so long that their files may be gone, and those of sites that
    /// were closed. False if none is left.
    pub(crate) fn drop_unused(&self, now: Nanos) -> bool {
        let copies = &mut self.copies().all;
        copies.retain(|copy| {
            copy.owner.strong_count() > 0 && now <= copy.used.plus_ms(LONG_COPY_UNUSED_MS)
        });
        !copies.is_empty()
    }

    /// Drops all copies; responses in progress keep theirs.
    pub(crate) fn forget(&self) {
        self.copies().all.clear();
    }

    fn copies(&self) -> MutexGuard<'_, Copies> {
        // No code under the lock can panic halfway.
        self.copies.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bytes of the copies of a site.
fn bytes_of(copies: &[LongCopy], site: &Weak<DirectoryOptions>) -> u64 {
    let own = copies.iter().filter(|copy| copy.owner.ptr_eq(site));
    own.map(|copy| copy.meta.len).sum()
}

/// Drops copies until all others are at most `max` bytes, those requested longest ago first, of sites as long
/// as they have more than their `own` part. Whether one was dropped.
fn drop_of_others(copies: &mut Vec<LongCopy>, max: u64, own: u64) -> bool {
    let mut of_sites = HashMap::<_, u64, foldhash::fast::RandomState>::default();
    for copy in &*copies {
        *of_sites.entry(copy.owner.as_ptr()).or_default() += copy.meta.len;
    }
    let mut all: u64 = of_sites.values().sum();
    let before = copies.len();
    copies.sort_unstable_by_key(|copy| copy.used);
    copies.retain(|copy| {
        let of_site = of_sites.entry(copy.owner.as_ptr()).or_default();
        let goes = all > max && *of_site > own;
        if goes {
            all -= copy.meta.len;
            *of_site -= copy.meta.len;
        }
        !goes
    });
    copies.len() < before
}

/// A longer file that is being copied in the background.
pub(crate) struct LongCopying {
    site: Rc<DirectorySite>,
    /// The cached path that is sent from it.
    path: Vec<u8>,
    pub(crate) file: File,
    pub(crate) meta: Meta,
    /// It has changed recently: the copy counts until then.
    until: Option<Nanos>,
    charge: LongCharge,
}

impl LongCopying {
    /// Keeps the copy, if it is of one version. The next request finds it. Whether it was kept: it is to
    /// be dropped when it is not used for a while.
    #[must_use]
    pub(crate) fn ended<D: Driver>(self, copied: File, driver: &D) -> bool {
        let is_same = meta_of_version(driver, &self.file, &self.meta);
        let is_kept = is_same.is_ok_and(|now| now == self.meta);
        if is_kept {
            copied.attach(self.charge);
            let (site, copy) = (&self.site, (self.meta, copied));
            site.long_copies
                .keep(copy, &site.options, driver.now(), self.until);
            if let Some(cache) = &mut *site.cache.borrow_mut() {
                cache.remove(&self.path);
            }
        }
        is_kept
    }
}

impl DirectorySite {
    /// The copy of this version of a longer file.
    pub(super) fn long_copy(&self, meta: &Meta, now: Nanos) -> Option<File> {
        self.long_copies.find(meta, now)
    }

    /// Begins to copy the longer file that a cached entry is sent from, if there is room.
    pub(crate) fn begin_long_copy<D: Driver>(
        self: &Rc<Self>,
        path: Vec<u8>,
        cached: &Cached,
        driver: &D,
    ) -> Option<LongCopying> {
        let (file, meta) = cached
            .wished_copy()
            .filter(|(file, _)| !file.is_foreign() && !driver.cannot_change(file))?;
        let (now, unix) = (driver.now(), driver.unix_seconds());
        if !is_settled(&meta, unix) {
            return None;
        }
        let charge = self.long_copies.take_room(meta.len, &self.options, now)?;
        Some(LongCopying {
            site: Rc::clone(self),
            path,
            file,
            meta,
            until: is_recent(&meta, unix).then(|| now.plus_ms(CONFIRMED_MS)),
            charge,
        })
    }
}

impl Cached {
    /// Whether the longer file that it is sent from is to be copied now: once this many more
    /// requests have been answered with it: [`LONG_COPY_AFTER`].
    pub(super) fn wishes_copy(&self, long_max: u64) -> bool {
        let Some(variant) = self.long_variant().filter(|_| !self.is_brief) else {
            return false;
        };
        let len = variant.draft.len;
        let taken = variant.taken.get().saturating_add(len);
        variant.taken.set(taken);
        // Again after as many requests, if there was no room.
        len <= long_max / LONG_COPY_PART && taken % (LONG_COPY_AFTER * len) == 0
    }

    /// The longer file that it is sent from, and its version.
    fn wished_copy(&self) -> Option<(File, Meta)> {
        let variant = self.long_variant()?;
        match variant.draft.body.get() {
            Some(Body::File(file, _))
                if variant.taken.get() >= LONG_COPY_AFTER * variant.draft.len =>
            {
                Some((file.file.clone(), variant.draft.meta))
            }
            _ => None,
        }
    }

    /// The first variant that is sent from a live file, which is not copied for its first request.
    fn long_variant(&self) -> Option<&CachedVariant> {
        let is_long = |it: &&CachedVariant| {
            let is_live = it.draft.body.get().is_some_and(Body::is_live);
            is_live && it.draft.len > SMALL_FILE_MAX
        };
        self.variants.iter().find(is_long)
    }
}

#[cfg(test)]
mod tests {
    use gannet_io::driver::FileKind;

    use super::*;
    use crate::config::ContentOptions;

    const MIB: u64 = 1 << 20;

    fn meta(inode: u64, ctime_ns: i128) -> Meta {
        Meta {
            kind: FileKind::Regular,
            len: MIB,
            mtime_ns: 0,
            ctime_ns,
            identity: (1, inode),
            links: 1,
        }
    }

    fn site() -> Arc<DirectoryOptions> {
        let options = DirectoryOptions::new(&ContentOptions::default(), None, None);
        Arc::new(options.expect("the types are valid"))
    }

    /// Room for copies of so many bytes.
    fn room(max: u64, sites: usize) -> LongCopies {
        let copies = LongCopies::new(1);
        copies.set_room(max * LONG_COPY_PART, sites);
        copies
    }

    fn copy(
        copies: &LongCopies,
        meta: Meta,
        site: &Arc<DirectoryOptions>,
        now: Nanos,
    ) -> Option<File> {
        let charge = copies.take_room(meta.len, site, now)?;
        let file = File::from(std::fs::File::open("/dev/null").unwrap());
        file.attach(charge);
        copies.keep((meta, file.clone()), site, now, None);
        Some(file)
    }

    /// Those of files that were removed or replaced, too, which are not requested any more.
    #[test]
    fn copies_that_nobody_uses_go() {
        let (copies, site, start) = (room(2 * MIB, 1), site(), Nanos(0));
        let sent = copy(&copies, meta(1, 0), &site, start).unwrap();
        drop(copy(&copies, meta(2, 0), &site, start));
        let later = start.plus_ms(LONG_COPY_UNUSED_MS);
        assert!(copies.drop_unused(later) && copies.find(&meta(2, 0), later).is_some());
        assert!(copies.drop_unused(later.plus_ms(1)));
        assert!(copies.find(&meta(1, 0), later).is_none());
        assert_eq!(copies.held(), 2 * MIB, "one is still sent");
        drop(sent);
        assert_eq!(copies.held(), MIB);
        assert!(!copies.drop_unused(later.plus_ms(LONG_COPY_UNUSED_MS + 1)));
        assert_eq!(copies.held(), 0);
    }

    #[test]
    fn a_copy_is_of_one_version_and_makes_room_when_it_is_idle() {
        let (copies, site, start) = (room(2 * MIB, 1), site(), Nanos(0));
        let first = copy(&copies, meta(1, 0), &site, start).unwrap();
        drop(copy(&copies, meta(2, 0), &site, start));
        assert!(copies.find(&meta(1, 0), start).is_some());
        assert!(copies.find(&meta(1, 1), start).is_none(), "another version");
        let later = start.plus_ms(LONG_COPY_IDLE_MS + 1);
        assert!(copies.find(&meta(1, 0), later).is_some());
        assert!(copy(&copies, meta(3, 0), &site, start).is_none(), "no room");
        assert_eq!(copies.held(), 2 * MIB);
        // The second one was not requested for long enough.
        assert!(copy(&copies, meta(3, 0), &site, later).is_some());
        assert!(copies.find(&meta(2, 0), later).is_none());
        // What is being sent still has its room.
        copies.forget();
        assert_eq!(copies.held(), MIB);
        drop(first);
        assert_eq!(copies.held(), 0);
    }

    #[test]
    fn with_less_room_the_copies_requested_longest_ago_go() {
        let (copies, site) = (room(4 * MIB, 1), site());
        for number in 0..4 {
            let now = Nanos(0).plus_ms(number);
            drop(copy(&copies, meta(number, 0), &site, now).unwrap());
        }
        copies.set_room(4 * MIB * LONG_COPY_PART, 1);
        assert_eq!(copies.held(), 4 * MIB);
        copies.set_room((2 * MIB + 1) * LONG_COPY_PART, 1);
        assert_eq!(copies.held(), 2 * MIB);
        let is_there = |number| copies.find(&meta(number, 0), Nanos(0)).is_some();
        assert!([2, 3].into_iter().all(is_there));
        copies.set_room(0, 1);
        assert_eq!(copies.held(), 0);
    }

    /// A site with less than an equal part takes from those that have more, and no more than that part.
    #[test]
    fn sites_share_the_room() {
        let (copies, start) = (room(8 * MIB, 4), Nanos(0));
        let [first, second, third] = [0; 3].map(|_| site());
        let add = |site, number: u64| {
            let now = start.plus_ms(number);
            copy(&copies, meta(number, 0), site, now).is_some()
        };
        let count = |numbers: std::ops::Range<u64>| {
            let all = &copies.copies().all;
            let of = |copy: &&LongCopy| numbers.contains(&copy.meta.identity.1);
            all.iter().filter(of).count()
        };
        let more = (0..7).filter(|number| add(&first, *number));
        assert_eq!(more.count(), 7, "a single site uses nearly all");
        assert!(add(&second, 10) && !add(&first, 7));
        assert!(add(&second, 11), "the first one had more than its part");
        assert!(!add(&second, 12), "it has its part");
        assert_eq!((count(0..10), count(10..20)), (6, 2));
        assert_eq!(count(0..1), 0, "the one requested longest ago");
        // What is being sent has its room until it is not, and nothing more is dropped for it.
        let sent = copies.find(&meta(2, 0), start);
        let oldest = copies.find(&meta(1, 0), start);
        for _ in 0..3 {
            assert!(!add(&third, 20));
        }
        assert_eq!((count(0..10), count(10..20)), (5, 2));
        drop((sent, oldest));
        // What was freed for the third one is not for those who have their part.
        assert!(!add(&first, 8) && !add(&second, 12));
        assert!(add(&third, 20));
        assert!(add(&third, 21));
        assert_eq!((count(0..10), count(10..20), count(20..30)), (4, 2, 2));
        // Unless it does not come back.
        let sent = copies.find(&meta(3, 0), start);
        let fourth = site();
        assert!(!add(&fourth, 30));
        drop(sent);
        assert!(!add(&first, 8));
        for number in [4, 5, 6, 10, 11, 20, 21] {
            let later = start.plus_ms(LONG_COPY_IDLE_MS + 31);
            assert!(copies.find(&meta(number, 0), later).is_some());
        }
        assert!(add(&first, LONG_COPY_IDLE_MS + 31));
        // A site that was closed gives all back.
        drop(first);
        assert!(copies.find(&meta(4, 0), start).is_none(), "not even found");
        assert!(copies.drop_unused(start));
        assert_eq!(copies.held(), 4 * MIB);
    }

    #[test]
    fn a_copy_of_a_recently_changed_file_counts_for_a_while() {
        let (copies, site, start) = (room(MIB, 1), site(), Nanos(0));
        let file = File::from(std::fs::File::open("/dev/null").unwrap());
        let until = start.plus_ms(1);
        copies.keep((meta(1, 0), file), &site, start, Some(until));
        assert!(copies.find(&meta(1, 0), until).is_some());
        assert!(copies.find(&meta(1, 0), until.plus_ms(1)).is_none());
        assert!(copies.find(&meta(1, 0), until).is_none(), "it is gone");
    }
}
