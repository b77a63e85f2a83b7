//! The disk operations of a connection with streams, of HTTP/2 and HTTP/3: requests that need a lookup wait
//! for room, several lookups and reads are in progress at once, and each completion continues its stream.
//!
//! A hung disk is subject to the same timeout as a stalled peer; then the stream is reset. Its
//! operations stay in flight until they complete, and count against the connection's bounds until
//! then.

use std::rc::Rc;

use gannet_io::driver::{Driver, Errno};

use crate::bounds::limits::STREAM_ASKED_MAX;
use crate::exchange::shared::Shared;
use crate::exchange::stream_waits::{Question, SliceRead, What};
use crate::exchange::waiting::{Found, WaitingRequest};
use crate::ground::token::ConnId;
use crate::release::ServedFile;
use crate::release::wakeup::Wakeup;

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
        self.asked.saturating_sub(self.reads) as usize + self.missed.len()
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
        let has_ended = !matches!(slice, SliceRead::Awaited);
        self.was_read(stream, slice);
        has_ended
    }

    /// Takes the result of a read.
    fn was_read(&mut self, stream: u64, slice: SliceRead) {
        match slice {
            SliceRead::Read(bytes) => self.end_read(stream, Some(bytes)),
            SliceRead::Awaited => {
                if let Some(queue) = self.queue() {
                    queue.reads += 1;
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
                queue.reads = queue.reads.saturating_sub(1);
                if is_open {
                    let (conn, shared) = self.parts();
                    let slice = shared.was_read_for((conn, stream), (&file, len), woken);
                    self.was_read(stream, slice);
                }
            }
        }
    }
}
