//! Changes a store: adds releases, puts pointers into force, removes what is no longer kept.
//!
//! ```text
//! draft ─▶ releases/<id>.gannet ─▶ log/<serial> ─▶ current
//! ```
//!
//! Each step is on the disk before the next one begins, and only the last one, a rename, puts the
//! pointer into force: a publisher that ends anywhere before leaves the old one in force, and what
//! it left behind does not hinder the next one. Its unfinished files start with a dot; since only
//! the holder of the store's lock makes such files, and the system releases the lock of a process
//! that ends, the process that gets the lock may remove all of them. Where locks do not reach, as between
//! machines on some network file systems, each publisher has names of its own for them: the one
//! whose files were removed fails, and none ever names what another one wrote.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use gannet_io::fixed::fix;
use gannet_io::named_file;
use rustix::io::Errno;

use crate::copying::{JOURNAL, ORIGIN, SEEN};
use crate::error::{MAKE_STORE, StoreError};
use crate::files::{Files, SystemFiles, digest_of};
use crate::keep::Keep;
use crate::limits::{SERIAL_MAX, SIGNATURES_DIFFER_MAX};
use crate::lock::{LOCK, Lock};
use crate::pointer::{Pointer, PointerError};
use crate::quantity::time_text;
use crate::release_id::ReleaseId;
use crate::stages::Stage;
use crate::store::{LOG, RELEASES, SUFFIX, Store, names};

/// Changes a store. While it lives, no other process of this machine does.
pub struct Publisher<F: Files = SystemFiles> {
    pub(crate) store: Store,
    pub(crate) files: F,
    name: String,
    /// Part of the names of its unfinished files, which no other publisher has.
    unique: String,
    /// The next serial is above this one, whatever the store has.
    floor: u64,
    _begun: CreatedPaths,
    _lock: Lock,
}

/// A release in the store.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Placed {
    /// Bytes of its file.
    pub size: u64,
    /// The BLAKE3 digest of its file.
    pub digest: [u8; 32],
    /// The store had it already.
    pub was_there: bool,
}

/// What is to be in force next.
#[derive(Clone, Debug)]
pub struct Next {
    /// As in [`Pointer::release`].
    pub release: ReleaseId,
    /// Its file.
    pub placed: Placed,
    /// As in [`Pointer::activate`].
    pub activate: Option<u64>,
    /// As in [`Pointer::stages`].
    pub stages: Vec<Stage>,
    /// As in [`Pointer::keep`].
    pub keep: Keep,
    /// As in [`Pointer::void`].
    pub void: Vec<ReleaseId>,
    /// As in [`Pointer::note`].
    pub note: String,
    /// As in [`Pointer::expires`].
    pub expires: Option<u64>,
}

impl Next {
    /// A release that all nodes activate at once, without anything else.
    #[must_use]
    pub fn at_once(release: ReleaseId, placed: Placed) -> Self {
        Self {
            release,
            placed,
            activate: None,
            stages: Vec::new(),
            keep: Keep::default(),
            void: Vec::new(),
            note: String::new(),
            expires: None,
        }
    }
}

impl Publisher {
    /// Opens a store for publishing, and makes it if there is none: its folder may be missing, but
    /// not the one above it. `name` is who publishes, `now` is the time in Unix seconds.
    ///
    /// # Errors
    /// The folder is neither a store nor empty, another publisher is at work, or the system refuses
    /// something.
    pub fn open(folder: &Path, name: &str, now: u64) -> Result<Self, StoreError> {
        Self::open_with(folder, name, now, SystemFiles)
    }

    /// Whether [`Publisher::open`] could open or make a store there, as far as that can be known
    /// without changing anything.
    ///
    /// # Errors
    /// The folder is neither a store nor empty, the one above it is missing, or the system refuses
    /// something.
    pub fn check(folder: &Path) -> Result<(), StoreError> {
        let refuse = |error| StoreError::io(MAKE_STORE, folder)(error);
        if !folder.try_exists().map_err(refuse)? {
            let above = fs::metadata(above(folder)).map_err(refuse)?;
            return match above.is_dir() {
                true => Ok(()),
                false => Err(refuse(io::ErrorKind::NotADirectory.into())),
            };
        }
        may_open(folder).map(|_| ())
    }
}

impl<F: Files> Publisher<F> {
    /// As [`Publisher::open`], with other files.
    ///
    /// # Errors
    /// As for [`Publisher::open`].
    pub fn open_with(folder: &Path, name: &str, now: u64, files: F) -> Result<Self, StoreError> {
        let holder = format!("{name}, since {}", time_text(now));
        let mut tries = 1;
        let (mut begun, lock) = loop {
            match begin(folder, &holder, &files) {
                // Another one had made it, and ended without a release.
                Err(_) if tries < BEGIN_TRIES && is_absent(folder) => tries += 1,
                begun => break begun?,
            }
        };
        for inner in [LOG, RELEASES] {
            let path = folder.join(inner);
            match files.make_folder(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => {
                    made.map_err(StoreError::io("make", &path))?;
                    begun.0.push(path);
                }
            }
        }
        let flushed = files.flush_folder(folder);
        flushed.map_err(StoreError::io("write to", folder))?;
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let since = since.unwrap_or_default().as_nanos();
        let publisher = Self {
            store: Store::open(folder, None)?,
            files,
            name: name.to_owned(),
            unique: format!("{:x}-{since:x}", std::process::id()),
            floor: 0,
            _begun: begun,
            _lock: lock,
        };
        publisher.remove_unfinished();
        Ok(publisher)
    }

    /// From here on, only pointers signed with this public key count, as for [`Store::open`]: who
    /// signs the next one vouches for all that it takes over from those before.
    ///
    /// # Errors
    /// The key is malformed.
    pub fn require(&mut self, key: Option<&str>) -> Result<(), StoreError> {
        self.store.require(key)
    }

    /// From here on, the [next](Publisher::next) serial is above this one: nodes have seen it, though the
    /// store may no longer have its pointer.
    pub fn go_above(&mut self, serial: u64) {
        self.floor = self.floor.max(serial);
    }

    /// The store, for reading.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Removes what a publisher left behind that did not end well. The lock says that it has ended.
    /// What cannot be removed does no harm.
    fn remove_unfinished(&self) {
        let folder = self.store.folder();
        for folder in [&folder.join(RELEASES), &folder.join(LOG), folder] {
            for name in names(folder).unwrap_or_default() {
                // Packing adds a dot in front.
                let is_hidden = name.as_encoded_bytes().starts_with(b".");
                let name = name.to_string_lossy();
                if is_hidden && name.trim_start_matches('.').starts_with(UNFINISHED) {
                    let _ = self.files.remove(&folder.join(&*name));
                }
            }
        }
    }

    /// Where a release is written before [`Publisher::place`] gives it its name. Nothing is there.
    #[must_use]
    pub fn draft_path(&self) -> PathBuf {
        let name = format!(".{UNFINISHED}-{}{SUFFIX}", self.unique);
        self.store.folder().join(RELEASES).join(name)
    }

    /// Copies an archive to [`Publisher::draft_path`].
    ///
    /// # Errors
    /// It cannot be read, or the copy not written; no copy remains.
    pub fn copy(&self, archive: &Path) -> Result<(), StoreError> {
        let mut file = named_file::open(archive).map_err(StoreError::io("read", archive))?;
        let draft = self.draft_path();
        self.files.create(&draft, &mut file).map_err(|error| {
            self.discard();
            StoreError::io("write", &draft)(error)
        })
    }

    /// Removes the draft, if there is one.
    pub fn discard(&self) {
        // The lock's next holder removes it, too.
        let _ = self.files.remove(&self.draft_path());
    }

    /// Gives the draft its name. `is_intact` verifies an archive: a file of that name which holds
    /// the same release but other bytes (another signature) stays as it is if it is intact, since
    /// files of releases never change, and is replaced if it is damaged.
    ///
    /// # Errors
    /// The system refuses something.
    pub fn place(
        &self,
        id: ReleaseId,
        is_intact: impl FnOnce(&Path) -> bool,
    ) -> Result<Placed, StoreError> {
        let (draft, target) = (self.draft_path(), self.store.release_path(id));
        // What the digest is of can then not be changed any more, where the file system can see to that.
        let _ = fix(&draft);
        let (size, digest) = digest_of(&draft)?;
        // A file of quite another length is another archive, which need not be read to know that.
        let there = fs::metadata(&target).ok();
        let alike = there.filter(|it| it.len().abs_diff(size) <= SIGNATURES_DIFFER_MAX);
        let found = alike.map(|_| digest_of(&target));
        match found {
            Some(Ok((size, found))) if found == digest || is_intact(&target) => {
                self.discard();
                return Ok(Placed {
                    size,
                    digest: found,
                    was_there: true,
                });
            }
            _ => {}
        }
        let refuse = |error| StoreError::io("write", &target)(error);
        self.files.rename(&draft, &target).map_err(refuse)?;
        let folder = self.store.folder().join(RELEASES);
        self.files.flush_folder(&folder).map_err(refuse)?;
        Ok(Placed {
            size,
            digest,
            was_there: false,
        })
    }

    /// The file of a release that the store has, as a pointer names it: the one in force, or one of
    /// the log.
    ///
    /// # Errors
    /// It cannot be read, or no pointer that can be used names it as it is.
    pub fn placed(&self, id: ReleaseId) -> Result<Placed, StoreError> {
        let path = self.store.release_path(id);
        let metadata = fs::metadata(&path).map_err(StoreError::io("read", &path))?;
        let logged = self.store.serials()?.into_iter();
        let logged = logged.filter_map(|serial| self.store.logged(serial).ok());
        let in_force = self.store.pointer().ok();
        let mut named = in_force
            .into_iter()
            .chain(logged)
            .filter(|it| it.release == id && it.size == metadata.len())
            .peekable();
        if named.peek().is_none() {
            return Err(StoreError::OtherFile(path));
        }
        let found = digest_of(&path)?;
        match named.any(|it| (it.size, it.digest) == found) {
            true => Ok(Placed {
                size: found.0,
                digest: found.1,
                was_there: true,
            }),
            false => Err(StoreError::OtherFile(path)),
        }
    }

    /// The pointer with the next serial, which replaces the one in force; a pointer that cannot be
    /// used counts as replaced, too. The serial follows the highest of those that can be used, and the one of
    /// [`Publisher::go_above`]; names that are taken in the log are left out, one after the
    /// other, so that an unsigned pointer cannot use the serials up. The first one of a store is
    /// active at once, whatever `next` says: servers have nothing else to serve. `now` is in Unix seconds.
    ///
    /// # Errors
    /// The log cannot be listed, the serials are used up, or a value is one that a pointer cannot
    /// have.
    pub fn next(&self, next: Next, now: u64) -> Result<Pointer, StoreError> {
        let in_force = self.store.pointer().ok();
        let known = in_force.iter().map(|it| it.serial);
        let known = known.chain(self.store.newest()?.map(|it| it.serial)).max();
        let taken: HashSet<u64> = self.store.serials()?.into_iter().collect();
        let mut serial = known.unwrap_or(0).max(self.floor) + 1;
        while taken.contains(&serial) {
            serial += 1;
        }
        let refuse = |why: &str| {
            let why = why.to_owned();
            StoreError::Pointer(self.store.pointer_path(), PointerError { line: 0, why })
        };
        if serial > SERIAL_MAX {
            return Err(refuse("the serials are used up"));
        }
        let before = Some(serial - 1).filter(|it| *it > 0);
        let replaces = in_force.map(|it| it.serial).or(before);
        let is_first = replaces.is_none();
        let pointer = Pointer {
            serial,
            replaces,
            release: next.release,
            size: next.placed.size,
            digest: next.placed.digest,
            published: now,
            publisher: self.name.clone(),
            activate: next.activate.filter(|_| !is_first),
            stages: if is_first { Vec::new() } else { next.stages },
            keep: next.keep,
            void: next.void,
            note: next.note,
            expires: next.expires,
        };
        let read = Pointer::parse(pointer.to_text().as_bytes());
        let read = read.map_err(|error| StoreError::Pointer(self.store.pointer_path(), error))?;
        match read == pointer {
            true => Ok(pointer),
            false => Err(refuse("a value that has no text")),
        }
    }

    /// Puts a pointer into force, under the text that it has with its signature.
    ///
    /// # Errors
    /// Another publisher was faster, or the system refuses something; the pointer that was in force
    /// still is.
    pub fn commit(&self, pointer: &Pointer, text: &str) -> Result<(), StoreError> {
        let current = self.store.pointer_path();
        match Pointer::parse(text.as_bytes()) {
            Ok(read) => assert_eq!(&read, pointer, "the text is that of the pointer"),
            Err(error) => return Err(StoreError::Pointer(current, error)),
        }
        self.log(pointer, text)?;
        if let Ok(found) = self.store.pointer()
            && found.serial >= pointer.serial
        {
            return Err(self.overtaken(&found));
        }
        self.put_in_force(text)
    }

    /// Replaces the pointer in force.
    pub(crate) fn put_in_force(&self, text: &str) -> Result<(), StoreError> {
        let current = self.store.pointer_path();
        let refuse = |error| StoreError::io("write", &current)(error);
        let folder = self.store.folder();
        let draft = folder.join(format!(".{UNFINISHED}-{}", self.unique));
        let made = self.files.create(&draft, &mut text.as_bytes());
        let made = made.and_then(|()| self.files.rename(&draft, &current));
        if let Err(error) = made {
            let _ = self.files.remove(&draft);
            return Err(refuse(error));
        }
        self.files.flush_folder(folder).map_err(refuse)
    }

    /// Writes an entry of the log, whose name is still free.
    pub(crate) fn log(&self, pointer: &Pointer, text: &str) -> Result<(), StoreError> {
        let folder = self.store.folder().join(LOG);
        let draft = folder.join(format!(".{UNFINISHED}-{}", self.unique));
        let path = self.store.log_path(pointer.serial);
        let refuse = |error| StoreError::io("write", &path)(error);
        let made = self.files.create(&draft, &mut text.as_bytes());
        let linked = made.and_then(|()| match self.files.link(&draft, &path) {
            // Without links, as on FAT: the name is taken as well, and a loss of power may leave
            // half an entry, which readers leave out.
            Err(error) if has_no_links(&error) => self.files.create(&path, &mut text.as_bytes()),
            linked => linked,
        });
        let _ = self.files.remove(&draft);
        match linked {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                match self.store.logged(pointer.serial) {
                    Ok(found) => return Err(self.overtaken(&found)),
                    Err(_) => return Err(refuse(error)),
                }
            }
            linked => linked.map_err(refuse)?,
        }
        self.files.flush_folder(&folder).map_err(refuse)
    }

    fn overtaken(&self, found: &Pointer) -> StoreError {
        let time = time_text(found.published);
        let (serial, by) = (found.serial, &found.publisher);
        StoreError::Overtaken {
            store: self.store.folder().to_path_buf(),
            what: format!("serial {serial} was published at {time} by {by} in the meantime"),
        }
    }
}

/// What was made for a new store, in order: removed again on drop, unless something has been put
/// into it, so that a first attempt which fails leaves nothing behind.
#[derive(Default)]
struct CreatedPaths(Vec<PathBuf>);

impl Drop for CreatedPaths {
    fn drop(&mut self) {
        for path in self.0.iter().rev() {
            let removed = match path.ends_with(LOCK) {
                true => fs::remove_file(path),
                false => fs::remove_dir(path),
            };
            if removed.is_err() {
                return;
            }
        }
    }
}

/// Takes the lock of a store, of which nothing has to be there but the folder above it.
fn begin(
    folder: &Path,
    holder: &str,
    files: &impl Files,
) -> Result<(CreatedPaths, Lock), StoreError> {
    let mut begun = CreatedPaths::default();
    if make_folder(folder, files)? {
        begun.0.push(folder.to_path_buf());
    }
    let (is_store, found) = may_open(folder)?;
    let lock = Lock::take(folder, holder)?;
    if !is_store && !found.iter().any(|name| *name == *LOCK) {
        begun.0.push(folder.join(LOCK));
    }
    Ok((begun, lock))
}

/// Whether nothing has this name, not even a link.
fn is_absent(path: &Path) -> bool {
    fs::symlink_metadata(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

/// Makes the folder of a store, unless there is one; another publisher may do so at the same time.
/// Returns whether it was made.
fn make_folder(folder: &Path, files: &impl Files) -> Result<bool, StoreError> {
    let refuse = |error| StoreError::io(MAKE_STORE, folder)(error);
    if folder.try_exists().map_err(refuse)? {
        return Ok(false);
    }
    match files.make_folder(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(false),
        made => made.map_err(refuse)?,
    }
    files.flush_folder(above(folder)).map_err(refuse)?;
    Ok(true)
}

/// The folder above another one.
fn above(folder: &Path) -> &Path {
    match folder.parent() {
        Some(above) if above != Path::new("") => above,
        _ => Path::new("."),
    }
}

/// Refuses a folder that is neither a store nor may become one; returns which of them it is, and
/// the names in it.
fn may_open(folder: &Path) -> Result<(bool, Vec<OsString>), StoreError> {
    let found = names(folder).map_err(StoreError::io("open store", folder))?;
    let is_store = Store::is_store(folder);
    match is_store || may_become_store(folder, &found) {
        true => Ok((is_store, found)),
        false => Err(StoreError::NotAStore(folder.to_path_buf())),
    }
}

/// A new folder, or a store that was not completed: both of its folders are made before anything
/// is in them. What a listing does not show stays where all else was removed.
fn may_become_store(folder: &Path, found: &[OsString]) -> bool {
    // One that has begun it may be removing them.
    let is_empty = |name: &OsString| match names(&folder.join(name)) {
        Ok(names) => names.is_empty(),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    };
    found.iter().all(|name| {
        let rest = name.as_encoded_bytes().strip_prefix(DRAFT.as_bytes());
        // As they are named here: no foreign file is to be taken for one.
        let is_of_mark = |rest: &[u8]| rest.iter().all(|it| it.is_ascii_hexdigit() || *it == b'-');
        rest.is_some_and(|rest| rest == b"origin" || is_of_mark(rest))
            || [LOCK, ORIGIN, SEEN, JOURNAL].iter().any(|it| *name == **it)
            || (*name == *RELEASES || *name == *LOG) && is_empty(name)
    })
}

/// Whether a file system refuses every link (link(2)).
fn has_no_links(error: &io::Error) -> bool {
    let none = [Errno::PERM, Errno::OPNOTSUPP, Errno::NOSYS];
    none.iter()
        .any(|it| error.raw_os_error() == Some(it.raw_os_error()))
}

/// How often the folder is made, while others that had made it remove it.
const BEGIN_TRIES: u32 = 100;
/// How the names of unfinished files begin, after a dot.
const UNFINISHED: &str = "new";
/// How those in the store's own folder do.
const DRAFT: &str = ".new-";
