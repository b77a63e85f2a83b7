//! The addresses of a datagram, as `sockaddr_in` or `sockaddr_in6`, and its control messages
//! (`cmsg(3)`), as a system call takes or returns them. Both are read and written byte by byte.

use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use rustix::io::Errno;

use crate::limits::DATAGRAMS_PER_CALL;
use crate::operation::Train;
use crate::residency::last_errno;

/// Room for any address: the length of `sockaddr_in6`, padded to keep the rest aligned.
pub(crate) const NAME_LEN: usize = 32;

/// Room for the control messages of a received datagram: its destination address (40 bytes), the
/// traffic class (24), the drop counter (24).
pub(crate) const CONTROL_LEN: usize = 96;

/// The kernel's `struct cmsghdr`: its length, a level and a type.
const CONTROL_HEADER: usize = size_of::<usize>() + 8;

/// The two bits of the traffic class reserved for ECN (RFC 3168 section 5).
const ECN: u8 = 0b11;

/// Absent from the `libc` crate on some targets (`linux/udp.h`).
const UDP_SEGMENT: libc::c_int = 103;

/// What the kernel reports about a received datagram.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Envelope {
    pub(crate) peer: SocketAddr,
    /// Its destination address.
    pub(crate) local: Option<IpAddr>,
    pub(crate) ecn: u8,
    /// How many datagrams the socket had dropped when this one was queued.
    pub(crate) dropped: u32,
}

impl Envelope {
    /// Reads what `recvmsg` wrote as name and control. `None` if the name is no IP address.
    pub(crate) fn parse(name: &[u8], control: &[u8]) -> Option<Self> {
        let mut envelope = Self {
            peer: parse_name(name)?,
            local: None,
            ecn: 0,
            dropped: 0,
        };
        for (level, kind, content) in Messages(control) {
            match (level, kind) {
                (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                    // Index of the interface, local address, destination address of the packet.
                    let address = chunk::<4>(content, 8).map(Ipv4Addr::from);
                    envelope.local = address.map(IpAddr::V4);
                }
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                    let address = chunk::<16>(content, 0).map(Ipv6Addr::from);
                    envelope.local = address.map(IpAddr::V6);
                }
                // One byte when received, although an int when sent.
                (libc::IPPROTO_IP, libc::IP_TOS) => {
                    envelope.ecn = content.first().map_or(0, |class| class & ECN);
                }
                (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                    let class = chunk(content, 0).map_or(0, i32::from_ne_bytes);
                    envelope.ecn = class as u8 & ECN;
                }
                (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => {
                    envelope.dropped = chunk(content, 0).map_or(0, u32::from_ne_bytes);
                }
                _ => {}
            }
        }
        Some(envelope)
    }
}

/// The address and control messages for outgoing datagrams.
#[derive(Debug)]
pub(crate) struct Outgoing {
    name: [u8; NAME_LEN],
    name_len: usize,
    control: [u8; CONTROL_LEN],
    control_len: usize,
}

impl Outgoing {
    /// For a train, which the kernel is to segment if it has several datagrams.
    pub(crate) fn of(train: &Train) -> Self {
        let (name, name_len) = write_name(train.to);
        let mut outgoing = Self {
            name,
            name_len,
            control: [0; CONTROL_LEN],
            control_len: 0,
        };
        match train.from {
            // No interface, local address, and a destination that the kernel ignores.
            Some(IpAddr::V4(address)) => {
                let mut content = [0; 12];
                content[4..8].copy_from_slice(&address.octets());
                outgoing.push(libc::IPPROTO_IP, libc::IP_PKTINFO, &content);
            }
            Some(IpAddr::V6(address)) => {
                let mut content = [0; 20];
                content[..16].copy_from_slice(&address.octets());
                outgoing.push(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &content);
            }
            None => {}
        }
        if train.ecn & ECN != 0 {
            let class = i32::from(train.ecn & ECN).to_ne_bytes();
            match train.to {
                SocketAddr::V4(_) => outgoing.push(libc::IPPROTO_IP, libc::IP_TOS, &class),
                SocketAddr::V6(_) => outgoing.push(libc::IPPROTO_IPV6, libc::IPV6_TCLASS, &class),
            }
        }
        if train.len > train.segment {
            let segment = u16::try_from(train.segment).expect("shorter than a train");
            outgoing.push(libc::SOL_UDP, UDP_SEGMENT, &segment.to_ne_bytes());
        }
        outgoing
    }

    /// Sends as many of these as one `sendmmsg` takes, or a single one by `sendmsg`, which do not wait: each with the
    /// bytes of its train, which follow each other. Returns how many, at least one.
    pub(crate) fn send_all(
        socket: BorrowedFd<'_>,
        all: &[Self],
        bytes: &[u8],
        trains: &[Train],
    ) -> Result<usize, Errno> {
        let nowhere = libc::iovec {
            iov_base: ptr::null_mut(),
            iov_len: 0,
        };
        let mut parts = [nowhere; DATAGRAMS_PER_CALL];
        let mut headers = [const { MaybeUninit::<libc::mmsghdr>::zeroed() }; DATAGRAMS_PER_CALL];
        let count = all.len().min(DATAGRAMS_PER_CALL);
        let mut rest = bytes;
        for (index, (outgoing, train)) in all[..count].iter().zip(trains).enumerate() {
            let (own, next) = rest.split_at(train.len);
            rest = next;
            parts[index] = libc::iovec {
                // The kernel only reads it; `iovec` has one type for both directions.
                iov_base: own.as_ptr().cast_mut().cast(),
                iov_len: own.len(),
            };
            // SAFETY: `mmsghdr` is plain old data: integers and pointers, for which the zeros
            // that it is made of are valid.
            let header = unsafe { &mut headers[index].assume_init_mut().msg_hdr };
            header.msg_name = outgoing.name.as_ptr().cast_mut().cast();
            header.msg_namelen = outgoing.name_len as libc::socklen_t;
            header.msg_iov = &raw mut parts[index];
            header.msg_iovlen = 1;
            header.msg_control = outgoing.control.as_ptr().cast_mut().cast();
            header.msg_controllen = outgoing.control_len as _;
        }
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        if count == 1 {
            // SAFETY: the descriptor is open while borrowed. A pointer to an `mmsghdr` is one to its first field, the
            // `msghdr`; it is filled in, and all that it names lives until after the call, which reads it.
            let len = unsafe { libc::sendmsg(socket.as_raw_fd(), headers.as_ptr().cast(), flags) };
            return usize::try_from(len).map(|_| 1).map_err(|_| last_errno());
        }
        // The system call: musl's function makes one `sendmsg` after the other, to clear padding, which is zero
        // here.
        // SAFETY: the descriptor is open while borrowed. The first `count` headers are filled in; names, control
        // messages, parts and bytes are named with their lengths and live until after the call, which reads them,
        // and writes to the headers alone.
        let sent = unsafe {
            libc::syscall(
                libc::SYS_sendmmsg,
                socket.as_raw_fd(),
                headers.as_mut_ptr(),
                count as libc::c_uint,
                flags,
            )
        };
        usize::try_from(sent).map_err(|_| last_errno())
    }

    fn push(&mut self, level: libc::c_int, kind: libc::c_int, content: &[u8]) {
        let len = CONTROL_HEADER + content.len();
        let room = &mut self.control[self.control_len..];
        room[..size_of::<usize>()].copy_from_slice(&len.to_ne_bytes());
        room[size_of::<usize>()..][..4].copy_from_slice(&level.to_ne_bytes());
        room[size_of::<usize>() + 4..][..4].copy_from_slice(&kind.to_ne_bytes());
        room[CONTROL_HEADER..len].copy_from_slice(content);
        self.control_len += aligned(len);
    }
}

/// The control messages in a buffer: level, type and content of each.
struct Messages<'a>(&'a [u8]);

impl<'a> Iterator for Messages<'a> {
    type Item = (libc::c_int, libc::c_int, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let len = usize::from_ne_bytes(chunk(self.0, 0)?);
        let level = i32::from_ne_bytes(chunk(self.0, size_of::<usize>())?);
        let kind = i32::from_ne_bytes(chunk(self.0, size_of::<usize>() + 4)?);
        let content = self.0.get(CONTROL_HEADER..len)?;
        self.0 = self.0.get(aligned(len)..).unwrap_or_default();
        Some((level, kind, content))
    }
}

fn parse_name(name: &[u8]) -> Option<SocketAddr> {
    let family = i32::from(u16::from_ne_bytes(chunk(name, 0)?));
    let port = u16::from_be_bytes(chunk(name, 2)?);
    match family {
        libc::AF_INET => {
            let address = Ipv4Addr::from(chunk::<4>(name, 4)?);
            Some(SocketAddr::from((address, port)))
        }
        libc::AF_INET6 => {
            // In between: flow information, which the kernel does not fill in.
            let address = Ipv6Addr::from(chunk::<16>(name, 8)?);
            let scope = u32::from_ne_bytes(chunk(name, 24)?);
            Some(SocketAddrV6::new(address, port, 0, scope).into())
        }
        _ => None,
    }
}

fn write_name(address: SocketAddr) -> ([u8; NAME_LEN], usize) {
    let mut name = [0; NAME_LEN];
    let family = match address {
        SocketAddr::V4(_) => libc::AF_INET,
        SocketAddr::V6(_) => libc::AF_INET6,
    };
    name[..2].copy_from_slice(&(family as u16).to_ne_bytes());
    name[2..4].copy_from_slice(&address.port().to_be_bytes());
    match address {
        SocketAddr::V4(address) => {
            name[4..8].copy_from_slice(&address.ip().octets());
            (name, size_of::<libc::sockaddr_in>())
        }
        SocketAddr::V6(address) => {
            name[8..24].copy_from_slice(&address.ip().octets());
            name[24..28].copy_from_slice(&address.scope_id().to_ne_bytes());
            (name, size_of::<libc::sockaddr_in6>())
        }
    }
}

/// `N` bytes at an offset, if present.
fn chunk<const N: usize>(bytes: &[u8], offset: usize) -> Option<[u8; N]> {
    bytes.get(offset..)?.first_chunk().copied()
}

/// Where the next control message begins: `CMSG_ALIGN`.
fn aligned(len: usize) -> usize {
    len.next_multiple_of(size_of::<usize>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_name(address: &str) {
        let address = address.parse().unwrap();
        let (name, len) = write_name(address);
        assert_eq!(parse_name(&name[..len]), Some(address));
    }

    /// Parsing an address returns what was written.
    #[test]
    fn names_round_trip() {
        check_name("192.0.2.1:443");
        check_name("[2001:db8::1]:443");
        check_name("[fe80::1%7]:4433");
        assert_eq!(parse_name(&[]), None);
        assert_eq!(parse_name(&[0; NAME_LEN]), None);
    }

    /// A truncated message or a wrong length ends the list; nothing panics.
    #[test]
    fn tolerates_damaged_control() {
        let local: IpAddr = "2001:db8::1".parse().unwrap();
        let outgoing = Outgoing::of(&Train {
            len: 1201,
            segment: 1200,
            to: "[::1]:1".parse().unwrap(),
            from: Some(local),
            ecn: 1,
        });
        let control = &outgoing.control[..outgoing.control_len];
        let whole: Vec<_> = Messages(control).collect();
        assert_eq!(whole.len(), 3);
        assert_eq!(whole[2].2, 1200u16.to_ne_bytes());
        for len in 0..control.len() {
            assert!(Messages(&control[..len]).count() <= 3);
        }
        for claimed in [0, 1, CONTROL_HEADER - 1, control.len() + 1, usize::MAX] {
            let mut damaged = control.to_vec();
            damaged[..size_of::<usize>()].copy_from_slice(&claimed.to_ne_bytes());
            assert_eq!(Messages(&damaged).count(), 0, "{claimed}");
        }
    }
}
