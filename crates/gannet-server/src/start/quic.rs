//! The datagram sockets of HTTP/3: one for each HTTPS address and worker.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

use gannet_io::cause::cause;
use gannet_io::udp;

use super::bound::{Bound, shares};
use super::estate::Inheritance;
use crate::config::{ListenAddress, Scheme};
use crate::quic::elders::Elders;
use crate::quic::settings::SECRETS_LEN;
use crate::quic::settings::TokenSecrets;
use crate::quic::{QuicSettings, SocketOf};

/// Number of workers that a connection ID can encode.
const WORKERS_MAX: usize = udp::WORKER_MASK as usize + 1;

/// The result of binding datagram sockets, for the startup messages.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Http3Report {
    /// Addresses with HTTP/3.
    pub addresses: Vec<SocketAddr>,
    /// Addresses without it, and why.
    pub missing: Vec<NoHttp3>,
    /// The port that responses over the other versions announce; `None` if the operator configured
    /// the announcement, the ports differ, or clients need certificates.
    pub announced: Option<u16>,
    /// The names of the certificates; wildcards start with `*.`.
    pub names: Vec<Box<str>>,
}

/// An HTTPS address that has no HTTP/3 beside it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NoHttp3 {
    address: SocketAddr,
    cause: String,
    help: &'static str,
}

impl NoHttp3 {
    fn new(address: SocketAddr, error: &io::Error) -> Self {
        let help = match error.kind() {
            io::ErrorKind::AddrInUse => {
                "another program has the UDP port: stop it ('ss -ulnp' lists it), choose another \
                 --port, or leave HTTP/3 out with --http 1,2"
            }
            io::ErrorKind::InvalidInput => {
                "start fewer workers (--workers), or leave HTTP/3 out with --http 1,2"
            }
            io::ErrorKind::PermissionDenied => {
                "allow gannet's user to bind UDP ports, or leave HTTP/3 out with --http 1,2"
            }
            _ => "if HTTP/3 is not wanted, leave it out with --http 1,2",
        };
        Self {
            address,
            cause: cause(error),
            help,
        }
    }

    /// What to do about it.
    #[must_use]
    pub fn help(&self) -> &'static str {
        self.help
    }
}

impl fmt::Display for NoHttp3 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, cause, .. } = self;
        write!(f, "without HTTP/3 at UDP {address}: {cause}")
    }
}

impl fmt::Display for Http3Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let addresses = self.addresses.iter().map(SocketAddr::to_string);
        f.write_str(&addresses.collect::<Vec<_>>().join(", "))
    }
}

/// The bound sockets, and what workers share.
#[derive(Default)]
pub(super) struct Datagrams {
    /// By address.
    sockets: Vec<Vec<OwnedFd>>,
    workers: usize,
    secrets: Option<TokenSecrets>,
    generation: u8,
    elders: Elders,
    pub(super) report: Http3Report,
}

impl Datagrams {
    /// Binds a datagram socket beside each HTTPS listener that clients reach directly, for each worker,
    /// or takes those that another process has bound. Failures are reported, and those addresses serve
    /// HTTPS without HTTP/3.
    pub(super) fn bind(
        listeners: &mut [Bound],
        workers: usize,
        inheritance: &mut Inheritance,
    ) -> Self {
        let mut all = Self {
            workers,
            generation: inheritance.generation,
            elders: Elders::new(std::mem::take(&mut inheritance.elders)),
            ..Self::default()
        };
        for bound in listeners {
            let ListenAddress::Tcp(address) = bound.address else {
                continue;
            };
            // Its clients are proxies over TCP.
            if bound.scheme != Scheme::Https || bound.is_proxied {
                continue;
            }
            match Self::bind_one(address, workers, bound.take_datagrams()) {
                Ok(sockets) => {
                    all.sockets.push(sockets);
                    all.report.addresses.push(address);
                }
                Err(error) => all.report.missing.push(NoHttp3::new(address, &error)),
            }
        }
        let inherited = inheritance.secrets.as_ref();
        let secrets = || inherited.map_or_else(TokenSecrets::new, TokenSecrets::inherited);
        all.secrets = (!all.sockets.is_empty()).then(secrets);
        all
    }

    fn bind_one(
        address: SocketAddr,
        workers: usize,
        inherited: Vec<OwnedFd>,
    ) -> io::Result<Vec<OwnedFd>> {
        if workers > WORKERS_MAX {
            let why = format!("more workers than {WORKERS_MAX}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        if !inherited.is_empty() {
            for socket in &inherited {
                udp::adopt(socket, address)?;
            }
            return Ok(inherited);
        }
        // Alone first: a socket of another server on the same address would silently receive a part
        // of the datagrams.
        drop(udp::bind_exclusive(address)?);
        let sockets = (0..workers).map(|_| udp::bind(address));
        let sockets: Vec<_> = sockets.collect::<io::Result<_>>()?;
        // Datagrams that the kernel delivers to the wrong worker are forwarded.
        let _ = udp::steer(&sockets[0], workers);
        Ok(sockets)
    }

    /// Maximum number of sockets of a worker.
    pub(super) fn count(&self) -> usize {
        let all = self.sockets.iter();
        all.map(|sockets| sockets.len().div_ceil(self.workers))
            .sum()
    }

    /// The sockets of a worker, each with the index of its address and its index there: first one of
    /// each address, by which it sends; then those that it receives from besides, if there are more
    /// sockets than workers.
    fn places(&self, worker: usize) -> impl Iterator<Item = (usize, usize)> {
        let all = self.sockets.iter().enumerate();
        let first = all
            .clone()
            .map(move |(address, sockets)| (address, worker % sockets.len()));
        let rest = all.flat_map(move |(address, sockets)| {
            let more = shares(sockets.len(), worker, self.workers).skip(1);
            more.map(move |at| (address, at))
        });
        first.chain(rest)
    }

    /// The sockets of a worker. Duplicates: falling back to another engine needs them again.
    pub(super) fn of_worker(&self, worker: usize) -> io::Result<Vec<OwnedFd>> {
        let places = self.places(worker);
        places
            .map(|(address, at)| self.sockets[address][at].as_fd().try_clone_to_owned())
            .collect()
    }

    /// The HTTP/3 settings of a worker.
    pub(super) fn settings(&self, worker: usize) -> Option<QuicSettings> {
        let socket = |(address, at)| SocketOf {
            address: u32::try_from(address).expect("addresses are few"),
            // The first of the workers that share it.
            receives: at % self.workers == worker,
        };
        let mut all = self.sockets.iter();
        let workers = u8::try_from(self.workers).ok();
        Some(QuicSettings {
            secrets: self.secrets.clone()?,
            generation: self.generation,
            addresses: self.report.addresses.as_slice().into(),
            sockets: self.places(worker).map(socket).collect(),
            spread: workers.filter(|_| all.any(|sockets| sockets.len() != self.workers)),
            elders: self.elders.clone(),
        })
    }

    /// What a later process needs to continue HTTP/3 in place of this one.
    pub(super) fn into_estate(self) -> QuicEstate {
        QuicEstate {
            sockets: self
                .report
                .addresses
                .into_iter()
                .zip(self.sockets)
                .collect(),
            secrets: self.secrets.map(|secrets| *secrets.bytes()),
            generation: self.generation,
            elders: self.elders,
        }
    }
}

/// See [`Datagrams::into_estate`].
#[derive(Default)]
pub(crate) struct QuicEstate {
    pub(crate) sockets: Vec<(SocketAddr, Vec<OwnedFd>)>,
    pub(crate) secrets: Option<[u8; SECRETS_LEN]>,
    pub(crate) generation: u8,
    pub(crate) elders: Elders,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each socket is received from by one worker, and each worker sends by one of every address.
    #[test]
    fn sockets_have_one_receiver() {
        for count in 1..5 {
            for workers in 1..5 {
                let bind = || udp::bind("127.0.0.1:0".parse().expect("valid")).expect("free");
                let sockets = |_| (0..count).map(|_| bind()).collect();
                let address = SocketAddr::from(([127, 0, 0, 1], 443));
                let datagrams = Datagrams {
                    sockets: (0..2).map(sockets).collect(),
                    workers,
                    secrets: Some(TokenSecrets::new()),
                    report: Http3Report {
                        addresses: vec![address; 2],
                        ..Http3Report::default()
                    },
                    ..Datagrams::default()
                };
                let mut received = Vec::new();
                for worker in 0..workers {
                    let settings = datagrams.settings(worker).expect("it has sockets");
                    assert_eq!(settings.spread.is_some(), count != workers);
                    let first: Vec<_> = settings.sockets.iter().take(2).collect();
                    assert_eq!((first[0].address, first[1].address), (0, 1));
                    let places = datagrams.places(worker);
                    let all = places.zip(&settings.sockets);
                    received.extend(all.filter(|(_, it)| it.receives).map(|(place, _)| place));
                }
                received.sort_unstable();
                let expect: Vec<_> = (0..2)
                    .flat_map(|address| (0..count).map(move |at| (address, at)))
                    .collect();
                assert_eq!(received, expect, "{count} sockets, {workers} workers");
            }
        }
    }
}
