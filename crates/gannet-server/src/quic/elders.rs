//! Earlier processes of this server, which finish their connections after an upgrade.
//!
//! ```text
//!  client ─▶ newest process ─ generation of the connection ID ─┬─▶ own connections
//!                                                              └─▶ elder: its thread ─▶ its worker
//! ```
//!
//! Only the newest process receives from the UDP sockets. Each one sends by them.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::BytesMut;
use gannet_io::driver::DatagramSocket;
use gannet_io::parcels::Parcels;

use super::routing;
use crate::ground::inbox::{Peers, RoutedDatagram};

/// The earlier processes that still run.
#[derive(Clone, Default)]
pub(crate) struct Elders(Arc<[Elder]>);

struct Elder {
    generation: u8,
    link: Parcels,
    has_ended: AtomicBool,
}

impl Elders {
    /// Each with its generation, and the link to it.
    pub(crate) fn new(all: Vec<(u8, Parcels)>) -> Self {
        let elder = |(generation, link)| Elder {
            generation,
            link,
            has_ended: AtomicBool::new(false),
        };
        Self(all.into_iter().map(elder).collect())
    }

    /// The link to each that is not known to have ended.
    pub(crate) fn links(&self) -> impl Iterator<Item = (u8, &Parcels)> {
        let all = self.0.iter();
        let running = all.filter(|elder| !elder.has_ended.load(Ordering::Relaxed));
        running.map(|elder| (elder.generation, &elder.link))
    }

    /// Whether a process of this generation may still run.
    pub(super) fn has(&self, generation: u8) -> bool {
        self.links().any(|(other, _)| other == generation)
    }

    /// Passes a datagram on that was received at this address. If the elder cannot take it, it
    /// is dropped, as on any network. False if the process has ended.
    pub(super) fn pass(&self, generation: u8, at: SocketAddr, datagram: &RoutedDatagram) -> bool {
        let elder = self.0.iter().find(|elder| elder.generation == generation);
        let Some(elder) = elder.filter(|elder| !elder.has_ended.load(Ordering::Relaxed)) else {
            return false;
        };
        let header = Header {
            at,
            peer: datagram.peer,
            local: datagram.local,
            ecn: datagram.ecn,
        };
        match elder.link.send(&[&header.bytes(), &datagram.bytes], &[]) {
            Err(error) if is_closed(&error) => {
                elder.has_ended.store(true, Ordering::Relaxed);
                false
            }
            _ => true,
        }
    }
}

/// Whether the other end has gone, rather than a message being too long or too many.
fn is_closed(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, NotConnected};
    matches!(error.kind(), BrokenPipe | ConnectionReset | NotConnected)
}

/// Receives what a newer process passes on, for the workers of this one, until all newer processes
/// have ended. `addresses` are those of this process's UDP sockets.
pub(crate) fn receive(link: &Parcels, addresses: &[SocketAddr], peers: &Peers) {
    let mut message = Vec::new();
    while link.receive(&mut message).is_ok() && !message.is_empty() {
        let Some((header, bytes)) = message.split_first_chunk() else {
            continue;
        };
        let Some(header) = Header::parse(header) else {
            continue;
        };
        let number = addresses.iter().position(|address| *address == header.at);
        let (Some(number), Some(worker)) = (number, routing::worker_named(bytes)) else {
            continue;
        };
        let datagram = RoutedDatagram {
            socket: DatagramSocket(u32::try_from(number).expect("addresses are few")),
            bytes: BytesMut::from(bytes),
            peer: header.peer,
            local: header.local,
            ecn: header.ecn,
        };
        // Dropped if the worker has too much to do.
        peers.forward(worker, datagram);
    }
}

/// What precedes the bytes of a datagram in a message.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Header {
    /// The address of the socket that received it.
    at: SocketAddr,
    peer: SocketAddr,
    local: Option<IpAddr>,
    ecn: u8,
}

/// Bytes of an address: its family, the IP address, the port, the scope.
const ADDRESS_LEN: usize = 1 + 16 + 2 + 4;
const HEADER_LEN: usize = 3 * ADDRESS_LEN + 1;

impl Header {
    fn bytes(&self) -> [u8; HEADER_LEN] {
        let local = self.local.map(|ip| SocketAddr::new(ip, 0));
        let addresses = [Some(self.at), Some(self.peer), local];
        let mut bytes = [0; HEADER_LEN];
        let (rooms, _) = bytes.as_chunks_mut();
        for (room, address) in rooms.iter_mut().zip(addresses) {
            *room = address.map_or([0; ADDRESS_LEN], write_address);
        }
        bytes[HEADER_LEN - 1] = self.ecn;
        bytes
    }

    fn parse(bytes: &[u8; HEADER_LEN]) -> Option<Self> {
        let (addresses, rest) = bytes.as_chunks();
        let [at, peer, local] = addresses else {
            return None;
        };
        Some(Self {
            at: parse_address(at)?,
            peer: parse_address(peer)?,
            local: parse_address(local).map(|address| address.ip()),
            ecn: *rest.first()?,
        })
    }
}

fn write_address(address: SocketAddr) -> [u8; ADDRESS_LEN] {
    let mut bytes = [0; ADDRESS_LEN];
    match address {
        SocketAddr::V4(v4) => {
            bytes[0] = 4;
            bytes[1..5].copy_from_slice(&v4.ip().octets());
        }
        SocketAddr::V6(v6) => {
            bytes[0] = 6;
            bytes[1..17].copy_from_slice(&v6.ip().octets());
            bytes[19..].copy_from_slice(&v6.scope_id().to_be_bytes());
        }
    }
    bytes[17..19].copy_from_slice(&address.port().to_be_bytes());
    bytes
}

/// `None` for an address that is not there.
fn parse_address(bytes: &[u8; ADDRESS_LEN]) -> Option<SocketAddr> {
    let [family, ip @ .., _, _, _, _, _, _] = bytes;
    let [.., high, low, a, b, c, d] = bytes;
    let port = u16::from_be_bytes([*high, *low]);
    let ip: &[u8; 16] = ip;
    match family {
        4 => {
            let ip: [u8; 4] = *ip.first_chunk()?;
            Some(SocketAddr::new(Ipv4Addr::from(ip).into(), port))
        }
        6 => {
            let scope = u32::from_be_bytes([*a, *b, *c, *d]);
            Some(SocketAddrV6::new(Ipv6Addr::from(*ip), port, 0, scope).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_round_trip() {
        let check = |at: &str, peer: &str, local: Option<&str>| {
            let header = Header {
                at: at.parse().expect("valid"),
                peer: peer.parse().expect("valid"),
                local: local.map(|ip| ip.parse().expect("valid")),
                ecn: 3,
            };
            assert_eq!(Header::parse(&header.bytes()), Some(header));
        };
        check("127.0.0.1:443", "192.0.2.1:9", None);
        check("0.0.0.0:443", "192.0.2.1:65535", Some("192.0.2.2"));
        check("[::]:443", "[fe80::1%7]:1", Some("2001:db8::1"));
        assert_eq!(Header::parse(&[0; HEADER_LEN]), None);
    }

    /// An elder that has ended is noticed, and one that takes nothing costs a bounded queue.
    #[test]
    fn datagrams_are_dropped_or_the_end_is_noticed() {
        let at: SocketAddr = "127.0.0.1:443".parse().expect("valid");
        let of_len = |len| RoutedDatagram {
            socket: DatagramSocket(0),
            bytes: BytesMut::zeroed(len),
            peer: at,
            local: None,
            ecn: 0,
        };
        let (link, other) = Parcels::pair().expect("a pair");
        let elders = Elders::new(vec![(7, link)]);
        assert!(elders.has(7) && !elders.has(8));
        assert!(elders.pass(7, at, &of_len(16 << 20)), "it has not ended");
        let datagram = of_len(1_200);
        for _ in 0..10_000 {
            assert!(elders.pass(7, at, &datagram));
        }
        assert!(!elders.pass(8, at, &datagram));
        drop(other);
        assert!(!elders.pass(7, at, &datagram));
        assert!(!elders.has(7));
    }
}
