//! A client without draft-ietf-quic-ack-frequency: the library always offers it, so the transport parameter
//! that does is left out.

use std::sync::Arc;

use quinn_proto::coding::Codec;
use quinn_proto::crypto::rustls::QuicClientConfig;
use quinn_proto::crypto::{ClientConfig, Session};
use quinn_proto::transport_parameters::TransportParameters;
use quinn_proto::{ConnectError, Side, VarInt};

/// The identifier of `min_ack_delay`.
const MIN_ACK_DELAY: u64 = 0xff04_de1b;

/// TLS whose handshake does not offer the extension.
pub(super) struct WithoutAckFrequency(pub(super) Arc<QuicClientConfig>);

impl ClientConfig for WithoutAckFrequency {
    fn start_session(
        self: Arc<Self>,
        version: u32,
        server_name: &str,
        params: &TransportParameters,
    ) -> Result<Box<dyn Session>, ConnectError> {
        let mut offered = Vec::new();
        params.write(&mut offered);
        let kept = without(MIN_ACK_DELAY, &offered).expect("the library's own");
        let params = TransportParameters::read(Side::Server, &mut &kept[..]);
        let params = params.expect("the library's own");
        Arc::clone(&self.0).start_session(version, server_name, &params)
    }
}

/// The transport parameters `all` without the one of this `id` (RFC 9000 section 18); `None` if they are malformed.
fn without(id: u64, all: &[u8]) -> Option<Vec<u8>> {
    let mut kept = Vec::new();
    let mut rest = all;
    while !rest.is_empty() {
        let mut value = rest;
        let found = VarInt::decode(&mut value).ok()?.into_inner();
        let len = VarInt::decode(&mut value).ok()?.into_inner();
        let after = value.get(usize::try_from(len).ok()?..)?;
        if found != id {
            kept.extend_from_slice(&rest[..rest.len() - after.len()]);
        }
        rest = after;
    }
    Some(kept)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Tls;

    /// max_idle_timeout, min_ack_delay and an initial_source_connection_id without bytes.
    const PARTS: [&[u8]; 3] = [
        &[0x01, 2, 0x7b, 0xb0],
        &[0xc0, 0, 0, 0, 0xff, 0x04, 0xde, 0x1b, 2, 0x43, 0xe8],
        &[0x0f, 0],
    ];

    #[test]
    fn one_parameter_is_left_out_and_the_others_stay() {
        let kept = without(MIN_ACK_DELAY, &PARTS.concat());
        assert_eq!(kept, Some([PARTS[0], PARTS[2]].concat()));
        assert_eq!(without(MIN_ACK_DELAY, &[0x01, 2, 0x7b]), None);
    }

    #[test]
    fn a_handshake_without_the_extension_does_not_offer_it() {
        let tls = Tls::new(b"any", false, false).expect("good settings");
        let crypto = Arc::new(QuicClientConfig::try_from(tls.for_quic()).expect("TLS 1.3"));
        let params = TransportParameters::read(Side::Server, &mut &PARTS.concat()[..]);
        let params = params.expect("well formed");
        let offers = |config: Arc<dyn ClientConfig>, part: &[u8]| {
            let mut hello = Vec::new();
            let session = config.start_session(1, "localhost", &params);
            session.expect("a name").write_handshake(&mut hello);
            hello.windows(part.len()).any(|window| window == part)
        };
        let without = || Arc::new(WithoutAckFrequency(crypto.clone()));
        assert!(offers(crypto.clone(), PARTS[1]) && offers(crypto.clone(), PARTS[0]));
        assert!(!offers(without(), PARTS[1]) && offers(without(), PARTS[0]));
    }
}
