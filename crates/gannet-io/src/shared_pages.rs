//! Copies of files that share huge pages.
//!
//! A body in ordinary pages leaves in pieces of 4 KiB, one in huge pages in a few long ones, for a quarter less
//! CPU time (125 KB over loopback). Copies shorter than a huge page get a part of one each.
//!
//! A part is written before anyone has it, and what a dropped one leaves is not used again, since the
//! kernel may still send from it. How much of the pages no copy has is known ([`SharedPages::lost`]), for the caches to
//! do without it; no further page is made while that is more than a quarter of what the copies have.
//!
//! The memory is free when all parts of a page are gone, and no socket has a byte of it. Peers that read nothing
//! must not hold one page after the other by a byte each: a page whose parts are gone counts against the most that
//! there may be for [`PAGE_GONE_AFTER`], in which such connections end.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;

use crate::file::{File, OsFile};
use crate::limits::{COPIES_APART, PAGE_GONE_AFTER, SHARED_PAGES_OPEN};
use crate::memory::{HUGE_PAGE, Mapping, huge_mapping, sealed_file};

/// Makes copies, and counts what they have; one for the helper threads of a driver.
#[derive(Debug, Default)]
pub(crate) struct SharedPages {
    open: Mutex<Open>,
    counts: Arc<Counts>,
}

/// Where the next copies go.
#[derive(Debug, Default)]
struct Open {
    /// Pages with room, and how many of their bytes are given out.
    pages: Vec<(Weak<Page>, usize)>,
    /// Bytes of short copies for which no page had room, since the kernel last had none.
    apart: u64,
}

#[derive(Debug, Default)]
struct Counts {
    /// Bytes of all pages, and how many they may have.
    pages: AtomicU64,
    max: AtomicU64,
    /// Bytes of all parts.
    parts: AtomicU64,
    /// When pages were dropped that sockets may still have, the oldest first.
    gone: Mutex<VecDeque<Instant>>,
}

/// A huge page.
#[derive(Debug)]
struct Page {
    memfd: OwnedFd,
    mapping: Mapping,
    counts: Arc<Counts>,
}

impl Drop for Page {
    fn drop(&mut self) {
        let page = HUGE_PAGE as u64;
        self.counts.pages.fetch_sub(page, Ordering::Relaxed);
        lock(&self.counts.gone).push_back(Instant::now());
    }
}

/// A part of a page, with one copy.
pub(crate) struct PagePart {
    page: Arc<Page>,
    range: Range<usize>,
}

impl Drop for PagePart {
    fn drop(&mut self) {
        let len = self.range.len() as u64;
        self.page.counts.parts.fetch_sub(len, Ordering::Relaxed);
    }
}

impl SharedPages {
    /// An immutable copy of a range of a file: a part of a page if it is shorter than one and there is room,
    /// else as [`sealed_file`] makes it.
    ///
    /// # Errors
    /// As [`sealed_file`].
    pub(crate) fn copy(&self, file: &OsFile, range: Range<u64>) -> Result<File, Errno> {
        let (from, to) = (file.place(range.start), file.place(range.end));
        let Some(part) = self.part(to - from) else {
            let memfd = sealed_file(file, from..to)?;
            return Ok(std::fs::File::from(memfd).into());
        };
        // SAFETY: the range was given out once, to this part, which nobody else has yet.
        let target = unsafe { part.page.mapping.part_mut(part.range.clone()) };
        crate::memory::fill_copy((file.as_fd(), from), target)?;
        Ok(File::part(part))
    }

    /// Pages may have so many bytes from now on.
    pub(crate) fn set_max(&self, bytes: u64) {
        self.counts.max.store(bytes, Ordering::Relaxed);
    }

    /// Bytes of pages that no copy has.
    pub(crate) fn lost(&self) -> u64 {
        let parts = self.counts.parts.load(Ordering::Relaxed);
        let pages = self.counts.pages.load(Ordering::Relaxed);
        pages.saturating_sub(parts)
    }

    /// Room for a copy of this length. `None` if it gets memory of its own.
    fn part(&self, len: u64) -> Option<PagePart> {
        let len = usize::try_from(len).ok();
        let len = len.filter(|len| (1..HUGE_PAGE).contains(len))?;
        let open = &mut *lock(&self.open);
        open.pages.retain(|(page, _)| page.strong_count() > 0);
        let has_room = |(_, used): &(_, usize)| HUGE_PAGE - used >= len;
        let found = open.pages.iter().position(has_room);
        let found = found.and_then(|place| Some((open.pages[place].0.upgrade()?, place)));
        let (page, place) = found.or_else(|| self.open_page(open, len as u64))?;
        let used = &mut open.pages[place].1;
        let range = *used..*used + len;
        *used = range.end.next_multiple_of(ALIGNMENT);
        self.counts.parts.fetch_add(len as u64, Ordering::Relaxed);
        Some(PagePart { page, range })
    }

    /// One more page, for a copy of this length first; `None` if there may be none, or the kernel has none.
    fn open_page(&self, open: &mut Open, len: u64) -> Option<(Arc<Page>, usize)> {
        open.apart = open.apart.saturating_add(len);
        let counts = &*self.counts;
        let all = [&counts.pages, &counts.max, &counts.parts];
        let [have, max, parts] = all.map(|it| it.load(Ordering::Relaxed));
        let page = HUGE_PAGE as u64;
        let is_full = have > parts + parts / 4 + page || have + counts.gone() + page > max;
        if is_full || open.apart <= COPIES_APART {
            return None;
        }
        let Some(made) = Page::new(&self.counts) else {
            open.apart = 0;
            return None;
        };
        if open.pages.len() == SHARED_PAGES_OPEN {
            let fullest = open.pages.iter().enumerate();
            let (fullest, _) = fullest.max_by_key(|(_, (_, used))| *used)?;
            open.pages.swap_remove(fullest);
        }
        let made = Arc::new(made);
        open.pages.push((Arc::downgrade(&made), 0));
        Some((made, open.pages.len() - 1))
    }
}

impl Counts {
    /// Bytes of pages whose parts are gone, and that a socket may still have.
    fn gone(&self) -> u64 {
        let mut gone = lock(&self.gone);
        let is_free = |since: &Instant| since.elapsed() > PAGE_GONE_AFTER;
        while gone.front().is_some_and(is_free) {
            gone.pop_front();
        }
        (gone.len() * HUGE_PAGE) as u64
    }
}

/// Locks; nothing under these locks can panic halfway.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Page {
    /// `None` if the kernel has no huge page for it.
    fn new(counts: &Arc<Counts>) -> Option<Self> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let memfd = rustix::fs::memfd_create(c"gannet-files", flags).ok()?;
        let mapping = huge_mapping(memfd.as_fd(), HUGE_PAGE).ok()??;
        // No other process, nor a call of this one, writes it: only the mapping does.
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE;
        rustix::fs::fcntl_add_seals(&memfd, seals | SealFlags::SEAL).ok()?;
        counts.pages.fetch_add(HUGE_PAGE as u64, Ordering::Relaxed);
        Some(Self {
            memfd,
            mapping,
            counts: Arc::clone(counts),
        })
    }
}

impl PagePart {
    /// The bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: they were written before the part was given to anyone, and nothing writes them again.
        unsafe { self.page.mapping.part(self.range.clone()) }
    }

    /// Where it begins in its page's file.
    pub(crate) fn start(&self) -> u64 {
        self.range.start as u64
    }

    pub(crate) fn len(&self) -> u64 {
        self.range.len() as u64
    }
}

impl AsFd for PagePart {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.page.memfd.as_fd()
    }
}

impl fmt::Debug for PagePart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PagePart({:?})", self.range)
    }
}

/// Parts begin at lines of the processor's cache.
const ALIGNMENT: usize = 64;

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use gannet_testkit::content::pattern;
    use gannet_testkit::left_out;

    use super::*;
    use crate::file::Blocking;
    use crate::memory::Memory;

    const LEN: usize = 100_000;

    fn file_with(bytes: &[u8]) -> File {
        let memfd = rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
        let mut file = std::fs::File::from(memfd);
        file.write_all(bytes).unwrap();
        File::from(file)
    }

    /// Whose next copies get parts of a page, of which one has a byte. `None` if the kernel has no huge pages.
    fn pages() -> Option<(SharedPages, PagePart)> {
        let pages = SharedPages::default();
        pages.set_max(u64::MAX);
        lock(&pages.open).apart = COPIES_APART;
        let first = pages.part(1);
        if first.is_none() {
            left_out("huge pages", "the kernel has none for a memfd");
        }
        first.map(|first| (pages, first))
    }

    fn memory(copy: &File) -> &Memory {
        copy.sealed_memory().expect("it is in memory")
    }

    /// The file that the bytes of a copy are in.
    fn inode(copy: &File) -> u64 {
        rustix::fs::fstat(copy.as_os()).unwrap().st_ino
    }

    #[test]
    fn copies_have_their_bytes_and_share_a_page() {
        let Some((pages, _first)) = pages() else {
            return;
        };
        let content = pattern(LEN, 3);
        let file = file_with(&content);
        let copies = [0..1u64, 0..50_000, 7..99_999, 50_000..100_000]
            .map(|range| (range.clone(), pages.copy(file.as_os(), range).unwrap()));
        for (range, copy) in &copies {
            let expected = &content[range.start as usize..range.end as usize];
            assert!(memory(copy).bytes() == expected, "{range:?}");
            let read = |offset, len| copy.as_os().read(offset, len, Blocking::Yes).unwrap();
            assert!(read(0, LEN) == expected, "no more than it has");
            assert!(read(1, LEN) == expected[1..]);
            assert_eq!(read(LEN as u64, 1), []);
            assert_eq!(inode(copy), inode(&copies[0].1));
        }
        // What is longer has memory of its own.
        let long = file_with(&vec![1; HUGE_PAGE]);
        let long = pages.copy(long.as_os(), 0..HUGE_PAGE as u64).unwrap();
        assert_ne!(inode(&long), inode(&copies[0].1));
    }

    /// No byte of the neighbours is sent.
    #[test]
    fn a_copy_is_sent_to_its_end() {
        let Some((pages, _first)) = pages() else {
            return;
        };
        let file = file_with(&pattern(LEN, 3));
        let copies = [0..1_000, 1_000..2_000, 2_000..3_000]
            .map(|range| pages.copy(file.as_os(), range).unwrap());
        let (sender, mut receiver) = UnixStream::pair().unwrap();
        let sent = crate::file_send::tests::send(&sender, &copies[1], 100..5_000);
        assert_eq!(sent, 900);
        drop(sender);
        let mut received = Vec::new();
        std::io::Read::read_to_end(&mut receiver, &mut received).unwrap();
        assert!(received == pattern(LEN, 3)[1_100..2_000]);
    }

    /// A file that is shorter than its copy is an error, and the next copy is right.
    #[test]
    fn a_short_file_spoils_nothing() {
        let Some((pages, first)) = pages() else {
            return;
        };
        let content = pattern(LEN, 3);
        let file = file_with(&content);
        let beyond = pages.copy(file.as_os(), 1..LEN as u64 + 1);
        assert_eq!(beyond.unwrap_err(), Errno::NODATA);
        assert_eq!(pages.counts.parts.load(Ordering::Relaxed), first.len());
        let copy = pages.copy(file.as_os(), 0..LEN as u64).unwrap();
        assert!(memory(&copy).bytes() == content);
    }

    /// The memory of a copy stays while anyone has it, and its page as long as one copy does.
    #[test]
    fn a_page_lives_as_long_as_one_of_its_copies() {
        let Some((pages, first)) = pages() else {
            return;
        };
        let content = pattern(LEN, 3);
        let file = file_with(&content);
        let copy = || pages.copy(file.as_os(), 0..LEN as u64).unwrap();
        let (one, other) = (copy(), copy());
        drop(first);
        assert_eq!(pages.lost(), (HUGE_PAGE - 2 * LEN) as u64);
        drop(one);
        assert_eq!(pages.lost(), (HUGE_PAGE - LEN) as u64);
        let bytes = Arc::clone(other.sealed_memory().unwrap());
        drop(other);
        assert!(bytes.bytes() == content);
        drop(bytes);
        assert_eq!(pages.lost(), 0);
        assert_eq!(pages.counts.pages.load(Ordering::Relaxed), 0);
    }

    /// An author's files of the worst length: further pages are made only while little is lost.
    #[test]
    fn what_is_lost_is_bounded() {
        let Some((pages, first)) = pages() else {
            return;
        };
        let len = HUGE_PAGE as u64 * 3 / 5;
        let file = file_with(&vec![1; len as usize]);
        let held = || pages.counts.pages.load(Ordering::Relaxed);
        let copies: Vec<_> = (0..40)
            .map(|_| pages.copy(file.as_os(), 0..len).unwrap())
            .collect();
        let parts = pages.counts.parts.load(Ordering::Relaxed);
        assert!(parts < 40 * len, "some have memory of their own");
        assert!(held() <= parts + parts / 4 + 2 * HUGE_PAGE as u64);
        drop((copies, first));
        assert_eq!(held(), 0);
    }

    /// Peers that read nothing may still have what was dropped: it counts for a while.
    #[test]
    fn pages_that_are_gone_make_no_room_at_once() {
        let Some((pages, first)) = pages() else {
            return;
        };
        let most = 3 * HUGE_PAGE as u64;
        pages.set_max(most);
        let file = file_with(&pattern(LEN, 3));
        let held = || pages.counts.pages.load(Ordering::Relaxed);
        let copies = || -> Vec<_> {
            (0..100)
                .map(|_| pages.copy(file.as_os(), 0..LEN as u64).unwrap())
                .collect()
        };
        let kept = copies();
        let before = held();
        assert!(before <= most);
        drop((kept, first));
        assert_eq!(held(), 0);
        let kept = copies();
        assert!(held() <= most - before, "{} after {before}", held());
        drop(kept);
    }

    /// Few files take no huge page.
    #[test]
    fn the_first_copies_are_apart() {
        let pages = SharedPages::default();
        pages.set_max(u64::MAX);
        let file = file_with(&pattern(LEN, 3));
        let count = COPIES_APART / LEN as u64;
        let copies: Vec<_> = (0..count)
            .map(|_| pages.copy(file.as_os(), 0..LEN as u64).unwrap())
            .collect();
        assert_eq!(pages.counts.pages.load(Ordering::Relaxed), 0);
        drop(copies);
    }
}
