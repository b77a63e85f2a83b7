//! HTTP/3: answers of one datagram, of as many connections as there are, leave together.

use gannet_io::sim::Faults;
use gannet_testkit::quic::Received;

use crate::link::{Link, Opening};
use crate::quic_deadlines::{answer, connected};
use crate::run::LIMITS;
use crate::server::Server;

/// How many trains leave by one call.
const GATHERED_MAX: u64 = 32;

const MS: u64 = 1_000_000;

/// So many clients wait for a file that is read for all of them at the same time. Returns the trains and
/// calls of each turn until all have their answers, and how many milliseconds that took.
fn turns(count: u16, faults: Faults) -> (Vec<(u64, u64)>, u64) {
    let (mut server, config) = Server::with_datagrams(faults, LIMITS);
    server.disk.put_file("slow", "slow");
    server.disk.slow_file("slow", 50 * MS);
    server.disk.age_files(100_000);
    let connect = |number| connected(&mut server, &config, &Opening::new(number));
    let mut links: Vec<_> = (0..count).map(connect).collect();
    server.pass_while(1_000, || links.iter_mut().for_each(Link::step));
    let ids: Vec<_> = links.iter_mut().map(|link| link.get("/slow")).collect();
    let mut before = server.driven.counters().io;
    let mut turns = Vec::new();
    let took = server.until_it("all answers", |driven| {
        let io = driven.counters().io;
        let sent = io.datagrams_sent - before.datagrams_sent;
        turns.push((sent, io.submissions - before.submissions));
        before = io;
        links.iter_mut().zip(&ids).fold(true, |all, (link, id)| {
            link.step();
            link.core.read(usize::MAX);
            all & link.core.received(*id).is_some_and(Received::is_over)
        })
    });
    for (link, id) in links.iter_mut().zip(ids) {
        assert_eq!(answer(&mut server, link, id).body, b"slow");
    }
    assert_eq!(server.driven.counters().quic.unsent, 0);
    (turns, took)
}

/// By as few calls as can be.
#[test]
fn answers_of_a_turn_leave_together() {
    for count in [1, 32, 33, 70] {
        let faults = Faults {
            datagram_latency_ns: MS,
            ..Faults::none()
        };
        let (turns, _) = turns(count, faults);
        for (sent, calls) in &turns {
            assert_eq!(*calls, sent.div_ceil(GATHERED_MAX), "{count}: {turns:?}");
        }
        // Up to 32 requests arrive in a turn, but more reads may end in one.
        let most = turns.iter().map(|(sent, _)| *sent).max();
        let least = if count > 64 {
            GATHERED_MAX + 1
        } else {
            u64::from(count.min(32))
        };
        assert!(most >= Some(least), "{count}: {turns:?}");
    }
}

/// What a full socket does not take, at whatever place, leaves once it takes more: nobody has to ask for it again.
#[test]
fn gathered_answers_wait_for_room() {
    let quiet = Faults {
        datagram_latency_ns: MS,
        ..Faults::none()
    };
    let faults = Faults {
        datagram_full: 100,
        delay_max_ns: 100_000,
        ..quiet.clone()
    };
    let (_, quiet_took) = turns(70, quiet);
    let (turns, took) = turns(70, faults);
    let (sent, calls) = turns
        .iter()
        .fold((0, 0), |sum, it| (sum.0 + it.0, sum.1 + it.1));
    assert!(calls > 3 && sent >= 70, "{turns:?}");
    // Less than until a client or the server would send again what is lost.
    assert!(took <= quiet_took + 20, "{took} ms, else {quiet_took}");
}
