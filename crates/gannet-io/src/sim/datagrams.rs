//! Virtual datagrams: the server's sockets, and a network that loses, delays, reorders, duplicates
//! and corrupts.
//!
//! Random decisions here come from a separate generator, so that a run without datagrams stays the
//! same.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use rustix::io::Errno;

use crate::driver::{Completion, Datagram, Done, IoCounters, Nanos, Token, Train};
use crate::limits::DATAGRAMS_PER_CALL;
use crate::sim::buffers::Buffers;
use crate::sim::faults::Faults;
use crate::sim::random::Random;

/// The sockets and clients of a simulation, and the datagrams in flight between them.
#[derive(Debug)]
pub(super) struct Datagrams {
    random: Random,
    pub(super) sockets: Vec<ServerSocket>,
    pub(super) clients: Vec<ClientSocket>,
    flying: Vec<Flying>,
    /// Numbers datagrams in the order in which they were sent.
    count: u64,
    pub(super) exchanged: BTreeMap<SocketAddr, Exchanged>,
    /// Why the server's sockets take nothing to send, as long as that is so.
    pub(super) refusal: Option<Errno>,
}

/// A socket of the server.
#[derive(Debug)]
pub(super) struct ServerSocket {
    address: SocketAddr,
    pub(super) receive_token: Option<Token>,
    pub(super) sendable_token: Option<Token>,
    pub(super) is_stopped: bool,
    inbox: VecDeque<Arrived>,
    /// Datagrams dropped because the inbox was full.
    dropped: u32,
    receive_from: Nanos,
    /// The socket accepts nothing to send before this.
    full_until: Nanos,
}

/// A socket of a client.
#[derive(Debug)]
pub(super) struct ClientSocket {
    pub(super) address: SocketAddr,
    pub(super) inbox: VecDeque<Arrived>,
    pub(super) is_closed: bool,
}

/// A datagram as it arrives.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Arrived {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Its source address, as the packet gives it.
    pub from: SocketAddr,
    /// Its destination address.
    pub to: SocketAddr,
    /// Its ECN bits.
    pub ecn: u8,
}

/// Bytes of datagrams between the server and one address, without headers: the subject of the
/// anti-amplification limit (RFC 9000 section 8).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Exchanged {
    /// Bytes delivered to the server with this source address.
    pub received: u64,
    /// Bytes that the server has sent to the address, whether they arrived or not.
    pub sent: u64,
}

#[derive(Debug)]
struct Flying {
    due: Nanos,
    number: u64,
    datagram: Arrived,
}

impl Datagrams {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            // A sequence separate from the world's.
            random: Random::new(seed ^ 0x6461_7461_6772_616d),
            sockets: Vec::new(),
            clients: Vec::new(),
            flying: Vec::new(),
            count: 0,
            exchanged: BTreeMap::new(),
            refusal: None,
        }
    }

    pub(super) fn add_socket(&mut self, address: SocketAddr) {
        self.sockets.push(ServerSocket {
            address,
            receive_token: None,
            sendable_token: None,
            is_stopped: false,
            inbox: VecDeque::new(),
            dropped: 0,
            receive_from: Nanos(0),
            full_until: Nanos(0),
        });
    }

    /// Clients do not share addresses.
    pub(super) fn check_free(&self, address: SocketAddr) {
        let mut clients = self.clients.iter();
        let is_taken = clients.any(|client| !client.is_closed && client.address == address);
        assert!(!is_taken, "{address} is another client's");
    }

    /// When something can happen: now or later.
    pub(super) fn events(&self, mut at: impl FnMut(Nanos, Event)) {
        if let Some(due) = self.flying.iter().map(|flying| flying.due).min() {
            at(due, Event::Arrive);
        }
        for (index, socket) in self.sockets.iter().enumerate() {
            if socket.receive_token.is_some() && !socket.inbox.is_empty() {
                at(socket.receive_from, Event::Receive(index));
            }
            if socket.sendable_token.is_some() && self.refusal != Some(Errno::AGAIN) {
                at(socket.full_until, Event::Sendable(index));
            }
        }
    }

    /// The server sends a train.
    pub(super) fn send(
        &mut self,
        (index, now): (usize, Nanos),
        faults: &Faults,
        bytes: &[u8],
        train: &Train,
    ) -> Result<u64, Errno> {
        let socket = &mut self.sockets[index];
        assert!(
            !socket.is_stopped,
            "a datagram socket is stopped once, and last"
        );
        if let Some(refusal) = self.refusal {
            return Err(refusal);
        }
        if socket.full_until > now {
            return Err(Errno::AGAIN);
        }
        if self.random.chance(faults.datagram_full) {
            let delay = 1 + self.random.below(faults.delay_max_ns);
            socket.full_until = Nanos(now.0 + delay);
            return Err(Errno::AGAIN);
        }
        let mut address = socket.address;
        address.set_ip(train.from.unwrap_or(address.ip()));
        self.exchanged.entry(train.to).or_default().sent += bytes.len() as u64;
        let mut count = 0;
        for bytes in bytes.chunks(train.segment) {
            count += 1;
            let datagram = Arrived {
                bytes: bytes.to_vec(),
                from: address,
                to: train.to,
                ecn: train.ecn & 0b11,
            };
            self.launch(now, faults, datagram);
        }
        Ok(count)
    }

    /// Hands a datagram to the network.
    pub(super) fn launch(&mut self, now: Nanos, faults: &Faults, mut datagram: Arrived) {
        let is_too_long = faults.datagram_mtu > 0 && datagram.bytes.len() > faults.datagram_mtu;
        if is_too_long || self.random.chance(faults.datagram_loss) {
            return;
        }
        if self.random.chance(faults.datagram_duplicate) {
            self.fly(now, faults, datagram.clone());
        }
        if self.random.chance(faults.datagram_corrupt) && !datagram.bytes.is_empty() {
            let place = self.random.below(datagram.bytes.len() as u64) as usize;
            datagram.bytes[place] ^= 1 << self.random.below(8);
        }
        self.fly(now, faults, datagram);
    }

    fn fly(&mut self, now: Nanos, faults: &Faults, datagram: Arrived) {
        let mut due = now.0 + faults.datagram_latency_ns;
        if self.random.chance(faults.datagram_late) {
            due += self.random.below(faults.delay_max_ns);
        }
        let number = self.count;
        self.count += 1;
        self.flying.push(Flying {
            due: Nanos(due),
            number,
            datagram,
        });
    }

    /// Every datagram that is due reaches its socket, or is lost.
    pub(super) fn arrive(&mut self, now: Nanos, faults: &Faults) {
        let (mut due, later) = std::mem::take(&mut self.flying)
            .into_iter()
            .partition::<Vec<_>, _>(|flying| flying.due <= now);
        self.flying = later;
        due.sort_by_key(|flying| (flying.due, flying.number));
        for Flying { datagram, .. } in due {
            let is_for = |socket: &ServerSocket| {
                socket.address.port() == datagram.to.port()
                    && (socket.address.ip().is_unspecified() || socket.address == datagram.to)
            };
            let mut sockets = self.sockets.iter_mut();
            if let Some(socket) = sockets.find(|socket| !socket.is_stopped && is_for(socket)) {
                let max = faults.datagram_queue_max;
                if max > 0 && socket.inbox.len() >= max {
                    socket.dropped = socket.dropped.wrapping_add(1);
                } else {
                    socket.inbox.push_back(datagram);
                }
                continue;
            }
            let mut clients = self.clients.iter_mut();
            let client = clients.find(|it| !it.is_closed && it.address == datagram.to);
            if let Some(client) = client {
                client.inbox.push_back(datagram);
            }
        }
    }

    /// The server receives some of the inbox; returns how many leases it used.
    pub(super) fn receive(
        &mut self,
        (index, now): (usize, Nanos),
        faults: &Faults,
        buffers: &mut Buffers,
        counters: &mut IoCounters,
        out: &mut Vec<Completion>,
    ) -> usize {
        let mut leases = 0;
        let socket = &mut self.sockets[index];
        let token = socket.receive_token.expect("checked by the caller");
        for _ in 0..DATAGRAMS_PER_CALL {
            let Some(arrived) = socket.inbox.front() else {
                break;
            };
            if arrived.bytes.len() > buffers.buffer_len() {
                counters.datagrams_truncated += 1;
                socket.inbox.pop_front();
                continue;
            }
            if !buffers.has_free() || self.random.chance(faults.no_buffers) {
                counters.no_buffers += 1;
                let delay = 1 + self.random.below(faults.delay_max_ns);
                socket.receive_from = Nanos(now.0 + delay);
                break;
            }
            let Arrived {
                bytes,
                from,
                to,
                ecn,
            } = socket.inbox.pop_front().expect("just seen");
            self.exchanged.entry(from).or_default().received += bytes.len() as u64;
            counters.datagrams_received += 1;
            leases += 1;
            let lease = buffers.fill(bytes.into_iter());
            out.push(Completion {
                token,
                result: Ok(Done::Datagram(Datagram {
                    lease,
                    peer: from,
                    local: Some(to.ip()),
                    ecn,
                    dropped: socket.dropped,
                })),
                more: true,
            });
        }
        leases
    }

    /// The server closes a socket.
    pub(super) fn stop(&mut self, index: usize) {
        let socket = &mut self.sockets[index];
        assert!(
            !socket.is_stopped,
            "a datagram socket is stopped once, and last"
        );
        socket.is_stopped = true;
        socket.receive_token = None;
        socket.sendable_token = None;
        socket.inbox.clear();
    }

    /// Datagrams that the kernel has dropped for lack of room.
    pub(super) fn dropped(&self) -> u64 {
        self.sockets.iter().map(|it| u64::from(it.dropped)).sum()
    }
}

/// Something that can happen to datagrams.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// Datagrams that are due arrive.
    Arrive,
    /// The server receives from a socket.
    Receive(usize),
    /// A socket of the server takes datagrams again.
    Sendable(usize),
}
