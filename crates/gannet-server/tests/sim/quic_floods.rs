//! A flood for each kind of memory and work that an HTTP/3 client can cause: it is bounded, other
//! clients are served meanwhile, and all memory is freed afterwards. The memory of each connection
//! is compared with its bounds after every turn: see [`check_holdings`](crate::run). The library's
//! own memory is bounded by its windows and queues; these tests show that they hold.

use std::collections::BTreeMap;
use std::sync::Arc;

use gannet_io::sim::Faults;
use gannet_server::config::Limits;
use gannet_server::ledger::{Account, AccountBound, Holding};
use gannet_testkit::h3::{self, EXCESSIVE_LOAD, HEADERS, REQUEST_CANCELLED, frame, varint};
use quinn_proto::{ConnectionError, Dir};
use rustls::ClientConfig;

use crate::forged::{
    Forger, ack, crypto, new_connection_id, path_challenge, retire_connection_id, stream,
};
use crate::link::{Link, Opening, server_address};
use crate::quic_deadlines::{answer, connected, until};
use crate::run::LIMITS;
use crate::server::Server;

const KIB: u64 = 1 << 10;

/// Connections of a flood.
const FLOOD: u16 = 20;

/// Error codes of QUIC (RFC 9000 section 20.1).
const INTERNAL_ERROR: u64 = 0x1;
const FLOW_CONTROL_ERROR: u64 = 0x3;
const STREAM_LIMIT_ERROR: u64 = 0x4;
const PROTOCOL_VIOLATION: u64 = 0xa;
const CRYPTO_BUFFER_EXCEEDED: u64 = 0xd;

/// The number of a client that takes no part in a flood.
const OTHER: u16 = 50_000;

pub(crate) fn server() -> (Server, Arc<ClientConfig>) {
    let faults = Faults {
        datagram_latency_ns: 1_000_000,
        ..Faults::none()
    };
    Server::with_datagrams(faults, LIMITS)
}

fn holding(server: &Server, account: Account) -> Holding {
    let holdings = server.driven.holdings();
    let found = holdings.into_iter().find(|it| it.account == account);
    found.expect("every account is there")
}

/// Another client connects, requests a cached file, and receives it soon.
pub(crate) fn others_are_served(server: &mut Server, config: &Arc<ClientConfig>, number: u16) {
    let start = server.disk.now().0;
    let mut other = connected(server, config, &Opening::new(OTHER + number));
    let id = other.get("/small");
    assert_eq!(answer(server, &mut other, id).body, b"small");
    other.close();
    let took = (server.disk.now().0 - start) / 1_000_000;
    assert!(took <= 100, "{took} ms");
}

/// Checks that `account` has held at least `least` bytes for one connection, and nothing once the
/// clients have gone.
pub(crate) fn check_given_back(server: &mut Server, account: Account, least: u64) {
    let full = holding(server, account);
    let (AccountBound::Connection(most) | AccountBound::Worker(most)) = full.bound;
    assert!((least..=most).contains(&full.peak), "{full:?}");
    // Longer than any timeout.
    server.pass(LIMITS.idle_timeout_ms + LIMITS.head_timeout_ms + 2 * LIMITS.progress_timeout_ms);
    assert_eq!(holding(server, account).held, 0, "{full:?}");
    assert_eq!(server.driven.counters().connections_now, 0);
}

/// Checks that no address gets more than three times the bytes received from it (RFC 9000 section
/// 8).
pub(crate) fn check_amplification(server: &Server) {
    for (address, exchanged) in server.disk.exchanged() {
        let most = 3 * exchanged.received;
        assert!(exchanged.sent <= most, "{address}: {exchanged:?}");
    }
}

/// The HTTP/3 error code with which a connection has ended.
fn code(link: &Link) -> u64 {
    match &link.core.lost {
        Some(ConnectionError::ApplicationClosed(close)) => close.error_code.into_inner(),
        other => panic!("ended in another way: {other:?}"),
    }
}

/// Handshakes begun from addresses that may be spoofed: beyond a limit, clients must validate their
/// address, for which no state is kept; no address gets more than three times what it has sent; and
/// a real client can connect.
#[test]
pub(crate) fn handshakes_that_do_not_go_on_have_a_bound() {
    const HANDSHAKES_MAX: u64 = 128;
    let (mut server, config) = server();
    for number in 0..1_000 {
        // It never reads.
        drop(Link::connect(&server.disk, &config, &Opening::new(number)));
    }
    server.pass(20);
    let counters = server.driven.counters();
    assert_eq!(counters.connections_now, HANDSHAKES_MAX);
    assert_eq!(counters.quic.retries, 1_000 - HANDSHAKES_MAX);
    others_are_served(&mut server, &config, 0);
    assert!(server.driven.counters().quic.retries > 1_000 - HANDSHAKES_MAX);
    server.pass(1_000);
    check_amplification(&server);
    check_given_back(&mut server, Account::Streams, 0);
    check_amplification(&server);
    assert_eq!(server.driven.counters().timeouts, HANDSHAKES_MAX);
}

/// Many datagrams for deferred handshakes: each handshake begins once, and others are served
/// meanwhile.
#[test]
pub(crate) fn what_comes_before_a_handshake_is_accepted_delays_nobody() {
    let (mut server, config) = server();
    let links: Vec<_> = (0..100)
        .map(|number| Link::connect(&server.disk, &config, &Opening::new(number)))
        .collect();
    // Packets of other encryption levels for the same connection IDs, which cannot be decrypted.
    for (link, sent) in links.iter().map(|link| (link, &link.first)) {
        let mut packet = sent.clone();
        packet[0] = 0xd0 | (packet[0] & 0x0f);
        for _ in 0..200 {
            link.socket.send(server_address(), &packet, 0);
        }
    }
    others_are_served(&mut server, &config, 0);
    server.pass(100);
    assert_eq!(server.driven.counters().connections_total, 101);
    drop(links);
    check_amplification(&server);
    check_given_back(&mut server, Account::Streams, 0);
}

/// Datagrams of no connection: noise, unknown versions, connection IDs that were never issued.
#[test]
pub(crate) fn datagrams_of_nobody_are_answered_with_less() {
    let (mut server, config) = server();
    let link = connected(&mut server, &config, &Opening::new(0));
    let mut counter = 0_u64;
    for first in [0x00, 0x40, 0x43, 0x80, 0xc0, 0xd0, 0xe0, 0xf0, 0xff] {
        for len in [1, 2, 9, 21, 22, 43, 60, 300, 1_200, 1_452] {
            for version in [0, 1, 0x6b33_43cf, 0x1a2a_3a4a_u32] {
                counter += 1;
                let mut packet = vec![first];
                packet.extend(version.to_be_bytes());
                packet.extend([8]);
                while packet.len() < len {
                    packet.extend(counter.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes());
                    counter += 1;
                }
                packet.truncate(len);
                let from = crate::link::client_address(1_000 + counter as u16 % 30_000, 7);
                link.socket.send_as(from, server_address(), &packet, 0);
            }
        }
    }
    server.pass(100);
    others_are_served(&mut server, &config, 0);
    check_amplification(&server);
    drop(link);
    check_given_back(&mut server, Account::Streams, 0);
}

/// Requests that are cancelled at once.
#[test]
pub(crate) fn requests_that_are_given_up_have_a_bound() {
    let (mut server, config) = server();
    server.disk.slow_file("small", 1_000_000_000);
    let mut link = connected(&mut server, &config, &Opening::new(0));
    let mut asked = 0;
    let request = h3::request("GET", "/small?1", &[]);
    until(&mut server, "the end", &mut [&mut link], |links| {
        let link = &mut *links[0];
        while let Some(id) = link.open(Dir::Bi, &request, true) {
            asked += 1;
            link.send();
            link.core.reset(id, REQUEST_CANCELLED);
            link.core.stop(id, REQUEST_CANCELLED);
        }
        link.send();
        link.core.lost.is_some()
    });
    assert_eq!(code(&link), EXCESSIVE_LOAD);
    assert!(asked < 2_000, "{asked} requests");
    server.disk.slow_file("small", 0);
    server.pass(1_000);
    others_are_served(&mut server, &config, 0);
    check_given_back(&mut server, Account::Waiting, 1);
}

/// Many requests for long files by clients that read nothing, or little of each.
#[test]
pub(crate) fn answers_that_are_not_taken_have_a_bound() {
    for window in [0, 1_000, 20_000, 1 << 20] {
        let faults = Faults {
            cold: 500,
            delay_max_ns: 5_000_000,
            ..Faults::none()
        };
        let (mut server, config) = Server::with_datagrams(faults, LIMITS);
        for number in 0..100 {
            let len = if number % 3 == 0 { 8_000 } else { 1 << 20 };
            let path = format!("file{number}");
            server.disk.put_file(&path, vec![b'l'; len]);
        }
        let mut flood: Vec<_> = (0..FLOOD)
            .map(|number| {
                let opening = Opening {
                    windows: (window, 8 << 20),
                    ..Opening::new(number)
                };
                let mut link = connected(&mut server, &config, &opening);
                for file in 0..100 {
                    link.get(&format!("/file{file}"));
                }
                link
            })
            .collect();
        // The client reads nothing of it.
        server.pass_while(2_000, || flood.iter_mut().for_each(Link::step));
        let id = flood.len() as u16;
        others_are_served(&mut server, &config, id);
        for link in &mut flood {
            assert_eq!(link.core.lost, None);
            link.close();
        }
        drop(flood);
        check_given_back(&mut server, Account::Answers, 16 * KIB);
    }
}

/// As many incomplete requests as permitted, each of maximum length.
#[test]
pub(crate) fn requests_that_are_not_whole_have_a_bound() {
    let (mut server, config) = server();
    let mut flood: Vec<_> = (0..FLOOD)
        .map(|number| connected(&mut server, &config, &Opening::new(number)))
        .collect();
    let section = vec![0; 32 << 10];
    let request = frame(HEADERS, &section);
    let mut links: Vec<_> = flood.iter_mut().collect();
    let mut sent: Vec<_> = links.iter().map(|_| BTreeMap::new()).collect();
    until(&mut server, "the end", &mut links, |links| {
        for (link, sent) in links.iter_mut().zip(&mut sent) {
            while let Some(id) = link.core.open(Dir::Bi) {
                sent.insert(id, 0);
            }
            for (id, at) in sent {
                // As much as the windows permit.
                *at += link
                    .core
                    .write(*id, &request[*at..request.len() - 1])
                    .unwrap_or(0);
            }
            link.send();
        }
        links.iter().all(|link| link.core.lost.is_some())
    });
    // The server sends CONNECTION_CLOSE once; if that is lost, it answers the client's next packet
    // with a stateless reset.
    let is_reset = |link: &&Link| matches!(link.core.lost, Some(ConnectionError::Reset));
    assert!(flood.iter().filter(is_reset).count() < flood.len() / 4);
    for link in flood.iter().filter(|link| !is_reset(link)) {
        assert_eq!(code(link), EXCESSIVE_LOAD);
    }
    others_are_served(&mut server, &config, 0);
    check_given_back(&mut server, Account::Streams, 200 * KIB);
}

/// Three probe timeouts may be minutes, if a client announces a long acknowledgement delay.
#[test]
pub(crate) fn a_closed_connection_keeps_no_place() {
    let (mut server, config) = server();
    let mut link = connected(&mut server, &config, &Opening::new(0));
    assert_eq!(server.driven.counters().connections_now, 1);
    link.close();
    server.pass(20);
    assert_eq!(server.driven.counters().connections_now, 0);
}

/// Field sections that are short when encoded and long when decoded.
#[test]
pub(crate) fn sections_do_not_expand_without_end() {
    let (mut server, config) = server();
    let mut link = connected(&mut server, &config, &Opening::new(0));
    // RFC 9204 section 4.5: no dynamic table; then the longest line of the static one, repeated.
    let mut section = vec![0, 0];
    section.extend([0xc0 | 17, 0xd7, 0xc1]);
    for _ in 0..30_000 {
        section.extend([0xff, 85 - 63]);
    }
    let request = frame(HEADERS, &section[..1_201]);
    for _ in 0..20 {
        let ask = |_| link.open(Dir::Bi, &request, true).expect("granted");
        let ids: Vec<_> = (0..50).map(ask).collect();
        for id in ids {
            assert_eq!(answer(&mut server, &mut link, id).status, 431);
        }
    }
    link.close();
    others_are_served(&mut server, &config, 0);
    check_given_back(&mut server, Account::Answers, 1);
}

/// Floods the server with one kind of frame after the handshake. Returns the error that ends the
/// connection, if any.
fn flood_with(frames: impl Iterator<Item = Vec<u8>>) -> Option<u64> {
    let (mut server, config) = server();
    let mut forger = Forger::new(&mut server, &config, 0);
    let before = server.disk.exchanged()[&forger.link.socket.address()];
    forger.flood(&mut server, frames);
    let after = server.disk.exchanged()[&forger.link.socket.address()];
    let (sent, received) = (after.sent - before.sent, after.received - before.received);
    assert!(sent <= received + 20_000, "{sent} bytes for {received}");
    let error = forger.error;
    others_are_served(&mut server, &config, 0);
    drop(forger);
    check_given_back(&mut server, Account::Streams, 0);
    error
}

#[test]
pub(crate) fn challenges_of_paths_are_answered_with_no_more() {
    assert_eq!(flood_with((0..20_000).map(path_challenge)), None);
}

#[test]
pub(crate) fn connection_ids_that_are_replaced_have_a_bound() {
    // Each retires the one before, and the server's RETIRE_CONNECTION_ID frames are never
    // acknowledged.
    assert_eq!(flood_with((1..10_000).map(new_connection_id)), None);
}

#[test]
pub(crate) fn connection_ids_that_are_retired_have_a_bound() {
    // Existing ones, repeated.
    let existing = (0..5_000).map(|number| retire_connection_id(number % 2));
    assert_eq!(flood_with(existing), None);
    // Ones that never existed.
    let error = flood_with((1_000..1_010).map(retire_connection_id));
    assert_eq!(error, Some(PROTOCOL_VIOLATION));
}

#[test]
pub(crate) fn packets_that_were_never_sent_cannot_be_acknowledged() {
    let error = flood_with([ack(1_000_000)].into_iter());
    assert_eq!(error, Some(PROTOCOL_VIOLATION));
}

/// What the library holds is charged: each connection, and what comes and cannot be read yet, at least as
/// much as it is; it is no longer once that was read.
#[test]
pub(crate) fn what_the_library_holds_is_charged() {
    let charged = |server: &Server| holding(server, Account::Transport).held;
    let (mut server, config) = server();
    assert_eq!(charged(&server), 0);
    let mut forger = Forger::new(&mut server, &config, 0);
    let rest = charged(&server);
    assert!((20 * KIB..=40 * KIB).contains(&rest), "{rest}");
    let request = h3::request("GET", "/small", &[]);
    let (first, last) = request.split_at(1);
    // The beginnings come last.
    for number in 0..50 {
        let mut frames = stream(4 * number, 1, last);
        // RFC 9000 section 19.8: the end of the stream.
        frames[0] |= 1;
        // As long as its datagram.
        frames.resize(1_200, 0);
        forger.send(&frames);
    }
    server.pass(20);
    let full = charged(&server);
    assert!(full >= rest + 50 * 1_200, "{full}");
    for number in 0..50 {
        forger.send(&stream(4 * number, 0, first));
    }
    server.pass(20);
    assert_eq!(server.driven.counters().quic.requests, 50);
    // Answers are on their way.
    let left = charged(&server);
    assert!(left < rest + 20 * KIB, "{left}");
    // As many pieces as a stream may have, of which none can be read.
    let before = charged(&server);
    let pieces = (1..1_000).map(|at| stream(4 * 60, 8 * at - 1, b"g"));
    forger.flood(&mut server, pieces);
    assert_eq!(forger.error, None);
    // An entry of a heap, and a byte, each.
    let grown = charged(&server) - before;
    assert!(grown >= 1_000 * 57, "{grown}");
    drop(forger);
    check_given_back(&mut server, Account::Transport, 200 * KIB);
}

/// Streams of which every other byte arrives: the bytes kept stay within the windows.
#[test]
pub(crate) fn gaps_have_a_bound() {
    const WINDOW: u64 = 64 << 10;
    let gaps = |streams: u64, count: u64| {
        let places =
            move |number: u64| (1..count).map(move |at| stream(4 * number, 8 * at - 1, b"g"));
        (0..streams).flat_map(places)
    };
    assert_eq!(flood_with(gaps(4, 50)), None);
    // No network causes so many gaps.
    assert_eq!(flood_with(gaps(4, WINDOW / 8)), Some(INTERNAL_ERROR));
    // Not so many on any stream, but on all together.
    assert_eq!(flood_with(gaps(40, 350)), None);
    assert_eq!(flood_with(gaps(90, 350)), Some(EXCESSIVE_LOAD));
    let error = flood_with([stream(0, WINDOW, b"g")].into_iter());
    assert_eq!(error, Some(FLOW_CONTROL_ERROR), "a stream's window");
    let all = (0..5).map(|number| stream(4 * number, WINDOW - 1, b"g"));
    let error = flood_with(all);
    assert_eq!(error, Some(FLOW_CONTROL_ERROR), "the connection's window");
    let error = flood_with([stream(4 * 100, 0, b"g")].into_iter());
    assert_eq!(error, Some(STREAM_LIMIT_ERROR));
    let error = flood_with([stream(4 * 8 + 2, 0, &varint(0x21))].into_iter());
    assert_eq!(error, Some(STREAM_LIMIT_ERROR), "unidirectional streams");
    let error = flood_with([crypto(1 << 20, b"g")].into_iter());
    assert_eq!(error, Some(CRYPTO_BUFFER_EXCEEDED));
}

/// At the limit of connections, the one idle longest makes room; busy ones stay.
#[test]
pub(crate) fn the_longest_idle_makes_room() {
    const MOST: u16 = 10;
    let limits = Limits {
        connections_max: u32::from(MOST),
        idle_timeout_ms: 60_000,
        progress_timeout_ms: 60_000,
        ..LIMITS
    };
    let faults = Faults {
        datagram_latency_ns: 1_000_000,
        ..Faults::none()
    };
    let (mut server, config) = Server::with_datagrams(faults, limits);
    let mut links: Vec<_> = (0..MOST)
        .map(|number| {
            let windows = if number == 0 {
                (0, 0)
            } else {
                (1 << 20, 1 << 20)
            };
            let opening = Opening {
                windows,
                ..Opening::new(number)
            };
            let mut link = connected(&mut server, &config, &opening);
            let id = link.get("/small");
            if number > 0 {
                answer(&mut server, &mut link, id);
            }
            server.pass(200);
            link
        })
        .collect();
    // The second one makes another request, so the third has been idle longest.
    let id = links[1].get("/small");
    answer(&mut server, &mut links[1], id);
    server.pass(200);
    for number in 0..3_u16 {
        let link = connected(&mut server, &config, &Opening::new(MOST + number));
        links.push(link);
        let mut all: Vec<_> = links.iter_mut().collect();
        let gone = 2 + usize::from(number);
        until(
            &mut server,
            "the longest idle has gone",
            &mut all,
            |links| links[gone].core.lost.is_some(),
        );
        server.pass(200);
    }
    let lost: Vec<_> = (0..links.len())
        .filter(|number| links[*number].core.lost.is_some())
        .collect();
    assert_eq!(lost, [2, 3, 4]);
    assert_eq!(server.driven.counters().shed, 3);
}
