//! HTTP/3: every deadline of the server, and progress and shutdown.

use std::sync::Arc;
use std::time::Duration;

use gannet_io::sim::Faults;
use gannet_server::config::Limits;
use gannet_server::stages::Stage;
use gannet_testkit::h3::{
    self, Answer, GOAWAY, NO_ERROR, REQUEST_CANCELLED, REQUEST_REJECTED, control, take_varint,
};
use gannet_testkit::quic::Received;
use quinn_proto::{ConnectionError, Dir, StreamId};
use rustls::ClientConfig;

use crate::link::{Link, Opening};
use crate::run::{LIMITS, Tls};
use crate::server::{LARGE, LATE_MS, Server, check_about};

/// H3_REQUEST_INCOMPLETE (RFC 9114 section 8.1).
const REQUEST_INCOMPLETE: u64 = 0x10d;

/// Timeouts that differ, so that the time shows which one has ended a connection.
const TIMES: Limits = Limits {
    idle_timeout_ms: 30_000,
    ..LIMITS
};

fn server(limits: Limits) -> (Server, Arc<ClientConfig>) {
    let faults = Faults {
        datagram_latency_ns: 5_000_000,
        ..Faults::none()
    };
    Server::with_datagrams(faults, limits)
}

/// Handles the clients' timers, and reads their datagrams.
pub(crate) fn until(
    server: &mut Server,
    what: &str,
    links: &mut [&mut Link],
    mut is_so: impl FnMut(&mut [&mut Link]) -> bool,
) -> u64 {
    server.until(what, || {
        for link in &mut *links {
            link.step();
            link.core.read(usize::MAX);
        }
        is_so(links)
    })
}

/// A client whose handshake has completed.
pub(crate) fn connected(
    server: &mut Server,
    config: &Arc<ClientConfig>,
    opening: &Opening,
) -> Link {
    connected_with(server, config, opening, None)
}

/// The same, sending keep-alives at an interval.
pub(crate) fn connected_with(
    server: &mut Server,
    config: &Arc<ClientConfig>,
    opening: &Opening,
    keeps_alive: Option<Duration>,
) -> Link {
    let mut link = Link::connect_with(&server.disk, config, opening, |transport| {
        transport.keep_alive_interval(keeps_alive);
    });
    until(server, "the handshake", &mut [&mut link], |links| {
        links[0].core.is_connected()
    });
    link.open(Dir::Uni, &control(&[]), false);
    link.send();
    link
}

/// The response on a stream.
pub(crate) fn answer(server: &mut Server, link: &mut Link, id: StreamId) -> Answer {
    until(server, "an answer", &mut [&mut *link], |links| {
        let received = links[0].core.received(id);
        assert_eq!(links[0].core.lost, None);
        received.is_some_and(Received::is_over)
    });
    let received = link.core.received(id).expect("just seen");
    assert!(received.is_finished, "{received:?}");
    Answer::parse(&received.bytes)
}

/// The time until the server closes the connection, in milliseconds, and its error code.
fn closed(server: &mut Server, link: &mut Link, mut act: impl FnMut(&mut Link)) -> (u64, u64) {
    let took = server.until("the end", || {
        link.step();
        act(link);
        link.send();
        link.core.lost.is_some()
    });
    match &link.core.lost {
        Some(ConnectionError::ApplicationClosed(close)) => (took, close.error_code.into_inner()),
        other => panic!("closed in another way: {other:?}"),
    }
}

#[test]
fn a_handshake_has_its_time() {
    let (mut server, config) = server(TIMES);
    let link = Link::connect(&server.disk, &config, &Opening::new(0));
    // The server sends no CONNECTION_CLOSE.
    drop(link);
    server.until_it("it is accepted", |it| it.counters().connections_now == 1);
    let counters = server.driven.counters();
    assert_eq!(counters.stages[Stage::QuicHandshake].now, 1);
    assert_eq!(counters.secure_connections_now(), 1);
    let took = server.until_it("a timeout", |it| it.counters().timeouts == 1);
    check_about(took, TIMES.head_timeout_ms);
    let counters = server.driven.counters();
    assert_eq!(counters.tls.failed.get("timeout"), Some(&1));
    assert_eq!(counters.stages[Stage::Http3].total, 0);
    assert_eq!(counters.secure_connections_now(), counters.connections_now);
    server.until_it("nothing is left", |it| it.counters().connections_now == 0);
    assert_eq!(server.driven.counters().secure_connections_now(), 0);
}

/// Requests in early data are answered, but a client that never finishes its handshake has no more
/// time for them.
#[test]
fn early_data_does_not_extend_a_handshake() {
    let (mut server, config) = Server::with_quic(Faults::none(), TIMES, Tls::Early);
    let mut first = connected(&mut server, &config, &Opening::new(0));
    let id = first.get("/small");
    answer(&mut server, &mut first, id);
    first.close();
    server.until_it("it is over", |it| it.counters().connections_now == 0);
    let mut link = Link::connect(&server.disk, &config, &Opening::new(1));
    assert!(link.core.connection.has_0rtt());
    link.open(Dir::Uni, &control(&[]), false);
    let (disk, mut next) = (server.disk.clone(), 0);
    let took = server.until_it("a timeout", |it| {
        if disk.now().0 >= next {
            next = disk.now().0 + 500_000_000;
            link.get("/small");
        }
        link.step_deaf();
        it.counters().timeouts == 1
    });
    check_about(took, TIMES.head_timeout_ms);
    let counters = server.driven.counters();
    assert_eq!(counters.tls.failed.get("timeout"), Some(&1));
    let requests = counters.quic.requests;
    assert!(requests > 3, "{requests}");
}

#[test]
fn a_request_that_is_not_whole_has_its_time() {
    let (mut server, config) = server(TIMES);
    let mut link = connected(&mut server, &config, &Opening::new(0));
    let request = h3::request("GET", "/small", &[]);
    let half = &request[..request.len() - 1];
    let ids = [half, &half[..1], &[]].map(|bytes| link.open(Dir::Bi, bytes, false));
    let ids = ids.map(|id| id.expect("granted"));
    let took = until(&mut server, "resets", &mut [&mut link], |links| {
        let over = |id: &StreamId| links[0].core.received(*id).is_some_and(Received::is_over);
        ids.iter().all(over)
    });
    check_about(took, TIMES.head_timeout_ms);
    for id in ids {
        let received = link.core.received(id).expect("just seen");
        let codes = (received.reset, received.stopped);
        assert_eq!(codes, (Some(REQUEST_INCOMPLETE), Some(REQUEST_INCOMPLETE)));
    }
    assert_eq!(server.driven.counters().timeouts, 3);
    // The connection continues.
    let id = link.get("/small");
    assert_eq!(answer(&mut server, &mut link, id).body, b"small");
}

/// A lookup and a read that hang end like a client that takes nothing, and with them their requests.
#[test]
fn a_disk_that_hangs_has_its_time() {
    const H3_INTERNAL_ERROR: u64 = 0x102;
    let (mut server, config) = server(TIMES);
    let mut link = connected(&mut server, &config, &Opening::new(0));
    // The file is known by then: only reads hang.
    let id = link.get("/large");
    assert_eq!(answer(&mut server, &mut link, id).body.len(), LARGE);
    server.disk.put_file("hangs", vec![b'h'; 10]);
    for name in ["hangs", "large"] {
        server.disk.slow_file(name, 600_000_000_000);
    }
    let ids = ["/hangs", "/large"].map(|path| link.get(path));
    let took = until(&mut server, "resets", &mut [&mut link], |links| {
        let over = |id: &StreamId| links[0].core.received(*id).is_some_and(Received::is_over);
        ids.iter().all(over)
    });
    check_about(took, TIMES.progress_timeout_ms);
    for id in ids {
        let received = link.core.received(id).expect("just seen");
        assert_eq!(received.reset, Some(H3_INTERNAL_ERROR));
    }
    assert_eq!(server.driven.counters().timeouts, 2);
    // The connection continues.
    let id = link.get("/small");
    assert_eq!(answer(&mut server, &mut link, id).body, b"small");
}

/// A client that requests much and reads nothing, with and without keep-alives; and one that has
/// read some.
#[test]
fn a_client_that_takes_nothing_is_cut_off() {
    let alive = Some(Duration::from_millis(40));
    for (windows, keeps_alive) in [
        ((0, 1 << 20), None),
        ((0, 1 << 20), alive),
        ((1_000, 1_000), None),
        ((1_000, 1_000), alive),
        ((50_000, 60_000), alive),
    ] {
        let (mut server, config) = server(TIMES);
        let opening = Opening {
            windows,
            ..Opening::new(0)
        };
        let mut link = connected_with(&mut server, &config, &opening, keeps_alive);
        link.get("/large");
        let (took, code) = closed(&mut server, &mut link, |_| {});
        assert_eq!(code, REQUEST_CANCELLED);
        // Bytes it accepted at first count for its first period, and so do probes for the path's
        // MTU.
        let time = TIMES.progress_timeout_ms;
        assert!((time..=2 * time + LATE_MS).contains(&took), "{took} ms");
        let counters = server.driven.counters();
        assert_eq!((counters.timeouts, counters.cut_short), (1, 1));
    }
}

/// A client that reads more slowly than the minimum rate, however steadily, is cut off; one that
/// reads faster is not, however small its windows.
#[test]
fn slow_is_not_too_slow() {
    let take = |bytes: usize| {
        let (mut server, config) = server(TIMES);
        let opening = Opening {
            windows: (2_000, 2_000),
            ..Opening::new(0)
        };
        let alive = Some(Duration::from_millis(100));
        let mut link = connected_with(&mut server, &config, &opening, alive);
        link.get("/large");
        for _ in 0..40 {
            server.pass_while(500, || link.step());
            link.core.read(bytes);
            link.send();
        }
        link.core.lost.is_some()
    };
    assert!(take(100), "200 bytes a second");
    assert!(!take(600), "1,200 bytes a second");
}

/// An idle connection is closed, with or without keep-alives; a client that makes a request in time
/// stays connected.
#[test]
fn a_connection_may_rest_for_so_long() {
    for keeps_alive in [None, Some(Duration::from_secs(1))] {
        let (mut server, config) = server(LIMITS);
        let mut link = connected_with(&mut server, &config, &Opening::new(0), keeps_alive);
        for _ in 0..3 {
            let id = link.get("/small");
            answer(&mut server, &mut link, id);
            server.pass_while(LIMITS.idle_timeout_ms - 1_000, || link.step());
            assert_eq!(link.core.lost, None);
        }
        let took = until(&mut server, "the end", &mut [&mut link], |links| {
            links[0].core.lost.is_some()
        });
        assert!((900..=1_000 + LATE_MS).contains(&took), "{took} ms");
        if keeps_alive.is_some() {
            assert!(
                matches!(&link.core.lost, Some(ConnectionError::ApplicationClosed(close))
                    if close.error_code.into_inner() == NO_ERROR),
                "{:?}",
                link.core.lost
            );
        }
        server.until_it("nothing is left", |it| it.counters().connections_now == 0);
    }
}

/// The identifiers of the GOAWAY frames on the server's control stream.
fn goaways(link: &Link) -> Vec<u64> {
    let mut said = link.core.control();
    if take_varint(&mut said).is_none() {
        return Vec::new();
    }
    let mut ids = Vec::new();
    while let Some(frame) = h3::Frame::take(&mut said) {
        if frame.kind == GOAWAY {
            ids.push(take_varint(&mut &frame.payload[..]).expect("a number"));
        }
    }
    ids
}

/// Shutdown: responses in progress are completed, also those to requests that cross the GOAWAY;
/// later requests are refused; idle connections and unfinished handshakes are closed.
#[test]
fn a_stop_lets_answers_end() {
    let (mut server, config) = server(TIMES);
    let opening = Opening {
        windows: (20_000, 20_000),
        ..Opening::new(0)
    };
    let mut busy = connected(&mut server, &config, &opening);
    let mut idle = connected(&mut server, &config, &Opening::new(1));
    let large = busy.get("/large");
    server.pass_while(50, || busy.step());
    let mut fresh = Link::connect(&server.disk, &config, &Opening::new(2));
    server.pass(6);
    server.driven.stop();
    let crossing = busy.get("/small");
    until(
        &mut server,
        "the second GOAWAY",
        &mut [&mut idle],
        |links| {
            busy.step();
            goaways(&busy).len() == 2 || {
                // Its windows have room for the control stream, too.
                busy.core.read(1_000);
                links[0].core.lost.is_some() && goaways(&busy).len() == 2
            }
        },
    );
    assert_eq!(goaways(&busy), [(1 << 62) - 4, 8]);
    let late = busy.get("/small");
    let both = &mut [&mut busy, &mut idle, &mut fresh];
    until(&mut server, "the end", both, |links| {
        links.iter().all(|link| link.core.lost.is_some())
    });
    let body = |id| Answer::parse(&busy.core.received(id).expect("answered").bytes).body;
    assert_eq!(body(large).len(), LARGE);
    assert_eq!(body(crossing), b"small");
    let refused = busy.core.received(late).expect("refused");
    assert_eq!(refused.reset, Some(REQUEST_REJECTED));
    assert!(server.driven.is_over());
    assert_eq!(server.driven.counters().cut_short, 0);
}

/// A client that reads nothing does not delay shutdown beyond the grace period.
#[test]
fn a_stop_has_its_time() {
    let limits = Limits {
        progress_timeout_ms: 60_000,
        ..TIMES
    };
    let (mut server, config) = server(limits);
    let opening = Opening {
        windows: (0, 0),
        ..Opening::new(0)
    };
    let alive = Some(Duration::from_secs(1));
    let mut link = connected_with(&mut server, &config, &opening, alive);
    link.get("/large");
    server.pass_while(500, || link.step());
    server.driven.stop();
    let took = server.until_it("it is over", |it| {
        link.step();
        it.is_over()
    });
    check_about(took, limits.grace_ms);
}
