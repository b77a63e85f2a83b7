//! The releases of a content that are no longer current, and how long each of them stays.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gannet_io::heap;
use gannet_store::{Keep, ReleaseId};

use super::origin::{Origin, again_after};
use super::{Follower, Leaving, is_named, is_same};
use crate::limits::{KEPT_COPIES_BYTES_MAX, OTHER_RELEASES_MAX, UNLINKED_BYTES_MAX};
use crate::release::opened::OpenedArchive;
use crate::start::lookout::Stamp;

/// A release that answers for its immutable assets.
pub(super) struct Kept {
    pub(super) archive: Arc<OpenedArchive>,
    /// When the last server has activated the release after it, Unix seconds.
    pub(super) left: u64,
    /// It was current here; if not, another server may have activated it before it was superseded.
    pub(super) was_current: bool,
}

/// Those that were current, the newest first, and then those that others may have activated.
#[derive(Default)]
pub(super) struct KeptReleases(pub(super) Vec<Kept>);

/// What bounds the releases that are kept.
pub(super) struct Bounds {
    pub(super) keep: Keep,
    /// All of them together have at most this many bytes, whatever `keep` says.
    pub(super) bytes_max: u64,
    /// Unix seconds.
    pub(super) now: u64,
}

impl KeptReleases {
    pub(super) fn archives(&self) -> impl Iterator<Item = &Arc<OpenedArchive>> {
        self.0.iter().map(|kept| &kept.archive)
    }

    /// Adds a release that is not among them.
    pub(super) fn add(&mut self, kept: Kept) {
        self.0.insert(0, kept);
        // Stable: of two that were left together, the one that was added last comes first.
        self.0
            .sort_by_key(|kept| (!kept.was_current, Reverse(kept.left)));
    }

    /// Removes the releases for which `is_gone` is true.
    pub(super) fn take(&mut self, is_gone: impl Fn(&OpenedArchive) -> bool) -> Vec<Kept> {
        self.0.extract_if(.., |it| is_gone(&it.archive)).collect()
    }

    /// Removes the releases that are beyond the bounds. Until all servers have left a release, only
    /// the bounds of this server count.
    pub(super) fn take_beyond(&mut self, bounds: &Bounds) -> Vec<Kept> {
        let keep = &bounds.keep;
        let mut number = 0;
        let mut bytes: u64 = 0;
        let mut copied: u64 = 0;
        let is_beyond = |kept: &mut Kept| {
            let len = kept.archive.len;
            let is_left = kept.left <= bounds.now;
            let is_old = bounds.now.saturating_sub(kept.left) >= keep.age_s;
            let is_over = number >= keep.most as usize
                || is_old && number >= keep.least as usize
                || keep
                    .bytes
                    .is_some_and(|most| bytes.saturating_add(len) > most);
            // Copies of archives that fit into the budget count there.
            let own_copy = match kept.archive.is_copied && kept.archive.room.is_none() {
                true => len,
                false => 0,
            };
            let is_above = number >= OTHER_RELEASES_MAX - 1
                || bytes.saturating_add(len) > bounds.bytes_max
                || copied.saturating_add(own_copy) > KEPT_COPIES_BYTES_MAX;
            if is_left && is_over || is_above {
                return true;
            }
            number += 1;
            bytes = bytes.saturating_add(len);
            copied += own_copy;
            false
        };
        self.0.extract_if(.., is_beyond).collect()
    }
}

/// How the follower keeps releases.
impl Follower {
    /// Keeps a release that is no longer current or staged; `left`: when the last server leaves it.
    pub(super) fn keep(&mut self, archive: Arc<OpenedArchive>, left: u64, was_current: bool) {
        if is_same(self.archive(), &archive) {
            self.leave(archive);
            return;
        }
        let same = self.drop_kept(&archive);
        let kept = self.without_copy(&archive);
        if !Arc::ptr_eq(&kept, &archive) {
            let is_kept = true;
            self.leaving.push(Leaving { archive, is_kept });
        }
        self.kept.add(Kept {
            archive: kept,
            left,
            was_current: was_current || same.is_some_and(|it| it.was_current),
        });
    }

    /// Drops a kept release that is the same as this one, and returns what it was.
    pub(super) fn drop_kept(&mut self, archive: &OpenedArchive) -> Option<Kept> {
        let same = self.kept.take(|it| is_same(it, archive)).pop()?;
        self.leave(Arc::clone(&same.archive));
        Some(same)
    }

    /// Opens the releases that the store keeps and this server does not; those that it does are not
    /// let go of here, since the log may be missing. False if there are none.
    pub(super) fn keep_from_store(&mut self, now: u64) -> bool {
        let Origin::Store(store) = &mut self.source.origin else {
            return false;
        };
        // Before reading: then no change is missed.
        store.has_changed();
        self.keep_again_at = None;
        let wanted = match store.kept(now) {
            Ok(wanted) => wanted,
            Err(_) => {
                // Who cannot list the log will not read the pointer either, and say so.
                self.keep_again_at = Some(again_after(Duration::ZERO));
                return false;
            }
        };
        let store = &store.store;
        // The oldest first: each is put before those that were left at the same moment.
        let files = wanted.iter().rev().map(|it| {
            let path = store.release_path(it.pointer.release);
            (Stamp::of(&path), path, it)
        });
        let files: Vec<_> = files.collect();
        self.unkept
            .retain(|id, _| wanted.iter().any(|it| it.pointer.release == *id));
        let mut is_changed = false;
        for (stamp, path, wanted) in files {
            let id = wanted.pointer.release;
            if self.has(id) || self.unkept.get(&id) == Some(&stamp) {
                continue;
            }
            let begun = Instant::now();
            match self.open_of_store(&path, &wanted.pointer) {
                Ok(archive) => {
                    self.unkept.remove(&id);
                    self.keep(Arc::new(archive), wanted.left_at, wanted.was_active);
                    is_changed = true;
                }
                Err(refusal) => {
                    if !refusal.is_final {
                        self.keep_again_at = Some(again_after(begun.elapsed()));
                    }
                    if self.unkept.insert(id, stamp) != Some(stamp) {
                        self.report.tell(format_args!(
                            "cannot keep release {}: {}",
                            id.short(),
                            refusal.text
                        ));
                    }
                }
            }
        }
        if is_changed {
            self.note();
        }
        is_changed
    }

    /// Opens kept releases again, if the store's folders have changed, or some could not be opened.
    pub(super) fn keep_again(&mut self, is_asked: bool, now: u64) {
        let Origin::Store(store) = &mut self.source.origin else {
            return;
        };
        let is_again = self.keep_again_at.is_some_and(|at| at <= Instant::now());
        if store.has_changed() || is_again || is_asked {
            if is_again {
                self.unkept.clear();
            }
            if self.keep_from_store(now) {
                self.publish();
            }
        }
    }

    /// Whether a release is current, staged or kept.
    fn has(&self, id: ReleaseId) -> bool {
        let staged = self.staged.iter().map(|it| &it.archive);
        let kept = self.kept.archives();
        let mut all = [self.archive()].into_iter().chain(staged).chain(kept);
        all.any(|it| is_named(it, id))
    }

    /// A release as it is kept: without a copy in memory, unless copies were asked for, or its file
    /// was overwritten.
    fn without_copy(&self, archive: &Arc<OpenedArchive>) -> Arc<OpenedArchive> {
        let may_read = !self.surroundings.options.copies_archives();
        let without = may_read.then(|| archive.without_copy()).flatten();
        without.map_or_else(|| Arc::clone(archive), Arc::new)
    }

    /// Drops releases that must not answer any more.
    pub(crate) fn drop_void(&mut self, void: &[ReleaseId]) {
        let before = self.leaving.len();
        let is_void = |it: &OpenedArchive| void.iter().any(|id| is_named(it, *id));
        if let Some(staged) = self.staged.take_if(|it| is_void(&it.archive)) {
            self.leave(staged.archive);
        }
        for gone in self.kept.take(is_void) {
            self.leave(gone.archive);
        }
        // At once: whether the pointer's own release can be staged is another matter.
        if self.leaving.len() > before {
            self.note();
            self.publish();
        }
    }

    /// Frees a release once no worker uses it.
    pub(super) fn leave(&mut self, archive: Arc<OpenedArchive>) {
        let is_kept = false;
        self.leaving.push(Leaving { archive, is_kept });
    }

    /// Lets go of releases that need not be kept any longer, and frees memory that is unused.
    pub(super) fn let_go(&mut self, now: u64) {
        let (keep, bytes_max) = match &self.source.origin {
            Origin::Store(store) => (store.pointer.keep, u64::MAX),
            Origin::Path(_) => (Keep::default(), UNLINKED_BYTES_MAX),
        };
        let gone = self.kept.take_beyond(&Bounds {
            keep,
            bytes_max,
            now,
        });
        if !gone.is_empty() {
            for gone in gone {
                self.leave(gone.archive);
            }
            self.note();
            self.publish();
        }
        let is_free = |it: &Leaving| match it.is_kept {
            true => !it.archive.is_copy_used(),
            false => !it.archive.is_used(),
        };
        let before = self.leaving.len();
        self.leaving.retain(|it| !is_free(it));
        if self.leaving.len() < before {
            // The allocator would keep the metadata of a large site for this thread alone.
            heap::give_back();
        }
    }
}
