//! Configuration of the TLS library: versions, suites, groups, protocols, tickets.
//!
//! Only this file and `handshake.rs` use the library's types, except that `session.rs` holds one
//! for deriving keys.

use std::sync::Arc;

use rustls::crypto::aws_lc_rs::{self, cipher_suite as suites, kx_group as groups};
use rustls::crypto::{CryptoProvider, SupportedKxGroup};
use rustls::server::{
    ClientHello, NoServerSessionStorage, ProducesTickets, ResolvesServerCert,
    ServerSessionMemoryCache, WantsServerCert,
};
use rustls::sign::CertifiedKey;
use rustls::{
    ConfigBuilder, ConnectionTrafficSecrets, ServerConfig, SupportedCipherSuite,
    SupportedProtocolVersion,
};

use super::clients::Verifier;
use super::compression::{self, Forms};
use super::record::aead::{Cipher, Secrets};
use crate::bounds::tls::{EARLY_DATA_MAX, EARLY_SESSIONS_MAX};

/// An application protocol, chosen by ALPN (RFC 7301).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum AlpnProtocol {
    /// `http/1.1`; also for clients without ALPN.
    Http11,
    /// `h2`.
    H2,
    /// `acme-tls/1`: an ACME server looks at the certificate, and nothing is spoken (RFC 8737).
    Challenge,
}

impl AlpnProtocol {
    /// The name in the ALPN registry.
    #[must_use]
    pub fn alpn(self) -> &'static [u8] {
        match self {
            Self::Http11 => b"http/1.1",
            Self::H2 => b"h2",
            Self::Challenge => b"acme-tls/1",
        }
    }
}

/// The operator's TLS options besides the certificates.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Options {
    /// Protocols to offer, the preferred one first.
    pub protocols: Vec<AlpnProtocol>,
    /// TLS 1.2 is enabled, too.
    pub tls12: bool,
    /// Sessions can be resumed.
    pub resumption: bool,
    /// Early data (0-RTT) is accepted. Sessions are then stored by the server and used once,
    /// instead of being encrypted into tickets.
    pub early_data: bool,
    /// Session tickets sent after a full handshake, 0 to 8.
    pub tickets: usize,
    /// Clients are asked for a certificate. Sessions are then not resumed.
    pub clients: Option<Verifier>,
}

impl Options {
    /// Whether sessions can be resumed.
    pub(super) fn resumes(&self) -> bool {
        self.resumption && self.clients.is_none()
    }

    /// A configuration before its certificates.
    pub(super) fn builder(
        &self,
        versions: &[&'static SupportedProtocolVersion],
    ) -> Result<ConfigBuilder<ServerConfig, WantsServerCert>, String> {
        let builder = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(versions)
            .map_err(|error| error.to_string())?;
        Ok(match &self.clients {
            Some(verifier) => builder.with_client_cert_verifier(verifier.library()),
            None => builder.with_no_client_auth(),
        })
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            protocols: vec![AlpnProtocol::H2, AlpnProtocol::Http11],
            tls12: true,
            resumption: true,
            early_data: false,
            tickets: 2,
            clients: None,
        }
    }
}

/// Suites in order of preference. AES-128-GCM is the cheapest, and secure enough; those of TLS 1.2
/// have forward secrecy and an AEAD (RFC 9325 section 4.2).
static SUITES: [SupportedCipherSuite; 9] = [
    suites::TLS13_AES_128_GCM_SHA256,
    suites::TLS13_AES_256_GCM_SHA384,
    suites::TLS13_CHACHA20_POLY1305_SHA256,
    suites::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    suites::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
    suites::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    suites::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
    suites::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    suites::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
];

/// Key exchange groups; the client's order takes precedence. P-384 is for clients whose rules (CNSA,
/// some of FIPS) allow nothing else.
static GROUPS: [&dyn SupportedKxGroup; 4] = [
    groups::X25519MLKEM768,
    groups::X25519,
    groups::SECP256R1,
    groups::SECP384R1,
];

/// The crypto provider in use.
pub(super) fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: std::sync::OnceLock<Arc<CryptoProvider>> = std::sync::OnceLock::new();
    Arc::clone(PROVIDER.get_or_init(|| {
        Arc::new(CryptoProvider {
            cipher_suites: SUITES.to_vec(),
            kx_groups: GROUPS.to_vec(),
            ..aws_lc_rs::default_provider()
        })
    }))
}

/// The configurations for the certificates of one host.
#[derive(Clone, Debug)]
pub(super) struct HostConfig {
    /// With our order of suites.
    ours: Arc<ServerConfig>,
    /// With the client's order of suites.
    theirs: Arc<ServerConfig>,
    /// Its certificates.
    pub(super) keys: Arc<ByKeyKind>,
}

impl HostConfig {
    /// A configuration for certificates that have the same names and differ in the kind of their
    /// keys. Its tickets and sessions are valid only for this configuration, which binds them to
    /// these certificates.
    pub(super) fn new(keys: Vec<Arc<CertifiedKey>>, options: &Options) -> Result<Self, String> {
        let versions: &[_] = if options.tls12 {
            &[&rustls::version::TLS13, &rustls::version::TLS12]
        } else {
            &[&rustls::version::TLS13]
        };
        let keys = Arc::new(ByKeyKind::new(keys));
        let mut config = options
            .builder(versions)?
            .with_cert_resolver(Arc::clone(&keys) as Arc<dyn ResolvesServerCert>);
        config.alpn_protocols = options
            .protocols
            .iter()
            .map(|p| p.alpn().to_vec())
            .collect();
        compression::enable(&mut config);
        config.enable_secret_extraction = true;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        // Without stored sessions, no early data is accepted; data sent nevertheless is discarded.
        config.max_early_data_size = EARLY_DATA_MAX;
        if options.resumes() {
            config.send_tls13_tickets = options.tickets.min(8);
            // RFC 9149: a client that requests a number of tickets gets no more than that.
            config.max_tls13_tickets = 4;
            if options.early_data {
                config.session_storage = ServerSessionMemoryCache::new(EARLY_SESSIONS_MAX);
                // Early data is useful only if it is answered before the client has finished.
                config.send_half_rtt_data = true;
            } else {
                config.ticketer = ticketer().map_err(|error| error.to_string())?;
            }
        }
        let theirs = Arc::new(config.clone());
        config.ignore_client_order = true;
        Ok(Self {
            ours: Arc::new(config),
            theirs,
            keys,
        })
    }

    /// The configuration for a client: one that prefers ChaCha20-Poly1305 has no fast AES, so its
    /// preference is followed.
    pub(super) fn choose(&self, prefers_chacha: bool) -> Arc<ServerConfig> {
        Arc::clone(if prefers_chacha {
            &self.theirs
        } else {
            &self.ours
        })
    }
}

/// Tickets under keys that change every six hours and are discarded after twelve (RFC 5077 section
/// 4); shared by the workers.
pub(super) fn ticketer() -> Result<Arc<dyn ProducesTickets>, rustls::Error> {
    aws_lc_rs::Ticketer::new()
}

/// Selects among certificates of one host by the signature schemes that the client supports.
#[derive(Debug)]
pub(super) struct ByKeyKind {
    keys: Vec<Arc<CertifiedKey>>,
    #[expect(dead_code, reason = "handshakes find them while this exists")]
    compressed: Vec<Arc<Forms>>,
}

impl ByKeyKind {
    fn new(keys: Vec<Arc<CertifiedKey>>) -> Self {
        let compressed = compression::compress(&keys);
        Self { keys, compressed }
    }
}

impl ResolvesServerCert for ByKeyKind {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let schemes = hello.signature_schemes();
        let suitable = self
            .keys
            .iter()
            .find(|key| key.key.choose_scheme(schemes).is_some());
        suitable.or(self.keys.first()).cloned()
    }
}

/// One certificate, whatever the client supports.
#[derive(Debug)]
pub(super) struct SingleKey(pub(super) Arc<CertifiedKey>);

impl ResolvesServerCert for SingleKey {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }
}

/// Converts the library's secrets to ours. `None` for an unsupported cipher.
pub(super) fn secrets_of(sequence: u64, secrets: &ConnectionTrafficSecrets) -> Option<Secrets> {
    let (cipher, key, iv) = match secrets {
        ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (Cipher::Aes128Gcm, key, iv),
        ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (Cipher::Aes256Gcm, key, iv),
        ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => {
            (Cipher::ChaCha20Poly1305, key, iv)
        }
        _ => return None,
    };
    let mut out = Secrets {
        cipher,
        key: [0; 32],
        iv: iv.as_ref().try_into().ok()?,
        sequence,
    };
    out.key
        .get_mut(..key.as_ref().len())?
        .copy_from_slice(key.as_ref());
    Some(out)
}
