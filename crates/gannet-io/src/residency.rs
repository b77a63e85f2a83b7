//! Whether a range of a file is in memory, so that sending it cannot wait for a disk.

use std::io::IoSliceMut;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::{Errno, ReadWriteFlags};

use crate::driver::Nanos;
use crate::limits;

/// What a file remembers of its last test, so that a hot file costs no system call per request.
///
/// The three numbers are written one by one: another thread may see a mixture, and then at worst
/// one `sendfile` waits for the disk.
#[derive(Debug, Default)]
pub(crate) struct Residency {
    start: AtomicU64,
    end: AtomicU64,
    until: AtomicU64,
}

impl Residency {
    /// Whether the range was found in memory a moment ago.
    pub(crate) fn is_known(&self, offset: u64, len: u64, now: Nanos) -> bool {
        now.0 < self.until.load(Ordering::Relaxed)
            && offset >= self.start.load(Ordering::Relaxed)
            && offset.saturating_add(len) <= self.end.load(Ordering::Relaxed)
    }

    /// Notes that the range is in memory; joins it to the known one if they touch.
    pub(crate) fn note(&self, offset: u64, len: u64, now: Nanos) {
        let end = offset.saturating_add(len);
        let (old_start, old_end) = (
            self.start.load(Ordering::Relaxed),
            self.end.load(Ordering::Relaxed),
        );
        let fresh = now.0 < self.until.load(Ordering::Relaxed);
        if fresh && offset <= old_end && end >= old_start {
            // The joined range keeps the older deadline.
            self.start.store(offset.min(old_start), Ordering::Relaxed);
            self.end.store(end.max(old_end), Ordering::Relaxed);
            return;
        }
        self.start.store(offset, Ordering::Relaxed);
        self.end.store(end, Ordering::Relaxed);
        self.until.store(
            now.0.saturating_add(limits::RESIDENT_FOR_NS),
            Ordering::Relaxed,
        );
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

/// The same number on all architectures, as for every system call since 424.
const SYS_CACHESTAT: libc::c_long = 451;

/// Asks the kernel whether the whole range, cut at the end of the file, is in memory.
///
/// Counts the pages (`cachestat`, Linux 6.5); on an older kernel it tries to read the first and
/// the last byte without waiting. A file system that cannot tell counts as resident: its reads
/// would block just the same in a test.
pub(crate) fn is_resident(fd: BorrowedFd<'_>, offset: u64, len: u64) -> bool {
    let Ok(size) = rustix::fs::fstat(fd).map(|stat| stat.st_size as u64) else {
        return true;
    };
    let end = offset.saturating_add(len).min(size);
    if offset >= end {
        return true;
    }
    match cached_pages(fd, offset, end - offset) {
        Ok(cached) => {
            let page = rustix::param::page_size() as u64;
            cached > (end - 1) / page - offset / page
        }
        Err(_) => byte_is_there(fd, offset) && byte_is_there(fd, end - 1),
    }
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
    use super::*;

    /// A known range expires, grows by what touches it, and does not cover what lies outside.
    #[test]
    fn remembers_ranges() {
        let residency = Residency::default();
        assert!(!residency.is_known(0, 1, Nanos(0)));
        residency.note(100, 50, Nanos(10));
        assert!(residency.is_known(100, 50, Nanos(11)));
        assert!(!residency.is_known(99, 2, Nanos(11)));
        assert!(!residency.is_known(100, 51, Nanos(11)));
        residency.note(150, 10, Nanos(20));
        assert!(residency.is_known(110, 50, Nanos(21)));
        let expiry = 10 + limits::RESIDENT_FOR_NS;
        assert!(!residency.is_known(100, 1, Nanos(expiry)));
        residency.note(500, 1, Nanos(expiry));
        assert!(!residency.is_known(100, 1, Nanos(expiry + 1)));
    }

    /// What was just written is in memory; what the kernel was told to drop is not, where the
    /// file system obeys.
    #[test]
    fn tells_cold_from_hot() {
        let path = std::env::current_dir()
            .unwrap()
            .join(format!("cold-{}", std::process::id()));
        std::fs::write(&path, vec![7; 1 << 20]).unwrap();
        let file = std::fs::File::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(is_resident(file.as_fd(), 0, 1 << 20));
        assert!(
            is_resident(file.as_fd(), 1 << 30, 5),
            "beyond the end nothing is read"
        );
        rustix::fs::fsync(&file).unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        if cached_pages(file.as_fd(), 0, 1 << 20) == Ok(0) {
            assert!(!is_resident(file.as_fd(), 4096, 100));
        } else {
            eprintln!("skipped the cold half: this file system keeps its pages");
        }
    }
}
