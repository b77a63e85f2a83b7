//! Sending files: heads, ranges, full sockets, files that shrink, cold files, odd file systems.

mod desk;

use std::io::Read;
use std::net::TcpStream;
use std::thread;

use desk::{Desk, Folder, each, pattern};
use gannet_io::driver::{Done, Errno, File, Socket, Token};
use gannet_testkit::left_out;

/// A client with a small window, which a thread reads to the end.
fn reading_client(desk: &mut Desk) -> (thread::JoinHandle<Vec<u8>>, Socket) {
    let (mut client, socket) = desk.connect();
    rustix::net::sockopt::set_socket_recv_buffer_size(&client, 20_000).unwrap();
    let reader = thread::spawn(move || {
        let mut bytes = Vec::new();
        client.read_to_end(&mut bytes).unwrap();
        bytes
    });
    (reader, socket)
}

fn finish(desk: &mut Desk, socket: Socket, reader: thread::JoinHandle<Vec<u8>>) -> Vec<u8> {
    desk.driver.close(socket);
    desk.settle();
    reader.join().unwrap()
}

/// Head and file, in slices, arrive byte for byte through a narrow window.
#[test]
fn sends_slices() {
    let folder = Folder::new("file-slices");
    let content = pattern(8 << 20);
    let path = folder.file("content", &content);
    each(|mut desk| {
        let file = File::from(std::fs::File::open(&path).unwrap());
        let (reader, socket) = reading_client(&mut desk);
        let mut expected = Vec::new();
        for (n, slice) in content.chunks(1 << 20).enumerate() {
            let head = format!("slice {n}\r\n").into_bytes();
            expected.extend_from_slice(&head);
            expected.extend_from_slice(slice);
            let whole = (head.len() + slice.len()) as u64;
            let token = Token(n as u64);
            let offset = (n as u64) << 20;
            desk.driver
                .send_file(socket, token, head, &file, offset, slice.len() as u64);
            assert_eq!(desk.sent(token), Ok(whole));
        }
        // Only a head, and nothing at all.
        desk.driver
            .send_file(socket, Token(90), b"end".to_vec(), &file, 0, 0);
        assert_eq!(desk.sent(Token(90)), Ok(3));
        desk.driver
            .send_file(socket, Token(91), Vec::new(), &file, 5, 0);
        assert_eq!(desk.sent(Token(91)), Ok(0));
        expected.extend_from_slice(b"end");
        assert!(
            finish(&mut desk, socket, reader) == expected,
            "{}: wrong bytes",
            desk.engine
        );
    });
}

/// A file that ends before the range does: fewer bytes, reported as such.
#[test]
fn tells_of_a_short_file() {
    let folder = Folder::new("file-short");
    each(|mut desk| {
        let content = pattern(300_000);
        let file = folder.cut_file(&content, 200_000);
        let (reader, socket) = reading_client(&mut desk);
        desk.driver
            .send_file(socket, Token(1), b"head".to_vec(), &file, 0, 300_000);
        assert_eq!(desk.sent(Token(1)), Ok(200_004));
        desk.driver
            .send_file(socket, Token(2), Vec::new(), &file, 250_000, 10);
        assert_eq!(desk.sent(Token(2)), Ok(0));
        let got = finish(&mut desk, socket, reader);
        assert_eq!(&got[..4], b"head");
        assert!(
            got[4..] == content[..200_000],
            "{}: wrong bytes",
            desk.engine
        );
    });
}

/// A helper reads in ranges that are not in memory, and then they are sent.
#[test]
fn warms_cold_files() {
    let folder = Folder::new("file-cold");
    let content = pattern(3 << 20);
    let path = folder.file("content", &content);
    each(|mut desk| {
        let opened = std::fs::File::open(&path).unwrap();
        rustix::fs::fsync(&opened).unwrap();
        rustix::fs::fadvise(&opened, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        let file = File::from(opened);
        let (reader, socket) = reading_client(&mut desk);
        for n in 0..3 {
            desk.driver
                .send_file(socket, Token(n), Vec::new(), &file, n << 20, 1 << 20);
            assert_eq!(desk.sent(Token(n)), Ok(1 << 20));
        }
        if desk.driver.counters().helped == 0 {
            left_out("cold pages", "this file system keeps them");
        }
        assert!(
            finish(&mut desk, socket, reader) == content,
            "{}: wrong bytes",
            desk.engine
        );
        // Known to be hot now.
        let helped = desk.driver.counters().helped;
        let (reader, socket) = reading_client(&mut desk);
        desk.driver
            .send_file(socket, Token(9), Vec::new(), &file, 0, 3 << 20);
        assert_eq!(desk.sent(Token(9)), Ok(3 << 20));
        assert_eq!(desk.driver.counters().helped, helped);
        assert!(
            finish(&mut desk, socket, reader) == content,
            "{}: wrong bytes",
            desk.engine
        );
    });
}

/// A file that `sendfile` cannot send is read by helpers instead.
#[test]
fn sends_what_sendfile_refuses() {
    each(|mut desk| {
        // Its length reads as zero, so the range is an arbitrary one, and the file ends early.
        let file = File::from(std::fs::File::open("/proc/self/limits").unwrap());
        let expected = std::fs::read("/proc/self/limits").unwrap();
        let (reader, socket) = reading_client(&mut desk);
        desk.driver
            .send_file(socket, Token(1), b"head".to_vec(), &file, 0, 1 << 20);
        assert_eq!(desk.sent(Token(1)), Ok(4 + expected.len() as u64));
        let got = finish(&mut desk, socket, reader);
        assert_eq!(&got[4..], expected);
    });
}

/// The peer disappears halfway: an error, and no signal.
#[test]
fn reports_a_gone_peer() {
    let folder = Folder::new("file-gone");
    let path = folder.file("content", &pattern(8 << 20));
    each(|mut desk| {
        let file = File::from(std::fs::File::open(&path).unwrap());
        let (client, socket) = desk.connect();
        desk.driver
            .send_file(socket, Token(1), Vec::new(), &file, 0, 8 << 20);
        assert!(
            desk.settle().is_empty(),
            "the socket holds less than the file"
        );
        drop_with_reset(client);
        let errno = desk.sent(Token(1)).unwrap_err();
        assert!(matches!(errno, Errno::CONNRESET | Errno::PIPE), "{errno:?}");
        desk.driver.close(socket);
    });
}

fn drop_with_reset(client: TcpStream) {
    rustix::net::sockopt::set_socket_linger(&client, Some(std::time::Duration::ZERO)).unwrap();
    drop(client);
}

/// Receiving continues while a file is sent.
#[test]
fn receives_meanwhile() {
    let folder = Folder::new("file-duplex");
    let content = pattern(4 << 20);
    let path = folder.file("content", &content);
    each(|mut desk| {
        let file = File::from(std::fs::File::open(&path).unwrap());
        let (mut client, socket) = desk.connect();
        desk.driver.receive(socket, Token(1));
        desk.driver
            .send_file(socket, Token(2), Vec::new(), &file, 0, 4 << 20);
        std::io::Write::write_all(&mut client, b"and another").unwrap();
        assert_eq!(desk.received_whole(Token(1), 11), b"and another");
        let reader = thread::spawn(move || {
            let mut bytes = vec![0; 4 << 20];
            client.read_exact(&mut bytes).unwrap();
            (client, bytes)
        });
        assert_eq!(desk.sent(Token(2)), Ok(4 << 20));
        let (client, bytes) = reader.join().unwrap();
        assert!(bytes == content, "{}: wrong bytes", desk.engine);
        drop(client);
        assert!(matches!(desk.next().result, Ok(Done::Ended)));
    });
}
