//! Connections that end while their socket takes no datagrams.

use std::time::Duration;

use gannet_io::driver::Errno;
use gannet_server::ledger::Account;
use gannet_testkit::h3::NO_ERROR;
use quinn_proto::ConnectionError;

use crate::link::{Link, Opening};
use crate::quic_deadlines::{answer, connected, connected_with, until};
use crate::quic_floods::{check_given_back, others_are_served, server};
use crate::run::LIMITS;
use crate::server::Server;

/// Two connections end by their idle timeout while nothing can be sent. They are gone all the same,
/// and their clients learn it: by the word of the server that its socket has kept, or by a stateless
/// reset once they say something more.
#[test]
fn connections_end_though_nothing_can_be_sent() {
    for why in [Errno::AGAIN, Errno::NOBUFS, Errno::PERM] {
        let (mut server, config) = server();
        // Else they would end without a word.
        let alive = Some(Duration::from_secs(1));
        let connect = |server: &mut Server, number| {
            let mut link = connected_with(server, &config, &Opening::new(number), alive);
            let id = link.get("/small");
            assert_eq!(answer(server, &mut link, id).body, b"small");
            link
        };
        let mut links = [0, 1].map(|number| connect(&mut server, number));
        server.pass_while(LIMITS.idle_timeout_ms - 1_000, || {
            links.iter_mut().for_each(Link::step);
        });
        // All that they have said is acknowledged.
        server.pass(100);
        server.disk.refuse_datagrams(Some(why));
        server.until_it("they have ended", |it| it.counters().connections_now == 0);
        assert_eq!(server.driven.counters().timeouts, 2);
        let unsent = server.driven.counters().quic.unsent;
        assert_eq!(unsent > 0, why != Errno::AGAIN, "{unsent} trains for {why}");
        // Whatever its clients say meanwhile gets no answer, and nothing is kept of it.
        for link in &mut links {
            link.get("/small");
        }
        server.pass_while(50, || links.iter_mut().for_each(Link::step));
        assert!(links.iter().all(|link| link.core.lost.is_none()));
        server.disk.refuse_datagrams(None);
        let [first, second] = &mut links;
        until(&mut server, "the end", &mut [first, second], |links| {
            links.iter().all(|link| link.core.lost.is_some())
        });
        let is_told = |link: &&Link| match &link.core.lost {
            Some(ConnectionError::ApplicationClosed(close)) => {
                assert_eq!(close.error_code.into_inner(), NO_ERROR);
                true
            }
            Some(ConnectionError::Reset) => false,
            other => panic!("ended in another way: {other:?}"),
        };
        // One train is kept for a socket.
        let told = links.iter().filter(is_told).count();
        assert_eq!(told, usize::from(why == Errno::AGAIN), "{why}");
        others_are_served(&mut server, &config, 0);
        check_given_back(&mut server, Account::Streams, 0);
    }
}

/// A socket takes nothing in the middle of answers, for longer than a peer may take nothing: those are
/// given up, and who comes later is served.
#[test]
fn answers_that_cannot_be_sent_have_their_time() {
    for why in [Errno::AGAIN, Errno::NOBUFS, Errno::PERM] {
        let (mut server, config) = server();
        let mut link = connected(&mut server, &config, &Opening::new(0));
        link.get("/large");
        server.disk.refuse_datagrams(Some(why));
        let took = server.until_it("it is given up", |it| it.counters().connections_now == 0);
        assert!(took <= LIMITS.idle_timeout_ms + 300, "{took} ms");
        server.disk.refuse_datagrams(None);
        others_are_served(&mut server, &config, 0);
        check_given_back(&mut server, Account::Answers, 1);
    }
}
