//! Many long responses at once, to clients whose sockets take all of them: by shares, behind what is new.

use std::sync::Arc;

use gannet_io::driver::Receipt;
use gannet_io::sim::Faults;
use gannet_server::tls::limits::ENCRYPTED_RECORDS_MAX;
use gannet_testkit::h2::{headers, request, wide_opening};
use rustls::ClientConfig;

use crate::run::{LIMITS, Tls};
use crate::server::{Server, get};
use crate::wire::Wire;

const MIB: usize = 1 << 20;

/// Clients, the bytes that each of them wants, and those that it has at the end of a test.
const CLIENTS: usize = 40;
const LONG: usize = 8 * MIB;
const ENOUGH: usize = 6 * MIB;

/// Bytes of one response after which it is the turn of others, and the longest slices.
const SHARE: usize = 2 * MIB;
const COPIED_SLICE: usize = 512 << 10;
const PAGES_SLICE: usize = 2 * MIB;

/// Bytes that all of them get in one turn of the worker.
const IN_A_TURN: usize = 16 * MIB;

/// Heads, and what TLS and frames add.
const OVERHEAD: usize = 256 << 10;

/// Turns that a new connection takes: it is accepted, its request arrives, its answer leaves.
const TURNS_OF_A_NEW_ONE: usize = 3;

/// Has all clients send `asks`, and follows what each has got from turn to turn.
fn check(mut server: Server, tls: Option<&Arc<ClientConfig>>, asks: &[u8], slice: usize) {
    server.disk.put_file("long", vec![b'L'; LONG]);
    server.disk.age_files(100_000);
    if tls.is_none() {
        // In the cache.
        server.body("small", 5);
    }
    let connect = |_| Wire::connect(&server.disk, tls, usize::MAX).expect("it listens");
    let wires: Vec<_> = (0..CLIENTS).map(connect).collect();
    server.until("all handshakes", || {
        let shaken = wires.iter().filter(|wire| {
            wire.read_at_most(MIB).expect("true records");
            !wire.is_shaking()
        });
        shaken.count() == CLIENTS
    });
    // Until all are accepted.
    server.pass(20);
    wires.iter().for_each(|wire| wire.write(asks));
    let got = || wires.iter().map(|wire| wire.client().readable());
    server.until("each has its first slice", || got().all(|got| got > 1_000));
    let newcomer = server.connect();
    newcomer.write(&get("small"));
    for turn in 1.. {
        let before: usize = got().sum();
        server.driven.turn(None).expect("the engine lives");
        let (least, most) = (got().min().unwrap(), got().max().unwrap());
        let in_turn = got().sum::<usize>() - before;
        assert!(
            most - least <= SHARE + slice + OVERHEAD,
            "{least} to {most}"
        );
        assert!(
            in_turn <= IN_A_TURN + slice + OVERHEAD,
            "{in_turn} in a turn"
        );
        if turn == TURNS_OF_A_NEW_ONE && tls.is_none() {
            assert!(newcomer.read().ends_with(b"small"), "behind long ones");
        }
        if least >= ENOUGH {
            assert!(turn > TURNS_OF_A_NEW_ONE, "too few turns to judge");
            return;
        }
    }
}

fn roomy() -> Faults {
    Faults {
        socket_capacity: 2 * LONG,
        ..Faults::none()
    }
}

#[test]
fn copies_and_pages_take_turns() {
    for (receipt, slice) in [
        (Receipt::Unknown, COPIED_SLICE),
        (Receipt::Acknowledged, PAGES_SLICE),
    ] {
        let server = Server::new(roomy());
        server.disk.set_receipt(receipt);
        check(server, None, &get("long"), slice);
    }
}

#[test]
fn encrypted_slices_take_turns() {
    let (server, config) = Server::with_tls(roomy(), LIMITS, Tls::Own, ENCRYPTED_RECORDS_MAX);
    check(server, config.as_ref(), &get("long"), COPIED_SLICE);
}

#[test]
fn connections_of_http2_take_turns() {
    let mut asks = wide_opening();
    asks.extend(headers(1, &request("GET", "/long", &[])));
    check(Server::new(roomy()), None, &asks, COPIED_SLICE);
}
