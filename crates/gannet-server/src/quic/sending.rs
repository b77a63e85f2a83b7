//! Packets leave: trains of datagrams, one system call each, at once.

use std::net::{IpAddr, SocketAddr};

use gannet_io::driver::{DatagramSocket, Driver, Errno};
use quinn_proto::Transmit;

use super::limits::{TRAIN_LEN_MAX, TRAIN_MAX};
use crate::worker::shared::Shared;
use crate::worker::token::{Kind, token};

/// Where trains are put together, and those that their sockets did not take.
pub(super) struct Trains {
    /// What the library writes packets into.
    pub(super) buffer: Vec<u8>,
    /// By socket: what waits until it takes datagrams again.
    held: Vec<Option<Train>>,
}

/// Datagrams of one length to one peer.
struct Train {
    bytes: Vec<u8>,
    segment: usize,
    to: SocketAddr,
    from: Option<IpAddr>,
    ecn: u8,
}

impl Trains {
    /// For so many sockets.
    pub(super) fn new(sockets: u32) -> Self {
        Self {
            buffer: Vec::new(),
            held: (0..sockets).map(|_| None).collect(),
        }
    }

    /// Whether a socket takes datagrams.
    pub(super) fn is_free(&self, socket: DatagramSocket) -> bool {
        let held = self.held.get(socket.0 as usize);
        held.is_none_or(Option::is_none)
    }

    /// How many datagrams of `mtu` bytes a train may have.
    pub(super) fn datagrams_max(mtu: u16) -> usize {
        (TRAIN_LEN_MAX / usize::from(mtu.max(1))).clamp(1, TRAIN_MAX)
    }

    /// Sends what is in the buffer. False if the socket takes no more for now; then it is sent when
    /// it does.
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
            // Lost, as on any network: the peer or its network is not reachable, or memory is short.
            Err(_) => shared.counters.quic.unsent += 1,
        }
        self.buffer = train.bytes;
        self.buffer.clear();
        true
    }

    /// A socket takes datagrams again. False if it has stopped doing so already.
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
