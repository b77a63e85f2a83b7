//! Which worker a datagram is for.
//!
//! The kernel spreads datagrams over the workers' sockets; where it lets itself be told, by the same
//! byte. That is an optimisation: what arrives at the wrong worker is forwarded to the right one.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::BytesMut;
use gannet_io::driver::DatagramSocket;

use super::VERSION;
use crate::start::running::Remote;
use crate::worker::Message;

/// Datagrams on their way to another worker, at most; more are lost, as on any network.
const FORWARDED_MAX: u32 = 1_024;

/// A datagram as it was received, by this worker or for it.
pub(crate) struct Forwarded {
    /// The socket that answers are sent by: each worker has its own of the same number.
    pub(super) socket: DatagramSocket,
    pub(super) bytes: BytesMut,
    pub(super) peer: SocketAddr,
    pub(super) local: Option<IpAddr>,
    pub(super) ecn: u8,
}

/// The way to all workers, for datagrams that are theirs.
#[derive(Clone, Default)]
pub(crate) struct Peers(Vec<Peer>);

#[derive(Clone)]
struct Peer {
    remote: Remote,
    /// Datagrams that it has not taken from its inbox yet.
    pending: Arc<AtomicU32>,
}

impl Peers {
    /// The workers in the order of their numbers.
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

    /// Forwards a datagram. False if there is no such worker, or it has too many to take.
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

    /// This worker has taken one from its inbox.
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

/// Where the connection ID begins in a long header: behind first byte, version and its length.
const LONG_ID_AT: usize = 6;

/// The number of the worker that has issued the connection ID of a datagram's first packet; `None`
/// if its sender may have chosen the ID, which whoever receives it deals with.
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
