//! Sockets to the kernel's tables (netlink(7)): requests, and the messages that answer them.

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, netlink,
};

/// Routes and interfaces (rtnetlink(7)), protocol 0.
pub(crate) const ROUTE: Option<Protocol> = None;

/// Sockets (sock_diag(7)).
pub(crate) const SOCKETS: Option<Protocol> = Some(netlink::SOCK_DIAG);

/// A socket to one of the kernel's tables.
#[derive(Debug)]
pub(crate) struct NetlinkSocket(OwnedFd);

impl NetlinkSocket {
    pub(crate) fn new(table: Option<Protocol>) -> Result<Self, Errno> {
        let (family, flags) = (AddressFamily::NETLINK, SocketFlags::CLOEXEC);
        rustix::net::socket_with(family, SocketType::RAW, flags, table).map(Self)
    }

    pub(crate) fn send(&self, request: &[u8]) -> Result<(), Errno> {
        let kernel = SocketAddrNetlink::new(0, 0);
        rustix::net::sendto(&self.0, request, SendFlags::empty(), &kernel)?;
        Ok(())
    }

    /// The next messages. The kernel creates them while it takes the request or delivers the
    /// messages before them, so this never waits.
    pub(crate) fn receive(&self) -> Result<Vec<u8>, Errno> {
        let mut answer = vec![0; ANSWER_MAX];
        let flags = RecvFlags::DONTWAIT | RecvFlags::TRUNC;
        let (_, len) = rustix::net::recv(&self.0, &mut answer, flags)?;
        if len > answer.len() {
            return Err(Errno::MSGSIZE);
        }
        answer.truncate(len);
        Ok(answer)
    }
}

/// The most that the kernel puts into one answer.
const ANSWER_MAX: usize = 32 << 10;

const NLMSG_HEADER_LEN: usize = 16;
pub(crate) const NLMSG_ERROR: u16 = 2;
pub(crate) const NLMSG_DONE: u16 = 3;
pub(crate) const NLM_F_REQUEST: u16 = 1;
pub(crate) const NLM_F_DUMP: u16 = 0x300;

/// `struct nlmsghdr`, and the body.
pub(crate) fn message(kind: u16, flags: u16, body: &[u8]) -> Vec<u8> {
    let len = (NLMSG_HEADER_LEN + body.len()) as u32;
    let mut message = Vec::with_capacity(len as usize);
    message.extend(len.to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    message.extend([0; 8]);
    message.extend_from_slice(body);
    message
}

/// Consecutive messages: type and body. Ends at a truncated one.
pub(crate) fn messages(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    pieces(bytes, NLMSG_HEADER_LEN, |header| {
        let len = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]);
        (len as usize, u16::from_ne_bytes([header[4], header[5]]))
    })
}

/// Pieces whose headers give their length and type, aligned to four bytes.
pub(crate) fn pieces(
    bytes: &[u8],
    header_len: usize,
    read: impl Fn(&[u8]) -> (usize, u16),
) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let (len, kind) = read(rest.get(..header_len)?);
        let body = rest.get(header_len..len)?;
        rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, body))
    })
}
