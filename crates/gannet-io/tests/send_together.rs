//! Short lists are sent together when a turn ends: what may happen to a socket in between.

mod desk;

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use desk::{Desk, each, each_with_send_buffer, pattern};
use gannet_io::driver::{Completion, Done, Errno, Piece, SendList, Socket, Token};
use gannet_io::limits::{SEND_AT_ONCE_MIN, SEND_TOGETHER_MAX};
use gannet_io::memory::Memory;
use gannet_testkit::DEADLINE;

/// More than an engine takes from the kernel in one call.
const MANY: u64 = 300;

fn send(desk: &mut Desk, socket: Socket, token: Token, wire: &[u8]) {
    let list = SendList {
        wire: wire.to_vec(),
        ..SendList::default()
    };
    desk.driver.send(socket, token, list);
}

fn send_memory(desk: &mut Desk, socket: Socket, token: Token, memory: &Arc<Memory>) {
    let list = SendList {
        pieces: vec![Piece::Memory(Arc::clone(memory), 0..memory.len())],
        ..SendList::default()
    };
    desk.driver.send(socket, token, list);
}

/// Whether nothing has arrived, neither bytes nor an end.
fn is_silent(mut client: &TcpStream) -> bool {
    client.set_nonblocking(true).unwrap();
    let read = client.read(&mut [0; 1]);
    client.set_nonblocking(false).unwrap();
    matches!(read, Err(error) if error.kind() == ErrorKind::WouldBlock)
}

fn read(mut client: &TcpStream, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    client.read_exact(&mut bytes).unwrap();
    bytes
}

fn count(completion: &Completion) -> Result<u64, Errno> {
    match &completion.result {
        Ok(Done::Sent(count)) => Ok(*count),
        Ok(other) => panic!("{other:?}"),
        Err(errno) => Err(*errno),
    }
}

/// Ends a send of each token from `first` on, in any order.
fn all_sent(desk: &mut Desk, first: u64, number: u64) {
    let mut left: Vec<u64> = (first..first + number).collect();
    while !left.is_empty() {
        let completion = desk.next();
        assert!(count(&completion).is_ok(), "{completion:?}");
        let place = left.iter().position(|token| *token == completion.token.0);
        left.swap_remove(place.expect("each ends once"));
    }
}

/// One wait sends the lists of all sockets, though it has no time left to wait for anything.
#[test]
fn they_leave_when_the_turn_ends() {
    each(|mut desk| {
        let pairs: Vec<_> = (0..MANY).map(|_| desk.connect()).collect();
        for (n, (_, socket)) in (0..).zip(&pairs) {
            send(&mut desk, *socket, Token(n), format!("{n:5}").as_bytes());
        }
        assert!(
            pairs.iter().all(|(client, _)| is_silent(client)),
            "{}: sent before the turn ended",
            desk.engine
        );
        let mut out = Vec::new();
        let now = desk.driver.now();
        desk.driver.wait(Some(now), &mut out).unwrap();
        for (n, (client, _)) in pairs.iter().enumerate() {
            assert_eq!(read(client, 5), format!("{n:5}").as_bytes());
        }
        let mut tokens: Vec<u64> = Vec::new();
        while tokens.len() < pairs.len() {
            for completion in out.drain(..) {
                assert_eq!(count(&completion), Ok(5), "{completion:?}");
                tokens.push(completion.token.0);
            }
            if tokens.len() < pairs.len() {
                out.push(desk.next());
            }
        }
        tokens.sort_unstable();
        assert!(tokens.into_iter().eq(0..MANY), "each ends once");
    });
}

/// However many sockets are to be sent something in a turn, the epoll engine holds a bounded number of
/// bytes back.
#[test]
fn what_waits_for_the_end_of_the_turn_is_bounded() {
    each(|mut desk| {
        let pairs: Vec<_> = (0..40).map(|_| desk.connect()).collect();
        let piece = pattern(SEND_AT_ONCE_MIN as usize - 1);
        for (n, (_, socket)) in (0..).zip(&pairs) {
            send(&mut desk, *socket, Token(n), &piece);
        }
        let held = pairs.iter().filter(|(client, _)| is_silent_peek(client));
        let held = held.count() as u64 * piece.len() as u64;
        assert!(
            desk.engine != "epoll" || held < SEND_TOGETHER_MAX,
            "{held} bytes"
        );
        all_sent(&mut desk, 0, 40);
        for (client, _) in &pairs {
            assert!(read(client, piece.len()) == piece);
        }
    });
}

/// A list of the length at which they are sent at once is there before the turn ends, and so is its completion.
#[test]
fn a_long_one_does_not_wait() {
    each(|mut desk| {
        let (client, socket) = desk.connect();
        let content = pattern(SEND_AT_ONCE_MIN as usize);
        send(&mut desk, socket, Token(1), &content);
        assert!(!is_silent_peek(&client), "{}", desk.engine);
        let mut completions = Vec::new();
        desk.driver.completed(&mut completions);
        let counts: Vec<_> = completions.iter().map(count).collect();
        assert_eq!(counts, [Ok(SEND_AT_ONCE_MIN)], "{}", desk.engine);
        assert!(read(&client, content.len()) == content);
    });
}

/// As [`is_silent`], but takes nothing.
fn is_silent_peek(client: &TcpStream) -> bool {
    client.set_nonblocking(true).unwrap();
    let peeked = client.peek(&mut [0; 1]);
    client.set_nonblocking(false).unwrap();
    peeked.is_err()
}

/// A connection that is closed or reset in the same turn, by a timeout for example: nothing is
/// delivered for it, its memory is free, and the others' lists are sent.
#[test]
fn what_is_closed_before_that_harms_nobody() {
    each(|mut desk| {
        let memory = Arc::new(Memory::from_vec(b"never mind".to_vec()));
        let before = desk.connect();
        let closed: Vec<_> = (0..20).map(|_| desk.connect()).collect();
        let after = desk.connect();
        send(&mut desk, before.1, Token(1), b"before");
        for (n, (_, socket)) in (100..).zip(&closed) {
            send_memory(&mut desk, *socket, Token(n), &memory);
        }
        send(&mut desk, after.1, Token(2), b"after");
        for (n, (_, socket)) in closed.iter().enumerate() {
            match n % 2 {
                0 => desk.driver.close(*socket),
                _ => desk.driver.reset(*socket),
            }
        }
        all_sent(&mut desk, 1, 2);
        assert_eq!(read(&before.0, 6), b"before");
        assert_eq!(read(&after.0, 5), b"after");
        assert!(desk.settle().is_empty(), "{}", desk.engine);
        desk.turn_until("memory is free", |_| Arc::strong_count(&memory) == 1);
        for (mut client, _) in closed {
            let mut rest = Vec::new();
            let ended = client.read_to_end(&mut rest);
            assert!(
                ended.is_ok() || ended.is_err_and(|e| e.kind() == ErrorKind::ConnectionReset),
                "{}: the peer notices the end",
                desk.engine
            );
            assert!(rest.is_empty() || rest == b"never mind");
        }
    });
}

/// The slot of a closed socket is used again in the wait that would have sent its list: the new
/// connection gets nothing of it, and its own list once.
#[test]
fn a_reused_slot_sends_nothing_of_its_former_socket() {
    each(|mut desk| {
        for round in 0..50 {
            let (old_client, old) = desk.connect();
            // It waits to be accepted.
            let client = TcpStream::connect(desk.address).unwrap();
            client.set_read_timeout(Some(DEADLINE)).unwrap();
            send(&mut desk, old, Token(1), b"for the old one");
            desk.driver.close(old);
            let new = desk.accepted();
            assert!(is_silent(&client), "{}", desk.engine);
            let wire = format!("for the new one, {round}");
            send(&mut desk, new, Token(2), wire.as_bytes());
            assert_eq!(desk.sent(Token(2)), Ok(wire.len() as u64));
            assert_eq!(read(&client, wire.len()), wire.as_bytes());
            assert!(is_silent(&client), "{}: only once", desk.engine);
            desk.driver.close(new);
            drop(old_client);
        }
        assert!(desk.settle().is_empty(), "{}", desk.engine);
    });
}

/// A peer that does not read takes a while to fill its socket with short lists. Then its list waits,
/// those of others do not, and all of it arrives when the peer reads.
#[test]
fn a_full_socket_delays_no_other() {
    each_with_send_buffer(8_000, |mut desk| {
        let (idle, full) = desk.connect();
        rustix::net::sockopt::set_socket_recv_buffer_size(&idle, 8_000).unwrap();
        let (client, socket) = desk.connect();
        let piece = pattern(10_000);
        let mut sent = 0;
        let is_stuck = |desk: &mut Desk| {
            let mut ended = desk.settle();
            if ended.is_empty() {
                // Longer than a peer delays its acknowledgement.
                desk.turn();
                ended = desk.settle();
            }
            ended.is_empty()
        };
        loop {
            assert!(sent < 10_000, "{}: it never fills", desk.engine);
            send(&mut desk, full, Token(1), &piece);
            sent += 1;
            if is_stuck(&mut desk) {
                break;
            }
        }
        for n in 0..10 {
            send(&mut desk, socket, Token(2 + n), b"goes on");
            assert_eq!(desk.sent(Token(2 + n)), Ok(7));
            assert_eq!(read(&client, 7), b"goes on");
        }
        let reader = std::thread::spawn(move || read(&idle, sent * 10_000));
        assert_eq!(desk.sent(Token(1)), Ok(10_000));
        assert!(reader.join().unwrap() == pattern(10_000).repeat(sent));
    });
}

/// A peer that has gone meanwhile is an error of its own list.
#[test]
fn a_gone_peer_is_an_error_of_its_own_list() {
    each(|mut desk| {
        let (gone, lost) = desk.connect();
        let (client, socket) = desk.connect();
        send(&mut desk, lost, Token(1), b"anybody there?");
        send(&mut desk, socket, Token(2), b"still here");
        rustix::net::sockopt::set_socket_linger(&gone, Some(Duration::ZERO)).unwrap();
        drop(gone);
        let mut ended = [desk.next(), desk.next()];
        ended.sort_by_key(|completion| completion.token.0);
        let failed = count(&ended[0]);
        assert!(
            matches!(failed, Err(Errno::CONNRESET | Errno::PIPE)),
            "{}: {failed:?}",
            desk.engine
        );
        assert_eq!(count(&ended[1]), Ok(10));
        assert_eq!(read(&client, 10), b"still here");
    });
}

/// The sending half ends after the list, which waits for the turn's end.
#[test]
fn the_sending_half_ends_after_it() {
    each(|mut desk| {
        let (mut client, socket) = desk.connect();
        desk.driver.receive(socket, Token(3));
        send(&mut desk, socket, Token(1), b"the last words");
        desk.driver.shutdown_write(socket);
        assert!(
            is_silent(&client),
            "{}: neither bytes nor an end",
            desk.engine
        );
        assert_eq!(desk.sent(Token(1)), Ok(14));
        let mut all = Vec::new();
        client.read_to_end(&mut all).unwrap();
        assert_eq!(all, b"the last words");
        // The other half is open.
        client.write_all(b"farewell").unwrap();
        assert_eq!(desk.received_whole(Token(3), 8), b"farewell");
    });
}
