//! TLS in the simulation: what each side waits for, and what a peer can make the server hold.

use gannet_io::sim::{End, Faults};
use gannet_server::tls::limits::ENCRYPTED_RECORDS_MAX;
use gannet_testkit::h2::{headers, request, wide_opening};

use crate::run::{LIMITS, Tls};
use crate::server::{Server, check_about, get};
use crate::wire::Wire;

/// A connection whose handshake is over; nothing was asked for.
fn shaken(server: &mut Server, config: Option<&std::sync::Arc<rustls::ClientConfig>>) -> Wire {
    let wire = Wire::connect(&server.disk, config, usize::MAX).expect("it listens");
    server.until("the handshake", || {
        assert!(wire.read_at_most(1 << 20).expect("true records").is_empty());
        !wire.is_shaking()
    });
    wire
}

/// The end of a client's handshake is answered before it asks for anything: a client without
/// `TCP_NODELAY` sends its request only when that was acknowledged.
#[test]
fn tickets_arrive_before_any_request() {
    let (mut server, config) =
        Server::with_tls(Faults::none(), LIMITS, Tls::Own, ENCRYPTED_RECORDS_MAX);
    let wire = shaken(&mut server, config.as_ref());
    server.until("tickets", || {
        assert!(wire.read_at_most(1 << 20).expect("true records").is_empty());
        wire.tickets() == 2
    });
    let mut got = Vec::new();
    wire.write(&get("small"));
    server.until("an answer", || {
        got.extend(wire.read_at_most(1 << 20).expect("true records"));
        got.ends_with(b"small")
    });
    // What came with a request leaves with its answer, and is no flight of its own.
    let wire = Wire::connect(&server.disk, config.as_ref(), usize::MAX).expect("it listens");
    wire.write(&get("small"));
    server.until("an answer", || {
        wire.read_at_most(1 << 20)
            .expect("true records")
            .ends_with(b"small")
    });
    assert_eq!(wire.tickets(), 2);
}

/// Tickets are no answer: a connection that asks for nothing has the time of a first request, and
/// not that of one that rests.
#[test]
fn a_handshake_alone_does_not_rest() {
    let (mut server, config) =
        Server::with_tls(Faults::none(), LIMITS, Tls::Own, ENCRYPTED_RECORDS_MAX);
    let wire = shaken(&mut server, config.as_ref());
    let took = server.until("the end", || {
        assert!(wire.read_at_most(1 << 20).expect("true records").is_empty());
        wire.end() != End::Open
    });
    check_about(took, LIMITS.head_timeout_ms);
    assert_eq!(wire.end(), End::Finished, "with a goodbye");
    // A stop gives it a moment: its first request may be on the way.
    let wire = shaken(&mut server, config.as_ref());
    server.pass(100);
    server.driven.stop();
    wire.write(&get("small"));
    let mut got = Vec::new();
    server.until("an answer", || {
        got.extend(wire.read_at_most(1 << 20).expect("true records"));
        got.ends_with(b"small")
    });
}

/// What may wait for a peer beside its socket: 48 KiB of content, half a frame that is not cut for
/// the bound's sake, and what encrypts and frames all of it.
const UNTAKEN_MAX: u64 = 60_000;

/// However fast a peer was: once it takes nothing, what was made for it and does not fit its socket
/// is little. Thousands of them may do so at once.
#[test]
fn a_peer_that_stalls_has_little_made_for_it() {
    for tls in [Tls::None, Tls::Own] {
        for stalls_after in [0, 1, 500_000, 2_000_000, 3_333_333] {
            let faults = Faults {
                socket_capacity: 1 << 20,
                ..Faults::none()
            };
            let (mut server, config) = Server::with_tls(faults, LIMITS, tls, ENCRYPTED_RECORDS_MAX);
            server.disk.put_file("huge", vec![b'H'; 8 << 20]);
            let connect = || Wire::connect(&server.disk, config.as_ref(), usize::MAX);
            let wire = connect().expect("it listens");
            wire.write(&get("huge"));
            let mut got = 0;
            server.until("it has begun", || {
                let most = if got < stalls_after { 1 << 20 } else { 0 };
                let most = if wire.is_shaking() { 1 << 20 } else { most };
                got += wire.read_at_most(most).expect("true records").len();
                got >= stalls_after && !wire.is_shaking()
            });
            server.pass(200);
            let untaken = server.disk.untaken();
            assert!(untaken <= UNTAKEN_MAX, "{tls:?} after {got}: {untaken}");
            // It had only stopped for a while.
            server.until("the rest", || {
                got += wire.read_at_most(1 << 20).expect("true records").len();
                got > 8 << 20
            });
        }
    }
}

/// The same over HTTP/2, where many streams could each have something made for them.
#[test]
fn a_peer_that_stalls_its_streams_has_little_made_for_it() {
    for stalls_after in [0, 500_000, 3_333_333] {
        let faults = Faults {
            socket_capacity: 1 << 20,
            ..Faults::none()
        };
        let mut server = Server::new(faults);
        server.disk.put_file("huge", vec![b'H'; 2 << 20]);
        let client = server.connect();
        client.write(&wide_opening());
        let mut got = 0;
        for stream in 0..50 {
            // They take turns.
            let block = request("GET", "/huge", &[("priority", "i")]);
            client.write(&headers(2 * stream + 1, &block));
        }
        server.until("it has begun", || {
            got += client.read_at_most(1 << 20).len();
            got > stalls_after
        });
        server.pass(200);
        let untaken = server.disk.untaken();
        assert!(untaken <= UNTAKEN_MAX, "after {got}: {untaken}");
        server.until("the rest", || {
            got += client.read().len();
            got > 100 << 20
        });
    }
}
