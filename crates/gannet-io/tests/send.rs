//! Sending: pieces in order, short sends continued, slow readers, failed peers.

mod desk;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::thread;

use desk::{Folder, each, pattern};
use gannet_io::driver::{Errno, Piece, SendList, Socket, Token};
use gannet_io::memory::{Memory, sealed_copy};

fn list(wire: &[u8]) -> SendList {
    SendList {
        wire: wire.to_vec(),
        ..SendList::default()
    }
}

/// Reads to the end in small steps, so that the sender finds the socket full again and again.
fn read_slowly(mut client: TcpStream) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let mut step = vec![0; 60_000];
        loop {
            match client.read(&mut step).unwrap() {
                0 => return bytes,
                count => bytes.extend_from_slice(&step[..count]),
            }
            thread::yield_now();
        }
    })
}

/// A client with a small window.
fn narrow(desk: &mut desk::Desk) -> (TcpStream, Socket) {
    let (client, socket) = desk.connect();
    rustix::net::sockopt::set_socket_recv_buffer_size(&client, 20_000).unwrap();
    (client, socket)
}

/// Wire bytes, heap memory and sealed memory interleaved, 8 MiB, arrive byte for byte.
#[test]
fn continues_short_sends() {
    let folder = Folder::new("send-pieces");
    let content = pattern(4 << 20);
    let path = folder.file("content", &content);
    let file = std::fs::File::open(path).unwrap();
    let heap = Arc::new(Memory::from_vec(content.clone()));
    let sealed = sealed_copy(&file, 4 << 20).unwrap();
    let mapped = Arc::new(Memory::map_sealed(&sealed).unwrap());
    each(|mut desk| {
        let (client, socket) = narrow(&mut desk);
        let reader = read_slowly(client);
        let pieces = vec![
            Piece::Wire(0..4),
            Piece::Memory(Arc::clone(&heap), 0..4 << 20),
            Piece::Wire(4..6),
            Piece::Memory(Arc::clone(&mapped), 4100..4 << 20),
            Piece::Wire(6..6),
            Piece::Wire(6..10),
        ];
        let list = SendList {
            wire: b"head--tail".to_vec(),
            pieces,
            more: false,
        };
        let mut expected = b"head".to_vec();
        expected.extend_from_slice(&content);
        expected.extend_from_slice(b"--");
        expected.extend_from_slice(&content[4100..]);
        expected.extend_from_slice(b"tail");
        desk.driver.send(socket, Token(1), list);
        assert_eq!(desk.sent(Token(1)), Ok(expected.len() as u64));
        desk.turn_until("acknowledged", |desk| {
            desk.driver.acknowledged(socket) >= expected.len() as u64
        });
        desk.driver.close(socket);
        desk.settle();
        assert!(
            reader.join().unwrap() == expected,
            "{}: wrong bytes",
            desk.engine
        );
    });
}

/// The same for one long wire vector; and many sends in a row keep their order.
#[test]
fn keeps_the_order_of_sends() {
    each(|mut desk| {
        let (client, socket) = narrow(&mut desk);
        let reader = read_slowly(client);
        let content = pattern(1 << 20);
        desk.driver.send(socket, Token(0), list(&content));
        assert_eq!(desk.sent(Token(0)), Ok(1 << 20));
        let mut expected = content;
        for n in 1..200u64 {
            let mut wire = desk.driver.output();
            assert!(wire.is_empty());
            wire.extend_from_slice(format!("answer {n}\r\n").as_bytes());
            expected.extend_from_slice(&wire);
            let len = wire.len() as u64;
            let more = n % 3 == 0;
            desk.driver.send(
                socket,
                Token(n),
                SendList {
                    wire,
                    pieces: Vec::new(),
                    more,
                },
            );
            assert_eq!(desk.sent(Token(n)), Ok(len));
        }
        desk.driver.send(socket, Token(1000), SendList::default());
        assert_eq!(
            desk.sent(Token(1000)),
            Ok(0),
            "an empty list is sent at once"
        );
        desk.driver.shutdown_write(socket);
        assert!(
            reader.join().unwrap() == expected,
            "{}: wrong bytes",
            desk.engine
        );
    });
}

/// The sending half ends after the send under way, not before.
#[test]
fn shuts_down_after_the_send() {
    each(|mut desk| {
        let (client, socket) = narrow(&mut desk);
        let content = pattern(2 << 20);
        desk.driver.send(socket, Token(1), list(&content));
        desk.driver.shutdown_write(socket);
        desk.turn();
        let reader = read_slowly(client);
        assert_eq!(desk.sent(Token(1)), Ok(2 << 20));
        desk.turn();
        assert!(
            reader.join().unwrap() == content,
            "{}: wrong bytes",
            desk.engine
        );
    });
}

/// Sending to a peer that is gone is an error, and no signal.
#[test]
fn reports_a_gone_peer() {
    each(|mut desk| {
        let (client, socket) = desk.connect();
        rustix::net::sockopt::set_socket_linger(&client, Some(std::time::Duration::ZERO)).unwrap();
        drop(client);
        desk.settle();
        let mut failed = None;
        for n in 0..3 {
            desk.driver.send(socket, Token(n), list(b"anybody there?"));
            if let Err(errno) = desk.sent(Token(n)) {
                failed = Some(errno);
                break;
            }
        }
        assert!(
            matches!(failed, Some(Errno::CONNRESET | Errno::PIPE)),
            "{failed:?}"
        );
    });
}

/// `acknowledge` acknowledges received bytes at once, not 40 ms later: a peer that coalesces its
/// writes (Nagle) holds back its next bytes until then.
#[test]
fn acknowledges_when_asked_to() {
    each(|mut desk| {
        let (mut client, socket) = desk.connect();
        client.set_nodelay(false).unwrap();
        desk.driver.receive(socket, Token(2));
        let mut unacknowledged = Vec::new();
        for turn in 0..20 {
            // An answer makes the kernel expect another one, and delay its acknowledgements.
            client.write_all(b"question").unwrap();
            desk.received_whole(Token(2), 8);
            desk.driver.acknowledge(socket);
            unacknowledged.push(desk::unacknowledged(&client));
            desk.driver.send(socket, Token(3 + turn), list(b"answer"));
            assert_eq!(desk.sent(Token(3 + turn)), Ok(6));
            client.read_exact(&mut [0; 6]).unwrap();
        }
        assert_eq!(unacknowledged, [0; 20], "{}", desk.engine);
        desk.driver.close(socket);
        desk.settle();
    });
}
