//! Datagrams: addresses, ECN, trains, too few buffers, too much of everything, and the end.

mod desk;

use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::time::Duration;

use desk::{Desk, each_with_datagrams, pattern};
use gannet_io::driver::{DatagramSocket, Token};
use gannet_io::options::EngineOptions;
use gannet_io::{net, udp};

const FIRST: DatagramSocket = DatagramSocket(0);

/// Runs the body on every engine with one datagram socket bound to a port of this address.
fn each_at(address: &str, options: &EngineOptions, body: impl Fn(Desk, SocketAddr)) {
    let wanted = SocketAddr::new(address.parse().unwrap(), 0);
    each_bound(options, || udp::bind(wanted).unwrap(), body);
}

fn each_bound(
    options: &EngineOptions,
    bind: impl Fn() -> OwnedFd,
    body: impl Fn(Desk, SocketAddr),
) {
    let bound = RefCell::new(None);
    let sockets = || {
        let socket = bind();
        *bound.borrow_mut() = net::local_addr(&socket).unwrap();
        vec![socket]
    };
    each_with_datagrams(options, sockets, |desk| {
        let address = bound.take().expect("bound a moment ago");
        body(desk, address);
    });
}

fn client(address: &str) -> UdpSocket {
    let client = UdpSocket::bind((address, 0)).unwrap();
    client
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    client
}

fn check_round_trip(bound: &str, client_at: &str, reached_at: &str) {
    each_at(bound, &EngineOptions::default(), |mut desk, address| {
        let client = client(client_at);
        let local: IpAddr = reached_at.parse().unwrap();
        let server = SocketAddr::new(local, address.port());
        desk.driver.receive_datagrams(FIRST, Token(1));
        for len in [1, 100, 1200, 1472, 2000] {
            let sent = pattern(len);
            client.send_to(&sent, server).unwrap();
            let (bytes, datagram) = desk.datagram(Token(1));
            assert_eq!(bytes, sent);
            assert_eq!(datagram.peer, client.local_addr().unwrap());
            assert_eq!(datagram.local, Some(local));
            assert_eq!((datagram.ecn, datagram.dropped), (0, 0));
            let (peer, from) = (datagram.peer, datagram.local);
            desk.driver.release(datagram.lease);
            let answer = desk.driver.send_datagrams(FIRST, &sent, len, peer, from, 0);
            answer.unwrap();
            let mut room = [0; 4096];
            let (len, from) = client.recv_from(&mut room).unwrap();
            assert_eq!(&room[..len], sent);
            assert_eq!(from, server);
        }
        let counters = desk.driver.counters();
        assert_eq!(counters.datagrams_received, 5);
        assert_eq!(counters.datagrams_sent, 5);
    });
}

/// Bytes and addresses arrive both ways; an answer comes from the address that was asked.
#[test]
fn round_trips() {
    check_round_trip("127.0.0.1", "127.0.0.1", "127.0.0.1");
    check_round_trip("0.0.0.0", "127.0.0.1", "127.0.0.2");
    check_round_trip("::1", "::1", "::1");
    check_round_trip("::", "::1", "::1");
}
