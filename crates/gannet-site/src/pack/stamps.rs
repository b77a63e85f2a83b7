//! Stamps: metadata by which a later build recognises an unchanged file without reading it.
//!
//! A stamp is a hash of device, inode, length, and the times of modification and change. Programs
//! cannot set the time of change, so that a replaced file is noticed even if it keeps its old date.
//! The stamps of a site are in the user's cache directory, not in the archive: the same site must
//! make the same archive on every machine.
//!
//! No stamp is kept for a file that changed just before it was examined: file systems have coarse
//! clocks, and it could change again without a new time.

use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gannet_archive::DigestTable;
use gannet_io::named_file;

use super::limits::{CLOCK_GRAIN_NS, STAMPS_FILES_MAX, STAMPS_LEN_MAX};

/// Identifies a state of a file.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(super) struct Stamp([u8; 16]);

impl Stamp {
    /// The stamp of `metadata`.
    pub(super) fn of(metadata: &Metadata) -> Self {
        let numbers = [
            metadata.dev(),
            metadata.ino(),
            metadata.len(),
            metadata.mtime().cast_unsigned(),
            metadata.mtime_nsec().cast_unsigned(),
            metadata.ctime().cast_unsigned(),
            metadata.ctime_nsec().cast_unsigned(),
        ];
        Self::cut(blake3::Hasher::new().update(numbers.map(u64::to_le_bytes).as_flattened()))
    }

    /// The stamp of an archive, whose record is the build id. It differs from the stamp of the same
    /// file as part of a site, whose record is the digest of all its bytes.
    pub(super) fn of_archive(metadata: &Metadata) -> Self {
        let Self(stamp) = Self::of(metadata);
        Self::cut(blake3::Hasher::new().update(b"archive").update(&stamp))
    }

    /// Its bytes.
    pub(super) fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    fn cut(hasher: &blake3::Hasher) -> Self {
        let mut stamp = [0; 16];
        hasher.finalize_xof().fill(&mut stamp);
        Self(stamp)
    }
}

/// Whether a file with this metadata at `now` (nanoseconds since the Unix epoch) can no longer
/// change without changing its stamp.
pub(super) fn is_settled(metadata: &Metadata, now: i128) -> bool {
    let nanoseconds =
        |seconds: i64, rest: i64| i128::from(seconds) * 1_000_000_000 + i128::from(rest);
    let modified = nanoseconds(metadata.mtime(), metadata.mtime_nsec());
    let changed = nanoseconds(metadata.ctime(), metadata.ctime_nsec());
    modified.max(changed) + CLOCK_GRAIN_NS < now
}

/// The clock that file times are compared with.
pub(super) fn now_ns() -> i128 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |since| since.as_nanos() as i128)
}

/// The digests of files by stamp.
#[derive(Debug, Default)]
pub(super) struct Stamps {
    digests: Vec<(Stamp, [u8; 32])>,
    /// Indexes of the entries of an earlier build; new ones are for the next build only.
    places: DigestTable,
}

impl Stamps {
    /// Loads the stamps of an earlier build. A file that is missing, damaged or of another version
    /// counts as empty: then all files are read.
    pub(super) fn load(path: &Path) -> Self {
        named_file::read(path, STAMPS_LEN_MAX)
            .ok()
            .and_then(|bytes| Self::parse(&bytes))
            .unwrap_or_default()
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let (bytes, checksum) = bytes.split_last_chunk::<32>()?;
        if blake3::hash(bytes).as_bytes() != checksum {
            return None;
        }
        let records = bytes.strip_prefix(MAGIC)?;
        let digests = records.chunks_exact(RECORD_LEN).filter_map(|record| {
            let (stamp, digest) = record.split_first_chunk::<16>()?;
            Some((Stamp(*stamp), digest.try_into().ok()?))
        });
        let digests: Vec<_> = digests.collect();
        let mut places = DigestTable::with_capacity(digests.len());
        for (number, (stamp, _)) in (0..).zip(&digests) {
            places.insert(number, stamp.as_bytes());
        }
        Some(Self { digests, places })
    }

    /// Saves all stamps, replacing the file. Of other sites' files beside it, only the newest are kept.
    ///
    /// # Errors
    /// The file cannot be written; the old one then stays.
    pub(super) fn save(&self, path: &Path) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(MAGIC.len() + self.digests.len() * RECORD_LEN + 32);
        bytes.extend_from_slice(MAGIC);
        for (stamp, digest) in &self.digests {
            bytes.extend_from_slice(&stamp.0);
            bytes.extend_from_slice(digest);
        }
        let checksum = blake3::hash(&bytes);
        bytes.extend_from_slice(checksum.as_bytes());
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        let beside = path.with_extension(format!("{}.tmp", std::process::id()));
        fs::write(&beside, bytes)
            .and_then(|()| fs::rename(&beside, path))
            .inspect_err(|_| {
                let _ = fs::remove_file(&beside);
            })?;
        keep_newest(path, STAMPS_FILES_MAX);
        Ok(())
    }

    /// The digest recorded by an earlier build.
    pub(super) fn get(&self, stamp: &Stamp) -> Option<[u8; 32]> {
        let has_it = |number: u32| self.digests[number as usize].0 == *stamp;
        let number = self.places.find(stamp.as_bytes(), has_it)?;
        Some(self.digests[number as usize].1)
    }

    pub(super) fn insert(&mut self, stamp: Stamp, digest: [u8; 32]) {
        self.digests.push((stamp, digest));
    }
}

/// The stamps file in a cache directory: one for each directory that is packed.
pub(super) fn stamps_path(cache: &Path, source: &Path) -> PathBuf {
    let source = source.canonicalize();
    let source = source.as_deref().unwrap_or(Path::new(""));
    let name = blake3::hash(source.as_os_str().as_bytes()).to_hex();
    cache.join(format!("{}.stamps", &name[..16]))
}

/// Removes all but the newest `count` stamps files beside the one just saved, which stays whatever
/// the others' dates: those of sites in temporary folders would be there for ever. Also removes what
/// builds have left that ended while they saved. What cannot be removed stays.
fn keep_newest(saved: &Path, count: usize) {
    let cache = saved.parent().unwrap_or(Path::new(""));
    let Ok(items) = fs::read_dir(cache) else {
        return;
    };
    let now = SystemTime::now();
    let mut files = Vec::new();
    for item in items.flatten() {
        let Ok(modified) = item.metadata().and_then(|it| it.modified()) else {
            continue;
        };
        let is_old = || {
            now.duration_since(modified)
                .is_ok_and(|age| age > UNFINISHED_AGE)
        };
        match kind_of(&item.file_name()) {
            Some(OutputKind::Whole)
                if item.file_name() != saved.file_name().unwrap_or_default() =>
            {
                files.push((modified, item.path()));
            }
            // Another build may be writing a younger one.
            Some(OutputKind::Unfinished) if is_old() => {
                let _ = fs::remove_file(item.path());
            }
            _ => {}
        }
    }
    files.sort_unstable_by(|one, other| other.cmp(one));
    for (_, path) in files.iter().skip(count - 1) {
        let _ = fs::remove_file(path);
    }
}

/// What a build writes to the cache directory.
enum OutputKind {
    /// The stamps of a site.
    Whole,
    /// Those that are being saved, or were when the build ended.
    Unfinished,
}

/// By the name of a file; `None` for files of others.
fn kind_of(name: &OsStr) -> Option<OutputKind> {
    let name = name.to_string_lossy();
    let (hash, suffix) = name.split_once('.')?;
    let is_hash = hash.len() == 16 && hash.bytes().all(|it| it.is_ascii_hexdigit());
    match suffix {
        _ if !is_hash => None,
        "stamps" => Some(OutputKind::Whole),
        suffix => suffix.ends_with(".tmp").then_some(OutputKind::Unfinished),
    }
}

/// A file that was not finished for so long never will be: stamps are written in less than a second.
const UNFINISHED_AGE: Duration = Duration::from_secs(3600);

const MAGIC: &[u8] = b"gannet stamps 1\n";
const RECORD_LEN: usize = 48;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_old_builds_are_removed_and_no_others() {
        let name = format!("gannet-stamps-old-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let stamps = Stamps::default();
        let path = |number: usize| folder.join(format!("{number:016x}.stamps"));
        stamps.save(&path(0)).expect("writable");
        let left = folder.join(format!("{:016x}.17.tmp", 1));
        let others = ["notes.stamps", "a.gannet", "0123456789abcdef.gannet"];
        for other in others.map(|it| folder.join(it)).iter().chain([&left]) {
            fs::write(other, "x").expect("writable");
        }
        for number in 0..STAMPS_FILES_MAX {
            let old = fs::File::create(path(number)).expect("writable");
            let age = Duration::from_secs(1 + number as u64);
            old.set_modified(UNIX_EPOCH + age).expect("ours");
        }
        let old = fs::File::options().write(true).open(&left).expect("there");
        old.set_modified(UNIX_EPOCH).expect("ours");
        stamps.save(&path(STAMPS_FILES_MAX)).expect("writable");
        assert!(!left.exists() && !path(0).exists());
        // Another build's; and dates may be wrong.
        fs::write(&left, "x").expect("writable");
        for number in 1..=STAMPS_FILES_MAX {
            let other = fs::File::options().write(true).open(path(number));
            let later = SystemTime::now() + Duration::from_secs(86_400 + number as u64);
            other.expect("there").set_modified(later).expect("ours");
        }
        stamps.save(&path(0)).expect("writable");
        assert!(left.exists() && path(0).exists() && !path(1).exists());
        stamps.save(&path(1)).expect("writable");
        let kept = (0..=STAMPS_FILES_MAX).filter(|number| path(*number).exists());
        assert_eq!(kept.count(), STAMPS_FILES_MAX);
        assert!(others.iter().all(|it| folder.join(it).exists()));
        let _ = fs::remove_dir_all(&folder);
    }

    #[test]
    fn stamps_come_back_and_damage_is_noticed() {
        let mut stamps = Stamps::default();
        for number in 0..5u8 {
            stamps.insert(Stamp([number; 16]), [number + 100; 32]);
        }
        let name = format!("gannet-stamps-{}", std::process::id());
        let path = std::env::temp_dir().join(name).join("a.stamps");
        stamps.save(&path).expect("writable");
        let read = Stamps::load(&path);
        assert_eq!(read.get(&Stamp([3; 16])), Some([103; 32]));
        assert_eq!(read.get(&Stamp([9; 16])), None);
        let whole = fs::read(&path).expect("written");
        for place in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[place] ^= 1;
            assert!(Stamps::parse(&damaged).is_none(), "byte {place}");
        }
        assert!(Stamps::parse(&whole[..whole.len() - 1]).is_none());
        let _ = fs::remove_dir_all(path.parent().expect("a folder"));
        assert!(Stamps::load(&path).digests.is_empty());
    }
}
