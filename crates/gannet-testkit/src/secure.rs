//! A server over TLS, and clients for it.

use std::path::Path;
use std::sync::Arc;

use rustls::ClientConfig;

use crate::Gannet;
use crate::client::Client;
use crate::engine::Engine;
use crate::tls::{Abilities, Authority, KeyKind, connection};

/// A server with one certificate for `localhost`, and clients for it.
pub struct Secure {
    /// The issuer of the certificate.
    pub authority: Authority,
    /// A client configuration that trusts the authority and speaks HTTP/1.1.
    pub config: Arc<ClientConfig>,
    /// The server.
    pub server: Gannet,
}

impl Secure {
    /// Serves over TLS, with additional flags.
    pub fn serve(engine: Engine, path: impl AsRef<Path>, flags: &[&str]) -> Self {
        let authority = Authority::new();
        let file = authority.issue("site.pem", KeyKind::P256, &["localhost"]);
        let file = file.to_str().expect("UTF-8");
        let flags: Vec<&str> = ["--tls-cert", file]
            .into_iter()
            .chain(flags.iter().copied())
            .collect();
        let server = engine.serve(path, &flags);
        Self {
            config: authority.client(Abilities::default()),
            authority,
            server,
        }
    }

    /// Opens a connection.
    pub fn connect(&self) -> Client {
        self.connect_with(&self.config, "localhost")
    }

    /// Opens a connection with another configuration, to this host name.
    pub fn connect_with(&self, config: &Arc<ClientConfig>, name: &str) -> Client {
        Client::tls(self.server.address(), connection(config, name))
    }
}
