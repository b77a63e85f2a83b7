//! A worker's inbox: the messages of other threads.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use gannet_http::semantics::status::Status;
use gannet_io::driver::Waker;

use crate::observe::metrics::Counters;
use crate::passwords;
use crate::passwords::checker::Checked;
use crate::quic::routing::{Forwarded, Peers};
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
    Datagram(Box<Forwarded>),
    /// A password was compared with a hash.
    PasswordChecked(passwords::Key, Checked),
    /// The site of a host was opened, by a release that came before, or cannot be.
    SiteOpened(Arc<[u8]>, Result<(), Status>),
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
    pub(crate) fn new(sender: Sender<Message>, waker: Waker) -> Self {
        Self { sender, waker }
    }

    pub(crate) fn tell(&self, message: Message) {
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
