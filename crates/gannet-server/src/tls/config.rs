//! What the TLS library is told: versions, suites, groups, protocols, tickets.
//!
//! This file and `handshake.rs` are where the library's types live; `session.rs` holds one for
//! the derivation of keys.

use std::sync::Arc;

use rustls::crypto::aws_lc_rs::{self, cipher_suite as suites, kx_group as groups};
use rustls::crypto::{CryptoProvider, SupportedKxGroup};
use rustls::server::{
    ClientHello, NoServerSessionStorage, ProducesTickets, ResolvesServerCert,
    ServerSessionMemoryCache,
};
use rustls::sign::CertifiedKey;
use rustls::{ConnectionTrafficSecrets, ServerConfig, SupportedCipherSuite};

use super::limits::{EARLY_DATA_MAX, EARLY_SESSIONS_MAX};
use super::record::aead::{Cipher, Secrets};

/// An application protocol, chosen by ALPN (RFC 7301).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Protocol {
    /// `http/1.1`; also for clients that do not ask.
    Http11,
    /// `h2`.
    H2,
}

impl Protocol {
    /// The name in the ALPN registry.
    #[must_use]
    pub fn alpn(self) -> &'static [u8] {
        match self {
            Self::Http11 => b"http/1.1",
            Self::H2 => b"h2",
        }
    }
}

/// What the operator decides about TLS beside the certificates.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Options {
    /// Protocols to offer, the preferred one first.
    pub protocols: Vec<Protocol>,
    /// TLS 1.2 is spoken too.
    pub tls12: bool,
    /// Sessions can be resumed.
    pub resumption: bool,
    /// Early data (0-RTT) is taken. Sessions are then remembered by the server and used once,
    /// instead of being encrypted into tickets.
    pub early_data: bool,
    /// Session tickets sent after a full handshake, 0 to 8.
    pub tickets: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            protocols: vec![Protocol::H2, Protocol::Http11],
            tls12: true,
            resumption: true,
            early_data: false,
            tickets: 2,
        }
    }
}

/// Suites in order of preference. AES-128-GCM is the cheapest and as safe as is needed; the ones
/// of TLS 1.2 are those with forward secrecy and an AEAD (RFC 9325 section 4.2).
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

/// Key exchange groups; the client's order decides among them.
static GROUPS: [&dyn SupportedKxGroup; 3] =
    [groups::X25519MLKEM768, groups::X25519, groups::SECP256R1];

/// The cryptography in use.
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
    /// Our order of suites decides.
    ours: Arc<ServerConfig>,
    /// The client's order decides.
    theirs: Arc<ServerConfig>,
    /// Its certificates.
    pub(super) keys: Arc<ByKeyKind>,
}

impl HostConfig {
    /// A configuration for certificates that have the same names and differ in the kind of their
    /// keys. Tickets and sessions made by it are good for it alone, which binds them to these
    /// certificates.
    pub(super) fn new(keys: Vec<Arc<CertifiedKey>>, options: &Options) -> Result<Self, String> {
        let versions: &[_] = if options.tls12 {
            &[&rustls::version::TLS13, &rustls::version::TLS12]
        } else {
            &[&rustls::version::TLS13]
        };
        let keys = Arc::new(ByKeyKind(keys));
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(versions)
            .map_err(|error| error.to_string())?
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(&keys) as Arc<dyn ResolvesServerCert>);
        config.alpn_protocols = options
            .protocols
            .iter()
            .map(|p| p.alpn().to_vec())
            .collect();
        config.enable_secret_extraction = true;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        // Without stored sessions none is taken; what a client sends all the same is dropped.
        config.max_early_data_size = EARLY_DATA_MAX;
        if options.resumption {
            config.send_tls13_tickets = options.tickets.min(8);
            // RFC 9149: a client that says how many tickets it needs gets no more than that.
            config.max_tls13_tickets = 4;
            if options.early_data {
                config.session_storage = ServerSessionMemoryCache::new(EARLY_SESSIONS_MAX);
                // Answering before the client has finished is what early data is for.
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

    /// The configuration for a client: one that puts ChaCha20-Poly1305 first has no fast AES, and
    /// its wish is followed.
    pub(super) fn choose(&self, prefers_chacha: bool) -> Arc<ServerConfig> {
        Arc::clone(if prefers_chacha {
            &self.theirs
        } else {
            &self.ours
        })
    }
}

/// Tickets under keys that change every six hours and are forgotten after twelve (RFC 5077
/// section 4); the workers share them.
pub(super) fn ticketer() -> Result<Arc<dyn ProducesTickets>, rustls::Error> {
    aws_lc_rs::Ticketer::new()
}

/// Chooses among certificates of one host by the signatures that the client can verify.
#[derive(Debug)]
pub(super) struct ByKeyKind(Vec<Arc<CertifiedKey>>);

impl ResolvesServerCert for ByKeyKind {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let schemes = hello.signature_schemes();
        let suitable = self
            .0
            .iter()
            .find(|key| key.key.choose_scheme(schemes).is_some());
        suitable.or(self.0.first()).cloned()
    }
}

/// The library's secrets in our terms. `None` for a cipher that is not ours.
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
