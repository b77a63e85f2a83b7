//! The first read of a live file's content, for the first requests that send bytes of it.
//!
//! Requests answered from metadata read nothing. For the others, files up to [`SMALL_FILE_MAX`] are
//! read by the worker, within a budget of bytes per turn. If it is used up, the request is deferred
//! without holding the file and looked up again later; often the file is cached in the meantime.
//!
//! Longer files are copied on a helper thread, a few at a time, once requests have taken as many
//! bytes as the copy has. All concurrent and later requests share a copy: none queues for its own.
//! If there is no room, the response is sent from the file itself.

use std::rc::Rc;

use gannet_http::semantics::coding::Coding;
use gannet_http::semantics::status::Status;
use gannet_io::driver::{Done, Driver, Errno, File, OpenedFile, Started, Token};

use crate::bounds::ledger::{Charge, Work};
use crate::bounds::limits::{COPIES_AT_ONCE_MAX, SMALL_FILE_MAX};
use crate::exchange::shared::Shared;
use crate::exchange::waiters::Line;
use crate::ground::token::{Kind, token};
use crate::release::directory::fill::{DiskLookup, Filled};
use crate::release::directory::{Cached, LongCopying};
use crate::release::wakeup::Wakeup;
use crate::worker::Worker;

/// Location of a file to copy, or of a directory to list. A file system that hangs delays only
/// requests in its lane.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Lane {
    /// On a local disk.
    Own,
    /// On a file system provided by another machine or process.
    Foreign,
}

impl Lane {
    pub(crate) const BOTH: [Self; 2] = [Self::Own, Self::Foreign];

    fn of(file: &File) -> Self {
        match file.is_foreign() {
            true => Self::Foreign,
            false => Self::Own,
        }
    }
}

/// First reads of a worker.
#[derive(Default)]
pub(crate) struct FirstReads {
    /// Copies in progress, by the number in their token: the places of one lane, then those of the
    /// other.
    copying: [Option<Copying>; 2 * COPIES_AT_ONCE_MAX],
    /// Lookups deferred with short files, in the order of their requests.
    reads: Line,
    /// A longer file that is being copied in the background: no request waits for it.
    long: Option<LongCopying>,
}

/// The number of the latter in its token.
const LONG_PLACE: u32 = 2 * COPIES_AT_ONCE_MAX as u32;

struct Copying {
    /// The version being copied.
    opened: OpenedFile,
    /// Requests that wait for it.
    waiters: Line,
    charge: Charge,
}

impl Copying {
    /// The result for the waiters. The copy is charged until its last reference is dropped.
    fn ended(self, copied: Result<File, Errno>) -> Result<File, Errno> {
        copied.inspect(|file| file.attach(self.charge))
    }
}

/// The result of an attempt to read.
pub(crate) enum FirstRead {
    /// The response can be made.
    Ended(Filled),
    /// The read is pending.
    Awaited,
    /// The file has changed meanwhile: the lookup must start over.
    Changed,
}

impl FirstReads {
    /// Whether a deferred lookup can continue in the next turn.
    pub(crate) fn is_due(&self) -> bool {
        !self.reads.0.is_empty()
    }

    /// Bytes of the copies in progress.
    pub(crate) fn held_bytes(&self) -> u64 {
        let copying = self.copying.iter().flatten();
        copying.map(|copying| copying.opened.meta.len).sum()
    }

    /// The place of the copy in progress of this version of a file.
    fn place_of(&self, opened: &OpenedFile) -> Option<usize> {
        let mut places = self.copying.iter();
        places.position(|it| it.as_ref().is_some_and(|it| it.opened.meta == opened.meta))
    }

    /// A free place for a copy in a lane.
    fn free_place(&self, lane: Lane) -> Option<usize> {
        let first = lane as usize * COPIES_AT_ONCE_MAX;
        let mut places = first..first + COPIES_AT_ONCE_MAX;
        places.find(|place| self.copying[*place].is_none())
    }
}

impl<D: Driver> Shared<D> {
    /// Reads the content of one coding of a file whose metadata `fill` has found, for a response
    /// that needs `needed` bytes of it. If the read is pending, `waiter` is woken with its result.
    pub(crate) fn read_first(
        &mut self,
        fill: &mut DiskLookup,
        (cached, coding): (Rc<Cached>, Coding),
        needed: u64,
        waiter: Token,
    ) -> FirstRead {
        let is_admitted = fill.take_admission();
        let Some(mut opened) = fill.take_unread(coding) else {
            debug_assert!(false, "what is unread was opened");
            return FirstRead::Ended(Filled::Error(Status::INTERNAL_SERVER_ERROR));
        };
        let len = opened.meta.len;
        // Without room, copies held by peers use up the limit.
        let has_room = self.ledger.has_room(len);
        let found = (cached, coding);
        let result = if len > SMALL_FILE_MAX {
            match self.place_for(&found, &opened, needed, has_room) {
                Some(place) => self.copy_first(fill, found, (opened, place), waiter),
                None => return FirstRead::Ended(fill.live(found, opened)),
            }
        } else if !has_room {
            return FirstRead::Ended(fill.live(found, opened));
        } else if !opened.content.is_empty() {
            // It was read already, while some of the budget was left.
            self.budget.take_rest(Work::Read, len);
            self.counters.first_reads += 1;
            let content = std::mem::take(&mut opened.content);
            let charge = self.ledger.charge(len);
            return FirstRead::Ended(fill.content_at_hand(found, content, charge));
        } else if is_admitted || self.may_read(len) {
            self.read_short(fill, found, opened, waiter)
        } else {
            fill.start_over();
            self.first_reads.reads.push(waiter, &mut self.waiters);
            return FirstRead::Awaited;
        };
        let Some(result) = result else {
            return FirstRead::Awaited;
        };
        match fill.content_read(&mut self.driver, result) {
            Some(filled) => FirstRead::Ended(filled),
            None => FirstRead::Changed,
        }
    }

    /// The place of the copy in progress, or of a new one, for a response that needs `needed`
    /// bytes. `None` if the file is to be sent directly.
    fn place_for(
        &self,
        (cached, coding): &(Rc<Cached>, Coding),
        opened: &OpenedFile,
        needed: u64,
        has_room: bool,
    ) -> Option<usize> {
        if !cached.is_worth_copying(*coding, needed) {
            return None;
        }
        let place = self.first_reads.place_of(opened);
        let lane = Lane::of(&opened.file);
        place.or_else(|| self.first_reads.free_place(lane).filter(|_| has_room))
    }

    /// Starts to copy a file, or joins the waiters of the copy in progress.
    fn copy_first(
        &mut self,
        fill: &mut DiskLookup,
        found: (Rc<Cached>, Coding),
        (opened, place): (OpenedFile, usize),
        waiter: Token,
    ) -> Option<Result<Wakeup, Errno>> {
        if let Some(copying) = &mut self.first_reads.copying[place] {
            // All of them share one descriptor.
            fill.await_content(found, copying.opened.clone(), None);
            copying.waiters.push(waiter, &mut self.waiters);
            return None;
        }
        let len = opened.meta.len;
        self.first_reads.copying[place] = Some(Copying {
            opened: opened.clone(),
            waiters: Line([waiter].into()),
            // Charged from the start, so that concurrent copies cannot exceed the bound together.
            charge: self.ledger.charge(len),
        });
        self.counters.first_reads += 1;
        // Concurrent requests share it.
        if fill.remember(Rc::clone(&found.0), fill.status()) {
            self.release.note_live();
        }
        let started = self
            .driver
            .copy(&opened.file, 0..len, token(Kind::FirstRead, place as u32));
        fill.await_content(found, opened, None);
        let Started::Now(result) = started else {
            return None;
        };
        let copying = self.first_reads.copying[place].take()?;
        Some(copying.ended(result).map(Wakeup::Copied))
    }

    /// Copies the longer file that a response is sent from, if that is due and none is being copied.
    pub(super) fn copy_long(&mut self, fill: &DiskLookup, cached: &Cached) {
        if self.first_reads.long.is_some() {
            return;
        }
        let Some(copying) = fill.begin_long_copy(cached, &self.driver) else {
            return;
        };
        let (file, len) = (copying.file.clone(), copying.meta.len);
        self.counters.first_reads += 1;
        let token = token(Kind::FirstRead, LONG_PLACE);
        // Begun or refused: a copy is never made at once.
        if let Started::Pending = self.driver.copy(&file, 0..len, token) {
            self.first_reads.long = Some(copying);
        }
    }

    /// Whether `len` bytes may be read now: no other lookup is waiting, and the budget allows it.
    fn may_read(&mut self, len: u64) -> bool {
        self.first_reads.reads.0.is_empty() && self.budget.take(Work::Read, len)
    }

    fn read_short(
        &mut self,
        fill: &mut DiskLookup,
        found: (Rc<Cached>, Coding),
        opened: OpenedFile,
        waiter: Token,
    ) -> Option<Result<Wakeup, Errno>> {
        let (file, len) = (opened.file.clone(), opened.meta.len);
        // Charged from the start, so that concurrent reads cannot exceed the bound together.
        let charge = self.ledger.charge(len);
        fill.await_content(found, opened, Some(charge));
        self.counters.first_reads += 1;
        match self.driver.read(&file, 0, len as usize, waiter) {
            Started::Now(read) => Some(read.map(Wakeup::Read)),
            Started::Pending => None,
        }
    }
}

impl<D: Driver> Worker<D> {
    /// Wakes all waiters of a file that was copied, or could not be.
    pub(crate) fn first_read_ended(&mut self, place: u32, result: Result<Done, Errno>) {
        if place == LONG_PLACE {
            let copying = self.shared.first_reads.long.take();
            // The directory may have had nothing else to close for so long that it is no longer looked at.
            if let (Some(copying), Ok(Done::Copied(file))) = (copying, result)
                && copying.ended(file, &self.shared.driver)
            {
                self.shared.release.note_live();
            }
            return;
        }
        let place = self.shared.first_reads.copying.get_mut(place as usize);
        let Some(mut copying) = place.and_then(Option::take) else {
            return;
        };
        let waiters = std::mem::take(&mut copying.waiters);
        let copied = copying.ended(result.and_then(|done| match done {
            Done::Copied(file) => Ok(file),
            _ => Err(Errno::IO),
        }));
        for waiter in waiters.0 {
            self.wake(waiter, copied.clone().map(Wakeup::Copied));
        }
    }

    /// Resumes deferred lookups within the turn's budget. Skips closed connections.
    pub(crate) fn admit_first_reads(&mut self) {
        // The maximum; the length is known only once the file is open.
        let work = (Work::Read, SMALL_FILE_MAX);
        self.admit(
            |it| Some(&mut it.first_reads.reads),
            work,
            || Wakeup::Admitted,
        );
    }
}
