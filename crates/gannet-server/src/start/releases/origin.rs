//! Where the releases of a content come from: one path that is replaced, or a store.

use std::fs;
use std::io;
use std::mem;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use gannet_content::rules::table::TableError;
use gannet_io::sandbox::{HIDDEN, is_hidden};
use gannet_store::{KeptRelease, Pointer, Store, StoreError};

use crate::bounds::limits::{OTHER_RELEASES_MAX, REFUSED_AGAIN_MS, REFUSED_PART};
use crate::start::open::OpenError;
use crate::watch::lookout::{Quiet, Stamp};

/// The origin of a content's releases.
pub(crate) enum Origin {
    /// An archive that is replaced by renaming another one over it.
    Path(AtPath),
    /// A store.
    Store(Box<InStore>),
}

/// See [`Origin::Path`].
pub(crate) struct AtPath {
    /// Independent of the working directory.
    path: PathBuf,
    quiet: Quiet<Option<Stamp>>,
    /// The archive there was refused.
    is_refused: bool,
    /// When it is read again.
    again_at: Option<Instant>,
}

/// See [`Origin::Store`].
pub(crate) struct InStore {
    pub(crate) store: Store,
    /// The name of this server among those that follow the store.
    node: String,
    /// The last pointer that was acted upon.
    pub(crate) pointer: Pointer,
    /// The newest one that could be used: staged, or still refused, if it is not `pointer`.
    newest: Pointer,
    /// When it was first read, Unix seconds.
    newest_since: u64,
    /// The file of the last pointer read.
    seen: Option<Stamp>,
    /// That file could not be read.
    is_unreadable: bool,
    /// The folders of the log and of the releases, as they were when kept releases were last opened.
    folders: [Option<Stamp>; 2],
    /// When a refused pointer is read again.
    pub(crate) again_at: Option<Instant>,
}

/// What the origin wants of the server.
pub(crate) enum News {
    /// Nothing.
    None,
    /// Nothing can be known: there is no archive at the path, or no pointer in the store.
    Unreachable,
    /// The path has another archive.
    Archive,
    /// The path has none any more.
    Gone,
    /// The store has another pointer.
    Pointer(Box<Pointer>),
    /// The store's pointer cannot be used.
    Refused(Refusal),
}

/// Why a pointer or a release is refused.
#[derive(Debug)]
pub(crate) struct Refusal {
    /// For metrics.
    pub(crate) reason: &'static str,
    /// For people.
    pub(crate) text: String,
    /// It is the file's own fault: nothing but another file changes it.
    pub(crate) is_final: bool,
}

impl AtPath {
    /// An archive at a path, opened at this moment.
    ///
    /// # Errors
    /// The working directory cannot be determined.
    pub(crate) fn new(path: &Path) -> io::Result<Self> {
        let path = std::path::absolute(path)?;
        let quiet = Quiet::new(Stamp::of(&path));
        Ok(Self {
            path,
            quiet,
            is_refused: false,
            again_at: None,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The archive there cannot be served. With a moment, it is read again then.
    pub(crate) fn refused(&mut self, again_at: Option<Instant>) {
        self.is_refused = true;
        self.again_at = again_at;
    }

    /// Reads the archive there again at this moment.
    #[cfg(test)]
    pub(crate) fn again_at(&mut self, moment: Instant) {
        self.again_at = Some(moment);
    }

    fn news(&mut self, is_asked: bool) -> News {
        let now = Stamp::of(&self.path);
        let is_again = self.again_at.is_some_and(|at| at <= Instant::now());
        let is_wanted = is_asked && (self.is_refused || now != *self.quiet.known());
        if !self.quiet.is_due(&now) && !is_again && !is_wanted {
            return match now {
                Some(_) => News::None,
                None => News::Unreachable,
            };
        }
        let is_there = now.is_some();
        self.quiet.acted(now);
        self.is_refused = false;
        self.again_at = None;
        match is_there {
            true => News::Archive,
            false => News::Gone,
        }
    }
}

impl InStore {
    /// The store at a path, and the pointer whose release a server of this name starts with: the
    /// newest one that is due, or else the one in force.
    ///
    /// # Errors
    /// See [`Store::pointer`]; or the pointer has expired.
    pub(crate) fn open(
        path: &Path,
        key: Option<&str>,
        node: &str,
        now: u64,
    ) -> Result<Self, StoreError> {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let store = Store::open(&path, key)?;
        // Before the pointer: then no change is missed.
        let seen = Stamp::of(&store.pointer_path());
        let in_force = store.pointer()?;
        if in_force.is_expired(now) {
            return Err(StoreError::Expired(store.pointer_path(), in_force.serial));
        }
        let mut opened = Self {
            seen,
            newest: in_force.clone(),
            newest_since: now,
            store,
            node: node.to_owned(),
            is_unreadable: false,
            folders: [None; 2],
            pointer: in_force,
            again_at: None,
        };
        if opened.pointer.activation(node) > now {
            let has_file = |it: &Pointer| {
                let found = fs::metadata(opened.store.file_of(it.release));
                found.is_ok_and(|found| found.is_file() && found.len() == it.size)
            };
            let before = opened.earlier(now).find(has_file);
            before.into_iter().for_each(|it| opened.begin_with(it));
        }
        Ok(opened)
    }

    /// The pointers before the one that it starts with, if the release of that one cannot be served:
    /// those that this server has activated, by its own clock as well as by the publishers', the
    /// newest first.
    pub(crate) fn earlier(&self, now: u64) -> impl Iterator<Item = Pointer> + use<'_> {
        let void = &self.newest.void;
        self.store
            .activated_before(&self.pointer, void, &self.node, now)
    }

    /// The release of this pointer is served: the pointer in force is news again.
    pub(crate) fn begin_with(&mut self, pointer: Pointer) {
        self.pointer = pointer;
        self.seen = None;
    }

    /// When this server activates the release of the newest pointer, Unix seconds: not before it
    /// knows the pointer, however often that is tried.
    pub(crate) fn activation(&self) -> u64 {
        self.newest.activation(&self.node).max(self.newest_since)
    }

    /// Whether the folders of the log and of the releases have changed since the last call.
    pub(crate) fn has_changed(&mut self) -> bool {
        let now = self.store.folders().map(|folder| Stamp::of(&folder));
        mem::replace(&mut self.folders, now) != now
    }

    /// The releases that answer for their immutable assets, as the store has them.
    ///
    /// # Errors
    /// See [`Store::kept`].
    pub(crate) fn kept(&self, now: u64) -> Result<Vec<KeptRelease>, StoreError> {
        let mut kept = self.store.kept(&self.pointer, now)?.releases;
        kept.retain(|it| !self.newest.void.contains(&it.pointer.release));
        // Any more would be released at once.
        kept.truncate(OTHER_RELEASES_MAX - 1);
        Ok(kept)
    }

    /// Reads the refused pointer again at a moment.
    pub(crate) fn refused(&mut self, again_at: Instant) {
        self.again_at = Some(again_at);
    }

    fn news(&mut self, is_asked: bool, now: u64) -> News {
        let stamp = Stamp::of(&self.store.pointer_path());
        let is_again = self.again_at.is_some_and(|at| at <= Instant::now());
        if stamp == self.seen && !is_again && !is_asked {
            return match stamp {
                Some(_) if !self.is_unreadable => News::None,
                _ => News::Unreachable,
            };
        }
        self.seen = stamp;
        self.again_at = None;
        let read = self.store.pointer();
        let reason = match &read {
            Ok(_) => "",
            Err(StoreError::Pointer(..)) => "malformed",
            Err(StoreError::Signature(..)) => "signature",
            Err(_) => UNREADABLE,
        };
        self.is_unreadable = reason == UNREADABLE;
        let pointer = match read {
            Ok(pointer) => pointer,
            Err(error) => {
                self.refused(again_after(Duration::ZERO));
                return News::Refused(Refusal {
                    reason,
                    text: error.to_string(),
                    is_final: false,
                });
            }
        };
        if pointer == self.pointer && pointer == self.newest {
            return News::None;
        }
        let refuse = |reason, text| {
            News::Refused(Refusal {
                reason,
                text,
                is_final: true,
            })
        };
        let path = self.store.pointer_path();
        if pointer.serial <= self.newest.serial && pointer != self.newest {
            let text = format!(
                "pointer '{}' has serial {}, and serial {} was in force already",
                path.display(),
                pointer.serial,
                self.newest.serial
            );
            return refuse("older", text);
        }
        if pointer.is_expired(now) {
            return refuse(
                "expired",
                StoreError::Expired(path, pointer.serial).to_string(),
            );
        }
        if pointer != self.newest {
            self.newest.clone_from(&pointer);
            self.newest_since = now;
        }
        News::Pointer(Box::new(pointer))
    }
}

impl Origin {
    /// What has happened since the last call. `is_asked`: someone asked to look.
    pub(crate) fn news(&mut self, is_asked: bool, now: u64) -> News {
        match self {
            Self::Path(path) => path.news(is_asked),
            Self::Store(store) => store.news(is_asked, now),
        }
    }
}

impl From<OpenError> for Refusal {
    fn from(error: OpenError) -> Self {
        let reason = match &error {
            OpenError::Io(..) => UNREADABLE,
            OpenError::Copy(..) | OpenError::ArchiveRules(_, TableError::MemoryOfSites) => "memory",
            OpenError::Archive(..) | OpenError::ArchiveRules(..) => "malformed",
            OpenError::Signature(..) => "signature",
            OpenError::OtherHosts(..) => "hosts",
            _ => "damaged",
        };
        let text = match &error {
            OpenError::Io(_, path, cause) if is_hidden(path, false, cause) => {
                format!("{error}: {HIDDEN}")
            }
            _ => error.to_string(),
        };
        Self {
            reason,
            text,
            is_final: !error.is_shortage()
                && !matches!(error, OpenError::Io(..) | OpenError::Copy(..)),
        }
    }
}

/// When to try again after an attempt that took this long.
pub(crate) fn again_after(took: Duration) -> Instant {
    Instant::now() + Duration::from_millis(REFUSED_AGAIN_MS).max(took * REFUSED_PART)
}

/// The reason of a refusal if something cannot be read.
pub(crate) const UNREADABLE: &str = "unreadable";
