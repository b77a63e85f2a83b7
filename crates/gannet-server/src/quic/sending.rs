//! Sending packets: as trains of datagrams, each with one system call, without waiting.

use std::net::{IpAddr, SocketAddr};

use gannet_io::driver::{DatagramSocket, Driver, Errno};
use quinn_proto::Transmit;

use crate::bounds::quic::{TRAIN_LEN_MAX, TRAIN_MAX};
use crate::exchange::shared::Shared;
use crate::ground::token::{Kind, token};

/// The buffer that trains are built in, and the trains that their sockets did not accept.
pub(super) struct Trains {
    /// The library writes packets into it.
    pub(super) buffer: Vec<u8>,
    /// By socket: the train that waits until the socket accepts datagrams again.
    held: Vec<Option<Train>>,
}

/// Datagrams to one peer, all of `segment` bytes except the last, which may be shorter.
struct Train {
    bytes: Vec<u8>,
    segment: usize,
    to: SocketAddr,
    from: Option<IpAddr>,
    ecn: u8,
}

impl Trains {
    /// Creates the state of this many sockets.
    pub(super) fn new(sockets: usize) -> Self {
        Self {
            buffer: Vec::new(),
            held: (0..sockets).map(|_| None).collect(),
        }
    }

    /// Whether a socket accepts datagrams: no train waits for it.
    pub(super) fn is_free(&self, socket: DatagramSocket) -> bool {
        let held = self.held.get(socket.0 as usize);
        held.is_none_or(Option::is_none)
    }

    /// How many datagrams of `mtu` bytes fit a train.
    pub(super) fn datagrams_max(mtu: u16) -> usize {
        (TRAIN_LEN_MAX / usize::from(mtu.max(1))).clamp(1, TRAIN_MAX)
    }

    /// Sends the buffer, which the library has filled as `transmit` describes. Returns false if the
    /// socket is full: then the train is kept, and [`Self::send_held`] sends it. To be called only
    /// while the socket [is free](Self::is_free).
    pub(super) fn send<D: Driver>(
        &mut self,
        shared: &mut Shared<D>,
        socket: DatagramSocket,
        transmit: &Transmit,
    ) -> bool {
        let train = Train {
            bytes: std::mem::take(&mut self.buffer),
            segment: transmit.segment_size.unwrap_or(transmit.size),
            to: transmit.destination,
            from: transmit.src_ip,
            ecn: transmit.ecn.map_or(0, |ecn| ecn as u8),
        };
        self.send_train(shared, socket, train)
    }

    fn send_train<D: Driver>(
        &mut self,
        shared: &mut Shared<D>,
        socket: DatagramSocket,
        train: Train,
    ) -> bool {
        let Train {
            bytes,
            segment,
            to,
            from,
            ecn,
        } = &train;
        let driver = &mut shared.driver;
        match driver.send_datagrams(socket, bytes, *segment, *to, *from, *ecn) {
            Ok(()) => shared.counters.bytes_sent += bytes.len() as u64,
            Err(Errno::AGAIN) => {
                driver.when_sendable(socket, token(Kind::Sendable, socket.0));
                if let Some(held) = self.held.get_mut(socket.0 as usize) {
                    *held = Some(train);
                }
                return false;
            }
            // Dropped, as on any network: the peer is unreachable, or memory is short.
            Err(_) => shared.counters.quic.unsent += 1,
        }
        self.buffer = train.bytes;
        self.buffer.clear();
        true
    }

    /// Sends the train that waits for a socket which accepts datagrams again. Returns false if the
    /// socket is full again.
    pub(super) fn send_held<D: Driver>(
        &mut self,
        shared: &mut Shared<D>,
        socket: DatagramSocket,
    ) -> bool {
        let held = self.held.get_mut(socket.0 as usize);
        match held.and_then(Option::take) {
            Some(train) => self.send_train(shared, socket, train),
            None => true,
        }
    }
}
