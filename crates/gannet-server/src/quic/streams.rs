//! The HTTP/3 side of a connection: the protocol's state, the requests, and the content of
//! responses that is still to be sent.
//!
//! ```text
//!   a stream's bytes ─▶ RequestStream ─▶ head and short content: `wire`
//!                                        longer content: `parts`
//!   ─▶ the library's stream, within its windows ─▶ packets ─▶ acknowledged: removed
//!              ▲
//!              └── read from disk, a part at a time, while other streams continue
//! ```

use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::{Buf, Bytes};
use gannet_http::binary::limits::QUANTUM;
use gannet_http::binary::priority::{LEVELS, Priority};
use gannet_http::h2::Time;
use gannet_http::h3::{self, RequestStream};
use gannet_http::semantics::date::DATE_LINE_LEN;
use gannet_http::semantics::response::ResponseHead;
use gannet_io::driver::Nanos;
use gannet_io::memory::Memory;
use quinn_proto::{Connection, StreamId, VarInt, WriteError};

use super::sent::Sent;
use crate::bounds::ledger::{Account, BytesByAccount};
use crate::bounds::limits::{COPY_MAX, H3_ANSWERED_MAX};
use crate::bounds::quic::{PIECE_MAX, READ_AMONG_OTHERS_MAX, READ_HELD_MAX, READ_MAX, READS_MAX};
use crate::exchange::stream_waits::DiskQueue;
use crate::observe::record::Record;
use crate::release::body::Body;
use crate::release::{ServedFile, Source};

/// The HTTP/3 state of a connection and its request streams.
///
/// In each turn of the connection: first the library's events ([`Self::writable`],
/// [`Self::acknowledged`], new input), then [`Self::drop_acknowledged`], new requests
/// ([`Self::add`]), and last [`Self::feed`].
pub(crate) struct RequestStreams {
    pub(super) machine: h3::Connection,
    /// Our control stream, and the bytes still to be passed to it.
    control: Option<(StreamId, Vec<u8>)>,
    /// Requests whose responses are not acknowledged completely, in the order of sending.
    pub(super) open: Vec<Stream>,
    /// Some of them were acknowledged and are to be removed.
    has_acknowledged: bool,
    /// What its requests wait for.
    pub(super) disk: DiskQueue,
    /// Requests that are read once there is room for the heads of their answers.
    pub(super) postponed: Vec<StreamId>,
    /// Content has been read for this connection alone.
    pub(super) has_read: bool,
    /// Bytes read for this connection that wait for the library or for the peer's acknowledgement.
    own_bytes: Arc<AtomicU64>,
    /// Log records of responses passed to the library completely.
    pub(super) whole: Vec<Record>,
    /// Log records of responses that ended early.
    pub(super) cut: Vec<Record>,
}

/// A request and its response.
pub(crate) struct Stream {
    pub(super) id: StreamId,
    pub(crate) machine: RequestStream,
    /// When it was opened; once the response is being passed to the library, when that began.
    pub(super) began: Nanos,
    /// The priority that determines its position in [`RequestStreams::open`].
    priority: Priority,
    /// The same in the library's form: it sends the highest first.
    rank: i32,
    /// The head and short content, which precede the parts; empty if accepted at once.
    wire: Vec<u8>,
    /// How many bytes of them the library has accepted.
    taken: usize,
    /// The content after them.
    parts: VecDeque<Body>,
    /// The rest of a part that the library has accepted partly.
    rest: Bytes,
    pub(crate) record: Option<Record>,
    /// Bytes of content of the response.
    content_len: u64,
    /// The request has been received to its end.
    pub(crate) is_received: bool,
    /// How far its response is.
    response: ResponseStage,
    /// The library accepts no more for now.
    is_blocked: bool,
    /// A read of its next bytes is in progress.
    pub(super) is_reading: bool,
    /// Since when it waits for the disk, for its lookup or a read.
    pub(super) waits_since: Option<Nanos>,
}

/// How far the response of a stream is.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum ResponseStage {
    /// Its head was not written.
    Awaited,
    /// Its head was written.
    Ready,
    /// It is being passed to the library.
    Passing,
    /// The library has all of it.
    Passed,
    /// The peer has acknowledged all of it.
    Acknowledged,
}

/// Why feeding a stream ended.
pub(super) enum FeedEnd {
    /// The response is complete, the library accepts no more, or the stream's turn is over.
    All,
    /// The beginning of this range has to be read first.
    Read(Rc<ServedFile>, Range<u64>),
    /// The peer has stopped the stream.
    Unwanted,
}

/// The result of feeding all streams.
#[derive(Default)]
pub(super) struct AllFed {
    /// Bytes that the library has accepted.
    pub(super) taken: u64,
    /// Whether a response is complete.
    pub(super) has_finished: bool,
    /// The first stream that needs a read or was stopped. The streams after it have not been fed.
    pub(super) rest: Option<(StreamId, FeedEnd)>,
}

impl Stream {
    pub(super) fn new(id: StreamId, machine: RequestStream, now: Nanos) -> Self {
        Self {
            id,
            machine,
            began: now,
            priority: Priority::default(),
            rank: 0,
            wire: Vec::new(),
            taken: 0,
            parts: VecDeque::new(),
            rest: Bytes::new(),
            record: None,
            content_len: 0,
            is_received: false,
            response: ResponseStage::Awaited,
            is_blocked: false,
            is_reading: false,
            waits_since: None,
        }
    }

    /// Appends the head of the response, with `len` bytes of content, to `wire`, which the caller
    /// later passes to [`Self::hand_over`]. Returns whether content is to follow.
    pub(crate) fn respond(
        &mut self,
        head: &ResponseHead<'_>,
        date_line: &[u8; DATE_LINE_LEN],
        len: u64,
        wire: &mut Vec<u8>,
    ) -> bool {
        self.response = ResponseStage::Ready;
        let has_content = self.machine.respond(head, date_line, len, wire);
        self.content_len = if has_content { len } else { 0 };
        has_content
    }

    /// Adds a range of a representation to the content; copies it to `wire` if it is short.
    pub(crate) fn content(&mut self, source: Source<'_>, range: Range<u64>, wire: &mut Vec<u8>) {
        let bounds = || range.start as usize..range.end as usize;
        match source {
            Source::Bytes(bytes) if self.parts.is_empty() => {
                wire.extend_from_slice(&bytes[bounds()]);
            }
            Source::Memory(memory, offset) | Source::Made(memory, offset)
                if self.parts.is_empty() && bounds().len() <= COPY_MAX =>
            {
                let range = offset + bounds().start..offset + bounds().end;
                wire.extend_from_slice(&memory.bytes()[range]);
            }
            source => match Body::of(source, range).map(Body::in_memory) {
                Some(body) if body.is_empty() => {}
                Some(body) => self.parts.push_back(body),
                None => debug_assert!(false, "bytes are at hand"),
            },
        }
    }

    /// Passes the head and short content to the library, which copies them; keeps the rest.
    /// Returns how many bytes it has accepted.
    pub(super) fn hand_over(&mut self, quic: &mut Connection, wire: &[u8]) -> u64 {
        // An error recurs in `feed`, which handles it.
        self.taken = quic.send_stream(self.id).write(wire).unwrap_or(0);
        if self.taken < wire.len() {
            self.wire = wire.to_vec();
        }
        self.taken as u64
    }

    /// Whether the head of the response was written.
    pub(super) fn is_answered(&self) -> bool {
        self.response >= ResponseStage::Ready
    }

    /// Whether the library has the whole response.
    fn is_finished(&self) -> bool {
        self.response >= ResponseStage::Passed
    }

    /// Whether there is something to pass to the library.
    fn has_output(&self) -> bool {
        self.is_answered() && !self.is_finished() && !self.is_reading && !self.is_blocked
    }

    /// Whether the library has all bytes of the response, if not its end.
    fn is_passed_on(&self) -> bool {
        self.taken >= self.wire.len() && self.rest.is_empty() && self.parts.is_empty()
    }

    /// Passes the response to the library, as much as it accepts, or at most `QUANTUM` bytes if it
    /// is incremental. Adds the number of bytes to `taken`, which becomes at most `most`.
    fn feed(
        &mut self,
        quic: &mut Connection,
        own_bytes: &Arc<AtomicU64>,
        taken: &mut u64,
        most: u64,
    ) -> FeedEnd {
        let end = match self.priority.is_incremental {
            true => most.min(*taken + u64::from(QUANTUM)),
            false => most,
        };
        loop {
            let left = usize::try_from(end - *taken).unwrap_or(usize::MAX);
            if left == 0 && !self.is_passed_on() {
                return FeedEnd::All;
            }
            let mut stream = quic.send_stream(self.id);
            let written = if self.taken < self.wire.len() {
                let len = left.min(self.wire.len() - self.taken);
                let written = stream.write(&self.wire[self.taken..self.taken + len]);
                if let Ok(len) = written {
                    self.taken += len;
                }
                written
            } else if !self.rest.is_empty() {
                // The library frees a piece only when all of it is acknowledged.
                let len = left.min(self.rest.len()).min(PIECE_MAX);
                let written = stream.write_chunks(&mut [self.rest.slice(..len)]);
                let written = written.map(|written| written.bytes);
                if let Ok(len) = written {
                    self.rest.advance(len);
                }
                if self.rest.is_empty() {
                    // Only the library keeps the memory now.
                    self.rest = Bytes::new();
                }
                written
            } else {
                match self.parts.pop_front() {
                    None => {
                        self.response = ResponseStage::Passed;
                        return match stream.finish() {
                            Ok(()) => FeedEnd::All,
                            Err(_) => FeedEnd::Unwanted,
                        };
                    }
                    Some(Body::File(file, range)) => {
                        let next = FeedEnd::Read(Rc::clone(&file), range.clone());
                        self.parts.push_front(Body::File(file, range));
                        return next;
                    }
                    Some(Body::Own(memory, range)) => {
                        self.rest = Sent::own(memory, range, own_bytes);
                    }
                    Some(Body::Shared(memory, range)) => self.rest = Sent::shared(memory, range),
                }
                continue;
            };
            match written {
                Ok(len) => *taken += len as u64,
                Err(WriteError::Blocked) => {
                    self.is_blocked = true;
                    return FeedEnd::All;
                }
                Err(WriteError::Stopped(_) | WriteError::ClosedStream) => return FeedEnd::Unwanted,
            }
        }
    }

    /// Takes bytes that were read from its file.
    fn read(&mut self, bytes: Vec<u8>, own_bytes: &Arc<AtomicU64>) {
        self.is_reading = false;
        self.waits_since = None;
        let Some(Body::File(_, range)) = self.parts.front_mut() else {
            debug_assert!(false, "one read at a time, of the first part");
            return;
        };
        range.start += bytes.len() as u64;
        if range.start == range.end {
            self.parts.pop_front();
        }
        if let Body::Own(memory, range) = Body::own(bytes) {
            self.rest = Sent::own(memory, range, own_bytes);
        }
    }

    /// The log record if nothing more is sent.
    fn cut(self) -> Option<Record> {
        let mut record = self.record?;
        record.cut(Body::len_of(&self.parts));
        Some(record)
    }

    /// Bytes of memory made for it alone: those waiting, and the library's copy of accepted ones.
    fn own_bytes(&self) -> u64 {
        (self.wire.capacity() + self.taken) as u64 + Body::held_by(&self.parts)
    }
}

impl RequestStreams {
    /// The state of a new connection.
    pub(super) fn new(now: Nanos) -> Self {
        Self {
            machine: h3::Connection::new(Time(now.0)),
            control: None,
            open: Vec::new(),
            has_acknowledged: false,
            disk: DiskQueue::default(),
            postponed: Vec::new(),
            has_read: false,
            own_bytes: Arc::default(),
            whole: Vec::new(),
            cut: Vec::new(),
        }
    }

    /// Whether no request is in progress.
    pub(super) fn is_idle(&self) -> bool {
        self.open.is_empty() && self.disk.asked == 0
    }

    /// Whether our control stream is open.
    pub(super) fn has_control(&self) -> bool {
        self.control.is_some()
    }

    /// Records our control stream, with its type and SETTINGS as the first bytes to send.
    pub(super) fn control_opened(&mut self, id: StreamId) {
        self.control = Some((id, self.machine.opening()));
    }

    /// Queues bytes for the control stream; none if it is not open.
    pub(super) fn say(&mut self, bytes: &[u8]) {
        if let Some((_, waiting)) = &mut self.control {
            waiting.extend_from_slice(bytes);
        }
    }

    /// Takes the bytes queued for the control stream, if there are any.
    pub(super) fn take_control(&mut self) -> Option<(StreamId, Vec<u8>)> {
        let (id, waiting) = self.control.as_mut()?;
        (!waiting.is_empty()).then(|| (*id, std::mem::take(waiting)))
    }

    /// The position of a stream's request in [`Self::open`].
    pub(super) fn position(&self, id: StreamId) -> Option<usize> {
        // They are usually in the order of their numbers, without gaps.
        let first = self.open.first()?.id.index();
        let likely = id.index().wrapping_sub(first) as usize;
        if self.open.get(likely).is_some_and(|stream| stream.id == id) {
            return Some(likely);
        }
        self.open.iter().position(|stream| stream.id == id)
    }

    /// The protocol's state and a request, both borrowed.
    pub(crate) fn request(&mut self, index: usize) -> (&mut h3::Connection, &mut Stream) {
        (&mut self.machine, &mut self.open[index])
    }

    /// Checks the bound on incomplete field sections of all requests, after one has received bytes.
    pub(super) fn check_sections(&mut self, index: usize) -> Result<(), h3::ConnectionError> {
        if self.open[index].machine.memory() == 0 {
            return Ok(());
        }
        let sections = self.open.iter().map(|stream| stream.machine.memory());
        self.machine.check_sections(sections.sum())
    }

    /// Whether a stream is our control stream.
    pub(super) fn is_control(&self, id: StreamId) -> bool {
        self.control
            .as_ref()
            .is_some_and(|(control, _)| *control == id)
    }

    /// The request on a stream.
    pub(super) fn find(&mut self, id: StreamId) -> Option<&mut Stream> {
        let index = self.position(id)?;
        self.open.get_mut(index)
    }

    /// The library accepts more content of a stream.
    pub(super) fn writable(&mut self, id: StreamId) {
        if let Some(stream) = self.find(id) {
            stream.is_blocked = false;
        }
    }

    /// The peer has acknowledged a whole response. [`Self::drop_acknowledged`] must follow.
    pub(super) fn acknowledged(&mut self, id: StreamId) {
        if let Some(stream) = self.find(id) {
            stream.response = ResponseStage::Acknowledged;
            self.has_acknowledged = true;
        }
    }

    /// Removes the streams whose responses were acknowledged.
    pub(super) fn drop_acknowledged(&mut self) {
        if std::mem::take(&mut self.has_acknowledged) {
            self.open
                .retain(|stream| stream.response != ResponseStage::Acknowledged);
        }
    }

    /// Whether there is room for an answer whose head has at most this length: the peer has
    /// acknowledged enough of those before it, or there are none.
    pub(super) fn has_room_for(&self, head: u64) -> bool {
        let own = self.open.iter().map(Stream::own_bytes);
        let held = self.disk.heads + own.sum::<u64>();
        held == 0 || held + head <= H3_ANSWERED_MAX
    }

    /// Adds a request.
    pub(super) fn add(&mut self, stream: Stream) {
        let at = self.place(&stream);
        self.open.insert(at, stream);
    }

    /// The position at which to insert a stream: by urgency level, then, if it is not incremental,
    /// by the order of requests.
    fn place(&self, stream: &Stream) -> usize {
        let level = stream.priority.level();
        let goes_before = |other: &Stream| match other.priority.level() {
            same if same == level => stream.priority.is_incremental || other.id < stream.id,
            other => other < level,
        };
        match self.open.last() {
            Some(last) if !goes_before(last) => self.open.partition_point(goes_before),
            _ => self.open.len(),
        }
    }

    /// Moves a stream if its priority has changed. Returns its rank if that has changed.
    pub(super) fn arrange(&mut self, id: StreamId) -> Option<i32> {
        let index = self.position(id)?;
        let stream = &mut self.open[index];
        let priority = stream.machine.priority();
        let rank = rank(priority, id);
        if rank == stream.rank {
            return None;
        }
        stream.rank = rank;
        if priority != stream.priority {
            let mut stream = self.open.remove(index);
            stream.priority = priority;
            self.add(stream);
        }
        Some(rank)
    }

    /// When the oldest response began that waits for the peer to accept or acknowledge it.
    pub(super) fn oldest_untaken(&self) -> Option<Nanos> {
        let waits = |stream: &&Stream| stream.is_blocked || stream.is_finished();
        let untaken = self.open.iter().filter(waits);
        untaken.map(|stream| stream.began).min()
    }

    /// When the oldest stream was opened whose request head is incomplete.
    pub(super) fn oldest_request(&self) -> Option<Nanos> {
        let requests = self.open.iter();
        let requests = requests.filter(|stream| stream.machine.awaits_head());
        requests.map(|stream| stream.began).min()
    }

    /// Streams whose request head is incomplete after `timeout_ms`.
    pub(super) fn late_requests(&self, now: Nanos, timeout_ms: u64) -> Vec<StreamId> {
        let late = self.open.iter().filter(|stream| {
            stream.machine.awaits_head() && stream.began.plus_ms(timeout_ms) <= now
        });
        late.map(|stream| stream.id).collect()
    }

    /// Since when the stream has waited that has waited for the disk the longest.
    pub(super) fn oldest_wait(&self) -> Option<Nanos> {
        self.open.iter().filter_map(|it| it.waits_since).min()
    }

    /// Streams that have waited for the disk for `timeout_ms`.
    pub(super) fn late_waits(&self, now: Nanos, timeout_ms: u64) -> Vec<StreamId> {
        let is_late = |since: Nanos| since.plus_ms(timeout_ms) <= now;
        let late = self
            .open
            .iter()
            .filter(|it| it.waits_since.is_some_and(is_late));
        late.map(|stream| stream.id).collect()
    }

    /// Whether some stream has something to pass to the library, which accepts it.
    pub(super) fn has_output(&self) -> bool {
        self.open.iter().any(Stream::has_output)
    }

    /// Passes content of the streams to the library, the most urgent first, at most `most` bytes.
    pub(super) fn feed(&mut self, quic: &mut Connection, most: u64, now: Nanos) -> AllFed {
        let mut all = AllFed::default();
        let mut index = 0;
        while let Some(stream) = self.open.get(index)
            && all.rest.is_none()
        {
            let Priority { is_incremental, .. } = stream.priority;
            let before = all.taken;
            self.feed_one(index, quic, (most, now), &mut all);
            if is_incremental && all.taken > before {
                // The others of its level come before its next turn.
                self.end_turn(index);
            } else {
                index += 1;
            }
        }
        all
    }

    /// Passes content of one stream to the library.
    fn feed_one(
        &mut self,
        index: usize,
        quic: &mut Connection,
        (most, now): (u64, Nanos),
        all: &mut AllFed,
    ) {
        let stream = &mut self.open[index];
        if !stream.has_output() || (all.taken >= most && !stream.is_passed_on()) {
            return;
        }
        if stream.response == ResponseStage::Ready {
            (stream.response, stream.began) = (ResponseStage::Passing, now);
            if let Some(record) = &mut stream.record {
                record.sends(now);
            }
        }
        let fed = stream.feed(quic, &self.own_bytes, &mut all.taken, most);
        let id = stream.id;
        if stream.is_finished() {
            all.has_finished = true;
            self.whole.extend(stream.record.take());
            self.machine.answered(stream.content_len);
            if !stream.is_received {
                // The rest of the request is not needed.
                let _ = quic.recv_stream(id).stop(code(h3::ErrorCode::NO_ERROR));
            }
        }
        match fed {
            FeedEnd::All => {}
            // Tried again after an acknowledgement or the end of a read.
            FeedEnd::Read(..) if self.may_read() == 0 => {}
            fed => all.rest = Some((id, fed)),
        }
    }

    /// Moves a stream behind all others of its level.
    fn end_turn(&mut self, index: usize) {
        let level = self.open[index].priority.level();
        let rest = &mut self.open[index..];
        let same = rest.iter().take_while(|it| it.priority.level() == level);
        let count = same.count();
        rest[..count].rotate_left(1);
    }

    /// Removes a stream. A response that was not complete is logged as cut short.
    pub(super) fn forget(&mut self, id: StreamId) {
        self.disk.forget(u64::from(id));
        self.postponed.retain(|postponed| *postponed != id);
        if let Some(index) = self.position(id) {
            let stream = self.open.remove(index);
            self.cut.extend(stream.cut());
        }
    }

    /// Removes all streams: the connection has ended.
    pub(super) fn abandon(&mut self) {
        self.disk.missed.clear();
        let rest = self.open.drain(..);
        self.cut.extend(rest.filter_map(Stream::cut));
    }

    /// Memory held for the peer, by account.
    pub(super) fn held(&self) -> BytesByAccount {
        let mut held = BytesByAccount::default();
        let own = self.open.iter().map(Stream::own_bytes);
        let machines = self.open.iter().map(|stream| stream.machine.memory());
        held[Account::Answers] = own.sum::<u64>() + self.read_bytes();
        held[Account::Streams] = (self.machine.memory() + machines.sum::<usize>()) as u64;
        let open = self.open.iter().filter_map(|it| it.record.as_ref());
        let records = self.whole.iter().chain(&self.cut).chain(open);
        held[Account::Log] = records.map(Record::memory).sum();
        held
    }

    /// Bytes read for this connection and still held.
    fn read_bytes(&self) -> u64 {
        self.own_bytes.load(Ordering::Relaxed)
    }

    /// Bytes of a file that may be read for a stream now; 0 while the connection is at its bounds.
    pub(super) fn may_read(&self) -> u64 {
        let asked = u64::from(self.disk.reads) * READ_MAX;
        // Slices that wait for the length of a growing file are held, too.
        let asked = asked + u64::from(self.disk.lengths) * READ_AMONG_OTHERS_MAX;
        if self.disk.reads >= READS_MAX || self.read_bytes() + asked + READ_MAX > READ_HELD_MAX {
            return 0;
        }
        let mut unfinished = self.open.iter().filter(|stream| !stream.is_finished());
        // The peer may stop reading a stream, and what was read for it stays in memory.
        match unfinished.nth(1) {
            None => READ_MAX,
            Some(_) => READ_AMONG_OTHERS_MAX,
        }
    }

    /// Passes content that was read to its stream.
    pub(super) fn was_read(&mut self, id: StreamId, bytes: Vec<u8>) {
        if let Some(stream) = self.open.iter_mut().find(|stream| stream.id == id) {
            stream.read(bytes, &self.own_bytes);
        }
    }

    /// The shared bodies that its streams are sending.
    pub(crate) fn shared(&self) -> impl Iterator<Item = &Arc<Memory>> {
        let parts = self.open.iter().flat_map(|stream| &stream.parts);
        parts.filter_map(Body::shared)
    }
}

/// The rank of a response for the library: by urgency level, then by the order of requests. The 27
/// bits for the order suffice for the life of a connection.
fn rank(priority: Priority, id: StreamId) -> i32 {
    const ORDER_BITS: u32 = 27;
    let level = LEVELS as i32 - 1 - i32::from(priority.level());
    let order = match priority.is_incremental {
        true => 0,
        false => {
            let most = (1 << ORDER_BITS) - 1;
            most - i32::try_from(id.index()).unwrap_or(most).min(most)
        }
    };
    level << ORDER_BITS | order
}

/// Converts an HTTP/3 error code to the library's type.
pub(super) fn code(code: h3::ErrorCode) -> VarInt {
    VarInt::from_u64(code.0).unwrap_or(VarInt::from_u32(0))
}
