//! A connection: its state between two turns of the loop ([`Conn`]), and its actions in one
//! ([`Active`]).
//!
//! In its turn a connection has access to itself and to shared state, but to no other connection.
//! Bytes arrive in `receiving`, over TLS through `handshake` and `records`, and become requests in
//! [`exchange`](crate::exchange); responses leave through `sending`. HTTP/2 has its own path in
//! between (`http2`), because many of its responses share a send.

mod closing;
mod deadlines;
mod early;
mod handshake;
mod held_hellos;
mod http1;
mod http2;
pub(crate) mod intake;
mod kernel_tls;
pub(crate) mod protocol;
mod proxied;
mod receiving;
mod records;
pub(crate) mod secure;
mod sending;
pub(crate) mod stream_reads;
pub(crate) mod streams;
mod table;
mod tails;
mod turns;
mod waiting;

use std::collections::VecDeque;
use std::rc::Rc;

use gannet_io::driver::{Driver, Nanos, Socket};

use self::intake::Intake;
use self::protocol::Protocol;
use self::secure::{Secure, TlsState};
pub(crate) use self::table::Connections;
use crate::clients::Client;
use crate::config::Scheme;
use crate::exchange::outgoing::Outgoing;
use crate::exchange::shared::Shared;
use crate::exchange::waiting::WaitingRequest;
use crate::ground::timers::Tick;
use crate::ground::token::ConnId;
use crate::observe::record::Record;
use crate::observe::stages::Stage;
use crate::release::ServedFile;
use crate::release::body::Body;

/// The current activity of a connection.
///
/// ```text
///              request complete            all sent
///   Reading ───────────────────▶ Sending ───────────▶ Reading, or Lingering, or closed
///      │                            ▲
///      └── lookup pending ────▶ Waiting
/// ```
/// A connection over TLS starts with `Shaking`, and continues with `Reading`; one by a proxy that
/// names its client starts with `Proxied`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Phase {
    /// The slot is not in use.
    Free,
    /// Waiting for a header of the PROXY protocol.
    Proxied,
    /// The TLS handshake is in progress.
    Shaking,
    /// Waiting for a request, or for the rest of one.
    Reading,
    /// Waiting for the disk or a body on behalf of one request.
    Waiting,
    /// Output is being sent, by one operation after the other: responses, the last flight of a
    /// handshake or an alert. Earlier flights are sent while [`Self::Shaking`].
    Sending,
    /// Everything is sent and our half is closed; further input is discarded until the peer closes.
    Lingering,
}

/// A connection. Small: a hundred thousand idle ones should easily fit in memory.
pub(crate) struct Conn {
    pub(crate) id: ConnId,
    pub(crate) socket: Socket,
    pub(crate) phase: Phase,
    /// As what it is counted.
    stage: Option<Stage>,
    /// What it speaks, once its proxy has named the client.
    pub(crate) scheme: Scheme,
    /// The index of the address where it was accepted.
    pub(crate) address: u16,
    /// A `receive` is armed.
    pub(crate) receiving: bool,
    /// The peer has closed its half.
    pub(crate) ended: bool,
    /// The peer may still be sending when we close: see [`Phase::Lingering`].
    pub(crate) linger: bool,
    /// Only whole segments are sent: a large file is in progress.
    pub(crate) is_corked: bool,
    /// The deadline of the current request head is set.
    pub(crate) is_head_timed: bool,
    pub(crate) protocol: Protocol,
    /// When it was accepted, or when its last response was sent.
    pub(crate) idle_since: Nanos,
    /// When progress is required.
    pub(crate) deadline: Tick,
    /// When the wheel next checks this connection.
    pub(crate) scheduled: Tick,
    /// Input not used by any request yet. Once it is closed, the connection closes after the
    /// current send.
    pub(crate) intake: Intake,
    /// Bytes sent so far.
    pub(crate) sent: u64,
    /// Length of the send in progress; 0 while it waits for its turn.
    pub(crate) expected: u64,
    /// Memory that the engine holds only for that send.
    pub(crate) in_flight: u32,
    /// Among connections with long responses: the number of its share, and how many bytes are left of it.
    pub(crate) share: (u64, u64),
    /// Bytes acknowledged by the peer when a deadline last expired.
    pub(crate) acknowledged: u64,
    /// Present only while a response needs more than one send, the disk, or a log line.
    pub(crate) work: Option<Box<ResponseWork>>,
    /// The client, if requests are logged or there are rules about clients.
    pub(crate) client: Option<Box<Client>>,
    /// The TLS state, if the connection is encrypted.
    pub(crate) tls: Option<Box<Secure>>,
}

impl Conn {
    /// A new connection.
    pub(crate) fn new(id: ConnId, socket: Socket) -> Self {
        Self {
            id,
            socket,
            phase: Phase::Reading,
            stage: None,
            scheme: Scheme::Http,
            address: 0,
            receiving: false,
            ended: false,
            linger: false,
            is_corked: false,
            is_head_timed: true,
            protocol: Protocol::new(),
            idle_since: Nanos(0),
            deadline: Tick::NEVER,
            scheduled: Tick::NEVER,
            intake: Intake::default(),
            sent: 0,
            expected: 0,
            in_flight: 0,
            share: (0, 0),
            acknowledged: 0,
            work: None,
            client: None,
            tls: None,
        }
    }

    /// Whether no request, nor part of one, is in progress; an idle connection may be shed.
    pub(crate) fn is_idle(&self) -> bool {
        self.phase == Phase::Reading && self.protocol.is_idle() && self.intake.is_empty()
    }

    /// Whether it waits for its turn among long responses: its peer is not the reason.
    fn is_in_line(&self) -> bool {
        let work = self.work.as_deref();
        let holds_back = work.is_some_and(|work| work.waits_since.is_some());
        self.phase == Phase::Sending && self.expected == 0 && !holds_back
    }

    /// Whether an answer is in progress.
    pub(crate) fn is_answering(&self) -> bool {
        let has_streams = self.protocol.streams().is_some_and(|it| !it.is_idle());
        matches!(self.phase, Phase::Sending | Phase::Waiting) || has_streams
    }

    /// Whether the connection may be closed to make room: it is idle, in its handshake, or waits
    /// for the disk on behalf of a peer that has closed its half and is probably gone.
    pub(crate) fn may_be_shed(&self) -> bool {
        let waits = match self.protocol.streams() {
            Some(streams) => self.phase == Phase::Reading && streams.waits(),
            None => self.phase == Phase::Waiting,
        };
        self.is_idle() || self.is_beginning() || self.ended && waits
    }

    /// Whether no request can have arrived yet.
    fn is_beginning(&self) -> bool {
        matches!(self.phase, Phase::Shaking | Phase::Proxied)
    }

    /// Whether an HTTP/2 connection with nothing to send is finished: its machine is closing, or
    /// the peer has closed its half and no operation is pending.
    pub(crate) fn is_through(&self) -> bool {
        self.protocol.streams().is_some_and(|streams| {
            streams.connection.is_closing() || self.ended && streams.disk.is_empty()
        })
    }

    /// Whether it uses TLS.
    pub(crate) fn is_secure(&self) -> bool {
        self.tls.is_some()
    }

    /// Whether its handshake waits for a certificate.
    fn is_held(&self) -> bool {
        let tls = self.tls.as_deref();
        tls.is_some_and(|tls| tls.held_until.is_some())
    }

    /// Whether requests received now may be replays: see [`TlsState::Early`].
    pub(crate) fn is_early(&self) -> bool {
        let tls = self.tls.as_deref();
        tls.is_some_and(|tls| matches!(tls.state, TlsState::Early(_)))
    }

    /// Whether the peer violated TLS and has not been sent the alert yet.
    pub(crate) fn has_fault(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.fault.is_some())
    }

    /// Whether nothing but a handshake was sent on it.
    pub(crate) fn is_untouched(&self) -> bool {
        self.sent == self.tls.as_ref().map_or(0, |tls| tls.handshake_bytes)
    }

    /// Discards this and all further input; the connection closes after the current send, lingering
    /// if the peer may still be sending.
    pub(crate) fn close_intake(&mut self) {
        self.linger |= !self.intake.is_empty();
        self.intake.close();
    }

    /// Closes the intake if the HTTP/1 machine has written its last response.
    pub(crate) fn close_with_machine(&mut self) {
        if let Some(http1) = self.protocol.http1()
            && http1.machine.is_closing()
        {
            self.linger |= http1.machine.is_lingering();
            self.close_intake();
        }
    }

    /// Makes the current HTTP/1 request, or the next one, the last.
    pub(crate) fn drain_http1(&mut self) {
        if let Some(http1) = self.protocol.http1() {
            http1.machine.drain();
        }
    }

    /// Records that a send is in progress, with a buffer of this capacity.
    fn sends(&mut self, capacity: usize) {
        self.in_flight = u32::try_from(capacity).unwrap_or(u32::MAX);
    }

    /// The extra state, made on first use.
    pub(crate) fn work(&mut self) -> &mut ResponseWork {
        self.work.get_or_insert_default()
    }

    /// Adds the log record of a response.
    pub(crate) fn note(&mut self, record: Option<Record>) {
        if let Some(record) = record {
            self.work().records.push(record);
        }
    }
}

/// State that only some responses need.
#[derive(Default)]
pub(crate) struct ResponseWork {
    /// Content to send after the send in progress.
    pub(crate) parts: VecDeque<Body>,
    /// A request that waits for the disk or a body.
    pub(crate) parked: Option<Box<Parked>>,
    /// Responses in progress, for the log.
    pub(crate) records: Vec<Record>,
    /// The file that a copy is being read from.
    pub(crate) copied: Option<Rc<ServedFile>>,
    /// Pages of a live file may be in a queue until the peer has this many bytes of the
    /// connection.
    pub(crate) pages_end: Option<u64>,
    /// Since when the last slice of that file waits for this.
    pub(crate) waits_since: Option<Nanos>,
    /// Whether it can be known which bytes the peer has, once determined.
    pub(crate) has_receipt: Option<bool>,
    /// Bytes to send in front of the copy being read.
    pub(crate) head: Vec<u8>,
}

impl ResponseWork {
    /// Whether it can be dropped.
    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty()
            && self.parked.is_none()
            && self.records.is_empty()
            && self.head.is_empty()
    }
}

/// A request that waits for the disk or a body.
pub(crate) struct Parked {
    pub(crate) waiting: Box<WaitingRequest>,
    /// Responses to the requests before it.
    pub(crate) out: Outgoing,
}

/// A connection in its turn, with the shared state of its worker.
pub(crate) struct Active<'a, D: Driver> {
    pub(crate) conn: &'a mut Conn,
    pub(crate) shared: &'a mut Shared<D>,
}

impl<D: Driver> Active<'_, D> {
    /// Whether it has ended: its slot is freed at the end of its turn.
    pub(crate) fn is_over(&self) -> bool {
        self.conn.phase == Phase::Free
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_connection_is_small() {
        // The limit is 2 KiB of user memory each; driver and wheel need their share, too.
        assert!(size_of::<Conn>() <= 256, "{}", size_of::<Conn>());
    }
}
