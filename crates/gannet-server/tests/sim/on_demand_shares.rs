//! Clients that ask for much that is not here: each has a share.

use std::net::IpAddr;

use quinn_proto::Dir;

use super::*;
use crate::link::client_address;
use crate::quic_deadlines::{answer, until};
use gannet_testkit::h3::control;

/// What a worker asks for at a time.
const ASKED_MAX: usize = 1_024;

/// Of these for one client.
const ASKED_OF_CLIENT_MAX: usize = ASKED_MAX / 4;

/// The first streams of thirty connections of HTTP/2, each of which asks for another byte of a long body, from so
/// many addresses.
fn flood(on_demand: &mut OnDemand, addresses: usize) -> Vec<Client> {
    flood_through(on_demand, addresses, |on_demand, address| {
        let disk = &on_demand.server.disk;
        let client = disk.connect_from(Listener(0), Peer::Ip(address));
        client.expect("it listens")
    })
}

fn flood_through(
    on_demand: &mut OnDemand,
    addresses: usize,
    connect: impl Fn(&OnDemand, SocketAddr) -> Client,
) -> Vec<Client> {
    let connect = |number: usize| {
        let address = format!("192.0.2.{}:1024", number % addresses);
        connect(on_demand, address.parse().expect("an address"))
    };
    let clients: Vec<_> = (0..30).map(connect).collect();
    // Other bytes the second time.
    let shift = 20 * usize::from(!on_demand.seen.borrow().is_empty());
    for (number, client) in clients.iter().enumerate() {
        client.write(&wide_opening());
        for stream in 0..50 {
            let first = 2_800 * (50 * number + stream) + shift;
            let range = format!("bytes={first}-{}", first + 10);
            let fields = [
                (":method", "GET"),
                (":scheme", "http"),
                (":authority", "sim"),
                (":path", "/2"),
                ("range", &range),
            ];
            client.write(&headers(2 * stream as u32 + 1, &h2::block(&fields)));
        }
    }
    on_demand.server.pass(1_000);
    assert_eq!(
        on_demand.wanted(),
        ASKED_MAX.min(addresses * ASKED_OF_CLIENT_MAX)
    );
    clients
}

/// One client does not take the places of others, whatever it asks for.
#[test]
pub(crate) fn a_flood_by_one_client_leaves_room_for_others() {
    let mut on_demand = OnDemand::new(LENS.len(), 64 << 20);
    let flood = flood(&mut on_demand, 1);
    let client = on_demand.ask("0");
    on_demand.server.pass(10);
    let asked = on_demand.read_questions();
    assert_eq!(asked.len(), 1, "{asked:?}");
    for (part, number) in asked {
        on_demand.put(&part, true);
        on_demand.reply(number, Supplied::Present);
    }
    on_demand.await_body(&client, 0);
    drop(flood);
}

/// The same of clients that a proxy names, without a log and rules.
#[test]
pub(crate) fn a_flood_by_one_client_of_a_proxy_leaves_room_for_others() {
    let mut on_demand = OnDemand::with_sockets(LENS.len(), 64 << 20, &[], true).0;
    let flood = flood_through(&mut on_demand, 1, |on_demand, address| {
        let client = on_demand.server.disk.connect_from(Listener(0), Peer::Unix);
        let client = client.expect("it listens");
        let ip = address.ip();
        client.write(format!("PROXY TCP4 {ip} 192.0.2.99 1024 80\r\n").as_bytes());
        client
    });
    drop(flood);
}

/// Whoever leaves still counts for its own address: what it has asked for is still to be fetched.
#[test]
pub(crate) fn a_client_that_hangs_up_has_no_share_anew() {
    let mut on_demand = OnDemand::new(LENS.len(), 64 << 20);
    drop(flood(&mut on_demand, 1));
    on_demand.server.pass(1_000);
    // The same once more.
    drop(flood(&mut on_demand, 1));
}

/// Whoever asks and leaves keeps no place of others.
#[test]
fn gone_clients_are_no_longer_waited_for() {
    let mut on_demand = OnDemand::new(LENS.len(), 64 << 20);
    drop(flood(&mut on_demand, 5));
    on_demand.server.pass(100);
    let client = on_demand.ask("0");
    // Before anything is answered.
    on_demand.server.pass(10);
    on_demand.await_body(&client, 0);
}

/// A response has begun when all places are taken: it has some more.
#[test]
fn a_flood_cuts_no_response_short() {
    let mut on_demand = OnDemand::new(LENS.len(), 64 << 20);
    on_demand.server.disk.slow_file("partial", 20 * MS);
    let begun = on_demand.ask("2");
    on_demand.server.pass(10);
    let questions = on_demand.read_questions();
    let others = flood(&mut on_demand, 5);
    for (part, number) in questions {
        on_demand.put(&part, true);
        on_demand.reply(number, Supplied::Present);
    }
    on_demand.server.pass(5);
    // The place that it has left.
    let last = on_demand.ask("1");
    let mut got = Vec::new();
    on_demand
        .server
        .pass_while(500, || got.extend(begun.read()));
    assert!(got.len() > 200_000, "{} bytes", got.len());
    assert_eq!(on_demand.server.driven.counters().cut_short, 0);
    let body = content(2);
    while begun.end() == End::Open && !got.ends_with(&body) {
        on_demand.supply();
        on_demand.server.pass(1);
        got.extend(begun.read());
    }
    assert!(got.ends_with(&body), "{} bytes", got.len());
    drop((others, last));
}

/// More than may be asked at one time have to come again at once; the others keep waiting.
#[test]
fn a_flood_for_what_is_not_here_has_a_bound() {
    let mut on_demand = OnDemand::new(LENS.len(), 64 << 20);
    let _clients = flood(&mut on_demand, 5);
    others_are_served(&mut on_demand.server, None);
    let counters = on_demand.server.driven.counters();
    assert_eq!(counters.responses[4], 30 * 50 - ASKED_MAX as u64);
    on_demand.server.pass(10_000);
    let counters = on_demand.server.driven.counters();
    assert_eq!(counters.responses[4], 30 * 50, "none waits for ever");
}

/// Its address may be forged until a client of HTTP/3 has answered there: until then it counts with all of these.
#[test]
fn clients_of_http3_count_by_their_validated_addresses() {
    let of_address = |moves| match client_address(0, moves).ip() {
        IpAddr::V4(address) => u128::from(address.to_ipv6_mapped()),
        IpAddr::V6(_) => panic!("another network"),
    };
    // 100::/64 (RFC 6666).
    let of_unknown: u128 = 0x100 << 112;
    let bound = [BOUND.parse().expect("an address")];
    let (mut on_demand, config) = OnDemand::with_sockets(6, 0, &bound, false);
    let config = config.expect("it speaks TLS");
    let mut link = connected(&mut on_demand.server, &config, &Opening::new(0));
    assert_eq!(client_of(&mut on_demand, &mut link, "/0"), of_address(0));
    link.rebind();
    let moved = link.get("/small");
    answer(&mut on_demand.server, &mut link, moved);
    // It answers the server's challenge.
    on_demand.server.pass_while(200, || link.step());
    assert_eq!(client_of(&mut on_demand, &mut link, "/1"), of_address(1));
    link.close();
    on_demand
        .server
        .until_it("it is over", |it| it.counters().connections_now == 0);
    let mut link = Link::connect(&on_demand.server.disk, &config, &Opening::new(0));
    assert!(link.core.connection.has_0rtt());
    link.open(Dir::Uni, &control(&[]), false);
    assert_eq!(client_of(&mut on_demand, &mut link, "/3"), of_unknown);
    until(
        &mut on_demand.server,
        "the handshake",
        &mut [&mut link],
        |links| links[0].core.is_connected(),
    );
    let validated = link.get("/small");
    answer(&mut on_demand.server, &mut link, validated);
    assert_eq!(client_of(&mut on_demand, &mut link, "/4"), of_address(0));
}

/// For which client a path that is not here is asked for. It hears of nothing meanwhile.
fn client_of(on_demand: &mut OnDemand, link: &mut Link, path: &str) -> u128 {
    on_demand.read_questions();
    let before = on_demand.clients.borrow().len();
    link.get(path);
    link.send();
    on_demand.server.pass(10);
    on_demand.read_questions();
    let clients = on_demand.clients.borrow();
    let [client] = clients[before..] else {
        panic!("{:?}", &clients[before..]);
    };
    client
}
