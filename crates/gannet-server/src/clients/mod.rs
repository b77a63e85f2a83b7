//! Who the client of a connection or of a request is: for the log, for the scheme and host of a
//! request, and for limits.
//!
//! ```text
//!   the socket's peer ──▶ a PROXY header by a trusted proxy ──▶ the connection's client
//!                                                                  │ is it a trusted proxy, too?
//!                                                                  ▼
//!                                              Forwarded, X-Forwarded-* ──▶ a request's client
//! ```
//!
//! Nothing here costs anything unless the operator asks for it: then connections have a [`Client`].

pub(crate) mod forwarded;
mod limits;
pub(crate) mod network;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use gannet_content::rules::pattern::Scheme;
use gannet_http::semantics::fields::Fields;
use gannet_io::driver::Peer;

use self::forwarded::{Conflict, Forwarded};
use crate::config::ClientRules;

/// The operator's rules about clients, shared by all workers.
#[derive(Debug)]
pub(crate) struct Clients {
    rules: ClientRules,
}

impl Clients {
    /// `None` if all clients are what they seem, and may do as they like.
    pub(crate) fn new(rules: &ClientRules) -> Option<Arc<Self>> {
        (*rules != ClientRules::default()).then(|| {
            Arc::new(Self {
                rules: rules.clone(),
            })
        })
    }

    /// Whether this is the address of a trusted proxy.
    pub(crate) fn is_trusted(&self, address: IpAddr) -> bool {
        let mut networks = self.rules.trust.iter();
        networks.any(|network| network.contains(address))
    }

    /// Whether the PROXY headers of this peer count. Those of a Unix socket do: its permissions say
    /// who may connect.
    pub(crate) fn may_introduce(clients: Option<&Self>, peer: Peer) -> bool {
        match peer {
            Peer::Ip(address) => clients.is_some_and(|it| it.is_trusted(address.ip())),
            Peer::Unix => true,
            Peer::Unknown => false,
        }
    }
}

/// The client of a connection.
#[derive(Debug)]
pub(crate) struct Client {
    /// For the log: `192.0.2.1:443`, `unix`.
    name: Box<str>,
    /// It is a proxy that tells of each request's client.
    pub(crate) is_trusted: bool,
    clients: Option<Arc<Clients>>,
}

impl Client {
    /// The client at the other end of a connection, or named by its PROXY header.
    pub(crate) fn new(clients: Option<&Arc<Clients>>, peer: Peer) -> Self {
        let is_trusted = clients.is_some_and(|it| match peer {
            Peer::Ip(address) => it.is_trusted(address.ip()),
            Peer::Unix => it.rules.trust_unix,
            Peer::Unknown => false,
        });
        let peer = match peer {
            Peer::Ip(address) => {
                Peer::Ip(SocketAddr::new(address.ip().to_canonical(), address.port()))
            }
            other => other,
        };
        Self {
            name: peer.to_string().into(),
            is_trusted,
            clients: clients.map(Arc::clone),
        }
    }

    /// The same client at another address.
    pub(crate) fn moved(&mut self, address: SocketAddr) {
        *self = Self::new(self.clients.as_ref(), Peer::Ip(address));
    }

    /// What a request by this client tells of another one; nothing unless it is a trusted proxy.
    ///
    /// # Errors
    /// See [`Conflict`].
    pub(crate) fn told<'a>(&self, fields: &Fields<'a>) -> Result<Forwarded<'a>, Conflict> {
        match &self.clients {
            Some(clients) if self.is_trusted => {
                Forwarded::read(fields, |address| clients.is_trusted(address))
            }
            _ => Ok(Forwarded::default()),
        }
    }

    /// Its name in the log, if the connection has a client.
    pub(crate) fn name(client: Option<&Self>) -> &str {
        client.map_or("-", |client| &client.name)
    }
}

/// What a trusted proxy has told of a request, if it differs from the connection.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    /// The client, for the log.
    pub(crate) name: Option<Box<str>>,
    /// The scheme by which it sent the request.
    pub(crate) scheme: Scheme,
}
