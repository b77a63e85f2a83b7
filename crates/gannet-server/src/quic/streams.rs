//! The HTTP/3 side of a connection: its machine, its requests, and the content that their answers
//! still have to send.
//!
//! ```text
//!   a stream's bytes ─▶ machine of the request ─▶ head and short content: `wire`
//!                                                 longer content: `parts`
//!   ─▶ into the library's stream as far as its windows go ─▶ packets ─▶ acknowledged: forgotten
//!              ▲
//!              └── read from disk, a part at a time; other streams go on meanwhile
//! ```

use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use gannet_http::binary::priority::Priority;
use gannet_http::h2::Time;
use gannet_http::h3::{self, RequestStream};
use gannet_http::semantics::date::DATE_LINE_LEN;
use gannet_http::semantics::response::ResponseHead;
use gannet_io::driver::Nanos;
use gannet_io::memory::Memory;
use quinn_proto::{Connection, StreamId, VarInt, WriteError};

use super::limits::READ_MAX;
use crate::exchange::body::Body;
use crate::exchange::waiting::WaitingRequest;
use crate::limits::COPY_MAX;
use crate::observe::log::Record;
use crate::release::{ServedFile, Source};
use crate::worker::ledger::{Account, Held};

/// See the module's description.
pub(crate) struct Streams {
    pub(super) machine: h3::Connection,
    /// Our control stream, and what it did not take yet.
    control: Option<(StreamId, Vec<u8>)>,
    /// Requests, until their answers are acknowledged.
    pub(super) open: Vec<Stream>,
    /// Requests for which the disk has to be asked.
    pub(super) missed: Vec<(StreamId, Box<WaitingRequest>)>,
    /// Lookups and reads that the disk has not answered yet, those of streams that have ended
    /// included.
    pub(super) asked: u32,
    /// Of these, reads of content.
    pub(super) reads: u32,
    /// Bytes read for this connection that its peer has not acknowledged.
    read_bytes: Arc<AtomicU64>,
    /// Responses of which everything was handed to the library, for the log.
    pub(super) whole: Vec<Record>,
    /// Responses that ended before, for the log.
    pub(super) cut: Vec<Record>,
}

/// A request, and its answer.
pub(crate) struct Stream {
    pub(super) id: StreamId,
    pub(crate) machine: RequestStream,
    /// When it was opened.
    pub(super) began: Nanos,
    /// Where it has its place among the others: 0 (first) to 7.
    urgency: u8,
    /// Its head and short content: what leaves before the parts.
    wire: Vec<u8>,
    /// How much of that the library has taken.
    taken: usize,
    /// The content behind it.
    parts: VecDeque<Body>,
    /// The rest of a part that the library has taken in part.
    rest: Bytes,
    pub(crate) record: Option<Record>,
    /// Bytes of content that its answer has.
    pub(super) content_len: u64,
    /// The peer has sent all that it will.
    pub(crate) is_received: bool,
    /// The head of the answer was written.
    pub(super) is_answered: bool,
    /// All was handed to the library.
    is_finished: bool,
    /// The library takes no more for now.
    is_blocked: bool,
    /// The disk was asked for its next bytes.
    pub(super) is_reading: bool,
}

/// Why no more of a stream's answer was handed over.
pub(super) enum Fed {
    /// There is nothing more, or no room.
    All,
    /// The next bytes have to be read first.
    Read(Rc<ServedFile>, Range<u64>),
    /// The peer does not want it.
    Unwanted,
}

/// What came of handing content over.
#[derive(Default)]
pub(super) struct AllFed {
    /// Bytes that the library has taken.
    pub(super) taken: u64,
    /// Streams whose answers are complete.
    pub(super) finished: Vec<StreamId>,
    /// Streams that need something first.
    pub(super) rest: Vec<(StreamId, Fed)>,
}

/// Content on its way, until the peer has acknowledged it.
struct Sent {
    memory: Arc<Memory>,
    range: Range<usize>,
    /// What it adds to, if it was read for this connection.
    read_bytes: Option<Arc<AtomicU64>>,
}

impl AsRef<[u8]> for Sent {
    fn as_ref(&self) -> &[u8] {
        &self.memory.bytes()[self.range.clone()]
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        if let Some(all) = &self.read_bytes {
            all.fetch_sub(self.memory.len() as u64, Ordering::Relaxed);
        }
    }
}

impl Stream {
    pub(super) fn new(id: StreamId, machine: RequestStream, now: Nanos) -> Self {
        Self {
            id,
            machine,
            began: now,
            urgency: Priority::default().urgency,
            wire: Vec::new(),
            taken: 0,
            parts: VecDeque::new(),
            rest: Bytes::new(),
            record: None,
            content_len: 0,
            is_received: false,
            is_answered: false,
            is_finished: false,
            is_blocked: false,
            is_reading: false,
        }
    }

    /// Writes the head of its answer, which has `len` bytes of content; true if they are to follow.
    pub(crate) fn respond(
        &mut self,
        head: &ResponseHead<'_>,
        date_line: &[u8; DATE_LINE_LEN],
        len: u64,
    ) -> bool {
        self.is_answered = true;
        let has_content = self.machine.respond(head, date_line, len, &mut self.wire);
        self.content_len = if has_content { len } else { 0 };
        has_content
    }

    /// Adds a range of a representation to its content.
    pub(crate) fn content(&mut self, source: Source<'_>, range: Range<u64>) {
        let bounds = || range.start as usize..range.end as usize;
        match source {
            Source::Bytes(bytes) if self.parts.is_empty() => {
                self.wire.extend_from_slice(&bytes[bounds()]);
            }
            Source::Memory(memory, offset)
                if self.parts.is_empty() && bounds().len() <= COPY_MAX =>
            {
                let range = offset + bounds().start..offset + bounds().end;
                self.wire.extend_from_slice(&memory.bytes()[range]);
            }
            source => match Body::of(source, range).map(Body::in_memory) {
                Some(body) if body.is_empty() => {}
                Some(body) => self.parts.push_back(body),
                None => debug_assert!(false, "bytes are at hand"),
            },
        }
    }

    /// Whether there is something to hand over.
    fn has_output(&self) -> bool {
        self.is_answered && !self.is_finished && !self.is_reading && !self.is_blocked
    }

    /// Hands its answer to the library, as far as that goes. Counts what was taken.
    fn feed(&mut self, quic: &mut Connection, read_bytes: &Arc<AtomicU64>, taken: &mut u64) -> Fed {
        loop {
            let mut stream = quic.send_stream(self.id);
            let written = if self.taken < self.wire.len() {
                let written = stream.write(&self.wire[self.taken..]);
                if let Ok(len) = written {
                    self.taken += len;
                }
                written
            } else if !self.rest.is_empty() {
                let mut chunks = [std::mem::take(&mut self.rest)];
                let written = stream.write_chunks(&mut chunks);
                let [rest] = chunks;
                self.rest = rest;
                written.map(|written| written.bytes)
            } else {
                match self.parts.pop_front() {
                    None => {
                        self.is_finished = true;
                        return match stream.finish() {
                            Ok(()) => Fed::All,
                            Err(_) => Fed::Unwanted,
                        };
                    }
                    Some(Body::File(file, range)) => {
                        let len = (range.end - range.start).min(READ_MAX);
                        let next = range.start..range.start + len;
                        self.parts.push_front(Body::File(Rc::clone(&file), range));
                        return Fed::Read(file, next);
                    }
                    Some(Body::Own(memory, range)) => {
                        read_bytes.fetch_add(memory.len() as u64, Ordering::Relaxed);
                        let read_bytes = Some(Arc::clone(read_bytes));
                        self.rest = Bytes::from_owner(Sent {
                            memory,
                            range,
                            read_bytes,
                        });
                    }
                    Some(Body::Shared(memory, range)) => {
                        let read_bytes = None;
                        self.rest = Bytes::from_owner(Sent {
                            memory,
                            range,
                            read_bytes,
                        });
                    }
                }
                continue;
            };
            match written {
                Ok(len) => *taken += len as u64,
                Err(WriteError::Blocked) => {
                    self.is_blocked = true;
                    return Fed::All;
                }
                Err(WriteError::Stopped(_) | WriteError::ClosedStream) => return Fed::Unwanted,
            }
        }
    }

    /// Bytes of its file, read for it.
    pub(super) fn read(&mut self, bytes: Vec<u8>) {
        self.is_reading = false;
        let Some(Body::File(_, range)) = self.parts.front_mut() else {
            debug_assert!(false, "one read at a time, of the first part");
            return;
        };
        range.start += bytes.len() as u64;
        if range.start == range.end {
            self.parts.pop_front();
        }
        self.parts.push_front(Body::own(bytes));
    }

    /// What the log is to say of it if nothing more of it is sent.
    fn cut(self) -> Option<Record> {
        let mut record = self.record?;
        record.cut(&self.parts);
        Some(record)
    }

    /// Bytes made or read for it alone that the library has not taken, or has copied.
    fn own_bytes(&self) -> u64 {
        let parts = self.parts.iter().map(Body::own_bytes);
        self.wire.capacity() as u64 + parts.sum::<u64>()
    }
}

impl Streams {
    /// Those of a connection from which nothing was received.
    pub(super) fn new(now: Nanos) -> Self {
        Self {
            machine: h3::Connection::new(Time(now.0)),
            control: None,
            open: Vec::new(),
            missed: Vec::new(),
            asked: 0,
            reads: 0,
            read_bytes: Arc::default(),
            whole: Vec::new(),
            cut: Vec::new(),
        }
    }

    /// Whether no request is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.open.is_empty() && self.asked == 0
    }

    /// Whether our control stream is open.
    pub(super) fn has_control(&self) -> bool {
        self.control.is_some()
    }

    /// Our control stream was opened.
    pub(super) fn control_opened(&mut self, id: StreamId) {
        self.control = Some((id, self.machine.opening()));
    }

    /// Adds bytes to the control stream.
    pub(super) fn say(&mut self, bytes: &[u8]) {
        if let Some((_, waiting)) = &mut self.control {
            waiting.extend_from_slice(bytes);
        }
    }

    /// What waits to be sent on the control stream.
    pub(super) fn take_control(&mut self) -> Option<(StreamId, Vec<u8>)> {
        let (id, waiting) = self.control.as_mut()?;
        (!waiting.is_empty()).then(|| (*id, std::mem::take(waiting)))
    }

    /// Where the request on a stream is.
    pub(super) fn position(&self, id: StreamId) -> Option<usize> {
        self.open.iter().position(|stream| stream.id == id)
    }

    /// The machine, and a request.
    pub(crate) fn request(&mut self, index: usize) -> (&mut h3::Connection, &mut Stream) {
        (&mut self.machine, &mut self.open[index])
    }

    /// A request has to wait.
    pub(crate) fn missed(&mut self, index: usize, waiting: Box<WaitingRequest>) {
        self.missed.push((self.open[index].id, waiting));
    }

    /// Whether a stream is our control stream.
    pub(super) fn is_control(&self, id: StreamId) -> bool {
        self.control
            .as_ref()
            .is_some_and(|(control, _)| *control == id)
    }

    /// The request on a stream.
    pub(super) fn find(&mut self, id: StreamId) -> Option<&mut Stream> {
        self.open.iter_mut().find(|stream| stream.id == id)
    }

    /// The library takes more of a stream.
    pub(super) fn writable(&mut self, id: StreamId) {
        if let Some(stream) = self.find(id) {
            stream.is_blocked = false;
        }
    }

    /// The peer has acknowledged all of an answer.
    pub(super) fn acknowledged(&mut self, id: StreamId) {
        if let Some(index) = self.open.iter().position(|stream| stream.id == id) {
            self.open.remove(index);
        }
    }

    /// Puts answers in the order of their urgency. Gives that of one whose priority has changed.
    pub(super) fn order(&mut self, id: StreamId) -> Option<u8> {
        let stream = self.find(id)?;
        let urgency = stream.machine.priority().urgency;
        if urgency == stream.urgency {
            return None;
        }
        stream.urgency = urgency;
        self.open.sort_by_key(|stream| (stream.urgency, stream.id));
        Some(urgency)
    }

    /// Whether some answer cannot go on because its peer takes nothing.
    pub(super) fn has_stalled(&self) -> bool {
        self.open
            .iter()
            .any(|stream| stream.is_blocked || stream.is_finished)
    }

    /// When the oldest request was begun that has not come whole.
    pub(super) fn oldest_request(&self) -> Option<Nanos> {
        let requests = self.open.iter();
        let requests = requests.filter(|stream| stream.machine.awaits_head());
        requests.map(|stream| stream.began).min()
    }

    /// Requests that have not come whole in time.
    pub(super) fn late_requests(&self, now: Nanos, timeout_ms: u64) -> Vec<StreamId> {
        let late = self.open.iter().filter(|stream| {
            stream.machine.awaits_head() && stream.began.plus_ms(timeout_ms) <= now
        });
        late.map(|stream| stream.id).collect()
    }

    /// Hands content over.
    pub(super) fn feed(&mut self, quic: &mut Connection) -> AllFed {
        let mut all = AllFed::default();
        for stream in self.open.iter_mut().filter(|stream| stream.has_output()) {
            match stream.feed(quic, &self.read_bytes, &mut all.taken) {
                Fed::All => {}
                fed => all.rest.push((stream.id, fed)),
            }
            if stream.is_finished {
                all.finished.push(stream.id);
                self.whole.extend(stream.record.take());
            }
        }
        all
    }

    /// Forgets a stream. The log is told of an answer that was not finished.
    pub(super) fn forget(&mut self, id: StreamId) {
        self.missed.retain(|(missed, _)| *missed != id);
        if let Some(index) = self.open.iter().position(|stream| stream.id == id) {
            let stream = self.open.remove(index);
            self.cut.extend(stream.cut());
        }
    }

    /// The connection is gone.
    pub(super) fn abandon(&mut self) {
        self.missed.clear();
        let rest = self.open.drain(..);
        self.cut.extend(rest.filter_map(Stream::cut));
    }

    /// What it holds for its peer.
    pub(super) fn held(&self) -> Held {
        let mut held = Held::default();
        let own = self.open.iter().map(Stream::own_bytes);
        let machines = self.open.iter().map(|stream| stream.machine.memory());
        held[Account::Answers] = own.sum::<u64>();
        held[Account::Sends] = self.reads_unacknowledged();
        held[Account::Streams] = (self.machine.memory() + machines.sum::<usize>()) as u64;
        let open = self.open.iter().filter_map(|it| it.record.as_ref());
        let records = self.whole.iter().chain(&self.cut).chain(open);
        held[Account::Log] = records.map(Record::memory).sum();
        let missed = self.missed.iter();
        held[Account::Waiting] = missed.map(|(_, waiting)| waiting.memory()).sum();
        held
    }

    /// Bytes read for it that are on their way.
    pub(super) fn reads_unacknowledged(&self) -> u64 {
        self.read_bytes.load(Ordering::Relaxed)
    }

    /// Shared bodies that its streams send.
    pub(crate) fn shared(&self) -> impl Iterator<Item = &Arc<Memory>> {
        let parts = self.open.iter().flat_map(|stream| &stream.parts);
        parts.filter_map(Body::shared)
    }
}

/// An error code of HTTP/3 as the library has it.
pub(super) fn code(code: h3::ErrorCode) -> VarInt {
    VarInt::from_u64(code.0).unwrap_or(VarInt::from_u32(0))
}
