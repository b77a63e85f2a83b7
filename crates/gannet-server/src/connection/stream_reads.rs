//! Disk operations for streams of HTTP/2: see [`stream_waits`](crate::exchange::stream_waits).

use std::ops::Range;
use std::rc::Rc;

use gannet_http::h2::{ErrorCode, StreamId, Time};
use gannet_io::driver::{Driver, Errno};

use super::Active;
use super::http2::StreamReply;
use crate::bounds::limits::STREAM_READS_MAX;
use crate::exchange::shared::Shared;
use crate::exchange::stream_waits::{DiskQueue, DiskStreams, Next, Question, What};
use crate::exchange::waiting::{Found, WaitingRequest};
use crate::ground::token::ConnId;
use crate::release::ServedFile;
use crate::release::wakeup::Wakeup;

fn id(stream: u64) -> StreamId {
    StreamId(u32::try_from(stream).expect("it was made of one"))
}

impl<D: Driver> DiskStreams<D> for Active<'_, D> {
    fn parts(&mut self) -> (ConnId, &mut Shared<D>) {
        (self.conn.id, self.shared)
    }

    fn queue(&mut self) -> Option<&mut DiskQueue> {
        Some(&mut self.conn.protocol.streams_mut()?.disk)
    }

    fn has_room_for(&self, head: u64) -> bool {
        let streams = self.conn.protocol.streams();
        streams.is_none_or(|streams| streams.has_room_for(head))
    }

    fn is_open(&mut self, stream: u64) -> bool {
        let streams = self.conn.protocol.streams();
        streams.is_some_and(|streams| streams.connection.is_open(id(stream)))
    }

    fn answer_found(&mut self, stream: u64, waiting: &WaitingRequest, found: Found) -> Next {
        let stream = id(stream);
        let mut out = self.stream_output();
        let is_secure = self.conn.is_secure();
        let streams = self.conn.protocol.streams_mut()?;
        let mut bench = self.shared.workbench(is_secure, Some(waiting.release()));
        let mut reply = StreamReply { streams, stream };
        let answered = bench.answer_waiting(&mut reply, waiting, found, &mut out);
        self.shared.driver.give_back(std::mem::take(&mut out.spare));
        streams.out = Some(out);
        answered.map(|record| streams.note(stream, record)).err()
    }

    fn begin_wait(&mut self, stream: u64, is_read: bool) {
        let now = Time(self.shared.driver.now().0);
        if let Some(streams) = self.conn.protocol.streams_mut() {
            if is_read {
                streams.connection.pause(id(stream));
            }
            streams.connection.defer(id(stream), now);
        }
    }

    fn end_read(&mut self, stream: u64, bytes: Option<Vec<u8>>) {
        let stream = id(stream);
        match (self.conn.protocol.streams_mut(), bytes) {
            (None, _) => {}
            (Some(streams), Some(bytes)) => streams.read(stream, bytes),
            (Some(streams), None) => {
                streams.connection.abort(stream, ErrorCode::INTERNAL_ERROR);
                let record = streams.forget(stream);
                streams.cut.extend(record);
            }
        }
    }
}

impl<D: Driver> Active<'_, D> {
    /// Reads the next bytes of a stream's content. Other streams continue meanwhile.
    pub(super) fn read_for_stream(
        &mut self,
        stream: StreamId,
        file: &Rc<ServedFile>,
        range: Range<u64>,
    ) {
        let now = self.shared.driver.now();
        let Some(streams) = self.conn.protocol.streams_mut() else {
            return;
        };
        if streams.disk.reads >= STREAM_READS_MAX {
            streams.connection.pause(stream);
            streams.connection.defer(stream, Time(now.0));
            streams.waiting.push(stream);
            return;
        }
        let len = (range.end - range.start) as usize;
        self.read(u64::from(stream.0), file, (range.start, len));
    }

    /// Handles the completion of a stream's operation.
    pub(crate) fn stream_woken(&mut self, question: Question, wakeup: Result<Wakeup, Errno>) {
        let Some(streams) = self.conn.protocol.streams_mut() else {
            return;
        };
        if let What::Read(..) = question.what {
            streams.connection.resume(id(question.stream));
        }
        self.continue_stream(question, wakeup);
        // None of them could read if this one waits again: a file may be looked at many times.
        if let Some(streams) = self.conn.protocol.streams_mut()
            && streams.disk.reads < STREAM_READS_MAX
        {
            for waiting in streams.waiting.drain(..) {
                streams.connection.resume(waiting);
            }
        }
        self.go_on_streams();
    }
}
