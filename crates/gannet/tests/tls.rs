//! HTTPS from the client's side: handshakes, answers, closing, redirects; certificates are in
//! `tls/certificates.rs`.

#[path = "tls/certificates.rs"]
mod certificates;
use std::net::{SocketAddr, TcpStream};
use std::{fs, thread};

use gannet_testkit::client::{Client, End, get, head, metric};
use gannet_testkit::content::{assert_pattern, pattern};
use gannet_testkit::engine::on_both_engines;
use gannet_testkit::process::until;
use gannet_testkit::tls::{Abilities, Authority, KeyKind, Secure, connection};
use gannet_testkit::{DEADLINE, Folder, gannet, gannet_in, h2};
use rustls::crypto::aws_lc_rs::{self, cipher_suite as suites, kx_group as groups};
use rustls::{HandshakeKind, ProtocolVersion};

const METRICS: [&str; 2] = ["--metrics", "127.0.0.1:0"];

#[test]
fn every_suite_group_and_kind_of_key() {
    let site = Folder::site();
    let page = fs::read(site.join("index.html")).expect("readable");
    on_both_engines(|engine| {
        let authority = Authority::new();
        for kind in [KeyKind::P256, KeyKind::P384, KeyKind::Ed25519, KeyKind::Rsa] {
            let file = authority.issue(&format!("{kind:?}.pem"), kind, &["localhost"]);
            let server = engine.serve(site.path(), &["--tls-cert", file.to_str().expect("UTF-8")]);
            let is_rsa = kind == KeyKind::Rsa;
            for suite in aws_lc_rs::ALL_CIPHER_SUITES {
                let name = format!("{:?}", suite.suite());
                let is_tls13 = suite.version().version == ProtocolVersion::TLSv1_3;
                if !is_tls13 && is_rsa != name.contains("_RSA_") {
                    continue;
                }
                let config = authority.client(Abilities::only(*suite));
                let mut client = Client::tls(server.address(), connection(&config, "localhost"));
                assert_eq!(client.get("/").expect(200).body, page, "{kind:?} {name}");
                let last = client.request("GET", "/about", &["connection: close"]);
                assert_eq!(last.status, 200);
                client.closes();
            }
        }
        let secure = Secure::serve(engine, site.path(), &[]);
        for group in [groups::X25519MLKEM768, groups::X25519, groups::SECP256R1] {
            let config = secure.authority.client(Abilities {
                groups: vec![group],
                ..Abilities::default()
            });
            let mut client = secure.connect_with(&config, "localhost");
            client.get("/").expect(200);
            let used = client.secure().conn.negotiated_key_exchange_group();
            assert_eq!(used.map(|group| group.name()), Some(group.name()));
        }
    });
}

#[test]
fn files_of_every_size_arrive_whole() {
    let site = Folder::site();
    let sizes = [1, 1000, 16_384, 16_385, 32_768, 32_769, 125_000, 5_000_000];
    for size in sizes {
        site.write(format!("f/{size}.bin"), pattern(size, size as u8));
    }
    let archive = site.join("site.gannet");
    let archive = archive.to_str().expect("UTF-8");
    gannet_in(&site, ["pack", ".", "-o", archive, "--fast"]);
    on_both_engines(|engine| {
        let mapped = ["--cache-memory", "0"];
        for (path, flags) in [
            (site.path().to_str().expect("UTF-8"), &[][..]),
            (archive, &[][..]),
            (archive, &mapped[..]),
        ] {
            let secure = Secure::serve(engine, path, flags);
            let mut client = secure.connect();
            for size in sizes {
                let target = format!("/f/{size}.bin");
                let got = client.get(&target).expect(200);
                assert_eq!(got.body.len(), size);
                assert_pattern(&got.body, size as u8);
                if size > 20 {
                    let middle = client.request("GET", &target, &["range: bytes=10-19"]);
                    assert_eq!(middle.expect(206).body, pattern(size, size as u8)[10..20]);
                }
            }
            // Pipelined: the answers are in order in one stream of records.
            let requests: String = sizes
                .map(|size| head("GET", &format!("/f/{size}.bin"), &[]))
                .concat();
            client.send(requests);
            for size in sizes {
                assert_pattern(&client.response().expect(200).body, size as u8);
            }
            let last = client.request("GET", "/f/125000.bin", &["connection: close"]);
            assert_pattern(&last.body, 125_000u32 as u8);
            client.closes();
        }
    });
}

#[test]
fn sessions_are_resumed_whichever_worker_is_met() {
    let site = Folder::site();
    on_both_engines(|engine| {
        let flags = ["--workers", "2", METRICS[0], METRICS[1]];
        let secure = Secure::serve(engine, site.path(), &flags);
        let mut kinds = Vec::new();
        for _ in 0..8 {
            let mut client = secure.connect();
            client.get("/").expect(200);
            kinds.push(client.secure().conn.handshake_kind());
        }
        assert_eq!(kinds[0], Some(HandshakeKind::Full));
        assert!(
            kinds[1..]
                .iter()
                .all(|kind| *kind == Some(HandshakeKind::Resumed)),
            "{kinds:?}"
        );
        let name = "gannet_tls_handshakes_total{kind=\"resumed\"}";
        assert_eq!(metric(&secure.server, name), 7);
    });
}

/// With Nagle's algorithm, a client sends its request only once the end of its handshake is
/// acknowledged: it must get its tickets before it has requested anything.
#[test]
fn tickets_do_not_wait_for_a_request() {
    let site = Folder::site();
    on_both_engines(|engine| {
        let secure = Secure::serve(engine, site.path(), &[]);
        let mut tls = connection(&secure.config, "localhost");
        let mut socket = TcpStream::connect(secure.server.address()).expect("it listens");
        socket.set_read_timeout(Some(DEADLINE)).expect("set");
        while tls.is_handshaking() || tls.tls13_tickets_received() < 2 {
            while tls.wants_write() {
                tls.write_tls(&mut socket).expect("sent");
            }
            assert!(tls.read_tls(&mut socket).expect("in time") > 0);
            tls.process_new_packets().expect("TLS");
        }
        let mut client = Client::over(socket, tls);
        client.get("/").expect(200);
        client.get("/about").expect(200);
    });
}

#[test]
fn an_unknown_protocol_is_refused_with_its_alert() {
    let site = Folder::site();
    on_both_engines(|engine| {
        let secure = Secure::serve(engine, site.path(), &METRICS);
        let config = secure.authority.client(Abilities {
            alpn: vec![b"acme-tls/1".to_vec()],
            ..Abilities::default()
        });
        let mut client = secure.connect_with(&config, "localhost");
        let error = client.try_send(head("GET", "/", &[])).expect_err("refused");
        assert!(
            error.to_string().contains("NoApplicationProtocol"),
            "{error}"
        );
        let name = "gannet_tls_handshakes_failed_total{reason=\"no_application_protocol\"}";
        assert_eq!(metric(&secure.server, name), 1);
        // A client without ALPN gets HTTP/1.1.
        let config = secure.authority.client(Abilities {
            alpn: Vec::new(),
            ..Abilities::default()
        });
        secure
            .connect_with(&config, "localhost")
            .get("/")
            .expect(200);
    });
}

#[test]
fn http_in_clear_text_is_answered_in_words() {
    let site = Folder::site();
    on_both_engines(|engine| {
        let secure = Secure::serve(engine, site.path(), &["--hsts"]);
        let mut clear = Client::new(&secure.server);
        let answer = clear.get("/").expect(400);
        assert!(answer.text().contains("https://"), "{answer:?}");
        assert_eq!(answer.field("strict-transport-security"), None);
        assert_eq!(answer.field("connection"), Some("close"));
        clear.closes();
        let encrypted = secure.connect().get("/").expect(200);
        assert_eq!(
            encrypted.field("strict-transport-security"),
            Some("max-age=63072000")
        );
    });
}

/// All policies in the answer for a path over TLS.
fn policies(secure: &Secure, target: &str) -> Vec<String> {
    let answer = secure.connect().get(target);
    let of_policy = |(name, _): &&(String, String)| name == "content-security-policy";
    let found = answer.fields.iter().filter(of_policy);
    found.map(|(_, value)| value.clone()).collect()
}

#[test]
fn who_promises_https_upgrades_what_pages_name() {
    const UPGRADE: &str = "upgrade-insecure-requests";
    const OWN: &str = "default-src 'self'";
    let site = Folder::site();
    site.write(
        "_headers",
        "/*\n  Content-Security-Policy: default-src 'self'\n",
    );
    on_both_engines(|engine| {
        let of = |flags: &[&str], target: &str| {
            let mut all = policies(&Secure::serve(engine, site.path(), flags), target);
            all.sort();
            all
        };
        for target in ["/", "/nothing"] {
            assert_eq!(of(&["--hsts"], target), [OWN, UPGRADE], "{target}");
            assert_eq!(of(&[], target), [OWN], "{target}");
            let flags = ["--hsts", "--no-security-fields"];
            assert_eq!(of(&flags, target), [OWN], "{target}");
            let policy = "content-security-policy: img-src 'self'";
            let own = of(&["--hsts", "--header", policy], target);
            assert_eq!(own, ["img-src 'self'"], "{target}");
        }
    });
}

#[test]
fn clear_http_is_sent_to_https() {
    let site = Folder::site();
    on_both_engines(|engine| {
        let at = |address| ["--http-redirect", address];
        let flags = [at("127.0.0.1:0"), at("127.0.0.2:0")].concat();
        let secure = Secure::serve(engine, site.path(), &flags);
        let urls = secure.server.urls().iter();
        let clear: Vec<SocketAddr> = urls
            .filter_map(|url| {
                let clear = url.strip_prefix("http://")?.trim_end_matches('/');
                Some(clear.parse().expect("an address"))
            })
            .collect();
        let [clear, second] = clear[..] else {
            panic!("two are printed at start: {clear:?}");
        };
        Client::connect(second).request("GET", "/", &[]).expect(301);
        let port = secure.server.address().port();
        let mut client = Client::connect(clear);
        let asked = client.request("GET", "/a%20b?c=d", &[]).expect(301);
        // The test's Host field has no port, and the server does not listen on port 80.
        assert_eq!(asked.field("location"), Some("https://test/a%20b?c=d"));
        let host = format!(
            "GET / HTTP/1.1\r\nhost: example.test:{}\r\n\r\n",
            clear.port()
        );
        client.send(host);
        let asked = client.response().expect(301);
        let expect = format!("https://example.test:{port}/");
        assert_eq!(asked.field("location"), Some(expect.as_str()));
        client.send("GET / HTTP/1.1\r\nhost: a\"b\r\n\r\n");
        client.response().expect(400);
    });
}

#[test]
fn peers_that_stall_reset_or_go_away_in_the_handshake_leave_nothing() {
    let site = Folder::site();
    on_both_engines(|engine| {
        // A busy machine holds up no handshake for as long.
        let flags = [METRICS[0], METRICS[1], "--head-timeout", "3s"];
        let secure = Secure::serve(engine, site.path(), &flags);
        let mut hello = Vec::new();
        let mut shaking = connection(&secure.config, "localhost");
        shaking.write_tls(&mut hello).expect("a ClientHello");
        let mut silent = Vec::new();
        for len in [0, 1, 5, 100, hello.len()] {
            // Resets, half-closes, or goes silent.
            let mut client = Client::new(&secure.server);
            client.send(&hello[..len]);
            client.reset();
            let mut client = Client::new(&secure.server);
            client.send(&hello[..len]);
            client.finish_sending();
            client.rest();
            let mut client = Client::new(&secure.server);
            client.send(&hello[..len]);
            silent.push(client);
        }
        for client in &mut silent {
            client.rest();
        }
        // Input that is not a handshake gets an alert.
        let mut client = Client::new(&secure.server);
        client.send([0x16, 3, 1, 0, 5, 2, 0, 0, 1, 0]);
        let (alert, _) = client.rest();
        assert_eq!(alert.first(), Some(&21), "an alert record: {alert:?}");
        until("nothing is left", || {
            metric(&secure.server, "gannet_tls_connections") == 0
        });
        assert!(metric(&secure.server, "gannet_timeouts_total") >= 4);
        let stage = |name: &str, end: &str| {
            let name = format!("gannet_stage_connections{end}{{stage=\"{name}\"}}");
            metric(&secure.server, &name)
        };
        let handshakes = stage("tls-handshake", "_total");
        let mut client = secure.connect();
        client.get("/").expect(200);
        assert_eq!(stage("http1-tls", ""), 1);
        assert_eq!(stage("tls-handshake", ""), 0);
        assert_eq!(stage("tls-handshake", "_total"), handshakes + 1);
        // One that speaks HTTP/1 in clear text is no longer in its handshake.
        let mut clear = Client::new(&secure.server);
        clear.send(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
        clear.rest();
        assert_eq!(stage("http1", "_total"), 1);
        until("it is closed", || stage("http1", "") == 0);
        drop(client);
        until("nothing is left", || stage("http1-tls", "") == 0);
    });
}

/// A hello announced with 16 MiB is rejected once, whatever follows.
#[test]
fn an_endless_hello_is_refused_once() {
    let site = Folder::site();
    let body = [&b"\x01\xff\xff\xff"[..], &[7; 16_380]].concat();
    let hello = [&b"\x16\x03\x01\x40\x00"[..], &body].concat().repeat(20);
    on_both_engines(|engine| {
        let secure = Secure::serve(engine, site.path(), &METRICS);
        for _ in 0..10 {
            let mut client = Client::new(&secure.server);
            // The connection may be closed before everything is sent.
            let _ = client.try_send(&hello);
            let (answer, _) = client.rest();
            assert!(answer.len() <= 7, "one alert: {answer:?}");
            secure.connect().get("/").expect(200);
        }
        let open = "gannet_tls_connections";
        until("none is left", || metric(&secure.server, open) == 0);
    });
}

#[test]
fn both_sides_say_goodbye() {
    let site = Folder::site();
    on_both_engines(|engine| {
        let secure = Secure::serve(engine, site.path(), &[]);
        // Closed by the server, after an answer.
        let mut client = secure.connect();
        client
            .request("GET", "/", &["connection: close"])
            .expect(200);
        client.closes();
        // Closed by the client, after a request: it is still answered, and close_notify returned.
        let mut client = secure.connect();
        client.get("/").expect(200);
        let stream = client.secure();
        std::io::Write::write_all(
            &mut stream.conn.writer(),
            head("GET", "/about", &[]).as_bytes(),
        )
        .expect("buffered");
        stream.conn.send_close_notify();
        while stream.conn.wants_write() {
            stream.conn.write_tls(&mut stream.sock).expect("sent");
        }
        assert!(client.response().expect(200).text().contains("about"));
        client.closes();
    });
}

#[test]
fn keys_are_updated_in_the_middle_of_a_body() {
    let site = Folder::site();
    let len = 3_000_000;
    site.write("big.bin", pattern(len, 7));
    on_both_engines(|engine| {
        let secure = Secure::serve(engine, site.path(), &[]);
        let mut client = secure.connect();
        client.send(head("GET", "/big.bin", &[]));
        client.head();
        assert_pattern(&client.take(100_000), 7);
        // Also requests an update of the server's key.
        client
            .secure()
            .conn
            .refresh_traffic_keys()
            .expect("TLS 1.3");
        client.send(head("GET", "/about", &[]));
        let rest = client.take(len as u64 - 100_000);
        assert_eq!(rest[..], pattern(len, 7)[100_000..]);
        assert!(client.response().expect(200).text().contains("about"));
        client.get("/").expect(200);
    });
}

/// Few records per key: it is updated in the middle of a body, unasked, as often as necessary.
#[test]
fn a_used_key_is_replaced_in_the_middle_of_a_body() {
    let site = Folder::site();
    let len = 30_000_000;
    site.write("big.bin", pattern(len, 7));
    on_both_engines(|engine| {
        let flags = [
            "--tls-key-records",
            "256",
            "--ktls",
            "off",
            METRICS[0],
            METRICS[1],
        ];
        let secure = Secure::serve(engine, site.path(), &flags);
        let mut client = secure.connect();
        for _ in 0..2 {
            let got = client.get("/big.bin").expect(200);
            assert_eq!(got.body.len(), len);
            assert_pattern(&got.body, 7);
        }
        let updates = metric(
            &secure.server,
            "gannet_tls_key_updates_total{by=\"server\"}",
        );
        // There are 3,663 records, and a send ends with the key it began with.
        assert!((11..=14).contains(&updates), "{updates}");
    });
}

/// TLS 1.2 cannot update keys: the current answer is finished, unless it is too long.
#[test]
fn where_no_key_can_be_replaced_the_connection_ends() {
    let site = Folder::site();
    let (len, huge) = (3_000_000, 20_000_000);
    site.write("big.bin", pattern(len, 7));
    site.write("huge.bin", pattern(huge, 9));
    on_both_engines(|engine| {
        let flags = ["--tls-key-records", "256"];
        let secure = Secure::serve(engine, site.path(), &flags);
        let config = secure.authority.client(Abilities::only(
            suites::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
        ));
        let mut client = secure.connect_with(&config, "localhost");
        for _ in 0..2 {
            assert_pattern(&client.get("/big.bin").expect(200).body, 7);
        }
        // Gracefully, with close_notify.
        client.closes();
        let mut client = secure.connect_with(&config, "localhost");
        client.send(head("GET", "/huge.bin", &[]));
        client.head();
        let (got, end) = client.rest();
        assert_ne!(end, End::Closed, "this must not look like an end");
        assert!(got.len() > 4_000_000 && got.len() < huge);
        assert!(got[..] == pattern(huge, 9)[..got.len()], "other bytes");
    });
}

/// The same over HTTP/2, whose peer may already have closed its half.
#[test]
fn where_no_key_can_be_replaced_http2_ends_too() {
    let site = Folder::site();
    let huge = 20_000_000;
    site.write("huge.bin", pattern(huge, 9));
    on_both_engines(|engine| {
        let secure = Secure::serve(engine, site.path(), &["--tls-key-records", "256"]);
        let config = secure.authority.client(Abilities {
            suites: vec![suites::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256],
            alpn: vec![b"h2".to_vec()],
            ..Abilities::default()
        });
        let block = h2::request_by("https", "GET", "/huge.bin", &[]);
        let asks = [h2::wide_opening(), h2::headers(1, &block)].concat();
        for closes_half in [false, true] {
            let mut client = secure.connect_with(&config, "localhost");
            std::io::Write::write_all(client.secure(), &asks).expect("sent");
            let mut got = vec![0; 1_000];
            std::io::Read::read_exact(client.secure(), &mut got).expect("it has begun");
            if closes_half {
                let socket = &client.secure().sock;
                socket.shutdown(std::net::Shutdown::Write).expect("open");
            }
            // The connection may end gracefully or not.
            let _ = std::io::Read::read_to_end(client.secure(), &mut got);
            assert!((3_000_000..huge).contains(&got.len()), "{}", got.len());
            secure.connect().get("/").expect(200);
        }
    });
}

#[test]
fn a_record_that_is_not_authentic_ends_the_connection() {
    let site = Folder::site();
    on_both_engines(|engine| {
        let secure = Secure::serve(engine, site.path(), &METRICS);
        let mut client = secure.connect();
        client.get("/").expect(200);
        let mut forged = vec![23, 3, 3, 0, 40];
        forged.extend([7; 40]);
        std::io::Write::write_all(&mut client.secure().sock, &forged).expect("sent");
        let mut chunk = [0; 100];
        let error = std::io::Read::read(client.secure(), &mut chunk).expect_err("an alert");
        assert!(error.to_string().contains("BadRecordMac"), "{error}");
        assert_eq!(metric(&secure.server, "gannet_tls_faults_total"), 1);
    });
}

#[test]
fn a_file_that_shrinks_ends_short_and_without_a_goodbye() {
    let site = Folder::site();
    let len = 40_000_000;
    let path = site.write("big.bin", pattern(len, 3));
    on_both_engines(|engine| {
        let own = Folder::new();
        let copy = own.join("big.bin");
        fs::copy(&path, &copy).expect("copied");
        let secure = Secure::serve(engine, own.path(), &[]);
        let mut client = secure.connect();
        client.send(head("GET", "/big.bin", &[]));
        client.head();
        client.take(100_000);
        let file = fs::OpenOptions::new()
            .write(true)
            .open(&copy)
            .expect("opened");
        file.set_len(1_000_000).expect("truncated");
        let (rest, end) = client.rest();
        assert_ne!(end, End::Closed, "truncation must not look like an end");
        assert!(rest.len() < len - 100_000);
        assert_eq!(rest[..], pattern(len, 3)[100_000..100_000 + rest.len()]);
    });
}

#[test]
fn a_burst_of_handshakes_does_not_keep_a_running_connection_waiting() {
    let site = Folder::site();
    on_both_engines(|engine| {
        let flags = ["--workers", "1", METRICS[0], METRICS[1]];
        let secure = Secure::serve(engine, site.path(), &flags);
        let mut running = secure.connect();
        running.get("/").expect(200);
        let address = secure.server.address();
        thread::scope(|scope| {
            let burst: Vec<_> = (0..60)
                .map(|_| {
                    let config = &secure.config;
                    scope.spawn(move || {
                        let mut client = Client::tls(address, connection(config, "localhost"));
                        client.get("/").expect(200);
                    })
                })
                .collect();
            for _ in 0..50 {
                running.get("/about").expect(200);
            }
            for client in burst {
                client.join().expect("every handshake is done in the end");
            }
        });
        let all: u64 = ["full", "resumed"]
            .map(|kind| {
                metric(
                    &secure.server,
                    &format!("gannet_tls_handshakes_total{{kind=\"{kind}\"}}"),
                )
            })
            .iter()
            .sum();
        assert_eq!(all, 61);
    });
}

#[test]
fn suites_of_tls12_and_tls13_are_offered_in_our_order() {
    let site = Folder::site();
    on_both_engines(|engine| {
        let secure = Secure::serve(engine, site.path(), &[]);
        let chosen = |suites: Vec<rustls::SupportedCipherSuite>| {
            let config = secure.authority.client(Abilities {
                suites,
                ..Abilities::default()
            });
            let mut client = secure.connect_with(&config, "localhost");
            client.get("/").expect(200);
            client
                .secure()
                .conn
                .negotiated_cipher_suite()
                .expect("agreed")
                .suite()
        };
        let aes256_first = vec![
            suites::TLS13_AES_256_GCM_SHA384,
            suites::TLS13_AES_128_GCM_SHA256,
        ];
        assert_eq!(
            chosen(aes256_first),
            rustls::CipherSuite::TLS13_AES_128_GCM_SHA256
        );
        // A client without fast AES shows that by the order of its suites.
        let chacha_first = vec![
            suites::TLS13_CHACHA20_POLY1305_SHA256,
            suites::TLS13_AES_128_GCM_SHA256,
        ];
        assert_eq!(
            chosen(chacha_first),
            rustls::CipherSuite::TLS13_CHACHA20_POLY1305_SHA256
        );
    });
}

#[test]
fn a_unix_socket_beside_tls_stays_clear() {
    let site = Folder::site();
    let folder = Folder::new();
    let authority = Authority::new();
    let file = authority.issue("site.pem", KeyKind::P256, &["localhost"]);
    on_both_engines(|engine| {
        let socket = folder.join(engine.name());
        let mut command = gannet_testkit::command();
        let unix = format!("unix:{}", socket.display());
        command.args([
            "--engine",
            engine.name(),
            "--listen",
            "127.0.0.1:0",
            "--listen",
            &unix,
        ]);
        command.arg("--tls-cert").arg(&file).arg(site.path());
        let server = gannet_testkit::Gannet::start(&mut command);
        Client::unix(&socket).get("/").expect(200);
        let config = authority.client(Abilities::default());
        let mut client = Client::tls(server.address(), connection(&config, "localhost"));
        client.get("/").expect(200);
        get(&server, "/").expect(400);
    });
}

#[test]
fn clear_text_and_https_are_served_side_by_side() {
    let site = Folder::site();
    let authority = Authority::new();
    let file = authority.issue("site.pem", KeyKind::P256, &["localhost"]);
    on_both_engines(|engine| {
        let mut command = gannet_testkit::command();
        command.args(["--engine", engine.name(), "--listen", "http://127.0.0.1:0"]);
        command.args(["--listen", "https://127.0.0.1:0"]);
        command.arg("--tls-cert").arg(&file).arg(site.path());
        let server = gannet_testkit::Gannet::start(&mut command);
        let urls = server.urls();
        let secure = urls.iter().find_map(|url| url.strip_prefix("https://"));
        let clear = urls.iter().find_map(|url| url.strip_prefix("http://"));
        let address = |url: Option<&str>| {
            let url = url.expect("printed at start").trim_end_matches('/');
            url.parse().expect("an address")
        };
        Client::connect(address(clear)).get("/").expect(200);
        let config = authority.client(Abilities::default());
        let mut client = Client::tls(address(secure), connection(&config, "localhost"));
        client.get("/").expect(200);
    });
    let refused = gannet([
        "--listen",
        "https://127.0.0.1:0",
        site.path().to_str().expect("UTF-8"),
    ]);
    assert_eq!(refused.status, Some(2), "{}", refused.err);
    assert!(
        refused.err.contains("without a certificate"),
        "{}",
        refused.err
    );
}
