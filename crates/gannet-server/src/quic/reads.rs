//! Disk access for requests: lookups, and reads of content.

use std::ops::Range;
use std::rc::Rc;

use gannet_http::h3::ErrorCode;
use gannet_io::driver::{Driver, Errno};
use quinn_proto::StreamId;

use super::connection::ActiveQuic;
use crate::exchange::stream_waits::{Question, SliceRead, What};
use crate::exchange::waiting::{Found, WaitingRequest};
use crate::release::ServedFile;
use crate::release::wakeup::Wakeup;

impl<D: Driver> ActiveQuic<'_, D> {
    /// Starts the lookups of requests that cannot be answered from memory, in their order, as long as
    /// there is room for the heads of their answers.
    pub(super) fn ask_missed(&mut self) {
        let mut missed = std::mem::take(&mut self.conn.streams.missed).into_iter();
        while let Some((id, waiting)) = missed.next() {
            let streams = &mut self.conn.streams;
            if !streams.has_room_for(waiting.head_len_max()) {
                streams.missed.push((id, waiting));
                streams.missed.extend(missed);
                return;
            }
            self.look_up(id, waiting, None);
        }
    }

    /// Runs the lookup of a request until it has to wait for the disk, or the request can be
    /// answered.
    fn look_up(
        &mut self,
        id: StreamId,
        mut waiting: Box<WaitingRequest>,
        mut wakeup: Option<Result<Wakeup, Errno>>,
    ) {
        let waiter = (self.conn.id, u64::from(id));
        loop {
            let head = waiting.head_len_max();
            let Some((known, found)) = self.shared.look_up_for(waiter, waiting, wakeup.take())
            else {
                let streams = &mut self.conn.streams;
                streams.heads += head;
                streams.asked += 1;
                if let Some(stream) = streams.find(id) {
                    stream.waits_since = Some(self.shared.driver.now());
                }
                return;
            };
            let Some(next) = self.answer_looked_up(id, &known, found) else {
                return;
            };
            // Its site was not known before, or its password: its head may be longer now.
            let streams = &mut self.conn.streams;
            if !streams.has_room_for(next.head_len_max()) {
                streams.missed.push((id, next));
                return;
            }
            waiting = next;
        }
    }

    /// Answers a request, or returns it if it has to wait for something else.
    fn answer_looked_up(
        &mut self,
        id: StreamId,
        waiting: &WaitingRequest,
        found: Found,
    ) -> Option<Box<WaitingRequest>> {
        let stream = self.conn.streams.find(id)?;
        stream.waits_since = None;
        let mut out = self.shared.outgoing();
        let mut pump = self.shared.pump_h3(Some(waiting.release()));
        let answered = pump.answer_waiting(stream, waiting, found, &mut out);
        self.shared.driver.give_back(std::mem::take(&mut out.spare));
        match answered {
            Ok(record) => stream.record = record,
            Err(next) => return Some(next),
        }
        let wire = out.finish().0.wire;
        self.hand_over(id, wire);
        None
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
        let waiter = (conn.id, u64::from(id));
        let slice = self.shared.read_for(waiter, &file, (range.start, len));
        let has_ended = !matches!(slice, SliceRead::Awaited);
        self.was_read(id, slice);
        has_ended
    }

    /// Takes the result of a read. If it failed, the stream is reset, short of its announced
    /// length.
    fn was_read(&mut self, id: StreamId, slice: SliceRead) {
        let streams = &mut self.conn.streams;
        match slice {
            SliceRead::Read(bytes) => streams.was_read(id, bytes),
            SliceRead::Awaited => {
                if let Some(stream) = streams.find(id) {
                    stream.is_reading = true;
                    stream.waits_since = Some(self.shared.driver.now());
                }
                streams.reads += 1;
                streams.asked += 1;
            }
            SliceRead::Lost => self.give_up_stream(id, ErrorCode::INTERNAL_ERROR),
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
                streams.heads -= waiting.head_len_max();
                // The lookup of a stream that was reset is abandoned.
                if streams.find(id).is_some() {
                    self.look_up(id, waiting, Some(wakeup));
                }
            }
            What::Read(file, len) => {
                streams.reads = streams.reads.saturating_sub(1);
                if streams.find(id).is_some() {
                    let waiter = (self.conn.id, stream);
                    let slice = self.shared.was_read_for(waiter, (&file, len), wakeup);
                    self.was_read(id, slice);
                }
            }
        }
    }
}
