//! Handshakes: every suite, group and kind of certificate, and peers that stop, send invalid data
//! or use another protocol.

mod tls_support;

use gannet_server::tls::alert::{Alert, TlsFault};
use gannet_server::tls::certificates::CertificateSet;
use gannet_server::tls::clients::Demand;
use gannet_server::tls::config::{AlpnProtocol, Options};
use gannet_server::tls::handshake::{Failure, Handshake, HandshakeKind, Step};
use gannet_server::tls::record::aead::{Cipher, TlsVersion};
use gannet_server::tls::watch::CertificateSource;
use gannet_testkit::tls::KEY_KINDS;
use rustls::crypto::aws_lc_rs::{cipher_suite as suites, kx_group as groups};
use rustls::{ClientConnection, SupportedCipherSuite};
use tls_support::*;

fn request_and_answer(set: &CertificateSet, client: &mut ClientConnection) -> (TlsVersion, Cipher) {
    use std::io::Write;
    let mut server = shake(set, client).unwrap().session;
    client.writer().write_all(b"request").unwrap();
    let mut plain = Vec::new();
    let encrypted = from_client(client);
    server.receive(&encrypted, &mut plain).map(|_| ()).unwrap();
    assert_eq!(plain, b"request");
    let mut out = Vec::new();
    server.encrypt(&[b"ans", b"wer"], &mut out).unwrap();
    assert_eq!(to_client(client, &out).unwrap(), b"answer");
    (server.version(), server.cipher())
}

#[test]
fn every_suite_with_every_kind_of_certificate() {
    let authority = Authority::new();
    for kind in KEY_KINDS {
        let set = set(
            &[&authority.issued(kind, &["localhost"])],
            &Options::default(),
        );
        let ecdsa_or_rsa = |ecdsa: SupportedCipherSuite, rsa: SupportedCipherSuite| {
            if kind == KeyKind::Rsa { rsa } else { ecdsa }
        };
        let table = [
            (suites::TLS13_AES_128_GCM_SHA256, Cipher::Aes128Gcm),
            (suites::TLS13_AES_256_GCM_SHA384, Cipher::Aes256Gcm),
            (
                suites::TLS13_CHACHA20_POLY1305_SHA256,
                Cipher::ChaCha20Poly1305,
            ),
            (
                ecdsa_or_rsa(
                    suites::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
                    suites::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
                ),
                Cipher::Aes128Gcm,
            ),
            (
                ecdsa_or_rsa(
                    suites::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
                    suites::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
                ),
                Cipher::Aes256Gcm,
            ),
            (
                ecdsa_or_rsa(
                    suites::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
                    suites::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
                ),
                Cipher::ChaCha20Poly1305,
            ),
        ];
        for (suite, cipher) in table {
            let version = if suite.tls13().is_some() {
                TlsVersion::Tls13
            } else {
                TlsVersion::Tls12
            };
            let abilities = Abilities::only(suite);
            let mut client = connect(&authority.client(abilities), "localhost");
            let got = request_and_answer(&set, &mut client);
            assert_eq!(got, (version, cipher), "{kind:?} {suite:?}");
        }
    }
}

#[test]
fn every_group_and_a_retry() {
    let authority = Authority::new();
    let set = for_localhost(&authority, &Options::default());
    let all = [
        groups::X25519MLKEM768,
        groups::X25519,
        groups::SECP256R1,
        groups::SECP384R1,
    ];
    for (group, name) in all
        .into_iter()
        .zip(["X25519MLKEM768", "x25519", "secp256r1", "secp384r1"])
    {
        let abilities = Abilities {
            groups: vec![group],
            ..Abilities::default()
        };
        let mut client = connect(&authority.client(abilities), "localhost");
        let established = shake(&set, &mut client).unwrap();
        assert_eq!(
            (established.group, established.kind),
            (name, HandshakeKind::Full)
        );
    }
    // The client's first share is for a group that we do not offer.
    let abilities = Abilities {
        groups: vec![groups::MLKEM768, groups::X25519],
        ..Abilities::default()
    };
    let mut client = connect(&authority.client(abilities), "localhost");
    let established = shake(&set, &mut client).unwrap();
    assert_eq!(
        (established.group, established.kind),
        ("x25519", HandshakeKind::FullWithRetry)
    );
    // Nothing in common.
    let abilities = Abilities {
        groups: vec![groups::MLKEM768],
        ..Abilities::default()
    };
    let mut client = connect(&authority.client(abilities), "localhost");
    let failure = shake_fails(&set, &mut client);
    assert_eq!(failure.0, Alert::HANDSHAKE_FAILURE);
}

/// Our alert, and the resulting error of the client.
fn shake_fails(set: &CertificateSet, client: &mut ClientConnection) -> (Alert, rustls::Error) {
    let mut out = Vec::new();
    let hello = from_client(client);
    let failure = Handshake::new().receive(set, &hello, &mut out).unwrap_err();
    let Failure::Ours { alert, .. } = failure else {
        panic!("{failure:?}")
    };
    let error = to_client(client, &out).unwrap_err();
    assert!(
        matches!(error, rustls::Error::AlertReceived(_)),
        "{error:?}"
    );
    (alert, error)
}

#[test]
fn our_order_of_suites_counts_unless_the_client_has_no_aes() {
    let authority = Authority::new();
    let set = for_localhost(&authority, &Options::default());
    let (aes128, aes256, chacha) = (
        suites::TLS13_AES_128_GCM_SHA256,
        suites::TLS13_AES_256_GCM_SHA384,
        suites::TLS13_CHACHA20_POLY1305_SHA256,
    );
    let table = [
        (vec![aes256, chacha, aes128], Cipher::Aes128Gcm),
        (vec![aes256, chacha], Cipher::Aes256Gcm),
        (vec![chacha, aes128, aes256], Cipher::ChaCha20Poly1305),
    ];
    for (suites, cipher) in table {
        let abilities = Abilities {
            suites,
            ..Abilities::default()
        };
        let mut client = connect(&authority.client(abilities), "localhost");
        assert_eq!(shake(&set, &mut client).unwrap().session.cipher(), cipher);
    }
}

#[test]
fn application_protocols() {
    let authority = Authority::new();
    let issued = authority.issued(KeyKind::P256, &["localhost"]);
    let one = Options {
        protocols: vec![AlpnProtocol::Http11],
        ..Options::default()
    };
    let (one, two) = (set(&[&issued], &one), set(&[&issued], &Options::default()));
    let check = |set: &CertificateSet, alpn: &[&[u8]]| {
        let alpn = alpn.iter().map(|name| name.to_vec()).collect();
        let abilities = Abilities {
            alpn,
            ..Abilities::default()
        };
        let mut client = connect(&authority.client(abilities), "localhost");
        shake(set, &mut client).unwrap().protocol
    };
    assert_eq!(check(&one, &[b"h2", b"http/1.1"]), AlpnProtocol::Http11);
    assert_eq!(check(&two, &[b"http/1.1", b"h2"]), AlpnProtocol::H2);
    assert_eq!(check(&two, &[]), AlpnProtocol::Http11);
    let abilities = Abilities {
        alpn: vec![b"spdy/3".to_vec()],
        ..Abilities::default()
    };
    let mut client = connect(&authority.client(abilities), "localhost");
    // RFC 7301 section 3.2.
    assert_eq!(
        shake_fails(&one, &mut client).0,
        Alert::NO_APPLICATION_PROTOCOL
    );
}

#[test]
fn versions_that_are_not_wanted() {
    let authority = Authority::new();
    let issued = authority.issued(KeyKind::P256, &["localhost"]);
    let set = set(
        &[&issued],
        &Options {
            tls12: false,
            ..Options::default()
        },
    );
    let abilities = Abilities::only(suites::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256);
    let mut client = connect(&authority.client(abilities), "localhost");
    assert_eq!(shake_fails(&set, &mut client).0, Alert::PROTOCOL_VERSION);
}

#[test]
fn the_certificate_is_chosen_by_name_and_by_kind() {
    let authority = Authority::new();
    let default = authority.issued(KeyKind::P256, &["first.test"]);
    let wild = authority.issued(KeyKind::P256, &["*.wild.test", "wild.test"]);
    let exact = authority.issued(KeyKind::P256, &["exact.wild.test"]);
    let rsa = authority.issued(KeyKind::Rsa, &["first.test"]);
    let set = set(&[&default, &wild, &exact, &rsa], &Options::default());
    for name in ["first.test", "a.wild.test", "wild.test", "exact.wild.test"] {
        assert!(set.has(name), "{name}");
        let mut client = connect(&authority.client(Abilities::default()), name);
        let established = shake(&set, &mut client).unwrap();
        assert_eq!(established.server_name.as_deref(), Some(name));
    }
    // A wildcard matches one label, and other names get the default, which the client rejects.
    for name in ["a.b.wild.test", "unknown.test"] {
        assert!(!set.has(name), "{name}");
        let mut client = connect(&authority.client(Abilities::default()), name);
        let mut server = Handshake::new();
        let mut out = Vec::new();
        let hello = from_client(&mut client);
        assert!(matches!(
            server.receive(&set, &hello, &mut out),
            Ok(Step::NeedInput)
        ));
        let error = to_client(&mut client, &out).unwrap_err();
        assert!(format!("{error}").contains("first.test"), "{error}");
        let refusal = from_client(&mut client);
        let failure = server.receive(&set, &refusal, &mut Vec::new()).unwrap_err();
        assert!(matches!(failure, Failure::Peers(_)), "{failure:?}");
    }
    // A client that cannot verify ECDSA gets the other certificate of the same names.
    let abilities = Abilities::only(suites::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256);
    let mut client = connect(&authority.client(abilities), "first.test");
    assert_eq!(shake(&set, &mut client).unwrap().kind, HandshakeKind::Full);
}

#[test]
fn a_replacement_in_the_middle_disturbs_nobody() {
    let authority = Authority::new();
    let (old, new) = (
        for_localhost(&authority, &Options::default()),
        set(
            &[&authority.issued(KeyKind::Rsa, &["localhost"])],
            &Options::default(),
        ),
    );
    let mut client = connect(&authority.client(Abilities::default()), "localhost");
    let mut server = greeted(&old, &mut client);
    drop(old);
    let last = from_client(&mut client);
    let step = server.receive(&new, &last, &mut Vec::new());
    assert!(matches!(step, Ok(Step::Done(_))), "{step:?}");
}

#[test]
fn a_client_without_a_name_gets_the_default() {
    let authority = Authority::new();
    let first = authority.issued(KeyKind::P256, &["127.0.0.1", "first.test"]);
    let second = authority.issued(KeyKind::P256, &["second.test"]);
    let set = set(&[&first, &second], &Options::default());
    // Addresses are not sent as server names (RFC 6066 section 3).
    let mut client = connect(&authority.client(Abilities::default()), "127.0.0.1");
    assert_eq!(shake(&set, &mut client).unwrap().server_name, None);
}

#[test]
fn clear_http_is_recognised() {
    let authority = Authority::new();
    let set = for_localhost(&authority, &Options::default());
    let request = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    for cut in 0..request.len() {
        let mut server = Handshake::new();
        let mut out = Vec::new();
        let mut result = server.receive(&set, &request[..cut], &mut out);
        if cut < 4 {
            assert!(matches!(result, Ok(Step::NeedInput)), "{cut}");
            result = server.receive(&set, &request[cut..], &mut out);
        }
        let Err(Failure::ClearHttp(bytes)) = result else {
            panic!("{cut} {result:?}")
        };
        assert!(request.starts_with(&bytes) && bytes.len() >= 4 && out.is_empty());
    }
    // Neither HTTP nor TLS.
    for other in [
        &b"SSH-2.0-x\r\n"[..],
        b"\0\0\0\0\0\0",
        b"\x80\x2e\x01\x03\x01\0\0",
    ] {
        let mut out = Vec::new();
        let failure = Handshake::new().receive(&set, other, &mut out).unwrap_err();
        assert!(matches!(failure, Failure::Ours { .. }), "{failure:?}");
        assert_eq!(
            (out.len(), out[0], out[5]),
            (7, 21, 2),
            "a fatal alert: {out:?}"
        );
    }
}

#[test]
fn a_handshake_can_be_cut_anywhere() {
    use std::io::Write;
    let authority = Authority::new();
    let set = for_localhost(&authority, &Options::default());
    for suite in [
        suites::TLS13_AES_128_GCM_SHA256,
        suites::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    ] {
        // Byte by byte, with a request that arrives together with the last flight.
        let abilities = Abilities::only(suite);
        let mut client = connect(&authority.client(abilities), "localhost");
        let mut server = Handshake::new();
        let mut rounds = 0;
        let (mut established, rest) = 'done: loop {
            let mut flight = from_client(&mut client);
            if !client.is_handshaking() {
                client.writer().write_all(b"request").unwrap();
                flight.extend(from_client(&mut client));
            }
            let mut out = Vec::new();
            for (at, byte) in flight.iter().enumerate() {
                match server.receive(&set, &[*byte], &mut out).unwrap() {
                    Step::NeedInput | Step::Held => {}
                    Step::Done(done) => break 'done (done, flight[at + 1..].to_vec()),
                }
            }
            to_client(&mut client, &out).unwrap();
            rounds += 1;
            assert!(rounds < 5, "{suite:?}");
        };
        let mut plain = std::mem::take(&mut established.plain);
        for byte in established.rest.iter().chain(&rest) {
            assert!(established.session.receive(&[*byte], &mut plain).is_ok());
        }
        // A TLS 1.2 client waits for our `Finished` before it sends a request.
        let expected: &[u8] = if suite.tls13().is_some() {
            b"request"
        } else {
            b""
        };
        assert_eq!(plain, expected);
    }
}

#[test]
fn a_request_with_the_last_flight_is_not_lost() {
    use std::io::Write;
    let authority = Authority::new();
    for tickets in [0, 2] {
        let options = Options {
            tickets,
            ..Options::default()
        };
        let set = for_localhost(&authority, &options);
        let config = authority.client(Abilities::default());
        // The last flight is followed by two records and close_notify: more than 70 bytes.
        let mut dones = 0;
        for back in 0..140 {
            let mut client = connect(&config, "localhost");
            let mut server = greeted(&set, &mut client);
            client.writer().write_all(b"one ").unwrap();
            let mut last = from_client(&mut client);
            client.writer().write_all(b"two").unwrap();
            client.send_close_notify();
            last.extend(from_client(&mut client));
            let keep = last.len() - back;
            let step = server
                .receive(&set, &last[..keep], &mut Vec::new())
                .unwrap();
            let Step::Done(mut established) = step else {
                continue;
            };
            dones += 1;
            let mut plain = established.plain;
            let session = &mut established.session;
            let mut closed = established.is_closed;
            for rest in [&established.rest[..], &last[keep..]] {
                let received = session.receive(rest, &mut plain).unwrap();
                closed |= received == gannet_server::tls::session::Received::Closed;
            }
            assert_eq!(
                (plain, closed),
                (b"one two".to_vec(), true),
                "{tickets} {keep}"
            );
        }
        assert!(dones > 60, "{dones}");
    }
}

#[test]
fn a_peer_may_stop_at_any_byte() {
    let authority = Authority::new();
    let set = for_localhost(&authority, &Options::default());
    for suite in [
        suites::TLS13_AES_128_GCM_SHA256,
        suites::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    ] {
        let abilities = Abilities::only(suite);
        let config = authority.client(abilities);
        let hello = from_client(&mut connect(&config, "localhost"));
        for cut in 0..hello.len() {
            let mut out = Vec::new();
            let step = Handshake::new().receive(&set, &hello[..cut], &mut out);
            assert!(matches!(step, Ok(Step::NeedInput)), "{cut}");
            assert_eq!(out, b"", "an incomplete hello causes no output");
        }
        let begun = || {
            let mut client = connect(&config, "localhost");
            let server = greeted(&set, &mut client);
            (server, from_client(&mut client))
        };
        for cut in (0..begun().1.len()).step_by(7) {
            let (mut server, last) = begun();
            let cut = cut.min(last.len() - 1);
            let step = server.receive(&set, &last[..cut], &mut Vec::new());
            assert!(matches!(step, Ok(Step::NeedInput)), "{cut} {step:?}");
        }
    }
}

#[test]
fn a_changed_byte_never_panics_and_never_connects() {
    let authority = Authority::new();
    let set = for_localhost(&authority, &Options::default());
    let config = authority.client(Abilities::default());
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut failures = 0;
    for round in 0..400 {
        let mut client = connect(&config, "localhost");
        let mut hello = from_client(&mut client);
        let at = random.below(hello.len());
        hello[at] ^= 1 << random.below(8);
        if random.below(4) == 0 {
            hello.truncate(random.below(hello.len()));
        }
        let mut server = Handshake::new();
        let mut out = Vec::new();
        match server.receive(&set, &hello, &mut out) {
            Ok(Step::NeedInput | Step::Held) => {
                // Whatever the server accepted, the client rejects: the transcript differs.
                if to_client(&mut client, &out).is_ok() {
                    let last = from_client(&mut client);
                    let step = server.receive(&set, &last, &mut out);
                    assert!(
                        !matches!(step, Ok(Step::Done(_))),
                        "round {round} byte {at}"
                    );
                }
            }
            Ok(Step::Done(_)) => panic!("round {round}"),
            Err(_) => failures += 1,
        }
    }
    assert!(
        failures > 20,
        "only {failures} of the changes were detected at once"
    );
    for round in 0..200 {
        let mut client = connect(&config, "localhost");
        let mut server = greeted(&set, &mut client);
        let mut last = from_client(&mut client);
        // The first record is a ChangeCipherSpec, which is ignored in TLS 1.3, as is the version in
        // the header of the second one (RFC 8446 section 5.1).
        let at = 6 + random.below(last.len() - 6);
        if (7..9).contains(&at) {
            continue;
        }
        last[at] ^= 1 << random.below(8);
        let mut out = Vec::new();
        let step = server.receive(&set, &last, &mut out);
        assert!(
            !matches!(step, Ok(Step::Done(_))),
            "round {round} byte {at}"
        );
        if let Err(failure) = step {
            assert!(!out.is_empty(), "an alert was sent: {failure:?}");
            let error = to_client(&mut client, &out).unwrap_err();
            assert!(
                matches!(error, rustls::Error::AlertReceived(_)),
                "{error:?}"
            );
        }
    }
}

#[test]
fn endless_hellos_are_ended() {
    let authority = Authority::new();
    let set = for_localhost(&authority, &Options::default());
    // A hello that announces 16,000 bytes, in records of one byte.
    let mut server = Handshake::new();
    let mut out = Vec::new();
    let start = [22, 3, 1, 0, 4, 1, 0, 0x3e, 0x80];
    assert!(matches!(
        server.receive(&set, &start, &mut out),
        Ok(Step::NeedInput)
    ));
    let mut sent = 0;
    while let Ok(step) = server.receive(&set, &[22, 3, 1, 0, 1, 0], &mut out) {
        assert!(matches!(step, Step::NeedInput));
        sent += 6;
        assert!(sent < 40_000, "no end");
    }
    assert_eq!(out[..6], [21, 3, 3, 0, 2, 2]);
}

#[test]
fn a_fault_is_shown_in_words() {
    assert_eq!(
        TlsFault::Ours(Alert::BAD_RECORD_MAC).to_string(),
        "alert_sent=bad_record_mac(20)"
    );
    assert_eq!(
        Failure::Peers(Alert(48)).to_string(),
        "alert_received=unknown_ca(48)"
    );
}

/// A client's hello for X25519 and one suite of TLS 1.3, with a key share or without.
fn hello(protocol: Option<&[u8]>, has_share: bool) -> Vec<u8> {
    fn of_u16(content: &[u8]) -> Vec<u8> {
        let len = u16::try_from(content.len()).unwrap().to_be_bytes();
        [&len, content].concat()
    }
    fn of_u8(content: &[u8]) -> Vec<u8> {
        [&[u8::try_from(content.len()).unwrap()], content].concat()
    }
    let extension =
        |number: u16, content: &[u8]| [number.to_be_bytes().as_slice(), &of_u16(content)].concat();
    let name = of_u16(&[b"\0".as_slice(), &of_u16(b"asked.test")].concat());
    // Any point serves: the handshake is not finished.
    let share = match has_share {
        true => [b"\0\x1d".as_slice(), &of_u16(&[9; 32])].concat(),
        false => Vec::new(),
    };
    let mut extensions = [
        extension(0, &name),
        extension(10, &of_u16(b"\0\x1d")),
        extension(13, &of_u16(b"\x04\x03\x08\x04")),
        extension(43, b"\x02\x03\x04"),
        extension(51, &of_u16(&share)),
    ]
    .concat();
    if let Some(protocol) = protocol {
        extensions.extend(extension(16, &of_u16(&of_u8(protocol))));
    }
    let content = [
        b"\x03\x03".as_slice(),
        &[7; 32],
        &of_u8(b""),
        &of_u16(b"\x13\x01"),
        b"\x01\0",
        &of_u16(&extensions),
    ]
    .concat();
    let len = u32::try_from(content.len()).unwrap().to_be_bytes();
    let message = [b"\x01".as_slice(), &len[1..], &content].concat();
    [b"\x16\x03\x03".as_slice(), &of_u16(&message)].concat()
}

/// What no hello may have gets the alert that the standard asks for, whatever else it offers.
#[test]
fn hellos_of_ssl_3_and_overlong_records_get_their_alerts() {
    let set = for_localhost(&Authority::new(), &Options::default());
    let check = |hello: &[u8], expect: Alert| {
        let mut out = Vec::new();
        let failure = Handshake::new().receive(&set, hello, &mut out).unwrap_err();
        let Failure::Ours { alert, .. } = failure else {
            panic!("{failure:?}")
        };
        assert_eq!((alert, out[0], out[6]), (expect, 21, expect.0));
    };
    // RFC 8446 D.5: although it offers TLS 1.3.
    let mut ssl3 = hello(None, true);
    ssl3[9..11].copy_from_slice(&[3, 0]);
    check(&ssl3, Alert::PROTOCOL_VERSION);
    // RFC 8446 5.1: known from the header alone.
    check(&[22, 3, 1, 0x40, 1], Alert::RECORD_OVERFLOW);
    let first = [&[22, 3, 1, 0, 1, 1][..], &[22, 3, 1, 0x48, 0, 0]].concat();
    check(&first, Alert::RECORD_OVERFLOW);
}

/// The first hello chooses the certificate of a challenge, which asks nothing of clients; the second
/// one, after a HelloRetryRequest, may not get content for it.
#[test]
fn a_challenge_stays_one_after_a_second_hello() {
    let folder = gannet_testkit::Folder::new();
    let proof = Authority::new().issued(KeyKind::P256, &["asked.test"]);
    folder.write("challenges/asked.test.pem", proof.pem());
    let site = Authority::new().issued(KeyKind::P256, &["asked.test"]);
    folder.write("certificates/asked.test.pem", site.pem());
    let clients = Authority::named("clients").pem().to_owned();
    let clients = folder.write("clients.pem", clients);
    let asked = [
        (Vec::new(), Demand::default()),
        (vec![clients.clone()], Demand::Required),
        (vec![clients], Demand::Optional),
    ];
    for (client_authorities, client_demand) in asked {
        let source = CertificateSource {
            client_authorities,
            client_demand,
            ..ordered(&folder, None)
        };
        stays_a_challenge(&source.open().unwrap().store.current());
    }
}

fn stays_a_challenge(set: &CertificateSet) {
    for second in [None, Some(b"acme-tls/1".as_slice())] {
        let mut server = Handshake::new();
        let mut out = Vec::new();
        let first = hello(Some(b"acme-tls/1"), false);
        let step = server.receive(set, &first, &mut out);
        assert!(matches!(step, Ok(Step::NeedInput)) && !out.is_empty());
        out.clear();
        let step = server.receive(set, &hello(second, true), &mut out);
        assert!(matches!(step, Ok(Step::NeedInput)) && !out.is_empty());
        assert_eq!(server.protocol(), AlpnProtocol::Challenge, "{second:?}");
    }
}

/// A handshake for a name whose certificate was ordered just now goes on when that is there.
#[test]
fn a_handshake_waits_for_the_certificate_of_its_name() {
    let folder = gannet_testkit::Folder::new();
    folder.write(
        "certificates/other.test.pem",
        Authority::new()
            .issued(KeyKind::P256, &["other.test"])
            .pem(),
    );
    let (mut source, _told) = on_demand(&folder, |name| name.ends_with(".site.test"));
    let authority = Authority::new();
    source.client_authorities = vec![authority.file()];
    let before = source.open().unwrap().store.current();
    let issued = authority.issued(KeyKind::P256, &["a.site.test"]);
    folder.write("certificates/a.site.test.pem", issued.pem());
    let after = source.open().unwrap().store.current();
    let config = authority.client(Abilities {
        identity: Some(authority.issued_to_client(KeyKind::P256)),
        ..Abilities::default()
    });
    let greet = |name: &str| {
        let mut client = connect(&config, name);
        let hello = from_client(&mut client);
        (client, hello)
    };
    let (mut client, hello) = greet("a.site.test");
    let (mut server, mut out) = (Handshake::new(), Vec::new());
    for input in [&hello[..], &[]] {
        assert!(matches!(
            server.receive(&before, input, &mut out),
            Ok(Step::Held)
        ));
        assert!(server.is_held() && out.is_empty());
    }
    let step = server.receive(&after, &[], &mut out);
    assert!(matches!(step, Ok(Step::NeedInput)) && !server.is_held());
    to_client(&mut client, &out).unwrap();
    let last = from_client(&mut client);
    let step = server.receive(&after, &last, &mut out);
    // Which the client needs, after the wait as well.
    assert!(matches!(step, Ok(Step::Done(it)) if it.client_certificate.is_some()));
    // One that is given up, and a name of no site.
    let (_, hello) = greet("b.site.test");
    let (mut server, mut out) = (Handshake::new(), Vec::new());
    assert!(matches!(
        server.receive(&after, &hello, &mut out),
        Ok(Step::Held)
    ));
    let Failure::Ours { alert, .. } = server.refuse(&mut out) else {
        panic!("it is refused")
    };
    assert_eq!(
        (alert, &out[..]),
        (Alert::UNRECOGNIZED_NAME, &[21, 3, 3, 0, 2, 2, 112][..])
    );
}
