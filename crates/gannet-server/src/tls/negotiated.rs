//! What a handshake has agreed on, in the words of the log: OpenSSL's, which nginx has, too.

use rustls::{CipherSuite, CommonState};

/// See the module documentation.
#[derive(Debug, Eq, PartialEq)]
pub struct Negotiated {
    /// The version of the protocol.
    pub protocol: &'static str,
    /// The cipher suite; empty if it is unknown.
    pub cipher: &'static str,
}

/// Of a connection over QUIC, which has no other version. The library reports no suite.
pub(crate) static QUIC: Negotiated = of_tls13("");

/// One for each suite that is offered.
static BY_SUITE: [(CipherSuite, Negotiated); 9] = [
    (
        CipherSuite::TLS13_AES_128_GCM_SHA256,
        of_tls13("TLS_AES_128_GCM_SHA256"),
    ),
    (
        CipherSuite::TLS13_AES_256_GCM_SHA384,
        of_tls13("TLS_AES_256_GCM_SHA384"),
    ),
    (
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
        of_tls13("TLS_CHACHA20_POLY1305_SHA256"),
    ),
    (
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
        of_tls12("ECDHE-ECDSA-AES128-GCM-SHA256"),
    ),
    (
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
        of_tls12("ECDHE-RSA-AES128-GCM-SHA256"),
    ),
    (
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
        of_tls12("ECDHE-ECDSA-AES256-GCM-SHA384"),
    ),
    (
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
        of_tls12("ECDHE-RSA-AES256-GCM-SHA384"),
    ),
    (
        CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
        of_tls12("ECDHE-ECDSA-CHACHA20-POLY1305"),
    ),
    (
        CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
        of_tls12("ECDHE-RSA-CHACHA20-POLY1305"),
    ),
];

const fn of_tls13(cipher: &'static str) -> Negotiated {
    let protocol = "TLSv1.3";
    Negotiated { protocol, cipher }
}

const fn of_tls12(cipher: &'static str) -> Negotiated {
    let protocol = "TLSv1.2";
    Negotiated { protocol, cipher }
}

/// What this connection has agreed on; `None` before that.
pub(super) fn of(connection: &CommonState) -> Option<&'static Negotiated> {
    let suite = connection.negotiated_cipher_suite()?.suite();
    let mut known = BY_SUITE.iter();
    let found = known.find(|(known, _)| *known == suite);
    debug_assert!(found.is_some(), "an offered suite: {suite:?}");
    found.map(|(_, negotiated)| negotiated)
}

#[cfg(test)]
mod tests {
    use rustls::ProtocolVersion;

    use super::*;
    use crate::tls::config;

    #[test]
    fn every_suite_has_a_name_of_its_version() {
        let known = BY_SUITE.iter().map(|(suite, it)| (*suite, it.protocol));
        let protocol = |version| match version {
            ProtocolVersion::TLSv1_3 => "TLSv1.3",
            _ => "TLSv1.2",
        };
        let provider = config::provider();
        let offered = provider.cipher_suites.iter();
        let offered = offered.map(|it| (it.suite(), protocol(it.version().version)));
        assert!(known.eq(offered));
    }
}
