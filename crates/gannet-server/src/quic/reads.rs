//! Disk operations for requests of HTTP/3: see [`stream_waits`](crate::exchange::stream_waits).

use std::ops::Range;
use std::rc::Rc;

use gannet_http::h3::ErrorCode;
use gannet_io::driver::Driver;
use quinn_proto::{StreamId, VarInt};

use super::connection::ActiveQuic;
use crate::exchange::shared::Shared;
use crate::exchange::stream_waits::{DiskQueue, DiskStreams, Next};
use crate::exchange::waiting::{Found, WaitingRequest};
use crate::ground::token::ConnId;
use crate::release::ServedFile;

fn id(stream: u64) -> StreamId {
    StreamId::from(VarInt::from_u64(stream).expect("it was made of one"))
}

impl<D: Driver> DiskStreams<D> for ActiveQuic<'_, D> {
    fn parts(&mut self) -> (ConnId, &mut Shared<D>) {
        (self.conn.id, self.shared)
    }

    fn queue(&mut self) -> Option<&mut DiskQueue> {
        Some(&mut self.conn.streams.disk)
    }

    fn has_room_for(&self, head: u64) -> bool {
        self.conn.streams.has_room_for(head)
    }

    fn is_open(&mut self, stream: u64) -> bool {
        self.conn.streams.find(id(stream)).is_some()
    }

    fn answer_found(&mut self, stream: u64, waiting: &WaitingRequest, found: Found) -> Next {
        let stream = self.conn.streams.find(id(stream))?;
        stream.waits_since = None;
        let mut out = self.shared.outgoing();
        let mut bench = self.shared.workbench_h3(Some(waiting.release()));
        let answered = bench.answer_waiting(stream, waiting, found, &mut out);
        self.shared.driver.give_back(std::mem::take(&mut out.spare));
        match answered {
            Ok(record) => stream.record = record,
            Err(next) => return Some(next),
        }
        let id = stream.id;
        self.hand_over(id, out.finish().0.wire);
        None
    }

    fn begin_wait(&mut self, stream: u64, is_read: bool) {
        let now = self.shared.driver.now();
        if let Some(stream) = self.conn.streams.find(id(stream)) {
            stream.is_reading |= is_read;
            stream.waits_since = Some(now);
        }
    }

    fn end_read(&mut self, stream: u64, bytes: Option<Vec<u8>>) {
        match bytes {
            Some(bytes) => self.conn.streams.was_read(id(stream), bytes),
            None => self.give_up_stream(id(stream), ErrorCode::INTERNAL_ERROR),
        }
    }
}

impl<D: Driver> ActiveQuic<'_, D> {
    /// Reads the next bytes of a stream's content. Returns whether the read has completed; if not,
    /// the stream waits for it while others continue.
    pub(super) fn read_for_stream(
        &mut self,
        id: StreamId,
        file: &Rc<ServedFile>,
        range: Range<u64>,
    ) -> bool {
        let conn = &mut *self.conn;
        if !conn.streams.has_read {
            conn.streams.has_read = true;
            conn.set_send_window();
        }
        let len = (range.end - range.start).min(conn.streams.may_read()) as usize;
        self.read(u64::from(id), file, (range.start, len))
    }
}
