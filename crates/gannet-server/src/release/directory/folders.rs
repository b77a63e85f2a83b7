//! What lookups know about the folders of a live directory without asking the disk: which sidecars
//! are certainly not there, and whether opening a file can have side effects.
//!
//! A file may have three sidecars, and most files have none. The kernel caches the absence of a
//! name only after a lookup that may wait for the disk, so asking for each sidecar of each file
//! would take three trips to a helper thread. Reading the folder's names takes one, for all its
//! files: a *survey*. It keeps what ends like a sidecar, as hashes, so that a folder without any
//! costs a hundred bytes.
//!
//! A survey counts for [`FOLDER_FRESH_MS`]; after that only while the folder's metadata are the
//! same, which any new name changes, and only if they were not quite new when its names were read
//! (see `is_settled`). What a lookup concludes from it counts from the time for which the folder was
//! confirmed last, so a new sidecar is found as soon as without surveys.
//!
//! A long folder is read in steps, each once as many lookups have missed it as pay for it.
//!
//! Where the last files were all short, the next one is read before its length is known: those of the folder, which
//! begins with the site's each time that its names are read.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};

use gannet_content::directory::sidecars::SIDECARS;
use gannet_content::negotiation::{self, is_form};
use gannet_io::driver::{Driver, Meta, Nanos, Survey};
use gannet_io::limits::READ_AHEAD_MAX;

use super::{DirectorySite, is_settled};
use crate::bounds::limits::{
    FOLDER_FRESH_MS, FOLDER_NAMES_FIRST, FOLDER_NAMES_MAX, FOLDER_NAMES_PER_MISS, FOLDER_PLAIN_MS,
    FOLDERS_HELD_MAX, SHORT_FILES_SEEN,
};

/// What is known of the folders of one site.
#[derive(Default)]
pub(super) struct Folders {
    folders: HashMap<Box<[u8]>, Folder, foldhash::fast::RandomState>,
    /// Approximate bytes of memory.
    held: u64,
    /// As [`KnownFolder::short_files`], of all folders: a folder of few files begins with it.
    short_files: u32,
}

#[derive(Default)]
struct Folder {
    known: Option<KnownFolder>,
    /// Lookups since the last survey that found nothing known.
    missed: usize,
    /// Names that the next survey reads at most; 0 before the first one.
    max: usize,
    /// Lookups to miss before the next survey.
    due: usize,
    /// No survey before this time.
    not_before: Nanos,
}

struct KnownFolder {
    meta: Meta,
    /// Metadata show whether it still has the same names.
    is_settled: bool,
    is_plain: bool,
    /// Hashes of the names that end like sidecars, sorted.
    sidecars: Box<[u64]>,
    /// When it was last known to have these names.
    as_of: Nanos,
    /// Its last files in a row, at most [`SHORT_FILES_SEEN`], that may be read ahead.
    short_files: u32,
}

/// What is known of one folder.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Glance {
    /// Its names are known.
    Known {
        /// Since when.
        as_of: Nanos,
        /// The sidecars that the file does not have: a bit for each of [`SIDECARS`], then one for each
        /// of its other forms.
        absent: u8,
    },
    /// Nothing; a survey of at most this many names is due, or in progress, which [`Folders::take`] takes.
    Due(usize),
    /// Nothing, and a survey is not worth it yet.
    Unknown,
}

/// The hash of a name that ends like a sidecar, or like another form of a file. Upper and lower case
/// count as the same: file systems exist where they are.
pub(super) fn sidecar_hash(name: &[u8]) -> Option<u64> {
    let ends = |suffix: &[u8]| {
        let start = name.len().checked_sub(suffix.len());
        start.is_some_and(|start| name[start..].eq_ignore_ascii_case(suffix))
    };
    let is_kept = SIDECARS.iter().any(|it| ends(it.suffix)) || is_form(name);
    is_kept.then(|| {
        let mut hasher = foldhash::fast::FixedState::default().build_hasher();
        hasher.write(&name.to_ascii_lowercase());
        hasher.finish()
    })
}

/// The folder of a path below the root, and the name in it.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|&byte| byte == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (b"", path),
    }
}

/// The folder of a path below the root.
pub(super) fn folder_of(path: &[u8]) -> &[u8] {
    split(path).0
}

impl Folders {
    /// Bytes of memory that it takes.
    pub(super) fn held(&self) -> u64 {
        self.held
    }

    /// What is known of the folder of a file that has `len` bytes. `meta_now` queries the folder's
    /// metadata, if that takes no time.
    pub(super) fn glance(
        &mut self,
        (path, len): (&[u8], u64),
        now: Nanos,
        meta_now: impl FnOnce(&[u8]) -> Option<Meta>,
    ) -> Glance {
        let (path, name) = split(path);
        let Some(folder) = self.folders.get_mut(path) else {
            return Glance::Due(FOLDER_NAMES_FIRST);
        };
        let Some(known) = &mut folder.known else {
            return folder.miss(now);
        };
        if now > known.as_of.plus_ms(FOLDER_FRESH_MS) {
            match meta_now(path) {
                Some(meta) if meta == known.meta && known.is_settled => known.as_of = now,
                // Not in the kernel's caches now: what is known may still hold.
                None if known.is_settled => return Glance::Unknown,
                _ => {
                    self.held -= known.held();
                    folder.known = None;
                    return folder.miss(now);
                }
            }
        }
        for row in [&mut known.short_files, &mut self.short_files] {
            *row = match len <= READ_AHEAD_MAX as u64 {
                true => (*row + 1).min(SHORT_FILES_SEEN),
                false => 0,
            };
        }
        Glance::Known {
            as_of: known.as_of,
            absent: known.absent(name),
        }
    }

    /// Whether files in the folder of a path can be opened without a look at what they are, and then how
    /// many bytes of them are read ahead.
    pub(super) fn plain(&self, path: &[u8], now: Nanos) -> Option<usize> {
        let known = self.folders.get(folder_of(path))?.known.as_ref()?;
        let is_plain = known.is_plain && now <= known.as_of.plus_ms(FOLDER_PLAIN_MS);
        is_plain.then_some(match known.short_files {
            SHORT_FILES_SEEN.. => READ_AHEAD_MAX,
            _ => 0,
        })
    }

    /// A survey of a folder begins. Lookups that miss it meanwhile wait for it if it is a short one; for a
    /// longer one none waits, and no other begins.
    pub(super) fn begin(&mut self, folder: &[u8], max: usize) {
        if !self.folders.contains_key(folder) {
            self.make_room(weight(folder));
            self.held += weight(folder);
            self.folders.insert(folder.into(), Folder::default());
        }
        if let Some(found) = self.folders.get_mut(folder) {
            found.max = max;
            found.missed = 0;
            found.due = match max <= FOLDER_NAMES_FIRST {
                true => 0,
                false => max / FOLDER_NAMES_PER_MISS,
            };
        }
    }

    /// Takes the result of a survey that began at `as_of` (`unix`, seconds): `None` if it failed.
    pub(super) fn take(
        &mut self,
        path: &[u8],
        survey: Option<Survey>,
        (as_of, unix): (Nanos, i64),
    ) {
        let Some(folder) = self.folders.get_mut(path) else {
            return;
        };
        folder.missed = 0;
        let Some(mut survey) = survey else {
            folder.due = FOLDER_NAMES_MAX / FOLDER_NAMES_PER_MISS;
            return;
        };
        if !survey.is_whole {
            folder.due = folder.max / FOLDER_NAMES_PER_MISS;
            folder.max = (8 * folder.max).min(FOLDER_NAMES_MAX);
            return;
        }
        folder.max = (2 * survey.count).clamp(FOLDER_NAMES_FIRST, FOLDER_NAMES_MAX);
        folder.due = (survey.count / FOLDER_NAMES_PER_MISS).max(1);
        folder.not_before = as_of.plus_ms(FOLDER_FRESH_MS);
        survey.kept.sort_unstable();
        let known = KnownFolder {
            meta: survey.meta,
            is_settled: is_settled(&survey.meta, unix),
            is_plain: survey.is_plain,
            sidecars: survey.kept.into(),
            as_of,
            short_files: self.short_files,
        };
        let more = known.held();
        let before = folder.known.replace(known);
        self.held -= before.map_or(0, |it| it.held());
        self.make_room(more);
        self.held += match self.folders.is_empty() {
            true => 0,
            false => more,
        };
    }

    /// Forgets everything if `more` bytes do not fit: rare, and learnt again soon.
    fn make_room(&mut self, more: u64) {
        if self.held + more > FOLDERS_HELD_MAX {
            self.clear();
        }
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

/// Bytes of memory of a folder without what is known of it.
fn weight(path: &[u8]) -> u64 {
    (path.len() + size_of::<Folder>() + 64) as u64
}

impl Folder {
    fn miss(&mut self, now: Nanos) -> Glance {
        self.missed += 1;
        match self.missed >= self.due && now >= self.not_before {
            true => Glance::Due(self.max),
            false => Glance::Unknown,
        }
    }
}

impl KnownFolder {
    fn held(&self) -> u64 {
        size_of_val(&*self.sidecars) as u64
    }

    fn absent(&self, name: &[u8]) -> u8 {
        if self.sidecars.is_empty() {
            return u8::MAX;
        }
        // Letters outside ASCII may have several forms that name the same file.
        if !name.is_ascii() {
            return 0;
        }
        let is_absent = |name: &[u8]| {
            let hash = sidecar_hash(name);
            hash.is_some_and(|hash| self.sidecars.binary_search(&hash).is_err())
        };
        let sidecars = SIDECARS.iter().map(|it| [name, it.suffix].concat());
        let (forms, _) = negotiation::forms(name);
        let names = sidecars.chain(forms.iter().map(|it| negotiation::name_of(name, *it)));
        names.enumerate().fold(0, |bits, (index, name)| {
            bits | u8::from(is_absent(&name)) << index
        })
    }
}

impl DirectorySite {
    /// Bytes of memory of what is known about its folders.
    pub(crate) fn folder_memory(&self) -> u64 {
        self.folders.borrow().as_ref().map_or(0, Folders::held)
    }

    /// Whether a path can be opened without a look at what it is, and then how many bytes are read ahead:
    /// see [`Disk::open_plain`](gannet_io::driver::Disk::open_plain).
    pub(super) fn plain<D: Driver>(&self, path: &[u8], driver: &D) -> Option<usize> {
        self.folders.borrow().as_ref()?.plain(path, driver.now())
    }

    /// What is known of the folder of a file that has `len` bytes.
    pub(super) fn glance<D: Driver>(&self, (path, len): (&[u8], u64), driver: &D) -> Glance {
        let meta_now = |folder: &[u8]| driver.peek(self.root.as_ref()?, folder);
        match &mut *self.folders.borrow_mut() {
            Some(folders) => folders.glance((path, len), driver.now(), meta_now),
            None => Glance::Unknown,
        }
    }

    /// A survey of a folder begins.
    pub(crate) fn survey(&self, folder: &[u8], max: usize) {
        if let Some(folders) = &mut *self.folders.borrow_mut() {
            folders.begin(folder, max);
        }
    }

    /// Takes the result of a survey of a folder that began at `since`; `None` if it failed.
    pub(crate) fn surveyed(&self, folder: &[u8], survey: Option<Survey>, since: (Nanos, i64)) {
        if let Some(folders) = &mut *self.folders.borrow_mut() {
            folders.take(folder, survey, since);
        }
    }
}

#[cfg(test)]
mod tests;
