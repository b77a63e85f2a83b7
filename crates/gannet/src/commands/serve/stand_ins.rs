//! Sockets to check a configuration with, in place of those that running servers have.
//!
//! A configuration is checked before it is reloaded, and the server that reloads it hands its sockets
//! over. What another program than gannet or systemd has, is not stood in for.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use gannet_io::inherited::SocketKind;
use gannet_io::unix_socket;
use gannet_server::config::ListenAddress;

use super::outlook::{Prospect, plan, prospects};
use super::sockets::{SocketGroup, SocketOrigin, Sockets};
use crate::command_line::layers::Origins;
use crate::command_line::settings::Settings;
use crate::messages::{Failure, printable};

/// A socket for each address of a running server, and a note for each.
///
/// # Errors
/// The settings contradict each other, or no socket can be made.
pub(super) fn stand_ins(
    settings: &Settings,
    origins: &Origins,
) -> Result<(Sockets, String), Failure> {
    let plan = plan(settings, origins)?;
    let mut groups = Vec::new();
    let mut notes = String::new();
    for prospect in prospects(settings, &plan) {
        let Some(owner) = running_server(&prospect) else {
            continue;
        };
        let shown = printable(&prospect.address.to_string());
        let (kind, socket) = stand_in(prospect.address, prospect.is_udp)
            .map_err(|error| Failure::of_system("make", "a socket to check with", &error))?;
        if !prospect.is_udp {
            notes.push_str(&format!(
                "note     '{shown}' is in use{owner}: a reload takes it over, a start needs it free\n"
            ));
        }
        groups.push(SocketGroup {
            kind,
            name: String::new(),
            sockets: vec![socket],
            origin: SocketOrigin::StandIn,
        });
    }
    Ok((Sockets::of(groups), notes))
}

/// How to name the server that has an address and may hand it over; `None` if no server has it, or
/// its server will not. Not every user can see which server has it.
fn running_server(prospect: &Prospect) -> Option<String> {
    let is_held = match &prospect.address {
        ListenAddress::Tcp(_) => prospect.is_in_use && !prospect.moves,
        ListenAddress::Unix(unix) => UnixStream::connect(&unix.path).is_ok(),
    };
    match &prospect.owner {
        _ if !is_held => None,
        None => Some(String::new()),
        Some((name, pid)) => {
            matches!(&**name, "gannet" | "systemd").then(|| format!(" (by {name}, process {pid})"))
        }
    }
}

fn stand_in(address: ListenAddress, is_udp: bool) -> io::Result<(SocketKind, OwnedFd)> {
    let loopback = |tcp: &SocketAddr| match tcp.ip() {
        IpAddr::V4(_) => SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        IpAddr::V6(_) => SocketAddr::from((Ipv6Addr::LOCALHOST, 0)),
    };
    Ok(match address {
        ListenAddress::Tcp(tcp) if is_udp => (
            SocketKind::Udp(tcp),
            UdpSocket::bind(loopback(&tcp))?.into(),
        ),
        ListenAddress::Tcp(tcp) => (
            SocketKind::Tcp(tcp),
            TcpListener::bind(loopback(&tcp))?.into(),
        ),
        ListenAddress::Unix(unix) => {
            let (socket, _) = unix_socket::bind_unnamed()?;
            (SocketKind::Unix(unix.path), socket)
        }
    })
}
