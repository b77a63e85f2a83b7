//! Removes the files of releases that are no longer kept.

use std::collections::HashSet;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::UNIX_EPOCH;

use crate::error::StoreError;
use crate::files::Files;
use crate::partial::{PARTIAL, read_head};
use crate::pointer::Pointer;
use crate::publisher::Publisher;
use crate::release_id::ReleaseId;

/// Files that were removed.
#[derive(Debug, Default)]
pub struct Pruned {
    /// The releases.
    pub releases: Vec<ReleaseId>,
    /// Their bytes.
    pub bytes: u64,
    /// What could not be read or removed; nothing is lost by it but room.
    pub errors: Vec<StoreError>,
}

impl<F: Files> Publisher<F> {
    /// Removes the files of releases that are neither in force nor kept. One that the log does not
    /// name as having been in force may be on its way there: it is removed when it is older than
    /// what is kept. So is one that was in force more than [`FOLLOWED_MAX`] pointers ago, or under a
    /// pointer that cannot be used; but not before the oldest one that can be is as old, so that the
    /// first signature in a store does not take away what servers still have.
    ///
    /// [`FOLLOWED_MAX`]: crate::limits::FOLLOWED_MAX
    #[must_use]
    pub fn prune(&self, current: &Pointer, now: u64) -> Pruned {
        let mut pruned = Pruned::default();
        let (left, unknown, since) = match self.leaving(current, now) {
            Ok(found) => found,
            Err(error) => {
                pruned.errors.push(error);
                return pruned;
            }
        };
        for id in left {
            self.prune_one(id, &mut pruned);
        }
        for id in unknown {
            let path = self.store().file_of(id);
            let age_s = age_s(&path, now).map(|it| it.min(now.saturating_sub(since)));
            if age_s.is_some_and(|age_s| age_s > current.keep.age_s) {
                self.prune_one(id, &mut pruned);
            }
        }
        pruned
    }

    /// Makes room for the release of a pointer that is to come into force: removes files of releases
    /// until they have at most so many bytes, or none is left that may go. First go those that nothing
    /// will keep, then kept ones, the oldest first. What some node may serve now stays.
    #[must_use]
    pub fn make_room(&self, next: &Pointer, now: u64, most: u64) -> Pruned {
        self.make_room_by(next, now, most, bytes_of)
    }

    /// The same, where units of partial releases do not count: those go by themselves.
    #[must_use]
    pub fn make_room_for_head(&self, next: &Pointer, now: u64, most: u64) -> Pruned {
        self.make_room_by(next, now, most, fixed_bytes_of)
    }

    fn make_room_by(
        &self,
        next: &Pointer,
        now: u64,
        most: u64,
        bytes_of: fn(&Path) -> u64,
    ) -> Pruned {
        let mut pruned = Pruned::default();
        let order = match self.leaving_order(next, now) {
            Ok(order) => order,
            Err(error) => {
                pruned.errors.push(error);
                return pruned;
            }
        };
        let mut bytes = self.bytes_by(next.release, bytes_of);
        for id in order {
            if bytes <= most {
                break;
            }
            let count = pruned.releases.len();
            let len = bytes_of(&self.store().file_of(id));
            self.prune_one(id, &mut pruned);
            if pruned.releases.len() > count {
                bytes = bytes.saturating_sub(len);
            }
        }
        pruned
    }

    /// Bytes of the files of all releases but one.
    pub fn bytes_here(&self, but: ReleaseId) -> u64 {
        self.bytes_by(but, bytes_of)
    }

    /// The same, without the units of partial ones.
    pub fn fixed_bytes_here(&self, but: ReleaseId) -> u64 {
        self.bytes_by(but, fixed_bytes_of)
    }

    fn bytes_by(&self, but: ReleaseId, bytes_of: fn(&Path) -> u64) -> u64 {
        let releases = self.store().releases().unwrap_or_default().into_iter();
        let paths = releases
            .filter(|id| *id != but)
            .map(|id| self.store().file_of(id));
        paths.map(|path| bytes_of(&path)).sum()
    }

    /// The releases that may go before a pointer comes into force, the least needed first.
    fn leaving_order(&self, next: &Pointer, now: u64) -> Result<Vec<ReleaseId>, StoreError> {
        let mut served = HashSet::from([next.release]);
        if let Ok(in_force) = self.store().pointer() {
            served.extend(
                self.store()
                    .served(&in_force, now)?
                    .iter()
                    .map(|it| it.release),
            );
        }
        let (mut order, unknown, _) = self.leaving(next, now)?;
        let mut unknown: Vec<_> = unknown.into_iter().collect();
        unknown.sort_by_key(|id| {
            let age_s = age_s(&self.store().file_of(*id), now);
            std::cmp::Reverse(age_s)
        });
        order.extend(unknown);
        let kept = self.store().kept(next, now)?.releases.into_iter().rev();
        order.extend(kept.map(|it| it.pointer.release));
        order.retain(|id| !served.contains(id));
        Ok(order)
    }

    fn prune_one(&self, id: ReleaseId, pruned: &mut Pruned) {
        let path = self.store().file_of(id);
        let len = bytes_of(&path);
        let store = self.store();
        // No server opens a partial release without the first.
        for beside in [store.presence_path(id), store.partial_path(id)] {
            if beside != path {
                let _ = self.files.remove(&beside);
            }
        }
        match self.files.remove(&path) {
            Ok(()) => {
                pruned.releases.push(id);
                pruned.bytes += len;
            }
            Err(error) => pruned.errors.push(StoreError::io("remove", &path)(error)),
        }
    }

    /// The releases that nothing keeps: those that have been in force, and those of which that is
    /// not known; and when the oldest pointer was published. The log is read as far as that takes.
    fn leaving(
        &self,
        current: &Pointer,
        now: u64,
    ) -> Result<(Vec<ReleaseId>, HashSet<ReleaseId>, u64), StoreError> {
        let mut files: HashSet<_> = self.store().releases()?.into_iter().collect();
        files.remove(&current.release);
        for kept in self.store().kept(current, now)?.releases {
            files.remove(&kept.pointer.release);
        }
        let mut left = Vec::new();
        let mut since = current.published;
        let mut trail = self.store().trail(current)?;
        while !files.is_empty() {
            let Some(before) = trail.next(&mut Vec::new()) else {
                break;
            };
            since = since.min(before.pointer.published);
            // Nodes may still serve one that was left just now, void or not.
            let release = before.pointer.release;
            if files.remove(&release) && before.left_at <= now {
                left.push(release);
            }
        }
        left.extend(current.void.iter().filter(|id| files.remove(id)));
        Ok((left, files, since))
    }
}

/// Bytes of a release's file. Holes of a partial one do not count.
fn bytes_of(path: &Path) -> u64 {
    let is_partial = path.to_string_lossy().ends_with(PARTIAL);
    fs::metadata(path).map_or(0, |it| match is_partial {
        true => it.blocks().saturating_mul(512),
        false => it.len(),
    })
}

/// The same without the units of a partial one.
fn fixed_bytes_of(path: &Path) -> u64 {
    let Ok(file) = File::open(path) else {
        return 0;
    };
    let len = file.metadata().map_or(0, |it| it.len());
    // What is no partial release is whole.
    read_head(&file, len).map_or(len, |(_, superblock)| {
        let metadata = superblock.metadata_range();
        metadata.end - metadata.start
    })
}

/// How long ago a file was written, in seconds; 0 if that lies ahead.
fn age_s(path: &Path, now: u64) -> Option<u64> {
    let modified = fs::metadata(path).and_then(|it| it.modified()).ok()?;
    let modified = modified.duration_since(UNIX_EPOCH).ok()?;
    Some(now.saturating_sub(modified.as_secs()))
}
