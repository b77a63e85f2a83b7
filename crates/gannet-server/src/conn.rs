//! A connection: what is known of it between two turns of the loop.

use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use gannet_content::rules::pattern::Scheme;
use gannet_http::h1;
use gannet_io::driver::{Nanos, Socket};
use gannet_io::memory::Memory;

use crate::log::Record;
use crate::outgoing::Outgoing;
use crate::secure::{Secure, State};
use crate::site::ServedFile;
use crate::site::directory::fill::Fill;
use crate::site::inflated::Inflation;
use crate::streams::Streams;
use crate::timers::Tick;

/// What a connection is busy with.
///
/// ```text
///              request complete            all sent
///   Reading ───────────────────▶ Sending ───────────▶ Reading, or Lingering, or closed
///      │                            ▲
///      └── the disk is asked ─▶ Waiting
/// ```
/// A connection over TLS begins with `Shaking`, and goes on with `Reading`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Phase {
    /// The slot is not in use.
    Free,
    /// The TLS handshake is under way.
    Shaking,
    /// Waiting for a request, or for the rest of one.
    Reading,
    /// Waiting for the disk on behalf of one request.
    Waiting,
    /// One send is under way.
    Sending,
    /// All is sent and our half is closed; the peer's last bytes are dropped until it closes.
    Lingering,
}

/// One connection. Small: a hundred thousand idle ones should fit in memory easily.
pub(crate) struct Conn {
    pub(crate) socket: Socket,
    /// Counts the uses of this slot, so that late answers of the disk find nobody.
    pub(crate) generation: u32,
    pub(crate) phase: Phase,
    /// A `receive` is armed.
    pub(crate) receiving: bool,
    /// The peer has closed its half.
    pub(crate) ended: bool,
    /// Close once what is under way has been sent.
    pub(crate) closing: bool,
    /// The peer may still be sending when we close: see [`Phase::Lingering`].
    pub(crate) linger: bool,
    /// Only whole segments leave: a large file is under way.
    pub(crate) is_corked: bool,
    /// The deadline of the head that is being received was set.
    pub(crate) is_head_timed: bool,
    /// Nothing was received yet, so the version of HTTP is not known.
    pub(crate) is_fresh: bool,
    pub(crate) h1: h1::Connection,
    /// Stands in for `h1` if the peer speaks HTTP/2.
    pub(crate) streams: Option<Box<Streams>>,
    /// When it was accepted, or when its last answer was sent.
    pub(crate) idle_since: Nanos,
    /// When something must have happened.
    pub(crate) deadline: Tick,
    /// When the wheel looks at this connection next.
    pub(crate) scheduled: Tick,
    /// Input received but not yet parsed.
    pub(crate) held: Vec<u8>,
    /// Bytes sent so far.
    pub(crate) sent: u64,
    /// Bytes that the send under way carries.
    pub(crate) expected: u64,
    /// What the peer had acknowledged when a deadline last passed.
    pub(crate) acknowledged: u64,
    /// Bytes dropped while lingering.
    pub(crate) dropped: u64,
    /// Present only while a response needs more than one send, or the disk, or a log line.
    pub(crate) work: Option<Box<Work>>,
    /// Files whose pages may still be in the socket's queue, with the value of `sent` after them.
    pub(crate) queued: Vec<(Rc<ServedFile>, u64)>,
    /// The peer's address, if requests are logged.
    pub(crate) peer: Option<Box<str>>,
    /// Every request is answered with its URL under `https`.
    pub(crate) redirects: bool,
    /// What is exchanged is sealed by TLS.
    pub(crate) tls: Option<Box<Secure>>,
}

impl Conn {
    /// A fresh connection.
    pub(crate) fn new(socket: Socket, generation: u32) -> Self {
        Self {
            socket,
            generation,
            phase: Phase::Reading,
            receiving: false,
            ended: false,
            closing: false,
            linger: false,
            is_corked: false,
            is_head_timed: true,
            is_fresh: true,
            h1: h1::Connection::new(),
            streams: None,
            idle_since: Nanos(0),
            deadline: Tick::NEVER,
            scheduled: Tick::NEVER,
            held: Vec::new(),
            sent: 0,
            expected: 0,
            acknowledged: 0,
            dropped: 0,
            work: None,
            queued: Vec::new(),
            peer: None,
            redirects: false,
            tls: None,
        }
    }

    /// Whether nobody would miss it: no request is under way, nor a part of one.
    pub(crate) fn is_idle(&self) -> bool {
        let is_idle = match &self.streams {
            Some(streams) => streams.is_idle(),
            None => self.h1.is_idle(),
        };
        is_idle && self.phase == Phase::Reading && self.held.is_empty()
    }

    /// Whether an HTTP/2 connection that sends nothing has nothing more to do: no stream is left,
    /// or the peer that would have to act cannot, having closed its half.
    pub(crate) fn is_through(&self) -> bool {
        self.streams.as_ref().is_some_and(|streams| {
            streams.connection.is_closing() || self.ended && streams.asked == 0
        })
    }

    /// Whether it speaks TLS.
    pub(crate) fn is_secure(&self) -> bool {
        self.tls.is_some()
    }

    /// The scheme of the URLs that are asked for on it.
    pub(crate) fn scheme(&self) -> Scheme {
        match self.is_secure() {
            true => Scheme::Https,
            false => Scheme::Http,
        }
    }

    /// Whether what it asks for now may be a replay: see [`State::Early`].
    pub(crate) fn is_early(&self) -> bool {
        let tls = self.tls.as_deref();
        tls.is_some_and(|tls| matches!(tls.state, State::Early(_)))
    }

    /// Whether the peer broke TLS and has not been told yet.
    pub(crate) fn has_fault(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.fault.is_some())
    }

    /// Whether nothing but a handshake was sent on it.
    pub(crate) fn is_untouched(&self) -> bool {
        self.sent == self.tls.as_ref().map_or(0, |tls| tls.handshake_bytes)
    }

    /// The extra state, made on first use.
    pub(crate) fn work(&mut self) -> &mut Work {
        self.work.get_or_insert_default()
    }
}

/// What only some responses need.
#[derive(Default)]
pub(crate) struct Work {
    /// What follows once the send under way has completed.
    pub(crate) parts: VecDeque<Part>,
    /// A request that waits for the disk.
    pub(crate) parked: Option<Box<Parked>>,
    /// Responses under way, for the log.
    pub(crate) records: Vec<Record>,
    /// The file whose pages the send under way hands to the kernel.
    pub(crate) current: Option<Rc<ServedFile>>,
    /// The file that a copy is being read from.
    pub(crate) copied: Option<Rc<ServedFile>>,
    /// Bytes that go out in front of the copy being read.
    pub(crate) head: Vec<u8>,
    /// The connection is over but for pages in its queue; by then the peer must have them.
    pub(crate) drains_until: Option<Nanos>,
}

impl Work {
    /// Whether nothing is left in it.
    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty()
            && self.parked.is_none()
            && self.records.is_empty()
            && self.current.is_none()
            && self.head.is_empty()
    }
}

/// A piece of a response that is sent on its own.
pub(crate) enum Part {
    /// Bytes made for it.
    Wire(Vec<u8>),
    /// A range of shared memory.
    Memory(Arc<Memory>, Range<usize>),
    /// A range of a file.
    File(Rc<ServedFile>, Range<u64>),
}

/// What a request waits for.
#[expect(clippy::large_enum_variant, reason = "it is in a box with the request")]
pub(crate) enum Waits {
    /// The answers to questions asked of the disk.
    Lookup(Fill),
    /// A body of an archive, which is to be inflated; `None` when that was asked for.
    Body(Option<Inflation>),
}

/// A request that waits for the disk.
pub(crate) struct Parked {
    /// The bytes of its head, parsed again when the answer is there.
    pub(crate) head: Vec<u8>,
    pub(crate) waits: Waits,
    /// Answers to the requests before it.
    pub(crate) out: Outgoing,
}

/// All connections of a worker, by slot.
#[derive(Default)]
pub(crate) struct Conns {
    slots: Vec<Conn>,
    free: Vec<u32>,
}

impl Conns {
    /// Takes a slot for a new connection.
    pub(crate) fn add(&mut self, socket: Socket) -> u32 {
        if let Some(slot) = self.free.pop() {
            let conn = &mut self.slots[slot as usize];
            *conn = Conn::new(socket, conn.generation);
            return slot;
        }
        self.slots.push(Conn::new(socket, 0));
        u32::try_from(self.slots.len() - 1).expect("descriptors are numbered by i32")
    }

    /// Frees a slot: everything the connection owned is dropped.
    pub(crate) fn remove(&mut self, slot: u32) {
        let conn = &mut self.slots[slot as usize];
        let generation = conn.generation.wrapping_add(1) & GENERATION_MAX;
        *conn = Conn::new(conn.socket, generation);
        conn.phase = Phase::Free;
        self.free.push(slot);
    }

    /// The connection in a slot that is known to be in use.
    pub(crate) fn at(&mut self, slot: u32) -> &mut Conn {
        &mut self.slots[slot as usize]
    }

    /// The connection in a slot, if it is still the same one.
    pub(crate) fn find(&mut self, slot: u32, generation: u32) -> Option<&mut Conn> {
        self.slots
            .get_mut(slot as usize)
            .filter(|conn| conn.phase != Phase::Free && conn.generation == generation)
    }

    /// How many are in use.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Slots in use.
    pub(crate) fn used(&self) -> impl Iterator<Item = (u32, &Conn)> {
        (0u32..)
            .zip(&self.slots)
            .filter(|(_, conn)| conn.phase != Phase::Free)
    }
}

/// Generations are counted modulo 2^24: that many fit a token beside kind and slot.
pub(crate) const GENERATION_MAX: u32 = (1 << 24) - 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reused_slot_has_another_generation() {
        let mut conns = Conns::default();
        let slot = conns.add(Socket(1));
        let old = conns.at(slot).generation;
        conns.remove(slot);
        assert!(conns.find(slot, old).is_none());
        assert_eq!(conns.add(Socket(2)), slot);
        assert!(conns.find(slot, old).is_none());
        assert_eq!(conns.len(), 1);
    }

    #[test]
    fn an_idle_connection_is_small() {
        // The promise is 2 KiB of user memory each; driver and wheel take their share too.
        assert!(size_of::<Conn>() <= 256, "{}", size_of::<Conn>());
    }
}
