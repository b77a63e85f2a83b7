//! Selects the archives that are copied into memory by default: those that fit a budget.
//!
//! An unalterable copy is encrypted and framed in place. A file has to be read first: touching a
//! mapping beyond its end, after a truncation, would be fatal.

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gannet_content::rules::memory::{MemoryRoom, Replaced, SitesMemory};
use gannet_io::driver::Errno;
use gannet_io::reserve;

use crate::bounds::ledger::spare;
use crate::bounds::limits::{
    ARCHIVE_COPY_MAX, ARCHIVE_COPY_PART, CACHE_MEMORY_FLOOR, CACHE_MEMORY_LEAST, CACHE_MEMORY_MOST,
    CACHE_MEMORY_OF_LEFT, CACHE_MEMORY_PART, COPIES_SPARE_MIN, RULES_MEMORY_FLOOR,
    RULES_MEMORY_PART, RULES_MEMORY_PER_BYTE, RULES_MEMORY_USUAL,
};
use crate::config::ContentOptions;

/// The budget left for copies of archives.
///
/// What the rules of all sites may hold is beside it: both are asked when content is opened.
///
/// Invariant: bytes of all [`MemoryReservation`]s are at most half of the initial budget.
#[derive(Debug)]
pub(crate) struct ArchiveRoom {
    left: AtomicU64,
    /// The longest archive that is copied; `u64::MAX` for any that fits.
    one_max: u64,
    first: Mutex<First>,
    /// What the rules of all sites may hold.
    pub(crate) rules: Arc<SitesMemory>,
}

/// The first archive that is copied. Both are under one lock: what is set while it comes is done before it
/// or right after.
#[derive(Default)]
struct First {
    /// There was one: some room was taken.
    is_taken: bool,
    /// See [`ArchiveRoom::before_first`].
    before: Option<Box<dyn FnOnce() + Send>>,
}

impl fmt::Debug for First {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("First")
            .field("is_taken", &self.is_taken)
            .finish_non_exhaustive()
    }
}

impl ArchiveRoom {
    /// A budget within `cache_memory` bytes, the other half of which is reserved for the caches of
    /// directories and for bodies that archives store only as gzip.
    pub(crate) fn of(options: &ContentOptions) -> Self {
        let mut room = Self::new(options.cache_memory());
        let rules = usize::try_from(options.rules_memory).unwrap_or(usize::MAX);
        room.rules = Arc::new(SitesMemory::new(rules));
        if options.copies_long_archives {
            room.one_max = u64::MAX;
        }
        room
    }

    /// The same for short archives alone.
    pub(crate) fn new(cache_memory: u64) -> Self {
        Self {
            left: AtomicU64::new(Self::within(cache_memory)),
            one_max: machine_memory()
                .map_or(ARCHIVE_COPY_MAX, |bytes| bytes / ARCHIVE_COPY_PART)
                .min(ARCHIVE_COPY_MAX),
            first: Mutex::default(),
            rules: Arc::new(SitesMemory::new(RULES_MEMORY_USUAL as usize)),
        }
    }

    /// Whether an archive has been copied, also if its copy is gone by now.
    pub(crate) fn is_used(&self) -> bool {
        self.first().is_taken
    }

    fn first(&self) -> MutexGuard<'_, First> {
        self.first.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has this done once before the first archive is copied, which waits for it; at once if one was.
    /// The caches have the room until then.
    pub(crate) fn before_first(&self, make_room: impl FnOnce() + Send + 'static) {
        let mut first = self.first();
        match first.is_taken {
            true => make_room(),
            false => first.before = Some(Box::new(make_room)),
        }
    }

    /// The bytes of a budget within `cache_memory` bytes.
    pub(crate) fn within(cache_memory: u64) -> u64 {
        cache_memory / 2
    }

    /// Takes room for an archive of `len` bytes if it fits.
    pub(crate) fn take(self: &Arc<Self>, len: u64) -> Option<MemoryReservation> {
        let without = |left: u64| left.checked_sub(len);
        let fits = len <= self.one_max && self.left.fetch_update(Relaxed, Relaxed, without).is_ok();
        fits.then(|| {
            // Others wait here until there is room.
            let mut first = self.first();
            first.is_taken = true;
            if let Some(make_room) = first.before.take() {
                make_room();
            }
            drop(first);
            MemoryReservation {
                room: Arc::clone(self),
                len,
            }
        })
    }
}

/// Room for the copy of one archive, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct MemoryReservation {
    room: Arc<ArchiveRoom>,
    len: u64,
}

impl Drop for MemoryReservation {
    fn drop(&mut self) {
        self.room.left.fetch_add(self.len, Relaxed);
    }
}

/// Bytes that all caches may take if the operator does not say: a share of `memory`, within bounds, but
/// never more than a part of what the narrowest limit leaves to them and to what slow peers have, of the
/// machine, its control groups, or the process: the kernel kills or refuses what exceeds that, and cannot
/// reclaim copies. A few MiB are always theirs.
#[must_use]
pub fn usual_cache_memory(memory: Option<u64>, left: Option<u64>, workers: u64) -> u64 {
    let share = memory.map_or(CACHE_MEMORY_LEAST, |bytes| {
        (bytes / CACHE_MEMORY_PART).clamp(CACHE_MEMORY_LEAST, CACHE_MEMORY_MOST)
    });
    let (parts, of) = CACHE_MEMORY_OF_LEFT;
    left.map_or(share, |left| {
        let left = left.saturating_sub(workers * COPIES_SPARE_MIN);
        share.min((left / of * parts).max(CACHE_MEMORY_FLOOR))
    })
}

/// Bytes that caches of `cache_memory` bytes, and what slow peers may have besides, take at the most.
#[must_use]
pub fn kept_memory(cache_memory: u64, workers: u64) -> u64 {
    let workers = workers.max(1);
    let besides = workers.saturating_mul(spare(cache_memory / workers));
    cache_memory.saturating_add(besides)
}

/// Bytes that the encoders of text may take together: half of what caches of `cache_memory` bytes, and what
/// slow peers may have besides, leave of `left`. The rest is for connections.
#[must_use]
pub fn usual_encoder_memory(cache_memory: u64, left: Option<u64>, workers: u64) -> u64 {
    let kept = kept_memory(cache_memory, workers);
    left.map_or(u64::MAX, |left| left.saturating_sub(kept) / 2)
}

/// Bytes that the rules of all sites may hold together, if a start leaves `left` bytes of the narrowest
/// limit of the process and its machine.
#[must_use]
pub fn usual_rules_memory(left: Option<u64>) -> u64 {
    left.map_or(RULES_MEMORY_USUAL, |left| {
        (left / RULES_MEMORY_PART).max(RULES_MEMORY_FLOOR)
    })
}

/// The room for the rules in a text, or table, of this length, in the place of others that are
/// `replaced`.
///
/// # Errors
/// Under a memory limit, there is not so much left for what they may hold: an allocation that fails would
/// end the process.
pub(crate) fn rules_room(
    len: usize,
    (memory, replaced): (&Arc<SitesMemory>, Replaced),
) -> io::Result<MemoryRoom> {
    let room = MemoryRoom::among(memory, replaced);
    let most = room.left().min(len.saturating_mul(RULES_MEMORY_PER_BYTE));
    match reserve::is_kept() && !reserve::has_room(most) {
        true => Err(Errno::NOMEM.into()),
        false => Ok(room),
    }
}

/// Bytes of memory that this process can expect: the machine's available memory, or the lowest
/// limit of its control groups. `None` if neither can be read.
#[must_use]
pub fn machine_memory() -> Option<u64> {
    let available = fs::read_to_string("/proc/meminfo").ok();
    let available = available.and_then(|text| available_bytes(&text));
    let group = fs::read_to_string("/proc/self/cgroup").ok();
    let root = Path::new("/sys/fs/cgroup");
    let group = group.as_deref();
    let groups = [group_limit, group_limit_v1].map(|limit| limit(root, group?));
    [available].into_iter().chain(groups).flatten().min()
}

/// `MemAvailable` of `/proc/meminfo`, in bytes.
fn available_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim_end().parse().ok()?;
    kib.checked_mul(1024)
}

/// The lowest limit of the control group (version 2) that `/proc/self/cgroup` names and of its
/// ancestors. In a container, the uppermost visible group is the container's own.
fn group_limit(root: &Path, own: &str) -> Option<u64> {
    let path = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
    // "max" is not a number: no limit.
    least_of(root, path, &["memory.max", "memory.high"])
}

/// The same of version 1, whose controllers may each have groups of their own. Without a limit, the number
/// is more than any machine has.
fn group_limit_v1(root: &Path, own: &str) -> Option<u64> {
    let path = own.lines().find_map(|line| {
        let (_, line) = line.split_once(':')?;
        let (controllers, path) = line.split_once(':')?;
        let mut controllers = controllers.split(',');
        controllers.find(|name| *name == "memory")?;
        path.strip_prefix('/')
    })?;
    least_of(&root.join("memory"), path, &["memory.limit_in_bytes"])
}

/// The least number in files of these names, of the group at `path` and its ancestors up to `root`.
fn least_of(root: &Path, path: &str, names: &[&str]) -> Option<u64> {
    let full = root.join(path);
    let groups = full.ancestors().take_while(|group| group.starts_with(root));
    let files = groups.flat_map(|group| names.iter().map(move |name| group.join(name)));
    let limits = files.filter_map(|file| fs::read_to_string(file).ok()?.trim().parse().ok());
    limits.min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_taken_than_half_of_the_budget() {
        let room = Arc::new(ArchiveRoom {
            left: AtomicU64::new(100),
            one_max: 60,
            ..ArchiveRoom::new(0)
        });
        assert!(room.take(61).is_none(), "longer than the longest allowed");
        let first = room.take(60).expect("it fits");
        assert!(room.take(41).is_none(), "longer than the room left");
        let second = room.take(40).expect("it fits");
        assert!(room.take(0).is_some());
        assert!(room.take(1).is_none());
        drop(second);
        assert!(room.take(30).is_some());
        drop(first);
        assert!(room.take(60).is_some(), "it was given back");
        assert!(Arc::new(ArchiveRoom::new(0)).take(1).is_none());
        let small = Arc::new(ArchiveRoom::new(2 << 10));
        assert!(small.take(1025).is_none());
        let large = Arc::new(ArchiveRoom::new(u64::MAX));
        assert!(large.take(ARCHIVE_COPY_MAX + 1).is_none());
        let mut options = ContentOptions {
            cache_memory: Some(u64::MAX),
            ..ContentOptions::default()
        };
        let fits = |options: &ContentOptions| {
            let room = Arc::new(ArchiveRoom::of(options));
            room.take(ARCHIVE_COPY_MAX + 1).is_some()
        };
        assert!(!fits(&options), "the memory was not named");
        options.copies_long_archives = true;
        assert!(fits(&options), "as much as this was granted");
        options.cache_memory = Some(2 * ARCHIVE_COPY_MAX);
        assert!(!fits(&options), "half of it is too little");
    }

    #[test]
    fn caches_make_room_once_before_the_first_copy() {
        let asked = Arc::new(AtomicU64::new(0));
        let ask = |room: &ArchiveRoom| {
            let asked = Arc::clone(&asked);
            room.before_first(move || {
                asked.fetch_add(1, Relaxed);
            });
        };
        let count = || asked.swap(0, Relaxed);
        let room = Arc::new(ArchiveRoom::new(200));
        ask(&room);
        assert!(room.take(101).is_none());
        assert_eq!((room.is_used(), count()), (false, 0), "none was copied");
        drop(room.take(1));
        assert_eq!((room.is_used(), count()), (true, 1));
        assert!(room.take(1).is_some());
        assert_eq!(count(), 0);
        let room = Arc::new(ArchiveRoom::new(200));
        drop(room.take(1));
        ask(&room);
        assert_eq!(count(), 1, "one was copied before");
    }

    #[test]
    fn caches_get_a_share_of_the_memory_within_bounds() {
        const MIB: u64 = 1 << 20;
        const GIB: u64 = 1 << 30;
        for (memory, left, expected) in [
            (None, None, GIB / 4),
            (Some(GIB), Some(GIB), GIB / 4),
            (Some(4 * GIB), Some(4 * GIB), GIB / 2),
            (Some(64 * GIB), Some(64 * GIB), GIB),
            // A small container, less what a start takes.
            (Some(128 * MIB), Some(100 * MIB), 36 * MIB),
            (Some(16 * MIB), Some(0), 4 * MIB),
            // A process that is limited on a large machine.
            (Some(16 * GIB), Some(484 * MIB), 180 * MIB),
            (None, Some(484 * MIB), 180 * MIB),
        ] {
            let share = usual_cache_memory(memory, left, 2);
            assert_eq!(share, expected, "{memory:?}, {left:?}");
        }
    }

    /// Caches, what slow peers have besides, and encoders leave a part for connections, however many
    /// workers there are.
    #[test]
    fn what_is_kept_by_default_fits() {
        const MIB: u64 = 1 << 20;
        for left in [24, 56, 120, 248, 504, 2_000].map(|mib| mib * MIB) {
            for workers in [1, 2, 4, 8, 16, 32] {
                let caches = usual_cache_memory(None, Some(left), workers);
                let encoders = usual_encoder_memory(caches, Some(left), workers);
                let kept = kept_memory(caches, workers);
                let all = kept + encoders;
                // Below that, the least of everything is more than there is.
                if left >= workers * 4 * MIB {
                    assert!(kept <= left / 4 * 3, "{left}, {workers} workers: {kept}");
                    assert!(all <= left / 8 * 7, "{left}, {workers} workers: {all}");
                }
            }
        }
        assert_eq!(usual_encoder_memory(100, None, 1), u64::MAX);
        // Rules take what is there beside these, or a few MiB.
        assert_eq!(usual_rules_memory(Some(256 * MIB)), 64 * MIB);
        assert_eq!(usual_rules_memory(Some(0)), RULES_MEMORY_FLOOR);
        assert_eq!(usual_rules_memory(None), RULES_MEMORY_USUAL);
        for workers in [0, 1, 2] {
            assert_eq!(usual_encoder_memory(u64::MAX, Some(1 << 30), workers), 0);
        }
    }

    #[test]
    fn what_the_machine_has_is_read_from_its_files() {
        let meminfo =
            "MemTotal:       24 kB\nMemFree:  1 kB\nMemAvailable:   12345 kB\nBuffers: 1 kB\n";
        assert_eq!(available_bytes(meminfo), Some(12_345 << 10));
        assert_eq!(available_bytes("MemTotal: 1 kB\n"), None);
        assert_eq!(available_bytes("MemAvailable: much\n"), None);

        let name = format!("gannet-groups-{}", std::process::id());
        let root = std::env::temp_dir().join(name);
        let inner = root.join("system.slice/gannet.service");
        fs::create_dir_all(&inner).expect("made");
        let limit = |own: &str| group_limit(&root, own);
        assert_eq!(limit("0::/system.slice/gannet.service\n"), None);
        fs::write(inner.join("memory.max"), "max\n").expect("written");
        fs::write(inner.join("memory.high"), "67108864\n").expect("written");
        fs::write(root.join("memory.max"), "134217728\n").expect("written");
        assert_eq!(limit("0::/system.slice/gannet.service\n"), Some(64 << 20));
        assert_eq!(limit("4:memory:/x\n0::/\n"), Some(128 << 20));
        assert_eq!(limit("0::/gone/for/good\n"), Some(128 << 20));
        assert_eq!(limit("4:memory:/x\n"), None);

        let first = |own: &str| group_limit_v1(&root, own);
        fs::create_dir_all(root.join("memory/x")).expect("made");
        assert_eq!(first("4:cpu,memory:/x\n"), None);
        let unlimited = "9223372036854771712\n";
        fs::write(root.join("memory/memory.limit_in_bytes"), unlimited).expect("written");
        assert_eq!(first("4:memory:/y\n"), Some(9_223_372_036_854_771_712));
        fs::write(root.join("memory/x/memory.limit_in_bytes"), "33554432\n").expect("written");
        assert_eq!(first("9:pids:/z\n4:cpu,memory:/x\n0::/\n"), Some(32 << 20));
        assert_eq!(first("0::/x\n"), None);
        fs::remove_dir_all(&root).expect("removed");
    }
}
