//! Rendered listings of directories: which may be reused, and how much memory they take.
//!
//! All clients that requested a page share it. It is fresh for
//! [`BELIEVED_MS`](crate::bounds::limits::BELIEVED_MS), then for as long as the directory's own metadata
//! are unchanged, at most for [`CONFIRMED_MS`](crate::bounds::limits::CONFIRMED_MS): these metadata reflect
//! changes of names, not of the sizes and dates of files. As long as its names are the same and its
//! listings are kept, a directory that takes long to read is read less often.
//!
//! Pages no longer cached may still be being sent to slow peers. They are counted until the last of
//! these has received its page. One that is made again with the same content is the same page: what
//! slow peers can hold are distinct contents.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;

use gannet_content::directory::listing::{Format, ListingRequest, Sort};
use gannet_io::driver::{Meta, Nanos};
use gannet_io::memory::Memory;

use crate::bounds::limits::{
    BELIEVED_MS, CONFIRMED_MS, LISTING_REST, LISTING_REST_MAX_MS, RACY_NS,
};

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
    /// When it is read again, whatever its metadata are.
    over_at: Nanos,
    confirmed: Nanos,
}

/// The time and metadata of a page.
pub(crate) struct PageState {
    pub(crate) meta: Meta,
    /// Both clocks before the first read.
    pub(crate) at: Nanos,
    pub(crate) unix: i64,
    /// How long reading and rendering took.
    pub(crate) took: Duration,
}

/// The pages of a worker.
#[derive(Default)]
pub(crate) struct Listings {
    kept: HashMap<ListingKey, KeptListing>,
    /// Oldest first; each kept page once.
    order: VecDeque<ListingKey>,
    kept_bytes: u64,
    /// All pages that may still be in memory.
    alive: Vec<(ListingKey, Weak<Memory>)>,
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
            if now > kept.over_at || !kept.is_settled || !is_same(&kept.meta) {
                self.forget(key);
                return None;
            }
            kept.confirmed = now;
        }
        Some(kept.page.clone())
    }

    /// Takes a new page, and caches it within `kept_max` bytes of all cached pages. `None` if it
    /// does not fit into `held_max` with all pages in memory, even without the cached ones.
    pub(crate) fn add(
        &mut self,
        key: &ListingKey,
        rendered: Vec<u8>,
        made: &PageState,
        kept_max: u64,
        held_max: u64,
    ) -> Option<ListingPage> {
        let len = rendered.len() as u64;
        let content = match self.same(key, &rendered) {
            Some(content) => content,
            None => {
                self.forget(key);
                while self.held_bytes() + len > held_max {
                    self.forget_oldest()?;
                }
                let content = Arc::new(Memory::from_vec(rendered));
                self.alive.retain(|(_, page)| page.strong_count() > 0);
                self.alive.push((key.clone(), Arc::downgrade(&content)));
                content
            }
        };
        let page = ListingPage {
            format: key.format,
            content,
        };
        self.forget(key);
        if len > kept_max {
            return Some(page);
        }
        while self.kept_bytes + len > kept_max && self.forget_oldest().is_some() {}
        let rest = LISTING_REST * made.took.as_millis() as u64;
        self.kept_bytes += len;
        self.order.push_back(key.clone());
        self.kept.insert(
            key.clone(),
            KeptListing {
                page: page.clone(),
                meta: made.meta,
                is_settled: made.meta.ctime_ns.max(made.meta.mtime_ns) + RACY_NS
                    < i128::from(made.unix) * 1_000_000_000,
                over_at: made
                    .at
                    .plus_ms(rest.clamp(CONFIRMED_MS, LISTING_REST_MAX_MS)),
                confirmed: made.at,
            },
        );
        Some(page)
    }

    /// The content in memory that equals a new one of the same listing.
    fn same(&self, key: &ListingKey, rendered: &[u8]) -> Option<Arc<Memory>> {
        let all = self.alive.iter().filter(|(of, _)| of == key);
        let mut all = all.filter_map(|(_, content)| content.upgrade());
        all.find(|content| content.bytes() == rendered)
    }

    fn forget_oldest(&mut self) -> Option<()> {
        let oldest = self.order.front().cloned()?;
        self.forget(&oldest);
        Some(())
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
        let alive = self.alive.iter().filter_map(|(_, page)| page.upgrade());
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

    const KEPT: u64 = 1_000;
    const HELD: u64 = 2_000;

    fn add(
        pages: &mut Listings,
        key: &ListingKey,
        len: usize,
        made: &PageState,
    ) -> Option<ListingPage> {
        pages.add(key, vec![1; len], made, KEPT, HELD)
    }

    fn made(changed_s: i64, read_s: i64) -> PageState {
        let changed_ns = i128::from(changed_s) * 1_000_000_000;
        PageState {
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
            took: Duration::ZERO,
        }
    }

    #[test]
    fn a_page_is_sent_again_while_the_directory_is_unchanged() {
        let (mut pages, key) = (Listings::default(), key(b"/a/"));
        let start = made(0, 0).at;
        let first = add(&mut pages, &key, 100, &made(1_000, 1_010)).unwrap();
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
        add(&mut pages, &key, 100, &made(1_000, 1_010));
        assert!(pages.fresh(&key, later, |_| false).is_none(), "a change");
    }

    #[test]
    fn what_takes_long_to_read_is_read_less_often() {
        let check = |took_ms: u64, rest_ms: u64| {
            let (mut pages, key) = (Listings::default(), key(b"/a/"));
            let made = PageState {
                took: Duration::from_millis(took_ms),
                ..made(1_000, 1_010)
            };
            add(&mut pages, &key, 100, &made);
            let last = made.at.plus_ms(rest_ms);
            assert!(pages.fresh(&key, last, |_| true).is_some());
            let over = last.plus_ms(BELIEVED_MS + 1);
            assert!(pages.fresh(&key, over, |_| true).is_none());
        };
        check(0, CONFIRMED_MS);
        let took_ms = LISTING_REST_MAX_MS / 2 / LISTING_REST;
        check(took_ms, LISTING_REST * took_ms);
        check(LISTING_REST_MAX_MS, LISTING_REST_MAX_MS);
    }

    /// Slow peers hold distinct contents, not each time that one was made.
    #[test]
    fn the_same_content_is_the_same_page() {
        let (mut pages, key) = (Listings::default(), key(b"/a/"));
        let settled = made(1_000, 1_010);
        let slow = add(&mut pages, &key, 900, &settled).unwrap();
        for _ in 0..10 {
            pages.forget_all();
            let again = add(&mut pages, &key, 900, &settled).unwrap();
            assert!(Arc::ptr_eq(&again.content, &slow.content));
        }
        assert_eq!(pages.held_bytes(), 900);
        assert!(
            add(&mut pages, &key, 901, &settled).is_some(),
            "another one"
        );
    }

    /// A directory that changed just before it was read may change once more with the same
    /// timestamp: file systems' clocks have coarse ticks.
    #[test]
    fn a_fresh_change_confirms_nothing() {
        let (mut pages, key) = (Listings::default(), key(b"/a/"));
        add(&mut pages, &key, 100, &made(1_000, 1_001));
        let later = made(0, 0).at.plus_ms(BELIEVED_MS + 1);
        assert!(pages.fresh(&key, later, |_| true).is_none());
    }

    #[test]
    fn pages_are_counted_while_somebody_has_them() {
        let mut pages = Listings::default();
        let settled = made(1_000, 1_010);
        let held = add(&mut pages, &key(b"/a/"), 600, &settled);
        add(&mut pages, &key(b"/b/"), 600, &settled);
        assert_eq!((pages.kept.len(), pages.held_bytes()), (1, 1_200));
        drop(held);
        assert_eq!((pages.kept_bytes, pages.held_bytes()), (600, 600));
        add(&mut pages, &key(b"/c/"), 1_001, &settled);
        assert_eq!(pages.kept.len(), 1, "a page that is too long is not cached");
        assert_eq!(pages.order.len(), 1);
    }

    #[test]
    fn cached_pages_give_way_to_new_ones_the_oldest_first() {
        let mut pages = Listings::default();
        let settled = made(1_000, 1_010);
        for path in [b"/a/", b"/b/", b"/c/"] {
            add(&mut pages, &key(path), 300, &settled);
        }
        let held = [b"/d/", b"/e/"].map(|path| add(&mut pages, &key(path), 900, &settled));
        assert!(held.iter().all(Option::is_some));
        assert!(!pages.kept.contains_key(&key(b"/c/")), "it made room");
        let kept = pages.kept.contains_key(&key(b"/e/"));
        assert!(kept && pages.held_bytes() <= HELD, "{}", pages.held_bytes());
        assert!(add(&mut pages, &key(b"/f/"), 900, &settled).is_none());
        drop(held);
        assert!(add(&mut pages, &key(b"/f/"), 900, &settled).is_some());
    }
}
