//! The releases of a content that are no longer current, and how long each of them stays.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gannet_io::heap;
use gannet_store::{Keep, KeptRelease, ReleaseId};

use super::origin::{Origin, again_after};
use super::{Bad, Leaving, ReleaseFollower, is_named, is_same};
use crate::bounds::limits::{
    KEPT_COPIES_BYTES_MAX, KEPT_RULES_PART, OTHER_RELEASES_MAX, UNLINKED_BYTES_MAX,
};
use crate::release::opened::OpenedArchive;
use crate::start::partial::is_partial;

/// A release that answers for its immutable assets.
pub(super) struct EarlierRelease {
    pub(super) archive: Arc<OpenedArchive>,
    /// When the last server has activated the release after it, Unix seconds.
    pub(super) left: u64,
    /// It was current here; if not, another server may have activated it before it was superseded.
    pub(super) was_current: bool,
}

impl EarlierRelease {
    /// Copies of archives that fit into the budget count there.
    fn copied(&self) -> u64 {
        match self.archive.is_copied && self.archive.room.is_none() {
            true => self.archive.len,
            false => 0,
        }
    }
}

/// Those that were current, the newest first, and then those that others may have activated.
#[derive(Default)]
pub(super) struct EarlierReleases(pub(super) Vec<EarlierRelease>);

/// A release that the store keeps, and that is not kept here.
pub(super) struct Unkept {
    what: Bad,
    /// Trying again is of no use.
    is_final: bool,
}

/// What bounds the releases that are kept.
pub(super) struct Bounds {
    pub(super) keep: Keep,
    /// All of them together have at most this many bytes, whatever `keep` says.
    pub(super) bytes_max: u64,
    /// The same for the memory of their rules.
    pub(super) rules_max: usize,
    /// Unix seconds.
    pub(super) now: u64,
}

impl EarlierReleases {
    pub(super) fn archives(&self) -> impl Iterator<Item = &Arc<OpenedArchive>> {
        self.0.iter().map(|kept| &kept.archive)
    }

    /// Adds a release that is not among them, before those that were left at the same moment.
    pub(super) fn add(&mut self, kept: EarlierRelease) {
        self.0.insert(0, kept);
        self.sort();
    }

    /// The same, after those that were left at the same moment.
    pub(super) fn add_earlier(&mut self, kept: EarlierRelease) {
        self.0.push(kept);
        self.sort();
    }

    fn sort(&mut self) {
        // It is stable.
        self.0
            .sort_by_key(|kept| (!kept.was_current, Reverse(kept.left)));
    }

    /// Bytes of those that are in memory as a whole, beyond the budget for archives that fit.
    fn copied(&self) -> u64 {
        self.0.iter().map(EarlierRelease::copied).sum()
    }

    /// Removes the releases for which `is_gone` is true.
    pub(super) fn take(&mut self, is_gone: impl Fn(&OpenedArchive) -> bool) -> Vec<EarlierRelease> {
        self.0.extract_if(.., |it| is_gone(&it.archive)).collect()
    }

    /// Removes the releases that are beyond the bounds. Until all servers have left a release, only
    /// the bounds of this server count.
    pub(super) fn take_beyond(&mut self, bounds: &Bounds) -> Vec<EarlierRelease> {
        let keep = &bounds.keep;
        let mut number = 0;
        let mut bytes: u64 = 0;
        let mut copied: u64 = 0;
        let mut rules = 0;
        let is_beyond = |kept: &mut EarlierRelease| {
            let len = kept.archive.len;
            let is_left = kept.left <= bounds.now;
            let is_old = bounds.now.saturating_sub(kept.left) >= keep.age_s;
            let is_over = number >= keep.most as usize
                || is_old && number >= keep.least as usize
                || keep
                    .bytes
                    .is_some_and(|most| bytes.saturating_add(len) > most);
            let is_above = number >= OTHER_RELEASES_MAX - 1
                || bytes.saturating_add(len) > bounds.bytes_max
                || copied.saturating_add(kept.copied()) > KEPT_COPIES_BYTES_MAX
                || rules + kept.archive.rules_memory().taken() > bounds.rules_max;
            if is_left && is_over || is_above {
                return true;
            }
            number += 1;
            bytes = bytes.saturating_add(len);
            copied += kept.copied();
            rules += kept.archive.rules_memory().taken();
            false
        };
        self.0.extract_if(.., is_beyond).collect()
    }
}

/// How the follower keeps releases.
impl ReleaseFollower {
    /// Keeps a release that is no longer current or staged; `left`: when the last server leaves it.
    pub(super) fn keep(&mut self, archive: Arc<OpenedArchive>, left: u64, was_current: bool) {
        if is_same(self.archive(), &archive) {
            self.leave(archive);
            return;
        }
        let same = self.drop_kept(&archive);
        let archive = self.without_copy(archive);
        self.kept.add(EarlierRelease {
            archive,
            left,
            was_current: was_current || same.is_some_and(|it| it.was_current),
        });
    }

    /// Drops a kept release that is the same as this one, and returns what it was.
    pub(super) fn drop_kept(&mut self, archive: &OpenedArchive) -> Option<EarlierRelease> {
        let same = self.kept.take(|it| is_same(it, archive)).pop()?;
        self.leave(Arc::clone(&same.archive));
        Some(same)
    }

    /// The releases that the store keeps; `None` if they cannot be listed.
    fn kept_by_store(&mut self, now: u64) -> Option<Vec<KeptRelease>> {
        let Origin::Store(store) = &mut self.source.origin else {
            return None;
        };
        // Before reading: then no change is missed.
        store.has_changed();
        self.keep_again_at = None;
        match store.kept(now) {
            Ok(kept) => {
                self.unlisted = None;
                Some(kept)
            }
            Err(error) => {
                self.keep_again_at = Some(again_after(Duration::ZERO));
                let text = error.to_string();
                if self.unlisted.as_ref() != Some(&text) {
                    self.report
                        .log(format_args!("cannot keep earlier releases: {text}"));
                    self.unlisted = Some(text);
                }
                None
            }
        }
    }

    /// Opens the first release that the store keeps and this server does not: only one, since
    /// opening takes long, and the pointer has to be looked at. Those that it keeps already are not
    /// released here: the log may be missing.
    fn keep_from_store(&mut self, now: u64) {
        let Some(wanted) = self.kept_by_store(now) else {
            return;
        };
        self.unkept
            .retain(|id, _| wanted.iter().any(|it| it.pointer.release == *id));
        for wanted in wanted {
            let id = wanted.pointer.release;
            let Origin::Store(store) = &self.source.origin else {
                return;
            };
            let path = store.store.file_of(id);
            let what = Bad::of(&wanted.pointer, &path);
            let unkept = self.unkept.get(&id).filter(|it| it.what == what);
            let is_known = unkept.is_some();
            if self.has(id) || unkept.is_some_and(|it| it.is_final) {
                continue;
            }
            let options = &self.surroundings.options;
            let is_partial = is_partial(&path);
            if is_partial && options.supply.is_none() {
                continue;
            }
            let copies = options.copies_archives() && !is_partial;
            if copies && self.kept.copied() + wanted.pointer.size > KEPT_COPIES_BYTES_MAX {
                continue;
            }
            let begun = Instant::now();
            match self.open_of_store(&path, &wanted.pointer) {
                Ok(archive) => {
                    let archive = self.without_copy(Arc::new(archive));
                    self.kept.add_earlier(EarlierRelease {
                        archive,
                        left: wanted.left_at,
                        was_current: wanted.was_active,
                    });
                    self.let_go(now);
                    if !self.has(id) {
                        // Others that are not in the log leave no room for it.
                        let is_final = true;
                        self.unkept.insert(id, Unkept { what, is_final });
                        continue;
                    }
                    self.publish();
                    // There may be another one.
                    self.keep_again_at = Some(Instant::now());
                    return;
                }
                Err(refusal) => {
                    let is_final = refusal.is_final;
                    if !is_final {
                        self.keep_again_at = Some(again_after(begun.elapsed()));
                    }
                    self.unkept.insert(id, Unkept { what, is_final });
                    if !is_known {
                        self.report.log(format_args!(
                            "cannot keep release {}: {}",
                            id.short(),
                            refusal.text
                        ));
                    }
                }
            }
        }
    }

    /// Opens kept releases, if the store's folders have changed, or there is one left to open.
    pub(super) fn keep_more(&mut self, is_asked: bool, now: u64) {
        let Origin::Store(store) = &mut self.source.origin else {
            return;
        };
        let is_again = self.keep_again_at.is_some_and(|at| at <= Instant::now());
        if store.has_changed() || is_again || is_asked {
            self.keep_from_store(now);
        }
    }

    /// Whether a release is current, staged or kept.
    fn has(&self, id: ReleaseId) -> bool {
        let staged = self.staged.iter().map(|it| &it.archive);
        let kept = self.kept.archives();
        let mut all = [self.archive()].into_iter().chain(staged).chain(kept);
        all.any(|it| is_named(it, id))
    }

    /// A release as it is kept: without a copy in memory, unless copies were requested, or its file
    /// was overwritten.
    fn without_copy(&mut self, archive: Arc<OpenedArchive>) -> Arc<OpenedArchive> {
        let may_read = !self.surroundings.options.copies_archives();
        match may_read.then(|| archive.without_copy()).flatten() {
            Some(without) => {
                let is_kept = true;
                self.leaving.push(Leaving { archive, is_kept });
                Arc::new(without)
            }
            None => archive,
        }
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
            rules_max: self.surroundings.room.rules.max() / KEPT_RULES_PART,
            now,
        });
        if !gone.is_empty() {
            for gone in gone {
                self.leave(gone.archive);
            }
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
