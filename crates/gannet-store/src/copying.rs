//! Takes over what another store has, so that this one becomes a copy of it.
//!
//! ```text
//! part ─▶ releases/<id>.gannet ─▶ log/<serial> ─▶ current
//! ```
//!
//! The order is that of publishing, and so is what survives a loss of power. A part stays when its
//! process ends, so that the next one resumes it.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use gannet_archive::{SUPERBLOCK_LEN, Superblock, Units, partial_start};
use gannet_io::fixed::fix;

use crate::error::StoreError;
use crate::files::{Files, digest_of};
use crate::partial::{PRESENT, SparseFile, nothing_present};
use crate::pointer::Pointer;
use crate::publisher::Publisher;
use crate::release_id::ReleaseId;
use crate::store::{RELEASES, SUFFIX, Store, names};

impl Store {
    /// Whether the pointer in force in the other store is to be taken over; it is not if it is in
    /// force here. `origin` names it in the error, `now` is in Unix seconds.
    ///
    /// # Errors
    /// It is older than what this store has had, or another one of the same serial; it has expired;
    /// or the log cannot be listed.
    pub fn is_news(&self, origin: &Path, pointer: &Pointer, now: u64) -> Result<bool, StoreError> {
        let in_force = self.pointer().ok();
        if in_force.as_ref() == Some(pointer) {
            return Ok(false);
        }
        let logged = self.newest()?;
        // One that was to be taken over when the process ended.
        let is_begun = logged.as_ref() == Some(pointer);
        let in_force = in_force.map_or(0, |it| it.serial);
        let newest = logged.map_or(0, |it| it.serial).max(in_force);
        let is_older = pointer.serial <= newest && !(is_begun && pointer.serial > in_force);
        if is_older {
            return Err(StoreError::Older {
                origin: origin.to_path_buf(),
                serial: pointer.serial,
                newest,
            });
        }
        match pointer.is_expired(now) {
            true => Err(StoreError::Expired(origin.to_path_buf(), pointer.serial)),
            false => Ok(true),
        }
    }
}

impl<F: Files> Publisher<F> {
    /// Where a release of the other store is put together, until [`Publisher::adopt_release`] gives
    /// it its name. Publishing leaves it alone.
    #[must_use]
    pub fn part_path(&self, id: ReleaseId) -> PathBuf {
        let name = format!("{PART}{id}{SUFFIX}");
        self.store.folder().join(RELEASES).join(name)
    }

    /// Removes the parts of all releases but this one. What cannot be removed does no harm.
    pub fn discard_parts(&self, but: Option<ReleaseId>) {
        let folder = self.store.folder().join(RELEASES);
        let kept = but.map(|id| self.part_path(id));
        for name in names(&folder).unwrap_or_default() {
            let path = folder.join(&name);
            if name.as_encoded_bytes().starts_with(PART.as_bytes()) && kept.as_ref() != Some(&path)
            {
                let _ = self.files.remove(&path);
            }
        }
    }

    /// Gives the part of a pointer's release its name, once it is what the pointer names. A file of
    /// that name is replaced.
    ///
    /// # Errors
    /// It is another file, which stays, or the system refuses something.
    pub fn adopt_release(&self, pointer: &Pointer) -> Result<(), StoreError> {
        let part = self.part_path(pointer.release);
        if digest_of(&part)? != (pointer.size, pointer.digest) {
            return Err(StoreError::OtherFile(part));
        }
        let flushed = File::open(&part).and_then(|file| file.sync_all());
        flushed.map_err(StoreError::io("write", &part))?;
        let target = self.store.release_path(pointer.release);
        let refuse = |error| StoreError::io("write", &target)(error);
        self.files.rename(&part, &target).map_err(refuse)?;
        let folder = self.store.folder().join(RELEASES);
        self.files.flush_folder(&folder).map_err(refuse)?;
        // Not before: a part that cannot be changed could not be completed by the next process. What cannot be
        // changed from here on is what the pointer names, where the file system can see to that.
        if fix(&target).is_ok() && digest_of(&target)? != (pointer.size, pointer.digest) {
            self.files.remove(&target).map_err(refuse)?;
            return Err(StoreError::OtherFile(target));
        }
        for partial in [
            self.store.presence_path(pointer.release),
            self.store.partial_path(pointer.release),
        ] {
            let _ = self.files.remove(&partial);
        }
        Ok(())
    }

    /// Makes a partial release of the part of a pointer's release, of which superblock and metadata are there: none of
    /// its units is. What the part has of them is dropped.
    ///
    /// # Errors
    /// It is another file, which stays; its archive has no trees, its file system no holes, or the system refuses
    /// something.
    pub fn adopt_partial(&self, pointer: &Pointer) -> Result<(), StoreError> {
        let part = self.part_path(pointer.release);
        let (partial, presence) = (
            self.store.partial_path(pointer.release),
            self.store.presence_path(pointer.release),
        );
        let refuse = |error| StoreError::io("write", &partial)(error);
        let mut options = fs::OpenOptions::new();
        let file = options.read(true).write(true).open(&part).map_err(refuse)?;
        let mut first = [0; SUPERBLOCK_LEN];
        file.read_at(&mut first, 0).map_err(refuse)?;
        let is_other = || StoreError::OtherFile(part.clone());
        let superblock = Superblock::parse(&first, pointer.size).map_err(|_| is_other())?;
        let mut read = |at: u64, buffer: &mut [u8]| file.read_at(buffer, at);
        let build_id = superblock.compute_build_id_from(&mut read);
        let is_named = ReleaseId::of_build_id(superblock.build_id()) == pointer.release;
        if build_id.map_err(refuse)? != *superblock.build_id() || !is_named {
            return Err(is_other());
        }
        let units = Units::read(&superblock, &mut read).map_err(|error| match error.kind() {
            io::ErrorKind::Unsupported => StoreError::NoTrees(pointer.release),
            _ => is_other(),
        })?;
        let metadata = superblock.metadata_range();
        for rest in [
            SUPERBLOCK_LEN as u64..metadata.start,
            metadata.end..pointer.size,
        ] {
            if !rest.is_empty() {
                let emptied = file.punch(rest);
                emptied.map_err(StoreError::io("make holes in", &part))?;
            }
        }
        let begun = file.write_at(&partial_start(&first), 0);
        begun.and_then(|()| file.sync_all()).map_err(refuse)?;
        let nothing = nothing_present(&file, &superblock, &units).map_err(refuse)?;
        let draft = part.with_extension(PRESENT);
        let folder = self.store.folder().join(RELEASES);
        let _ = self.files.remove(&draft);
        let made = self.files.create(&draft, &mut nothing.as_slice());
        let made = made.and_then(|()| self.files.rename(&draft, &presence));
        // What an earlier file of the release had must not count for this one.
        let made = made.and_then(|()| self.files.flush_folder(&folder));
        let made = made.and_then(|()| self.files.rename(&part, &partial));
        made.and_then(|()| self.files.flush_folder(&folder))
            .map_err(refuse)
    }

    /// Adds a pointer to the log, under the text that it has with its signature. An entry that
    /// cannot be used is replaced; one that can stays.
    ///
    /// # Errors
    /// The log has another pointer of this serial, or the system refuses something.
    pub fn adopt_entry(&self, pointer: &Pointer, text: &str) -> Result<(), StoreError> {
        let path = self.store.log_path(pointer.serial);
        match self.store.logged(pointer.serial) {
            Ok(found) if found == *pointer => return Ok(()),
            Ok(found) => {
                return Err(StoreError::Older {
                    origin: path,
                    serial: pointer.serial,
                    newest: found.serial,
                });
            }
            Err(_) if fs::symlink_metadata(&path).is_ok() => {
                let removed = self.files.remove(&path);
                removed.map_err(StoreError::io("replace", &path))?;
            }
            Err(_) => {}
        }
        self.log(pointer, text)
    }

    /// Puts a pointer of the other store into force, which [is news](Store::is_news), and whose
    /// release this store [has](Publisher::adopt_release).
    ///
    /// # Errors
    /// As for [`Publisher::adopt_entry`]; the pointer that was in force still is.
    pub fn adopt(&self, pointer: &Pointer, text: &str) -> Result<(), StoreError> {
        self.adopt_entry(pointer, text)?;
        self.put_in_force(text)
    }
}

/// The note in a copy of which store it is one. Publishing and serving leave it alone.
pub const ORIGIN: &str = ".origin";

/// The last pointer that could be used, in the picture of a store elsewhere that has one which cannot.
pub const SEEN: &str = ".seen";

/// How far an upload has come, in the picture of the store that it goes to.
pub const JOURNAL: &str = ".upload";

/// How the names of parts begin.
const PART: &str = ".part-";
