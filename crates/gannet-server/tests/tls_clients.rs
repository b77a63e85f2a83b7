//! Certificates of clients, in memory: who is accepted, who is not and for which alert, and how much
//! a client may send.

mod tls_support;

use std::path::PathBuf;

use gannet_server::tls::alert::Alert;
use gannet_server::tls::certificates::{CertificateSet, now_unix};
use gannet_server::tls::clients::{Demand, Verifier};
use gannet_server::tls::config::Options;
use gannet_server::tls::handshake::{Failure, Handshake, HandshakeKind, Step};
use gannet_server::tls::limits::{CLIENT_CHAIN_BYTES_MAX, CLIENT_CHAIN_LEN_MAX};
use gannet_testkit::tls::KEY_KINDS;
use rcgen::{CustomExtension, ExtendedKeyUsagePurpose};
use rustls::SupportedCipherSuite;
use rustls::crypto::aws_lc_rs::cipher_suite as suites;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tls_support::*;

/// One of TLS 1.3, one of TLS 1.2.
const VERSIONS: [SupportedCipherSuite; 2] = [
    suites::TLS13_AES_128_GCM_SHA256,
    suites::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
];

/// A server that serves only clients with a certificate of the authorities in these files.
fn server(authority: &Authority, files: &[PathBuf], early_data: bool) -> CertificateSet {
    asking(authority, files, Demand::Required, early_data)
}

/// The same that may also serve others.
fn asking(
    authority: &Authority,
    files: &[PathBuf],
    demand: Demand,
    early_data: bool,
) -> CertificateSet {
    let options = Options {
        clients: Verifier::read(files, demand, now_unix(), &mut Vec::new()).unwrap(),
        early_data,
        ..Options::default()
    };
    for_localhost(authority, &options)
}

fn abilities(suite: SupportedCipherSuite, identity: Option<Issued>) -> Abilities {
    Abilities {
        suites: vec![suite],
        identity,
        early_data: true,
        ..Abilities::default()
    }
}

/// The failure of the handshake of a client with this certificate, and what the client has seen.
fn refused(
    authority: &Authority,
    demand: Demand,
    suite: SupportedCipherSuite,
    identity: Option<Issued>,
) -> (Alert, Result<Vec<u8>, rustls::Error>) {
    let set = asking(authority, &[authority.file()], demand, false);
    let config = authority.client(abilities(suite, identity));
    let mut client = connect(&config, "localhost");
    let mut server = Handshake::new();
    for _ in 0..4 {
        let flight = from_client(&mut client);
        let mut out = Vec::new();
        let step = server.receive(&set, &flight, &mut out);
        let seen = to_client(&mut client, &out);
        match step {
            Ok(_) => assert!(seen.is_ok(), "{seen:?}"),
            Err(Failure::Ours { alert, .. }) => return (alert, seen),
            Err(failure) => panic!("{failure:?}"),
        }
    }
    panic!("it is served over {suite:?}");
}

/// The name of the alert that ends the handshake of a client with this certificate, or with none.
/// Whoever shows one gets the same where it is optional.
fn refusal(authority: &Authority, identity: Option<Issued>) -> &'static str {
    let demands = match identity {
        Some(_) => &[Demand::Required, Demand::Optional][..],
        None => &[Demand::Required],
    };
    let cases = demands
        .iter()
        .flat_map(|it| VERSIONS.map(|suite| (*it, suite)));
    let mut alerts = cases.map(|(demand, suite)| {
        let (alert, seen) = refused(authority, demand, suite, identity.clone());
        let told = rustls::Error::AlertReceived(alert.0.into());
        assert_eq!(seen.unwrap_err(), told, "{demand:?} {suite:?}");
        alert
    });
    let first = alerts.next().expect("there is one");
    alerts.for_each(|alert| assert_eq!(alert, first));
    first.name()
}

/// Over either version, with and without early data among the other options: who shows a certificate
/// is known by it, and who shows none is served. Nobody's session is resumed, so that a certificate is
/// asked for on the next connection, too.
#[test]
fn an_optional_certificate_may_be_left_out() {
    let authority = Authority::new();
    for early_data in [false, true] {
        let set = asking(
            &authority,
            &[authority.file()],
            Demand::Optional,
            early_data,
        );
        for suite in VERSIONS {
            let shown = authority.issued_to_client(KeyKind::P256);
            for identity in [None, Some(shown)] {
                let config = authority.client(abilities(suite, identity.clone()));
                for _ in 0..2 {
                    let mut client = connect(&config, "localhost");
                    let mut established = shake(&set, &mut client).unwrap();
                    assert_eq!(established.kind, HandshakeKind::Full, "{suite:?}");
                    let leaf = identity.as_ref().map(|it| {
                        let der = CertificateDer::from_pem_slice(it.chain.as_bytes());
                        Box::from(der.expect("PEM").as_ref())
                    });
                    assert_eq!(established.client_certificate, leaf);
                    let mut out = Vec::new();
                    established.session.encrypt(&[b"answer"], &mut out).unwrap();
                    assert_eq!(to_client(&mut client, &out).unwrap(), b"answer");
                }
            }
        }
    }
}

#[test]
fn every_kind_of_certificate_and_none_is_resumed() {
    let authority = Authority::new();
    let below = authority.intermediate();
    // Even where the other options would allow early data.
    let set = server(&authority, &[authority.file()], true);
    for kind in KEY_KINDS {
        for (suite, issuer) in VERSIONS.into_iter().zip([&authority, &below]) {
            let identity = issuer.issued_to_client(kind);
            let config = authority.client(abilities(suite, Some(identity)));
            for _ in 0..2 {
                let mut client = connect(&config, "localhost");
                let mut established = shake(&set, &mut client).unwrap();
                assert_eq!(established.kind, HandshakeKind::Full, "{kind:?} {suite:?}");
                // With this response it would get its tickets.
                let mut out = Vec::new();
                established.session.encrypt(&[b"answer"], &mut out).unwrap();
                assert_eq!(to_client(&mut client, &out).unwrap(), b"answer");
            }
        }
    }
}

#[test]
fn each_fault_has_its_alert() {
    let authority = Authority::new();
    let alert = |identity| refusal(&authority, identity);
    assert_eq!(alert(None), "certificate_required");
    let unknown = Authority::named("another").issued_to_client(KeyKind::P256);
    assert_eq!(alert(Some(unknown)), "unknown_ca");
    // An authority of the same name.
    let forged = Authority::new().issued_to_client(KeyKind::P256);
    assert_eq!(alert(Some(forged)), "decrypt_error");
    let expired = authority.issued_for(KeyKind::P256, &[], (2020, 2021));
    assert_eq!(alert(Some(expired)), "certificate_expired");
    let later = authority.issued_for(KeyKind::P256, &[], (2098, 2099));
    assert_eq!(alert(Some(later)), "certificate_expired");
    let of_server = authority.issued_with(KeyKind::P256, &["localhost"], |params| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    });
    assert_eq!(alert(Some(of_server)), "unsupported_certificate");
}

#[test]
fn any_of_several_authorities_counts() {
    let (one, two) = (Authority::new(), Authority::new());
    let set = server(&one, &[one.file(), two.file()], false);
    for issuer in [&one, &two] {
        let identity = Some(issuer.issued_to_client(KeyKind::P256));
        let config = one.client(abilities(VERSIONS[0], identity));
        shake(&set, &mut connect(&config, "localhost")).unwrap();
    }
}

/// A certificate of this length, roughly.
fn long(authority: &Authority, len: usize) -> Issued {
    authority.issued_with(KeyKind::P256, &[], |params| {
        let filler = CustomExtension::from_oid_content(&[1, 3, 6, 1, 4, 1, 1], vec![4; len]);
        params.custom_extensions.push(filler);
    })
}

#[test]
fn what_a_client_may_send_has_a_bound() {
    let authority = Authority::new();
    let filled = |count: usize| {
        let mut identity = authority.issued_to_client(KeyKind::P256);
        for _ in 1..count {
            identity.chain += &authority.issued(KeyKind::P256, &["filler"]).chain;
        }
        Some(identity)
    };
    let most = CLIENT_CHAIN_BYTES_MAX;
    let set = server(&authority, &[authority.file()], false);
    for identity in [
        filled(CLIENT_CHAIN_LEN_MAX),
        Some(long(&authority, most - 1_000)),
    ] {
        for suite in VERSIONS {
            let config = authority.client(abilities(suite, identity.clone()));
            shake(&set, &mut connect(&config, "localhost")).unwrap();
        }
    }
    let many = refusal(&authority, filled(CLIENT_CHAIN_LEN_MAX + 1));
    assert_eq!(many, "bad_certificate");
    for len in [most, 60_000] {
        let longer = refusal(&authority, Some(long(&authority, len)));
        assert_eq!(longer, "bad_certificate", "{len}");
    }
    // Longer than any message of a handshake may be.
    let mut endless = long(&authority, 15_000);
    endless.chain = endless.chain.repeat(6);
    for suite in VERSIONS {
        let (alert, _) = refused(&authority, Demand::Optional, suite, Some(endless.clone()));
        assert_eq!(alert.name(), "decode_error");
    }
}

#[test]
fn the_certificate_may_arrive_in_any_pieces() {
    let authority = Authority::new();
    let set = server(&authority, &[authority.file()], false);
    // Of several records.
    let identity = long(&authority, CLIENT_CHAIN_BYTES_MAX - 1_000);
    for suite in VERSIONS {
        for piece in [1, 700, 5_000] {
            let mut config = (*authority.client(abilities(suite, Some(identity.clone())))).clone();
            config.max_fragment_size = Some(1_000);
            let mut client = connect(&config.into(), "localhost");
            let mut server = Handshake::new();
            let mut is_done = false;
            while !is_done {
                let flight = from_client(&mut client);
                assert!(!flight.is_empty(), "{suite:?} {piece}");
                let mut out = Vec::new();
                for part in flight.chunks(piece) {
                    // Costly in either flight: the hello, and the certificate.
                    assert!(is_done || server.is_costly());
                    let step = server.receive(&set, part, &mut out).unwrap();
                    is_done |= matches!(step, Step::Done(_));
                }
                to_client(&mut client, &out).unwrap();
            }
        }
    }
}
