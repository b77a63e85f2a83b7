//! Session resumption by tickets bound to a certificate, and early data.

mod tls_support;

use std::io::Write;
use std::sync::Arc;

use gannet_server::tls::alert::Alert;
use gannet_server::tls::certificates::CertificateSet;
use gannet_server::tls::config::Options;
use gannet_server::tls::handshake::{Failure, Handshake, HandshakeKind, Step};
use rustls::crypto::aws_lc_rs::cipher_suite as suites;
use rustls::{ClientConfig, ClientConnection};
use tls_support::*;

/// A handshake, then a response that carries the tickets.
fn visit(set: &CertificateSet, client: &mut ClientConnection) -> HandshakeKind {
    let mut established = shake(set, client).unwrap();
    let mut out = Vec::new();
    established.session.encrypt(&[b"answer"], &mut out).unwrap();
    assert_eq!(to_client(client, &out).unwrap(), b"answer");
    established.kind
}

#[test]
fn sessions_are_resumed_by_any_worker() {
    let authority = Authority::new();
    let issued = authority.issued(KeyKind::P256, &["localhost"]);
    for suite in [
        suites::TLS13_AES_128_GCM_SHA256,
        suites::TLS13_AES_256_GCM_SHA384,
        suites::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    ] {
        let store = store(&issued, &Options::default());
        let (one, two) = (store.current(), store.current());
        let abilities = Abilities::only(suite);
        let config = authority.client(abilities);
        assert_eq!(
            visit(&one, &mut connect(&config, "localhost")),
            HandshakeKind::Full
        );
        for set in [&two, &one, &two] {
            let kind = visit(set, &mut connect(&config, "localhost"));
            assert_eq!(kind, HandshakeKind::Resumed, "{suite:?}");
        }
    }
}

#[test]
fn tickets_are_bound_to_the_certificate() {
    let authority = Authority::new();
    let options = Options::default();
    let first = authority.issued(KeyKind::P256, &["first.test"]);
    let second = authority.issued(KeyKind::P256, &["second.test"]);
    let old = set(&[&first, &second], &options);
    let config = authority.client(Abilities::default());
    assert_eq!(
        visit(&old, &mut connect(&config, "first.test")),
        HandshakeKind::Full
    );
    assert_eq!(
        visit(&old, &mut connect(&config, "second.test")),
        HandshakeKind::Full
    );
    // One host gets a new certificate, the other keeps its own: so do their tickets.
    let renewed = authority.issued(KeyKind::P256, &["second.test"]);
    let pairs = vec![pair(&first), pair(&renewed)];
    let new = CertificateSet::new(pairs, &options, Some(&old)).unwrap();
    assert_eq!(
        visit(&new, &mut connect(&config, "first.test")),
        HandshakeKind::Resumed
    );
    assert_eq!(
        visit(&new, &mut connect(&config, "second.test")),
        HandshakeKind::Full
    );
    // A ticket of one host is invalid for another: this client sends tickets by name, so the other
    // host's certificate replaces the first one.
    let swapped = set(
        &[&authority.issued(KeyKind::P256, &["first.test"])],
        &options,
    );
    assert_eq!(
        visit(&swapped, &mut connect(&config, "first.test")),
        HandshakeKind::Full
    );
}

#[test]
fn resumption_can_be_switched_off() {
    let authority = Authority::new();
    let options = Options {
        resumption: false,
        ..Options::default()
    };
    let set = for_localhost(&authority, &options);
    let config = authority.client(Abilities::default());
    for _ in 0..2 {
        assert_eq!(
            visit(&set, &mut connect(&config, "localhost")),
            HandshakeKind::Full
        );
    }
}

/// Connects with early data, if the client has a session that allows it.
fn visit_early(
    set: &CertificateSet,
    client: &mut ClientConnection,
) -> (Option<Vec<u8>>, bool, HandshakeKind) {
    let was_offered = match client.early_data() {
        Some(mut early) => {
            early.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
            true
        }
        None => false,
    };
    let established = shake(set, client).unwrap();
    assert_eq!(
        client.is_early_data_accepted(),
        !established.early.is_empty()
    );
    let early = was_offered.then(|| established.early.clone());
    (early, client.is_early_data_accepted(), established.kind)
}

/// A client that sends early data if its session allows it.
fn early_client(authority: &Authority) -> Arc<ClientConfig> {
    authority.client(Abilities {
        early_data: true,
        ..Abilities::default()
    })
}

/// A server that takes early data, and a client that has a session there which allows it.
fn with_early_data() -> (CertificateSet, Arc<ClientConfig>) {
    let authority = Authority::new();
    let options = Options {
        early_data: true,
        ..Options::default()
    };
    let set = for_localhost(&authority, &options);
    let config = early_client(&authority);
    visit(&set, &mut connect(&config, "localhost"));
    (set, config)
}

#[test]
fn early_data_only_if_asked_for() {
    let authority = Authority::new();
    // Off: tickets do not offer it.
    let off = for_localhost(&authority, &Options::default());
    let config = early_client(&authority);
    visit(&off, &mut connect(&config, "localhost"));
    let (early, _, kind) = visit_early(&off, &mut connect(&config, "localhost"));
    assert_eq!((early, kind), (None, HandshakeKind::Resumed));
    let (on, config) = with_early_data();
    let (early, accepted, kind) = visit_early(&on, &mut connect(&config, "localhost"));
    let request = b"GET / HTTP/1.1\r\n\r\n".to_vec();
    assert_eq!(
        (early, accepted, kind),
        (Some(request), true, HandshakeKind::Resumed)
    );
}

#[test]
fn early_data_is_answered_before_the_end() {
    let (set, config) = with_early_data();
    let mut client = connect(&config, "localhost");
    client
        .early_data()
        .expect("a session")
        .write_all(b"GET / HTTP/1.1\r\n\r\n")
        .unwrap();
    let mut server = Handshake::new();
    let mut out = Vec::new();
    let flight = from_client(&mut client);
    assert!(matches!(
        server.receive(&set, &flight, &mut out),
        Ok(Step::NeedInput)
    ));
    assert_eq!(server.take_early(), b"GET / HTTP/1.1\r\n\r\n");
    assert!(server.encrypt_early(&[b"early ", b"answer "], &mut out));
    assert_eq!(to_client(&mut client, &out).unwrap(), b"early answer ");
    // The rest of the handshake and further data are in order.
    let mut out = Vec::new();
    let last = from_client(&mut client);
    let Ok(Step::Done(mut done)) = server.receive(&set, &last, &mut out) else {
        panic!("done")
    };
    assert_eq!((done.early.len(), done.kind), (0, HandshakeKind::Resumed));
    done.session.encrypt(&[b"late answer"], &mut out).unwrap();
    assert_eq!(to_client(&mut client, &out).unwrap(), b"late answer");
    assert!(!server.encrypt_early(&[b"too late"], &mut out));
}

#[test]
fn early_data_is_not_taken_twice() {
    let (set, config) = with_early_data();
    let mut client = connect(&config, "localhost");
    client
        .early_data()
        .expect("a session")
        .write_all(b"GET /once")
        .unwrap();
    let flight = from_client(&mut client);
    // The same bytes twice, as an attacker on the path could send them.
    let (mut first, mut second) = (Vec::new(), Vec::new());
    let mut one = Handshake::new();
    assert!(matches!(
        one.receive(&set, &flight, &mut first),
        Ok(Step::NeedInput)
    ));
    let mut two = Handshake::new();
    let replayed = two.receive(&set, &flight, &mut second);
    assert!(matches!(replayed, Ok(Step::NeedInput)), "{replayed:?}");
    // The second one led to a full handshake: its flight is longer by the certificate.
    assert!(
        second.len() > first.len() + 300,
        "{} {}",
        second.len(),
        first.len()
    );
}

/// Rejected early data is discarded, however it was cut, and the handshake continues without it.
#[test]
fn early_data_that_is_rejected_is_dropped() {
    let authority = Authority::new();
    let issued = authority.issued(KeyKind::P256, &["localhost"]);
    let early_data = |early_data| {
        let options = Options {
            early_data,
            ..Options::default()
        };
        set(&[&issued], &options)
    };
    let send = |sets: (&CertificateSet, &CertificateSet), len: usize, cut: usize| {
        let config = early_client(&authority);
        visit(sets.0, &mut connect(&config, "localhost"));
        let mut client = connect(&config, "localhost");
        let mut early = client.early_data().expect("a session");
        early.write_all(&vec![b'e'; len]).unwrap();
        let (mut server, mut out) = (Handshake::new(), Vec::new());
        loop {
            let flight = from_client(&mut client);
            assert!(!flight.is_empty(), "neither side makes progress");
            for part in flight.chunks(cut) {
                match server.receive(sets.1, part, &mut out)? {
                    Step::NeedInput | Step::Held => {}
                    Step::Done(mut done) => {
                        assert!(!client.is_early_data_accepted() && done.early.is_empty());
                        done.session.encrypt(&[b"answer"], &mut out).unwrap();
                        assert_eq!(to_client(&mut client, &out).unwrap(), b"answer");
                        return Ok(());
                    }
                }
            }
            to_client(&mut client, &std::mem::take(&mut out)).unwrap();
        }
    };
    // The session is another server's, or early data was disabled since.
    let (on, other, off) = (early_data(true), early_data(true), early_data(false));
    for second in [&other, &off] {
        for len in [1, 4_000, 8_192, 9_000, 16_384, 20_000] {
            for cut in [usize::MAX, 4_096, 1_000, 7] {
                let result = send((&on, second), len, cut);
                assert_eq!(result, Ok(()), "{len} bytes in pieces of {cut}");
            }
        }
        // The library counts a record again whenever it inspects its input, which limits it.
        let Err(Failure::Ours { alert, .. }) = send((&on, second), 60_000, 4_096) else {
            panic!("more than the limit");
        };
        assert_eq!(alert, Alert::BAD_RECORD_MAC);
    }
}
