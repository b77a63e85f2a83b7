//! Keeps a local store equal to one behind a URL.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gannet_store::{Pointer, Publisher, ReleaseId, StoreError};
use tokio::runtime::{Builder, Runtime};

use crate::draft::{Draft, discard};
use crate::error::{Cause, FleetError};
use crate::limits::{DAMAGED_S, DISK_DEFAULT, HISTORY_MAX, TIDY_S};
use crate::origin;
use crate::pace::Meter;
use crate::remote::Remote;

/// What a follower may do.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Bytes that the releases in the copy have together, at most.
    pub disk_max: u64,
    /// Bytes of releases that are fetched in a second, at most.
    pub rate_max: Option<u64>,
    /// Releases are there in part, and a [`Fetcher`](crate::Fetcher) fetches the rest; `disk_max` is of what they
    /// take on the disk.
    pub on_demand: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            disk_max: DISK_DEFAULT,
            rate_max: None,
            on_demand: false,
        }
    }
}

/// What a round has found.
#[derive(Debug)]
pub struct Round {
    /// The pointer in force, here and there.
    pub pointer: Pointer,
    /// It was put into force here by this round.
    pub is_new: bool,
    /// Bytes of releases that were fetched.
    pub fetched: u64,
    /// Files of releases that were removed here, since they are no longer kept, or for want of room.
    pub removed: usize,
    /// Why kept releases of the store are lacking here. They are tried again later, and are then not
    /// named again.
    pub left_out: Vec<FleetError>,
}

/// Follows a store. While it lives, it alone changes the copy.
pub struct Follower {
    runtime: Runtime,
    copy: LocalCopy,
}

impl Follower {
    /// Opens or makes the copy of a store in a folder. `key` is the minisign public key with which
    /// pointers have to be signed, `name` who follows, `now` the time in Unix seconds.
    ///
    /// # Errors
    /// The folder is neither a store nor empty, has the copy of another store, or another process
    /// changes it; the key is malformed, or the system refuses something.
    pub fn open(
        remote: Remote,
        folder: &Path,
        key: Option<&str>,
        settings: Settings,
        name: &str,
        now: u64,
    ) -> Result<Self, FleetError> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(FleetError::io("follow a store in", folder))?;
        origin::must_be_of(folder, &remote)?;
        let mut publisher = Publisher::open(folder, name, now)?;
        publisher.require(key)?;
        Ok(Self {
            runtime,
            copy: LocalCopy {
                remote,
                publisher,
                settings,
                complete: None,
                intact: HashSet::new(),
                is_distrusted: None,
                damaged: None,
                is_only: false,
                tidy_at: 0,
                removed: 0,
                left_out: Vec::new(),
            },
        })
    }

    /// The store that is followed.
    #[must_use]
    pub fn remote(&self) -> &Remote {
        &self.copy.remote
    }

    /// Looks at the store once, and takes over what is new. If it fails, what is in force here still
    /// is, and the next round continues from there. `now` is in Unix seconds.
    ///
    /// # Errors
    /// The store cannot be read or says what cannot be used, or the copy cannot be written.
    pub fn round(&mut self, now: u64) -> Result<Round, FleetError> {
        self.runtime.block_on(self.copy.round(now))
    }

    /// As [`Follower::round`], for who does not come back: a store whose pointer cannot be read for a moment
    /// is asked again.
    ///
    /// # Errors
    /// As for [`Follower::round`].
    pub fn only_round(&mut self, now: u64) -> Result<Round, FleetError> {
        self.copy.is_only = true;
        self.round(now)
    }

    /// Waits, while connections are kept, or closed.
    pub fn sleep(&self, duration: Duration) {
        let slept = async { tokio::time::sleep(duration).await };
        self.runtime.block_on(slept);
    }
}

struct LocalCopy {
    remote: Remote,
    publisher: Publisher,
    settings: Settings,
    /// The last pointer, and its entity tag, if nothing was left to do for it.
    complete: Option<(Pointer, Option<String>)>,
    /// Releases whose files here were found to be what their pointers name.
    intact: HashSet<ReleaseId>,
    /// The release that local blobs did not lead to, though their digests are right.
    is_distrusted: Option<ReleaseId>,
    /// A pointer whose release was fetched whole and is not what it names, and when it may be fetched
    /// again, in Unix seconds.
    damaged: Option<(Pointer, u64)>,
    /// It does not poll: what fails for a moment is tried again at once.
    is_only: bool,
    /// When to tidy up without news, in Unix seconds.
    tidy_at: u64,
    /// Releases that were removed in this round.
    removed: usize,
    /// Why kept releases were left out in this round.
    left_out: Vec<FleetError>,
}

impl LocalCopy {
    async fn round(&mut self, now: u64) -> Result<Round, FleetError> {
        self.removed = 0;
        self.left_out.clear();
        let is_due = now >= self.tidy_at;
        // A server that is wrong about what has changed is found out.
        let known = self.complete.as_ref().filter(|_| !is_due);
        let known = known.and_then(|(_, tag)| tag.as_deref());
        let Some(found) = self.remote.pointer(known, self.is_only).await? else {
            let complete = self.complete.as_ref();
            let (pointer, _) = complete.expect("an entity tag is one of a pointer that was read");
            return Ok(self.completed(pointer.clone(), false, 0));
        };
        let origin = self.remote.pointer_name();
        let pointer = self.publisher.store().check(&origin, &found.text)?;
        let is_new = self.publisher.store().is_news(&origin, &pointer, now)?;
        let is_complete = self.complete.as_ref().is_some_and(|(it, _)| *it == pointer);
        if !is_new && is_complete && !is_due {
            // A server that names no entity tags.
            return Ok(self.completed(pointer, false, 0));
        }
        self.complete = None;
        // Whatever the copy has from here on, it is known of which store.
        origin::note(self.publisher.store().folder(), &self.remote)?;
        let mut meter = Meter::new(self.settings.rate_max);
        // A new copy needs what is active until then; and if that is the pointer's, it is served at once.
        let is_staged = is_new && pointer.settled() > now;
        let is_first = self.publisher.store().pointer().is_err();
        if is_staged && is_first {
            self.history(&pointer).await?;
            self.fetch_kept(&pointer, now, &mut meter).await?;
            self.take(&pointer, &found.text, (is_new, now), &mut meter)
                .await?;
        } else {
            let history = match is_first {
                true => Ok(()),
                false => self.history(&pointer).await,
            };
            self.take(&pointer, &found.text, (is_new, now), &mut meter)
                .await?;
            history?;
            if is_first {
                self.history(&pointer).await?;
            }
            self.fetch_kept(&pointer, now, &mut meter).await?;
        }
        self.publisher.discard_parts(None);
        if self.settings.on_demand {
            // Also whole ones of a time without it: what cannot be removed unit by unit has half of the room.
            let half = self.settings.disk_max / 2;
            let removed = self.publisher.make_room_for_head(&pointer, now, half);
            self.forget(&removed.releases);
        }
        let pruned = self.publisher.prune(&pointer, now);
        self.removed += pruned.releases.len();
        self.complete = Some((pointer.clone(), found.entity_tag));
        self.tidy_at = now.saturating_add(TIDY_S);
        if let Some(error) = pruned.errors.into_iter().next() {
            return Err(error.into());
        }
        if is_complete {
            // It was reported at the first attempt.
            self.left_out.clear();
        }
        Ok(self.completed(pointer, is_new, meter.bytes))
    }

    fn completed(&mut self, pointer: Pointer, is_new: bool, fetched: u64) -> Round {
        Round {
            pointer,
            is_new,
            fetched,
            removed: self.removed,
            left_out: std::mem::take(&mut self.left_out),
        }
    }

    /// Puts a pointer into force once its release is there.
    async fn take(
        &mut self,
        pointer: &Pointer,
        text: &[u8],
        (is_new, now): (bool, u64),
        meter: &mut Meter,
    ) -> Result<(), FleetError> {
        let damaged = self.damaged.as_ref();
        if damaged.is_some_and(|(it, until)| it == pointer && now < *until) {
            return Err(self
                .remote
                .refuse_release(pointer.release, Cause::OtherArchive));
        }
        let fetched = self.fetch(pointer, (Need::InForce, now), meter).await;
        if let Err(FleetError::Remote {
            cause: Cause::OtherArchive,
            ..
        }) = &fetched
        {
            self.damaged = Some((pointer.clone(), now.saturating_add(DAMAGED_S)));
        }
        fetched?;
        if is_new {
            let text = str::from_utf8(text).expect("a pointer is text");
            self.publisher.adopt(pointer, text)?;
        }
        Ok(())
    }

    /// Fetches the entries of the log before a pointer, as far as they are lacking. A store without a
    /// log, or with one that cannot be used from some entry on, has none before that.
    async fn history(&self, pointer: &Pointer) -> Result<(), FleetError> {
        let mut next = pointer.replaces;
        for _ in 0..HISTORY_MAX {
            let Some(serial) = next else {
                return Ok(());
            };
            if let Ok(known) = self.publisher.store().logged(serial) {
                next = known.replaces;
                continue;
            }
            let Some((origin, text)) = self.remote.logged(serial, self.is_only).await? else {
                return Ok(());
            };
            let Ok(entry) = self.publisher.store().check(&origin, &text) else {
                return Ok(());
            };
            if entry.serial != serial {
                return Ok(());
            }
            let text = str::from_utf8(&text).expect("a pointer is text");
            self.publisher.adopt_entry(&entry, text)?;
            next = entry.replaces;
        }
        Ok(())
    }

    /// Fetches the releases that are kept beside a pointer's, the newest first, as far as there is
    /// room for them. One that the store has removed is left out.
    async fn fetch_kept(
        &mut self,
        pointer: &Pointer,
        now: u64,
        meter: &mut Meter,
    ) -> Result<(), FleetError> {
        let store = self.publisher.store();
        let logged = store.earlier(pointer)?.take(HISTORY_MAX);
        let named = logged.map(|it| it.pointer.release).chain(store.releases()?);
        let named: HashSet<_> = named.collect();
        let kept = store.kept_among(named, pointer, now)?.releases;
        for one in kept {
            let store = self.publisher.store();
            let is_whole = store.release_path(one.pointer.release).exists();
            if is_whole || self.settings.on_demand && self.has(&one.pointer) {
                continue;
            }
            match self.fetch(&one.pointer, (Need::Kept, now), meter).await {
                Err(FleetError::Remote { cause, .. }) if cause.is_absence() => {}
                // Others may do; this one is tried again when it is time to tidy up.
                Err(
                    error @ (FleetError::Remote { .. } | FleetError::Store(StoreError::NoTrees(_))),
                ) => self.left_out.push(error),
                Err(FleetError::Disk { .. }) => return Ok(()),
                Err(error) if error.is_full() => return Ok(()),
                fetched => fetched?,
            }
        }
        Ok(())
    }

    /// Makes sure that the file of a pointer's release is here.
    async fn fetch(
        &mut self,
        pointer: &Pointer,
        (need, now): (Need, u64),
        meter: &mut Meter,
    ) -> Result<(), FleetError> {
        let id = pointer.release;
        if self.has(pointer) {
            return Ok(());
        }
        if !self.settings.on_demand {
            self.make_room(pointer, need, now)?;
        }
        self.intact.remove(&id);
        self.publisher.discard_parts(Some(id));
        let mut is_second = false;
        loop {
            let fetched = match self.settings.on_demand {
                true => {
                    self.fetch_head(pointer, (need, now, is_second), meter)
                        .await
                }
                false => self.fetch_lacking(pointer, meter).await,
            };
            match fetched {
                // Perhaps it was changed on its way. A whole one was fetched twice by now.
                Err(FleetError::Remote {
                    cause: Cause::OtherArchive,
                    ..
                }) if self.settings.on_demand && !is_second => is_second = true,
                // What others on this file system take counts as well.
                Err(error) if error.is_full() && self.give_way(pointer, need, now) => {}
                fetched => return fetched,
            }
        }
    }

    /// Fetches the file of a pointer's release.
    async fn fetch_lacking(
        &mut self,
        pointer: &Pointer,
        meter: &mut Meter,
    ) -> Result<(), FleetError> {
        let id = pointer.release;
        let part = self.publisher.part_path(id);
        if self.is_distrusted != Some(id) {
            let archives = self.archives(id)?;
            // Closed before it is adopted: what is open for writing gets no fs-verity.
            let draft = Draft::open(&part, pointer)?;
            draft.fill(&self.remote, &archives, meter).await?;
            drop(draft);
            match self.adopt_release(pointer, &part)? {
                true => return Ok(()),
                // Perhaps what lies between the blobs is not what the format says.
                false => self.is_distrusted = Some(id),
            }
        }
        let draft = Draft::open(&part, pointer)?;
        draft.fill_whole(&self.remote, meter).await?;
        drop(draft);
        match self.adopt_release(pointer, &part)? {
            true => Ok(()),
            false => Err(self.remote.refuse_release(id, Cause::OtherArchive)),
        }
    }

    /// Makes a partial release of a pointer's: all but its blobs is fetched. That may have half of the room, and for a
    /// kept release what is left of it.
    async fn fetch_head(
        &mut self,
        pointer: &Pointer,
        (need, now, is_second): (Need, u64, bool),
        meter: &mut Meter,
    ) -> Result<(), FleetError> {
        let id = pointer.release;
        let half = self.settings.disk_max / 2;
        let most = match need {
            Need::InForce => half,
            Need::Kept => half.saturating_sub(self.publisher.fixed_bytes_here(id)),
        };
        let part = self.publisher.part_path(id);
        let draft = Draft::open(&part, pointer)?;
        let bytes = draft
            .fill_head(&self.remote, (most, !is_second), meter)
            .await?;
        if bytes > most {
            let folder = self.publisher.store().folder().to_path_buf();
            return Err(FleetError::Disk {
                folder,
                bytes,
                most,
            });
        }
        if need == Need::InForce {
            // What cannot be removed unit by unit has half of the room.
            let removed = self
                .publisher
                .make_room_for_head(pointer, now, half - bytes);
            self.forget(&removed.releases);
        }
        match self.publisher.adopt_partial(pointer) {
            Ok(()) => {
                // A whole one that is not intact: servers would open it, and not the part.
                let _ = fs::remove_file(self.publisher.store().release_path(id));
                self.intact.insert(id);
                Ok(())
            }
            Err(StoreError::OtherFile(_)) => {
                fs::remove_file(&part).map_err(FleetError::io("remove", &part))?;
                Err(self.remote.refuse_release(id, Cause::OtherArchive))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Whether the file here is what a pointer names, or in part, if that is enough; it is read once.
    fn has(&mut self, pointer: &Pointer) -> bool {
        let store = self.publisher.store();
        let may_be_partial = self.settings.on_demand;
        if self.intact.contains(&pointer.release) {
            let whole = store.release_file(pointer).is_ok_and(|path| path.exists());
            return whole || may_be_partial && store.partial_path(pointer.release).exists();
        }
        let whole = store.intact_file(pointer);
        let is_there = whole.is_ok() || may_be_partial && store.has_partial(pointer);
        if let (true, Err(StoreError::OtherFile(other))) = (is_there, whole) {
            // Servers would open it, and not the part.
            let _ = fs::remove_file(other);
        }
        is_there && self.intact.insert(pointer.release)
    }

    /// Gives a complete part its name; returns whether it is what the pointer names, and removes it
    /// if it is not.
    fn adopt_release(&mut self, pointer: &Pointer, part: &Path) -> Result<bool, FleetError> {
        match self.publisher.adopt_release(pointer) {
            Ok(()) => {
                self.intact.insert(pointer.release);
                Ok(true)
            }
            Err(StoreError::OtherFile(_)) => {
                discard(part)?;
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The files of the other releases here.
    fn archives(&self, but: ReleaseId) -> Result<Vec<PathBuf>, FleetError> {
        let store = self.publisher.store();
        let mut releases = store.releases()?;
        releases.retain(|id| *id != but);
        // The one in force has most in common with the next.
        let in_force = store.pointer().ok().map(|it| it.release);
        releases.sort_by_key(|id| Some(*id) != in_force);
        Ok(releases.iter().map(|id| store.release_path(*id)).collect())
    }

    /// Sees to it that a release has room.
    fn make_room(&mut self, pointer: &Pointer, need: Need, now: u64) -> Result<(), FleetError> {
        let most = self.settings.disk_max;
        let left = most.saturating_sub(pointer.size);
        if need == Need::InForce && self.publisher.bytes_here(pointer.release) > left {
            self.remove_until(pointer, left, now);
        }
        let here = self.publisher.bytes_here(pointer.release);
        let bytes = here.saturating_add(pointer.size);
        match bytes > most {
            true => Err(FleetError::Disk {
                folder: self.publisher.store().folder().to_path_buf(),
                bytes,
                most,
            }),
            false => Ok(()),
        }
    }

    /// Removes a release that is only kept, to make room for one that comes into force; false if there
    /// is none.
    fn give_way(&mut self, pointer: &Pointer, need: Need, now: u64) -> bool {
        let here = self.publisher.bytes_here(pointer.release);
        need == Need::InForce && self.remove_until(pointer, here.saturating_sub(1), now)
    }

    /// Removes releases until at most so many bytes are left; returns whether any was.
    fn remove_until(&mut self, pointer: &Pointer, most: u64, now: u64) -> bool {
        let removed = self.publisher.make_room(pointer, now, most).releases;
        self.forget(&removed);
        !removed.is_empty()
    }

    /// Notes releases as removed.
    fn forget(&mut self, removed: &[ReleaseId]) {
        for id in removed {
            self.intact.remove(id);
        }
        self.removed += removed.len();
    }
}

/// What a release is fetched for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Need {
    /// It comes into force: kept ones give way to it.
    InForce,
    /// It is kept, as far as there is room.
    Kept,
}
