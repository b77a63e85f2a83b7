//! The configuration of the QUIC library: secrets, bounds, and the format of connection IDs.

use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::{hkdf, hmac, rand};
use quinn_proto::congestion::CubicConfig;
use quinn_proto::crypto::{HandshakeTokenKey, HmacKey};
use quinn_proto::{
    AckFrequencyConfig, ConnectionId, ConnectionIdGenerator, EndpointConfig, IdleTimeout,
    ServerConfig, TransportConfig, VarInt,
};

use super::routing::Issuer;
use crate::bounds::quic as limits;
use crate::config::Limits;
use crate::tls::certificates::CertificateSet;

/// Bytes of the secrets of HTTP/3: of tokens, and of stateless resets.
pub const SECRETS_LEN: usize = 96;

/// Secrets shared by all workers of a server, so that each accepts the tokens (RFC 9000 section
/// 8.1) that another has issued, and can reset its connections (section 10.3).
#[derive(Clone)]
pub(crate) struct TokenSecrets {
    token: Arc<dyn HandshakeTokenKey>,
    reset: Arc<dyn HmacKey>,
    /// What both are made of.
    bytes: [u8; SECRETS_LEN],
    /// Seed of the library's random numbers; `None`: the kernel seeds them.
    seed: Option<[u8; 32]>,
}

impl TokenSecrets {
    /// Random secrets, for a server.
    pub(crate) fn new() -> Self {
        let mut bytes = [0; SECRETS_LEN];
        rand::fill(&mut bytes).expect("the kernel has random bytes");
        Self::of(&bytes, None)
    }

    /// The secrets of the process whose place this one takes: clients may come back with its tokens,
    /// and its connections can be reset once it has ended.
    pub(crate) fn inherited(bytes: &[u8; SECRETS_LEN]) -> Self {
        Self::of(bytes, None)
    }

    /// What [`Self::inherited`] takes.
    pub(crate) fn bytes(&self) -> &[u8; SECRETS_LEN] {
        &self.bytes
    }

    /// Fixed secrets and a fixed seed, for the simulator.
    pub(crate) fn fixed() -> Self {
        Self::of(&[7; SECRETS_LEN], Some([7; 32]))
    }

    fn of(bytes: &[u8; SECRETS_LEN], seed: Option<[u8; 32]>) -> Self {
        let (token, reset) = bytes.split_at(32);
        let token = hkdf::Salt::new(hkdf::HKDF_SHA256, &[]).extract(token);
        Self {
            token: Arc::new(token),
            reset: Arc::new(hmac::Key::new(hmac::HMAC_SHA256, reset)),
            bytes: *bytes,
            seed,
        }
    }
}

/// The configuration of a worker's endpoint.
pub(super) fn endpoint(secrets: &TokenSecrets, issuer: Issuer) -> Arc<EndpointConfig> {
    let mut config = EndpointConfig::new(Arc::clone(&secrets.reset));
    config
        .supported_versions(vec![super::VERSION])
        .rng_seed(secrets.seed)
        .cid_generator(move || Box::new(OwnIds(issuer)));
    Arc::new(config)
}

/// The configuration of connections that use these certificates.
pub(super) fn server(
    secrets: &TokenSecrets,
    certificates: &CertificateSet,
    limits: &Limits,
) -> Arc<ServerConfig> {
    let crypto = Arc::clone(certificates.quic());
    let mut config = ServerConfig::new(crypto, Arc::clone(&secrets.token));
    config
        .transport_config(Arc::new(transport(limits)))
        .max_incoming(limits::INCOMING_MAX)
        .incoming_buffer_size(limits::INCOMING_HELD_MAX)
        .incoming_buffer_size_total(limits::INCOMING_HELD_ALL_MAX);
    Arc::new(config)
}

fn transport(limits: &Limits) -> TransportConfig {
    let mut acknowledgements = AckFrequencyConfig::default();
    acknowledgements.ack_eliciting_threshold(VarInt::from_u32(limits::UNACKNOWLEDGED_MAX));
    let mut config = TransportConfig::default();
    let mut congestion = CubicConfig::default();
    congestion.initial_window(limits::INITIAL_WINDOW);
    let idle = Duration::from_millis(limits.idle_timeout_ms);
    config
        .max_concurrent_bidi_streams(VarInt::from_u32(limits::REQUESTS_MAX))
        .max_concurrent_uni_streams(VarInt::from_u32(limits::UNI_STREAMS_MAX))
        .stream_receive_window(VarInt::from_u32(limits::STREAM_WINDOW))
        .receive_window(VarInt::from_u32(limits::CONNECTION_WINDOW))
        .send_window(limits::SEND_WINDOW)
        .congestion_controller_factory(Arc::new(congestion))
        .datagram_receive_buffer_size(None)
        .ack_frequency_config(Some(acknowledgements))
        // A value too large for a variable-length integer disables the timeout.
        .max_idle_timeout(IdleTimeout::try_from(idle).ok());
    config
}

/// The length of our connection IDs, in bytes: the number of a worker, the generation of its process,
/// and 64 random bits, so that who uses one has received it (RFC 9000 section 8.1).
pub(super) const ID_LEN: usize = 10;

/// Generates connection IDs that start with their issuer.
struct OwnIds(Issuer);

impl ConnectionIdGenerator for OwnIds {
    fn generate_cid(&mut self) -> ConnectionId {
        let mut id = [0; ID_LEN];
        rand::fill(&mut id).expect("the kernel has random bytes");
        id[0] = self.0.worker;
        id[1] = self.0.generation;
        ConnectionId::new(&id)
    }

    fn cid_len(&self) -> usize {
        ID_LEN
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}
