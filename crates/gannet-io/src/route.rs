//! Finds the device by which a socket's data leaves, through netlink, one socket per query.
//!
//! `sendfile` puts pages of a file into the socket's queue. On an interface with a parent device
//! the peer has the bytes once it has acknowledged them. On loopback, between network namespaces
//! (veth, bridges) and in tunnels, what the peer has not read yet may be the very same pages.
//!
//! `/sys/class/net` is not used: it shows the namespace in which it was mounted, and the process
//! may be in another one, where the same name belongs to another interface.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::Errno;

use crate::netlink::{
    NLM_F_DUMP, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR, NetlinkSocket, ROUTE, message, messages,
    pieces,
};

/// Whether this socket's data leaves the machine by an interface with a parent device. False if
/// that cannot be determined.
pub(crate) fn leaves_by_device(socket: impl AsFd) -> bool {
    let Some(peer) = peer(socket.as_fd()) else {
        return false;
    };
    let by_device = || {
        let kernel = RouteSocket::new()?;
        let index = interface(&kernel, peer)?;
        is_device(&kernel, index, STACK_MAX)
    };
    by_device().unwrap_or(false)
}

fn peer(socket: BorrowedFd<'_>) -> Option<SocketAddr> {
    let address = rustix::net::getpeername(socket).ok().flatten()?;
    SocketAddr::try_from(address).ok()
}

/// The interface by which packets to `peer` leave. A link-local address (RFC 4291 section 2.5.6)
/// belongs to one interface, named by its scope; every interface has a route to it.
fn interface(kernel: &RouteSocket, peer: SocketAddr) -> Result<u32, Errno> {
    match peer {
        SocketAddr::V6(peer) if peer.ip().is_unicast_link_local() => match peer.scope_id() {
            0 => Err(Errno::HOSTUNREACH),
            index => Ok(index),
        },
        peer => kernel.interface(peer.ip().to_canonical()),
    }
}

/// Depth of stacked interfaces: a VLAN on a bond is the deepest in practice.
const STACK_MAX: u32 = 4;

/// Whether this interface has hardware (or a hypervisor's) behind it. Bonds and VLANs count as the
/// interfaces below them.
fn is_device(links: &impl Links, index: u32, stack_max: u32) -> Result<bool, Errno> {
    let link = links.link(index)?;
    if link.has_device || stack_max == 0 {
        return Ok(link.has_device);
    }
    match link.kind {
        RouteKind::Vlan => match link.below {
            Some(below) => is_device(links, below, stack_max - 1),
            None => Ok(false),
        },
        RouteKind::Bond => {
            let members = links.members(index)?;
            for &member in &members {
                if !is_device(links, member, stack_max - 1)? {
                    return Ok(false);
                }
            }
            Ok(!members.is_empty())
        }
        RouteKind::Other => Ok(false),
    }
}

/// The interfaces of this network namespace.
trait Links {
    /// One interface.
    fn link(&self, index: u32) -> Result<Link, Errno>;

    /// The members of a bond.
    fn members(&self, bond: u32) -> Result<Vec<u32>, Errno>;
}

/// An interface.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
struct Link {
    /// It belongs to a device on a bus.
    has_device: bool,
    kind: RouteKind,
    /// The interface of this namespace that it is stacked on.
    below: Option<u32>,
    /// The interface that it is a part of.
    master: Option<u32>,
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum RouteKind {
    Bond,
    Vlan,
    #[default]
    Other,
}

/// A socket to the kernel's tables (rtnetlink(7)).
struct RouteSocket(NetlinkSocket);

impl RouteSocket {
    fn new() -> Result<Self, Errno> {
        NetlinkSocket::new(ROUTE).map(Self)
    }

    /// The interface by which packets to `peer` leave.
    fn interface(&self, peer: IpAddr) -> Result<u32, Errno> {
        self.0.send(&route_request(peer))?;
        let answer = self.0.receive()?;
        let mut found = messages(&answer).filter(|(kind, _)| *kind == RTM_NEWROUTE);
        let (_, route) = found.next().ok_or(Errno::HOSTUNREACH)?;
        let attributes = route.get(RTMSG_LEN..).unwrap_or_default();
        let mut index = attributes_of(attributes).filter(|(kind, _)| *kind == RTA_OIF);
        let index = index.next().and_then(|(_, value)| number(value));
        index.ok_or(Errno::HOSTUNREACH)
    }
}

impl Links for RouteSocket {
    fn link(&self, index: u32) -> Result<Link, Errno> {
        self.0.send(&link_request(NLM_F_REQUEST, index, None))?;
        let answer = self.0.receive()?;
        let link = messages(&answer).find_map(|(kind, body)| link(kind, body));
        link.map(|(_, link)| link).ok_or(Errno::NODEV)
    }

    fn members(&self, bond: u32) -> Result<Vec<u32>, Errno> {
        self.0
            .send(&link_request(NLM_F_REQUEST | NLM_F_DUMP, 0, Some(bond)))?;
        let mut members = Vec::new();
        loop {
            let answer = self.0.receive()?;
            for (kind, body) in messages(&answer) {
                match kind {
                    NLMSG_DONE => return Ok(members),
                    NLMSG_ERROR => return Err(Errno::NODEV),
                    // A kernel may send more than was requested.
                    _ => members.extend(
                        link(kind, body)
                            .filter(|(_, link)| link.master == Some(bond))
                            .map(|(index, _)| index),
                    ),
                }
            }
        }
    }
}

const RTMSG_LEN: usize = 12;
const RTM_NEWROUTE: u16 = 24;
const RTM_GETROUTE: u16 = 26;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;

const IFINFOMSG_LEN: usize = 16;
const RTM_NEWLINK: u16 = 16;
const RTM_GETLINK: u16 = 18;
const IFLA_LINK: u16 = 5;
const IFLA_MASTER: u16 = 10;
const IFLA_LINKINFO: u16 = 18;
const IFLA_LINK_NETNSID: u16 = 37;
/// Since Linux 5.14; before that, no interface is known to have a device.
const IFLA_PARENT_DEV_NAME: u16 = 56;
const IFLA_INFO_KIND: u16 = 1;

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let len = (4 + value.len()) as u16;
    [&len.to_ne_bytes()[..], &kind.to_ne_bytes(), value].concat()
}

/// `struct rtmsg`, and the destination as the one attribute.
fn route_request(peer: IpAddr) -> Vec<u8> {
    let (family, address) = match peer {
        IpAddr::V4(ip) => (libc::AF_INET as u8, ip.octets().to_vec()),
        IpAddr::V6(ip) => (libc::AF_INET6 as u8, ip.octets().to_vec()),
    };
    let mut body = vec![0; RTMSG_LEN];
    body[..2].copy_from_slice(&[family, (address.len() * 8) as u8]);
    body.extend(attribute(RTA_DST, &address));
    message(RTM_GETROUTE, NLM_F_REQUEST, &body)
}

/// `struct ifinfomsg`; with `master`, a dump is limited to its members.
fn link_request(flags: u16, index: u32, master: Option<u32>) -> Vec<u8> {
    let mut body = vec![0; IFINFOMSG_LEN];
    body[4..8].copy_from_slice(&index.to_ne_bytes());
    body.extend(master.map_or_else(Vec::new, |it| attribute(IFLA_MASTER, &it.to_ne_bytes())));
    message(RTM_GETLINK, flags, &body)
}

/// Consecutive attributes: type and value. Ends at a truncated one.
fn attributes_of(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    pieces(bytes, 4, |header| {
        let len = u16::from_ne_bytes([header[0], header[1]]);
        (len.into(), u16::from_ne_bytes([header[2], header[3]]))
    })
}

/// An interface and its number, if the message describes one.
fn link(kind: u16, body: &[u8]) -> Option<(u32, Link)> {
    if kind != RTM_NEWLINK {
        return None;
    }
    let index = number(body.get(4..8)?)?;
    let mut link = Link::default();
    let mut is_elsewhere = false;
    for (kind, value) in attributes_of(body.get(IFINFOMSG_LEN..)?) {
        match kind {
            IFLA_PARENT_DEV_NAME => link.has_device = true,
            IFLA_LINK => link.below = number(value),
            // The number belongs to another namespace.
            IFLA_LINK_NETNSID => is_elsewhere = true,
            IFLA_MASTER => link.master = number(value),
            IFLA_LINKINFO => {
                let mut kinds = attributes_of(value).filter(|(kind, _)| *kind == IFLA_INFO_KIND);
                link.kind = match kinds.next() {
                    Some((_, b"bond\0")) => RouteKind::Bond,
                    Some((_, b"vlan\0")) => RouteKind::Vlan,
                    _ => RouteKind::Other,
                };
            }
            _ => {}
        }
    }
    link.below = link.below.filter(|_| !is_elsewhere);
    Some((index, link))
}

fn number(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV6, TcpListener, TcpStream};

    use super::*;

    /// Loopback is found by its route, and has no parent device.
    #[test]
    fn loopback_is_no_device() {
        let kernel = RouteSocket::new().unwrap();
        // The first interface of each namespace.
        assert_eq!(kernel.interface(Ipv4Addr::LOCALHOST.into()), Ok(1));
        let mapped = Ipv4Addr::LOCALHOST.to_ipv6_mapped();
        assert_eq!(interface(&kernel, (mapped, 80).into()), Ok(1));
        assert_eq!(kernel.link(1), Ok(Link::default()));
        assert_eq!(kernel.link(0x7fff_ffff), Err(Errno::NODEV));
        assert_eq!(kernel.members(1), Ok(vec![]));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert!(!leaves_by_device(&client));
        let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(!leaves_by_device(&one));
    }

    /// A peer with a link-local address is on the link that its scope names, whichever interface
    /// the routing table lists first for such addresses.
    #[test]
    fn link_local_peers_are_on_their_link() {
        let kernel = RouteSocket::new().unwrap();
        let address = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
        let by = |scope| interface(&kernel, SocketAddrV6::new(address, 80, 0, scope).into());
        assert_eq!(by(7), Ok(7));
        assert_eq!(by(0), Err(Errno::HOSTUNREACH), "it names none");
    }

    /// If `/sys` belongs to this namespace, it agrees about each interface.
    #[test]
    fn devices_are_those_of_sys() {
        let kernel = RouteSocket::new().unwrap();
        for entry in std::fs::read_dir("/sys/class/net").unwrap().flatten() {
            // Some entries are not interfaces.
            let Ok(index) = std::fs::read_to_string(entry.path().join("ifindex")) else {
                continue;
            };
            let link = kernel.link(index.trim().parse().unwrap()).unwrap();
            let has_device = entry.path().join("device").exists();
            assert_eq!(link.has_device, has_device, "{entry:?}");
        }
    }

    #[test]
    fn messages_are_read_as_far_as_they_are_whole() {
        assert_eq!(route_request(Ipv6Addr::LOCALHOST.into()).len(), 48);
        let mut body = vec![0; IFINFOMSG_LEN];
        body[4..8].copy_from_slice(&9u32.to_ne_bytes());
        let info = attribute(IFLA_INFO_KIND, b"vlan\0");
        // A name, with padding up to the next multiple of four bytes.
        body.extend([attribute(3, b"v5\0"), vec![0]].concat());
        body.extend([attribute(IFLA_LINKINFO, &info), vec![0; 3]].concat());
        body.extend(attribute(IFLA_LINK, &7u32.to_ne_bytes()));
        let vlan = Link {
            kind: RouteKind::Vlan,
            below: Some(7),
            ..Link::default()
        };
        let answer = message(RTM_NEWLINK, 0, &body);
        let read = |answer: &[u8]| messages(answer).find_map(|(kind, body)| link(kind, body));
        assert_eq!(read(&answer), Some((9, vlan)));
        for len in 0..answer.len() {
            assert_eq!(read(&answer[..len]), None, "{len}");
        }
        body.extend(attribute(IFLA_LINK_NETNSID, &0u32.to_ne_bytes()));
        body.extend(attribute(IFLA_MASTER, &3u32.to_ne_bytes()));
        body.extend(attribute(IFLA_PARENT_DEV_NAME, b"0000:00:1f.6\0"));
        let other = Link {
            has_device: true,
            kind: RouteKind::Vlan,
            below: None,
            master: Some(3),
        };
        let two = [message(RTM_NEWROUTE, 0, &[0; 13]), vec![0; 3]].concat();
        let two = [two, message(RTM_NEWLINK, 0, &body)].concat();
        assert_eq!(read(&two), Some((9, other)));
    }

    /// Interfaces by number.
    struct Known(BTreeMap<u32, Link>);

    impl Links for Known {
        fn link(&self, index: u32) -> Result<Link, Errno> {
            self.0.get(&index).copied().ok_or(Errno::NODEV)
        }

        fn members(&self, bond: u32) -> Result<Vec<u32>, Errno> {
            let is_member = |link: &Link| link.master == Some(bond);
            let members = self.0.iter().filter(|(_, link)| is_member(link));
            Ok(members.map(|(index, _)| *index).collect())
        }
    }

    /// Interfaces of containers and tunnels do not count; a bond counts if all its members do.
    #[test]
    fn interfaces_are_told_apart() {
        let card = |master| Link {
            has_device: true,
            master,
            ..Link::default()
        };
        let on = |kind, below| Link {
            kind,
            below,
            ..Link::default()
        };
        let links = [
            (1, Link::default(), false),
            (2, card(None), true),
            (3, card(Some(10)), true),
            (4, card(Some(10)), true),
            (5, card(Some(11)), true),
            // A veth.
            (6, on(RouteKind::Other, Some(2)), false),
            (
                7,
                Link {
                    master: Some(11),
                    ..Link::default()
                },
                false,
            ),
            (10, on(RouteKind::Bond, None), true),
            (11, on(RouteKind::Bond, None), false),
            (12, on(RouteKind::Bond, None), false),
            (20, on(RouteKind::Vlan, Some(10)), true),
            (21, on(RouteKind::Vlan, Some(11)), false),
            (22, on(RouteKind::Vlan, None), false),
            // It has disappeared meanwhile, or forms a loop.
            (23, on(RouteKind::Vlan, Some(99)), false),
            (24, on(RouteKind::Vlan, Some(24)), false),
        ];
        let known = Known(
            links
                .iter()
                .map(|(index, link, _)| (*index, *link))
                .collect(),
        );
        for (index, link, is) in links {
            let found = is_device(&known, index, STACK_MAX).unwrap_or(false);
            assert_eq!(found, is, "{index}: {link:?}");
        }
    }
}
