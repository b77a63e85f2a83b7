//! TLS in the simulation: tickets, deadlines, and the memory that a peer can make the server hold.

use gannet_io::driver::{Listener, Peer};
use gannet_io::options::EngineOptions;
use gannet_io::sim::{Client, End, Faults, Sim};
use gannet_server::config::{ContentOptions, Limits};
use gannet_server::driven::{Driven, DrivenContent, DrivenTls};
use gannet_server::tls::limits::ENCRYPTED_RECORDS_MAX;
use gannet_testkit::h2::{headers, request, wide_opening};
use gannet_testkit::tls::{Abilities, Authority};

use crate::directed::ask;
use crate::run::{LIMITS, Tls};
use crate::server::{LARGE, Server, check_about, get};
use crate::tls_support::{connect, from_client, on_demand};
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

/// A server whose sites have names without a certificate, and clients that ask for one.
fn without_certificate() -> (Server, impl Fn(&Server, &str) -> Client) {
    let folder = gannet_testkit::Folder::new();
    let (source, _) = on_demand(&folder, |name| name == "site.test");
    let driver = Sim::new(1, 1, &EngineOptions::default(), Faults::none());
    let disk = driver.handle();
    disk.put_file("small", "small");
    let tls = DrivenTls {
        certificates: source.open().expect("none is needed").store,
        kernel: None,
        key_records_max: ENCRYPTED_RECORDS_MAX,
        datagram_sockets: 0,
    };
    let content = DrivenContent::Directory(disk.root());
    let options = ContentOptions::default();
    let driven = Driven::new(driver, content, &options, LIMITS, Some(tls)).expect("a directory");
    let config = Authority::new().client(Abilities::default());
    let greet = move |server: &Server, address: &str| {
        let peer = Peer::Ip(format!("{address}:443").parse().expect("an address"));
        let client = server.disk.connect_from(Listener(0), peer);
        let client = client.expect("it listens");
        client.write(&from_client(&mut connect(&config, "site.test")));
        client
    };
    (Server { driven, disk }, greet)
}

/// `unrecognized_name`, in clear text.
const ALERT: &[u8] = &[21, 3, 3, 0, 2, 2, 112];

/// An address of which nothing is known.
const SOMEBODY: &str = "198.51.100.1";

/// Some bytes that a client may send behind its hello.
const MORE: &[u8] = &[20, 3, 3, 0, 1, 1];

/// Clients of whom each has an address of its own.
fn address(number: usize) -> String {
    format!("192.0.2.{number}")
}

/// A handshake that waits for a certificate ends by an alert, not later because the client goes on
/// sending.
#[test]
fn who_waits_for_a_certificate_is_told_that_there_is_none() {
    let (mut server, greet) = without_certificate();
    let client = greet(&server, SOMEBODY);
    server.pass(HELD_HELLO_MS / 2);
    client.write(MORE);
    server.pass(HELD_HELLO_MS / 2 - 1000);
    assert_eq!(client.read(), b"");
    server.until("an alert", || client.read() == ALERT);
    // One that sends more than it can have to say.
    let client = greet(&server, SOMEBODY);
    server.pass(100);
    client.write(&MORE.repeat(1 << 15));
    let took = server.until("an alert", || client.read() == ALERT);
    assert!(took < HELD_HELLO_MS / 2, "{took} ms");
    // A stop waits for no certificate.
    let client = greet(&server, SOMEBODY);
    server.pass(1000);
    assert_eq!(client.read(), b"");
    server.driven.stop();
    server.until("an alert", || client.read() == ALERT);
}

/// One whose client has gone ends at once, whatever has come from it before.
#[test]
fn who_waits_for_a_certificate_and_goes_is_forgotten() {
    let (mut server, greet) = without_certificate();
    for (before, after) in [(&b""[..], &b""[..]), (b"", MORE), (MORE, b""), (MORE, MORE)] {
        for is_late in [false, true] {
            let client = greet(&server, SOMEBODY);
            client.write(before);
            if is_late {
                server.pass(100);
            }
            client.write(after);
            client.shutdown_write();
            let took = server.until("its end", || client.is_closed_by_server());
            assert!(took < 1000, "{took} ms {before:?} {after:?} {is_late}");
            assert_eq!(client.read(), b"");
        }
    }
}

/// Of one client a few wait, so that others have places; of all of them together a bound.
#[test]
fn who_asks_for_certificates_from_one_address_leaves_places() {
    let (mut server, greet) = without_certificate();
    let mut check = |addresses: &[String], refused: usize| {
        let clients: Vec<_> = addresses.iter().map(|it| greet(&server, it)).collect();
        server.pass(1000);
        let ends = clients.iter().filter(|client| client.read() == ALERT);
        assert_eq!(ends.count(), refused, "{addresses:?}");
        clients
    };
    let flood = |address: &str| vec![address.to_owned(); HELD_HELLOS_OF_CLIENT_MAX + 10];
    let mut held = check(&flood(SOMEBODY), 10);
    // Whoever has a network has as many addresses as it likes.
    let many = (1..=HELD_HELLOS_OF_CLIENT_MAX + 10).map(|it| format!("[2001:db8::{it:x}]"));
    held.extend(check(&many.collect::<Vec<_>>(), 10));
    held.extend(check(&["[2001:db8:0:1::1]".to_owned(), address(200)], 0));
    let others = HELD_HELLOS_MAX - 2 * HELD_HELLOS_OF_CLIENT_MAX - 2;
    held.extend(check(&(0..others).map(address).collect::<Vec<_>>(), 0));
    check(&[address(201)], 1);
    // Who goes makes room, for itself and for others.
    held.drain(..1);
    check(&[SOMEBODY.to_owned()], 0);
    drop(held);
    check(&flood(SOMEBODY), 10);
    check(
        &(0..=HELD_HELLOS_MAX / 2).map(address).collect::<Vec<_>>(),
        0,
    );
}

/// As in the server's limits.
const HELD_HELLO_MS: u64 = 30_000;
const HELD_HELLOS_MAX: usize = 256;
const HELD_HELLOS_OF_CLIENT_MAX: usize = HELD_HELLOS_MAX / 8;

/// With a full table of connections of which the kernel holds records, all of which would end later, a newcomer ends
/// few of them, and there is room for others soon after.
#[test]
fn a_newcomer_ends_few_connections_with_records_of_the_kernel() {
    const MOST: u32 = 40;
    let limits = Limits {
        connections_max: MOST,
        ..LIMITS
    };
    let tls = Tls::Kernel { can_update: true };
    let (mut server, config) = Server::with_tls(Faults::none(), limits, tls, 1_000);
    let wires: Vec<_> = (0..MOST)
        .map(|_| {
            let wire = Wire::connect(&server.disk, config.as_ref(), usize::MAX).expect("room");
            ask(&mut server, &wire, "large", LARGE);
            for _ in 0..2 {
                wire.write(&get("small"));
                server.pass(20);
            }
            wire
        })
        .collect();
    // All of them have been idle for longer than who is about to ask again.
    server.pass(200);
    let newcomer = server.connect();
    server.until("it is refused", || newcomer.is_closed_by_server());
    // Their clients read all that they are sent, and those that are to end are ended.
    let mut got = vec![0; wires.len()];
    let mut ended = || {
        for (got, wire) in got.iter_mut().zip(&wires) {
            *got += wire.read_at_most(usize::MAX).expect("true records").len();
        }
        assert!(got.iter().all(|len| *len > 2 * 5), "all have their answers");
        wires.iter().filter(|wire| wire.end() != End::Open).count()
    };
    server.until("some end", || ended() > 0);
    server.pass_while(100, || {
        ended();
    });
    assert_eq!(ended(), 4);
    let second = Wire::connect(&server.disk, config.as_ref(), usize::MAX).expect("room");
    assert!(ask(&mut server, &second, "small", 5).len() > 1);
}
