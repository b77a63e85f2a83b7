//! Routing of datagrams to the worker that has their connection.
//!
//! The kernel spreads datagrams over the workers' sockets: where it accepts a filter, by the same
//! byte of the connection ID. The filter is an optimisation, because a worker forwards the
//! datagrams that belong to another one.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::BytesMut;
use gannet_io::driver::DatagramSocket;

use super::VERSION;
use crate::start::running::Remote;
use crate::worker::Message;

/// Maximum datagrams in the inbox of a worker that others forwarded; more are dropped, as on any
/// network.
const FORWARDED_MAX: u32 = 1_024;

/// A datagram, received by this worker or forwarded to it.
pub(crate) struct Forwarded {
    /// The socket that received it, and by which responses are sent: each worker has its own socket
    /// of this number.
    pub(super) socket: DatagramSocket,
    pub(super) bytes: BytesMut,
    pub(super) peer: SocketAddr,
    pub(super) local: Option<IpAddr>,
    pub(super) ecn: u8,
}

/// The inboxes of all workers, for datagrams forwarded to them.
#[derive(Clone, Default)]
pub(crate) struct Peers(Vec<Peer>);

#[derive(Clone)]
struct Peer {
    remote: Remote,
    /// Forwarded datagrams still in its inbox.
    pending: Arc<AtomicU32>,
}

impl Peers {
    /// `remotes`: the workers, in the order of their numbers.
    pub(crate) fn new(remotes: &[Remote]) -> Self {
        let peers = remotes.iter().map(|remote| Peer {
            remote: remote.clone(),
            pending: Arc::default(),
        });
        Self(peers.collect())
    }

    /// Whether there is a worker of this number.
    pub(super) fn has(&self, worker: u8) -> bool {
        usize::from(worker) < self.0.len()
    }

    /// Forwards a datagram. Returns false if there is no such worker or its inbox is full; then the
    /// datagram is dropped.
    pub(super) fn forward(&self, worker: u8, datagram: Forwarded) -> bool {
        let Some(peer) = self.0.get(usize::from(worker)) else {
            return false;
        };
        if peer.pending.fetch_add(1, Ordering::Relaxed) >= FORWARDED_MAX {
            peer.pending.fetch_sub(1, Ordering::Relaxed);
            return false;
        }
        peer.remote.tell(Message::Datagram(Box::new(datagram)));
        true
    }

    /// Called by a worker for each datagram that it takes from its inbox.
    pub(crate) fn taken(&self, worker: usize) {
        if let Some(peer) = self.0.get(worker) {
            peer.pending.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// The bit of a long header (RFC 8999 section 5.1).
const LONG_HEADER: u8 = 0x80;

/// The type of a long header in QUIC version 1 (RFC 9000 section 17.2), and that of a Handshake packet.
const LONG_TYPE: u8 = 0x30;
const HANDSHAKE: u8 = 0x20;

/// Offset of the destination connection ID in a long header: after the first byte, the version and
/// the length of the ID.
const LONG_ID_AT: usize = 6;

/// The number of the worker that issued the connection ID of a datagram's first packet. `None` if
/// the client may have chosen the ID: then the worker that receives the datagram keeps it.
pub(super) fn worker_of(datagram: &[u8]) -> Option<u8> {
    let first = *datagram.first()?;
    if first & LONG_HEADER == 0 {
        return datagram.get(1).copied();
    }
    let is_ours = datagram.get(1..5) == Some(&VERSION.to_be_bytes());
    match is_ours && first & LONG_TYPE == HANDSHAKE {
        true => datagram.get(LONG_ID_AT).copied(),
        false => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_ids_name_their_worker() {
        assert_eq!(worker_of(&[0x40, 3, 9, 9]), Some(3));
        assert_eq!(worker_of(&[0x40]), None);
        assert_eq!(worker_of(&[]), None);
        let long = |first| worker_of(&[first, 0, 0, 0, 1, 8, 5, 9, 9]);
        assert_eq!(long(0xe0), Some(5), "a Handshake packet");
        assert_eq!(long(0xc0), None, "an Initial packet");
        assert_eq!(long(0xd0), None, "a 0-RTT packet");
        let unknown = [0xe0, 0x0a, 0x0a, 0x0a, 0x0a, 8, 5, 9, 9];
        assert_eq!(
            worker_of(&unknown),
            None,
            "a version whose types are unknown"
        );
        assert_eq!(worker_of(&[0xe0, 0, 0, 0, 1, 8]), None);
    }
}
