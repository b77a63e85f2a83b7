//! Disk access for requests: lookups, and reads of content.

use std::ops::Range;
use std::rc::Rc;

use gannet_http::h3::ErrorCode;
use gannet_io::driver::{Driver, Errno, Started};
use quinn_proto::StreamId;

use super::connection::Active;
use crate::connection::stream_reads::{Question, What};
use crate::exchange::Wakeup;
use crate::exchange::answering::Reply;
use crate::exchange::waiting::{Found, WaitingRequest};
use crate::release::ServedFile;
use crate::worker::token::{Kind, token};

impl<D: Driver> Active<'_, D> {
    /// Starts the lookups of requests that cannot be answered from memory.
    pub(super) fn ask_missed(&mut self) {
        for (id, waiting) in std::mem::take(&mut self.conn.streams.missed) {
            self.look_up(id, waiting, None);
        }
    }

    /// Runs the lookup of a request until it has to wait for the disk, or the request can be
    /// answered.
    fn look_up(
        &mut self,
        id: StreamId,
        mut waiting: Box<WaitingRequest>,
        wakeup: Option<Result<Wakeup, Errno>>,
    ) {
        let number = self.shared.waiters.streams.reserve();
        let asker = token(Kind::StreamDisk, number);
        match self.shared.find_out(&mut waiting, asker, wakeup) {
            Some(found) => {
                self.shared.waiters.streams.release(number);
                self.answer_looked_up(id, &waiting, found);
            }
            None => self.ask(id, number, What::Lookup(waiting)),
        }
    }

    /// Records that a stream waits for the disk.
    fn ask(&mut self, id: StreamId, number: u32, what: What) {
        let question = Question {
            conn: self.conn.id,
            stream: u64::from(id),
            what,
        };
        self.shared.waiters.streams.ask(number, question);
        self.conn.streams.asked += 1;
    }

    fn answer_looked_up(&mut self, id: StreamId, waiting: &WaitingRequest, found: Found) {
        let Some(stream) = self.conn.streams.find(id) else {
            return;
        };
        let mut out = self.shared.outgoing();
        let mut pump = self.shared.pump_h3(Some(waiting.release()));
        let reply = Reply::H3(stream);
        let answered = waiting.answer(reply, &pump.turn, found, &mut out);
        pump.done_h3(stream, &waiting.request(), answered);
        let wire = out.finish().0.wire;
        self.hand_over(id, wire);
    }

    /// Reads the next bytes of a stream's content. Returns whether the read has completed; if not,
    /// the stream waits for it while others continue.
    pub(super) fn read(&mut self, id: StreamId, file: Rc<ServedFile>, range: Range<u64>) -> bool {
        let conn = &mut *self.conn;
        if !conn.streams.has_read {
            conn.streams.has_read = true;
            conn.set_send_window();
        }
        let len = (range.end - range.start).min(conn.streams.may_read()) as usize;
        let number = self.shared.waiters.streams.reserve();
        let asker = token(Kind::StreamDisk, number);
        match self.shared.driver.read(&file.file, range.start, len, asker) {
            Started::Now(result) => {
                self.shared.waiters.streams.release(number);
                self.was_read(id, &file, len, result);
                true
            }
            Started::Pending => {
                if let Some(stream) = self.conn.streams.find(id) {
                    stream.is_reading = true;
                }
                self.conn.streams.reads += 1;
                self.ask(id, number, What::Read(file, len));
                false
            }
        }
    }

    /// Takes the result of a read. If it failed, the stream is reset, short of its announced
    /// length.
    fn was_read(
        &mut self,
        id: StreamId,
        file: &ServedFile,
        len: usize,
        result: Result<Vec<u8>, Errno>,
    ) {
        // The file may have become shorter than announced, or hold another version by now.
        let is_same = file.is_unchanged(&self.shared.driver);
        if self.conn.streams.find(id).is_none() {
            return;
        }
        match result {
            Ok(bytes) if is_same && bytes.len() == len => self.conn.streams.was_read(id, bytes),
            _ => {
                self.shared.counters.cut_short += 1;
                self.give_up_stream(id, ErrorCode::INTERNAL_ERROR);
            }
        }
    }

    /// Continues a stream whose lookup or read has completed.
    pub(super) fn woken(&mut self, question: Question, wakeup: Result<Wakeup, Errno>) {
        let Question { stream, what, .. } = question;
        let Ok(id) = quinn_proto::VarInt::from_u64(stream).map(StreamId::from) else {
            return;
        };
        let streams = &mut self.conn.streams;
        streams.asked = streams.asked.saturating_sub(1);
        match what {
            What::Lookup(waiting) => {
                // The lookup of a stream that was reset is abandoned.
                if streams.find(id).is_some() {
                    self.look_up(id, waiting, Some(wakeup));
                }
            }
            What::Read(file, len) => {
                streams.reads = streams.reads.saturating_sub(1);
                let bytes = wakeup.and_then(|disk| match disk {
                    Wakeup::Read(bytes) => Ok(bytes),
                    _ => Err(Errno::IO),
                });
                self.was_read(id, &file, len, bytes);
            }
        }
    }
}
