//! The datagram sockets of HTTP/3: one for each HTTPS address and worker.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

use gannet_io::cause::cause;
use gannet_io::udp;

use super::bound::Bound;
use crate::config::{ListenAddress, Scheme};
use crate::quic::QuicSettings;
use crate::quic::settings::Secrets;

/// What came of binding datagram sockets, as the start's lines say it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Http3Report {
    /// Where HTTP/3 is spoken.
    pub addresses: Vec<SocketAddr>,
    /// Where it is not, and why.
    pub missing: Vec<(SocketAddr, String)>,
}

impl fmt::Display for Http3Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let addresses = self.addresses.iter().map(SocketAddr::to_string);
        f.write_str(&addresses.collect::<Vec<_>>().join(", "))
    }
}

/// Sockets that are bound, and what the workers share.
#[derive(Default)]
pub(super) struct Datagrams {
    /// By address, then by worker.
    sockets: Vec<Vec<OwnedFd>>,
    secrets: Option<Secrets>,
    pub(super) report: Http3Report,
}

impl Datagrams {
    /// Binds a datagram socket beside each HTTPS listener, for each worker. What cannot be bound is
    /// reported, and HTTPS goes on without.
    pub(super) fn bind(listeners: &[Bound], workers: usize) -> Self {
        let mut all = Self::default();
        for bound in listeners {
            let ListenAddress::Tcp(address) = bound.address else {
                continue;
            };
            if bound.scheme != Scheme::Https {
                continue;
            }
            match Self::bind_one(address, workers) {
                Ok(sockets) => {
                    all.sockets.push(sockets);
                    all.report.addresses.push(address);
                }
                Err(error) => {
                    all.report.missing.push((address, cause(&error)));
                }
            }
        }
        all.secrets = (!all.sockets.is_empty()).then(Secrets::new);
        all
    }

    fn bind_one(address: SocketAddr, workers: usize) -> io::Result<Vec<OwnedFd>> {
        // Alone first: a socket of another server that shares its address would get a part of the
        // datagrams without a word.
        drop(udp::bind_exclusive(address)?);
        let sockets = (0..workers).map(|_| udp::bind(address));
        let sockets: Vec<_> = sockets.collect::<io::Result<_>>()?;
        // What the kernel gives to the wrong worker is forwarded.
        let _ = udp::steer(&sockets[0], workers);
        Ok(sockets)
    }

    /// How many each worker has.
    pub(super) fn count(&self) -> usize {
        self.sockets.len()
    }

    /// Those of a worker. Copies: if another engine has to be tried, they are needed again.
    pub(super) fn of_worker(&self, worker: usize) -> io::Result<Vec<OwnedFd>> {
        let sockets = self.sockets.iter();
        sockets
            .map(|sockets| sockets[worker].as_fd().try_clone_to_owned())
            .collect()
    }

    /// What a worker is told.
    pub(super) fn settings(&self) -> Option<QuicSettings> {
        Some(QuicSettings {
            secrets: self.secrets.clone()?,
            sockets: u32::try_from(self.count()).expect("addresses are few"),
        })
    }
}
