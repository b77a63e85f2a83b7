//! Disk operations for HTTP/2 streams: lookups of paths and reads of content, several per
//! connection at once.
//!
//! A hung disk is subject to the same timeout as a stalled peer; then the stream is reset
//! (`Connection::handle_timeout`). Its operations stay in flight until they complete, and count
//! against the connection's bounds until then.

use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;

use gannet_http::h2::{ErrorCode, StreamId, Time};
use gannet_io::driver::{Driver, Errno, Started};

use super::{Active, Alive, ConnId};
use crate::exchange::Wakeup;
use crate::exchange::answering::Reply;
use crate::exchange::waiting::{Found, WaitingRequest};
use crate::limits::STREAM_READS_MAX;
use crate::release::ServedFile;
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

    /// Bytes of the waiting requests, by connection.
    pub(crate) fn held_bytes(&self) -> HashMap<ConnId, u64> {
        let mut held = HashMap::new();
        for question in self.questions.iter().flatten() {
            if let What::Lookup(waiting) = &question.what {
                *held.entry(question.conn).or_default() += waiting.memory();
            }
        }
        held
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
        wakeup: Option<Result<Wakeup, Errno>>,
    ) {
        let number = self.shared.waiters.streams.reserve();
        let waiter = token(Kind::StreamDisk, number);
        match self.shared.find_out(&mut waiting, waiter, wakeup) {
            Some(found) => {
                self.shared.waiters.streams.release(number);
                self.answer_looked_up(stream, &waiting, found);
            }
            None => self.ask_for_stream(stream, number, What::Lookup(waiting)),
        }
    }

    /// Records a pending operation of a stream.
    fn ask_for_stream(&mut self, stream: StreamId, number: u32, what: What) {
        let now = self.shared.driver.now();
        let conn = &mut *self.conn;
        let question = Question {
            conn: conn.id,
            stream: u64::from(stream.0),
            what,
        };
        self.shared.waiters.streams.ask(number, question);
        if let Some(streams) = conn.protocol.streams_mut() {
            streams.asked += 1;
            streams.connection.defer(stream, Time(now.0));
        }
    }

    fn answer_looked_up(&mut self, stream: StreamId, waiting: &WaitingRequest, found: Found) {
        let mut out = self.stream_output();
        let is_secure = self.conn.is_secure();
        let Some(streams) = self.conn.protocol.streams_mut() else {
            return;
        };
        let mut pump = self.shared.pump(is_secure, Some(waiting.release()));
        let reply = Reply::H2(streams, stream);
        let answered = waiting.answer(reply, &pump.turn, found, &mut out);
        pump.done_stream(streams, stream, &waiting.request(), answered);
        streams.out = Some(out);
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
        let number = self.shared.waiters.streams.reserve();
        let waiter = token(Kind::StreamDisk, number);
        match self
            .shared
            .driver
            .read(&file.file, range.start, len, waiter)
        {
            Started::Now(result) => {
                self.shared.waiters.streams.release(number);
                self.stream_read(stream, &file, len, result);
            }
            Started::Pending => {
                streams.connection.pause(stream);
                streams.reads += 1;
                self.ask_for_stream(stream, number, What::Read(file, len));
            }
        }
    }

    /// Handles content that was read, or could not be: then the stream ends short of its length.
    fn stream_read(
        &mut self,
        stream: StreamId,
        file: &ServedFile,
        len: usize,
        result: Result<Vec<u8>, Errno>,
    ) {
        // The file may have become shorter than announced, or hold another version now.
        let is_same = file.is_unchanged(&self.shared.driver);
        let Some(streams) = self.conn.protocol.streams_mut() else {
            return;
        };
        match result {
            Ok(bytes) if is_same && bytes.len() == len => {
                streams.read(stream, bytes);
            }
            _ => {
                self.shared.counters.cut_short += 1;
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
                let bytes = wakeup.and_then(|disk| match disk {
                    Wakeup::Read(bytes) => Ok(bytes),
                    _ => Err(Errno::IO),
                });
                if is_open {
                    self.stream_read(stream, &file, len, bytes);
                }
            }
        }
        self.go_on_streams();
    }
}
