//! Receiving: order, ends, errors, pauses, and too few buffers.

mod desk;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

use desk::{each, each_with, pattern};
use gannet_io::driver::{Done, Errno, SendList, Token};
use gannet_io::options::EngineOptions;

/// Bytes arrive in order; the end of the stream is reported once.
#[test]
fn receives_to_the_end() {
    each(|mut desk| {
        let (mut client, socket) = desk.connect();
        desk.driver.receive(socket, Token(7));
        let sent = pattern(300_000);
        let mut got = Vec::new();
        for chunk in sent.chunks(10_000) {
            client.write_all(chunk).unwrap();
            got.extend(desk.received_whole(Token(7), chunk.len()));
        }
        assert_eq!(got, sent);
        client.shutdown(Shutdown::Write).unwrap();
        let end = desk.next();
        assert_eq!(end.token, Token(7));
        assert!(matches!(end.result, Ok(Done::Ended)), "{end:?}");
        assert!(!end.more);
        assert!(desk.settle().is_empty());
        // Half-closed: the other half still works.
        let list = SendList {
            wire: b"answer".to_vec(),
            ..SendList::default()
        };
        desk.driver.send(socket, Token(8), list);
        assert_eq!(desk.sent(Token(8)), Ok(6));
        desk.driver.close(socket);
        desk.settle();
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).unwrap();
        assert_eq!(answer, b"answer");
    });
}

/// Bytes followed at once by the end: both are reported.
#[test]
fn receives_bytes_and_end_together() {
    each(|mut desk| {
        for _ in 0..50 {
            let (mut client, socket) = desk.connect();
            client.write_all(b"last words").unwrap();
            drop(client);
            desk.driver.receive(socket, Token(1));
            assert_eq!(desk.received_whole(Token(1), 10), b"last words");
            let end = desk.next();
            assert!(matches!(end.result, Ok(Done::Ended)), "{end:?}");
            desk.driver.close(socket);
        }
    });
}

/// A reset is an error of the receive.
#[test]
fn reports_a_reset() {
    each(|mut desk| {
        let (client, socket) = desk.connect();
        desk.driver.receive(socket, Token(3));
        desk.settle();
        rustix::net::sockopt::set_socket_linger(&client, Some(std::time::Duration::ZERO)).unwrap();
        drop(client);
        let end = desk.next();
        assert_eq!(end.token, Token(3));
        assert_eq!(end.result.unwrap_err(), Errno::CONNRESET);
        assert!(!end.more);
        desk.driver.close(socket);
        assert!(desk.settle().is_empty());
    });
}

/// While paused no new bytes are delivered; resuming delivers all, in order.
#[test]
fn pauses_and_resumes() {
    each(|mut desk| {
        let (mut client, socket) = desk.connect();
        desk.driver.receive(socket, Token(5));
        client.write_all(b"one").unwrap();
        assert_eq!(desk.received_whole(Token(5), 3), b"one");
        desk.driver.pause_receiving(socket);
        assert!(desk.settle().is_empty());
        client.write_all(b"two").unwrap();
        assert!(desk.settle().is_empty(), "{}: paused", desk.engine);
        desk.driver.receive(socket, Token(6));
        assert_eq!(desk.received_whole(Token(6), 3), b"two");
        // Paused and resumed before the kernel notices.
        desk.driver.pause_receiving(socket);
        desk.driver.receive(socket, Token(9));
        client.write_all(b"three").unwrap();
        assert_eq!(desk.received_whole(Token(9), 5), b"three");
        // The end arrives while paused, and is reported on resuming.
        desk.driver.pause_receiving(socket);
        desk.settle();
        drop(client);
        assert!(desk.settle().is_empty());
        desk.driver.receive(socket, Token(10));
        let end = desk.next();
        assert_eq!(end.token, Token(10));
        assert!(matches!(end.result, Ok(Done::Ended)), "{end:?}");
    });
}

/// A single receive delivers once, and leaves nothing with the kernel.
#[test]
fn receives_once() {
    each(|mut desk| {
        let (mut client, socket) = desk.connect();
        desk.driver.receive_once(socket, Token(1));
        client.write_all(b"one").unwrap();
        let completion = desk.next();
        assert!(!completion.more);
        let Ok(Done::Received(lease)) = completion.result else {
            panic!("{completion:?}")
        };
        assert_eq!(desk.take(lease), b"one");
        client.write_all(b"two").unwrap();
        assert!(desk.settle().is_empty(), "{}: received twice", desk.engine);
        // Changed to a continuous receive before the bytes arrive.
        desk.driver.receive_once(socket, Token(2));
        desk.driver.receive(socket, Token(3));
        assert_eq!(desk.received_whole(Token(3), 3), b"two");
        client.write_all(b"three").unwrap();
        assert_eq!(desk.received_whole(Token(3), 5), b"three");
        // And back, while the kernel still has the continuous one.
        desk.driver.receive_once(socket, Token(4));
        client.write_all(b"four").unwrap();
        let completion = desk.next();
        assert_eq!((completion.token, completion.more), (Token(4), false));
        let Ok(Done::Received(lease)) = completion.result else {
            panic!("{completion:?}")
        };
        assert_eq!(desk.take(lease), b"four");
        desk.settle();
        client.write_all(b"five").unwrap();
        assert!(desk.settle().is_empty(), "{}: received twice", desk.engine);
        // The same with the end.
        desk.driver.receive_once(socket, Token(5));
        assert_eq!(desk.received(Token(5)), b"five");
        desk.driver.receive_once(socket, Token(6));
        client.shutdown(Shutdown::Write).unwrap();
        assert!(matches!(desk.next().result, Ok(Done::Ended)));
        desk.driver.close(socket);
    });
}

/// With two small buffers for twenty busy clients every byte still arrives, in order.
#[test]
fn starves_nobody() {
    let options = EngineOptions {
        buffers: 2,
        buffer_len: 256,
        ..EngineOptions::default()
    };
    each_with(&options, |mut desk| {
        const CLIENTS: usize = 20;
        let content = pattern(20_000);
        let mut clients: Vec<TcpStream> = Vec::new();
        for index in 0..CLIENTS {
            let (client, socket) = desk.connect();
            desk.driver.receive(socket, Token(index as u64));
            clients.push(client);
        }
        for client in &mut clients {
            client.write_all(&content).unwrap();
            client.shutdown(Shutdown::Write).unwrap();
        }
        let mut got = vec![Vec::new(); CLIENTS];
        let mut ended = 0;
        while ended < CLIENTS {
            let completion = desk.next();
            let index = completion.token.0 as usize;
            match completion.result.unwrap() {
                Done::Received(lease) => got[index].extend(desk.take(lease)),
                Done::Ended => ended += 1,
                other => panic!("{other:?}"),
            }
        }
        assert!(got.iter().all(|bytes| *bytes == content), "{}", desk.engine);
        assert!(
            desk.driver.counters().no_buffers > 0,
            "{}: buffers never ran out",
            desk.engine
        );
    });
}
