//! A picture of a store in an object storage: a folder here which shows what the store has, so that all
//! that reads a store in a folder reads it.
//!
//! It has the pointer, the log, and for each release a file of the right length, which takes no room
//! until its content is needed.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::{self, DirBuilder, File};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use futures_util::{StreamExt, TryStreamExt, stream};
use gannet_io::named_file;
use gannet_store::limits::{FOLLOWED_MAX, POINTER_LEN_MAX};
use gannet_store::{Pointer, ReleaseId, SEEN, Store};
use object_store::UpdateVersion;
use rustix::fs::OFlags;
use tokio::runtime::Builder;

use crate::error::{Cause, FleetError};
use crate::limits::{ENTRIES_AT_ONCE, ENTRIES_MAX, RELEASES_MAX};
use crate::remote::{LOG, Remote, Text};
use crate::writing::Listed;

/// What a store had when the picture was taken.
pub(crate) struct StoreContents {
    /// Under what the pointer in force may be replaced; `None` if there was none.
    pub(crate) version: Option<UpdateVersion>,
    /// The releases.
    pub(crate) releases: HashMap<ReleaseId, Listed>,
    /// The serials whose names are taken in the log, also those beyond what is fetched of it.
    pub(crate) taken: HashSet<u64>,
}

/// A folder, and what it shows.
pub(crate) struct Picture<'p> {
    pub(crate) remote: &'p Remote,
    pub(crate) store: &'p Store,
    /// An earlier picture, which another process may be changing; its entries of the log are taken over.
    pub(crate) earlier: Option<&'p Store>,
}

impl Picture<'_> {
    /// Makes it show what the store has now; of the releases' files, those that are still true keep
    /// what is in them.
    pub(crate) async fn take(&self) -> Result<StoreContents, FleetError> {
        let pointer = self.remote.pointer_to_replace().await?;
        self.refuse_rewound(pointer.as_ref())?;
        let path = self.store.pointer_path();
        match &pointer {
            Some(found) => {
                if self.check(found).is_none() && self.store.pointer().is_ok() {
                    let kept = fs::rename(&path, self.seen_path());
                    kept.map_err(FleetError::io("rename", &path))?;
                }
                write_anew(&path, &found.text)?;
            }
            None => remove(&path)?,
        }
        let taken = self.take_log().await?;
        let mut releases = HashMap::new();
        let mut keep = |name: &str, listed: Listed| {
            let id = name.strip_suffix(".gannet").and_then(|id| id.parse().ok());
            releases.extend(id.map(|id: ReleaseId| (id, listed)));
        };
        self.remote
            .list("releases", RELEASES_MAX, &mut keep)
            .await?;
        for (id, listed) in &releases {
            self.show(*id, *listed)?;
        }
        for id in self.store.releases()? {
            if !releases.contains_key(&id) {
                remove(&self.store.release_path(id))?;
            }
        }
        let version = pointer.map(|it| it.version());
        Ok(StoreContents {
            version,
            releases,
            taken,
        })
    }

    /// The pointer of a text, if it can be used: it is one, and signed as required.
    fn check(&self, found: &Text) -> Option<Pointer> {
        let checked = self.store.check(&self.remote.pointer_name(), &found.text);
        checked.ok()
    }

    /// Where the last pointer is that could be used, while the store has one that cannot.
    fn seen_path(&self) -> PathBuf {
        self.store.folder().join(SEEN)
    }

    /// The newest pointer that this folder has seen in force, and that can be used.
    fn seen(&self) -> Option<Pointer> {
        let path = self.seen_path();
        let kept = named_file::read(&path, POINTER_LEN_MAX as u64).ok();
        let kept = kept.and_then(|text| self.store.check(&path, &text).ok());
        let shown = self.store.pointer().ok();
        shown.into_iter().chain(kept).max_by_key(|it| it.serial)
    }

    /// The serial that the next one has to be above, once the picture was taken: followers may have seen
    /// the highest one that this folder has seen, or that the log has among those that can be used. Names
    /// that are taken in the log after that are left out.
    ///
    /// # Errors
    /// Which serials have been in force is hidden by entries that cannot be used.
    pub(crate) fn floor(&self, taken: &HashSet<u64>) -> Result<u64, FleetError> {
        let known = self.seen().into_iter().chain(self.store.newest()?);
        let known = known.map(|it| it.serial).max();
        let mut floor = known.unwrap_or(0);
        while taken.contains(&(floor + 1)) {
            floor += 1;
        }
        // Without a gap from 1 on, they hide nothing: what follows is above all of them. So it is where a
        // key signs for the first time.
        let has_gap = floor < taken.len() as u64;
        match known.is_none() && has_gap && taken.len() > FOLLOWED_MAX {
            true => Err(self.remote.refuse(LOG, Cause::Hidden)),
            false => Ok(floor),
        }
    }

    /// Refuses a store whose pointer is older than the one that this folder has seen: what is published
    /// there would have serials that followers have seen on other pointers.
    fn refuse_rewound(&self, found: Option<&Text>) -> Result<(), FleetError> {
        let Some(seen) = self.seen() else {
            return Ok(());
        };
        let found = match found {
            None => None,
            Some(found) => match self.check(found) {
                Some(pointer) if pointer.serial < seen.serial => Some(pointer.serial),
                // One that cannot be used says nothing about its age.
                _ => return Ok(()),
            },
        };
        Err(FleetError::Rewound {
            url: self.remote.url().to_owned(),
            found,
            seen: seen.serial,
            picture: self.store.folder().to_path_buf(),
        })
    }

    /// Fetches the entries of the log that the picture lacks, the newest [`FOLLOWED_MAX`] at most.
    /// Returns the serials of all.
    async fn take_log(&self) -> Result<HashSet<u64>, FleetError> {
        let mut taken = HashSet::new();
        let mut listed = BTreeMap::new();
        let mut keep = |name: &str, one: Listed| {
            if let Ok(serial) = name.parse::<u64>() {
                taken.insert(serial);
                listed.insert(serial, one);
            }
            if listed.len() > FOLLOWED_MAX {
                listed.pop_first();
            }
        };
        self.remote.list(LOG, ENTRIES_MAX, &mut keep).await?;
        let paths = listed.keys().map(|serial| self.store.log_path(*serial));
        let known: HashSet<PathBuf> = paths.collect();
        let [log, _] = self.store.folders();
        for entry in fs::read_dir(&log).map_err(FleetError::io("read", &log))? {
            let path = entry.map_err(FleetError::io("read", &log))?.path();
            if !known.contains(&path) {
                remove(&path)?;
            }
        }
        listed.retain(|serial, listed| !is_of(&self.store.log_path(*serial), *listed));
        let fetch = async |(serial, listed): (u64, Listed)| {
            let path = self.store.log_path(serial);
            let text = match self.known_entry(serial, listed) {
                Some(text) => Some(text),
                None => self.remote.listed_entry(serial).await?,
            };
            match text {
                None => remove(&path),
                Some(text) => {
                    write_anew(&path, &text)?;
                    date(&path, listed.modified)
                }
            }
        };
        let fetches = stream::iter(listed).map(fetch);
        fetches
            .buffer_unordered(ENTRIES_AT_ONCE)
            .try_collect::<()>()
            .await?;
        Ok(taken)
    }

    /// An entry that the earlier picture has. Who writes such a file gives it its time last.
    fn known_entry(&self, serial: u64, listed: Listed) -> Option<Vec<u8>> {
        let path = self.earlier?.log_path(serial);
        let is_bounded = listed.size <= POINTER_LEN_MAX as u64;
        let text = (is_bounded && is_of(&path, listed)).then(|| fs::read(&path).ok())??;
        (text.len() as u64 == listed.size).then_some(text)
    }

    /// Gives the picture a file for a release: of its length, and without content, unless it has that.
    fn show(&self, id: ReleaseId, listed: Listed) -> Result<(), FleetError> {
        let path = self.store.release_path(id);
        if is_of(&path, listed) {
            return Ok(());
        }
        empty(&path, listed)
    }
}

/// A picture for reading, which goes when it is dropped. Neither does it wait for publishers, nor they
/// for it.
pub struct Glance {
    store: Store,
    _folder: Removed,
}

/// A folder that is removed on drop.
struct Removed(PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        // What is left of it does no harm.
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Glance {
    /// Takes a picture of a store into a new folder; nothing is changed in the store. `earlier` is one
    /// that a publisher may have: what of its log is still true is not fetched again. `key` is as for
    /// [`Store::open`].
    ///
    /// # Errors
    /// The store cannot be read, the folder is there already or cannot be written, or the key is
    /// malformed.
    pub fn take(
        remote: &Remote,
        folder: &Path,
        earlier: &Path,
        key: Option<&str>,
    ) -> Result<Self, FleetError> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(FleetError::io("read a store into", folder))?;
        let make = |path: &Path| {
            let made = DirBuilder::new().mode(0o700).create(path);
            made.map_err(FleetError::io("make", path))
        };
        make(folder)?;
        let removed = Removed(folder.to_path_buf());
        for inner in ["log", "releases"] {
            make(&folder.join(inner))?;
        }
        let store = Store::open(folder, key)?;
        let earlier = Store::open(earlier, None).ok();
        let picture = Picture {
            remote,
            store: &store,
            earlier: earlier.as_ref(),
        };
        runtime.block_on(picture.take())?;
        Ok(Self {
            store,
            _folder: removed,
        })
    }

    /// What the store has, but what is in its releases.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.store
    }
}

/// Whether a file was made after this object, as it is.
pub(crate) fn is_of(path: &Path, listed: Listed) -> bool {
    let found = fs::symlink_metadata(path);
    found.is_ok_and(|it| {
        it.is_file() && it.len() == listed.size && it.modified().ok() == Some(listed.modified)
    })
}

/// Gives a file the time of the object that it was made after.
pub(crate) fn date(path: &Path, modified: SystemTime) -> Result<(), FleetError> {
    let mut options = File::options();
    options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
    let dated = options.write(true).open(path);
    let dated = dated.and_then(|file| file.set_modified(modified));
    dated.map_err(FleetError::io("write", path))
}

/// Makes a file of the length and the time of an object, which takes no room.
pub(crate) fn empty(path: &Path, listed: Listed) -> Result<(), FleetError> {
    let made = create_anew(path)?.set_len(listed.size);
    made.map_err(FleetError::io("write", path))?;
    date(path, listed.modified)
}

/// Makes a file in place of what has its name: a link would lead the bytes to another file.
fn create_anew(path: &Path) -> Result<File, FleetError> {
    remove(path)?;
    File::create_new(path).map_err(FleetError::io("write", path))
}

pub(crate) fn write_anew(path: &Path, content: &[u8]) -> Result<(), FleetError> {
    let written = create_anew(path)?.write_all(content);
    written.map_err(FleetError::io("write", path))
}

pub(crate) fn remove(path: &Path) -> Result<(), FleetError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(FleetError::io("remove", path)(error))
        }
        _ => Ok(()),
    }
}
