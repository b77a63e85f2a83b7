//! The virtual network: a pair of byte queues per connection.

use std::collections::VecDeque;
use std::io::Read;
use std::sync::{Arc, Mutex};

use crate::net::Peer;
use crate::sim::disk::{Node, lock};

/// A connection, seen from both ends.
#[derive(Debug)]
pub(super) struct Connection {
    /// The client, as the server sees it.
    pub(super) peer: Peer,
    /// Bytes from the client that the server has not received.
    pub(super) to_server: VecDeque<u8>,
    /// The client sends no more.
    pub(super) client_ended: bool,
    /// The client (or the network) has reset the connection.
    pub(super) client_reset: bool,
    /// Nobody can tell what the client has read.
    pub(super) is_unknown: bool,
    /// Bytes from the server that the client has not read.
    to_client: VecDeque<Chunk>,
    to_client_len: usize,
    /// Those of them that the kernel has encrypted and may not have handed to TCP.
    held: usize,
    pub(super) server_end: ServerEnd,
    /// Bytes that the client has read.
    pub(super) read: u64,
    /// The descriptor is closed on the server.
    pub(super) is_closed: bool,
    /// The most bytes a second that the server wants to be sent.
    pub(super) paced: Option<u64>,
}

/// How the server has ended its half.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) enum ServerEnd {
    #[default]
    Open,
    Finished,
    Reset,
}

/// Bytes on their way to the client.
#[derive(Debug)]
enum Chunk {
    /// Copied when they were sent.
    Bytes(VecDeque<u8>),
    /// Pages of a file, as `sendfile` queues them: the client gets the file's bytes at the time
    /// they leave, and zeros where it was truncated meanwhile.
    Pages {
        node: Arc<Mutex<Node>>,
        offset: usize,
        len: usize,
    },
}

impl Connection {
    pub(super) fn new(peer: Peer) -> Self {
        Self {
            peer,
            to_server: VecDeque::new(),
            client_ended: false,
            client_reset: false,
            is_unknown: false,
            to_client: VecDeque::new(),
            to_client_len: 0,
            held: 0,
            server_end: ServerEnd::Open,
            read: 0,
            is_closed: false,
            paced: None,
        }
    }

    pub(super) fn queued(&self) -> usize {
        self.to_client_len
    }

    pub(super) fn queue_bytes(&mut self, bytes: &[u8]) {
        self.to_client_len += bytes.len();
        if let Some(Chunk::Bytes(last)) = self.to_client.back_mut() {
            last.extend(bytes);
        } else {
            self.to_client
                .push_back(Chunk::Bytes(bytes.iter().copied().collect()));
        }
    }

    /// The same for records that the kernel has encrypted. It takes a send as done then; as long as the peer
    /// has not acknowledged what was sent before, there may be no room for them.
    pub(super) fn queue_encrypted(&mut self, bytes: &[u8]) {
        if self.to_client_len > 0 {
            self.held += bytes.len();
        }
        self.queue_bytes(bytes);
    }

    pub(super) fn held(&self) -> usize {
        self.held
    }

    pub(super) fn queue_pages(&mut self, node: &Arc<Mutex<Node>>, offset: u64, len: usize) {
        self.to_client_len += len;
        let node = Arc::clone(node);
        self.to_client.push_back(Chunk::Pages {
            node,
            offset: offset as usize,
            len,
        });
    }

    /// Moves up to `max` bytes to the client.
    pub(super) fn take(&mut self, max: usize) -> Vec<u8> {
        let mut taken = Vec::new();
        while taken.len() < max {
            let left = max - taken.len();
            match self.to_client.front_mut() {
                None => break,
                Some(Chunk::Bytes(bytes)) => {
                    let count = left.min(bytes.len());
                    let start = taken.len();
                    taken.resize(start + count, 0);
                    // An iterator would take one byte after the other.
                    let read = bytes.read_exact(&mut taken[start..]);
                    read.expect("there are as many");
                    if bytes.is_empty() {
                        self.to_client.pop_front();
                    }
                }
                Some(Chunk::Pages { node, offset, len }) => {
                    let count = left.min(*len);
                    let node = lock(node);
                    let there = node.content.get(*offset..).unwrap_or_default();
                    let there = &there[..count.min(there.len())];
                    taken.extend_from_slice(there);
                    taken.resize(taken.len() + count - there.len(), 0);
                    drop(node);
                    *offset += count;
                    *len -= count;
                    if *len == 0 {
                        self.to_client.pop_front();
                    }
                }
            }
        }
        self.to_client_len -= taken.len();
        self.held = self.held.min(self.to_client_len);
        self.read += taken.len() as u64;
        taken
    }

    /// Drops the last `len` of the bytes on their way to the client.
    pub(super) fn drop_last(&mut self, len: usize) {
        let mut left = len.min(self.to_client_len);
        self.to_client_len -= left;
        while left > 0 {
            let last = match self.to_client.back_mut() {
                None => break,
                Some(Chunk::Bytes(bytes)) => {
                    let kept = bytes.len().saturating_sub(left);
                    left -= bytes.len() - kept;
                    bytes.truncate(kept);
                    kept
                }
                Some(Chunk::Pages { len, .. }) => {
                    let kept = len.saturating_sub(left);
                    left -= *len - kept;
                    *len = kept;
                    kept
                }
            };
            if last == 0 {
                self.to_client.pop_back();
            }
        }
    }

    /// Drops all bytes on their way to the client, as a reset does.
    pub(super) fn drop_queued(&mut self) {
        self.to_client.clear();
        self.to_client_len = 0;
        self.held = 0;
    }
}
