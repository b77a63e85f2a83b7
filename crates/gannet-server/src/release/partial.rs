//! Releases of which only a part is on this machine: blobs come when a request needs them.
//!
//! Another process fetches and verifies parts of blobs, writes them to the release's file, and notes them as
//! present; the serving process reads what is present, and asks for the rest (`exchange/fetching`). To make
//! room, that process may drop any part at any time. So bytes count only if they were present before and after
//! they were read, and nothing was dropped in between: pages of the file are never lent to the kernel, and each
//! response has a view of the file for itself, which knows the slice that is being read.

use std::cell::Cell;
use std::collections::HashMap;
use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, OnceLock};

use gannet_archive::Archive;

use crate::bounds::limits::{FETCH_AHEAD, SLICE_READS_MAX, USED_PARTS_MAX};
use crate::config::supply::{AHEAD, NO_CLIENT, ReleasePart, Supply};

/// Says for bytes of a blob whether all of them are present: if so, a number that is another one once any of
/// them was dropped, even if it is back.
pub(crate) type Presence = dyn Fn(u32, Range<u64>) -> Option<u64> + Send + Sync;

/// A release of which only a part is here. All workers share it.
pub(crate) struct PartialRelease {
    /// Its name in its store.
    pub(crate) id: [u8; 16],
    pub(crate) archive: Arc<Archive<Vec<u8>>>,
    pub(crate) presence: Box<Presence>,
    /// Its file; `None` in the simulator.
    pub(crate) file: Option<Arc<File>>,
    /// Its pages for errors, which memory has.
    pub(crate) pages: OnceLock<ErrorParts>,
}

/// Pages for errors, and whether each was here when it was read, for all hosts that have it.
pub(crate) type ErrorParts = HashMap<ReleasePart, bool>;

/// A view of such a release: of one of its blobs, or of none.
pub(crate) struct PartialView {
    release: Arc<PartialRelease>,
    blob: u32,
    /// Where the file has that.
    place: Range<u64>,
    slice: Cell<BegunSlice>,
    /// Up to where the blob was asked for ahead.
    asked: Cell<u64>,
    /// Where the last byte of the response ends in the file, at most.
    until: Cell<u64>,
}

/// The slice of the file that was begun last.
#[derive(Clone, Copy, Default)]
struct BegunSlice {
    start: u64,
    end: u64,
    /// See [`Presence`].
    stamp: Option<u64>,
    /// How often it was begun.
    reads: u32,
}

impl PartialRelease {
    /// Whether it has to be opened anew: a page for errors has come, and those that memory has can be read again. Or
    /// the path names another file by now, since all of the release is here, or its files were removed and made
    /// again. What is fetched from then on is not in this one.
    pub(crate) fn is_stale(&self, path: &Path) -> bool {
        let is_here = |part: &ReleasePart| (self.presence)(part.blob, part.range.clone()).is_some();
        let pages = || self.pages.get().into_iter().flatten();
        let has_come = pages().any(|(part, was_here)| !was_here && is_here(part));
        has_come && pages().all(|(part, was_here)| !was_here || is_here(part))
            || self.is_replaced(path)
    }

    /// Says that its pages for errors are used, as many as are said at a time, and the next ones in the next period:
    /// the next server finds them here. Those that are not here are asked for.
    pub(crate) fn use_pages(&self, supply: &Supply, period: u64) {
        let pages = self.pages.get().into_iter().flatten().map(|(part, _)| part);
        let times = pages.clone().count().div_ceil(USED_PARTS_MAX).max(1);
        let first = (period % times as u64) as usize * USED_PARTS_MAX;
        let used: Vec<_> = pages.skip(first).take(USED_PARTS_MAX).cloned().collect();
        let is_lacking = |it: &&ReleasePart| (self.presence)(it.blob, it.range.clone()).is_none();
        for part in used.iter().filter(is_lacking) {
            supply.say(part, AHEAD, NO_CLIENT);
        }
        if !used.is_empty() {
            supply.say_used(&used);
        }
    }

    fn is_replaced(&self, path: &Path) -> bool {
        let id = |it: fs::Metadata| (it.dev(), it.ino());
        let own = self.file.as_ref().and_then(|it| it.metadata().ok());
        let named = fs::metadata(path).ok();
        own.zip(named)
            .is_some_and(|(own, named)| id(own) != id(named))
    }
}

impl PartialView {
    /// A view of no blob.
    pub(crate) fn of(release: Arc<PartialRelease>) -> Self {
        Self {
            release,
            blob: 0,
            place: 0..0,
            slice: Cell::default(),
            asked: Cell::default(),
            until: Cell::new(u64::MAX),
        }
    }

    /// The same of the blob at this offset of the file.
    pub(crate) fn at(&self, offset: u64) -> Self {
        let of_none = Self::of(Arc::clone(&self.release));
        match self.release.archive.blob_at(offset) {
            Some((blob, place)) => Self {
                blob,
                place,
                ..of_none
            },
            None => of_none,
        }
    }

    /// The response needs no byte of the file from here on.
    pub(crate) fn is_needed_until(&self, end: u64) {
        self.until.set(end);
    }

    /// A range of the file, as it is requested.
    pub(crate) fn part(&self, range: &Range<u64>) -> ReleasePart {
        let in_blob = |at: u64| at.saturating_sub(self.place.start);
        ReleasePart {
            release: self.release.id,
            blob: self.blob,
            range: in_blob(range.start)..in_blob(range.end),
        }
    }

    /// Whether a range of the file is present now; if so, see [`Presence`].
    fn stamp(&self, range: &Range<u64>) -> Option<u64> {
        let is_of_blob = self.place.start <= range.start && range.end <= self.place.end;
        let part = is_of_blob.then(|| self.part(range).range)?;
        (self.release.presence)(self.blob, part)
    }

    /// The first part of a range that is not present, as much as is asked for at one time.
    pub(crate) fn lacking(&self, range: &Range<u64>) -> Option<Range<u64>> {
        let parts = range.clone().step_by(FETCH_AHEAD as usize);
        let mut parts = parts.map(|at| at..range.end.min(at + FETCH_AHEAD));
        parts.find(|part| self.stamp(part).is_none())
    }

    /// Begins to read a slice; false if it is not present. Fails if that was tried often enough.
    pub(crate) fn begin(&self, range: Range<u64>) -> Result<bool, ()> {
        let before = self.slice.get();
        let is_same = (before.start, before.end) == (range.start, range.end);
        let reads = if is_same { before.reads + 1 } else { 1 };
        let stamp = self.stamp(&range);
        self.slice.set(BegunSlice {
            start: range.start,
            end: range.end,
            stamp,
            reads,
        });
        match reads <= SLICE_READS_MAX {
            true => Ok(stamp.is_some()),
            false => Err(()),
        }
    }

    /// Whether the slice that was begun last was not begun before: nothing was fetched for it.
    pub(crate) fn is_first_read(&self) -> bool {
        self.slice.get().reads == 1
    }

    /// The slice that was begun last.
    pub(crate) fn slice(&self) -> Range<u64> {
        let slice = self.slice.get();
        slice.start..slice.end
    }

    /// Whether nothing of the slice was dropped since it was begun: what was read of it are its bytes.
    pub(crate) fn is_intact(&self) -> bool {
        fence(Ordering::Acquire);
        let stamp = self.slice.get().stamp;
        self.slice().is_empty() || stamp.is_some() && self.stamp(&self.slice()) == stamp
    }

    /// What to ask for ahead of the slice that was begun: large parts, each once, so that a long body does not
    /// wait for each of its slices.
    pub(crate) fn ahead(&self) -> Option<Range<u64>> {
        let slice = self.slice.get();
        let last = self.place.end.min(self.until.get());
        let end = (slice.end + FETCH_AHEAD).min(last);
        let start = slice.end.max(self.asked.get());
        if start >= end || (end < last && end - start < FETCH_AHEAD / 2) {
            return None;
        }
        self.asked.set(end);
        let range = start..end;
        self.stamp(&range).is_none().then_some(range)
    }
}
