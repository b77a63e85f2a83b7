//! Disk operations for streams of HTTP/2 and HTTP/3: lookups of paths and reads of content, several per
//! connection at once. And slices of files that were read for responses of any version, among them reading
//! again what was sent of a file that has grown meanwhile ([`growing`](crate::release::growing)): all responses
//! of a worker share a budget for that in each turn, and those that exceed it wait in a line.
//!
//! A connection has a [`DiskQueue`]: requests that need a lookup wait for room, several lookups and reads are
//! in progress at once, and each completion continues its stream. A hung disk is subject to the same timeout as
//! a stalled peer; then the stream is reset. Its operations stay in flight until they complete, and count
//! against the connection's bounds until then.

use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;

use gannet_http::semantics::status::Status;
use gannet_io::driver::{Driver, Errno, Started, Token};

use crate::bounds::ledger::Work;
use crate::bounds::limits::{GROWING_WAITS_MAX, STREAM_ASKED_MAX};
use crate::config::supply::{Supplied, SupplyReply};
use crate::exchange::fetching::{COUNTED, Fetched, FetchedPart};
use crate::exchange::shared::Shared;
use crate::exchange::waiters::Line;
use crate::exchange::waiting::{Found, WaitingRequest};
use crate::ground::alive::Alive;
use crate::ground::token::{ConnId, Kind, token};
use crate::release::ServedFile;
use crate::release::bodies::Load;
use crate::release::growing::{Growing, SliceTaken};
use crate::release::partial::PartialView;
use crate::release::wakeup::Wakeup;

/// Pending operations, by the number in their tokens. Each completes exactly once, whatever happens
/// to the stream; its number is free again afterwards.
#[derive(Default)]
pub(crate) struct StreamWaits {
    questions: Vec<Option<Question>>,
    /// The connections that have reserved the numbers.
    owners: Vec<ConnId>,
    free: Vec<u32>,
}

/// A pending operation and its owner.
pub(crate) struct Question {
    pub(crate) conn: ConnId,
    /// The stream's number, in any version.
    pub(crate) stream: u64,
    pub(crate) what: What,
}

/// The kind of operation.
pub(crate) enum What {
    /// The lookup of a request.
    Lookup(Box<WaitingRequest>),
    /// A read of this many bytes of a file.
    Read(Rc<ServedFile>, usize),
}

impl StreamWaits {
    /// Reserves an unused number.
    pub(crate) fn reserve(&mut self, owner: ConnId) -> u32 {
        if let Some(number) = self.free.pop() {
            self.owners[number as usize] = owner;
            return number;
        }
        self.questions.push(None);
        self.owners.push(owner);
        u32::try_from(self.questions.len() - 1).expect("connections and their streams are bounded")
    }

    /// Records an operation under a reserved number.
    pub(crate) fn ask(&mut self, number: u32, question: Question) {
        self.questions[number as usize] = Some(question);
    }

    /// Forgets an operation whose connection is gone; returns whether it is.
    pub(crate) fn forget_if_gone(&mut self, alive: &Alive, number: u32) -> bool {
        let question = self.questions.get(number as usize).and_then(Option::as_ref);
        let is_gone = question.is_none_or(|question| !alive.has(question.conn));
        if is_gone {
            self.take(number);
        }
        is_gone
    }

    /// The connection that has reserved a number.
    pub(crate) fn owner(&self, number: u32) -> ConnId {
        self.owners[number as usize]
    }

    /// Frees a number without an operation.
    pub(crate) fn release(&mut self, number: u32) {
        self.free.push(number);
    }

    /// Takes an operation and frees its number.
    pub(crate) fn take(&mut self, number: u32) -> Option<Question> {
        let question = self.questions.get_mut(number as usize)?.take()?;
        self.free.push(number);
        Some(question)
    }
}

impl<D: Driver> Shared<D> {
    /// Continues a lookup for a stream of a connection; `None` if an operation is pending.
    pub(crate) fn look_up_for(
        &mut self,
        (conn, stream): (ConnId, u64),
        mut waiting: Box<WaitingRequest>,
        wakeup: Option<Result<Wakeup, Errno>>,
    ) -> Option<(Box<WaitingRequest>, Found)> {
        let number = self.waiters.streams.reserve(conn);
        let waiter = token(Kind::StreamDisk, number);
        if let Some(found) = self.find_out(&mut waiting, waiter, wakeup) {
            self.waiters.streams.release(number);
            return Some((waiting, found));
        }
        let what = What::Lookup(waiting);
        let question = Question { conn, stream, what };
        self.waiters.streams.ask(number, question);
        None
    }

    /// Reads `len` bytes of a file from `offset` for a stream, which is woken if that is pending.
    pub(crate) fn read_for(
        &mut self,
        (conn, stream): (ConnId, u64),
        file: &Rc<ServedFile>,
        (offset, len): (u64, usize),
    ) -> SliceRead {
        let number = self.waiters.streams.reserve(conn);
        let waiter = token(Kind::StreamDisk, number);
        let range = offset..offset + len as u64;
        let slice = match self.read_slice(file, range, waiter) {
            Started::Now(result) => self.slice_read((file, len), result.map(Wakeup::Read), waiter),
            Started::Pending => SliceRead::Awaited,
        };
        self.keep_read((conn, stream), (file, len), number, slice)
    }

    /// Takes the result of a read for a stream that was woken.
    pub(crate) fn was_read_for(
        &mut self,
        (conn, stream): (ConnId, u64),
        (file, len): (&Rc<ServedFile>, usize),
        wakeup: Result<Wakeup, Errno>,
    ) -> SliceRead {
        let number = self.waiters.streams.reserve(conn);
        let waiter = token(Kind::StreamDisk, number);
        let slice = self.slice_read((file, len), wakeup, waiter);
        self.keep_read((conn, stream), (file, len), number, slice)
    }

    /// Keeps a read that is pending under its number, which is free otherwise.
    fn keep_read(
        &mut self,
        (conn, stream): (ConnId, u64),
        (file, len): (&Rc<ServedFile>, usize),
        number: u32,
        slice: SliceRead,
    ) -> SliceRead {
        match slice {
            SliceRead::Awaited | SliceRead::LengthAwaited => {
                let what = What::Read(Rc::clone(file), len);
                let question = Question { conn, stream, what };
                self.waiters.streams.ask(number, question);
            }
            SliceRead::Read(_) | SliceRead::Lost => self.waiters.streams.release(number),
        }
        slice
    }
}

/// The bytes to send of a slice.
pub(crate) enum SliceRead {
    /// All of it.
    Read(Vec<u8>),
    /// Those are read again first: the waiter is woken for the next step.
    Awaited,
    /// The same without any read, until a write has set the file's length: the waiter is woken by
    /// [`Wakeup::Again`].
    LengthAwaited,
    /// The read failed, the file is shorter than announced, or holds another version now.
    Lost,
}

impl<D: Driver> Shared<D> {
    /// Takes the result of reading `len` bytes of a file for a response.
    pub(crate) fn slice_read(
        &mut self,
        (file, len): (&ServedFile, usize),
        mut wakeup: Result<Wakeup, Errno>,
        waiter: Token,
    ) -> SliceRead {
        if let Ok(Wakeup::Again) = wakeup {
            let held = file.growth().and_then(Growing::held);
            wakeup = held.map(Wakeup::Read).ok_or(Errno::AGAIN);
        }
        loop {
            let again = match wakeup {
                Ok(Wakeup::Read(bytes)) => match file.take((bytes, len), &self.driver) {
                    SliceTaken::Send(bytes) => return SliceRead::Read(bytes),
                    SliceTaken::ReadAgain(bytes) => {
                        self.driver.give_back(bytes);
                        let next = file.next();
                        let len = next.map_or(0, |next| next.end - next.start);
                        if !self.may_reread(len) {
                            self.rereads.push(waiter, &mut self.waiters);
                            return SliceRead::Awaited;
                        }
                        true
                    }
                    SliceTaken::Wait if self.lengths.0.len() < GROWING_WAITS_MAX => {
                        self.lengths.push(waiter, &mut self.waiters);
                        return SliceRead::LengthAwaited;
                    }
                    SliceTaken::Wait | SliceTaken::Changed => false,
                },
                Ok(Wakeup::Admitted | Wakeup::Fetched(Ok(()))) => true,
                Ok(_) | Err(Errno::AGAIN) => false,
                Err(errno) => {
                    self.note_cut_short(Some(file), errno);
                    false
                }
            };
            let Some(next) = file.next().filter(|_| again) else {
                self.counters.cut_short += 1;
                return SliceRead::Lost;
            };
            if file.growth().is_some() {
                self.counters.reread += next.end - next.start;
            }
            match self.read_slice(file, next, waiter) {
                Started::Now(result) => wakeup = result.map(Wakeup::Read),
                Started::Pending => return SliceRead::Awaited,
            }
        }
    }

    /// Whether `len` bytes may be read again now: no other response waits for that, and the budget allows it.
    fn may_reread(&mut self, len: u64) -> bool {
        self.rereads.0.is_empty() && self.budget.take(Work::Reread, len)
    }
}

impl<D: Driver> Shared<D> {
    /// Reads a range of a file for a response. What is not here is fetched first, and the waiter woken by
    /// [`Wakeup::Fetched`](crate::release::wakeup::Wakeup::Fetched).
    pub(crate) fn read_slice(
        &mut self,
        file: &ServedFile,
        range: Range<u64>,
        waiter: Token,
    ) -> Started<Vec<u8>> {
        if let Some(partial) = &file.partial {
            match partial.begin(range.clone()) {
                Ok(true) if partial.is_first_read() => self.use_part(partial, &range),
                Ok(true) => {}
                Ok(false) if self.fetch(partial, &range, (waiter, true)) => {
                    return Started::Pending;
                }
                _ => return Started::Now(Err(Errno::AGAIN)),
            }
            let ahead = || Some(partial.part(&partial.ahead()?));
            let conn = self.waiters.connection_of(waiter);
            self.fetching.ask_ahead((self.driver.now(), conn), ahead);
        }
        let len = (range.end - range.start) as usize;
        self.driver.read(&file.file, range.start, len, waiter)
    }

    /// Has `waiter` wait for a range that is not here; false if too many are requested, or it cannot be.
    pub(crate) fn fetch(
        &mut self,
        partial: &PartialView,
        range: &Range<u64>,
        (waiter, has_begun): (Token, bool),
    ) -> bool {
        let part = partial.part(range);
        let client = self.waiters.connection_of(waiter);
        let fetching = &mut self.fetching;
        let client = fetching.clients.get(&client).copied();
        let number = fetching.numbers.get(&part).copied();
        let number = number.unwrap_or_else(|| {
            fetching.next += 1;
            (self.settings.number as u64) << COUNTED | fetching.next
        });
        let since = self.driver.now();
        if !fetching.asked.contains_key(&number) {
            // Who has left still counts for its client: the process that fetches does not know of it.
            if fetching.is_full(has_begun) {
                let waiters = &mut self.waiters;
                fetching.forget_unawaited(since, |waiter| waiters.forget_if_gone(waiter));
            }
            if !fetching.has_room(client, has_begun) || !fetching.ask(&part, number, client) {
                self.counters.supply.count(Supplied::Refused);
                return false;
            }
            fetching.numbers.insert(part.clone(), number);
        }
        let asked = fetching.asked.entry(number);
        let asked = asked.or_insert_with(|| FetchedPart {
            part,
            client,
            since,
            waiters: VecDeque::new(),
        });
        let mut line = Line(std::mem::take(&mut asked.waiters));
        line.push(waiter, &mut self.waiters);
        asked.waiters = line.0;
        true
    }

    /// Counts a range that was here, and says so.
    pub(crate) fn use_part(&mut self, partial: &PartialView, range: &Range<u64>) {
        self.counters.supply.hits += 1;
        let now = self.driver.now();
        self.fetching.note_use(partial.part(range), now);
    }

    /// The same of what is loaded.
    pub(crate) fn use_load(&mut self, load: &Load) {
        if let Some((partial, range)) = load.part() {
            self.use_part(partial, &range);
        }
    }

    /// Takes an answer; `None` if no request waits for it, or no longer.
    pub(crate) fn fetched(&mut self, reply: SupplyReply) -> Option<Fetched> {
        self.counters.supply.bytes += reply.fetched;
        self.counters.supply.unverified += reply.unverified;
        let FetchedPart { since, waiters, .. } = self.fetching.take(reply.number)?;
        let took = self.driver.now().0.saturating_sub(since.0);
        if let Some(measures) = &mut self.counters.measures {
            measures.fetched(took);
        }
        self.counters.supply.count(reply.supplied);
        let result = match reply.supplied {
            Supplied::Present => Ok(()),
            Supplied::Damaged => Err(Status::BAD_GATEWAY),
            _ => Err(Status::SERVICE_UNAVAILABLE),
        };
        Some(Fetched { waiters, result })
    }

    /// The next part that was asked for too long ago.
    pub(crate) fn late_fetch(&mut self) -> Option<Fetched> {
        let now = self.driver.now();
        self.fetching.due().filter(|at| *at <= now)?;
        let number = *self.fetching.asked.first_key_value()?.0;
        let FetchedPart { waiters, .. } = self.fetching.take(number)?;
        self.counters.supply.count(Supplied::Late);
        let result = Err(Status::SERVICE_UNAVAILABLE);
        Some(Fetched { waiters, result })
    }
}

/// The result of an operation.
type Woken = Result<Wakeup, Errno>;
/// A request that has to wait for something else.
pub(crate) type Next = Option<Box<WaitingRequest>>;

/// What a connection's streams wait for, by their numbers.
#[derive(Default)]
pub(crate) struct DiskQueue {
    /// Requests whose lookup has not been started.
    pub(crate) missed: Vec<(u64, Box<WaitingRequest>)>,
    /// Lookups and reads in progress, including those of streams that have ended.
    pub(crate) asked: u32,
    /// How many of them are reads of content.
    pub(crate) reads: u32,
    /// How many of them wait for the length of a file that is being written: not for the disk, so others read.
    pub(crate) lengths: u32,
    /// Bytes of the heads for which the lookups in progress need room, at most.
    pub(crate) heads: u64,
}

impl DiskQueue {
    /// Whether no operation is in progress or waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.asked == 0 && self.missed.is_empty()
    }

    /// Whether [`STREAM_ASKED_MAX`] requests and reads wait for the disk.
    pub(crate) fn is_full(&self) -> bool {
        self.asked as usize + self.missed.len() >= STREAM_ASKED_MAX as usize
    }

    /// The requests that wait.
    pub(crate) fn requests(&self) -> usize {
        self.asked.saturating_sub(self.reads + self.lengths) as usize + self.missed.len()
    }

    /// Drops the request of a stream if its lookup has not been started.
    pub(crate) fn forget(&mut self, stream: u64) {
        self.missed.retain(|(missed, _)| *missed != stream);
    }
}

/// A connection whose streams wait for the disk.
pub(crate) trait DiskStreams<D: Driver> {
    /// The connection and its worker.
    fn parts(&mut self) -> (ConnId, &mut Shared<D>);

    /// Its queue; `None` if it has no streams any more.
    fn queue(&mut self) -> Option<&mut DiskQueue>;

    /// Whether there is room for an answer whose head has at most this length.
    fn has_room_for(&self, head: u64) -> bool;

    /// Whether a stream still needs its response.
    fn is_open(&mut self, stream: u64) -> bool;

    /// Answers a request, or returns it if it has to wait for something else.
    fn answer_found(&mut self, stream: u64, waiting: &WaitingRequest, found: Found) -> Next;

    /// A stream's lookup, or a read of its content, is in progress from now on.
    fn begin_wait(&mut self, stream: u64, is_read: bool);

    /// Takes content that was read for a stream. Without any, it could not be read, and the stream
    /// ends short of its announced length.
    fn end_read(&mut self, stream: u64, bytes: Option<Vec<u8>>);

    /// Starts the lookups of requests that cannot be answered from memory, in their order, as long as
    /// there is room for the heads of their answers.
    fn ask_missed(&mut self) {
        let missed = self.queue().map(|queue| std::mem::take(&mut queue.missed));
        let mut missed = missed.unwrap_or_default().into_iter();
        while let Some((stream, waiting)) = missed.next() {
            let has_room = self.has_room_for(waiting.head_len_max());
            let Some(queue) = self.queue() else {
                return;
            };
            if !has_room {
                queue.missed.push((stream, waiting));
                queue.missed.extend(missed);
                return;
            }
            self.look_up(stream, waiting, None);
        }
    }

    /// Continues a lookup until it is pending, or the request can be answered.
    fn look_up(&mut self, stream: u64, mut waiting: Box<WaitingRequest>, mut woken: Option<Woken>) {
        loop {
            let head = waiting.head_len_max();
            let (conn, shared) = self.parts();
            let looked_up = shared.look_up_for((conn, stream), waiting, woken.take());
            let Some((known, found)) = looked_up else {
                if let Some(queue) = self.queue() {
                    queue.heads += head;
                    queue.asked += 1;
                    self.begin_wait(stream, false);
                }
                return;
            };
            let Some(next) = self.answer_found(stream, &known, found) else {
                return;
            };
            // Its site was not known before, or its password: its head may be longer now.
            let has_room = self.has_room_for(next.head_len_max());
            match self.queue() {
                Some(queue) if !has_room => return queue.missed.push((stream, next)),
                _ => waiting = next,
            }
        }
    }

    /// Reads `len` bytes of a stream's content from `offset`. Returns whether that has completed; if
    /// not, the stream waits while others continue.
    fn read(&mut self, stream: u64, file: &Rc<ServedFile>, (offset, len): (u64, usize)) -> bool {
        let (conn, shared) = self.parts();
        let slice = shared.read_for((conn, stream), file, (offset, len));
        let has_ended = matches!(slice, SliceRead::Read(_) | SliceRead::Lost);
        self.was_read(stream, slice);
        has_ended
    }

    /// Takes the result of a read.
    fn was_read(&mut self, stream: u64, slice: SliceRead) {
        match slice {
            SliceRead::Read(bytes) => self.end_read(stream, Some(bytes)),
            SliceRead::Awaited | SliceRead::LengthAwaited => {
                let is_read = matches!(slice, SliceRead::Awaited);
                if let Some(queue) = self.queue() {
                    queue.reads += u32::from(is_read);
                    queue.lengths += u32::from(!is_read);
                    queue.asked += 1;
                    self.begin_wait(stream, true);
                }
            }
            SliceRead::Lost => self.end_read(stream, None),
        }
    }

    /// Continues a stream whose lookup or read has completed. One that was reset, or given up, needs no
    /// further operation.
    fn continue_stream(&mut self, question: Question, woken: Woken) {
        let Question { stream, what, .. } = question;
        let is_open = self.is_open(stream);
        let Some(queue) = self.queue() else {
            return;
        };
        queue.asked = queue.asked.saturating_sub(1);
        match what {
            What::Lookup(waiting) => {
                queue.heads -= waiting.head_len_max();
                if is_open {
                    self.look_up(stream, waiting, Some(woken));
                }
            }
            What::Read(file, len) => {
                match woken {
                    Ok(Wakeup::Again) => queue.lengths = queue.lengths.saturating_sub(1),
                    _ => queue.reads = queue.reads.saturating_sub(1),
                }
                if is_open {
                    let (conn, shared) = self.parts();
                    let slice = shared.was_read_for((conn, stream), (&file, len), woken);
                    self.was_read(stream, slice);
                }
            }
        }
    }
}
