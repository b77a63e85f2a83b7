//! What a peer on this machine has not read yet: its own socket is asked (sock_diag(7)).
//!
//! Over loopback, bytes that a peer has acknowledged may still be our pages, in its receive queue. They are
//! its own once its program has read them. The peer's socket is found by the four addresses, if it is
//! in the same network namespace; that takes no privileges, and about 10 us.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::BorrowedFd;

use rustix::io::Errno;

use crate::netlink::{NLM_F_REQUEST, NetlinkSocket, SOCKETS, message, messages};

/// Asks about the peers of a worker's connections. Its socket is opened before the sandbox closes.
#[derive(Debug)]
pub(crate) struct PeerQueues(Option<NetlinkSocket>);

impl PeerQueues {
    pub(crate) fn new() -> Self {
        let kernel = NetlinkSocket::new(SOCKETS).ok();
        Self(kernel.filter(answers))
    }

    /// Whether peers can be asked.
    pub(crate) fn is_open(&self) -> bool {
        self.0.is_some()
    }

    /// Bytes that have arrived at the peer of a TCP connection and that its program has not read.
    /// `None` if it is not in this namespace, has been closed by its program, or cannot be asked.
    pub(crate) fn unread(&self, socket: BorrowedFd<'_>) -> Option<u64> {
        let kernel = self.0.as_ref()?;
        let address = |address| SocketAddr::try_from(address).ok().map(canonical);
        let peer = address(rustix::net::getpeername(socket).ok().flatten()?)?;
        let own = address(rustix::net::getsockname(socket).ok()?)?;
        if !peer.ip().is_loopback() && peer.ip() != own.ip() {
            return None;
        }
        ask(kernel, (peer, own)).ok()
    }
}

/// Whether a query is answered, of an own listener, which nobody has to connect to: a kernel without `tcp_diag` opens
/// the socket all the same. Where no port may be bound, answers are hoped for.
fn answers(kernel: &NetlinkSocket) -> bool {
    let nobody = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let address = listener.as_ref().map(TcpListener::local_addr);
    let Ok(Ok(address)) = address else {
        return true;
    };
    ask(kernel, (address, nobody)).is_ok()
}

/// Bytes in the receive queue of the socket with this address and this peer.
fn ask(kernel: &NetlinkSocket, addresses: (SocketAddr, SocketAddr)) -> Result<u64, Errno> {
    let id = id_of(addresses);
    kernel.send(&request(addresses, &id))?;
    let answer = kernel.receive()?;
    let mut found = messages(&answer).filter(|(kind, _)| *kind == SOCK_DIAG_BY_FAMILY);
    let (_, socket) = found.next().ok_or(Errno::NOENT)?;
    let number = |at: usize| {
        let bytes = socket.get(at..at + 4)?.try_into().ok()?;
        Some(u32::from_ne_bytes(bytes))
    };
    // Where no connection has these addresses, a listener may have the port; one without an inode belongs
    // to no program any more.
    let is_it = socket.get(ID..ID + NAMES_LEN) == Some(&id[..NAMES_LEN]);
    match (number(UNREAD), number(INODE)) {
        (Some(unread), Some(1..)) if is_it => Ok(unread.into()),
        _ => Err(Errno::NOENT),
    }
}

/// An IPv4 address as such, also in a socket of IPv6.
fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        IpAddr::V4(ip) => (ip, address.port()).into(),
        IpAddr::V6(_) => address,
    }
}

const SOCK_DIAG_BY_FAMILY: u16 = 20;

/// `struct inet_diag_sockid` (`linux/inet_diag.h`): ports and addresses, interface, cookie.
const ID_LEN: usize = 48;
/// Of that, what names the socket: ports and addresses.
const NAMES_LEN: usize = 36;
/// Where `struct inet_diag_msg` has it, the length of the receive queue, and the inode.
const ID: usize = 4;
const UNREAD: usize = ID + ID_LEN + 4;
const INODE: usize = UNREAD + 12;

fn id_of((own, peer): (SocketAddr, SocketAddr)) -> [u8; ID_LEN] {
    let mut id = [0; ID_LEN];
    id[..2].copy_from_slice(&own.port().to_be_bytes());
    id[2..4].copy_from_slice(&peer.port().to_be_bytes());
    for (at, address) in [(4, own), (20, peer)] {
        match address.ip() {
            IpAddr::V4(ip) => id[at..at + 4].copy_from_slice(&ip.octets()),
            IpAddr::V6(ip) => id[at..at + 16].copy_from_slice(&ip.octets()),
        }
    }
    if let SocketAddr::V6(own) = own {
        id[36..40].copy_from_slice(&own.scope_id().to_ne_bytes());
    }
    // Any cookie.
    id[40..].fill(0xff);
    id
}

/// `struct inet_diag_req_v2` for one TCP socket, in any state.
fn request((own, _): (SocketAddr, SocketAddr), id: &[u8; ID_LEN]) -> Vec<u8> {
    let family = match own {
        SocketAddr::V4(_) => libc::AF_INET,
        SocketAddr::V6(_) => libc::AF_INET6,
    };
    let mut body = vec![family as u8, libc::IPPROTO_TCP as u8, 0, 0];
    body.extend(u32::MAX.to_ne_bytes());
    body.extend(id);
    message(SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, &body)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Shutdown, TcpStream};
    use std::os::fd::AsFd;

    use super::*;
    use crate::netlink::ROUTE;
    use crate::socket::acknowledged;

    /// Both ends of a connection to this address: the accepted one, and its peer.
    fn pair(listen: &str, connect: &str) -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind(listen).unwrap();
        let port = listener.local_addr().unwrap().port();
        let peer = TcpStream::connect((connect, port)).unwrap();
        (listener.accept().unwrap().0, peer)
    }

    /// Waits until the peer has acknowledged so many bytes, which its kernel does soon.
    fn until_acknowledged(socket: &TcpStream, bytes: u64) {
        while acknowledged(socket.as_fd()).unwrap() < bytes {
            std::thread::yield_now();
        }
    }

    #[test]
    fn what_a_peer_has_not_read_is_known_by_its_socket() {
        let queues = PeerQueues::new();
        let listeners = ["127.0.0.1:0", "[::]:0", "0.0.0.0:0", "[::1]:0"];
        for (listen, connect) in
            listeners
                .into_iter()
                .zip(["127.0.0.1", "127.0.0.1", "127.0.0.2", "::1"])
        {
            let (mut socket, mut peer) = pair(listen, connect);
            let unread = || queues.unread(socket.as_fd());
            assert_eq!(unread(), Some(0), "{listen}");
            (&socket).write_all(&[7; 10_000]).unwrap();
            until_acknowledged(&socket, 10_000);
            assert_eq!(acknowledged(socket.as_fd()), Some(10_000));
            assert_eq!(unread(), Some(10_000));
            peer.read_exact(&mut [0; 9_999]).unwrap();
            assert_eq!(unread(), Some(1));
            // What it peeks at is still there; what it does not want to send matters not.
            assert_eq!(peer.peek(&mut [0; 10]).unwrap(), 1);
            peer.shutdown(Shutdown::Write).unwrap();
            assert_eq!(unread(), Some(1));
            peer.read_exact(&mut [0; 1]).unwrap();
            assert_eq!(unread(), Some(0));
            drop(peer);
            assert_eq!(unread(), None, "its program has closed it");
            socket.write_all(b"more").ok();
        }
    }

    /// A netlink socket that answers no such query, as that of a kernel without `tcp_diag`.
    #[test]
    fn peers_can_be_asked_once_a_query_was_answered() {
        assert!(PeerQueues::new().is_open());
        let other = NetlinkSocket::new(ROUTE).unwrap();
        assert!(!answers(&other));
    }

    /// Neither a listener at the same port nor a Unix socket is taken for the peer.
    #[test]
    fn only_the_peer_itself_is_asked() {
        let kernel = NetlinkSocket::new(SOCKETS).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let listening = listener.local_addr().unwrap();
        let nobody = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        assert_eq!(ask(&kernel, (listening, nobody)), Err(Errno::NOENT));
        assert_eq!(ask(&kernel, (nobody, listening)), Err(Errno::NOENT));
        let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert_eq!(PeerQueues::new().unread(one.as_fd()), None);
        assert_eq!(PeerQueues(None).unread(one.as_fd()), None);
    }
}
