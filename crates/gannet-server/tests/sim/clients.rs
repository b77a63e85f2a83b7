//! Proxies that name their clients by the PROXY protocol, and limits per client.

use gannet_io::driver::{Listener, Peer, Receipt};
use gannet_io::sim::{Client, End};
use gannet_server::config::ClientRules;
use gannet_server::driven::DrivenClients;
use gannet_server::{Network, Rate};

use crate::run::LIMITS;
use crate::server::{LARGE, Server, check_about, get};

const V1: &[u8] = b"PROXY TCP4 203.0.113.7 198.51.100.1 56324 443\r\n";
const V2: &[u8] =
    b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0f\xcb\0\x71\x07\xc6\x33\x64\x01\xdc\x04\x01\xbb\
    \x04\0\0";

/// Rules that limit the bytes that a client is sent in a second; 0: no limit.
pub(crate) fn at_rate(bytes_per_second: u64) -> DrivenClients {
    let rules = ClientRules {
        bytes_per_second,
        ..ClientRules::default()
    };
    DrivenClients {
        rules,
        ..DrivenClients::default()
    }
}

/// A server at a proxied address that trusts proxies in 192.0.2.0/24.
fn server() -> Server {
    let rules = ClientRules {
        trust: Network::parse("192.0.2.0/24").expect("a network"),
        ..ClientRules::default()
    };
    let clients = DrivenClients {
        rules,
        is_proxied: true,
        ..DrivenClients::default()
    };
    Server::with_clients(LIMITS, clients)
}

fn connect(server: &Server, address: &str) -> Client {
    let peer = Peer::Ip(address.parse().expect("an address"));
    let client = server.disk.connect_from(Listener(0), peer);
    client.expect("it listens")
}

/// Waits for an answer with this content.
fn is_answered(server: &mut Server, client: &Client, content: &[u8]) {
    let mut got = Vec::new();
    server.until("an answer", || {
        got.extend(client.read());
        got.ends_with(content)
    });
    assert!(got.starts_with(b"HTTP/1.1 200 "), "{}", got.escape_ascii());
}

/// A header may arrive in two parts, cut anywhere, with the request behind it cut anywhere, too.
#[test]
fn headers_may_be_cut_anywhere() {
    let mut server = server();
    for header in [V1, V2] {
        let bytes = [header, &get("small")].concat();
        for cut in 1..bytes.len() {
            let client = connect(&server, "192.0.2.9:4000");
            client.write(&bytes[..cut]);
            server.until("it is received", || client.unreceived() == 0);
            client.write(&bytes[cut..]);
            is_answered(&mut server, &client, b"small");
            client.shutdown_write();
            server.until("its end", || client.is_closed_by_server());
        }
        let client = connect(&server, "192.0.2.9:4000");
        for byte in &bytes {
            client.write(&[*byte]);
            server.until("it is received", || client.unreceived() == 0);
        }
        is_answered(&mut server, &client, b"small");
        // A second header on the connection is no request.
        client.write(header);
        server.until("its end", || client.is_closed_by_server());
    }
    let counts = server.driven.counters().clients;
    let connections = V1.len() + V2.len() + 2 * get("small").len();
    assert_eq!(counts.introduced, connections as u64);
    assert_eq!((counts.untrusted, counts.malformed_headers), (0, 0));
}

/// Large answers and HTTP/2 come behind a header as without one.
#[test]
fn a_connection_behind_a_header_is_like_any_other() {
    let mut server = server();
    let client = connect(&server, "192.0.2.1:1");
    client.write(&[V1, &get("large")].concat());
    is_answered(&mut server, &client, &[b'L'; 100]);
    let client = connect(&server, "192.0.2.1:2");
    client.write(&[V2, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0"].concat());
    let mut got = Vec::new();
    server.until("settings", || {
        got.extend(client.read());
        got.len() >= 9
    });
    assert_eq!(got[3], 4, "a SETTINGS frame");
}

#[test]
fn only_trusted_proxies_may_connect() {
    let mut server = server();
    let stranger = connect(&server, "198.51.100.7:4000");
    stranger.write(&[V1, &get("small")].concat());
    server.until("its end", || stranger.is_closed_by_server());
    assert_eq!(stranger.read(), b"");
    let proxy = connect(&server, "192.0.2.200:4000");
    proxy.write(&[V1, &get("small")].concat());
    is_answered(&mut server, &proxy, b"small");
    let counts = server.driven.counters().clients;
    assert_eq!((counts.untrusted, counts.introduced), (1, 1));
}

/// What is no header ends the connection without an answer, as soon as that is clear.
#[test]
fn proxies_begin_with_a_header() {
    let mut server = server();
    let endless = [b"PROXY UNKNOWN ".as_slice(), &[b'x'; 200]].concat();
    let oversized = [&V2[..14], &[0xff; 200]].concat();
    let attempts: [&[u8]; 5] = [
        &get("small"),
        b"PROXY TCP4 203.0.113.7 198.51.100.1 56324 443\n",
        &endless,
        &oversized,
        b"\x16\x03\x01",
    ];
    for bytes in attempts {
        let client = connect(&server, "192.0.2.1:4000");
        client.write(bytes);
        server.until("its end", || client.is_closed_by_server());
        assert_eq!(client.read(), b"", "{}", bytes.escape_ascii());
    }
    let counts = server.driven.counters().clients;
    assert_eq!((counts.malformed_headers, counts.introduced), (5, 0));
}

/// Header and first request have the time of one head together; a silent or slow proxy is not waited
/// for any longer, and leaves nothing behind.
#[test]
fn a_header_must_come_in_time() {
    let mut server = server();
    for bytes in [&b""[..], &V1[..20], V1, &[V1, b"GET /"].concat()] {
        let client = connect(&server, "192.0.2.1:4000");
        client.write(bytes);
        let took = server.until("its end", || client.is_closed_by_server());
        if bytes.len() <= V1.len() {
            check_about(took, LIMITS.head_timeout_ms);
        }
    }
    assert_eq!(server.driven.counters().timeouts, 4);
    assert_eq!(server.driven.counters().connections_now, 0);
    // The end of the stream in the middle of a header.
    let client = connect(&server, "192.0.2.1:4000");
    client.write(&V2[..13]);
    client.shutdown_write();
    server.until("its end", || client.is_closed_by_server());
    // A stop does not wait for headers.
    let client = connect(&server, "192.0.2.1:4000");
    server.pass(100);
    server.driven.stop();
    server.until_it("the end", |driven| driven.is_over());
    assert!(client.is_closed_by_server());
}

/// A server with limits, at an address for anyone.
fn limited(rules: ClientRules) -> Server {
    let clients = DrivenClients {
        rules,
        ..DrivenClients::default()
    };
    Server::with_clients(LIMITS, clients)
}

/// Waits for an answer, and returns its status and its retry-after.
fn answer(server: &mut Server, client: &Client, request: &[u8]) -> (u16, Option<u64>) {
    client.write(request);
    let mut got = Vec::new();
    server.until("an answer", || {
        got.extend(client.read());
        got.windows(4).any(|bytes| bytes == b"\r\n\r\n")
    });
    let text = String::from_utf8_lossy(&got).into_owned();
    let field = text.split("Retry-After: ").nth(1);
    let seconds = field.and_then(|rest| rest.split("\r\n").next()?.parse().ok());
    (text[9..12].parse().expect("a status"), seconds)
}

/// A flood by each of many addresses: each gets what it may, and an honest client is served
/// throughout. The connections stay open, and go on once time has passed.
#[test]
fn each_client_has_its_own_requests() {
    let mut server = limited(ClientRules {
        requests: Rate::new(2, 1_000_000_000, Some(3)),
        ..ClientRules::default()
    });
    server.driven.turn(Some(server.disk.now())).expect("a turn");
    let flood: Vec<_> = (0..100)
        .map(|number| {
            connect(
                &server,
                &format!("198.51.{}.{}:9", number / 10, number % 10),
            )
        })
        .collect();
    for client in &flood {
        let answers: Vec<_> = (0..5)
            .map(|_| answer(&mut server, client, &get("small")))
            .collect();
        let statuses: Vec<_> = answers.iter().map(|(status, _)| *status).collect();
        assert_eq!(statuses, [200, 200, 200, 429, 429]);
        assert_eq!(answers[4].1, Some(1));
    }
    let honest = connect(&server, "203.0.113.1:9");
    assert_eq!(answer(&mut server, &honest, &get("small")).0, 200);
    assert_eq!(server.driven.counters().clients.limited_requests, 200);
    server.pass(1_100);
    assert_eq!(answer(&mut server, &flood[99], &get("small")).0, 200);
    // Other connections and the other addresses of a network are the same client.
    let statuses = |server: &mut Server, address: &str| {
        let client = connect(server, address);
        let answers = (0..2).map(|_| answer(server, &client, &get("small")).0);
        answers.collect::<Vec<_>>()
    };
    assert_eq!(statuses(&mut server, "[2001:db8::1]:9"), [200, 200]);
    assert_eq!(statuses(&mut server, "[2001:db8::2]:9"), [200, 429]);
    assert_eq!(statuses(&mut server, "[2001:db8:0:1::]:9"), [200, 200]);
}

/// Connections are counted until they end, however that is.
#[test]
fn each_client_has_its_own_connections() {
    let mut server = limited(ClientRules {
        connections: 2,
        ..ClientRules::default()
    });
    for round in 0..20 {
        let address = format!("198.51.100.1:{round}");
        let clients = [(); 3].map(|()| connect(&server, &address));
        server.until("the third ends", || clients[2].is_closed_by_server());
        assert!(clients[2].read().is_empty(), "nothing is said to it");
        assert_eq!(answer(&mut server, &clients[0], &get("small")).0, 200);
        assert_eq!(answer(&mut server, &clients[1], &get("small")).0, 200);
        let other = connect(&server, "203.0.113.1:9");
        assert_eq!(answer(&mut server, &other, &get("small")).0, 200);
        match round % 3 {
            0 => clients.iter().for_each(Client::reset),
            1 => clients.iter().for_each(Client::shutdown_write),
            // Their deadline passes.
            _ => server.pass(LIMITS.idle_timeout_ms),
        }
        other.reset();
        server.until_it("their end", |driven| driven.counters().connections_now == 0);
    }
    assert_eq!(server.driven.counters().clients.limited_connections, 20);
}

/// Behind a proxy at a proxied address, connections are those of the client that is named.
#[test]
fn connections_through_proxies_count_for_their_clients() {
    let rules = ClientRules {
        trust: Network::parse("192.0.2.0/24").expect("a network"),
        deny: Network::parse("198.51.100.0/24").expect("a network"),
        connections: 1,
        ..ClientRules::default()
    };
    let clients = DrivenClients {
        rules,
        is_proxied: true,
        ..DrivenClients::default()
    };
    let mut server = Server::with_clients(LIMITS, clients);
    let open = |server: &mut Server, source: &str| {
        let client = connect(server, "192.0.2.1:1");
        client.write(format!("PROXY TCP4 {source} 192.0.2.1 1 2\r\n").as_bytes());
        client.write(&get("small"));
        let mut got = Vec::new();
        server.until("an answer or the end", || {
            got.extend(client.read());
            client.is_closed_by_server() || got.ends_with(b"small")
        });
        (client, !got.is_empty())
    };
    let (_first, is_served) = open(&mut server, "203.0.113.1");
    assert!(is_served);
    assert!(!open(&mut server, "203.0.113.1").1, "one connection");
    assert!(open(&mut server, "203.0.113.2").1, "another client");
    assert!(!open(&mut server, "198.51.100.9").1, "not allowed");
    // The proxy itself has no limits.
    let own: Vec<_> = (0..5).map(|_| open(&mut server, "192.0.2.7")).collect();
    assert!(own.iter().all(|(_, is_served)| *is_served));
    let counts = server.driven.counters().clients;
    assert_eq!(
        (counts.limited_connections, counts.denied_connections),
        (1, 1)
    );
}

/// What was sent counts; a client that is far ahead gets no further answers until it has paid.
#[test]
fn each_client_has_its_own_bytes() {
    let mut server = limited(ClientRules {
        bytes_per_second: 10_000,
        ..ClientRules::default()
    });
    let client = connect(&server, "198.51.100.1:9");
    client.write(&get("large"));
    let mut got = 0;
    server.until("all of it", || {
        got += client.read().len();
        got >= LARGE
    });
    assert_eq!(client.paced(), Some(10_000));
    // 200 kB are 20 seconds; 10 of them are free.
    let (status, again) = answer(&mut server, &client, &get("small"));
    assert_eq!(status, 429);
    assert!((9..=11).contains(&again.expect("a time")), "{again:?}");
    let other = connect(&server, "198.51.100.2:9");
    assert_eq!(answer(&mut server, &other, &get("small")).0, 200);
    server.pass(11_000);
    let client = connect(&server, "198.51.100.1:9");
    assert_eq!(answer(&mut server, &client, &get("small")).0, 200);
    assert_eq!(server.driven.counters().clients.limited_bytes, 1);
}

/// A client in the same namespace is sent pages of the file, which it reads as they are by then; a proxy may pass
/// them on unread, and gets copies.
#[test]
fn a_proxy_on_the_same_machine_gets_copies() {
    const LEN: usize = 6 << 20;
    for (address, is_proxy) in [("192.0.2.1:9", true), ("203.0.113.1:9", false)] {
        let mut server = limited(ClientRules {
            trust: Network::parse("192.0.2.0/24").expect("a network"),
            ..ClientRules::default()
        });
        server.disk.set_receipt(Receipt::Read);
        server.disk.put_file("huge", vec![b'L'; LEN]);
        server.disk.age_files(100_000);
        let client = connect(&server, address);
        client.write(&get("huge"));
        server.until("the queue is full", || client.readable() >= 64 << 10);
        server.disk.overwrite_file("huge", vec![1; LEN]);
        let mut got = Vec::new();
        server.until("it ends", || {
            got.extend(client.read_at_most(100_000));
            client.end() != End::Open
        });
        assert_eq!(client.end(), End::Reset);
        assert_eq!(got.contains(&1), !is_proxy);
    }
}
