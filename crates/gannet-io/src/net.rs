//! Binding listening sockets: TCP over IPv4 and IPv6. Unix sockets are in
//! [`unix_socket`](crate::unix_socket).

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use crate::limits;

/// Binds a TCP listener. Several listeners may share the address (`SO_REUSEPORT`): one per worker,
/// and those of a new process before the old one has gone. Port 0 takes a free one
/// ([`local_addr`]).
///
/// Accepted sockets inherit `TCP_NODELAY`. An IPv6 address accepts IPv6 only, so that `[::]` and
/// `0.0.0.0` can be bound side by side.
///
/// # Errors
/// `EADDRINUSE`, `EADDRNOTAVAIL`, `EACCES` (a port below 1024), ...
pub fn bind(address: SocketAddr) -> io::Result<OwnedFd> {
    tcp(address, true)
}

/// As [`bind`], but fails with `EADDRINUSE` if any other socket listens on the address, sharing or
/// not: for testing whether a port is free.
///
/// # Errors
/// As for [`bind`].
pub fn bind_exclusive(address: SocketAddr) -> io::Result<OwnedFd> {
    tcp(address, false)
}

fn tcp(address: SocketAddr, share: bool) -> io::Result<OwnedFd> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let socket = rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    // Bind even if connections of an earlier process are in TIME_WAIT.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if share {
        sockopt::set_socket_reuseport(&socket, true)?;
    }
    sockopt::set_tcp_nodelay(&socket, true)?;
    rustix::net::bind(&socket, &address)?;
    rustix::net::listen(&socket, limits::BACKLOG)?;
    Ok(socket)
}

/// Prepares a TCP listener that another process has bound: it gets the options of those that [`bind`]
/// makes, and keeps its others.
///
/// # Errors
/// Those of `setsockopt` and `listen`.
pub fn adopt(listener: impl AsFd) -> io::Result<()> {
    sockopt::set_tcp_nodelay(&listener, true)?;
    Ok(rustix::net::listen(listener, limits::BACKLOG)?)
}

/// The address that a TCP listener is bound to; `None` for a Unix socket.
///
/// # Errors
/// Those of `getsockname`.
pub fn local_addr(listener: impl AsFd) -> io::Result<Option<SocketAddr>> {
    Ok(SocketAddr::try_from(rustix::net::getsockname(listener)?).ok())
}

/// The other end of a connection, in text `192.0.2.1:443`, `[2001:db8::1]:80`, `unix` or `unknown`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Peer {
    /// A TCP address.
    Ip(SocketAddr),
    /// The client of a Unix socket.
    Unix,
    /// The connection is gone already.
    Unknown,
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(address) => address.fmt(f),
            Self::Unix => f.write_str("unix"),
            Self::Unknown => f.write_str("unknown"),
        }
    }
}

/// The peer of a connected socket.
pub(crate) fn peer(socket: impl AsFd) -> Peer {
    match rustix::net::getpeername(socket) {
        Ok(Some(address)) => {
            SocketAddr::try_from(address).map_or(Peer::Unix, |address| Peer::Ip(unmapped(address)))
        }
        // A Unix socket whose client did not bind a name.
        Ok(None) => Peer::Unix,
        Err(_) => Peer::Unknown,
    }
}

/// The IPv4 address of a client of an IPv6 listener: one that another process has bound may take both.
fn unmapped(address: SocketAddr) -> SocketAddr {
    let mapped = match address {
        SocketAddr::V6(v6) => v6.ip().to_ipv4_mapped(),
        SocketAddr::V4(_) => None,
    };
    mapped.map_or(address, |v4| SocketAddr::new(v4.into(), address.port()))
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;

    fn check_tcp(address: &str) {
        let first = bind(address.parse().unwrap()).unwrap();
        let bound = local_addr(&first).unwrap().unwrap();
        let second = bind(bound).unwrap();
        assert_eq!(local_addr(&second).unwrap(), Some(bound));
        assert!(sockopt::tcp_nodelay(&first).unwrap());
        let refused = bind_exclusive(bound).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
        TcpStream::connect(bound).unwrap();
    }

    #[test]
    fn peers_of_both_families_are_told_apart() {
        let check = |address: &str, expect: &str| {
            let address = unmapped(address.parse().unwrap());
            assert_eq!(address.to_string(), expect);
        };
        check("[::ffff:192.0.2.1]:80", "192.0.2.1:80");
        check("[fe80::1%3]:80", "[fe80::1%3]:80");
        check("192.0.2.1:80", "192.0.2.1:80");
    }

    /// What another process has asked for and this one does not is undone.
    #[test]
    fn adopted_listeners_have_our_options() {
        let listener = bind("127.0.0.1:0".parse().unwrap()).unwrap();
        sockopt::set_tcp_nodelay(&listener, false).unwrap();
        adopt(&listener).unwrap();
        assert!(sockopt::tcp_nodelay(&listener).unwrap());
    }

    /// Listeners can share an address, and an exclusive bind detects them.
    #[test]
    fn binds_tcp() {
        check_tcp("127.0.0.1:0");
        check_tcp("[::1]:0");
    }
}
