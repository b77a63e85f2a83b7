//! Ports for servers that need theirs before they start.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;

use rustix::net::{
    AddressFamily, SocketFlags, SocketType, bind, getsockname, socket_with, sockopt,
};

/// A port of loopback at which no server listens, until one does that the test starts.
///
/// One that was only found to be free may be another's by then: the kernel gives it to a process that asks for
/// any. As long as this exists, it does not. It does not listen, so that clients are refused, and it
/// lets others bind the address (`SO_REUSEADDR` of socket(7)).
#[derive(Debug)]
pub struct FreePort {
    _socket: OwnedFd,
    address: SocketAddr,
}

impl Default for FreePort {
    fn default() -> Self {
        Self::new()
    }
}

impl FreePort {
    /// One that no process has.
    pub fn new() -> Self {
        let (inet, stream) = (AddressFamily::INET, SocketType::STREAM);
        let socket = socket_with(inet, stream, SocketFlags::CLOEXEC, None).expect("a socket");
        sockopt::set_socket_reuseaddr(&socket, true).expect("set");
        bind(&socket, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).expect("a free port");
        let name = getsockname(&socket).expect("bound");
        Self {
            _socket: socket,
            address: name.try_into().expect("an address of IPv4"),
        }
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn it_refuses_until_somebody_listens() {
        let port = FreePort::new();
        for _ in 0..2 {
            let refused = TcpStream::connect(port.address()).expect_err("no server listens");
            assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
            let listener = TcpListener::bind(port.address()).expect("it is let");
            TcpStream::connect(port.address()).expect("it listens");
            drop(listener);
        }
    }
}
