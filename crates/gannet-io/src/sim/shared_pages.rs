//! Pages that short copies of files share, as in memory: what no copy has of a page is lost while one has the rest.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// Bytes of a page, in which some of the files of a run fit together.
const PAGE_LEN: u64 = 160 << 10;

#[derive(Debug, Default)]
pub(super) struct SimPages {
    /// The page with room, and the bytes that are given out of it.
    open: (Weak<SimPage>, u64),
    /// Bytes that pages may have.
    pub(super) max: u64,
    counts: Arc<SimCounts>,
}

/// Bytes of all pages, and of their parts.
#[derive(Debug, Default)]
struct SimCounts {
    pages: AtomicU64,
    parts: AtomicU64,
}

#[derive(Debug)]
struct SimPage(Arc<SimCounts>);

impl Drop for SimPage {
    fn drop(&mut self) {
        self.0.pages.fetch_sub(PAGE_LEN, Ordering::Relaxed);
    }
}

/// A part of a page, with one copy.
#[derive(Debug)]
pub(super) struct SimPart {
    page: Arc<SimPage>,
    len: u64,
}

impl Drop for SimPart {
    fn drop(&mut self) {
        self.page.0.parts.fetch_sub(self.len, Ordering::Relaxed);
    }
}

impl SimPages {
    /// Bytes of pages that no copy has.
    pub(super) fn lost(&self) -> u64 {
        let counts = [&self.counts.pages, &self.counts.parts];
        let [pages, parts] = counts.map(|count| count.load(Ordering::Relaxed));
        pages - parts
    }

    /// Room for a copy of this length. `None` if it gets memory of its own.
    pub(super) fn part(&mut self, len: u64) -> Option<SimPart> {
        let (page, used) = (self.open.0.upgrade(), self.open.1);
        let page = match page.filter(|_| used + len <= PAGE_LEN) {
            Some(page) => page,
            None => self.open_page(len)?,
        };
        self.open.1 += len;
        self.counts.parts.fetch_add(len, Ordering::Relaxed);
        Some(SimPart { page, len })
    }

    fn open_page(&mut self, len: u64) -> Option<Arc<SimPage>> {
        let pages = self.counts.pages.load(Ordering::Relaxed);
        if len >= PAGE_LEN || pages + PAGE_LEN > self.max {
            return None;
        }
        self.counts.pages.fetch_add(PAGE_LEN, Ordering::Relaxed);
        let page = Arc::new(SimPage(Arc::clone(&self.counts)));
        self.open = (Arc::downgrade(&page), 0);
        Some(page)
    }
}
