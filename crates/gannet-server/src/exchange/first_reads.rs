//! The first read of a live file's content, for the first request that sends bytes of it.
//!
//! Requests that are answered from metadata read nothing. Of the others, files up to
//! [`SMALL_FILE_MAX`] are read on the worker, so many bytes in a turn; longer ones are copied on a
//! helper thread, a few at a time. If there is no room, the request is deferred without holding the
//! file and looked up again later; by then the file is often cached.

use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;

use gannet_http::semantics::coding::Coding;
use gannet_http::semantics::status::Status;
use gannet_io::driver::{Done, Driver, Errno, File, Started, Token};

use super::Disk;
use crate::limits::{COPIES_AT_ONCE_MAX, SMALL_FILE_MAX};
use crate::release::directory::fill::{Fill, Filled};
use crate::release::directory::{Cached, CachedBody};
use crate::worker::Worker;
use crate::worker::ledger::{Account, Charge, Work};
use crate::worker::shared::{Shared, forget_if_gone};
use crate::worker::token::{Kind, token};

/// That a request may read now.
pub(crate) enum Admission {
    /// On the worker: it is charged to this turn.
    Read,
    /// On a helper thread.
    Copy(Permit),
}

/// The right to copy one file; it is given back when it is dropped.
pub(crate) struct Permit {
    lane: Lane,
    free: Rc<Cell<usize>>,
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.free.set(self.free.get() + 1);
    }
}

/// Where a file to be copied is, or a directory to be listed. A file system that hangs holds up only those who wait for it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Lane {
    /// On a disk of this machine.
    Own,
    /// On a file system of another machine or process.
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

/// The copies of one lane.
struct Copies {
    /// For so many more there is room.
    free: Rc<Cell<usize>>,
    /// Deferred, in the order in which they were asked for.
    line: VecDeque<Token>,
}

impl Default for Copies {
    fn default() -> Self {
        Self {
            free: Rc::new(Cell::new(COPIES_AT_ONCE_MAX)),
            line: VecDeque::new(),
        }
    }
}

/// What a worker has to read for the first time.
#[derive(Default)]
pub(crate) struct FirstReads {
    /// Copies under way, by the number that their token carries.
    copying: [Option<Copying>; 2 * COPIES_AT_ONCE_MAX],
    /// Deferred with short files, in the order in which they were asked for. They have a line of
    /// their own, so that they do not wait behind long ones.
    reads: VecDeque<Token>,
    /// By lane.
    copies: [Copies; 2],
}

struct Copying {
    asker: Token,
    len: u64,
    charge: Charge,
    _permit: Permit,
}

impl Copying {
    /// What the asker is told. The copy is charged as long as anybody has it.
    fn ended(self, file: File) -> Disk {
        file.attach(self.charge);
        Disk::Copied(file)
    }
}

/// What came of an attempt to read.
pub(crate) enum FirstRead {
    /// The answer can be made.
    Ended(Filled),
    /// An answer has to be awaited.
    Awaited,
    /// The file has changed meanwhile: all has to be asked again.
    Changed,
}

impl FirstReads {
    /// Whether somebody can go on in the next turn.
    pub(crate) fn is_due(&self) -> bool {
        let can_copy = |copies: &Copies| !copies.line.is_empty() && copies.free.get() > 0;
        !self.reads.is_empty() || self.copies.iter().any(can_copy)
    }

    /// Bytes of the copies under way.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.copying.iter().flatten().map(|copy| copy.len).sum()
    }

    fn permit(&self, lane: Lane) -> Option<Permit> {
        let free = &self.copies[lane as usize].free;
        let left = free.get().checked_sub(1)?;
        free.set(left);
        let free = Rc::clone(free);
        Some(Permit { lane, free })
    }

    /// Those who are deferred with such files.
    fn line(&mut self, len: u64, lane: Lane) -> &mut VecDeque<Token> {
        match len <= SMALL_FILE_MAX {
            true => &mut self.reads,
            false => &mut self.copies[lane as usize].line,
        }
    }
}

impl<D: Driver> Shared<D> {
    /// Reads the content of one coding of a file whose metadata `fill` has found. What has to be
    /// awaited `asker` will be told.
    pub(crate) fn read_first(
        &mut self,
        fill: &mut Fill,
        (cached, coding): (Rc<Cached>, Coding),
        asker: Token,
    ) -> FirstRead {
        let Some(opened) = fill.take_unread(coding) else {
            debug_assert!(false, "what is unread was opened");
            return FirstRead::Ended(Filled::Error(Status::INTERNAL_SERVER_ERROR));
        };
        let len = opened.meta.len;
        if !self.ledger.has_room(Account::Copies, len) {
            // Peers hold as many copies as there may be: this one is sent from the file itself.
            cached.set_body(coding, CachedBody::live(opened.file, opened.meta));
            return FirstRead::Ended(Filled::File(cached, fill.status()));
        }
        let lane = Lane::of(&opened.file);
        let Some(admission) = self.admission(fill.take_admission(), len, lane) else {
            fill.start_over();
            let line = self.first_reads.line(len, lane);
            if line.len() == line.capacity() {
                // Before more memory is used.
                let (alive, asked) = (&self.alive, &mut self.asked);
                line.retain(|asker| !forget_if_gone(alive, asked, *asker));
            }
            line.push_back(asker);
            return FirstRead::Awaited;
        };
        let file = opened.file.clone();
        // Charged from now on, so that several cannot go beyond the bound together.
        let charge = match admission {
            Admission::Read => Some(self.ledger.charge(Account::Copies, len)),
            Admission::Copy(_) => None,
        };
        fill.await_content((cached, coding), opened, charge);
        self.counters.first_reads += 1;
        let started = match admission {
            Admission::Read => match self.driver.read(&file, 0, len as usize, asker) {
                Started::Now(read) => Some(read.map(Disk::Read)),
                Started::Pending => None,
            },
            Admission::Copy(permit) => self.copy_first(&file, len, asker, permit),
        };
        let Some(result) = started else {
            return FirstRead::Awaited;
        };
        match fill.content_read(&mut self.driver, result) {
            Some(filled) => FirstRead::Ended(filled),
            None => FirstRead::Changed,
        }
    }

    /// Whether a file of this length may be read now, by the admission that its request was given
    /// or because nobody is before it.
    fn admission(&mut self, given: Option<Admission>, len: u64, lane: Lane) -> Option<Admission> {
        let is_short = len <= SMALL_FILE_MAX;
        match given {
            Some(Admission::Copy(permit)) if !is_short && permit.lane == lane => {
                return Some(Admission::Copy(permit));
            }
            Some(Admission::Read) if is_short => return Some(Admission::Read),
            // It is another file by now.
            Some(_) | None => {}
        }
        if !self.first_reads.line(len, lane).is_empty() {
            return None;
        }
        match is_short {
            true => self.budget.take(Work::Read, len).then_some(Admission::Read),
            false => self.first_reads.permit(lane).map(Admission::Copy),
        }
    }

    fn copy_first(
        &mut self,
        file: &File,
        len: u64,
        asker: Token,
        permit: Permit,
    ) -> Option<Result<Disk, Errno>> {
        let copying = &mut self.first_reads.copying;
        let place = copying.iter().position(Option::is_none);
        let place = place.expect("there are as many places as permits");
        // Charged from now on, so that several copies cannot go beyond the bound together.
        let charge = self.ledger.charge(Account::Copies, len);
        copying[place] = Some(Copying {
            asker,
            len,
            charge,
            _permit: permit,
        });
        let token = token(Kind::FirstRead, place as u32);
        match self.driver.copy(file, len, token) {
            Started::Pending => None,
            Started::Now(copied) => {
                let copying = self.first_reads.copying[place].take()?;
                Some(copied.map(|file| copying.ended(file)))
            }
        }
    }
}

impl<D: Driver> Worker<D> {
    /// A file was copied, or could not be.
    pub(crate) fn first_read_ended(&mut self, place: u32, result: Result<Done, Errno>) {
        let place = self.shared.first_reads.copying.get_mut(place as usize);
        let Some(copying) = place.and_then(Option::take) else {
            return;
        };
        let asker = copying.asker;
        let told = result.and_then(|done| match done {
            Done::Copied(file) => Ok(copying.ended(file)),
            _ => Err(Errno::IO),
        });
        self.tell(asker, told);
    }

    /// Lets those go on who were deferred, as far as there is room. Skips closed connections.
    pub(crate) fn admit_first_reads(&mut self) {
        let waiting = self.shared.first_reads.reads.len();
        for _ in 0..waiting {
            if !self.shared.budget.has_left(Work::Read) {
                break;
            }
            let Some(asker) = self.shared.first_reads.reads.pop_front() else {
                break;
            };
            // The longest that it can be; its length is known when it is opened.
            if !self.shared.forget_if_gone(asker) {
                self.shared.budget.take(Work::Read, SMALL_FILE_MAX);
                self.tell(asker, Ok(Disk::Admitted(Admission::Read)));
            }
        }
        for lane in Lane::BOTH {
            self.admit_copies(lane);
        }
    }

    fn admit_copies(&mut self, lane: Lane) {
        let waiting = self.shared.first_reads.copies[lane as usize].line.len();
        for _ in 0..waiting {
            if !self.shared.budget.has_left(Work::Lookup) {
                return;
            }
            let Some(permit) = self.shared.first_reads.permit(lane) else {
                return;
            };
            let line = &mut self.shared.first_reads.copies[lane as usize].line;
            let Some(asker) = line.pop_front() else {
                return;
            };
            if !self.shared.forget_if_gone(asker) {
                self.shared.budget.take(Work::Lookup, 1);
                self.tell(asker, Ok(Disk::Admitted(Admission::Copy(permit))));
            }
        }
    }
}
