//! Forgetting sockets: nothing is delivered afterwards, nothing leaks, slots are reused.

mod desk;

use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex, PoisonError};

use desk::{Desk, Folder, descriptors, each, each_with, pattern};
use gannet_io::driver::{Done, File, Piece, SendList, Socket, Token};
use gannet_io::memory::Memory;
use gannet_io::options::EngineOptions;

/// Descriptors are counted for the whole process: one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// Starts everything a socket can have under way.
fn burden(desk: &mut Desk, socket: Socket, n: u64, memory: &Arc<Memory>, file: &File) {
    desk.driver.receive(socket, Token(n * 2));
    match n % 3 {
        0 => {
            let pieces = vec![Piece::Memory(Arc::clone(memory), 0..memory.len())];
            let list = SendList {
                wire: Vec::new(),
                pieces,
                more: false,
            };
            desk.driver.send(socket, Token(n * 2 + 1), list);
        }
        1 => desk
            .driver
            .send_file(socket, Token(n * 2 + 1), Vec::new(), file, 0, 8 << 20),
        _ => {}
    }
}

/// A thousand connections closed with operations in flight: no descriptor, buffer or memory leaks.
#[test]
fn closes_a_thousand_under_way() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = Folder::new("cancel-thousand");
    let content = pattern(8 << 20);
    let path = folder.file("content", &content);
    each(|mut desk| {
        let memory = Arc::new(Memory::from_vec(content.clone()));
        let file = File::from(std::fs::File::open(&path).unwrap());
        desk.settle();
        let before = descriptors();
        let mut pairs: Vec<(TcpStream, Socket)> = Vec::new();
        for n in 0..1000 {
            let (mut client, socket) = desk.connect();
            // Little in flight per connection: a thousand full sockets exhaust the kernel's share.
            rustix::net::sockopt::set_socket_recv_buffer_size(&client, 4096).unwrap();
            burden(&mut desk, socket, n, &memory, &file);
            if n % 5 == 0 {
                client.write_all(b"hello").unwrap();
            }
            if n % 7 == 0 {
                // Forgotten before the kernel has even seen it.
                desk.driver.close(socket);
                let (_, again) = desk.connect();
                desk.driver.close(again);
                continue;
            }
            if n % 5 == 0 {
                assert_eq!(desk.received_whole(Token(n * 2), 5), b"hello");
            }
            pairs.push((client, socket));
        }
        for (n, (client, socket)) in pairs.iter_mut().enumerate() {
            if n % 2 == 0 {
                // Bytes arrive at this very moment.
                client.write_all(b"too late").unwrap();
            }
            if n % 3 == 0 {
                desk.driver.reset(*socket);
            } else {
                desk.driver.close(*socket);
            }
        }
        assert!(
            desk.settle().is_empty(),
            "{}: nothing after close",
            desk.engine
        );
        drop(pairs);
        desk.turn_until("the last descriptor closed", |_| descriptors() == before);
        desk.turn_until("the last send ended", |_| Arc::strong_count(&memory) == 1);
        assert!(
            desk.settle().is_empty(),
            "{}: nothing after close",
            desk.engine
        );
    });
}

/// A reused slot gets nothing of its former socket, whatever was under way.
#[test]
fn reused_slots_get_nothing_stale() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = Folder::new("cancel-reuse");
    let path = folder.file("content", &pattern(8 << 20));
    let options = EngineOptions {
        buffers: 4,
        buffer_len: 512,
        ..EngineOptions::default()
    };
    each_with(&options, |mut desk| {
        let memory = Arc::new(Memory::from_vec(pattern(8 << 20)));
        let file = File::from(std::fs::File::open(&path).unwrap());
        let mut sockets_seen = HashSet::new();
        for n in 0..500u64 {
            let (mut old_client, old) = desk.connect();
            burden(&mut desk, old, n, &memory, &file);
            old_client.write_all(b"old old old").unwrap();
            if n % 2 == 0 {
                desk.driver.pause_receiving(old);
            }
            desk.driver.close(old);
            let (mut client, socket) = desk.connect();
            sockets_seen.insert(socket.0);
            desk.driver.receive(socket, Token(1_000_000 + n));
            client.write_all(b"new").unwrap();
            assert_eq!(desk.received_whole(Token(1_000_000 + n), 3), b"new");
            let wire = format!("answer {n}").into_bytes();
            let len = wire.len();
            let list = SendList {
                wire,
                ..SendList::default()
            };
            desk.driver.send(socket, Token(2_000_000 + n), list);
            assert_eq!(desk.sent(Token(2_000_000 + n)), Ok(len as u64));
            let mut answer = vec![0; len];
            client.read_exact(&mut answer).unwrap();
            assert_eq!(answer, format!("answer {n}").into_bytes());
            desk.driver.close(socket);
        }
        assert!(sockets_seen.len() < 50, "{}: slots are reused", desk.engine);
        assert!(desk.settle().is_empty());
        // All four buffers have been returned: four sockets can hold one each.
        let mut holders = Vec::new();
        for n in 0..4 {
            let (client, socket) = desk.connect();
            desk.driver.receive(socket, Token(n));
            holders.push(client);
        }
        for client in &mut holders {
            client.write_all(b"x").unwrap();
        }
        let leases: Vec<_> = (0..4)
            .map(|_| match desk.next().result {
                Ok(Done::Received(lease)) => lease,
                other => panic!("{other:?}"),
            })
            .collect();
        for lease in leases {
            desk.driver.release(lease);
        }
    });
}

/// A queued end of the stream is not delivered after the close.
#[test]
fn drops_what_is_queued() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = Folder::new("cancel-queued");
    let path = folder.file("content", &pattern(1000));
    each(|mut desk| {
        let file = File::from(std::fs::File::open(&path).unwrap());
        let (mut client, socket) = desk.connect();
        desk.driver
            .send_file(socket, Token(1), Vec::new(), &file, 0, 1000);
        desk.driver.close(socket);
        assert!(desk.settle().is_empty());
        let mut bytes = Vec::new();
        client.read_to_end(&mut bytes).unwrap();
        assert_eq!(bytes.len(), 1000, "a close drops no sent bytes");
    });
}

/// Dropping a driver with everything under way leaves no descriptor behind.
#[test]
fn drops_with_all_under_way() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = Folder::new("cancel-drop");
    let path = folder.file("content", &pattern(8 << 20));
    let memory = Arc::new(Memory::from_vec(pattern(8 << 20)));
    // After this, the threads and descriptors that live as long as the process exist.
    each(|_| {});
    let before = descriptors();
    each(|mut desk| {
        let file = File::from(std::fs::File::open(&path).unwrap());
        let mut clients = Vec::new();
        for n in 0..30 {
            let (client, socket) = desk.connect();
            burden(&mut desk, socket, n, &memory, &file);
            clients.push(client);
        }
        desk.settle();
        drop(desk);
    });
    assert_eq!(Arc::strong_count(&memory), 1);
    assert_eq!(descriptors(), before);
}
