//! What is known of the releases of a server's archives, for metrics and health checks.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// One thread per followed content writes; the metrics thread and health checks read.
#[derive(Debug, Default)]
pub(crate) struct Board {
    /// By a number that is used once.
    facts: Mutex<BTreeMap<usize, ContentFacts>>,
    /// How many were added.
    added: AtomicUsize,
    late: Arc<OverdueSince>,
}

/// From when on a release should have been current, Unix seconds. It is set before the release is
/// opened: that may take long, or hang.
#[derive(Debug)]
pub(crate) struct OverdueSince(AtomicU64);

impl Default for OverdueSince {
    fn default() -> Self {
        Self(AtomicU64::new(u64::MAX))
    }
}

impl OverdueSince {
    /// Whether a release should be current at this moment and is not.
    pub(crate) fn is_at(&self, now: u64) -> bool {
        self.0.load(Ordering::Relaxed) <= now
    }
}

/// What is known of one content.
#[derive(Clone, Debug, Default)]
pub(crate) struct ContentFacts {
    /// The operator's name of it.
    pub(crate) name: String,
    /// The serial number of the store's pointer in force; `None` for an archive without a store.
    pub(crate) serial: Option<u64>,
    /// The current release first, then those that answer for their immutable assets.
    pub(crate) releases: Vec<ReleaseFacts>,
    /// When the current release was activated, Unix seconds.
    pub(crate) activated: u64,
    /// When the pointer or the path was last read successfully, Unix seconds.
    pub(crate) checked: u64,
    /// Releases refused, by reason.
    pub(crate) refused: BTreeMap<&'static str, u64>,
    /// Why the last one that was refused was, until another one is accepted.
    pub(crate) refusal: Option<String>,
    /// From when on a release should have been current that is not yet, Unix seconds.
    pub(crate) late_from: Option<u64>,
}

/// What is known of one release.
#[derive(Clone, Debug)]
pub(crate) struct ReleaseFacts {
    /// The first 16 hexadecimal digits of its build id.
    pub(crate) id: String,
    pub(crate) state: ReleaseState,
    /// See [`OpenedArchive`](crate::release::opened::OpenedArchive).
    pub(crate) kept_answers: Arc<AtomicU64>,
    /// The file of a release on demand.
    pub(crate) partial: Option<Arc<File>>,
}

/// The state of a release on this server.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ReleaseState {
    /// It answers requests.
    Current,
    /// It will; until then it answers for its immutable assets.
    Staged,
    /// It was replaced, and answers for its immutable assets.
    Kept,
}

impl ReleaseState {
    /// Its name in metrics.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Current => "current",
            Self::Staged => "staged",
            Self::Kept => "kept",
        }
    }
}

impl ReleaseFacts {
    /// How often it answered while another release was current.
    pub(crate) fn kept_answers(&self) -> u64 {
        self.kept_answers.load(Ordering::Relaxed)
    }

    /// Bytes of a release on demand that are on this machine, and all of them.
    pub(crate) fn here(&self) -> Option<[u64; 2]> {
        let metadata = self.partial.as_ref()?.metadata().ok()?;
        // A file system may have allocated more than there is.
        let allocated = metadata.blocks().saturating_mul(512);
        Some([allocated.min(metadata.len()), metadata.len()])
    }
}

impl Board {
    /// Adds a content; returns its number.
    pub(crate) fn add(&self, facts: ContentFacts) -> usize {
        let mut all = self.facts();
        let number = self.added.fetch_add(1, Ordering::Relaxed);
        all.insert(number, facts);
        number
    }

    /// Removes a content that is served no more.
    pub(crate) fn remove(&self, number: usize) {
        let mut all = self.facts();
        all.remove(&number);
        self.note_late(&all);
    }

    /// Changes what is known of a content.
    pub(crate) fn change(&self, number: usize, change: impl FnOnce(&mut ContentFacts)) {
        let mut all = self.facts();
        if let Some(facts) = all.get_mut(&number) {
            change(facts);
        }
        self.note_late(&all);
    }

    fn note_late(&self, all: &BTreeMap<usize, ContentFacts>) {
        let late_from = all.values().filter_map(|facts| facts.late_from).min();
        let late_from = late_from.unwrap_or(u64::MAX);
        self.late.0.store(late_from, Ordering::Relaxed);
    }

    /// Everything that is known.
    pub(crate) fn all(&self) -> Vec<ContentFacts> {
        self.facts().values().cloned().collect()
    }

    /// Whether any content lacks a release that should be current by now.
    pub(crate) fn late(&self) -> Arc<OverdueSince> {
        Arc::clone(&self.late)
    }

    fn facts(&self) -> MutexGuard<'_, BTreeMap<usize, ContentFacts>> {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Seconds since 1970-01-01T00:00:00Z.
pub(crate) fn unix_now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}
