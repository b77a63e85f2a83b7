//! TLS configuration of QUIC (RFC 9001): only TLS 1.3, ALPN `h3`, the certificates of the other
//! listeners.

use std::sync::Arc;

use quinn_proto::Connection;
use quinn_proto::crypto::ServerConfig as QuicCrypto;
use quinn_proto::crypto::rustls::QuicServerConfig;
use rustls::pki_types::CertificateDer;
use rustls::server::{
    ClientHello, NoServerSessionStorage, ResolvesServerCert, ServerSessionMemoryCache,
};
use rustls::sign::CertifiedKey;

use super::certificates::Names;
use super::compression;
use super::config::{ByKeyKind, Options, ticketer};
use crate::bounds::tls::EARLY_SESSIONS_MAX;

/// The name of HTTP/3 in the ALPN registry (RFC 9114 section 3.1).
const ALPN: &[u8] = b"h3";

/// Maximum early data: QUIC has its own limits, and allows only 0 and this value (RFC 9001 section
/// 4.6.1).
const EARLY_DATA_ALL: u32 = u32::MAX;

/// The certificates of a set, selected by the name that a client requests.
#[derive(Debug)]
struct ByName {
    names: Arc<Names>,
    hosts: Vec<Arc<ByKeyKind>>,
}

impl ResolvesServerCert for ByName {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let name = hello.server_name().map(str::to_ascii_lowercase);
        // A browser comes by TCP first, where a certificate that is coming is waited for. The library has
        // one alert for all that have none, `access_denied`.
        let host = self.names.choose(name.as_deref()).ok()?;
        self.hosts.get(host)?.resolve(hello)
    }
}

/// The certificate that the client of a connection has shown (DER), verified. To be asked once the
/// handshake is complete.
pub(crate) fn client_certificate(connection: &Connection) -> Option<Box<[u8]>> {
    let chain = connection.crypto_session().peer_identity()?;
    let chain: Box<Vec<CertificateDer<'static>>> = chain.downcast().ok()?;
    chain.first().map(|leaf| leaf.as_ref().into())
}

/// The configuration of all QUIC connections for one set of certificates. Its tickets are valid
/// only for this configuration, which binds them to these certificates.
pub(super) fn config(
    names: &Arc<Names>,
    hosts: Vec<Arc<ByKeyKind>>,
    options: &Options,
) -> Result<Arc<dyn QuicCrypto>, String> {
    let names = Arc::clone(names);
    let mut config = options
        .builder(&[&rustls::version::TLS13])?
        .with_cert_resolver(Arc::new(ByName { names, hosts }));
    config.alpn_protocols = vec![ALPN.to_vec()];
    compression::enable(&mut config);
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    if options.resumes() {
        config.send_tls13_tickets = options.tickets.min(8);
        if options.early_data {
            config.max_early_data_size = EARLY_DATA_ALL;
            config.session_storage = ServerSessionMemoryCache::new(EARLY_SESSIONS_MAX);
        } else {
            config.ticketer = ticketer().map_err(|error| error.to_string())?;
        }
    }
    let config = QuicServerConfig::try_from(config).map_err(|error| error.to_string())?;
    Ok(Arc::new(config))
}
