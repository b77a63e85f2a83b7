//! Sending packets: as trains of datagrams, without waiting.
//!
//! A train of several datagrams leaves at once, by a call of its own after what was gathered before it. Those of one,
//! as answers to requests for small files are, leave together, at the end of QUIC's part of a turn: a peer that
//! wakes up for the first finds the others, and need not be woken for each.

use gannet_io::driver::{DatagramSocket, Driver, Errno, Train};
use quinn_proto::Transmit;

use crate::bounds::quic::{GATHERED_MAX, TRAIN_LEN_MAX, TRAIN_MAX};
use crate::exchange::shared::Shared;
use crate::ground::token::{Kind, token};

/// The buffer that trains are built in, and those that have yet to leave.
pub(super) struct Trains {
    /// The library writes packets into it.
    pub(super) buffer: Vec<u8>,
    outboxes: Vec<Outbox>,
    /// Whether trains of one datagram are gathered.
    gathers: bool,
}

/// The trains that have yet to leave by a socket: fewer than [`GATHERED_MAX`] of one datagram, and a longer one.
#[derive(Default)]
struct Outbox {
    /// Their bytes, one after the other; without memory if there are none.
    bytes: Vec<u8>,
    trains: Vec<Train>,
    /// They wait until the socket accepts datagrams again.
    is_held: bool,
}

impl Trains {
    /// Creates the state of this many sockets.
    pub(super) fn new(sockets: usize) -> Self {
        Self {
            buffer: Vec::new(),
            outboxes: (0..sockets).map(|_| Outbox::default()).collect(),
            gathers: false,
        }
    }

    /// Whether a socket accepts datagrams: no train waits for it.
    pub(super) fn is_free(&self, socket: DatagramSocket) -> bool {
        let outbox = self.outboxes.get(socket.0 as usize);
        outbox.is_some_and(|outbox| !outbox.is_held)
    }

    /// How many datagrams of `mtu` bytes fit a train.
    pub(super) fn datagrams_max(mtu: u16) -> usize {
        (TRAIN_LEN_MAX / usize::from(mtu.max(1))).clamp(1, TRAIN_MAX)
    }

    /// Gathers trains of one datagram until [`Self::send_gathered`].
    pub(super) fn gather(&mut self) {
        self.gathers = true;
    }

    /// Sends what was gathered, and all that follows at once.
    pub(super) fn send_gathered<D: Driver>(&mut self, shared: &mut Shared<D>) {
        self.gathers = false;
        for (outbox, number) in self.outboxes.iter_mut().zip(0..) {
            outbox.send(shared, DatagramSocket(number));
            outbox.give_back(&mut self.buffer);
        }
    }

    /// Sends the buffer, which the library has filled as `transmit` describes. To be called only
    /// while the socket [is free](Self::is_free): if it becomes full, [`Self::send_held`] sends the rest.
    pub(super) fn send<D: Driver>(
        &mut self,
        shared: &mut Shared<D>,
        socket: DatagramSocket,
        transmit: &Transmit,
    ) {
        let Some(outbox) = self.outboxes.get_mut(socket.0 as usize) else {
            return debug_assert!(false, "it is free");
        };
        let is_gathered = self.gathers && transmit.segment_size.is_none();
        if !is_gathered {
            // Those of one connection leave in their order.
            outbox.send(shared, socket);
        }
        let len = self.buffer.len();
        debug_assert_eq!(transmit.size, len, "the library fills the buffer");
        match outbox.trains.is_empty() {
            true => std::mem::swap(&mut outbox.bytes, &mut self.buffer),
            false => outbox.bytes.extend_from_slice(&self.buffer),
        }
        self.buffer.clear();
        outbox.trains.push(Train {
            len,
            segment: transmit.segment_size.unwrap_or(len),
            to: transmit.destination,
            from: transmit.src_ip,
            ecn: transmit.ecn.map_or(0, |ecn| ecn as u8),
        });
        debug_assert!(outbox.trains.len() <= GATHERED_MAX);
        if !is_gathered || outbox.trains.len() >= GATHERED_MAX {
            outbox.send(shared, socket);
            outbox.give_back(&mut self.buffer);
        }
    }

    /// Sends the trains that wait for a socket which accepts datagrams again. Returns false if the
    /// socket is full again.
    pub(super) fn send_held<D: Driver>(
        &mut self,
        shared: &mut Shared<D>,
        socket: DatagramSocket,
    ) -> bool {
        let Some(outbox) = self.outboxes.get_mut(socket.0 as usize) else {
            return true;
        };
        outbox.is_held = false;
        outbox.send(shared, socket);
        outbox.give_back(&mut self.buffer);
        !outbox.is_held
    }
}

impl Outbox {
    /// Sends what the socket takes, unless it is known to take nothing.
    fn send<D: Driver>(&mut self, shared: &mut Shared<D>, socket: DatagramSocket) {
        let (mut sent, mut sent_len) = (0, 0);
        while !self.is_held
            && let rest @ [_, ..] = &self.trains[sent..]
        {
            let driver = &mut shared.driver;
            let result = driver.send_datagrams(socket, &self.bytes[sent_len..], rest);
            if result == Err(Errno::AGAIN) {
                driver.when_sendable(socket, token(Kind::Sendable, socket.0));
                self.is_held = true;
                break;
            }
            let count = result.unwrap_or(1);
            let len = rest[..count].iter().map(|train| train.len).sum::<usize>();
            match result {
                Ok(_) => shared.counters.bytes_sent += len as u64,
                // Dropped, as on any network: the peer is unreachable, or memory is short.
                Err(_) => shared.counters.quic.unsent += 1,
            }
            sent += count;
            sent_len += len;
        }
        self.trains.drain(..sent);
        self.bytes.drain(..sent_len);
    }

    /// Keeps no memory if nothing waits: the longer of both vectors is the buffer from now on.
    fn give_back(&mut self, buffer: &mut Vec<u8>) {
        if self.trains.is_empty() {
            let bytes = std::mem::take(&mut self.bytes);
            if bytes.capacity() > buffer.capacity() {
                *buffer = bytes;
            }
        }
    }
}
