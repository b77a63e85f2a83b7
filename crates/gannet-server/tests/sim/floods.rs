//! For each account of memory that clients can cause, a flood that fills it: the bound holds, other
//! clients are served meanwhile, and everything is released. Listings and copies are tested in
//! `budget`. The bounds are checked after every turn: see [`check_holdings`](crate::run).

use std::sync::Arc;

use gannet_io::options::EngineOptions;
use gannet_io::sim::{Client, End, Faults, Sim};
use gannet_server::config::{ContentOptions, Limits};
use gannet_server::driven::Driven;
use gannet_server::ledger::{Account, AccountBound, Holding};
use gannet_server::tls::limits::ENCRYPTED_RECORDS_MAX;
use gannet_testkit::h2::{
    self, CANCEL, CONTINUATION, END_HEADERS, END_STREAM, HEADERS, INITIAL_WINDOW_SIZE, PING,
    PRIORITY_UPDATE, frame, headers, opening, rst_stream, wide_opening,
};
use rustls::ClientConfig;

use crate::run::{LIMITS, Packing, Tls};
use crate::server::{Server, directory, get};
use crate::wire::Wire;

const MS: u64 = 1_000_000;
const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Longer than any run.
const HANGS_NS: u64 = 50_000 * MS;

/// Connections of a flood.
const FLOOD: usize = 20;

pub(crate) fn holding(server: &Server, account: Account) -> Holding {
    let holdings = server.driven.holdings();
    let found = holdings.into_iter().find(|it| it.account == account);
    found.expect("every account is there")
}

/// The bound of a connection or of the worker.
fn most(holding: &Holding) -> u64 {
    let (AccountBound::Connection(most) | AccountBound::Worker(most)) = holding.bound;
    most
}

/// Another client requests a cached file, and gets it at once.
pub(crate) fn others_are_served(server: &mut Server, tls: Option<&Arc<ClientConfig>>) {
    let other = Wire::connect(&server.disk, tls, usize::MAX).expect("it listens");
    other.write(&get("small"));
    let mut got = Vec::new();
    let took = server.until("another client's response", || {
        got.extend(other.read_at_most(1 << 20).expect("true records"));
        got.ends_with(b"small")
    });
    assert!(took <= 50, "{took} ms");
}

/// `account` has held at least `least` bytes for one connection (or the worker), and holds nothing
/// of the flood once its clients are gone.
pub(crate) fn check_given_back(server: &mut Server, account: Account, least: u64) {
    let full = holding(server, account);
    assert!(full.peak >= least, "{full:?}");
    assert!(full.peak <= most(&full), "{full:?}");
    // Longer than the linger, and than any pending operation of the clients.
    server.pass(3_000);
    let after = holding(server, account);
    assert!(after.held <= KIB, "{full:?}, then {after:?}");
}

/// The frames of a request with these fields, which may be long.
fn request(id: u32, lines: &[(&str, String)]) -> Vec<u8> {
    let mut fields = vec![(":method", "GET"), (":scheme", "http")];
    fields.extend(lines.iter().map(|(name, value)| (*name, &**value)));
    let block = h2::block(&fields);
    let mut frames = Vec::new();
    let mut pieces = block.chunks(16_384).enumerate().peekable();
    while let Some((at, piece)) = pieces.next() {
        let end = if pieces.peek().is_none() {
            END_HEADERS
        } else {
            0
        };
        frames.extend(match at {
            0 => frame(HEADERS, END_STREAM | end, id, piece),
            _ => frame(CONTINUATION, end, id, piece),
        });
    }
    frames
}

/// Requests behind one whose response is not read, or that waits for the disk; in clear text and
/// over TLS: a bounded amount is held, and the rest stays with the sender.
#[test]
pub(crate) fn input_that_is_not_looked_at_has_a_bound() {
    for tls in [Tls::None, Tls::Own] {
        // Behind a send nothing more is received; behind a lookup, as much as may be pipelined.
        for (path, least) in [("large", 1), ("hangs", 20 * KIB)] {
            let (mut server, config) =
                Server::with_tls(Faults::none(), LIMITS, tls, ENCRYPTED_RECORDS_MAX);
            server.disk.put_file("hangs", vec![b'h'; 10]);
            server.disk.slow_file("hangs", HANGS_NS);
            let flood: Vec<_> = (0..FLOOD)
                .map(|_| {
                    Wire::connect(&server.disk, config.as_ref(), usize::MAX).expect("it listens")
                })
                .collect();
            server.until("all handshakes", || {
                flood.iter().for_each(|wire| drop(wire.read_at_most(0)));
                let mut shaking = flood.iter().filter(|wire| wire.is_shaking());
                let is_over = shaking.next().is_none();
                if !is_over {
                    flood
                        .iter()
                        .for_each(|wire| drop(wire.read_at_most(1 << 20)));
                }
                is_over
            });
            for wire in &flood {
                wire.write(&get(path));
                wire.write(&get("small").repeat(10_000));
            }
            others_are_served(&mut server, config.as_ref());
            server.pass(500);
            let full = holding(&server, Account::Input);
            for wire in &flood {
                let left = wire.client().unreceived() as u64;
                assert!(left > 200 * KIB, "{left} bytes left, {full:?}");
            }
            server.pass(500);
            let later = holding(&server, Account::Input);
            assert_eq!(
                (later.held, later.peak),
                (full.held, full.peak),
                "no more input is held"
            );
            others_are_served(&mut server, config.as_ref());
            flood.iter().for_each(Wire::reset);
            // Connections that wait for the disk are freed when it has completed.
            server.pass(HANGS_NS / MS);
            check_given_back(&mut server, Account::Input, least);
        }
    }
}

/// An incomplete TLS record, and an endless ClientHello.
#[test]
pub(crate) fn records_that_are_not_whole_have_a_bound() {
    let (mut server, config) =
        Server::with_tls(Faults::none(), LIMITS, Tls::Own, ENCRYPTED_RECORDS_MAX);
    let record = [&b"\x17\x03\x03\x41\x00"[..], &[0; 16_000]].concat();
    let hello = [&b"\x16\x03\x01\x40\x00\x01\x00\xff\xf0"[..], &[0; 16_000]].concat();
    let mut flood = Vec::new();
    for piece in [record, hello] {
        for _ in 0..FLOOD {
            let client = server.connect();
            client.write(&piece);
            flood.push(client);
        }
    }
    server.pass(100);
    others_are_served(&mut server, config.as_ref());
    // No client disconnects: a handshake has a deadline.
    check_given_back(&mut server, Account::Input, 15 * KIB);
    server.pass(LIMITS.head_timeout_ms);
    assert!(flood.iter().all(|client| client.is_closed_by_server()));
}

/// A long body in memory, for stalled peers: no more of it is encrypted or copied than a socket
/// accepts, and peers that read get all of it.
#[test]
pub(crate) fn long_bodies_in_memory_leave_in_slices() {
    for tls in [Tls::None, Tls::Own] {
        let faults = Faults {
            socket_capacity: 100_000,
            ..Faults::none()
        };
        let (mut server, config) = Server::with_tls(faults, LIMITS, tls, ENCRYPTED_RECORDS_MAX);
        for number in 0..9_000 {
            server.disk.put_file(&format!("folder/{number:0100}"), "x");
        }
        let ask = |server: &Server| {
            let client = Wire::connect(&server.disk, config.as_ref(), usize::MAX);
            let client = client.expect("it listens");
            client.write(&get("folder/"));
            client
        };
        let reader = ask(&server);
        let mut got = Vec::new();
        server.until("a listing", || {
            got.extend(reader.read_at_most(1 << 20).expect("true records"));
            got.ends_with(b"</script>\n")
        });
        assert!(got.len() > 2 << 20, "longer than the bound: {}", got.len());
        let flood: Vec<_> = (0..FLOOD).map(|_| ask(&server)).collect();
        server.pass(200);
        let sends = holding(&server, Account::Sends);
        assert!(sends.peak <= 600 * KIB, "{sends:?}");
        others_are_served(&mut server, config.as_ref());
        flood.iter().for_each(Wire::reset);
        server.pass(3_000);
        assert!(holding(&server, Account::Sends).held <= KIB);
    }
}

/// Requests of maximum length for a file whose disk hangs, on streams that are reset and reopened:
/// a bounded number waits, whichever fields are long, and the others stay with the sender.
#[test]
fn requests_that_wait_for_the_disk_have_a_bound() {
    requests_that_wait_for_the_disk(true);
}

/// The same; abandoned requests are kept if their lookups are in progress. Those that only wait for room
/// for the heads of their answers leave with their streams, and make room for others.
pub(crate) fn requests_that_wait_for_the_disk(are_abandoned_kept: bool) {
    const LONG: usize = 19_000;
    let path = |len: usize| (":path", format!("/hangs?{}", "q".repeat(len)));
    let host = |name, len: usize| (name, format!("sim{}", "h".repeat(len)));
    let other = |len: usize| ("x-flood", "f".repeat(len));
    let shapes = [
        vec![host(":authority", 0), path(0), other(LONG)],
        vec![host(":authority", 0), path(LONG)],
        vec![host(":authority", 200), path(LONG - 300), other(100)],
        vec![host(":authority", LONG), path(0)],
        vec![path(0), host("host", LONG)],
        vec![path(LONG / 2), host("host", LONG / 2)],
    ];
    for lines in shapes {
        let mut server = Server::new(Faults::none());
        server.disk.put_file("hangs", "hangs");
        server.disk.slow_file("hangs", HANGS_NS);
        let flood: Vec<_> = (0..4).map(|_| server.connect()).collect();
        let ask = |client: &Client, streams: std::ops::Range<u32>| {
            for stream in streams {
                client.write(&request(2 * stream + 1, &lines));
            }
        };
        for client in &flood {
            client.write(&wide_opening());
            ask(client, 0..128);
        }
        server.until("all are received", || {
            flood.iter().all(|client| client.unreceived() == 0)
        });
        for client in &flood {
            for stream in 0..100 {
                client.write(&rst_stream(2 * stream + 1, CANCEL));
            }
            ask(client, 128..228);
        }
        server.pass(500);
        let full = holding(&server, Account::Waiting);
        for client in &flood {
            let is_held_back = client.unreceived() > LONG;
            assert!(is_held_back || !are_abandoned_kept, "{full:?}");
            assert_eq!(client.end(), End::Open);
        }
        others_are_served(&mut server, None);
        flood.iter().for_each(Client::reset);
        server.disk.slow_file("hangs", 0);
        // Pending disk operations end when the disk completes them.
        server.pass(HANGS_NS / MS);
        check_given_back(&mut server, Account::Waiting, 3 * MIB);
    }
}

/// Content read for streams of a stalled peer, and short responses to requests of a client that
/// does not read.
#[test]
pub(crate) fn answers_that_are_not_taken_have_a_bound() {
    // Each read is a separate operation: the maximum is pending at once.
    let mut server = Server::new(Faults {
        cold: 1_000,
        ..Faults::none()
    });
    for number in 0..100 {
        server
            .disk
            .put_file(&format!("long{number}"), vec![b'l'; 1 << 20]);
    }
    let flood: Vec<_> = (0..FLOOD).map(|_| server.connect()).collect();
    for client in &flood {
        let mut bytes = wide_opening();
        for number in 0..100 {
            let block = h2::request("GET", &format!("/long{number}"), &[]);
            bytes.extend(headers(2 * number + 1, &block));
        }
        client.write(&bytes);
    }
    server.pass(1_000);
    others_are_served(&mut server, None);
    flood.iter().for_each(Client::reset);
    check_given_back(&mut server, Account::Answers, 100 * KIB);

    let mut server = Server::new(Faults {
        socket_capacity: 4_096,
        ..Faults::none()
    });
    server.disk.put_file("short", vec![b's'; 8 << 10]);
    let flood: Vec<_> = (0..FLOOD).map(|_| server.connect()).collect();
    for client in &flood {
        client.write(&get("short").repeat(1_000));
    }
    server.pass(500);
    // The engine holds these while it sends them: as much as is gathered for one send, and an answer.
    let untaken = server.disk.untaken() / FLOOD as u64;
    assert!(
        (32 * KIB..=100 * KIB).contains(&untaken),
        "{untaken} for each"
    );
    others_are_served(&mut server, None);
    flood.iter().for_each(Client::reset);
    check_given_back(&mut server, Account::Sends, 32 * KIB);
    assert_eq!(server.disk.untaken(), 0);
}

/// An endless field block, priorities of streams that are never opened, requests that never end,
/// entries of the dynamic table, and pings from clients that do not read.
#[test]
pub(crate) fn tables_and_control_frames_have_a_bound() {
    let mut server = Server::new(Faults::none());
    let flood: Vec<_> = (0..FLOOD).map(|_| server.connect()).collect();
    for (number, client) in flood.iter().enumerate() {
        let mut bytes = opening(&[]);
        for stream in 0..100u32 {
            let mut block = h2::request("GET", "/small", &[]);
            block.extend(h2::indexed(&format!("x-{stream}"), &[b'v'; 100]));
            bytes.extend(frame(HEADERS, END_HEADERS, 2 * stream + 1, &block));
        }
        for stream in 1_000..1_040u32 {
            let payload = [&(2 * stream + 1).to_be_bytes()[..], b"u=1"].concat();
            bytes.extend(frame(PRIORITY_UPDATE, 0, 0, &payload));
        }
        // Half of them stop within a block; the other half do not read.
        if number % 2 == 0 {
            let mut block = h2::block(&[("x-endless", &"e".repeat(20_000))]);
            block.truncate(16_000);
            bytes.extend(frame(HEADERS, 0, 401, &block));
            bytes.extend(frame(CONTINUATION, 0, 401, &[b'e'; 4_000]));
            bytes.extend(frame(CONTINUATION, 0, 401, &[b'e'; 8_000]));
        } else {
            bytes.extend(frame(PING, 0, 0, b"no pong!").repeat(3_000));
        }
        client.write(&bytes);
    }
    // Behind answers that are not taken nothing is received: a block arrives only if they are read.
    server.pass_while(200, || {
        flood.iter().step_by(2).for_each(|it| drop(it.read()));
    });
    others_are_served(&mut server, None);
    flood.iter().for_each(Client::reset);
    check_given_back(&mut server, Account::Streams, 32 * KIB);
}

/// Files of the maximum length that is copied, on a slow disk: four of them at once.
#[test]
pub(crate) fn first_reads_have_a_bound() {
    const LEN: u64 = 4 * MIB;
    let driver = Sim::new(1, 1, &EngineOptions::default(), Faults::none());
    let disk = driver.handle();
    disk.put_file("small", "small");
    for number in 0..12 {
        let name = format!("cold{number}");
        disk.put_file(&name, vec![b'c'; LEN as usize]);
        disk.slow_file(&name, 200 * MS);
    }
    disk.age_files(100_000);
    let content = directory(&disk);
    let options = ContentOptions::default();
    let driven = Driven::new(driver, content, &options, LIMITS, None).expect("no archive");
    let mut server = Server { driven, disk };
    let flood: Vec<_> = (0..12).map(|_| server.connect()).collect();
    for (number, client) in flood.iter().enumerate() {
        client.write(&get(&format!("cold{number}")));
    }
    server.until("room is used up", || true);
    server.pass(300);
    assert_eq!(holding(&server, Account::FirstReads).held, 4 * LEN);
    others_are_served(&mut server, None);
    server.until("all are answered", || {
        flood.iter().all(|client| client.readable() > 0)
    });
    assert_eq!(holding(&server, Account::FirstReads).peak, 4 * LEN);
    flood.iter().for_each(Client::reset);
    check_given_back(&mut server, Account::FirstReads, 4 * LEN);
}

/// A unique body of the maximum length that is loaded. Its gzip is only slightly shorter.
fn long_body(number: usize) -> Vec<u8> {
    let mut body = vec![b'z'; (MIB as usize) - number];
    let mut seed = number as u64 + 1;
    body[..900_000].fill_with(|| {
        seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        (seed >> 56) as u8
    });
    body
}

/// Bodies of an archive served from its file, each requested by a stalled peer. Those stored without a coding
/// are sent from the file; of the others, no more are in memory than fit.
#[test]
pub(crate) fn bodies_that_are_loaded_have_a_bound() {
    const COUNT: usize = 48;
    for is_gzip in [false, true] {
        let mut packing = Packing::new();
        packing.add("small", b"small", None);
        for number in 0..COUNT {
            match is_gzip {
                true => packing.add_decoded(&number.to_string(), &long_body(number)),
                false => packing.add(&number.to_string(), &long_body(number), None),
            }
        }
        let mut server = Server::of_archive(packing, 0);
        let flood: Vec<_> = (0..COUNT).map(|_| server.connect()).collect();
        for (number, client) in flood.iter().enumerate() {
            let host = (":authority", "sim".to_owned());
            client.write(&wide_opening());
            client.write(&request(1, &[host, (":path", format!("/{number}"))]));
        }
        server.pass(400);
        let full = holding(&server, Account::Copies);
        match is_gzip {
            true => assert!(full.held > most(&full) - 2 * MIB, "{full:?}"),
            false => assert_eq!(full.held, 0, "nobody has asked for them before"),
        }
        others_are_served(&mut server, None);
        let mut got = [0; COUNT];
        server.pass_while(2_000, || {
            for (client, got) in flood.iter().zip(&mut got) {
                *got += client.read().len();
            }
        });
        let whole = got.iter().filter(|got| **got as u64 >= MIB).count() as u64;
        match is_gzip {
            true => assert_eq!(whole, full.held / (MIB - COUNT as u64)),
            false => assert_eq!(whole, COUNT as u64, "{got:?}"),
        }
        flood.iter().for_each(Client::reset);
        server.pass(3_000);
        let after = holding(&server, Account::Copies);
        assert!(after.held <= MIB, "{after:?}: the last one is cached");
    }
}

/// Bodies that an archive stores only as gzip of maximum length: sixteen are held.
#[test]
pub(crate) fn gzip_that_is_to_be_inflated_has_a_bound() {
    const COUNT: usize = 24;
    let mut packing = Packing::new();
    packing.add("small", b"small", None);
    for number in 0..COUNT {
        packing.add_decoded(&number.to_string(), &long_body(number));
    }
    let mut server = Server::of_archive(packing, COUNT as u64 * MIB);
    server.disk.slow_file("site.gannet", 100 * MS);
    let flood: Vec<_> = (0..COUNT).map(|_| server.connect()).collect();
    for (number, client) in flood.iter().enumerate() {
        client.write(&get(&number.to_string()));
    }
    server.pass(50);
    others_are_served(&mut server, None);
    server.until("all are answered", || {
        flood.iter().all(|client| client.readable() > 0)
    });
    assert_eq!(server.driven.counters().decoded, COUNT as u64);
    flood.iter().for_each(Client::reset);
    check_given_back(&mut server, Account::Loads, 13 * MIB);
}

/// A burst of requests for missing files, each with a lookup of two paths and more: a bounded number per
/// turn, and other requests wait for no more than a turn.
#[test]
pub(crate) fn lookups_have_a_budget_in_a_turn() {
    const PER_TURN: u64 = 32;
    let mut server = Server::new(Faults::none());
    let flood: Vec<_> = (0..4).map(|_| server.connect()).collect();
    for client in &flood {
        client.write(&wide_opening());
        for stream in 0..128 {
            let path = (":path", "/q".repeat(60));
            let host = (":authority", "sim".to_owned());
            client.write(&request(2 * stream + 1, &[host, path]));
        }
    }
    let mut before = 0;
    while before < 4 * 128 {
        server.driven.turn(None).expect("it goes on");
        let missing = server.driven.counters().by_status.get(&404).copied();
        let now = missing.unwrap_or(0);
        assert!(
            now <= before + PER_TURN,
            "{before} before the turn, {now} after it"
        );
        before = now;
    }
    others_are_served(&mut server, None);
}

/// Streams without a window, each for the same short live file: it is in memory once.
#[test]
pub(crate) fn a_short_file_that_streams_wait_with_is_shared() {
    let mut server = Server::new(Faults::none());
    server.disk.put_file("short", vec![b's'; 8_000]);
    server.disk.age_files(100_000);
    let client = server.connect();
    client.write(&opening(&[(INITIAL_WINDOW_SIZE, 0)]));
    for stream in 0..100 {
        let path = (":path", "/short".to_owned());
        let host = (":authority", "sim".to_owned());
        client.write(&request(2 * stream + 1, &[host, path]));
    }
    server.pass(500);
    assert_eq!(server.driven.counters().responses[1], 100);
    let answers = holding(&server, Account::Answers);
    assert!(answers.peak <= 64 * KIB, "{answers:?}");
}

/// Answers in eight parts to streams without a window: what is between the parts is in memory once, and
/// the account has all that is held, the parts themselves included.
#[test]
pub(crate) fn answers_in_many_parts_that_are_not_taken_are_counted() {
    const STREAMS: u32 = 100;
    let mut server = Server::new(Faults::none());
    server.disk.put_file("short", vec![b's'; 8_000]);
    server.disk.age_files(100_000);
    let client = server.connect();
    client.write(&opening(&[(INITIAL_WINDOW_SIZE, 0)]));
    let ranges: Vec<_> = (0..8)
        .map(|part| format!("{0}-{0}", part * 1_000))
        .collect();
    for stream in 0..STREAMS {
        let path = (":path", "/short".to_owned());
        let host = (":authority", "sim".to_owned());
        let range = ("range", format!("bytes={}", ranges.join(",")));
        client.write(&request(2 * stream + 1, &[host, path, range]));
    }
    server.pass(500);
    let counters = server.driven.counters();
    assert_eq!(counters.by_status.get(&206), Some(&u64::from(STREAMS)));
    let answers = holding(&server, Account::Answers);
    let each = answers.held / u64::from(STREAMS);
    assert!(
        (1_500..2_700).contains(&each),
        "{each} bytes for each answer"
    );
    client.reset();
    check_given_back(&mut server, Account::Answers, 150_000);
}

/// Concurrent first requests for one path, each on its own connection, with far fewer descriptors:
/// all are answered.
#[test]
pub(crate) fn a_crowd_that_asks_for_the_same_needs_few_descriptors() {
    const DESCRIPTORS: usize = 8;
    const CROWD: usize = 400;
    for (file, len) in [("long.css", 300_000), ("short.css", 2_000)] {
        // Each operation takes time, and the file stays open while its sidecars are looked up.
        let mut server = Server::new(Faults {
            files_max: DESCRIPTORS,
            cold: 1_000,
            delay_max_ns: 5 * MS,
            ..Faults::none()
        });
        server.disk.put_file(file, vec![b'x'; len]);
        server.disk.age_files(100_000);
        let crowd: Vec<_> = (0..CROWD)
            .map(|_| {
                let client = server.connect();
                client.write(&get(file));
                client
            })
            .collect();
        for client in &crowd {
            server.until("an answer", || client.readable() > 12);
            assert_eq!(&client.read()[9..12], b"200", "{file}");
        }
        let counters = server.driven.counters();
        assert!(
            counters.deferred_lookups > 0,
            "{file}: no lookup was deferred"
        );
        assert!(server.disk.leaks().files_open <= DESCRIPTORS);
    }
}

/// As many files as descriptors are being sent to stalled peers: a request for another file gets
/// 503, one for a cached file is served, and service is normal when the peers are gone.
#[test]
pub(crate) fn descriptors_that_peers_hold_are_missed_and_come_back() {
    const DESCRIPTORS: usize = 8;
    let faults = Faults {
        files_max: DESCRIPTORS,
        ..Faults::none()
    };
    // Longer than any wait in this test.
    let limits = Limits {
        progress_timeout_ms: 60_000,
        ..LIMITS
    };
    let (mut server, _) = Server::with_tls(faults, limits, Tls::None, ENCRYPTED_RECORDS_MAX);
    for number in 0..=DESCRIPTORS {
        server
            .disk
            .put_file(&format!("long{number}"), vec![b'l'; 300_000]);
    }
    others_are_served(&mut server, None);
    let flood: Vec<_> = (0..DESCRIPTORS)
        .map(|number| {
            let client = server.connect();
            client.write(&get(&format!("long{number}")));
            server.until("it has begun", || client.readable() > 1_000);
            client
        })
        .collect();
    let last = format!("long{DESCRIPTORS}");
    let status = |server: &mut Server| {
        let client = server.connect();
        client.write(&get(&last));
        server.until("an answer", || client.readable() > 12);
        String::from_utf8_lossy(&client.read()[9..12]).into_owned()
    };
    for _ in 0..3 {
        assert_eq!(status(&mut server), "503");
        assert!(server.disk.leaks().files_open <= DESCRIPTORS);
    }
    // Responses in progress are not affected.
    let mut got = 0;
    server.until("the first one is whole", || {
        got += flood[0].read().len();
        got > 300_000
    });
    drop(flood);
    server.pass(100);
    assert_eq!(status(&mut server), "200");
}

/// A stream that is reset during a lookup causes no further reads and does not count as answered.
#[test]
pub(crate) fn a_reset_stops_a_lookup() {
    let mut server = Server::new(Faults {
        cold: 1_000,
        ..Faults::none()
    });
    server.disk.slow_file("small", 500 * MS);
    let client = server.connect();
    client.write(&wide_opening());
    client.write(&headers(1, &h2::request("GET", "/small", &[])));
    server.pass(100);
    client.write(&rst_stream(1, CANCEL));
    server.pass(5_000);
    let counters = server.driven.counters();
    assert_eq!((counters.cache_misses, counters.h2_resets), (1, 1));
    assert_eq!((counters.first_reads, counters.responses_total()), (0, 0));
}
