//! Binds a list of addresses, or takes the sockets that are bound already.

use std::io;
use std::net::{Ipv6Addr, SocketAddr};
use std::os::unix::fs::FileTypeExt;
use std::time::{Duration, Instant};

use gannet_server::Bound;
use gannet_server::config::ListenAddress;
use rustix::io::Errno;

use crate::commands::serve::addresses::WantedAddress;
use crate::commands::serve::port_owner::port_owner;
use crate::commands::serve::sockets::Sockets;

/// How long an address may stay in use after its process has gone. Typically 10 ms on an idle
/// machine.
const UNOWNED_MAX: Duration = Duration::from_secs(1);
/// The interval between attempts to bind it.
const UNOWNED_LOOK: Duration = Duration::from_millis(5);

/// How addresses are bound.
pub(super) struct Binding<'a> {
    /// The number of workers.
    pub(super) workers: usize,
    /// Those that are bound already.
    pub(super) sockets: &'a Sockets,
    /// Another port than the wanted one will do.
    pub(super) is_movable: bool,
}

impl Binding<'_> {
    /// Like [`Self::all`], but waits for an address that is in use although no process holds it:
    /// when a server is killed, the kernel tears down its ring, which holds the listeners, some
    /// milliseconds after the process.
    pub(super) fn patiently(&self, addresses: &[WantedAddress]) -> Result<Vec<Bound>, Failed> {
        let end = Instant::now() + UNOWNED_MAX;
        loop {
            match self.all(addresses) {
                Err(failed) if is_unowned(&failed) && Instant::now() < end => {
                    std::thread::sleep(UNOWNED_LOOK);
                }
                result => return result,
            }
        }
    }

    pub(super) fn all(&self, addresses: &[WantedAddress]) -> Result<Vec<Bound>, Failed> {
        let mut bound: Vec<Bound> = Vec::with_capacity(addresses.len());
        for wanted in addresses {
            let WantedAddress {
                address, scheme, ..
            } = wanted;
            // With port 0 and several addresses (--expose), all use the port that the first one got.
            let address = match (address, bound.first()) {
                (
                    ListenAddress::Tcp(tcp),
                    Some(Bound {
                        address: ListenAddress::Tcp(first),
                        ..
                    }),
                ) if tcp.port() == 0 && tcp.ip().is_unspecified() => {
                    with_port(address, first.port())
                }
                _ => address.clone(),
            };
            let is_movable = self.is_movable;
            let passed = (&address, *scheme);
            let passed = self.sockets.listener(passed, is_movable, addresses, &bound);
            let one = passed.and_then(|passed| match passed {
                Some(one) => Ok(one),
                None => gannet_server::bind(&address, *scheme, self.workers),
            });
            match one {
                Ok(mut one) => {
                    one.is_proxied = wanted.is_proxied;
                    bound.push(one);
                }
                // Without IPv6 on this machine, IPv4 alone covers all interfaces.
                Err(error) if is_without_ipv6(&address, &error) && !bound.is_empty() => {}
                Err(error) => return Err(Failed { address, error }),
            }
        }
        Ok(bound)
    }
}

/// Whether the address is in use by an unknown process.
fn is_unowned(failed: &Failed) -> bool {
    failed.error.kind() == io::ErrorKind::AddrInUse
        && match &failed.address {
            ListenAddress::Tcp(address) => port_owner(address.port()).is_none(),
            ListenAddress::Unix(unix) => std::fs::symlink_metadata(&unix.path)
                .is_ok_and(|metadata| metadata.file_type().is_socket()),
        }
}

/// An address that cannot be bound.
pub(super) struct Failed {
    pub(super) address: ListenAddress,
    pub(super) error: io::Error,
}

fn is_without_ipv6(address: &ListenAddress, error: &io::Error) -> bool {
    let wildcard = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 0);
    let is_wildcard = with_port(address, 0) == ListenAddress::Tcp(wildcard);
    let no_family = [Errno::AFNOSUPPORT, Errno::ADDRNOTAVAIL]
        .iter()
        .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()));
    is_wildcard && no_family
}

/// The same address with another port; a Unix socket has none.
pub(super) fn with_port(address: &ListenAddress, port: u16) -> ListenAddress {
    match address {
        ListenAddress::Tcp(address) => ListenAddress::Tcp(SocketAddr::new(address.ip(), port)),
        ListenAddress::Unix(unix) => ListenAddress::Unix(unix.clone()),
    }
}
