//! One connection of the HTTP/3 load client: its requests and responses.

use std::collections::VecDeque;
use std::time::Instant;

use bytes::Bytes;
use quinn_proto::{
    Connection, ConnectionHandle, Dir, EndpointEvent, Event, ReadError, StreamEvent, StreamId,
    Transmit, VarInt,
};
use quinn_udp::EcnCodepoint;

use super::response::Response;
use super::{Client, Shape, TRAIN};
use crate::load::LoadError;

/// Upper bound of a datagram's length in bytes, from which the number of datagrams in a train
/// follows.
const DATAGRAM_MAX: usize = 1500;
/// A control stream with empty settings (RFC 9114 sections 6.2.1 and 7.2.4).
const CONTROL: [u8; 3] = [0x00, 0x04, 0];
/// `H3_NO_ERROR`.
const NO_ERROR: u32 = 0x100;

/// A connection and its outstanding requests.
pub(super) struct Slot {
    pub(super) handle: ConnectionHandle,
    pub(super) quic: Connection,
    /// It is queued to be served.
    pub(super) is_due: bool,
    /// The library's next timer.
    pub(super) deadline: Option<Instant>,
    /// Datagrams received since the connection last sent.
    pub(super) unanswered: u32,
    /// Its handshake has completed.
    is_open: bool,
    open: Vec<Exchange>,
    /// The due times of requests that wait for a stream, in an open loop.
    pub(super) waiting: VecDeque<u64>,
    /// When connecting started, in nanoseconds since the run began.
    started: u64,
    /// With a connection per request: its request was answered.
    is_spent: bool,
    /// Responses received in this slot.
    pub(super) served: u64,
}

/// A request whose response is incomplete.
struct Exchange {
    id: StreamId,
    /// Index of the requested target.
    target: u32,
    started: u64,
    verify: bool,
    response: Response,
    received: u64,
}

/// Encodes a request: a HEADERS frame whose field names are from the static table (RFC 9204
/// appendix A).
pub(super) fn request(authority: &str, path: &str) -> Vec<u8> {
    // The prefix without dynamic references; `:method: GET`, `:scheme: https`.
    let mut section = vec![0, 0, 0xc0 | 17, 0xc0 | 23];
    for (name, value) in [(0, authority), (1, path)] {
        // A literal with a name from the static table, not Huffman-coded.
        section.push(0x50 | name);
        match value.len() {
            len @ 0..127 => section.push(len as u8),
            len => section.extend([0x7f, (len - 127) as u8 | 0x80, ((len - 127) >> 7) as u8]),
        }
        section.extend(value.as_bytes());
    }
    let len = (section.len() as u16 | 0x4000).to_be_bytes();
    [&[0x01], &len[..], &section].concat()
}

impl Client<'_> {
    /// Starts a connection for a slot.
    pub(super) fn connect(&mut self, index: usize) -> Result<Slot, LoadError> {
        let (now, address) = (Instant::now(), self.plan.address);
        let connected = self
            .endpoint
            .connect(now, self.config.clone(), address, "localhost");
        let (handle, quic) = connected.map_err(|e| LoadError::Client(format!("QUIC: {e}")))?;
        if handle.0 >= self.by_number.len() {
            self.by_number.resize(handle.0 + 1, usize::MAX);
        }
        self.by_number[handle.0] = index;
        self.connecting += 1;
        Ok(Slot {
            handle,
            quic,
            is_due: false,
            deadline: None,
            unanswered: 0,
            is_open: false,
            open: Vec::new(),
            waiting: VecDeque::new(),
            started: self.now(),
            is_spent: false,
            served: 0,
        })
    }

    /// Handles the events of a connection, makes its requests, and sends.
    pub(super) fn serve(&mut self, index: usize) -> Result<(), LoadError> {
        while let Some(event) = self.slots[index].quic.poll() {
            match event {
                Event::Connected => self.connected(index),
                Event::ConnectionLost { reason } => {
                    return Err(self.lost(index, reason.to_string()));
                }
                Event::Stream(StreamEvent::Opened { dir }) => {
                    while let Some(id) = self.slots[index].quic.streams().accept(dir) {
                        self.read(index, id)?;
                    }
                }
                Event::Stream(StreamEvent::Readable { id }) => self.read(index, id)?,
                _ => {}
            }
        }
        self.ask(index)?;
        self.flush(index);
        match self.slots[index].is_spent {
            true => self.replace(index),
            false => Ok(()),
        }
    }

    fn connected(&mut self, index: usize) {
        self.connecting -= 1;
        self.counts.handshakes += 1;
        let slot = &mut self.slots[index];
        slot.is_open = true;
        if let Some(id) = slot.quic.streams().open(Dir::Uni) {
            // Three bytes fit the window of every server.
            let _ = slot.quic.send_stream(id).write(&CONTROL);
        }
    }

    /// Makes the requests that are due on a connection.
    fn ask(&mut self, index: usize) -> Result<(), LoadError> {
        // With a connection per request, a connection does not wait for the others.
        let is_held = self.holding && self.plan.keep_alive;
        if is_held || !self.slots[index].is_open || self.slots[index].is_spent {
            return Ok(());
        }
        loop {
            let slot = &mut self.slots[index];
            let is_room = match self.shape {
                Shape::Closed(streams) => slot.open.len() < streams,
                Shape::Open(_) | Shape::Once => !slot.waiting.is_empty(),
            };
            if !is_room || (!self.plan.keep_alive && !slot.open.is_empty()) {
                return Ok(());
            }
            let Some(id) = slot.quic.streams().open(Dir::Bi) else {
                return Ok(());
            };
            let due = slot.waiting.pop_front();
            let started = match self.plan.keep_alive {
                true => due.unwrap_or_else(|| self.now()),
                false => slot.started,
            };
            let target = self.choice.next();
            let bytes = &self.requests[target as usize];
            let slot = &mut self.slots[index];
            let mut stream = slot.quic.send_stream(id);
            let written = stream.write(bytes);
            if written != Ok(bytes.len()) || stream.finish().is_err() {
                let what = format!("a request did not fit the stream: {written:?}");
                return Err(LoadError::Client(what));
            }
            let every = self.plan.verify_every;
            let number = self.responses + slot.open.len() as u64;
            slot.open.push(Exchange {
                id,
                target,
                started,
                verify: every > 0 && number.is_multiple_of(every),
                response: Response::new(),
                received: 0,
            });
        }
    }

    /// Reads the available bytes of a stream.
    fn read(&mut self, index: usize, id: StreamId) -> Result<(), LoadError> {
        let slot = &mut self.slots[index];
        let mut stream = slot.quic.recv_stream(id);
        let Ok(mut chunks) = stream.read(true) else {
            return Ok(());
        };
        let Some(at) = slot.open.iter().position(|exchange| exchange.id == id) else {
            // The server's own streams are read and dropped, so that their windows do not fill up.
            while let Ok(Some(_)) = chunks.next(usize::MAX) {}
            let _ = chunks.finalize();
            return Ok(());
        };
        let exchange = &mut slot.open[at];
        let target = &self.plan.targets[exchange.target as usize];
        let wrong = |what| LoadError::Wrong {
            path: target.path.clone(),
            what,
        };
        let (len, before) = (target.content.len(), exchange.received);
        let is_end = loop {
            match chunks.next(usize::MAX) {
                Ok(Some(chunk)) => {
                    let (received, verify) = (&mut exchange.received, exchange.verify);
                    let mut content = |bytes: &[u8]| {
                        let from = *received;
                        *received += bytes.len() as u64;
                        if *received > len {
                            return Err(format!("{received} bytes and more (expected {len})"));
                        }
                        match !verify || target.content.matches(from, bytes) {
                            true => Ok(()),
                            false => Err(format!("content differs in bytes {from} to {received}")),
                        }
                    };
                    let taken = exchange.response.take(&chunk.bytes, &mut content);
                    taken.map_err(wrong)?;
                }
                Ok(None) => break true,
                Err(ReadError::Blocked) => break false,
                Err(ReadError::Reset(code)) => return Err(wrong(format!("reset with {code}"))),
            }
        };
        let _ = chunks.finalize();
        let (received, is_complete) = (exchange.received, exchange.response.is_complete());
        self.counts.body_bytes += received - before;
        self.last_arrival = self.now();
        if !is_end {
            return Ok(());
        }
        if !is_complete || received != len {
            return Err(wrong(format!(
                "it ends after {received} of {len} content bytes"
            )));
        }
        self.complete(index, at);
        Ok(())
    }

    /// Counts a complete, correct response.
    fn complete(&mut self, index: usize, at: usize) {
        let now = self.last_arrival;
        let slot = &mut self.slots[index];
        let exchange = slot.open.swap_remove(at);
        slot.served += 1;
        slot.is_spent = !self.plan.keep_alive;
        self.responses += 1;
        self.counts.requests += 1;
        self.counts.verified += u64::from(exchange.verify);
        self.latency
            .saturating_record(now.saturating_sub(exchange.started));
    }

    /// Closes a connection whose response was received, and starts the next one.
    fn replace(&mut self, index: usize) -> Result<(), LoadError> {
        let slot = &mut self.slots[index];
        slot.quic
            .close(Instant::now(), VarInt::from_u32(NO_ERROR), Bytes::new());
        self.flush(index);
        let handle = self.slots[index].handle;
        // Later packets of the server are not awaited.
        self.endpoint.handle_event(handle, EndpointEvent::drained());
        let served = self.slots[index].served;
        let mut slot = self.connect(index)?;
        slot.served = served;
        self.slots[index] = slot;
        self.mark(index);
        Ok(())
    }

    /// Sends the connection's pending packets.
    pub(super) fn flush(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        slot.unanswered = 0;
        while let Some(event) = slot.quic.poll_endpoint_events() {
            if let Some(event) = self.endpoint.handle_event(slot.handle, event) {
                slot.quic.handle_event(event);
            }
        }
        let most = self.udp.max_gso_segments().min(TRAIN / DATAGRAM_MAX);
        let now = Instant::now();
        loop {
            self.sent.clear();
            let Some(transmit) = slot.quic.poll_transmit(now, most, &mut self.sent) else {
                break;
            };
            let contents = &self.sent[..transmit.size];
            // If the socket is full, the packets are lost, as on any network.
            let _ = self
                .udp
                .try_send((&self.socket).into(), &as_udp(&transmit, contents));
        }
        slot.deadline = slot.quic.poll_timeout();
    }

    fn lost(&self, index: usize, what: String) -> LoadError {
        let slot = &self.slots[index];
        if !slot.is_open {
            return LoadError::Refused(what);
        }
        let target = slot.open.first().map_or(0, |exchange| exchange.target);
        LoadError::Broken {
            path: self.plan.targets[target as usize].path.clone(),
            what,
        }
    }
}

/// Converts a train for the socket library.
fn as_udp<'t>(transmit: &Transmit, contents: &'t [u8]) -> quinn_udp::Transmit<'t> {
    quinn_udp::Transmit {
        destination: transmit.destination,
        ecn: transmit
            .ecn
            .and_then(|ecn| EcnCodepoint::from_bits(ecn as u8)),
        contents,
        segment_size: transmit.segment_size,
        src_ip: transmit.src_ip,
    }
}
