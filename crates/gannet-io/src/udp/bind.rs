//! Binding datagram sockets.

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::{fmt, io};

use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use crate::{limits, net, socket_option};

/// Binds a datagram socket. Several may share the address (`SO_REUSEPORT`): one per worker, in the
/// order of the workers if [`steer`](crate::udp::steer) is to be called. Port 0 takes a free one.
///
/// The socket reports what a QUIC endpoint needs to know about each datagram: its destination
/// address, unless it is bound to a single one, its ECN bits, and how many were dropped before it.
/// What it sends is never fragmented, and the kernel's estimate of the path MTU is ignored (RFC
/// 9000 section 14.1, RFC 8899). An IPv6 address accepts IPv6 only.
///
/// # Errors
/// `EADDRINUSE`, `EADDRNOTAVAIL`, `EACCES` (a port below 1024), ...
pub fn bind(address: SocketAddr) -> io::Result<OwnedFd> {
    bound(address, true)
}

/// As [`bind`], but fails with `EADDRINUSE` if any other socket is bound to the address, sharing or
/// not: for testing whether a port is free.
///
/// # Errors
/// As for [`bind`].
pub fn bind_exclusive(address: SocketAddr) -> io::Result<OwnedFd> {
    bound(address, false)
}

/// Finds an address at which neither a TCP listener nor a datagram socket is bound, in order to
/// bind both there: `wanted`, or, if its port is 0, with a port that is free for both.
///
/// # Errors
/// Those of [`net::bind_exclusive`] and of [`bind_exclusive`], with the protocol that failed.
pub fn free_for_both(wanted: SocketAddr) -> Result<SocketAddr, (Transport, io::Error)> {
    // Ports whose UDP side is taken stay bound meanwhile, so that the kernel picks others.
    let mut taken = Vec::new();
    loop {
        let tcp = net::bind_exclusive(wanted).map_err(|error| (Transport::Tcp, error))?;
        let real = net::local_addr(&tcp)
            .map_err(|error| (Transport::Tcp, error))?
            .unwrap_or(wanted);
        match bind_exclusive(real) {
            Ok(_) => return Ok(real),
            Err(error)
                if wanted.port() == 0
                    && error.kind() == io::ErrorKind::AddrInUse
                    && taken.len() < limits::PORT_TRIES =>
            {
                taken.push(tcp);
            }
            Err(error) => return Err((Transport::Udp, error)),
        }
    }
}

/// Which protocol could not be bound.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Transport {
    /// A listener.
    Tcp,
    /// A datagram socket.
    Udp,
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
        })
    }
}

fn bound(address: SocketAddr, share: bool) -> io::Result<OwnedFd> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let socket = rustix::net::socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    if share {
        sockopt::set_socket_reuseport(&socket, true)?;
    }
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    adopt(&socket, address)?;
    rustix::net::bind(&socket, &address)?;
    Ok(socket)
}

/// Prepares a datagram socket at this address that another process has bound: as [`bind`] does its
/// own.
///
/// # Errors
/// Those of `setsockopt`.
pub fn adopt(socket: impl AsFd, address: SocketAddr) -> io::Result<()> {
    let many = libc::c_int::from(address.ip().is_unspecified());
    if address.is_ipv6() {
        set(&socket, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, many)?;
        set(&socket, libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1)?;
        let probe = libc::IPV6_PMTUDISC_PROBE;
        set(&socket, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, probe)?;
    } else {
        set(&socket, libc::IPPROTO_IP, libc::IP_PKTINFO, many)?;
        set(&socket, libc::IPPROTO_IP, libc::IP_RECVTOS, 1)?;
        let probe = libc::IP_PMTUDISC_PROBE;
        set(&socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, probe)?;
    }
    set(&socket, libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1)?;
    // The kernel applies its own limit (`net.core.rmem_max`, `wmem_max`) if that is smaller.
    sockopt::set_socket_recv_buffer_size(&socket, limits::DATAGRAM_SOCKET_BUFFER)?;
    sockopt::set_socket_send_buffer_size(&socket, limits::DATAGRAM_SOCKET_BUFFER)?;
    Ok(())
}

/// Sets an option that is one int.
fn set(
    socket: impl AsFd,
    level: libc::c_int,
    option: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    Ok(socket_option::set(
        socket,
        level,
        option,
        &value.to_ne_bytes(),
    )?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_shared(address: &str) {
        let first = bind(address.parse().unwrap()).unwrap();
        let real = net::local_addr(&first).unwrap().unwrap();
        let second = bind(real).unwrap();
        assert_eq!(net::local_addr(&second).unwrap(), Some(real));
        let refused = bind_exclusive(real).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
    }

    /// Sockets can share an address, and an exclusive bind detects them.
    #[test]
    fn binds() {
        check_shared("127.0.0.1:0");
        check_shared("[::1]:0");
    }

    /// A datagram socket at a port whose TCP side is free.
    fn taken_by_udp() -> (OwnedFd, SocketAddr) {
        loop {
            let udp = bind_exclusive("127.0.0.1:0".parse().unwrap()).unwrap();
            let taken = net::local_addr(&udp).unwrap().unwrap();
            if net::bind_exclusive(taken).is_ok() {
                return (udp, taken);
            }
        }
    }

    /// A port is free only if it is free for both protocols; the error names the one that is taken.
    #[test]
    fn finds_a_port_for_both() {
        let real = free_for_both("127.0.0.1:0".parse().unwrap()).unwrap();
        assert_ne!(real.port(), 0);
        let (_udp, taken) = taken_by_udp();
        let (transport, error) = free_for_both(taken).unwrap_err();
        assert_eq!(transport, Transport::Udp);
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        let tcp = net::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let taken = net::local_addr(&tcp).unwrap().unwrap();
        assert_eq!(free_for_both(taken).unwrap_err().0, Transport::Tcp);
    }
}
