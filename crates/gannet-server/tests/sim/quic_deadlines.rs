//! HTTP/3: what each side waits for, and for how long.

use std::sync::Arc;
use std::time::Duration;

use gannet_io::sim::Faults;
use gannet_server::config::Limits;
use gannet_testkit::h3::{
    self, Answer, GOAWAY, NO_ERROR, REQUEST_CANCELLED, REQUEST_REJECTED, control, take_varint,
};
use gannet_testkit::quic::Received;
use quinn_proto::{ConnectionError, Dir, StreamId};
use rustls::ClientConfig;

use crate::link::{Link, Opening};
use crate::run::LIMITS;
use crate::server::{LARGE, LATE_MS, Server, check_about};

/// A request that did not come whole (RFC 9114 section 8.1).
const REQUEST_INCOMPLETE: u64 = 0x10d;

/// Timeouts that differ, so that what has ended a connection shows.
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

/// Clients that do what is due, and read what comes.
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

/// A client whose handshake is over.
pub(crate) fn connected(
    server: &mut Server,
    config: &Arc<ClientConfig>,
    opening: &Opening,
) -> Link {
    connected_with(server, config, opening, None)
}

/// The same; it says every so often that it is there.
fn connected_with(
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

/// The answer on a stream.
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

/// How long it takes until the server has closed the connection, in milliseconds, and the code that it
/// gives.
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
    // It is gone without a word.
    drop(link);
    server.until_it("it is accepted", |it| it.counters().connections_now == 1);
    let took = server.until_it("a timeout", |it| it.counters().timeouts == 1);
    check_about(took, TIMES.head_timeout_ms);
    let counters = server.driven.counters();
    assert_eq!(counters.tls.failed.get("timeout"), Some(&1));
    assert_eq!(counters.quic.connections, 0);
    server.until_it("nothing is left", |it| it.counters().connections_now == 0);
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
    // The connection goes on.
    let id = link.get("/small");
    assert_eq!(answer(&mut server, &mut link, id).body, b"small");
}

/// A client that asks for much and takes nothing, with and without signs of life; and one that has
/// taken some.
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
        // What it took at first counts for its first time, as what finds out the path's MTU does.
        let time = TIMES.progress_timeout_ms;
        assert!((time..=2 * time + LATE_MS).contains(&took), "{took} ms");
        let counters = server.driven.counters();
        assert_eq!((counters.timeouts, counters.cut_short), (1, 1));
    }
}

/// Somebody who takes less than the least rate, however steadily, is cut off; somebody who takes more
/// is not, however small his windows.
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

/// A connection that rests is closed, whether its client says that it is there or not; who asks in time
/// stays.
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

/// Frames on the server's control stream after its settings: what GOAWAY has said.
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

/// A stop: who is busy has the whole answer, also to a request that was on its way; later requests are
/// refused; who rests or has not finished its handshake is let go.
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
                // Its windows let the control stream through, too.
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

/// Somebody who takes nothing does not hold up a stop for longer than the grace period.
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
