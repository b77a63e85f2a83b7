//! Floods of requests that wait: for the disk, for a password's hash, and for a site. Of all connections
//! together a bounded number is kept, hardly more than one for each connection beyond it, and each kind
//! leaves the others room.

use gannet_io::options::EngineOptions;
use gannet_io::sim::{Client, End, Faults, Sim};
use gannet_server::config::ContentOptions;
use gannet_server::driven::{DrivenSite, DrivenSites};
use gannet_server::ledger::Account;
use gannet_testkit::h2::{self, headers, wide_opening};

use crate::floods::{check_given_back, holding, others_are_served};
use crate::passwords;
use crate::run::LIMITS;
use crate::server::Server;

const MS: u64 = 1_000_000;
const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

const CONNECTIONS: usize = 60;

/// Requests of each.
const STREAMS: u32 = 100;

/// For one file of one host.
fn block(host: &str, path: &str) -> Vec<u8> {
    h2::block(&[
        (":method", "GET"),
        (":scheme", "http"),
        (":authority", host),
        (":path", path),
    ])
}

/// Connections with requests that repeat a long field of HPACK's table by references of one byte.
fn flood(server: &Server, block: &[u8]) -> Vec<Client> {
    const REFERENCE: u8 = 0xbe;
    let connections = (0..CONNECTIONS).map(|_| {
        let mut bytes = wide_opening();
        for stream in 0..STREAMS {
            let mut block = block.to_vec();
            match stream {
                0 => block.extend(h2::indexed("x-flood", &[b'f'; 3_900])),
                _ => block.extend([REFERENCE; 5]),
            }
            bytes.extend(headers(2 * stream + 1, &block));
        }
        let client = server.connect();
        client.write(&bytes);
        client
    });
    connections.collect()
}

/// A connection with so many short requests.
fn ask(server: &Server, count: u32, block: &[u8]) -> Client {
    let client = server.connect();
    client.write(&wide_opening());
    for stream in 0..count {
        client.write(&headers(2 * stream + 1, block));
    }
    client
}

/// What is held by a flood for a part of all waiting requests.
fn check_part(server: &Server, part: u64) -> u64 {
    let full = holding(server, Account::Waiting);
    assert!(full.held > part - MIB, "the bound is reached: {full:?}");
    assert!(full.held < part + 2 * MIB, "{full:?}");
    assert!(full.peak >= full.held, "{full:?}");
    full.held
}

/// The kept ones are answered once the disk answers.
#[test]
pub(crate) fn a_flood_that_waits_for_the_disk_has_a_bound() {
    let mut server = Server::new(Faults::none());
    server.disk.put_file("hangs", "hangs");
    // Shorter than the streams' timeout.
    server.disk.slow_file("hangs", 2_000 * MS);
    let mut flood = flood(&server, &block("sim", "/hangs"));
    server.pass(500);
    others_are_served(&mut server, None);
    let held = check_part(&server, 8 * MIB);
    assert!(flood.iter().all(|client| client.end() == End::Open));
    // Others may still have a few short ones wait.
    flood.push(ask(&server, 10, &block("sim", "/hangs")));
    server.pass(500);
    let more = holding(&server, Account::Waiting).held - held;
    assert!(
        (7 * KIB..11 * KIB).contains(&more),
        "eight of ten: {more} bytes"
    );
    server.disk.slow_file("hangs", 0);
    let all = (CONNECTIONS as u64) * u64::from(STREAMS) + 10;
    let away = server.driven.counters().responses[4];
    assert!(away > 0 && away < all, "{away} of {all}");
    assert_eq!(server.driven.counters().turned_away, [away, 0, 0]);
    server.until_it("all are answered", |driven| {
        driven.counters().responses[1] + away > all
    });
    assert_eq!(server.driven.counters().responses[4], away);
    flood.iter().for_each(Client::reset);
    check_given_back(&mut server, Account::Waiting, 7 * MIB);
}

/// Requests of one connection for the disk, more than each may always have.
const HONEST: u32 = 40;

/// How long the disk takes for each operation for them. The streams of the flood still wait when they are
/// answered.
const SLOW_NS: u64 = 300 * MS;

/// One wrong password: whoever needs the disk is served.
#[test]
fn a_flood_that_waits_for_a_password_leaves_room_for_the_disk() {
    let mut server = passwords::start();
    server.disk.put_file("hangs", "hangs");
    server.disk.slow_file("hangs", SLOW_NS);
    let authorization = format!("Basic {}", passwords::wrong(0));
    let mut wrong = block("sim", "/p/a.txt");
    wrong.extend(h2::block(&[("authorization", &authorization)]));
    let mut flood = flood(&server, &wrong);
    server.pass(500);
    check_part(&server, 4 * MIB);
    let before = server.driven.counters();
    let away = before.responses[4];
    assert_eq!(before.turned_away, [0, away, 0]);
    let all = (CONNECTIONS as u64) * u64::from(STREAMS);
    assert!(away > all / 2 && away < all, "{away} of {all}");
    flood.push(ask(&server, HONEST, &block("sim", "/hangs")));
    server.until_it("the disk's answers", |driven| {
        driven.counters().responses[1] == u64::from(HONEST)
    });
    assert!(server.driven.check_password());
    server.until_it("all are answered", |driven| {
        driven.counters().responses[3] + away == all
    });
    assert_eq!(server.driven.counters().turned_away, [0, away, 0]);
    flood.iter().for_each(Client::reset);
    check_given_back(&mut server, Account::Waiting, 3 * MIB);
}

/// A site that opens slowly: whoever needs the disk for another one is served.
#[test]
fn a_flood_that_waits_for_a_site_leaves_room_for_the_disk() {
    let driver = Sim::new(1, 1, &EngineOptions::default(), Faults::none());
    let disk = driver.handle();
    for path in ["open/first", "open/hangs", "slow/page"] {
        disk.put_file(path, "page");
    }
    disk.age_files(10_000);
    let options = ContentOptions::default();
    let (sites, driven) = DrivenSites::start(driver, None, (&options, LIMITS), 5);
    for name in ["open", "slow"] {
        sites.put(name, name, DrivenSite::Directory(disk.root_at(name)));
    }
    let mut server = Server { driven, disk };
    let now = |server: &Server| server.disk.now();
    sites.look(now(&server));
    server.pass(50);
    let first = ask(&server, 1, &block("open", "/first"));
    let opening = |server: &mut Server| {
        server.pass(50);
        sites.answer(now(server));
        sites.begin(now(server)).expect("it was asked for")
    };
    let open = opening(&mut server);
    sites.end(open, now(&server));
    server.until_it("the first answer", |driven| {
        driven.counters().responses[1] == 1
    });
    let mut flood = flood(&server, &block("slow", "/page"));
    let slow = opening(&mut server);
    server.pass(500);
    check_part(&server, 4 * MIB);
    let before = server.driven.counters();
    let away = before.responses[4];
    assert_eq!(before.turned_away, [0, 0, away]);
    let all = (CONNECTIONS as u64) * u64::from(STREAMS);
    assert!(away > all / 2 && away < all, "{away} of {all}");
    server.disk.slow_file("open/hangs", SLOW_NS);
    flood.push(ask(&server, HONEST, &block("open", "/hangs")));
    server.until_it("the disk's answers", |driven| {
        driven.counters().responses[1] == u64::from(HONEST) + 1
    });
    sites.end(slow, now(&server));
    server.until_it("all are answered", |driven| {
        driven.counters().responses[1] + away == all + u64::from(HONEST) + 1
    });
    assert_eq!(server.driven.counters().turned_away, [0, 0, away]);
    flood.push(first);
    flood.iter().for_each(Client::reset);
    check_given_back(&mut server, Account::Waiting, 3 * MIB);
}

/// All that a request takes while it waits is charged: its path, and the paths and input of rules that are
/// made of it.
#[test]
fn a_request_that_waits_is_charged_with_its_copies() {
    let path = ["d"; 16].map(|it| it.repeat(250)).join("/");
    let mut server = passwords::start();
    server.disk.put_file(&path, "hangs");
    server.disk.slow_file(&path, 2_000 * MS);
    let (query, host) = ("q".repeat(4_000), "h".repeat(8_000));
    for (target, host, other, least) in [
        (format!("/{path}"), "sim", 0, 5 * path.len()),
        // A head of nearly maximum length.
        (
            format!("/{path}?{query}"),
            host.as_str(),
            8_000,
            5 * path.len() + 2 * (query.len() + host.len()) + 8_000,
        ),
    ] {
        let other = "f".repeat(other);
        let client = server.connect();
        let head = format!("GET {target} HTTP/1.1\r\nhost: {host}\r\nx-flood: {other}\r\n\r\n");
        client.write(head.as_bytes());
        server.pass(200);
        let held = holding(&server, Account::Waiting).held;
        let (least, one_max) = (least as u64, 62 * KIB);
        assert!((least..least + 2 * KIB).contains(&held), "{held}, {least}");
        assert!(held <= one_max, "{held}");
        server.until("an answer", || client.readable() > 0);
        assert_eq!(holding(&server, Account::Waiting).held, 0);
        client.reset();
    }
}
