//! How HTTP/3 connections begin, and stay with their worker.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use gannet_testkit::client::{metric, metrics};
use gannet_testkit::content::pattern;
use gannet_testkit::engine::on_both_engines;
use gannet_testkit::h3::{control, headers, request};
use gannet_testkit::process::until;
use gannet_testkit::quic::Quic;
use gannet_testkit::seccomp::without_option;
use gannet_testkit::tls::{Abilities, Authority, KeyKind, Secure};
use gannet_testkit::{DEADLINE, Folder, Gannet, Signal, command};
use rustls::CertificateCompressionAlgorithm;
use rustls::compress::{CertDecompressor, DecompressionFailed};

const WORKERS: usize = 4;
const FLAGS: [&str; 4] = ["--workers", "4", "--metrics", "127.0.0.1:0"];
const LONG: usize = 2 << 20;

fn connect(secure: &Secure) -> Quic {
    Quic::begin(secure.server.address(), &secure.authority)
}

fn abilities(early_data: bool) -> Abilities {
    Abilities {
        alpn: vec![b"h3".to_vec()],
        early_data,
        ..Abilities::default()
    }
}

fn site() -> Folder {
    let folder = Folder::site();
    folder.write("long.bin", pattern(LONG, 2));
    folder
}

/// Many connections at once, all of which change their port in the middle of a response.
#[test]
fn connections_stay_with_their_worker() {
    let folder = site();
    on_both_engines(|engine| {
        let secure = Secure::serve(engine, folder.path(), &FLAGS);
        let mut all: Vec<_> = (0..WORKERS).map(|_| connect(&secure)).collect();
        let begin = |quic: &mut Quic| {
            let id = quic.ask(&request("GET", "/long.bin", &[]));
            quic.until("a part of it", |quic| !quic.received(id).bytes.is_empty());
            quic.rebind();
            id
        };
        let ids: Vec<_> = all.iter_mut().map(begin).collect();
        for (quic, id) in all.iter_mut().zip(ids) {
            assert!(quic.answer(id).body == pattern(LONG, 2));
            assert_eq!(quic.get("/").status, 200);
        }
        let metric = |name| metric(&secure.server, name);
        let requests = metric("gannet_h3_requests_total");
        assert_eq!(requests, 2 * WORKERS as u64);
        let received = metric("gannet_quic_datagrams_received_total");
        let sent = metric("gannet_quic_datagrams_sent_total");
        assert!(received > requests && sent > received, "{received} {sent}");
    });
}

/// If the kernel cannot deliver datagrams by connection ID, workers forward those of others.
#[test]
fn without_steering_datagrams_are_forwarded() {
    const SOL_SOCKET: u32 = 1;
    const SO_ATTACH_REUSEPORT_CBPF: u32 = 51;
    let folder = site();
    let authority = Authority::new();
    let file = authority.issue("site.pem", KeyKind::P256, &["localhost"]);
    on_both_engines(|engine| {
        let Some(mut command) = without_option(SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, 1) else {
            return;
        };
        command
            .args(["--port", "0", "--engine", engine.name()])
            .args(FLAGS);
        command.arg("--tls-cert").arg(&file).arg(folder.path());
        let server = Gannet::start(&mut command);
        let mut all: Vec<_> = (0..4 * WORKERS)
            .map(|_| Quic::begin(server.address(), &authority))
            .collect();
        for quic in &mut all {
            // The kernel spreads datagrams by their source port, which has changed.
            quic.rebind();
            assert!(quic.get("/long.bin").body == pattern(LONG, 2));
        }
        let forwarded = metric(&server, "gannet_quic_datagrams_forwarded_total");
        assert!(forwarded > 0, "no datagram was forwarded");
    });
}

/// Sends a datagram of an unknown connection, whose ID names `worker` of a process that took nobody's
/// place, and receives the stateless reset that answers it; returns the reset's token.
fn reset_token(secure: &Secure, worker: u8) -> [u8; 16] {
    // No other datagram is answered at this port.
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    socket.set_read_timeout(Some(DEADLINE)).expect("set");
    let mut datagram = [worker; 100];
    (datagram[0], datagram[2]) = (0x40, 0);
    let sent = socket.send_to(&datagram, secure.server.address());
    assert_eq!(sent.expect("sent"), datagram.len());
    let mut reply = [0; 1500];
    let len = socket.recv(&mut reply).expect("a reset in time");
    assert!((21..datagram.len()).contains(&len), "{len}");
    assert_eq!(reply[0] & 0xc0, 0x40, "it looks like any other packet");
    reply[len - 16..len].try_into().expect("16 bytes")
}

/// A datagram of an unknown connection is answered with a shorter stateless reset (RFC 9000 section
/// 10.3), whichever worker its ID names. If it names none, the worker that receives it answers.
#[test]
fn unknown_connections_are_reset() {
    let folder = site();
    on_both_engines(|engine| {
        let secure = Secure::serve(engine, folder.path(), &FLAGS);
        let tokens: BTreeSet<_> = (0..WORKERS as u8)
            .map(|worker| reset_token(&secure, worker))
            .collect();
        assert_eq!(tokens.len(), WORKERS, "each ID has its own token");
        assert_eq!(connect(&secure).get("/").status, 200);
        // Each worker limits the rate of its resets, so this ID needs a server of its own.
        let secure = Secure::serve(engine, folder.path(), &FLAGS);
        assert!(!tokens.contains(&reset_token(&secure, 0x77)));
    });
}

/// With many handshakes in progress, clients must first validate their address; every worker
/// accepts the token.
#[test]
fn many_handshakes_make_others_prove_their_address() {
    let folder = site();
    on_both_engines(|engine| {
        let flags = ["--workers", "1", "--metrics", "127.0.0.1:0"];
        let secure = Secure::serve(engine, folder.path(), &flags);
        let tls = secure.authority.client(abilities(false));
        let address = secure.server.address();
        let retries = || metric(&secure.server, "gannet_quic_retries_total");
        let mut silent = Vec::new();
        until("a client is asked", || {
            // They never read, so their handshakes do not complete.
            let mut quic = Quic::start(address, &tls, "localhost");
            quic.flush();
            silent.push(quic);
            retries() > 0
        });
        assert!(silent.len() > 128, "{}", silent.len());
        let before = retries();
        assert_eq!(connect(&secure).get("/").status, 200);
        assert!(retries() > before);
    });
}

/// Unvalidated handshakes take an eighth of the places for connections at most: the others are free for
/// clients that validate their address.
#[test]
fn handshakes_of_nobody_leave_places_to_others() {
    let folder = site();
    on_both_engines(|engine| {
        let flags = [
            "--workers",
            "1",
            "--metrics",
            "127.0.0.1:0",
            "--max-connections",
            "40",
        ];
        let secure = Secure::serve(engine, folder.path(), &flags);
        let tls = secure.authority.client(abilities(false));
        let address = secure.server.address();
        let mut silent: Vec<_> = (0..80)
            .map(|_| Quic::start(address, &tls, "localhost"))
            .collect();
        silent.iter_mut().for_each(Quic::flush);
        until("the others must prove their address", || {
            metric(&secure.server, "gannet_quic_retries_total") >= 75
        });
        assert_eq!(metric(&secure.server, "gannet_connections"), 5);
        assert_eq!(connect(&secure).get("/").status, 200);
        secure.connect().get("/").expect(200);
        assert_eq!(metric(&secure.server, "gannet_connections_shed_total"), 0);
    });
}

/// A datagram that another machine has caught and sent from its own address to another of the server's
/// takes the connection there, where nobody proves to be the client. It returns to the address and to
/// the socket that it had.
#[test]
fn a_connection_that_was_led_away_returns() {
    let folder = site();
    on_both_engines(|engine| {
        let authority = Authority::new();
        let file = authority.issue("site.pem", KeyKind::P256, &["localhost"]);
        let server = Gannet::start(
            command()
                .args(["--engine", engine.name(), "--workers", "1"])
                .args(["-l", "127.0.0.1:0", "-l", "127.0.0.2:0"])
                .arg("--tls-cert")
                .arg(file)
                .arg(folder.path()),
        );
        let lines = server.start_lines().iter();
        let mut urls = lines.filter_map(|line| line.trim().strip_prefix("https://127.0.0.2:"));
        let port = urls.next().and_then(|url| url.strip_suffix('/'));
        let port = port.expect("its URL").parse().expect("a port");
        let other = SocketAddr::from(([127, 0, 0, 2], port));
        let mut quic = Quic::begin(server.address(), &authority);
        assert_eq!(quic.get("/").status, 200);
        let catcher = quic.caught(other);
        // Challenges, until the server gives up.
        let mut buffer = [0; 2_000];
        let mut wait = DEADLINE;
        loop {
            catcher.set_read_timeout(Some(wait)).expect("set");
            match catcher.recv(&mut buffer) {
                Ok(_) => wait = Duration::from_secs(3),
                Err(_) => break,
            }
        }
        assert!(wait < DEADLINE, "it was led away");
        assert_eq!(quic.get("/about").status, 200);
    });
}

/// A returning client may send requests as early data. Those that are not safe to replay get 425,
/// as over TLS.
#[test]
fn early_requests_are_answered_if_they_are_safe() {
    let folder = site();
    on_both_engines(|engine| {
        let one = ["--workers", "1", "--metrics", "127.0.0.1:0"];
        let flags = [&one[..], &["--early-data"]].concat();
        let secure = Secure::serve(engine, folder.path(), &flags);
        let tls = secure.authority.client(abilities(true));
        let start = || Quic::start(secure.server.address(), &tls, "localhost");
        let mut first = start();
        assert!(!first.sends_early(), "without a ticket");
        first.shake();
        assert_eq!(first.get("/").status, 200);
        let count = || metric(&secure.server, "gannet_tls_early_data_total");
        assert_eq!(count(), 0);
        let mut starts = 0;
        until("a request is answered before the handshake is over", || {
            let mut quic = start();
            assert!(quic.sends_early());
            let get = quic.ask(&request("GET", "/", &[]));
            let post = quic.ask(&request("POST", "/", &[]));
            assert_eq!(quic.answer(get).status, 200);
            let status = quic.answer(post).status;
            assert!(quic.was_taken_early());
            quic.shake();
            let late = quic.ask(&request("POST", "/", &[]));
            assert_eq!(quic.answer(late).status, 405, "the handshake is over");
            starts += 1;
            assert_eq!(count(), starts);
            // It was over already if the server had no time in between.
            assert!(status == 425 || status == 405, "{status}");
            status == 425
        });
    });
    // Without the flag a client gets no ticket that permits early data.
    on_both_engines(|engine| {
        let secure = Secure::serve(engine, folder.path(), &[]);
        let tls = secure.authority.client(abilities(true));
        let start = || Quic::start(secure.server.address(), &tls, "localhost");
        let mut first = start();
        first.shake();
        assert_eq!(first.get("/").status, 200);
        assert!(!start().sends_early());
    });
}

/// The first handshake after a reload has the new certificate, on every worker.
#[test]
fn a_new_certificate_holds_for_the_next_handshake() {
    let folder = site();
    on_both_engines(|engine| {
        let mut secure = Secure::serve(engine, folder.path(), &FLAGS);
        let tls = secure.authority.client(abilities(false));
        let address = secure.server.address();
        for name in ["first.example", "second.example"] {
            let next = secure.authority.issued(KeyKind::P256, &[name]);
            secure.authority.replace("site.pem", &next.pem());
            secure.server.signal(Signal::HUP);
            let line = secure.server.next_line();
            assert_eq!(line.as_deref(), Some("certificates reloaded"));
            // Their ports spread them over all workers.
            let mut all: Vec<_> = (0..8 * WORKERS)
                .map(|_| Quic::start(address, &tls, name))
                .collect();
            for quic in &mut all {
                // The client compares names and certificates.
                quic.shake();
                let fields = [
                    (":method", "GET"),
                    (":scheme", "https"),
                    (":authority", name),
                    (":path", "/"),
                ];
                let id = quic.ask(&headers(&fields));
                assert_eq!(quic.answer(id).status, 200);
            }
        }
    });
}

/// Handshakes are counted, also those that fail on either side.
#[test]
fn handshakes_are_counted() {
    let folder = site();
    on_both_engines(|engine| {
        let secure = Secure::serve(engine, folder.path(), &FLAGS);
        let metric = |name: &str| metric(&secure.server, name);
        assert_eq!(connect(&secure).get("/").status, 200);
        assert_eq!(metric("gannet_tls_handshakes_total{kind=\"quic\"}"), 1);
        // The certificate is for another name.
        let tls = secure.authority.client(abilities(false));
        let mut quic = Quic::start(secure.server.address(), &tls, "other.example");
        quic.shake();
        let has_failed = |reason| {
            let all = metrics(&secure.server);
            let expect = format!("handshakes_failed_total{{reason=\"{reason}\"}} 1\n");
            all.text().contains(&expect)
        };
        until("the failure is counted", || has_failed("bad_certificate"));
        assert_eq!(metric("gannet_tls_handshakes_total{kind=\"quic\"}"), 1);
        // The server does not speak the offered protocol.
        let tls = secure.authority.client(Abilities {
            alpn: vec![b"h4".to_vec()],
            ..Abilities::default()
        });
        let mut quic = Quic::start(secure.server.address(), &tls, "localhost");
        quic.shake();
        until("the failure is counted", || {
            has_failed("no_application_protocol")
        });
    });
}

/// After a migration the log has the client's new address, once it is validated.
#[test]
fn the_log_follows_a_client() {
    let folder = site();
    on_both_engines(|engine| {
        let log = folder.join(format!("moves-{}", engine.name()));
        let log_name = log.to_str().expect("UTF-8");
        let flags = ["--log", "json", "--log-file", log_name];
        let secure = Secure::serve(engine, folder.path(), &flags);
        let mut quic = connect(&secure);
        let first = quic.address();
        assert_eq!(quic.get("/").status, 200);
        quic.rebind();
        // Longer than what is sent to an address that is not validated.
        assert!(quic.get("/long.bin").body == pattern(LONG, 2));
        let second = quic.address();
        assert_eq!(quic.get("/about").status, 200);
        let line = |target: &str, peer| {
            format!("\"peer\":\"{peer}\",\"method\":\"GET\",\"target\":\"{target}\"")
        };
        until("all lines", || {
            let text = fs::read_to_string(&log).unwrap_or_default();
            text.contains(&line("/", first)) && text.contains(&line("/about", second))
        });
    });
}

/// Each name has its own certificate and site, and the log has the version and the host.
#[test]
fn hosts_have_their_certificates_and_sites() {
    let folder = Folder::new();
    for host in ["a", "b"] {
        folder.write(format!("{host}/index.html"), format!("this is {host}"));
    }
    on_both_engines(|engine| {
        let log = folder.join(format!("log-{}", engine.name()));
        let log_name = log.to_str().expect("UTF-8");
        let sites = ["a", "b"].map(|host| {
            let path = folder.join(host);
            format!("{host}.example={}", path.to_str().expect("UTF-8"))
        });
        let authority = Authority::new();
        let files = ["a", "b"].map(|host| {
            let name = format!("{host}.example");
            let file = authority.issue(&format!("{host}.pem"), KeyKind::P256, &[&name]);
            file.to_str().expect("UTF-8").to_owned()
        });
        let flags = [
            &["--tls-cert", &files[0], "--tls-cert", &files[1]][..],
            &["--site", &sites[0], "--site", &sites[1]],
            &["--log", "vcombined", "--log-file", log_name],
        ];
        let server = engine.serve(folder.path(), &flags.concat());
        let tls = authority.client(abilities(false));
        for host in ["a", "b"] {
            let name = format!("{host}.example");
            // The client verifies the name in the certificate.
            let mut quic = Quic::start(server.address(), &tls, &name);
            quic.shake();
            let fields = [
                (":method", "GET"),
                (":scheme", "https"),
                (":authority", name.as_str()),
                (":path", "/"),
            ];
            let id = quic.ask(&headers(&fields));
            assert_eq!(quic.answer(id).body, format!("this is {host}").as_bytes());
            let expect = format!("{name}:443 127.0.0.1");
            until("a line in the log", || {
                let text = fs::read_to_string(&log).unwrap_or_default();
                let mut lines = text.lines();
                lines.any(|line| line.contains(&expect) && line.contains("\"GET / HTTP/3.0\" 200"))
            });
        }
    });
}

/// Reads certificates compressed by brotli, and counts them.
#[derive(Debug, Default)]
struct Decoder(AtomicUsize);

impl CertDecompressor for Decoder {
    fn decompress(&self, input: &[u8], output: &mut [u8]) -> Result<(), DecompressionFailed> {
        self.0.fetch_add(1, Ordering::Relaxed);
        let mut decoder = brotli::Decompressor::new(input, 4_096);
        decoder.read_exact(output).map_err(|_| DecompressionFailed)
    }

    fn algorithm(&self) -> CertificateCompressionAlgorithm {
        CertificateCompressionAlgorithm::Brotli
    }
}

#[test]
fn certificates_are_compressed() {
    let folder = Folder::site();
    on_both_engines(|engine| {
        let secure = Secure::serve(engine, folder.path(), &[]);
        let decoder: &Decoder = Box::leak(Box::default());
        let mut config = (*secure.authority.client(abilities(false))).clone();
        config.cert_decompressors = vec![decoder];
        let mut quic = Quic::start(secure.server.address(), &config.into(), "localhost");
        quic.shake();
        quic.open_uni(&control(&[]));
        assert_eq!(quic.get("/").status, 200);
        assert_eq!(decoder.0.load(Ordering::Relaxed), 1);
    });
}

/// Nobody has a connection at a first packet, whose address may be forged: so it is said.
#[test]
fn who_is_denied_over_quic_has_no_answer_and_words_of_its_own() {
    let folder = Folder::site();
    on_both_engines(|engine| {
        let flags = [&FLAGS[..], &["--deny", "loopback"]].concat();
        let mut secure = Secure::serve(engine, folder.path(), &flags);
        let config = secure.authority.client(abilities(false));
        let mut quic = Quic::start(secure.server.address(), &config, "localhost");
        quic.flush();
        let told = [(); 2].map(|()| secure.server.next_error_line().expect("it says so"));
        let expect = [
            "gannet: 127.0.0.1 is not allowed to connect: its QUIC packet, whose address may be \
             forged, was not answered",
            "help: --allow and --deny say who may connect",
        ];
        assert_eq!(told, expect);
        let denied = metric(&secure.server, "gannet_clients_denied_connections_total");
        assert!(denied > 0);
    });
}
