//! Copies of longer live files in sealed memory, shared by all workers.
//!
//! To a peer on the same machine, a live file is sent as bytes that were read for it, slice by
//! slice: pages of the file itself might change in the peer's queue. A copy that nobody can change is
//! sent as pages, for a third of the CPU time. Files up to
//! [`SNAPSHOT_MAX`](crate::limits::SNAPSHOT_MAX) are copied for their first request, which waits; a
//! longer one is copied in the background, once it has been requested repeatedly, while requests are
//! answered from the file. Copies take at most half of the room of a site's caches, which shrink by
//! it; one that was requested within [`LONG_COPY_IDLE_MS`] is not displaced, so that files
//! that do not fit together are not copied over and over.

use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gannet_io::driver::{Driver, File, Meta, Nanos};

use super::{Cached, CachedVariant, DirectorySite, is_recent, is_settled};
use crate::exchange::body::Body;
use crate::limits::{
    CONFIRMED_MS, LONG_COPY_AFTER, LONG_COPY_IDLE_MS, LONG_COPY_PART, LONG_COPY_UNUSED_MS,
    SMALL_FILE_MAX,
};
use crate::release::files::meta_of_version;

/// The copies of a directory's files, for all workers. Consulted when a file is looked up, never for
/// a response from memory.
#[derive(Default)]
pub(crate) struct LongCopies {
    copies: Mutex<Vec<LongCopy>>,
    /// Bytes of all copies, those included that are being made, or sent after they were dropped.
    held: Arc<AtomicU64>,
}

struct LongCopy {
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
    /// Bytes of all copies.
    pub(crate) fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// The copy of this version of a file.
    pub(super) fn find(&self, meta: &Meta, now: Nanos) -> Option<File> {
        let mut copies = self.copies();
        let place = copies.iter().position(|copy| copy.meta == *meta)?;
        let copy = &mut copies[place];
        if copy.until.is_some_and(|until| now > until) {
            copies.swap_remove(place);
            return None;
        }
        copy.used = now;
        Some(copy.file.clone())
    }

    /// Takes room for a copy of `len` bytes, if all together are at most `max`. Copies that were not
    /// requested for a while make room.
    pub(super) fn take_room(&self, len: u64, max: u64, now: Nanos) -> Option<LongCharge> {
        let mut copies = self.copies();
        while self.held() + len > max {
            let idle = copies.iter().enumerate();
            let idle = idle.filter(|(_, copy)| now > copy.used.plus_ms(LONG_COPY_IDLE_MS));
            let (oldest, _) = idle.min_by_key(|(_, copy)| copy.used)?;
            // Its room is free once no response uses it, either.
            copies.swap_remove(oldest);
        }
        self.held.fetch_add(len, Ordering::Relaxed);
        Some(LongCharge {
            held: Arc::clone(&self.held),
            len,
        })
    }

    /// Keeps the copy of this version of a file, possibly for a limited time.
    pub(super) fn keep(&self, meta: Meta, file: File, now: Nanos, until: Option<Nanos>) {
        let mut copies = self.copies();
        copies.retain(|copy| copy.meta.identity != meta.identity);
        copies.push(LongCopy {
            meta,
            file,
            used: now,
            until,
        });
    }

    /// Drops copies, those requested longest ago first, until the rest is at most `max` bytes.
    pub(super) fn drop_beyond(&self, max: u64) {
        let mut copies = self.copies();
        let mut kept: u64 = copies.iter().map(|copy| copy.meta.len).sum();
        while kept > max
            && let Some((oldest, copy)) = copies.iter().enumerate().min_by_key(|(_, it)| it.used)
        {
            kept -= copy.meta.len;
            copies.swap_remove(oldest);
        }
    }

    /// Drops copies that were not requested for so long that their files may be gone. False if none is left.
    pub(super) fn drop_unused(&self, now: Nanos) -> bool {
        let mut copies = self.copies();
        copies.retain(|copy| now <= copy.used.plus_ms(LONG_COPY_UNUSED_MS));
        !copies.is_empty()
    }

    /// Drops all copies; responses in progress keep theirs.
    pub(super) fn forget(&self) {
        self.copies().clear();
    }

    fn copies(&self) -> MutexGuard<'_, Vec<LongCopy>> {
        // No code under the lock can panic halfway.
        self.copies.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
    /// Keeps the copy, if it is of one version. The next request finds it.
    pub(crate) fn ended<D: Driver>(self, copied: File, driver: &D) {
        let is_same = meta_of_version(driver, &self.file, &self.meta);
        if is_same.is_ok_and(|now| now == self.meta) {
            copied.attach(self.charge);
            let copies = &self.site.options.long_copies;
            copies.keep(self.meta, copied, driver.now(), self.until);
            if let Some(cache) = &mut *self.site.cache.borrow_mut() {
                cache.remove(&self.path);
            }
        }
    }
}

impl DirectorySite {
    /// Bytes of copies of longer files.
    pub(crate) fn long_copies(&self) -> u64 {
        self.options.long_copies.held()
    }

    /// How many bytes copies of longer files may have.
    pub(crate) fn long_max(&self) -> u64 {
        self.long_max.get()
    }

    /// The copy of this version of a longer file.
    pub(super) fn long_copy(&self, meta: &Meta, now: Nanos) -> Option<File> {
        self.options.long_copies.find(meta, now)
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
            .filter(|(file, _)| !file.is_foreign())?;
        let (now, unix) = (driver.now(), driver.unix_seconds());
        if !is_settled(&meta, unix) {
            return None;
        }
        let charge = self
            .options
            .long_copies
            .take_room(meta.len, self.long_max(), now)?;
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

    fn copy(copies: &LongCopies, meta: Meta, max: u64, now: Nanos) -> Option<File> {
        let charge = copies.take_room(meta.len, max, now)?;
        let file = File::from(std::fs::File::open("/dev/null").unwrap());
        file.attach(charge);
        copies.keep(meta, file.clone(), now, None);
        Some(file)
    }

    /// Those of files that were removed or replaced, too, which nobody asks for any more.
    #[test]
    fn copies_that_nobody_uses_go() {
        let (copies, start) = (LongCopies::default(), Nanos(0));
        let sent = copy(&copies, meta(1, 0), 2 * MIB, start).unwrap();
        drop(copy(&copies, meta(2, 0), 2 * MIB, start));
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
        let (copies, start) = (LongCopies::default(), Nanos(0));
        let max = 2 * MIB;
        let first = copy(&copies, meta(1, 0), max, start).unwrap();
        drop(copy(&copies, meta(2, 0), max, start));
        assert!(copies.find(&meta(1, 0), start).is_some());
        assert!(copies.find(&meta(1, 1), start).is_none(), "another version");
        let later = start.plus_ms(LONG_COPY_IDLE_MS + 1);
        assert!(copies.find(&meta(1, 0), later).is_some());
        assert!(copy(&copies, meta(3, 0), max, start).is_none(), "no room");
        assert_eq!(copies.held(), max);
        // The second one was not requested for long enough.
        assert!(copy(&copies, meta(3, 0), max, later).is_some());
        assert!(copies.find(&meta(2, 0), later).is_none());
        // What is being sent still has its room.
        copies.forget();
        assert_eq!(copies.held(), MIB);
        drop(first);
        assert_eq!(copies.held(), 0);
    }

    #[test]
    fn with_less_room_the_copies_requested_longest_ago_go() {
        let copies = LongCopies::default();
        for number in 0..4 {
            let now = Nanos(0).plus_ms(number);
            drop(copy(&copies, meta(number, 0), 4 * MIB, now).unwrap());
        }
        copies.drop_beyond(4 * MIB);
        assert_eq!(copies.held(), 4 * MIB);
        copies.drop_beyond(2 * MIB + 1);
        assert_eq!(copies.held(), 2 * MIB);
        let is_there = |number| copies.find(&meta(number, 0), Nanos(0)).is_some();
        assert!([2, 3].into_iter().all(is_there));
        copies.drop_beyond(0);
        assert_eq!(copies.held(), 0);
    }

    #[test]
    fn a_copy_of_a_recently_changed_file_counts_for_a_while() {
        let (copies, start) = (LongCopies::default(), Nanos(0));
        let file = File::from(std::fs::File::open("/dev/null").unwrap());
        let until = start.plus_ms(1);
        copies.keep(meta(1, 0), file, start, Some(until));
        assert!(copies.find(&meta(1, 0), until).is_some());
        assert!(copies.find(&meta(1, 0), until.plus_ms(1)).is_none());
        assert!(copies.find(&meta(1, 0), until).is_none(), "it is gone");
    }
}
