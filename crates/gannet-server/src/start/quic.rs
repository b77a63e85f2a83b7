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
    /// the announcement or the ports differ.
    pub announced: Option<u16>,
    /// The names of the certificates; wildcards begin with `*.`.
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
                 --port, or leave HTTP/3 out with --no-http3"
            }
            io::ErrorKind::InvalidInput => {
                "start fewer workers (--workers), or leave HTTP/3 out with --no-http3"
            }
            io::ErrorKind::PermissionDenied => {
                "allow gannet's user to bind UDP ports, or leave HTTP/3 out with --no-http3"
            }
            _ => "if HTTP/3 is not wanted, leave it out with --no-http3",
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

/// The bound sockets, and the secrets that workers share.
#[derive(Default)]
pub(super) struct Datagrams {
    /// By address, then by worker.
    sockets: Vec<Vec<OwnedFd>>,
    secrets: Option<Secrets>,
    pub(super) report: Http3Report,
}

impl Datagrams {
    /// Binds a datagram socket beside each HTTPS listener that clients reach directly, for each
    /// worker. Failures are reported,
    /// and those addresses serve HTTPS without HTTP/3.
    pub(super) fn bind(listeners: &[Bound], workers: usize) -> Self {
        let mut all = Self::default();
        for bound in listeners {
            let ListenAddress::Tcp(address) = bound.address else {
                continue;
            };
            // Its clients are proxies over TCP.
            if bound.scheme != Scheme::Https || bound.is_proxied {
                continue;
            }
            match Self::bind_one(address, workers) {
                Ok(sockets) => {
                    all.sockets.push(sockets);
                    all.report.addresses.push(address);
                }
                Err(error) => all.report.missing.push(NoHttp3::new(address, &error)),
            }
        }
        all.secrets = (!all.sockets.is_empty()).then(Secrets::new);
        all
    }

    fn bind_one(address: SocketAddr, workers: usize) -> io::Result<Vec<OwnedFd>> {
        if workers > WORKERS_MAX {
            let why = format!("more workers than {WORKERS_MAX}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
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

    /// Number of sockets of each worker.
    pub(super) fn count(&self) -> usize {
        self.sockets.len()
    }

    /// The sockets of a worker. Duplicates: falling back to another engine needs them again.
    pub(super) fn of_worker(&self, worker: usize) -> io::Result<Vec<OwnedFd>> {
        let sockets = self.sockets.iter();
        sockets
            .map(|sockets| sockets[worker].as_fd().try_clone_to_owned())
            .collect()
    }

    /// The HTTP/3 settings of a worker.
    pub(super) fn settings(&self) -> Option<QuicSettings> {
        Some(QuicSettings {
            secrets: self.secrets.clone()?,
            sockets: u32::try_from(self.count()).expect("addresses are few"),
        })
    }
}
