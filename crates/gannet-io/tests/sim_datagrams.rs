//! Simulated datagrams: delivery without faults, the effect of each fault, and bytes per address.

use std::net::{IpAddr, SocketAddr};

use gannet_io::driver::{DatagramSocket, Done, Errno, Lease, Nanos, Network, Token, Train};
use gannet_io::options::EngineOptions;
use gannet_io::sim::{DatagramClient, Exchanged, Faults, Sim, SimHandle};

const SOCKET: DatagramSocket = DatagramSocket(0);
const RECEIVE: Token = Token(1);
const SENDABLE: Token = Token(2);

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// The address at which clients reach the server, whose socket is bound to every address.
fn server_address() -> SocketAddr {
    address("192.0.2.1:443")
}

/// A server that sends every datagram back from its destination address, as a train of two halves.
struct Server {
    driver: Sim,
    handle: SimHandle,
    /// Datagrams for which the socket had no room.
    unsent: Vec<(Vec<u8>, SocketAddr, u8)>,
    refused: usize,
    dropped: u32,
    trace: Vec<String>,
}

impl Server {
    fn new(seed: u64, faults: Faults) -> Self {
        let options = EngineOptions {
            buffers: 4,
            buffer_len: 2048,
            ..EngineOptions::default()
        };
        let driver = Sim::new(seed, 1, &options, faults);
        let mut driver = driver.with_datagrams(&[address("0.0.0.0:443")]);
        driver.receive_datagrams(SOCKET, RECEIVE);
        Self {
            handle: driver.handle(),
            driver,
            unsent: Vec::new(),
            refused: 0,
            dropped: 0,
            trace: Vec::new(),
        }
    }

    fn client(&self, port: u16) -> DatagramClient {
        let address = SocketAddr::new([198, 51, 100, 1].into(), port);
        self.handle.datagram_client(address)
    }

    fn turn(&mut self) {
        let mut out = Vec::new();
        let until = Nanos(self.driver.now().0 + 1_000_000_000);
        self.driver.wait(Some(until), &mut out).unwrap();
        for completion in out {
            let now = self.driver.now().0;
            self.trace.push(format!("{now} {completion:?}"));
            match completion.result.unwrap() {
                Done::Datagram(datagram) => {
                    assert!(completion.token == RECEIVE && completion.more);
                    assert_eq!(datagram.local, Some(server_address().ip()));
                    let bytes = self.take(datagram.lease);
                    self.dropped = datagram.dropped;
                    self.unsent.push((bytes, datagram.peer, datagram.ecn));
                }
                Done::Sendable => assert_eq!(completion.token, SENDABLE),
                other => panic!("{other:?}"),
            }
        }
        while let Some((bytes, peer, ecn)) = self.unsent.first() {
            let (half, from) = (bytes.len().div_ceil(2), Some(server_address().ip()));
            let driver = &mut self.driver;
            match driver.send_datagrams(
                SOCKET,
                bytes,
                &[train(bytes.len(), half, *peer, from, *ecn)],
            ) {
                Ok(_) => drop(self.unsent.remove(0)),
                Err(errno) => {
                    assert_eq!(errno, Errno::AGAIN);
                    self.refused += 1;
                    self.driver.when_sendable(SOCKET, SENDABLE);
                    return;
                }
            }
        }
    }

    fn take(&mut self, lease: Lease) -> Vec<u8> {
        let bytes = self.driver.received(&lease).to_vec();
        self.driver.release(lease);
        bytes
    }

    fn turns(&mut self) {
        (0..300).for_each(|_| self.turn());
    }
}

fn train(len: usize, segment: usize, to: SocketAddr, from: Option<IpAddr>, ecn: u8) -> Train {
    Train {
        len,
        segment,
        to,
        from,
        ecn,
    }
}

/// Sends the number, repeated `len` times.
fn ask(client: &DatagramClient, number: u8, len: usize) {
    client.send(server_address(), &vec![number; len], 1);
}

/// The numbers of all datagrams that have arrived.
fn answers(client: &DatagramClient) -> Vec<u8> {
    let all = std::iter::from_fn(|| client.receive());
    all.map(|arrived| arrived.bytes[0]).collect()
}

/// Sends a hundred datagrams and returns the halves that came back.
fn run(seed: u64, faults: Faults) -> (Vec<u8>, Server) {
    let mut server = Server::new(seed, faults);
    let client = server.client(1000);
    (0..100).for_each(|number| ask(&client, number, 100));
    server.turns();
    (answers(&client), server)
}

fn doubled() -> Vec<u8> {
    (0..100).flat_map(|number| [number; 2]).collect()
}

/// Without faults everything arrives once, whole, in order, with addresses and ECN, despite few
/// buffers.
#[test]
fn delivers_all() {
    let mut server = Server::new(1, Faults::none());
    let client = server.client(1000);
    let other = server.client(1001);
    ask(&client, 7, 1201);
    server.turns();
    let first = client.receive().unwrap();
    assert_eq!((first.bytes.as_slice(), first.ecn), (&[7; 601][..], 1));
    assert_eq!((first.from, first.to), (server_address(), client.address()));
    assert_eq!(client.receive().unwrap().bytes, [7; 600]);
    assert_eq!(client.receive(), None);
    assert_eq!(other.receive(), None);
    let counters = server.driver.counters();
    let counted = (counters.datagrams_received, counters.datagrams_sent);
    assert_eq!(counted, (1, 2));
    let (got, server) = run(2, Faults::none());
    assert_eq!(got, doubled());
    assert!(server.driver.counters().no_buffers > 0);
    assert!(server.handle.leaks().is_clean());
}

/// The same seed gives the same run, with every fault; another seed gives another run.
#[test]
fn a_seed_is_a_run() {
    let trace = |seed| {
        let (got, server) = run(seed, Faults::harsh());
        (got, server.trace)
    };
    assert_eq!(trace(42), trace(42));
    assert_ne!(trace(42), trace(43));
}

/// Datagrams are lost in both directions, and the others arrive unchanged.
#[test]
fn loses() {
    let faults = |datagram_loss| Faults {
        datagram_loss,
        ..Faults::none()
    };
    let (got, server) = run(1, faults(300));
    let received = server.driver.counters().datagrams_received as usize;
    assert!((40..100).contains(&received), "{received}");
    assert!((1..received * 2).contains(&got.len()), "{}", got.len());
    assert!(got.is_sorted());
    let (got, server) = run(1, faults(1000));
    assert!(got.is_empty());
    assert_eq!(server.driver.counters().datagrams_received, 0);
}

/// A duplicate is the same datagram once more.
#[test]
fn duplicates() {
    let faults = Faults {
        datagram_duplicate: 1000,
        ..Faults::none()
    };
    let (got, _) = run(1, faults);
    // Twice on the way there; then both, each in two halves, twice on the way back.
    let expected: Vec<u8> = (0..100).flat_map(|number| [number; 8]).collect();
    assert_eq!(got, expected);
}

/// A corrupted datagram keeps its length and has one wrong bit.
#[test]
fn corrupts() {
    let faults = Faults {
        datagram_corrupt: 1000,
        ..Faults::none()
    };
    let mut server = Server::new(3, faults);
    let client = server.client(1000);
    ask(&client, 0, 1000);
    server.turns();
    let mut wrong = 0;
    for _ in 0..2 {
        let bytes = client.receive().unwrap().bytes;
        assert_eq!(bytes.len(), 500);
        wrong += bytes.iter().map(|byte| byte.count_ones()).sum::<u32>();
    }
    // One from the way there, and one in each half from the way back.
    assert_eq!(wrong, 3);
}

/// Late datagrams are overtaken, but arrive.
#[test]
fn reorders() {
    let faults = Faults {
        datagram_late: 500,
        delay_max_ns: 1_000_000,
        ..Faults::none()
    };
    let (mut got, _) = run(1, faults);
    assert!(!got.is_sorted());
    got.sort_unstable();
    assert_eq!(got, doubled());
}

/// Nothing arrives early.
#[test]
fn takes_time() {
    let faults = Faults {
        datagram_latency_ns: 5_000_000,
        ..Faults::none()
    };
    let mut server = Server::new(1, faults);
    let client = server.client(1000);
    let start = server.handle.now().0;
    ask(&client, 1, 10);
    while client.receive().is_none() {
        server.turn();
    }
    let passed = server.handle.now().0 - start;
    assert!((10_000_000..11_000_000).contains(&passed), "{passed}");
}

/// Datagrams longer than the path's MTU are lost, in both directions.
#[test]
fn has_an_mtu() {
    let faults = Faults {
        datagram_mtu: 1200,
        ..Faults::none()
    };
    let mut server = Server::new(1, faults.clone());
    let client = server.client(1000);
    ask(&client, 1, 1201);
    ask(&client, 2, 1200);
    server.turns();
    assert_eq!(answers(&client), [2, 2]);
    // Alone, then as a train of two.
    for segment in [1201, 1200] {
        let to = client.address();
        let driver = &mut server.driver;
        let sent = driver.send_datagrams(SOCKET, &[3; 1201], &[train(1201, segment, to, None, 0)]);
        sent.unwrap();
    }
    server.turns();
    assert_eq!(answers(&client), [3, 3], "only the train");
    // The path changes.
    let wider = Faults {
        datagram_mtu: 1201,
        ..faults
    };
    server.handle.set_faults(wider);
    ask(&client, 4, 1201);
    server.turns();
    assert_eq!(answers(&client), [4, 4]);
}

/// Datagrams that do not fit the socket's queue are dropped and reported; those longer than a
/// buffer are dropped and counted.
#[test]
fn overflows() {
    let faults = Faults {
        datagram_queue_max: 10,
        ..Faults::none()
    };
    let (got, server) = run(1, faults);
    assert_eq!(got, doubled()[..20]);
    assert_eq!(server.dropped, 90);
    assert_eq!(server.driver.counters().datagrams_dropped, 90);
    let mut server = Server::new(1, Faults::none());
    let client = server.client(1000);
    ask(&client, 1, 2049);
    ask(&client, 2, 2048);
    server.turns();
    assert_eq!(answers(&client), [2, 2]);
    assert_eq!(server.driver.counters().datagrams_truncated, 1);
}

/// A full socket refuses until it reports that it is sendable; nothing is lost by that.
#[test]
fn fills_up() {
    let faults = Faults {
        datagram_full: 300,
        delay_max_ns: 1_000_000,
        ..Faults::none()
    };
    let (got, server) = run(1, faults);
    assert_eq!(got, doubled());
    assert!(server.refused > 10, "{}", server.refused);
}

/// A client that has moved is reachable only at its new address, from which it also sends.
#[test]
fn rebinds() {
    let mut server = Server::new(1, Faults::none());
    let client = server.client(1000);
    let old = client.address();
    ask(&client, 1, 10);
    client.rebind(SocketAddr::new(old.ip(), 2000));
    server.turns();
    assert_eq!(answers(&client), []);
    ask(&client, 2, 10);
    server.turns();
    assert_eq!(answers(&client), [2, 2]);
    let both = Exchanged {
        received: 10,
        sent: 10,
    };
    let exchanged = server.handle.exchanged();
    assert_eq!(
        (exchanged[&old], exchanged[&client.address()]),
        (both, both)
    );
}

/// An answer to a spoofed datagram goes to the spoofed address, and counts for it.
#[test]
fn accounts_for_victims() {
    let mut server = Server::new(1, Faults::none());
    let (attacker, victim) = (server.client(1000), server.client(1001));
    attacker.send_as(victim.address(), server_address(), &[5; 100], 0);
    server.turns();
    assert_eq!((answers(&attacker), answers(&victim)), (vec![], vec![5, 5]));
    // A server that sends more than it received is detected, though none of it arrives.
    let gone = victim.address();
    drop(victim);
    let driver = &mut server.driver;
    let sent = driver.send_datagrams(SOCKET, &[0; 201], &[train(201, 100, gone, None, 0)]);
    sent.unwrap();
    let expected = Exchanged {
        received: 100,
        sent: 301,
    };
    let exchanged = server.handle.exchanged();
    assert_eq!(exchanged[&gone], expected);
    assert_eq!(exchanged.get(&attacker.address()), None);
}

/// A stopped socket receives nothing and completes nothing.
#[test]
fn stops() {
    let mut server = Server::new(1, Faults::none());
    let client = server.client(1000);
    ask(&client, 1, 10);
    server.driver.when_sendable(SOCKET, SENDABLE);
    server.driver.stop_datagrams(SOCKET);
    ask(&client, 2, 10);
    let mut out = Vec::new();
    for _ in 0..10 {
        server.driver.wait(Some(Nanos(0)), &mut out).unwrap();
    }
    assert!(out.is_empty(), "{out:?}");
    assert_eq!(client.receive(), None);
}
