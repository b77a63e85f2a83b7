//! Whether a range of a file is in memory, so that sending it cannot wait for a disk.

use std::io::IoSliceMut;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::{Errno, ReadWriteFlags};

use crate::limits::{
    RESIDENT_CHUNK, RESIDENT_CHUNKS_MAX, RESIDENT_COUNTED_FOR_MS, RESIDENT_FOR_MS,
};
use crate::operation::Nanos;
use crate::process::page_size;

/// What a file remembers of earlier checks, so that hot content costs hardly any system calls.
///
/// The file is divided into chunks of [`RESIDENT_CHUNK`] bytes. A chunk whose pages were all
/// counted a moment ago is known to be resident. One that was counted some time ago is only
/// sampled: eviction is gradual, in runs of the length that was read in. Any other chunk is
/// counted.
#[derive(Debug, Default)]
pub(crate) struct Residency {
    chunks: OnceLock<Box<[AtomicU64]>>,
}

/// When a chunk was found in memory: milliseconds of the driver's clock; 0 means never.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
struct Times {
    /// When all its pages were counted.
    counted: u32,
    /// When they were counted, or some of them read.
    found: u32,
}

/// Distance between the bytes that are read as samples: four times the kernel's default readahead.
const SAMPLE_EVERY: usize = 512 << 10;

/// Bytes that are read again if some of them are not in memory: half of the kernel's default readahead.
const PIECE: usize = 64 << 10;

impl Times {
    fn unpack(word: u64) -> Self {
        Self {
            counted: (word >> 32) as u32,
            found: word as u32,
        }
    }

    fn pack(self) -> u64 {
        u64::from(self.counted) << 32 | u64::from(self.found)
    }
}

fn is_within(then: u32, now: u32, span_ms: u32) -> bool {
    then != 0 && now.wrapping_sub(then) < span_ms
}

impl Residency {
    /// Whether the range, cut at the end of the file, can be read without waiting for a disk.
    pub(crate) fn is_resident(
        &self,
        fd: BorrowedFd<'_>,
        offset: u64,
        len: u64,
        now: Nanos,
    ) -> bool {
        // Odd, so that it is never zero, which stands for never.
        let now = (now.0 / 1_000_000) as u32 | 1;
        let end = offset.saturating_add(len);
        if self.are_known(offset..end, now) {
            return true;
        }
        let Ok(size) = rustix::fs::fstat(fd).map(|stat| stat.st_size as u64) else {
            return true;
        };
        let end = end.min(size);
        let mut at = offset;
        while at < end {
            let chunk =
                at - at % RESIDENT_CHUNK..size.min(at - at % RESIDENT_CHUNK + RESIDENT_CHUNK);
            let part = at..end.min(chunk.end);
            at = part.end;
            if !self.is_part_resident(fd, &part, &chunk, size, now) {
                return false;
            }
        }
        true
    }

    fn are_known(&self, range: Range<u64>, now: u32) -> bool {
        let Some(chunks) = self.chunks.get() else {
            return false;
        };
        let first = (range.start / RESIDENT_CHUNK) as usize;
        let last = (range.end.saturating_sub(1) / RESIDENT_CHUNK) as usize;
        let Some(chunks) = chunks.get(first..=last.max(first)) else {
            return false;
        };
        chunks.iter().all(|word| {
            let seen = Times::unpack(word.load(Ordering::Relaxed));
            is_within(seen.found, now, RESIDENT_FOR_MS)
        })
    }

    fn is_part_resident(
        &self,
        fd: BorrowedFd<'_>,
        part: &Range<u64>,
        chunk: &Range<u64>,
        size: u64,
        now: u32,
    ) -> bool {
        let word = self.word(chunk.start, size);
        let (Some(word), true) = (word, part == chunk) else {
            return are_pages_resident(fd, part.clone());
        };
        let seen = Times::unpack(word.load(Ordering::Relaxed));
        if is_within(seen.found, now, RESIDENT_FOR_MS) {
            return true;
        }
        let is_sampled = is_within(seen.counted, now, RESIDENT_COUNTED_FOR_MS);
        let counted = if is_sampled { seen.counted } else { now };
        let is_resident = if is_sampled {
            are_samples_resident(fd, chunk.clone())
        } else {
            are_pages_resident(fd, chunk.clone())
        };
        let seen = Times {
            counted,
            found: now,
        };
        // Forgotten entirely if a sample is missing: the chunk is counted before it is trusted
        // again.
        let seen = if is_resident { seen } else { Times::default() };
        word.store(seen.pack(), Ordering::Relaxed);
        is_resident
    }

    /// Where the chunk that begins at `start` is remembered; `None` if the file is too large, or
    /// has grown since it was first checked.
    fn word(&self, start: u64, size: u64) -> Option<&AtomicU64> {
        let chunks = self.chunks.get_or_init(|| {
            let count = size.div_ceil(RESIDENT_CHUNK).min(RESIDENT_CHUNKS_MAX);
            (0..count).map(|_| AtomicU64::new(0)).collect()
        });
        chunks.get((start / RESIDENT_CHUNK) as usize)
    }
}

/// The argument of `cachestat(2)`, as in `linux/mman.h`.
#[repr(C)]
struct CachestatRange {
    offset: u64,
    len: u64,
}

/// The answer of `cachestat(2)`, as in `linux/mman.h`.
#[repr(C)]
#[derive(Default)]
struct Cachestat {
    cached: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// The same number on all architectures, as for every system call from 424 on.
const SYS_CACHESTAT: libc::c_long = 451;

/// Asks the kernel whether the whole range, which is within the file, is in memory.
///
/// Counts the pages (`cachestat`, Linux 6.5), which takes 8 µs for 1 MiB; on an older kernel it
/// reads some bytes without waiting. A file system without this query counts as resident: a sample
/// read would block just as long.
fn are_pages_resident(fd: BorrowedFd<'_>, range: Range<u64>) -> bool {
    if range.is_empty() {
        return true;
    }
    are_all_cached(fd, &range).unwrap_or_else(|_| are_samples_resident(fd, range))
}

/// The pieces of a range that are not in memory as a whole. One page may be missing of megabytes while memory
/// is short: reading all of them again would cost as much as sending them.
pub(crate) fn missing(fd: BorrowedFd<'_>, range: Range<u64>) -> Vec<Range<u64>> {
    let end = range.end;
    let pieces = range
        .step_by(PIECE)
        .map(|at| at..end.min(at + PIECE as u64));
    // A page that is being read counts, too.
    let is_there = |piece: &Range<u64>| {
        are_all_cached(fd, piece) == Ok(true) && byte_is_there(fd, piece.end - 1)
    };
    pieces.filter(|piece| !is_there(piece)).collect()
}

/// Whether all pages of a range are in the page cache, which is not empty.
fn are_all_cached(fd: BorrowedFd<'_>, range: &Range<u64>) -> Result<bool, Errno> {
    let page = page_size() as u64;
    let pages = (range.end - 1) / page - range.start / page;
    Ok(cached_pages(fd, range.start, range.end - range.start)? > pages)
}

/// Reads the first byte, the last one and some between without waiting.
fn are_samples_resident(fd: BorrowedFd<'_>, range: Range<u64>) -> bool {
    range
        .clone()
        .step_by(SAMPLE_EVERY)
        .chain(range.end.checked_sub(1))
        .all(|offset| byte_is_there(fd, offset))
}

fn cached_pages(fd: BorrowedFd<'_>, offset: u64, len: u64) -> Result<u64, Errno> {
    let range = CachestatRange { offset, len };
    let mut answer = Cachestat::default();
    // SAFETY: the descriptor is open while borrowed; the kernel reads one `range` and writes one
    // `answer`, both laid out as it expects and alive during the call.
    let result = unsafe {
        libc::syscall(
            SYS_CACHESTAT,
            fd.as_raw_fd(),
            &raw const range,
            &raw mut answer,
            0,
        )
    };
    if result == 0 {
        Ok(answer.cached)
    } else {
        Err(last_errno())
    }
}

/// The error of the C library's last call on this thread.
pub(crate) fn last_errno() -> Errno {
    std::io::Error::last_os_error()
        .raw_os_error()
        .map_or(Errno::IO, Errno::from_raw_os_error)
}

fn byte_is_there(fd: BorrowedFd<'_>, offset: u64) -> bool {
    let mut byte = [0];
    let mut room = [IoSliceMut::new(&mut byte)];
    let read = rustix::io::preadv2(fd.as_fd(), &mut room, offset, ReadWriteFlags::NOWAIT);
    read != Err(Errno::AGAIN)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use gannet_testkit::left_out;

    use super::*;
    use crate::file::File;
    use crate::store::Store;

    const SECOND: u64 = 1_000_000_000;

    fn hot_file(len: usize) -> std::fs::File {
        let path = std::env::current_dir()
            .unwrap()
            .join(format!("resident-{len}-{}", std::process::id()));
        std::fs::write(&path, vec![7; len]).unwrap();
        let file = std::fs::File::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        file
    }

    /// Drops the file's pages; false where the file system keeps them.
    fn cool(file: &std::fs::File, len: u64) -> bool {
        rustix::fs::fsync(file).unwrap();
        rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        let cooled = cached_pages(file.as_fd(), 0, len) == Ok(0);
        if !cooled {
            left_out("cold pages", "this file system keeps them");
        }
        cooled
    }

    /// Times survive packing, and expire.
    #[test]
    fn times_are_packed_and_end() {
        let seen = Times {
            counted: 3,
            found: u32::MAX,
        };
        assert_eq!(Times::unpack(seen.pack()), seen);
        assert!(!is_within(0, 5, 100), "0 is never");
        assert!(is_within(u32::MAX, 5, 100), "the clock may wrap");
        assert!(!is_within(1, 101, 100));
    }

    /// Whole chunks are remembered, even if requested in pieces later; parts are not.
    #[test]
    fn whole_chunks_are_remembered() {
        let len = 2 * RESIDENT_CHUNK + 10;
        let file = hot_file(len as usize);
        let residency = Residency::default();
        let now = Nanos(10 * SECOND);
        let known = |range| residency.are_known(range, 10_001);
        assert!(residency.is_resident(file.as_fd(), 0, 100, now));
        assert!(!known(0..100), "a part of a chunk says nothing of the rest");
        assert!(residency.is_resident(file.as_fd(), 0, RESIDENT_CHUNK + 5, now));
        assert!(known(7..RESIDENT_CHUNK));
        assert!(!known(7..RESIDENT_CHUNK + 1));
        assert!(residency.is_resident(file.as_fd(), RESIDENT_CHUNK, u64::MAX, now));
        assert!(known(0..len));
        assert!(!known(0..10 * RESIDENT_CHUNK), "the file is not that long");
        assert!(!residency.are_known(0..len, 10_001 + RESIDENT_FOR_MS));
    }

    /// A chunk that was counted is sampled later, and forgotten if a sample is missing.
    #[test]
    fn evicted_chunks_are_noticed() {
        let file = hot_file(RESIDENT_CHUNK as usize);
        let residency = Residency::default();
        let test = |at: u64| residency.is_resident(file.as_fd(), 0, RESIDENT_CHUNK, Nanos(at));
        assert!(test(10 * SECOND));
        assert!(test(12 * SECOND), "sampled");
        if !cool(&file, RESIDENT_CHUNK) {
            return;
        }
        assert!(test(12 * SECOND + 5), "known a moment ago");
        let is_found = test(14 * SECOND);
        if is_found && cached_pages(file.as_fd(), 0, RESIDENT_CHUNK) != Ok(0) {
            left_out("cold pages", "the kernel has read them in again");
            return;
        }
        assert!(!is_found, "a sample is missing");
        assert!(!test(14 * SECOND + 5), "and the chunk is not trusted");
    }

    /// What is in memory is not read again.
    #[test]
    fn only_what_is_missing_is_read() {
        let piece = PIECE as u64;
        let file = hot_file(4 * PIECE);
        let end = 3 * piece + 10;
        let missing = || missing(file.as_fd(), 0..end);
        assert_eq!(missing(), []);
        if !cool(&file, 4 * piece) {
            return;
        }
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random).unwrap();
        for at in [0, 2 * piece] {
            file.read_exact_at(&mut [0; PIECE], at).unwrap();
        }
        let holes = [piece..2 * piece, 3 * piece..end];
        for hole in &holes {
            if cached_pages(file.as_fd(), hole.start, hole.end - hole.start) != Ok(0) {
                return left_out("cold pages", "the kernel has read them in again");
            }
        }
        assert_eq!(missing(), holes);
        let file = File::os(file.into(), Store::Disk);
        file.as_os().warm(0, 8 * piece).unwrap();
        assert_eq!(super::missing(file.as_os().as_fd(), 0..end), []);
    }

    /// Freshly written pages are in memory; pages that the kernel was asked to drop are not, if the
    /// file system complies.
    #[test]
    fn tells_cold_from_hot() {
        let file = hot_file(1 << 20);
        assert!(are_pages_resident(file.as_fd(), 0..1 << 20));
        assert!(are_samples_resident(file.as_fd(), 0..1 << 20));
        assert!(
            Residency::default().is_resident(file.as_fd(), 1 << 30, 5, Nanos(0)),
            "beyond the end nothing is read"
        );
        if cool(&file, 1 << 20) {
            assert!(!are_pages_resident(file.as_fd(), 4096..4196));
            let is_found = are_samples_resident(file.as_fd(), 4096..4196);
            // Asking for a byte begins to read it, which a quick disk may have done at once.
            if is_found && cached_pages(file.as_fd(), 4096, 100) != Ok(0) {
                left_out("cold pages", "the kernel has read them in again");
                return;
            }
            assert!(!is_found, "a sample is missing");
        }
    }
}
