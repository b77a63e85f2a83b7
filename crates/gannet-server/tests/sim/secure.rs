//! TLS in the simulation: tickets, deadlines, and the memory that a peer can make the server hold.

use gannet_io::sim::{End, Faults};
use gannet_server::tls::limits::ENCRYPTED_RECORDS_MAX;
use gannet_testkit::h2::{headers, request, wide_opening};

use crate::run::{LIMITS, Tls};
use crate::server::{Server, check_about, get};
use crate::wire::Wire;

/// A connection after its handshake, without any request.
fn shaken(server: &mut Server, config: Option<&std::sync::Arc<rustls::ClientConfig>>) -> Wire {
    let wire = Wire::connect(&server.disk, config, usize::MAX).expect("it listens");
    server.until("the handshake", || {
        assert!(wire.read_at_most(1 << 20).expect("true records").is_empty());
        !wire.is_shaking()
    });
    wire
}

/// The server answers the end of a client's handshake before any request: a client without
/// `TCP_NODELAY` sends its request only once that is acknowledged.
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
    // With a request in the last flight, the tickets are sent together with the response.
    let wire = Wire::connect(&server.disk, config.as_ref(), usize::MAX).expect("it listens");
    wire.write(&get("small"));
    server.until("an answer", || {
        wire.read_at_most(1 << 20)
            .expect("true records")
            .ends_with(b"small")
    });
    assert_eq!(wire.tickets(), 2);
}

/// Tickets are no response: a connection without a request is subject to the deadline of the first
/// request, not to the idle timeout.
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
    assert_eq!(wire.end(), End::Finished, "with close_notify");
    // A stop waits briefly for its first request, which may be in flight.
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

/// Maximum bytes held for a peer besides its socket: 48 KiB of content, half a frame that the bound
/// does not cut, and the overhead of records and frames.
const UNTAKEN_MAX: u64 = 60_000;

/// However fast a peer was: once it stalls, little is held for it beyond its socket. Thousands of
/// peers may stall at once.
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
            // It had only paused.
            server.until("the rest", || {
                got += wire.read_at_most(1 << 20).expect("true records").len();
                got > 8 << 20
            });
        }
    }
}

/// The same over HTTP/2, where content could be held for each of many streams.
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
            // Incremental: they take turns.
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
