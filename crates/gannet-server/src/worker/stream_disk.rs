//! The disk on behalf of HTTP/2 streams: lookups of paths and reads of content, several per
//! connection at once.
//!
//! A disk that hangs is waited for as long as a peer that takes nothing: then the machine resets
//! the stream (`Connection::handle_timeout`). What was asked stays in flight until it is answered,
//! and counts against the connection's bounds until then.

use std::ops::Range;
use std::rc::Rc;

use gannet_http::h2::{ErrorCode, StreamId, Time};
use gannet_http::semantics::kept::KeptRequest;
use gannet_io::driver::{Done, Driver, Errno, Started};

use super::disk::{Found, answer};
use super::receiving::{pump, turn};
use super::{Disk, Kind, Worker, token};
use crate::conn::Waits;
use crate::limits::STREAM_READS_MAX;
use crate::pump::Pump;
use crate::serve::{Reply, Turn};
use crate::site::ServedFile;

/// Questions that the disk has not answered yet, by a number that their tokens carry. Each is
/// answered exactly once, whatever becomes of the stream; so a number is free again after that.
#[derive(Default)]
pub(super) struct Asked {
    questions: Vec<Option<Question>>,
    free: Vec<u32>,
}

struct Question {
    /// The connection.
    slot: u32,
    generation: u32,
    stream: StreamId,
    what: What,
}

enum What {
    Lookup(Box<Waiting>),
    Read(Rc<ServedFile>, usize),
}

/// A request that waits for the disk.
struct Waiting {
    request: KeptRequest,
    waits: Waits,
}

impl Asked {
    /// A number that is not in use.
    fn reserve(&mut self) -> u32 {
        if let Some(number) = self.free.pop() {
            return number;
        }
        self.questions.push(None);
        u32::try_from(self.questions.len() - 1).expect("connections and their streams are bounded")
    }

    fn ask(&mut self, number: u32, question: Question) {
        self.questions[number as usize] = Some(question);
    }

    /// Frees the number.
    fn take(&mut self, number: u32) -> Option<Question> {
        self.free.push(number);
        self.questions[number as usize].take()
    }
}

impl<D: Driver> Worker<D> {
    /// Asks the disk on behalf of requests that memory does not answer.
    pub(super) fn ask_missed(&mut self, slot: u32) {
        let streams = self.conns.at(slot).streams.as_mut();
        let Some(streams) = streams.filter(|streams| !streams.missed.is_empty()) else {
            return;
        };
        let missed = std::mem::take(&mut streams.missed);
        let scheme = self.conns.at(slot).scheme();
        for (stream, request) in missed {
            let Some(waits) = self.waits(&request.as_request(), scheme) else {
                debug_assert!(false, "a site was selected and the path decoded before");
                continue;
            };
            let waiting = Box::new(Waiting { request, waits });
            self.look_up(slot, stream, waiting, None);
        }
    }

    /// Asks until an answer has to be awaited, or the request can be answered.
    fn look_up(
        &mut self,
        slot: u32,
        stream: StreamId,
        mut waiting: Box<Waiting>,
        told: Option<Result<Disk, Errno>>,
    ) {
        let number = self.stream_disk.reserve();
        let asker = token(Kind::StreamDisk, number, 0);
        match self.find_out(&mut waiting.waits, asker, told) {
            Some(found) => {
                self.stream_disk.take(number);
                self.answer_looked_up(slot, stream, &waiting, found);
            }
            None => self.ask_for_stream(slot, stream, number, What::Lookup(waiting)),
        }
    }

    /// A question was asked and will be answered later.
    fn ask_for_stream(&mut self, slot: u32, stream: StreamId, number: u32, what: What) {
        let now = self.driver.now();
        let conn = self.conns.at(slot);
        let question = Question {
            slot,
            generation: conn.generation,
            stream,
            what,
        };
        self.stream_disk.ask(number, question);
        if let Some(streams) = &mut conn.streams {
            streams.asked += 1;
            streams.connection.defer(stream, Time(now.0));
        }
    }

    fn answer_looked_up(&mut self, slot: u32, stream: StreamId, waiting: &Waiting, found: Found) {
        let mut out = self.stream_output(slot);
        let fields = self.settings.fields(self.conns.at(slot).is_secure());
        let turn = turn!(self, fields);
        let Some(streams) = &mut self.conns.at(slot).streams else {
            return;
        };
        let request = waiting.request.as_request();
        let is_early = streams.is_early;
        let found = (&waiting.waits, found);
        let mut pump = pump!(self, turn);
        let reply = Reply::H2(streams, stream);
        let answered = answer(&mut pump, reply, &request, is_early, found, &mut out);
        pump.done_stream(streams, stream, &request, answered);
        streams.out = Some(out);
    }

    /// Reads the next bytes of a stream's content. Other streams go on meanwhile.
    pub(super) fn read_for_stream(
        &mut self,
        slot: u32,
        stream: StreamId,
        file: Rc<ServedFile>,
        range: Range<u64>,
    ) {
        let now = self.driver.now();
        let Some(streams) = &mut self.conns.at(slot).streams else {
            return;
        };
        if streams.reads >= STREAM_READS_MAX {
            streams.connection.pause(stream);
            streams.connection.defer(stream, Time(now.0));
            streams.waiting.push(stream);
            return;
        }
        let len = (range.end - range.start) as usize;
        let number = self.stream_disk.reserve();
        let asker = token(Kind::StreamDisk, number, 0);
        match self.driver.read(&file.file, range.start, len, asker) {
            Started::Now(result) => {
                self.stream_disk.take(number);
                self.stream_read(slot, stream, &file, len, result);
            }
            Started::Pending => {
                streams.connection.pause(stream);
                streams.reads += 1;
                self.ask_for_stream(slot, stream, number, What::Read(file, len));
            }
        }
    }

    /// Content was read, or could not be: then the stream ends, short of its length.
    fn stream_read(
        &mut self,
        slot: u32,
        stream: StreamId,
        file: &ServedFile,
        len: usize,
        result: Result<Vec<u8>, Errno>,
    ) {
        // The file may have become shorter than announced, or hold another version by now.
        let is_same = file.meta.is_none()
            || self
                .driver
                .meta(&file.file)
                .is_ok_and(|now| file.is_same_version(&now));
        let Some(streams) = &mut self.conns.at(slot).streams else {
            return;
        };
        match result {
            Ok(bytes) if is_same && bytes.len() == len => {
                streams.read(stream, bytes);
            }
            _ => {
                self.counters.cut_short += 1;
                streams.connection.abort(stream, ErrorCode::INTERNAL_ERROR);
                let record = streams.forget(stream);
                streams.cut.extend(record);
            }
        }
    }

    /// An answer of the disk. If its connection is gone, it is dropped; with it the descriptor
    /// that it may hold.
    pub(super) fn stream_disk_answered(&mut self, number: u32, result: Result<Done, Errno>) {
        let told = result.and_then(|done| match done {
            Done::Opened(opened) => Ok(Disk::Opened(opened)),
            Done::Read(bytes) => Ok(Disk::Read(bytes)),
            Done::Listed(entries) => Ok(Disk::Listed(entries)),
            _ => Err(Errno::IO),
        });
        self.stream_disk_told(number, told);
    }

    /// What a stream waits for has been found out.
    pub(super) fn stream_disk_told(&mut self, number: u32, told: Result<Disk, Errno>) {
        let Some(question) = self.stream_disk.take(number) else {
            return;
        };
        let Question {
            slot,
            generation,
            stream,
            what,
        } = question;
        let conn = self.conns.find(slot, generation);
        let Some(streams) = conn.and_then(|conn| conn.streams.as_mut()) else {
            return;
        };
        streams.asked -= 1;
        match what {
            What::Lookup(waiting) => {
                self.look_up(slot, stream, waiting, Some(told));
            }
            What::Read(file, len) => {
                streams.reads -= 1;
                streams.connection.resume(stream);
                for waiting in streams.waiting.drain(..) {
                    streams.connection.resume(waiting);
                }
                let bytes = told.and_then(|disk| match disk {
                    Disk::Read(bytes) => Ok(bytes),
                    _ => Err(Errno::IO),
                });
                self.stream_read(slot, stream, &file, len, bytes);
            }
        }
        self.go_on_streams(slot);
    }
}
