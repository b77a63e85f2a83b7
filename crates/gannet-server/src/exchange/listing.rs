//! Listings of directories: read and rendered once for all requests for the same listing, on a
//! helper thread, and shared in memory.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use gannet_archive::is_normalised;
use gannet_content::directory::listing::{self, Entry as Listable, ListingRequest};
use gannet_http::semantics::request::Request;
use gannet_http::semantics::status::Status;
use gannet_io::driver::{
    DirectoryEntry, Done, Driver, Errno, FileKind, Nanos, Render, Root, Started, Token,
};

use super::first_reads::Lane;
use crate::bounds::limits::{
    LISTING_MAKING_MAX, LISTING_MAX, LISTINGS_PAGES_MAX, LISTINGS_READ_MAX,
};
use crate::exchange::shared::Shared;
use crate::exchange::waiters::Line;
use crate::ground::token::{Kind, token};
use crate::release::directory::DirectorySite;
use crate::release::directory::fill::DiskLookup;
use crate::release::directory::listings::{ListingKey, ListingPage, Listings, PageState};
use crate::release::wakeup::Wakeup;
use crate::worker::Worker;

/// The listings of a worker.
#[derive(Default)]
pub(crate) struct Listing {
    pages: Listings,
    jobs: HashMap<ListingKey, ListingJob>,
    /// Jobs not started yet, by lane, in the order of their requests. The lane of a directory is
    /// known only once it is opened, so all begin in the local one.
    queues: [VecDeque<ListingKey>; LISTINGS_READ_MAX],
    /// The job of each lane in progress; its token carries the lane.
    reading: [Option<ListingKey>; LISTINGS_READ_MAX],
}

struct ListingJob {
    /// The site in the release of the first request.
    site: Rc<DirectorySite>,
    root: Root,
    /// Requests that wait for the page.
    waiters: Line,
    /// When the read began, by both clocks.
    began: Option<(Nanos, i64)>,
}

impl Listing {
    /// Whether a job can start without waiting for a completion.
    pub(crate) fn is_due(&self) -> bool {
        let mut lanes = self.queues.iter().zip(&self.reading);
        lanes.any(|(queue, reading)| !queue.is_empty() && reading.is_none())
    }

    /// Drops all cached pages.
    pub(crate) fn forget(&mut self) {
        self.pages.forget_all();
    }

    /// Drops the cached pages of a site that is retired. Pages being made for it are sent, but not
    /// cached.
    pub(crate) fn forget_site(&mut self, site: &DirectorySite) {
        self.pages.forget_site(site.address());
    }

    /// Bytes of all listings; those being made count with the maximum.
    pub(crate) fn held_bytes(&self) -> u64 {
        let reading = self.reading.iter().flatten().count() as u64;
        self.pages.held_bytes() + reading * LISTING_MAKING_MAX
    }
}

impl<D: Driver> Shared<D> {
    /// The listing that a request wants of a folder of a site with a prefix, if it is cached; otherwise
    /// `waiter` is woken in a later turn.
    pub(crate) fn ask_for_listing(
        &mut self,
        fill: &DiskLookup,
        (folder, prefix): (&[u8], &[u8]),
        request: &Request<'_>,
        waiter: Token,
    ) -> Option<Result<ListingPage, Status>> {
        let site = fill.site();
        let Some(root) = site.root() else {
            return Some(Err(Status::SERVICE_UNAVAILABLE));
        };
        let path = [prefix, fill.path()].concat();
        let wanted = ListingRequest::of(request, &path);
        let key = ListingKey::new(site.address(), folder, &wanted);
        let Listing {
            pages,
            jobs,
            queues,
            ..
        } = &mut self.listing;
        let is_same = |meta: &_| self.driver.peek(root, folder).as_ref() == Some(meta);
        if let Some(page) = pages.fresh(&key, self.driver.now(), is_same) {
            return Some(Ok(page));
        }
        let job = match jobs.entry(key) {
            Entry::Occupied(job) => job.into_mut(),
            Entry::Vacant(free) => {
                queues[Lane::Own as usize].push_back(free.key().clone());
                free.insert(ListingJob {
                    site: Rc::clone(site),
                    root: root.clone(),
                    waiters: Line::default(),
                    began: None,
                })
            }
        };
        job.waiters.push(waiter, &mut self.waiters);
        None
    }
}

impl<D: Driver> Worker<D> {
    /// Starts reading directories in every free lane. Jobs without remaining waiters are dropped.
    pub(crate) fn read_directories(&mut self) {
        for lane in Lane::BOTH {
            self.read_directories_of(lane);
        }
    }

    fn read_directories_of(&mut self, lane: Lane) {
        let place = lane as usize;
        while self.shared.listing.reading[place].is_none() {
            let Some(key) = self.shared.listing.queues[place].pop_front() else {
                return;
            };
            let Some(job) = self.shared.listing.jobs.get_mut(&key) else {
                continue;
            };
            if !job.waiters.prune(&mut self.shared.waiters) {
                self.shared.listing.jobs.remove(&key);
                continue;
            }
            job.began = Some((self.shared.driver.now(), self.shared.driver.unix_seconds()));
            let render = render(&job.site, key.clone());
            let waiter = token(Kind::Listing, place as u32);
            let (root, folder) = (&job.root, key.folder.clone());
            self.shared.listing.reading[place] = Some(key);
            // Jobs of the foreign lane were counted in the local one.
            self.shared.counters.listings += u64::from(lane == Lane::Own);
            let limits = (LISTING_MAX, lane == Lane::Foreign);
            match self
                .shared
                .driver
                .list(root, &folder, limits, render, waiter)
            {
                Started::Pending => {}
                Started::Now(listed) => self.listed(place as u32, listed.map(Done::Listed)),
            }
        }
    }

    /// Handles a directory that was read and rendered, or could not be.
    pub(crate) fn listed(&mut self, place: u32, result: Result<Done, Errno>) {
        let reading = self.shared.listing.reading.get_mut(place as usize);
        let Some(key) = reading.and_then(Option::take) else {
            return;
        };
        if place == Lane::Own as u32 && matches!(result, Err(Errno::XDEV)) {
            // It may hang, so it queues only with other foreign ones.
            self.shared.listing.queues[Lane::Foreign as usize].push_back(key);
            return;
        }
        let is_full = matches!(result, Err(Errno::MFILE | Errno::NFILE));
        if is_full && self.shared.release.drop_descriptors() {
            // Cached files were closed; their number decreases with each retry.
            self.shared.listing.queues[place as usize].push_back(key);
            return;
        }
        let Some(job) = self.shared.listing.jobs.remove(&key) else {
            return;
        };
        let listed = result.and_then(|done| match done {
            Done::Listed(listed) => Ok(listed),
            _ => Err(Errno::IO),
        });
        if let Err(errno @ (Errno::ACCESS | Errno::PERM | Errno::IO)) = listed {
            self.shared
                .note_unreadable((&job.site, &key.folder), errno, None);
        }
        let page = match (listed, job.began) {
            (Ok(listed), Some((at, unix))) => {
                let made = PageState {
                    meta: listed.meta,
                    at,
                    unix,
                    took: self.shared.driver.now().since(at),
                };
                // No page of a retired site is cached.
                let kept_max = LISTINGS_PAGES_MAX.min(job.site.memory() / 4);
                let pages = &mut self.shared.listing.pages;
                let page = pages.add(&key, listed.rendered, &made, kept_max, LISTINGS_PAGES_MAX);
                // Without room, pages held by peers use up the limit.
                page.ok_or(Status::SERVICE_UNAVAILABLE)
            }
            // The directory has just been removed.
            (Err(Errno::NOENT | Errno::NOTDIR), _) => Err(Status::NOT_FOUND),
            (Err(Errno::ACCESS), _) => Err(Status::FORBIDDEN),
            (Err(Errno::AGAIN | Errno::MFILE | Errno::NFILE | Errno::NOMEM), _) => {
                Err(Status::SERVICE_UNAVAILABLE)
            }
            _ => Err(Status::INTERNAL_SERVER_ERROR),
        };
        for waiter in job.waiters.0 {
            self.wake(waiter, Ok(Wakeup::Listed(page.clone())));
        }
    }
}

/// Makes the function that renders a directory's entries.
fn render(site: &DirectorySite, key: ListingKey) -> Render {
    let routing = std::sync::Arc::clone(&site.options.routing);
    let shows_dotfiles = site.options.lookup.dotfiles;
    Render::new(move |entries: Vec<DirectoryEntry>, is_partial| {
        let mut start = key.folder.clone();
        if !start.is_empty() {
            start.push(b'/');
        }
        let is_shown = |entry: &DirectoryEntry| {
            let is_hidden = entry.name.starts_with(b".") && *entry.name != *b".well-known";
            entry.kind != FileKind::Other
                && (shows_dotfiles || !is_hidden)
                // No request can name an entry with control characters or a backslash.
                && is_normalised(&[b"/", &*entry.name].concat())
                && !routing.is_rules_file(&[&start, &*entry.name].concat())
        };
        let entries = entries.into_iter().filter(is_shown).map(|entry| Listable {
            name: entry.name.into_vec(),
            is_directory: entry.kind == FileKind::Directory,
            len: entry.len,
            modified: Some(entry.modified),
        });
        let wanted = ListingRequest {
            is_partial,
            ..key.wanted()
        };
        listing::render(&wanted, entries.collect()).content
    })
}
