//! A worker's inbox: the messages of other threads.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::Sender;

use bytes::BytesMut;
use gannet_http::semantics::status::Status;
use gannet_io::driver::{DatagramSocket, Waker};

use crate::config::supply::SupplyReply;
use crate::observe::metrics::Counters;
use crate::passwords;
use crate::passwords::checker::{Answer, Checked};
use crate::release::opened::Opened;

/// A message from another thread.
pub(crate) enum Message {
    /// Stop accepting; finish responses in progress within the grace period.
    Stop,
    /// The same, because another process takes this one's place: it receives the datagrams of these
    /// addresses with HTTP/3.
    HandOver(Arc<[bool]>),
    /// End at once.
    StopNow,
    /// Serve this release from now on.
    Release(Arc<Opened>, Applying),
    /// Access to the other workers.
    Peers(Peers),
    /// A datagram for a connection of this worker.
    Datagram(Box<RoutedDatagram>),
    /// A password was compared with a hash.
    PasswordChecked(passwords::Key, Checked),
    /// The site of a host was opened, by a release that came before, or cannot be.
    SiteOpened(Arc<[u8]>, Result<(), Status>),
    /// A part of a release on demand is here, or cannot be.
    Supplied(SupplyReply),
    /// Certificates were replaced that handshakes may wait for.
    Certificates,
    /// Send a copy of the counters.
    Snapshot(std::sync::mpsc::Sender<Counters>),
}

/// Access to a worker from any thread.
#[derive(Clone)]
pub(crate) struct Remote {
    sender: Sender<Message>,
    waker: Waker,
}

impl Remote {
    /// Sends the result for a password to the one of these workers that gets it, or to all.
    pub(crate) fn deliver(workers: &[Self], answer: Answer) {
        let Answer {
            worker,
            key,
            checked,
        } = answer;
        let some = worker.map_or(workers, |it| workers.get(it..=it).unwrap_or_default());
        for worker in some {
            worker.send(Message::PasswordChecked(key, checked));
        }
    }

    pub(crate) fn new(sender: Sender<Message>, waker: Waker) -> Self {
        Self { sender, waker }
    }

    pub(crate) fn send(&self, message: Message) {
        // A worker that has ended needs no messages.
        if self.sender.send(message).is_ok() {
            self.waker.wake();
        }
    }
}

/// Dropped by a worker once it serves the release that came with it.
pub(crate) struct Applying {
    pub(crate) _sender: Sender<Infallible>,
}

/// Maximum datagrams in the inbox of a worker that others forwarded; more are dropped, as on any
/// network.
const FORWARDED_MAX: u32 = 1_024;

/// A datagram, received by this worker or forwarded to it.
pub(crate) struct RoutedDatagram {
    /// The address that received it, as the number of the socket by which responses are sent: each
    /// worker has one of this number.
    pub(crate) socket: DatagramSocket,
    pub(crate) bytes: BytesMut,
    pub(crate) peer: SocketAddr,
    pub(crate) local: Option<IpAddr>,
    pub(crate) ecn: u8,
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
    pub(crate) fn has(&self, worker: u8) -> bool {
        usize::from(worker) < self.0.len()
    }

    /// Forwards a datagram. Returns false if there is no such worker or its inbox is full; then the
    /// datagram is dropped.
    pub(crate) fn forward(&self, worker: u8, datagram: RoutedDatagram) -> bool {
        let Some(peer) = self.0.get(usize::from(worker)) else {
            return false;
        };
        if peer.pending.fetch_add(1, Ordering::Relaxed) >= FORWARDED_MAX {
            peer.pending.fetch_sub(1, Ordering::Relaxed);
            return false;
        }
        peer.remote.send(Message::Datagram(Box::new(datagram)));
        true
    }

    /// Called by a worker for each datagram that it takes from its inbox.
    pub(crate) fn taken(&self, worker: usize) {
        if let Some(peer) = self.0.get(worker) {
            peer.pending.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
