//! Simulated clients that exchange datagrams.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use rustix::io::Errno;

use crate::sim::datagrams::{Arrived, ClientSocket, Exchanged};
use crate::sim::disk::lock;
use crate::sim::handle::SimHandle;
use crate::sim::world::World;

/// A client's datagram socket. Datagrams that arrive stay until [`receive`](Self::receive) takes
/// them.
#[derive(Debug)]
pub struct DatagramClient {
    world: Arc<Mutex<World>>,
    index: usize,
}

impl SimHandle {
    /// A client at an address. Panics if another client has it.
    #[must_use]
    pub fn datagram_client(&self, address: SocketAddr) -> DatagramClient {
        let mut world = lock(&self.0);
        world.datagrams.check_free(address);
        let clients = &mut world.datagrams.clients;
        clients.push(ClientSocket {
            address,
            inbox: [].into(),
            is_closed: false,
        });
        DatagramClient {
            world: Arc::clone(&self.0),
            index: clients.len() - 1,
        }
    }

    /// From now on, sending a datagram fails with this error; `None`: it does not. After `EAGAIN` a
    /// socket is sendable again only when that is over.
    pub fn refuse_datagrams(&self, why: Option<Errno>) {
        lock(&self.0).datagrams.refusal = why;
    }

    /// Bytes of datagrams exchanged so far with each address, including those of clients that have
    /// moved on and of victims of a spoofed source address.
    #[must_use]
    pub fn exchanged(&self) -> BTreeMap<SocketAddr, Exchanged> {
        lock(&self.0).datagrams.exchanged.clone()
    }
}

impl DatagramClient {
    fn with<T>(&self, act: impl FnOnce(&mut ClientSocket) -> T) -> T {
        act(&mut lock(&self.world).datagrams.clients[self.index])
    }

    /// Its current address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.with(|client| client.address)
    }

    /// Sends a datagram with these ECN bits.
    pub fn send(&self, to: SocketAddr, bytes: &[u8], ecn: u8) {
        self.send_as(self.address(), to, bytes, ecn);
    }

    /// Sends a datagram with another source address: an attacker's, or one from before a move.
    pub fn send_as(&self, from: SocketAddr, to: SocketAddr, bytes: &[u8], ecn: u8) {
        let mut world = lock(&self.world);
        world.launch_datagram(Arrived {
            bytes: bytes.to_vec(),
            from,
            to,
            ecn: ecn & 0b11,
        });
    }

    /// Takes the next datagram that has arrived.
    #[must_use]
    pub fn receive(&self) -> Option<Arrived> {
        self.with(|client| client.inbox.pop_front())
    }

    /// Moves to another address, as when a NAT rebinds: datagrams sent to the old one, even those
    /// in flight, are lost. Panics if another client has the new one.
    pub fn rebind(&self, address: SocketAddr) {
        lock(&self.world).datagrams.check_free(address);
        self.with(|client| client.address = address);
    }
}

impl Drop for DatagramClient {
    /// Datagrams that arrive from now on are lost.
    fn drop(&mut self) {
        self.with(|client| client.is_closed = true);
    }
}
