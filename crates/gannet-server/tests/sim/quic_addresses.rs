//! Addresses that may be another's: what is sent there is counted to the byte, after every turn.

use gannet_io::sim::Faults;
use gannet_server::config::Limits;
use gannet_server::ledger::Account;
use gannet_testkit::h3::request;

use crate::forged::{Forger, stream};
use crate::link::{Link, Opening, client_address, server_address};
use crate::quic_deadlines::connected;
use crate::quic_floods::{check_amplification, check_given_back, others_are_served, server};
use crate::run::LIMITS;
use crate::server::Server;

/// A client that begins and is not heard of again, or only says its first words again: whatever the
/// server does until it gives up, it gets no more than three times what it has sent (RFC 9000 section
/// 8.1), and close to it.
#[test]
fn a_handshake_that_does_not_go_on_is_sent_three_times_its_bytes() {
    for repeats in [0, 1, 2, 7] {
        let faults = Faults {
            datagram_latency_ns: 5_000_000,
            ..Faults::none()
        };
        // Long enough for the server to try many times.
        let limits = Limits {
            head_timeout_ms: 50_000,
            idle_timeout_ms: 50_000,
            ..LIMITS
        };
        let (mut server, config) = Server::with_datagrams(faults, limits);
        let link = Link::connect(&server.disk, &config, &Opening::new(0));
        let address = link.socket.address();
        for _ in 0..repeats {
            for _ in 0..700 {
                server.pass(1);
                check_amplification(&server);
            }
            link.socket.send(server_address(), &link.first, 0);
        }
        for _ in 0..450 {
            server.pass(100);
            check_amplification(&server);
        }
        let exchanged = server.disk.exchanged()[&address];
        assert_eq!(exchanged.received, 1_200 * (1 + repeats));
        // Much of what is allowed is used: the library tries ever more rarely.
        let most = 3 * exchanged.received;
        assert!(exchanged.sent > most / 2, "{exchanged:?}");
        drop(link);
        server.pass(10_000);
        check_amplification(&server);
        assert_eq!(server.driven.counters().connections_now, 0);
    }
}

/// A client that has completed its handshake cannot have more than three times what it sends delivered
/// to addresses of others, where nobody answers.
#[test]
pub(crate) fn moves_to_addresses_of_others_have_a_bound() {
    for len in [1, 300, 1_200, 1_400] {
        let (mut server, config) = server();
        server.disk.put_file("huge", vec![b'H'; 8 << 20]);
        server.disk.age_files(10_000);
        let mut forger = Forger::new(&mut server, &config, 0);
        forger.send(&stream(0, 0, &request("GET", "/huge", &[])));
        server.pass(50);
        let own = forger.link.socket.address();
        let totals = |server: &Server| {
            let all = server.disk.exchanged();
            let received: u64 = all.values().map(|it| it.received).sum();
            let others = all.iter().filter(|(address, _)| **address != own);
            let sent: Vec<_> = others.map(|(_, it)| it.sent).collect();
            (received, sent)
        };
        for number in 0..200 {
            let victim = client_address(7, number);
            // What moves a connection: a PING frame (RFC 9000 section 9.1), padded.
            let mut frames = vec![0; len];
            frames[0] = 1;
            forger.send_as(victim, &frames);
            for _ in 0..10 {
                server.pass(1);
                let (received, sent) = totals(&server);
                let all: u64 = sent.iter().sum();
                assert!(all <= 3 * received, "{all} for {received}: {sent:?}");
            }
        }
        let (received, sent) = totals(&server);
        assert!(sent.iter().sum::<u64>() > received, "{sent:?}");
        others_are_served(&mut server, &config, 0);
        drop(forger);
        check_given_back(&mut server, Account::Answers, 1);
    }
}

/// The same for addresses that it only probes: each probe has an answer of full length (RFC 9000
/// section 8.2.2).
#[test]
pub(crate) fn probes_from_addresses_of_others_have_a_bound() {
    for len in [9, 300, 1_200] {
        let (mut server, config) = server();
        let mut forger = Forger::new(&mut server, &config, 0);
        let own = forger.link.socket.address();
        let mut sent = 0;
        for number in 0..200 {
            // PATH_CHALLENGE, padded.
            let mut frames = vec![0; len];
            frames[0] = 0x1a;
            forger.send_as(client_address(7, number), &frames);
            server.pass(5);
            let all = server.disk.exchanged();
            let received: u64 = all.values().map(|it| it.received).sum();
            let others = all.iter().filter(|(address, _)| **address != own);
            sent = others.map(|(_, it)| it.sent).sum();
            assert!(sent <= 3 * received, "{sent} for {received}");
        }
        assert!(sent >= 3 * 1_200, "some are answered: {sent}");
        others_are_served(&mut server, &config, 0);
    }
}

/// A client whose address changes with every packet, in the middle of an answer.
#[test]
pub(crate) fn addresses_that_change_have_a_bound() {
    let (mut server, config) = server();
    let opening = Opening {
        windows: (20_000, 20_000),
        ..Opening::new(0)
    };
    let mut link = connected(&mut server, &config, &opening);
    link.get("/large");
    let mut moves = 0_u8;
    server.pass_while(500, || {
        link.step();
        link.core.read(1_000);
        if moves < 200 {
            moves += 1;
            link.rebind();
            link.core.connection.ping();
        }
        link.send();
    });
    others_are_served(&mut server, &config, 1);
    drop(link);
    // What went to addresses that had not shown that they are there is no more than three times what
    // came. The first one and those at which it has stayed may get more.
    let exchanged = server.disk.exchanged();
    let is_his = |moves: u8| exchanged.get(&client_address(0, moves));
    let all: Vec<_> = (0..=moves).filter_map(is_his).collect();
    let received: u64 = all.iter().map(|it| it.received).sum();
    let unshown = all.iter().filter(|it| it.sent < 10_000);
    let sent: u64 = unshown.map(|it| it.sent).sum();
    assert!(sent <= 3 * received, "{sent} for {received}: {all:?}");
    assert!(all.iter().filter(|it| it.sent > 0).count() > 3);
    check_given_back(&mut server, Account::Answers, 1);
}
