//! Rendered listings of directories: which may be reused, and how much memory they take.
//!
//! All clients that requested a page share it. It is fresh for
//! [`BELIEVED_MS`](crate::limits::BELIEVED_MS), then for as long as the directory's own metadata
//! are unchanged, at most for [`CONFIRMED_MS`](crate::limits::CONFIRMED_MS): these metadata reflect
//! changes of names, not of the sizes and dates of files.
//!
//! Pages no longer cached may still be being sent to slow peers. They are counted until the last of
//! these has received its page.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};

use gannet_content::directory::listing::{Format, ListingRequest, Sort};
use gannet_io::driver::{Meta, Nanos};
use gannet_io::memory::Memory;

use crate::limits::{BELIEVED_MS, CONFIRMED_MS, RACY_NS};

/// The key of a listing.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct ListingKey {
    /// [`DirectorySite::address`](super::DirectorySite::address).
    site: usize,
    /// The directory below the root. Rules may map a request path to several, depending on their
    /// other input.
    pub(crate) folder: Vec<u8>,
    /// Its request path, which its page shows.
    path: Vec<u8>,
    sort: u8,
    is_descending: bool,
    pub(crate) format: Format,
}

impl ListingKey {
    /// The listing that a request wants of a folder below the root.
    pub(crate) fn new(site: usize, folder: &[u8], wanted: &ListingRequest<'_>) -> Self {
        Self {
            site,
            folder: folder.to_vec(),
            path: wanted.path.to_vec(),
            sort: match wanted.sort {
                Sort::Name => 0,
                Sort::Size => 1,
                Sort::Modified => 2,
            },
            is_descending: wanted.is_descending,
            format: wanted.format,
        }
    }

    /// The same as a request for every entry of the directory: hidden ones were removed before.
    pub(crate) fn wanted(&self) -> ListingRequest<'_> {
        ListingRequest {
            path: &self.path,
            sort: match self.sort {
                0 => Sort::Name,
                1 => Sort::Size,
                _ => Sort::Modified,
            },
            is_descending: self.is_descending,
            format: self.format,
            dotfiles: true,
            is_partial: false,
        }
    }
}

/// A rendered listing.
#[derive(Clone)]
pub(crate) struct ListingPage {
    pub(crate) format: Format,
    pub(crate) content: Arc<Memory>,
}

struct KeptListing {
    page: ListingPage,
    /// The directory's own metadata when it was read.
    meta: Meta,
    /// The directory had been unchanged long enough that any later change shows in its metadata.
    is_settled: bool,
    /// The time before the first read.
    read_at: Nanos,
    confirmed: Nanos,
}

/// The time and metadata of a page.
pub(crate) struct Made {
    pub(crate) meta: Meta,
    /// Both clocks before the first read.
    pub(crate) at: Nanos,
    pub(crate) unix: i64,
}

/// The pages of a worker.
#[derive(Default)]
pub(crate) struct Listings {
    kept: HashMap<ListingKey, KeptListing>,
    /// Oldest first; each kept page once.
    order: VecDeque<ListingKey>,
    kept_bytes: u64,
    /// All pages that may still be in memory.
    alive: Vec<Weak<Memory>>,
}

impl Listings {
    /// A page that may be sent. `is_same` checks whether the directory still has these metadata.
    pub(crate) fn fresh(
        &mut self,
        key: &ListingKey,
        now: Nanos,
        is_same: impl FnOnce(&Meta) -> bool,
    ) -> Option<ListingPage> {
        let kept = self.kept.get_mut(key)?;
        if now > kept.confirmed.plus_ms(BELIEVED_MS) {
            if now > kept.read_at.plus_ms(CONFIRMED_MS) || !kept.is_settled || !is_same(&kept.meta)
            {
                self.forget(key);
                return None;
            }
            kept.confirmed = now;
        }
        Some(kept.page.clone())
    }

    /// Takes a new page, and caches it within `bytes_max` of all cached pages.
    pub(crate) fn add(
        &mut self,
        key: &ListingKey,
        rendered: Vec<u8>,
        made: &Made,
        bytes_max: u64,
    ) -> ListingPage {
        let page = ListingPage {
            format: key.format,
            content: Arc::new(Memory::from_vec(rendered)),
        };
        self.alive.retain(|page| page.strong_count() > 0);
        self.alive.push(Arc::downgrade(&page.content));
        self.forget(key);
        let len = page.content.len() as u64;
        if len > bytes_max {
            return page;
        }
        while self.kept_bytes + len > bytes_max {
            let Some(oldest) = self.order.front().cloned() else {
                break;
            };
            self.forget(&oldest);
        }
        self.kept_bytes += len;
        self.order.push_back(key.clone());
        self.kept.insert(
            key.clone(),
            KeptListing {
                page: page.clone(),
                meta: made.meta,
                is_settled: made.meta.ctime_ns.max(made.meta.mtime_ns) + RACY_NS
                    < i128::from(made.unix) * 1_000_000_000,
                read_at: made.at,
                confirmed: made.at,
            },
        );
        page
    }

    /// Whether a page of this length fits besides all pages in memory. Drops the cached ones if
    /// necessary.
    pub(crate) fn make_room(&mut self, len: u64, bytes_max: u64) -> bool {
        if self.held_bytes() + len > bytes_max {
            self.forget_all();
        }
        self.held_bytes() + len <= bytes_max
    }

    /// Drops the cached pages of this site.
    pub(crate) fn forget_site(&mut self, site: usize) {
        let keys: Vec<_> = self
            .order
            .iter()
            .filter(|key| key.site == site)
            .cloned()
            .collect();
        for key in keys {
            self.forget(&key);
        }
    }

    /// Drops all cached pages.
    pub(crate) fn forget_all(&mut self) {
        self.kept.clear();
        self.order.clear();
        self.kept_bytes = 0;
    }

    fn forget(&mut self, key: &ListingKey) {
        if let Some(kept) = self.kept.remove(key) {
            self.kept_bytes -= kept.page.content.len() as u64;
            self.order.retain(|other| other != key);
        }
    }

    /// Bytes of all pages in memory, cached or referenced.
    pub(crate) fn held_bytes(&self) -> u64 {
        let alive = self.alive.iter().filter_map(Weak::upgrade);
        alive.map(|page| page.len() as u64).sum()
    }
}

#[cfg(test)]
mod tests {
    use gannet_io::driver::FileKind;

    use super::*;

    fn key(path: &[u8]) -> ListingKey {
        ListingKey::new(
            0,
            &path[1..path.len() - 1],
            &ListingRequest {
                path,
                ..ListingRequest::default()
            },
        )
    }

    fn made(changed_s: i64, read_s: i64) -> Made {
        let changed_ns = i128::from(changed_s) * 1_000_000_000;
        Made {
            meta: Meta {
                kind: FileKind::Directory,
                len: 4_096,
                mtime_ns: changed_ns,
                ctime_ns: changed_ns,
                identity: (1, 1),
                links: 1,
            },
            at: Nanos(0).plus_ms(1_000),
            unix: read_s,
        }
    }

    #[test]
    fn a_page_is_sent_again_while_the_directory_is_unchanged() {
        let (mut pages, key) = (Listings::default(), key(b"/a/"));
        let start = made(0, 0).at;
        let first = pages.add(&key, vec![1; 100], &made(1_000, 1_010), 1_000);
        let believed = start.plus_ms(BELIEVED_MS);
        let again = pages
            .fresh(&key, believed, |_| panic!("not compared yet"))
            .unwrap();
        assert!(Arc::ptr_eq(&again.content, &first.content));
        let later = believed.plus_ms(1);
        assert!(pages.fresh(&key, later, |_| true).is_some());
        assert!(
            pages
                .fresh(&key, later, |_| panic!("compared just now"))
                .is_some()
        );
        let last = start.plus_ms(CONFIRMED_MS);
        assert!(pages.fresh(&key, last, |_| true).is_some());
        let over = start.plus_ms(CONFIRMED_MS + 1);
        // Confirmed a moment ago, hence still fresh; afterwards it is not confirmed again.
        assert!(
            pages
                .fresh(&key, over, |_| panic!("compared just now"))
                .is_some()
        );
        let over = last.plus_ms(BELIEVED_MS + 1);
        assert!(pages.fresh(&key, over, |_| true).is_none());
        pages.add(&key, vec![1; 100], &made(1_000, 1_010), 1_000);
        assert!(pages.fresh(&key, later, |_| false).is_none(), "a change");
    }

    /// A directory that changed just before it was read may change once more with the same
    /// timestamp: file systems' clocks have coarse ticks.
    #[test]
    fn a_fresh_change_confirms_nothing() {
        let (mut pages, key) = (Listings::default(), key(b"/a/"));
        pages.add(&key, vec![1; 100], &made(1_000, 1_001), 1_000);
        let later = made(0, 0).at.plus_ms(BELIEVED_MS + 1);
        assert!(pages.fresh(&key, later, |_| true).is_none());
    }

    #[test]
    fn pages_are_counted_while_somebody_has_them() {
        let mut pages = Listings::default();
        let settled = made(1_000, 1_010);
        let held = pages.add(&key(b"/a/"), vec![1; 600], &settled, 1_000);
        pages.add(&key(b"/b/"), vec![1; 600], &settled, 1_000);
        assert_eq!((pages.kept.len(), pages.held_bytes()), (1, 1_200));
        drop(held);
        assert_eq!((pages.kept_bytes, pages.held_bytes()), (600, 600));
        pages.add(&key(b"/c/"), vec![1; 1_001], &settled, 1_000);
        assert_eq!(pages.kept.len(), 1, "a page that is too long is not cached");
        assert_eq!(pages.order.len(), 1);
    }
}
