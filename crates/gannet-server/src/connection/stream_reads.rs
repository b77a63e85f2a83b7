//! Disk operations for streams: lookups of paths and reads of content, several per connection at
//! once. The first part is shared by HTTP/2 and HTTP/3; the second is HTTP/2's, and that of HTTP/3
//! is in `quic/reads`.
//!
//! A hung disk is subject to the same timeout as a stalled peer; then the stream is reset. Its
//! operations stay in flight until they complete, and count against the connection's bounds until
//! then.

use std::ops::Range;
use std::rc::Rc;

use gannet_http::h2::{ErrorCode, StreamId, Time};
use gannet_io::driver::{Driver, Errno, Started};

use super::{Active, Alive};
use crate::bounds::limits::STREAM_READS_MAX;
use crate::exchange::answering::Reply;
use crate::exchange::waiting::{Found, WaitingRequest};
use crate::release::ServedFile;
use crate::release::wakeup::Wakeup;
use crate::worker::shared::Shared;
use crate::worker::token::ConnId;
use crate::worker::token::{Kind, token};

/// Pending operations, by the number in their tokens. Each completes exactly once, whatever happens
/// to the stream; its number is free again afterwards.
#[derive(Default)]
pub(crate) struct StreamWaits {
    questions: Vec<Option<Question>>,
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
    pub(crate) fn reserve(&mut self) -> u32 {
        if let Some(number) = self.free.pop() {
            return number;
        }
        self.questions.push(None);
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
        let number = self.waiters.streams.reserve();
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

    /// Reads `len` bytes of a file from `offset` for a stream; `None` if the operation is pending.
    pub(crate) fn read_for(
        &mut self,
        (conn, stream): (ConnId, u64),
        file: &Rc<ServedFile>,
        (offset, len): (u64, usize),
    ) -> Option<Result<Wakeup, Errno>> {
        let number = self.waiters.streams.reserve();
        let waiter = token(Kind::StreamDisk, number);
        match self.driver.read(&file.file, offset, len, waiter) {
            Started::Now(result) => {
                self.waiters.streams.release(number);
                Some(result.map(Wakeup::Read))
            }
            Started::Pending => {
                let what = What::Read(Rc::clone(file), len);
                let question = Question { conn, stream, what };
                self.waiters.streams.ask(number, question);
                None
            }
        }
    }

    /// The bytes of a completed read of `len` bytes; `None` if it failed. The file may have become
    /// shorter than announced, or hold another version now.
    pub(crate) fn bytes_read(
        &mut self,
        (file, len): (&ServedFile, usize),
        wakeup: Result<Wakeup, Errno>,
    ) -> Option<Vec<u8>> {
        let is_same = file.is_unchanged(&self.driver);
        match wakeup {
            Ok(Wakeup::Read(bytes)) if is_same && bytes.len() == len => Some(bytes),
            _ => {
                self.counters.cut_short += 1;
                None
            }
        }
    }
}

impl<D: Driver> Active<'_, D> {
    /// Starts lookups for requests that need more than memory.
    pub(super) fn ask_missed(&mut self) {
        let streams = self.conn.protocol.streams_mut();
        let Some(streams) = streams.filter(|streams| !streams.missed.is_empty()) else {
            return;
        };
        let missed = std::mem::take(&mut streams.missed);
        for (stream, waiting) in missed {
            self.look_up(stream, waiting, None);
        }
    }

    /// Continues a lookup until it is pending, or the request can be answered.
    fn look_up(
        &mut self,
        stream: StreamId,
        mut waiting: Box<WaitingRequest>,
        mut wakeup: Option<Result<Wakeup, Errno>>,
    ) {
        let waiter = (self.conn.id, u64::from(stream.0));
        loop {
            let Some((known, found)) = self.shared.look_up_for(waiter, waiting, wakeup.take())
            else {
                break;
            };
            match self.answer_looked_up(stream, &known, found) {
                Some(next) => waiting = next,
                None => return,
            }
        }
        if let Some(streams) = self.conn.protocol.streams_mut() {
            streams.await_disk(stream, self.shared.driver.now());
        }
    }

    /// Answers a request, or returns it if it has to wait for something else.
    fn answer_looked_up(
        &mut self,
        stream: StreamId,
        waiting: &WaitingRequest,
        found: Found,
    ) -> Option<Box<WaitingRequest>> {
        let mut out = self.stream_output();
        let is_secure = self.conn.is_secure();
        let streams = self.conn.protocol.streams_mut()?;
        let mut pump = self.shared.pump(is_secure, Some(waiting.release()));
        let reply = Reply::H2(streams, stream);
        let answered = pump.answer_waiting(reply, waiting, found, &mut out);
        self.shared.driver.give_back(std::mem::take(&mut out.spare));
        streams.out = Some(out);
        match answered {
            Ok(record) => {
                streams.note(stream, record);
                None
            }
            Err(next) => Some(next),
        }
    }

    /// Reads the next bytes of a stream's content. Other streams continue meanwhile.
    pub(super) fn read_for_stream(
        &mut self,
        stream: StreamId,
        file: Rc<ServedFile>,
        range: Range<u64>,
    ) {
        let now = self.shared.driver.now();
        let Some(streams) = self.conn.protocol.streams_mut() else {
            return;
        };
        if streams.reads >= STREAM_READS_MAX {
            streams.connection.pause(stream);
            streams.connection.defer(stream, Time(now.0));
            streams.waiting.push(stream);
            return;
        }
        let len = (range.end - range.start) as usize;
        let waiter = (self.conn.id, u64::from(stream.0));
        match self.shared.read_for(waiter, &file, (range.start, len)) {
            Some(wakeup) => self.stream_read(stream, (&file, len), wakeup),
            None => {
                streams.connection.pause(stream);
                streams.reads += 1;
                streams.await_disk(stream, now);
            }
        }
    }

    /// Handles content that was read, or could not be: then the stream ends short of its length.
    fn stream_read(
        &mut self,
        stream: StreamId,
        read: (&ServedFile, usize),
        wakeup: Result<Wakeup, Errno>,
    ) {
        let Some(streams) = self.conn.protocol.streams_mut() else {
            return;
        };
        match self.shared.bytes_read(read, wakeup) {
            Some(bytes) => streams.read(stream, bytes),
            None => {
                streams.connection.abort(stream, ErrorCode::INTERNAL_ERROR);
                let record = streams.forget(stream);
                streams.cut.extend(record);
            }
        }
    }

    /// Handles the completion of a stream's operation.
    pub(crate) fn stream_woken(&mut self, question: Question, wakeup: Result<Wakeup, Errno>) {
        let Question { stream, what, .. } = question;
        let stream = StreamId(u32::try_from(stream).expect("it was made of one"));
        let Some(streams) = self.conn.protocol.streams_mut() else {
            return;
        };
        streams.asked -= 1;
        let is_open = streams.connection.is_open(stream);
        match what {
            // A stream that was reset, or given up, needs no further operation.
            What::Lookup(_) if !is_open => {}
            What::Lookup(waiting) => {
                self.look_up(stream, waiting, Some(wakeup));
            }
            What::Read(file, len) => {
                streams.reads -= 1;
                streams.connection.resume(stream);
                for waiting in streams.waiting.drain(..) {
                    streams.connection.resume(waiting);
                }
                if is_open {
                    self.stream_read(stream, (&file, len), wakeup);
                }
            }
        }
        self.go_on_streams();
    }
}
