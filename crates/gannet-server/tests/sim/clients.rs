//! Proxies that name their clients: the PROXY protocol in front of requests.

use gannet_io::driver::{Listener, Peer};
use gannet_io::sim::Client;
use gannet_server::Network;
use gannet_server::config::ClientRules;
use gannet_server::driven::DrivenClients;

use crate::run::LIMITS;
use crate::server::{Server, check_about, get};

const V1: &[u8] = b"PROXY TCP4 203.0.113.7 198.51.100.1 56324 443\r\n";
const V2: &[u8] =
    b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0f\xcb\0\x71\x07\xc6\x33\x64\x01\xdc\x04\x01\xbb\
    \x04\0\0";

/// A server at a proxied address that trusts proxies in 192.0.2.0/24.
fn server() -> Server {
    let rules = ClientRules {
        trust: Network::parse("192.0.2.0/24").expect("a network"),
        ..ClientRules::default()
    };
    let clients = DrivenClients {
        rules,
        is_proxied: true,
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
