//! A receiver somewhere else, which a publisher brings releases.

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{IpAddr, TcpStream, ToSocketAddrs};
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use url::{Host, Url};

use crate::identity::provider;
use crate::limits::{ANSWER_TIMEOUT, DELIVERY_TIMEOUT, RECEIVER_TIMEOUT};
use crate::paced::{Bounds, Paced};
use crate::push::{PushError, Pushed, push};
use crate::{opening, trust};

/// The address of a receiver.
#[derive(Clone, Debug)]
pub struct Target {
    url: Url,
    /// Without brackets.
    host: String,
    port: u16,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.url.as_str().trim_end_matches('/'))
    }
}

impl Target {
    /// Reads `https://HOST[:PORT][/PATH]`, or the same with `http` on this machine.
    ///
    /// # Errors
    /// Why it is none.
    pub fn parse(text: &str) -> Result<Self, String> {
        let url = Url::parse(text).map_err(|error| error.to_string())?;
        let host = match url.host() {
            Some(Host::Domain(name)) => name.to_owned(),
            Some(Host::Ipv4(address)) => address.to_string(),
            Some(Host::Ipv6(address)) => address.to_string(),
            None => return Err("it names no host".into()),
        };
        let is_here = host == "localhost"
            || host
                .parse::<IpAddr>()
                .is_ok_and(|address| address.is_loopback());
        match url.scheme() {
            "https" => {}
            "http" if is_here => {}
            "http" => return Err("clear text is for this machine alone: write https://".into()),
            _ => return Err("not https://HOST:PORT".into()),
        }
        let has_more = url.query().is_some() || url.fragment().is_some();
        if has_more || !url.username().is_empty() || url.password().is_some() {
            return Err("it has more than a host, a port and a path".into());
        }
        let port = url.port_or_known_default().unwrap_or(443);
        Ok(Self { url, host, port })
    }

    /// Brings a release there, as [`push`] does.
    ///
    /// # Errors
    /// As for [`push`].
    pub fn push(
        &self,
        pointer: &str,
        release: (&File, u64),
        is_activated: bool,
    ) -> Result<Pushed, PushError> {
        let socket = self.connect()?;
        socket.set_nodelay(true)?;
        let bounds = Bounds {
            greeting: RECEIVER_TIMEOUT,
            window: RECEIVER_TIMEOUT,
            least: 1,
            whole: DELIVERY_TIMEOUT,
        };
        let mut socket = Paced::new(socket, bounds);
        socket.know();
        match self.url.scheme() {
            "https" => self.converse(self.encrypt(socket)?, pointer, release, is_activated),
            _ => self.converse(socket, pointer, release, is_activated),
        }
    }

    fn converse(
        &self,
        mut stream: impl Read + Write,
        pointer: &str,
        release: (&File, u64),
        is_activated: bool,
    ) -> Result<Pushed, PushError> {
        let authority = self.url.authority();
        opening::open(&mut stream, authority, self.url.path()).map_err(|error| {
            match error.kind() {
                io::ErrorKind::InvalidData if error.get_ref().is_none() => PushError::Words,
                _ => error.into(),
            }
        })?;
        push(&mut stream, pointer, release, is_activated)
    }

    /// Connects to the first of its addresses that takes it.
    fn connect(&self) -> io::Result<TcpStream> {
        let mut refused = io::ErrorKind::NotFound.into();
        for address in (&*self.host, self.port).to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, ANSWER_TIMEOUT) {
                Ok(socket) => return Ok(socket),
                Err(error) => refused = error,
            }
        }
        Err(refused)
    }

    fn encrypt(&self, socket: Paced) -> Result<StreamOwned<ClientConnection, Paced>, PushError> {
        let roots = trust::roots().map_err(PushError::Trust)?;
        let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, error);
        let builder = ClientConfig::builder_with_provider(provider());
        let builder = builder.with_safe_default_protocol_versions();
        let mut config = builder
            .map_err(invalid)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let name = ServerName::try_from(self.host.clone());
        let name = name.map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        let connection = ClientConnection::new(Arc::new(config), name).map_err(invalid)?;
        Ok(StreamOwned::new(connection, socket))
    }
}
