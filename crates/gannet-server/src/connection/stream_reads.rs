//! Lookups of paths and reads of content for streams of HTTP/2. Those of HTTP/3 are in `quic/reads`.
//!
//! A hung disk is subject to the same timeout as a stalled peer; then the stream is reset. Its
//! operations stay in flight until they complete, and count against the connection's bounds until
//! then.

use std::ops::Range;
use std::rc::Rc;

use gannet_http::h2::{ErrorCode, StreamId, Time};
use gannet_io::driver::{Driver, Errno};

use super::Active;
use super::http2::StreamReply;
use crate::bounds::limits::STREAM_READS_MAX;
use crate::exchange::stream_waits::{Question, SliceRead, What};
use crate::exchange::waiting::{Found, WaitingRequest};
use crate::release::ServedFile;
use crate::release::wakeup::Wakeup;

impl<D: Driver> Active<'_, D> {
    /// Starts lookups for requests that need more than memory, in their order, as long as there is
    /// room for the heads of their answers.
    pub(super) fn ask_missed(&mut self) {
        let streams = self.conn.protocol.streams_mut();
        let Some(streams) = streams.filter(|streams| !streams.missed.is_empty()) else {
            return;
        };
        let missed = std::mem::take(&mut streams.missed);
        let mut missed = missed.into_iter();
        while let Some((stream, waiting)) = missed.next() {
            let Some(streams) = self.conn.protocol.streams_mut() else {
                return;
            };
            if !streams.has_room_for(waiting.head_len_max()) {
                streams.missed.push((stream, waiting));
                streams.missed.extend(missed);
                return;
            }
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
        let mut head;
        loop {
            head = waiting.head_len_max();
            let Some((known, found)) = self.shared.look_up_for(waiter, waiting, wakeup.take())
            else {
                break;
            };
            let Some(next) = self.answer_looked_up(stream, &known, found) else {
                return;
            };
            // Its site was not known before, or its password: its head may be longer now.
            match self.conn.protocol.streams_mut() {
                Some(streams) if !streams.has_room_for(next.head_len_max()) => {
                    streams.missed.push((stream, next));
                    return;
                }
                _ => waiting = next,
            }
        }
        if let Some(streams) = self.conn.protocol.streams_mut() {
            streams.heads += head;
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
        let mut reply = StreamReply { streams, stream };
        let answered = pump.answer_waiting(&mut reply, waiting, found, &mut out);
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
        let slice = self.shared.read_for(waiter, &file, (range.start, len));
        self.stream_read(stream, slice);
    }

    /// Handles content that was read, or could not be: then the stream ends short of its length.
    fn stream_read(&mut self, stream: StreamId, slice: SliceRead) {
        let Some(streams) = self.conn.protocol.streams_mut() else {
            return;
        };
        match slice {
            SliceRead::Read(bytes) => streams.read(stream, bytes),
            SliceRead::Awaited => {
                streams.connection.pause(stream);
                streams.reads += 1;
                streams.await_disk(stream, self.shared.driver.now());
            }
            SliceRead::Lost => {
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
        if let What::Lookup(waiting) = &what {
            streams.heads -= waiting.head_len_max();
        }
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
                    let waiter = (self.conn.id, u64::from(stream.0));
                    let slice = self.shared.was_read_for(waiter, (&file, len), wakeup);
                    self.stream_read(stream, slice);
                }
            }
        }
        self.go_on_streams();
    }
}
