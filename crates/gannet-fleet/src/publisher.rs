//! Changes a store in an object store.
//!
//! ```text
//! objects ─▶ picture ─▶ (all that publishing to a folder does) ─▶ release ─▶ log ─▶ pointer
//! ```
//!
//! What a store in a folder can do is not written twice: on a picture of the store, in a folder here, a
//! [`Publisher`] judges what is in force, kept, void or over. What it would put into force is written to
//! the store first, in the same order; the pointer last, if it still is the one that was read.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use gannet_store::limits::SIGNATURES_DIFFER_MAX;
use gannet_store::{JOURNAL, Placed, Pointer, Publisher, ReleaseId, StoreError};
use object_store::UpdateVersion;
use rustix::fs::statvfs;
use tokio::runtime::{Builder, Runtime};

use crate::draft::Draft;
use crate::error::{Cause, FleetError};
use crate::limits::{BROUGHT_MAX, BROUGHT_SHARE};
use crate::pace::Meter;
use crate::picture::{Picture, StoreContents, date, empty, remove};
use crate::remote::Remote;
use crate::writing::{Listed, Upload};

/// Changes a store in an object store. Others may do so at the same time: then the second one
/// gets an error.
pub struct RemotePublisher {
    runtime: Runtime,
    remote: Remote,
    picture: Publisher,
    /// Under what the pointer in force may be replaced; `None` if there was none.
    version: Option<UpdateVersion>,
    /// The releases that the store has.
    there: RefCell<HashMap<ReleaseId, Listed>>,
}

impl RemotePublisher {
    /// Takes a picture of a store into a folder, which may have an earlier one: what of that is still
    /// true is not fetched again. Nothing is changed in the store. `key` is as for
    /// [`Publisher::require`], and counts from the first look on: a pointer that it has not signed says
    /// nothing about how new the store is. `name` is who publishes, `now` the time in Unix seconds.
    ///
    /// # Errors
    /// The store can only be read, cannot be read, was put back to a state before the one of the picture,
    /// or has so many entries that cannot be used that they hide the others; the picture cannot be written; or the key is malformed.
    pub fn open(
        remote: Remote,
        folder: &Path,
        key: Option<&str>,
        name: &str,
        now: u64,
    ) -> Result<Self, FleetError> {
        remote.must_be_writable()?;
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(FleetError::io("publish from", folder))?;
        let mut publisher = Publisher::open(folder, name, now)?;
        publisher.require(key)?;
        let picture = Picture {
            remote: &remote,
            store: publisher.store(),
            earlier: None,
        };
        let StoreContents {
            version,
            releases,
            taken,
        } = runtime.block_on(picture.take())?;
        let floor = picture.floor(&taken)?;
        publisher.go_above(floor);
        Ok(Self {
            runtime,
            remote,
            picture: publisher,
            version,
            there: RefCell::new(releases),
        })
    }

    /// The store.
    #[must_use]
    pub fn remote(&self) -> &Remote {
        &self.remote
    }

    /// The picture. It has the file of a release once that was [brought](Self::bring).
    #[must_use]
    pub fn picture(&self) -> &Publisher {
        &self.picture
    }

    fn listed(&self, id: ReleaseId) -> Option<Listed> {
        self.there.borrow().get(&id).copied()
    }

    /// Fetches what a release's file has in it, if the picture lacks that, and a pointer names the
    /// file as it is.
    ///
    /// # Errors
    /// The store does not send it, or another file, or the picture cannot be written.
    pub fn bring(&self, id: ReleaseId) -> Result<(), FleetError> {
        // Those of releases that were not brought to their end.
        self.picture.discard_parts(Some(id));
        let Some(listed) = self.listed(id) else {
            return Ok(());
        };
        let store = self.picture.store();
        let named = store.pointer().into_iter().chain(store.history()?.pointers);
        let mut named: Vec<Pointer> = named
            .filter(|it| it.release == id && it.size == listed.size)
            .collect();
        named.dedup_by_key(|it| it.digest);
        let Some(pointer) = named.first() else {
            return Ok(());
        };
        // Before it is read: of one that is too large there may be a file without content here.
        self.must_have_room(pointer)?;
        if named.iter().any(|it| store.intact_file(it).is_ok()) {
            return Ok(());
        }
        let part = self.picture.part_path(id);
        let archives = store.releases()?.into_iter().filter(|other| *other != id);
        let archives: Vec<_> = archives.map(|other| store.release_path(other)).collect();
        let mut meter = Meter::new(None);
        let fetched = self.runtime.block_on(async {
            let draft = Draft::open(&part, pointer)?;
            draft.fill(&self.remote, &archives, &mut meter).await
        });
        fetched?;
        if named
            .iter()
            .all(|it| self.picture.adopt_release(it).is_err())
        {
            remove(&part)?;
            return Err(self.remote.refuse_release(id, Cause::OtherArchive));
        }
        date(&store.release_path(id), listed.modified)
    }

    /// Refuses a release that would take too much of the disk.
    fn must_have_room(&self, pointer: &Pointer) -> Result<(), FleetError> {
        let folder = self.picture.store().folder();
        let found =
            statvfs(folder).map_err(|error| FleetError::io("read", folder)(error.into()))?;
        let free = found.f_bavail.saturating_mul(found.f_frsize);
        let here = fs::metadata(self.picture.store().release_path(pointer.release));
        let here = here.map_or(0, |it| it.blocks().saturating_mul(512));
        let most = BROUGHT_MAX.min((free / BROUGHT_SHARE).saturating_add(here));
        match pointer.size > most {
            true => Err(self
                .remote
                .refuse_to_fetch(pointer, most, most < BROUGHT_MAX)),
            false => Ok(()),
        }
    }

    /// Writes a release that was [placed](Publisher::place) in the picture to the store, and returns
    /// what the store has then. Something of that name stays as it is, since files of releases never
    /// change: it is fetched and taken over if `is_intact`, which verifies an archive, says so. What differs
    /// in more than a signature, by its length, is not fetched.
    ///
    /// # Errors
    /// What is there is damaged, or the store cannot be written; the next upload resumes what has been
    /// written.
    pub fn upload(
        &self,
        id: ReleaseId,
        placed: Placed,
        is_intact: impl FnOnce(&Path) -> bool,
    ) -> Result<Placed, FleetError> {
        let there = self.listed(id);
        if placed.was_there && there.is_some() {
            return Ok(placed);
        }
        self.create_or_take_over(id, placed, there.is_none(), is_intact)
    }

    fn create_or_take_over(
        &self,
        id: ReleaseId,
        placed: Placed,
        creates: bool,
        is_intact: impl FnOnce(&Path) -> bool,
    ) -> Result<Placed, FleetError> {
        let path = self.picture.store().release_path(id);
        let upload = Upload {
            id,
            file: &path,
            size: placed.size,
            digest: placed.digest,
            journal: &self.picture.store().folder().join(JOURNAL),
        };
        let (is_ours, listed) = self.runtime.block_on(async {
            let is_ours = creates && self.remote.upload(&upload).await?;
            match self.remote.look(id).await {
                // Another publisher has removed it since it was seen there.
                Err(error) if error.is_absence() && !is_ours => {
                    let is_ours = self.remote.upload(&upload).await?;
                    Ok((is_ours, self.remote.look(id).await?))
                }
                listed => Ok::<_, FleetError>((is_ours, listed?)),
            }
        })?;
        let placed = match is_ours {
            true => placed,
            false => self.take_over(id, placed, listed, is_intact)?,
        };
        self.there.borrow_mut().insert(id, listed);
        date(&path, listed.modified)?;
        Ok(placed)
    }

    /// Fetches all of a release that the store has, into the picture.
    fn take_over(
        &self,
        id: ReleaseId,
        ours: Placed,
        listed: Listed,
        is_intact: impl FnOnce(&Path) -> bool,
    ) -> Result<Placed, FleetError> {
        if listed.size.abs_diff(ours.size) > SIGNATURES_DIFFER_MAX {
            return Err(self.remote.refuse_to_take_over(id));
        }
        let draft = self.picture.draft_path();
        let fetched = self.fetch(id, listed.size, &draft);
        if fetched.is_err() || !is_intact(&draft) {
            self.picture.discard();
            fetched?;
            return Err(self.remote.refuse_to_take_over(id));
        }
        remove(&self.picture.store().release_path(id))?;
        let placed = self.picture.place(id, |_| false)?;
        Ok(Placed {
            was_there: true,
            ..placed
        })
    }

    fn fetch(&self, id: ReleaseId, size: u64, path: &Path) -> Result<(), FleetError> {
        let file = File::create_new(path).map_err(FleetError::io("write", path))?;
        let mut write = |at: u64, piece: &[u8]| {
            let written = file.write_all_at(piece, at);
            written.map_err(FleetError::io("write", path))
        };
        let mut meter = Meter::new(None);
        let fetch = self
            .remote
            .range((id, size), 0..size, &mut meter, &mut write);
        self.runtime.block_on(fetch)?;
        file.sync_all().map_err(FleetError::io("write", path))
    }

    /// Puts a pointer into force in the store, under the text that it has with its signature, and then
    /// in the picture. Its release is written again if another publisher has removed it meanwhile.
    /// Returns why the picture does not show it, which the next [`RemotePublisher::open`] sees to.
    ///
    /// # Errors
    /// Another publisher was faster, or the store refuses something; the pointer that was in force
    /// still is, unless the error is [`Cause::Gone`], [`Cause::Unseen`] or [`Cause::Unknown`].
    pub fn commit(&self, pointer: &Pointer, text: &str) -> Result<Option<StoreError>, FleetError> {
        self.runtime.block_on(async {
            self.remote.create_entry(pointer.serial, text).await?;
            let version = self.version.as_ref();
            self.remote.replace_pointer(version, text).await
        })?;
        self.see_to_release(pointer)?;
        Ok(self.picture.commit(pointer, text).err())
    }

    /// Until the pointer came into force, others may have removed its release as one that nothing kept.
    fn see_to_release(&self, pointer: &Pointer) -> Result<(), FleetError> {
        let id = pointer.release;
        let unless = |cause: fn(Box<FleetError>) -> Cause| {
            move |error| self.remote.refuse_release(id, cause(Box::new(error)))
        };
        let is_there = self.runtime.block_on(self.remote.has(id));
        if is_there.map_err(unless(Cause::Unseen))? {
            return Ok(());
        }
        let placed = Placed {
            size: pointer.size,
            digest: pointer.digest,
            was_there: true,
        };
        let written = self.create_or_take_over(id, placed, true, |_| true);
        let written = written.and_then(|written| match written == placed {
            true => Ok(()),
            false => Err(self.remote.refuse_release(id, Cause::OtherArchive)),
        });
        written.map_err(unless(Cause::Gone))
    }

    /// Removes releases that the picture has [removed](Publisher::prune), as long as the pointer with
    /// this text is in force, and forgets what is in the others, but in those that are needed next;
    /// what could not be removed is passed to `report`.
    ///
    /// # Errors
    /// One that was removed is that of a pointer which another publisher has put into force at the same
    /// time, which is [`Cause::Needed`]; or it cannot be seen whether that is so.
    pub fn tidy(
        &self,
        in_force: &str,
        removed: &[ReleaseId],
        needed: &[ReleaseId],
        report: &dyn Fn(FleetError),
    ) -> Result<(), FleetError> {
        for id in removed {
            let removed = self.runtime.block_on(self.remote.remove(*id, in_force));
            removed.unwrap_or_else(report);
        }
        for (id, listed) in self.there.borrow().iter() {
            if !needed.contains(id) && !removed.contains(id) {
                let path = self.picture.store().release_path(*id);
                empty(&path, *listed).unwrap_or_else(report);
            }
        }
        let needed_there = self.remote.see_whether_needed(removed, in_force);
        self.runtime.block_on(needed_there)
    }
}
