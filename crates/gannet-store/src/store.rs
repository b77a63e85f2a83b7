//! Reads a store: the pointer in force, those before it, and which releases are kept.

use std::collections::HashSet;
use std::ffi::OsString;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use gannet_archive::signature::{PublicKey, SignatureError};
use gannet_io::cause::{FileError, cause};
use gannet_io::named_file;

use crate::error::StoreError;
use crate::files::digest_of;
use crate::limits::{COPY_LAG_S, FOLLOWED_MAX, POINTER_LEN_MAX, SERIAL_MAX};
use crate::partial::{PARTIAL, PRESENT};
use crate::pointer::{FIRST_LINE, Pointer, PointerError};
use crate::quantity::parse_count;
use crate::release_id::ReleaseId;

/// A store in a folder, for reading. Every pointer read through it is verified, if it was opened with a key.
pub struct Store {
    folder: PathBuf,
    key: Option<PublicKey>,
}

/// An entry of the log that cannot be used, and why.
#[derive(Debug)]
pub struct Skipped {
    /// Its serial.
    pub serial: u64,
    /// The cause.
    pub error: StoreError,
}

/// What the log has.
#[derive(Debug, Default)]
pub struct History {
    /// All pointers that can be read, the newest first. One that no later pointer replaces, nor is
    /// the current one, was never in force: its publisher ended before that.
    pub pointers: Vec<Pointer>,
    /// The others.
    pub skipped: Vec<Skipped>,
}

/// The releases that still answer for their immutable assets.
#[derive(Debug, Default)]
pub struct KeptReleases {
    /// Those that were active, the newest first, and then those that may have been.
    pub releases: Vec<KeptRelease>,
    /// Entries of the log that could not be read on the way.
    pub skipped: Vec<Skipped>,
}

/// See [`KeptReleases`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct KeptRelease {
    /// The last pointer to it.
    pub pointer: Pointer,
    /// When the last node left it, in Unix seconds.
    pub left_at: u64,
    /// It was active before it was superseded. If not, nodes that follow a copy of the store, which
    /// is [behind](crate::limits::COPY_LAG_S), may have activated it.
    pub was_active: bool,
}

impl Store {
    /// Whether a path is a store: a folder with a file `current` that begins as a pointer does, or
    /// with the folders `releases` and `log` and nothing else but perhaps `current`, and names that
    /// start with a dot.
    ///
    /// So a store whose pointer is damaged is still one, and is not served as a site, nor is one to
    /// which nothing has been published yet, or a copy without its log; a site with folders of these
    /// names differs by its other files, such as its index page.
    #[must_use]
    pub fn is_store(path: &Path) -> bool {
        let is_folder = |name: &str| path.join(name).is_dir();
        let begins_as_pointer = || {
            let mut start = [0; FIRST_LINE.len()];
            let read = named_file::open(&path.join(CURRENT));
            let read = read.and_then(|mut file| file.read_exact(&mut start));
            read.is_ok() && start == *FIRST_LINE.as_bytes()
        };
        let has_nothing_else = || {
            let Ok(mut names) = std::fs::read_dir(path) else {
                return false;
            };
            names.all(|entry| {
                entry.is_ok_and(|entry| {
                    let name = entry.file_name();
                    let name = name.as_encoded_bytes();
                    let known = [RELEASES, LOG, CURRENT].map(str::as_bytes);
                    known.contains(&name) || name.starts_with(b".")
                })
            })
        };
        begins_as_pointer() || is_folder(RELEASES) && is_folder(LOG) && has_nothing_else()
    }

    /// Opens a store; `key` is the line of Base64 of a minisign public key, or the text of its
    /// file.
    ///
    /// # Errors
    /// The path does not exist or is not a store, or the key is malformed.
    pub fn open(path: &Path, key: Option<&str>) -> Result<Self, StoreError> {
        if !Self::is_store(path) {
            // It may be one that this user cannot look into.
            let refuse = |error| StoreError::io("open store", path)(error);
            let metadata = std::fs::metadata(path).map_err(refuse)?;
            if metadata.is_dir() {
                std::fs::read_dir(path).map_err(refuse)?;
                path.join(CURRENT).try_exists().map_err(refuse)?;
            }
            return Err(StoreError::NotAStore(path.to_path_buf()));
        }
        let mut store = Self {
            folder: path.to_path_buf(),
            key: None,
        };
        store.require(key)?;
        Ok(store)
    }

    /// From here on, only pointers signed with this key are usable.
    pub(crate) fn require(&mut self, key: Option<&str>) -> Result<(), StoreError> {
        let malformed = || StoreError::Signature(self.folder.clone(), SignatureError::Key);
        let key = key.map(|key| PublicKey::parse(key).ok_or_else(malformed));
        self.key = key.transpose()?;
        Ok(())
    }

    /// Its folder, as it was opened.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The file with the pointer in force. It is only ever replaced, by renaming.
    #[must_use]
    pub fn pointer_path(&self) -> PathBuf {
        self.folder.join(CURRENT)
    }

    /// The folders of the log and of the releases, which change when a release comes or goes.
    #[must_use]
    pub fn folders(&self) -> [PathBuf; 2] {
        [LOG, RELEASES].map(|name| self.folder.join(name))
    }

    /// The file of a release, which may not exist.
    #[must_use]
    pub fn release_path(&self, id: ReleaseId) -> PathBuf {
        self.folder.join(RELEASES).join(format!("{id}{SUFFIX}"))
    }

    /// The file of a release that is there in part, which may not exist.
    #[must_use]
    pub fn partial_path(&self, id: ReleaseId) -> PathBuf {
        self.folder.join(RELEASES).join(format!("{id}{PARTIAL}"))
    }

    /// The file that has which parts of it are there, which may not exist.
    #[must_use]
    pub fn presence_path(&self, id: ReleaseId) -> PathBuf {
        self.folder.join(RELEASES).join(format!("{id}.{PRESENT}"))
    }

    /// The file of a release, whole or [in part](crate::PartialRelease).
    #[must_use]
    pub fn file_of(&self, id: ReleaseId) -> PathBuf {
        let whole = self.release_path(id);
        let partial = self.partial_path(id);
        match !whole.exists() && partial.exists() {
            true => partial,
            false => whole,
        }
    }

    /// The file with the pointer of a serial, which may not exist.
    #[must_use]
    pub fn log_path(&self, serial: u64) -> PathBuf {
        self.folder.join(LOG).join(serial.to_string())
    }

    /// The pointer in force.
    ///
    /// # Errors
    /// There is none yet, it cannot be read, or it is not signed as required.
    pub fn pointer(&self) -> Result<Pointer, StoreError> {
        let path = self.pointer_path();
        match self.read(&path) {
            Err(StoreError::Io(FileError { error, .. }))
                if error.kind() == io::ErrorKind::NotFound =>
            {
                let refuse = StoreError::io("open store", &self.folder);
                std::fs::metadata(&self.folder).map_err(refuse)?;
                Err(StoreError::Empty(self.folder.clone()))
            }
            read => read,
        }
    }

    fn read(&self, path: &Path) -> Result<Pointer, StoreError> {
        let refuse = |error| StoreError::Pointer(path.to_path_buf(), error);
        let text = named_file::read(path, POINTER_LEN_MAX as u64).map_err(|error| {
            let is_malformed = matches!(
                error.kind(),
                io::ErrorKind::FileTooLarge | io::ErrorKind::InvalidInput
            );
            match is_malformed {
                true => refuse(PointerError {
                    line: 0,
                    why: cause(&error).to_string(),
                }),
                false => StoreError::io("read pointer", path)(error),
            }
        })?;
        self.check(path, &text)
    }

    /// Reads a text as a pointer of this store, wherever it is from; `origin` is for the error.
    ///
    /// # Errors
    /// It is no pointer, or is not signed as required.
    pub fn check(&self, origin: &Path, text: &[u8]) -> Result<Pointer, StoreError> {
        let refuse = |error| StoreError::Pointer(origin.to_path_buf(), error);
        let pointer = Pointer::parse(text).map_err(refuse)?;
        if let Some(key) = &self.key {
            let refuse = |error| StoreError::Signature(origin.to_path_buf(), error);
            Pointer::verify(text, key).map_err(refuse)?;
        }
        Ok(pointer)
    }

    /// An entry of the log; one under another serial than its own is refused, as a copy.
    fn entry(&self, serial: u64) -> Result<Pointer, Skipped> {
        let path = self.log_path(serial);
        let skip = |error| Skipped { serial, error };
        let pointer = self.read(&path).map_err(skip)?;
        if pointer.serial != serial {
            let cause = format!("it is the pointer of serial {}", pointer.serial);
            let error = io::Error::new(io::ErrorKind::InvalidData, cause);
            return Err(skip(StoreError::io("use", &path)(error)));
        }
        Ok(pointer)
    }

    /// The pointer of a serial in the log.
    ///
    /// # Errors
    /// There is none, it cannot be read, or it is not signed as required.
    pub fn logged(&self, serial: u64) -> Result<Pointer, StoreError> {
        self.entry(serial).map_err(|skipped| skipped.error)
    }

    /// The newest entry of the log that can be used.
    ///
    /// # Errors
    /// The log cannot be listed.
    pub fn newest(&self) -> Result<Option<Pointer>, StoreError> {
        let mut serials = self.serials()?.into_iter();
        Ok(serials.find_map(|serial| self.logged(serial).ok()))
    }

    /// The file of a pointer's release, which has the length that the pointer says, or cannot be
    /// looked at. A user who could write to the store may have put another one there, whose own numbers
    /// bound nothing: its length is compared before any of it is read.
    ///
    /// # Errors
    /// It has another length.
    pub fn release_file(&self, pointer: &Pointer) -> Result<PathBuf, StoreError> {
        let path = self.release_path(pointer.release);
        match std::fs::metadata(&path) {
            Ok(found) if found.len() != pointer.size => Err(StoreError::OtherFile(path)),
            _ => Ok(path),
        }
    }

    /// The file of a pointer's release, read whole: it is the one that the pointer names.
    ///
    /// # Errors
    /// It cannot be read, or is another one.
    pub fn intact_file(&self, pointer: &Pointer) -> Result<PathBuf, StoreError> {
        let path = self.release_file(pointer)?;
        match digest_of(&path)? == (pointer.size, pointer.digest) {
            true => Ok(path),
            false => Err(StoreError::OtherFile(path)),
        }
    }

    /// The serials of the log, the highest first. Other names are ignored; a store without a log,
    /// as an incomplete copy is, has none.
    pub(crate) fn serials(&self) -> Result<Vec<u64>, StoreError> {
        let mut serials = Vec::new();
        for name in self.names(LOG)? {
            let serial = name.to_str().and_then(parse_count);
            serials.extend(serial.filter(|serial| (1..=SERIAL_MAX).contains(serial)));
        }
        serials.sort_unstable_by(|a, b| b.cmp(a));
        Ok(serials)
    }

    /// The names in one of its folders; none without the folder.
    fn names(&self, folder: &str) -> Result<Vec<OsString>, StoreError> {
        let folder = self.folder.join(folder);
        match names(&folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            names => names.map_err(StoreError::io("read", &folder)),
        }
    }

    /// The releases that have a file, whole or in part, in no order. Other names are ignored, and what is no
    /// file.
    ///
    /// # Errors
    /// The folder cannot be listed.
    pub fn releases(&self) -> Result<Vec<ReleaseId>, StoreError> {
        let id = |name: OsString| {
            let name = name.to_str()?;
            let id = name.strip_suffix(SUFFIX);
            id.or_else(|| name.strip_suffix(PARTIAL))?.parse().ok()
        };
        let ids: HashSet<_> = self.names(RELEASES)?.into_iter().filter_map(id).collect();
        let has_file = |id: &ReleaseId| self.file_of(*id).is_file();
        Ok(ids.into_iter().filter(has_file).collect())
    }

    /// The whole log.
    ///
    /// # Errors
    /// It cannot be listed; an entry that cannot be used is among [`History::skipped`].
    pub fn history(&self) -> Result<History, StoreError> {
        let mut history = History::default();
        for serial in self.serials()? {
            match self.entry(serial) {
                Ok(pointer) => history.pointers.push(pointer),
                Err(skipped) => history.skipped.push(skipped),
            }
        }
        Ok(history)
    }

    /// The releases that still answer for their immutable assets at a moment (Unix seconds): those
    /// that were in force before the current one, are not void, whose file exists, and that
    /// `current.keep` names.
    ///
    /// The age of a release counts from the moment when the last node has activated the one after
    /// it; until then it is kept whatever the bounds say. One that was superseded before any node was
    /// to activate it is kept after all others, if nodes may have done so. The log is followed through
    /// [`Pointer::replaces`], so that a pointer which never came into force is left out; past an
    /// entry that cannot be used, the next lower serial counts. The log is read only as far as
    /// there are files that it may name, and for [`FOLLOWED_MAX`] entries at most.
    ///
    /// # Errors
    /// The log or the folder of the releases cannot be listed.
    pub fn kept(&self, current: &Pointer, now: u64) -> Result<KeptReleases, StoreError> {
        self.kept_among(self.releases()?, current, now)
    }

    /// The same, if these releases had files and no others: a copy of a store that is not complete
    /// yet learns what it lacks.
    ///
    /// # Errors
    /// The log cannot be listed.
    pub fn kept_among(
        &self,
        releases: impl IntoIterator<Item = ReleaseId>,
        current: &Pointer,
        now: u64,
    ) -> Result<KeptReleases, StoreError> {
        let keep = &current.keep;
        let mut kept = KeptReleases::default();
        let mut files: HashSet<_> = releases.into_iter().collect();
        files.remove(&current.release);
        for void in &current.void {
            files.remove(void);
        }
        let mut bytes: u64 = 0;
        let mut superseded: Vec<KeptRelease> = Vec::new();
        let mut trail = self.trail(current)?;
        while !files.is_empty() {
            let Some(next) = trail.next(&mut kept.skipped) else {
                break;
            };
            let is_left = next.left_at <= now;
            let is_old = is_left && now - next.left_at >= keep.age_s;
            if !next.was_active() {
                let is_again = |it: &KeptRelease| it.pointer.release == next.pointer.release;
                if next.may_have_been_active() && !is_old && !superseded.iter().any(is_again) {
                    superseded.push(next.kept());
                }
                continue;
            }
            let count = kept.releases.len();
            let is_beyond = count >= keep.most as usize || is_old && count >= keep.least as usize;
            if is_left && is_beyond {
                break;
            }
            if files.remove(&next.pointer.release) {
                bytes = bytes.saturating_add(next.pointer.size);
                if is_left && keep.bytes.is_some_and(|most| bytes > most) {
                    break;
                }
                kept.releases.push(next.kept());
            }
        }
        for superseded in superseded {
            bytes = bytes.saturating_add(superseded.pointer.size);
            if kept.releases.len() >= keep.most as usize
                || keep.bytes.is_some_and(|most| bytes > most)
            {
                break;
            }
            if files.remove(&superseded.pointer.release) {
                kept.releases.push(superseded);
            }
        }
        Ok(kept)
    }

    /// The pointers that were in force before this one, the newest first, at most
    /// [`FOLLOWED_MAX`]; entries of the log that cannot be used are left out. Each is read when it
    /// is requested.
    ///
    /// # Errors
    /// The log cannot be listed.
    pub fn earlier<'s>(
        &'s self,
        current: &Pointer,
    ) -> Result<impl Iterator<Item = Earlier> + use<'s>, StoreError> {
        let mut trail = self.trail(current)?;
        Ok(std::iter::from_fn(move || trail.next(&mut Vec::new())))
    }

    /// Of the [earlier](Self::earlier) ones those that the server of this name has activated by `now`, and that are not
    /// void: what it may serve if it cannot serve the release of `current`.
    pub fn activated_before<'s>(
        &'s self,
        current: &Pointer,
        void: &'s [ReleaseId],
        node: &'s str,
        now: u64,
    ) -> impl Iterator<Item = Pointer> + use<'s> {
        let earlier = self.earlier(current).into_iter().flatten();
        let was_active = move |it: &Earlier| {
            it.was_active_at(node)
                && it.pointer.activation(node) <= now
                && !void.contains(&it.pointer.release)
        };
        earlier.filter(was_active).map(|it| it.pointer)
    }

    /// The pointers that servers may serve now: the one in force, and before its moment those that it
    /// replaces, as far as one that all have activated.
    ///
    /// # Errors
    /// The log cannot be listed.
    pub fn served(&self, in_force: &Pointer, now: u64) -> Result<Vec<Pointer>, StoreError> {
        let mut served = vec![in_force.clone()];
        if in_force.settled() > now {
            for earlier in self.earlier(in_force)? {
                let is_last = earlier.left_at <= now || earlier.was_active_everywhere();
                served.push(earlier.pointer);
                if is_last {
                    break;
                }
            }
        }
        Ok(served)
    }

    pub(crate) fn trail(&self, current: &Pointer) -> Result<Trail<'_>, StoreError> {
        let mut serials = match current.replaces {
            Some(_) => self.serials()?,
            None => Vec::new(),
        };
        serials.retain(|serial| *serial < current.serial);
        Ok(Trail {
            store: self,
            serials: serials.into_iter(),
            left: FOLLOWED_MAX,
            expected: current.replaces,
            left_at: current.settled(),
            superseded_at: current.published,
        })
    }
}

/// The pointers that were in force one before the other.
pub(crate) struct Trail<'s> {
    store: &'s Store,
    serials: std::vec::IntoIter<u64>,
    /// Entries that may still be read.
    left: usize,
    /// The serial that was in force before; `None` after an entry that cannot be used.
    expected: Option<u64>,
    /// When the last node has activated a pointer after the next one.
    left_at: u64,
    /// When the pointer after the next one was published.
    superseded_at: u64,
}

/// A pointer that was in force. It may have been superseded before its moment: then its
/// release was never served.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Earlier {
    /// The pointer.
    pub pointer: Pointer,
    /// When the next one was published, in Unix seconds: who had not activated it by then never did.
    pub superseded_at: u64,
    /// When the last node left it, in Unix seconds.
    pub(crate) left_at: u64,
}

impl Earlier {
    /// Whether any node activated it.
    #[must_use]
    pub fn was_active(&self) -> bool {
        self.was_by(self.superseded_at, Pointer::first_activation)
    }

    /// Whether the node of this name activated it.
    #[must_use]
    pub fn was_active_at(&self, node: &str) -> bool {
        self.was_by(self.superseded_at, |it| it.activation(node))
    }

    /// Whether all nodes activated it.
    #[must_use]
    pub fn was_active_everywhere(&self) -> bool {
        self.was_by(self.superseded_at, Pointer::last_activation)
    }

    /// Whether a node may have activated it that follows a copy of the store, which was behind.
    fn may_have_been_active(&self) -> bool {
        let superseded_at = self.superseded_at.saturating_add(COPY_LAG_S);
        self.was_by(superseded_at, Pointer::first_activation)
    }

    /// The first pointer of a store is active at once, whatever it says.
    fn was_by(&self, moment: u64, activation: impl FnOnce(&Pointer) -> u64) -> bool {
        self.pointer.replaces.is_none() || activation(&self.pointer) <= moment
    }

    fn kept(self) -> KeptRelease {
        KeptRelease {
            was_active: self.was_active(),
            pointer: self.pointer,
            left_at: self.left_at,
        }
    }
}

impl Trail<'_> {
    /// The next pointer. Entries that cannot be used are added to `skipped`.
    pub(crate) fn next(&mut self, skipped: &mut Vec<Skipped>) -> Option<Earlier> {
        loop {
            let serial = self.serials.next()?;
            if self.expected.is_some_and(|expected| serial > expected) {
                continue;
            }
            self.left = self.left.checked_sub(1)?;
            match self.store.entry(serial) {
                Ok(pointer) => {
                    let left_at = self.left_at;
                    // Who left a later one serves none before it, though that may say otherwise: it
                    // was to be activated later, or the clock of its publisher was ahead.
                    self.left_at = left_at.min(pointer.settled());
                    self.expected = pointer.replaces;
                    if pointer.replaces.is_none() {
                        self.serials = Vec::new().into_iter();
                    }
                    let superseded_at = self.superseded_at;
                    self.superseded_at = pointer.published;
                    return Some(Earlier {
                        pointer,
                        superseded_at,
                        left_at,
                    });
                }
                Err(error) => {
                    skipped.push(error);
                    self.expected = None;
                }
            }
        }
    }
}

/// The names in a folder.
pub(crate) fn names(folder: &Path) -> io::Result<Vec<OsString>> {
    let entries = std::fs::read_dir(folder)?;
    entries.map(|entry| Ok(entry?.file_name())).collect()
}

/// The folder of the releases.
pub(crate) const RELEASES: &str = "releases";
/// The folder of all pointers.
pub(crate) const LOG: &str = "log";
/// The pointer in force.
pub(crate) const CURRENT: &str = "current";
/// How the name of a release's file ends.
pub(crate) const SUFFIX: &str = ".gannet";
