//! Sockets that this process was started with: by a service manager, or by its predecessor.
//!
//! An address that is wanted and has such a socket uses it. Sockets stay here until all addresses are
//! bound, since some are tried more than once.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

use gannet_io::inherited::{self, SocketKind};
use gannet_io::unix_socket;
use gannet_server::Bound;
use gannet_server::config::{ListenAddress, Scheme, UnixAddress};

use crate::command_line::settings::TlsSettings;
use crate::commands::serve::addresses::WantedAddress;
use crate::commands::serve::tls;
use crate::messages::{Failure, cause, printable};

/// The name of the socket at which metrics are served.
pub(super) const METRICS: &str = "metrics";

/// See the module documentation.
#[derive(Default)]
pub struct Sockets {
    groups: Vec<SocketGroup>,
}

/// Who has bound a socket.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum SocketOrigin {
    /// Who keeps it, whatever becomes of the server: it has to be served.
    ServiceManager,
    /// The process whose place this one is to take.
    Predecessor,
    /// A server that continues: what stands here in place of its socket is to check a configuration with.
    StandIn,
}

/// The sockets of one address.
pub(super) struct SocketGroup {
    pub(super) kind: SocketKind,
    pub(super) name: String,
    pub(super) sockets: Vec<OwnedFd>,
    pub(super) origin: SocketOrigin,
}

impl Sockets {
    /// Those of a service manager, as in sd_listen_fds(3).
    ///
    /// # Errors
    /// The environment is malformed, or a descriptor cannot be served.
    pub(super) fn of_service_manager() -> Result<Self, Failure> {
        let passed = inherited::from_service_manager().map_err(|error| {
            let cause = cause(&error);
            Failure::usage(format!("cannot use the service manager's sockets: {cause}"))
                .help("see LISTEN_FDS in sd_listen_fds(3)")
        })?;
        let mut all = Self::default();
        for (number, (socket, name)) in passed.into_iter().enumerate() {
            let kind = SocketKind::of(&socket).map_err(|error| {
                let named = match name.is_empty() {
                    true => String::new(),
                    false => format!(" (named '{}')", printable(&name)),
                };
                let what = format!("socket {} of the service manager{named}", number + 1);
                let failure = Failure::usage(format!("cannot use {what}: {}", cause(&error)));
                failure.help(
                    "gannet takes TCP and UDP sockets, and stream sockets with a path: \
                     ListenStream= and ListenDatagram=, with Accept=no",
                )
            })?;
            match all.groups.iter_mut().find(|group| group.kind == kind) {
                Some(group) => group.sockets.push(socket),
                None => all.groups.push(SocketGroup {
                    kind,
                    name,
                    sockets: vec![socket],
                    origin: SocketOrigin::ServiceManager,
                }),
            }
        }
        Ok(all)
    }

    /// These, in their order.
    pub(super) fn of(groups: Vec<SocketGroup>) -> Self {
        Self { groups }
    }

    /// What the service manager has passed, and its name for each.
    pub(super) fn of_manager(&self) -> Vec<(SocketKind, String)> {
        let managed = self.groups.iter().filter(|it| it.is_managed());
        managed
            .map(|it| (it.kind.clone(), it.name.clone()))
            .collect()
    }

    /// The addresses of the service manager's listeners, for a server that names none itself. The name
    /// `http`, `https` or `redirect` decides what is spoken there; without one of them it is what any
    /// address speaks.
    pub(super) fn addresses(&self, settings: &TlsSettings) -> Vec<WantedAddress> {
        let groups = self.groups.iter();
        let groups = groups.filter(|group| group.is_managed() && group.name != METRICS);
        let listener = |group: &SocketGroup| {
            let address = group.address()?;
            let scheme = match &*group.name {
                "http" => Scheme::Http,
                "https" => Scheme::Https,
                "redirect" => Scheme::Redirect,
                _ => tls::scheme(settings, &address),
            };
            Some(WantedAddress {
                address,
                scheme,
                is_proxied: false,
            })
        };
        groups.filter_map(listener).collect()
    }

    /// The listener for metrics: at this address, or without one the service manager's of this name.
    pub(super) fn metrics(&self, wanted: Option<SocketAddr>) -> io::Result<Option<OwnedFd>> {
        let Some((_, group)) = self.find_metrics(wanted) else {
            return Ok(None);
        };
        group.sockets[0].as_fd().try_clone_to_owned().map(Some)
    }

    /// The address at which metrics are served: as wanted, or that of the service manager's socket.
    pub(super) fn metrics_address(&self, wanted: Option<SocketAddr>) -> Option<SocketAddr> {
        wanted.or_else(|| match self.find_metrics(None)?.1.kind {
            SocketKind::Tcp(address) => Some(address),
            _ => None,
        })
    }

    fn find_metrics(&self, wanted: Option<SocketAddr>) -> Option<(usize, &SocketGroup)> {
        let mut groups = self.groups.iter().enumerate();
        groups.find(|(_, group)| match (group.kind.clone(), wanted) {
            (SocketKind::Tcp(address), Some(wanted)) => {
                let is_moved = group.name == METRICS && wanted.port() == 0;
                address == wanted || is_moved && address.ip() == wanted.ip()
            }
            (SocketKind::Tcp(_), None) => group.is_managed() && group.name == METRICS,
            _ => false,
        })
    }

    /// Listeners for a wanted address, if there are any: `None` means that it has to be bound. A
    /// predecessor's listener also counts if the wanted port is not fixed and only its port differs,
    /// unless one of `others` is exactly its address or `bound` has it already.
    pub(super) fn listener(
        &self,
        (wanted, scheme): (&ListenAddress, Scheme),
        is_movable: bool,
        others: &[WantedAddress],
        bound: &[Bound],
    ) -> io::Result<Option<Bound>> {
        let is_free =
            |address: &ListenAddress| bound.iter().all(|one| !is_same(&one.address, address));
        let listeners = || {
            let groups = self.groups.iter().filter(|group| group.name != METRICS);
            groups.filter_map(|group| Some((group, group.address()?)))
        };
        let exact = listeners().find(|(_, address)| is_same(address, wanted) && is_free(address));
        let is_movable = is_movable || matches!(wanted, ListenAddress::Tcp(tcp) if tcp.port() == 0);
        let moved = || {
            listeners().find(|(group, address)| {
                let is_wanted = others.iter().any(|other| is_same(&other.address, address));
                let is_left = group.origin == SocketOrigin::Predecessor;
                is_left && has_same_ip(address, wanted) && is_free(address) && !is_wanted
            })
        };
        let found = exact.or_else(|| is_movable.then(moved).flatten());
        let Some((group, address)) = found else {
            return Ok(None);
        };
        let (address, file) = match (wanted, group.origin) {
            (ListenAddress::Unix(unix), SocketOrigin::Predecessor) => {
                match unix_socket::adopt(&unix.path, &unix.access)? {
                    Some(file) => (wanted.clone(), Some(file)),
                    // It was removed: clients need another one.
                    None => return Ok(None),
                }
            }
            (ListenAddress::Unix(unix), SocketOrigin::ServiceManager) => {
                if unix.access != unix_socket::Access::default() {
                    return Err(io::Error::other(
                        "the service manager has made this socket, and decides who may connect: \
                         leave out mode= and group= here, and set SocketMode= and SocketGroup= in \
                         its unit",
                    ));
                }
                (wanted.clone(), None)
            }
            (ListenAddress::Unix(_), SocketOrigin::StandIn) => (wanted.clone(), None),
            (ListenAddress::Tcp(_), _) => (address, None),
        };
        let mut one = Bound::inherited(address, scheme, group.duplicates()?, file)?;
        if let (ListenAddress::Tcp(tcp), Scheme::Https) = (&one.address, scheme) {
            let is_beside = |group: &&SocketGroup| group.kind == SocketKind::Udp(*tcp);
            if let Some(datagrams) = self.groups.iter().find(is_beside) {
                one = one.with_datagrams(datagrams.duplicates()?);
            }
        }
        Ok(Some(one))
    }

    /// For each group in its order: whether a server with these addresses uses it.
    pub(super) fn taken(&self, server: &Uses<'_>) -> Vec<bool> {
        let metrics = server
            .has_metrics
            .then(|| self.find_metrics(server.metrics));
        let metrics = metrics.flatten().map(|(at, _)| at);
        let groups = self.groups.iter().enumerate();
        groups
            .map(|(at, group)| match &group.kind {
                _ if metrics == Some(at) => true,
                SocketKind::Udp(udp) => server.http3.contains(udp),
                _ => group.address().is_some_and(|address| {
                    let mut all = server.addresses.iter();
                    group.name != METRICS && all.any(|(one, _)| is_same(one, &address))
                }),
            })
            .collect()
    }

    /// Refuses a service manager's socket that nothing uses: clients would wait there for ever.
    ///
    /// # Errors
    /// Names the first one.
    pub(super) fn refuse_unused(&self, taken: &[bool]) -> Result<(), Failure> {
        let mut groups = self.groups.iter().zip(taken);
        match groups.find(|(group, is_taken)| group.is_managed() && !**is_taken) {
            Some((group, _)) => {
                let message = format!("nothing uses the service manager's socket {group}");
                Err(Failure::usage(message).help(group.next_step()))
            }
            None => Ok(()),
        }
    }
}

/// What a server uses.
pub(super) struct Uses<'a> {
    pub(super) addresses: &'a [(ListenAddress, Scheme)],
    /// Those with HTTP/3.
    pub(super) http3: &'a [SocketAddr],
    pub(super) has_metrics: bool,
    /// The address of the metrics, if it is wanted by a flag.
    pub(super) metrics: Option<SocketAddr>,
}

impl SocketGroup {
    fn is_managed(&self) -> bool {
        self.origin == SocketOrigin::ServiceManager
    }

    /// The address of a listener.
    fn address(&self) -> Option<ListenAddress> {
        match &self.kind {
            SocketKind::Tcp(address) => Some(ListenAddress::Tcp(*address)),
            SocketKind::Unix(path) => Some(ListenAddress::Unix(UnixAddress {
                path: path.clone(),
                access: unix_socket::Access::default(),
            })),
            SocketKind::Udp(_) => None,
        }
    }

    fn duplicates(&self) -> io::Result<Vec<OwnedFd>> {
        let sockets = self.sockets.iter();
        sockets.map(|it| it.as_fd().try_clone_to_owned()).collect()
    }

    fn next_step(&self) -> &'static str {
        match self.kind {
            SocketKind::Udp(_) => {
                "HTTP/3 uses a UDP socket at the address of an HTTPS listener: add ListenStream= with \
                 the same address and a certificate, or remove ListenDatagram="
            }
            _ => {
                "without --listen, --port and --expose gannet uses every listener; with them, add \
                 --listen with this address, or remove the socket from the unit"
            }
        }
    }
}

impl fmt::Display for SocketGroup {
    /// `'127.0.0.1:80' (named 'web')`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.kind, self.address()) {
            (SocketKind::Udp(address), _) => write!(f, "'udp {address}'")?,
            (_, Some(address)) => write!(f, "'{}'", printable(&address.to_string()))?,
            (_, None) => {}
        }
        match self.name.is_empty() {
            true => Ok(()),
            false => write!(f, " (named '{}')", printable(&self.name)),
        }
    }
}

fn is_same(one: &ListenAddress, other: &ListenAddress) -> bool {
    match (one, other) {
        (ListenAddress::Tcp(one), ListenAddress::Tcp(other)) => one == other,
        (ListenAddress::Unix(one), ListenAddress::Unix(other)) => one.path == other.path,
        _ => false,
    }
}

fn has_same_ip(one: &ListenAddress, other: &ListenAddress) -> bool {
    match (one, other) {
        (ListenAddress::Tcp(one), ListenAddress::Tcp(other)) => one.ip() == other.ip(),
        _ => false,
    }
}
