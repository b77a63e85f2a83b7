//! First requests for long files: their cost, and their effect on other requests.

use gannet_io::sim::Client;
use gannet_testkit::h2::{INITIAL_WINDOW_SIZE, headers, opening, request};

use crate::budget::{COPIES_AT_ONCE, MS, server, status};
use crate::server::{Server, get};

/// Many times the minimum that a lookup counts for.
const LEN: usize = 1 << 20;

/// The minimum number of bytes that a lookup counts for, whatever the request.
const LEAST: usize = 32 << 10;

fn put(server: &Server, name: &str, byte: u8) {
    server.disk.put_file(name, vec![byte; LEN]);
}

/// Copies begun since `hot` was read.
fn copied(server: &mut Server) -> u64 {
    server.driven.counters().first_reads - 1
}

fn first_byte(path: &str) -> Vec<u8> {
    let head = format!("GET /{path} HTTP/1.1\r\nhost: sim\r\nrange: bytes=0-0\r\n\r\n");
    head.into_bytes()
}

/// Reads the response to a request for a whole file; returns how long its last byte took in
/// milliseconds.
fn take(server: &mut Server, client: &Client, byte: u8) -> u64 {
    let mut got = Vec::new();
    let took = server.until("the content", || {
        got.extend(client.read());
        got.len() > LEN
    });
    assert!(got.starts_with(b"HTTP/1.1 200 "));
    assert!(got[got.len() - LEN..].iter().all(|it| *it == byte));
    took
}

/// Requests a whole file, reads it, and returns how many copies that began.
fn whole(server: &mut Server, path: &str, byte: u8) -> u64 {
    let before = copied(server);
    let client = server.connect();
    client.write(&get(path));
    take(server, &client, byte);
    copied(server) - before
}

/// Requests one byte, reads it, and returns how many copies that began.
fn range(server: &mut Server, path: &str, byte: u8) -> u64 {
    let before = copied(server);
    let client = server.connect();
    client.write(&first_byte(path));
    let (status, mut got) = status(server, &client);
    assert_eq!(status, 206);
    server.until("the byte", || {
        got.extend(client.read());
        got.ends_with(&[b'\n', byte])
    });
    copied(server) - before
}

/// Requests for the first byte of the same file on many HTTP/2 streams, none of which has a window.
fn streams(path: &str, count: usize) -> Vec<u8> {
    let mut requests = opening(&[(INITIAL_WINDOW_SIZE, 0)]);
    for id in (1..).step_by(2).take(count) {
        let path = format!("/{path}");
        requests.extend(headers(
            id,
            &request("GET", &path, &[("range", "bytes=0-0")]),
        ));
    }
    requests
}

#[test]
fn ranges_of_many_long_files_copy_none_and_hold_nobody_up() {
    const FILES: usize = 60;
    let mut server = server();
    for number in 0..FILES {
        let name = format!("cold{number}");
        put(&server, &name, b'x');
        server.disk.slow_file(&name, 200 * MS);
    }
    put(&server, "other", b'o');
    server.disk.age_files(100_000);
    let clients: Vec<_> = (0..FILES).map(|_| server.connect()).collect();
    for (number, client) in clients.iter().enumerate() {
        client.write(&first_byte(&format!("cold{number}")));
    }
    // They have been opened, and are being read.
    server.pass(300);
    let other = server.connect();
    other.write(&get("other"));
    let took = take(&mut server, &other, b'o');
    assert!(took < 100, "{took} ms");
    for client in &clients {
        assert_eq!(status(&mut server, client).0, 206);
    }
    assert_eq!(copied(&mut server), 1, "copies");
}

#[test]
fn nobody_waits_for_copies_of_other_files() {
    let mut server = server();
    for number in 0..COPIES_AT_ONCE {
        let name = format!("slow{number}");
        put(&server, &name, b's');
        server.disk.slow_file(&name, 1_500 * MS);
    }
    put(&server, "other", b'o');
    server.disk.age_files(100_000);
    let clients: Vec<_> = (0..COPIES_AT_ONCE).map(|_| server.connect()).collect();
    for (number, client) in clients.iter().enumerate() {
        client.write(&get(&format!("slow{number}")));
    }
    // They have been opened, and are being copied.
    server.pass(1_600);
    assert_eq!(copied(&mut server), COPIES_AT_ONCE);
    let other = server.connect();
    other.write(&get("other"));
    let took = take(&mut server, &other, b'o');
    assert!(took < 500, "{took} ms");
    assert_eq!(copied(&mut server), COPIES_AT_ONCE, "there is no room");
    for client in &clients {
        take(&mut server, client, b's');
    }
    // It was cached without a copy, and gets one as soon as there is room.
    assert_eq!(whole(&mut server, "other", b'o'), 1);
    assert_eq!(whole(&mut server, "other", b'o'), 0);
}

#[test]
fn a_file_is_copied_once_requests_have_taken_as_much() {
    let mut server = server();
    put(&server, "cold", b'x');
    put(&server, "often", b'y');
    server.disk.age_files(100_000);
    assert_eq!(range(&mut server, "cold", b'x'), 0);
    assert_eq!(whole(&mut server, "cold", b'x'), 1);
    assert_eq!(whole(&mut server, "cold", b'x'), 0);
    assert_eq!(range(&mut server, "cold", b'x'), 0);
    for _ in 1..LEN / LEAST {
        assert_eq!(range(&mut server, "often", b'y'), 0);
    }
    assert_eq!(range(&mut server, "often", b'y'), 1);
    assert_eq!(whole(&mut server, "often", b'y'), 0);
}

/// A lookup that began before a file was copied, and ends without a copy, does not replace it.
#[test]
fn a_copy_is_not_forgotten_for_a_range() {
    let mut server = server();
    put(&server, "page.html", b'x');
    server.disk.put_file("page.html.br", "sidecar");
    server.disk.slow_file("page.html.br", 100 * MS);
    server.disk.age_files(100_000);
    // What was known of the folder when `hot` was looked up is over.
    server.pass(200);
    let (first, second) = (server.connect(), server.connect());
    first.write(&get("page.html"));
    server.pass(50);
    second.write(&first_byte("page.html"));
    take(&mut server, &first, b'x');
    assert_eq!(second.readable(), 0, "the sidecar is still being looked up");
    assert_eq!(status(&mut server, &second).0, 206);
    assert_eq!(copied(&mut server), 1);
    assert_eq!(whole(&mut server, "page.html", b'x'), 0);
}

/// A file that is sent directly is not kept open afterwards, and concurrent responses share its
/// descriptor.
#[test]
fn files_that_are_sent_as_they_are_need_few_descriptors() {
    const STREAMS: usize = 15;
    let mut server = server();
    put(&server, "cold", b'x');
    server.disk.age_files(100_000);
    let before = server.disk.leaks().files_open;
    let clients = [server.connect(), server.connect()];
    for client in &clients {
        client.write(&streams("cold", STREAMS));
    }
    server.pass(100);
    assert_eq!(copied(&mut server), 0);
    let open = server.disk.leaks().files_open - before;
    assert_eq!(open, 1, "descriptors for {} streams", 2 * STREAMS);
    clients.iter().for_each(Client::reset);
    server.pass(100);
    assert_eq!(server.disk.leaks().files_open, before);
}

/// Requests that wait for a copy of a file that changes meanwhile get the next version completely,
/// and a response sent from the file itself never completes with both.
#[test]
fn what_changes_while_it_is_copied_or_sent_is_one_version() {
    let mut server = server();
    put(&server, "cold", 1);
    for number in 0..COPIES_AT_ONCE {
        put(&server, &format!("slow{number}"), b's');
    }
    server.disk.age_files(100_000);
    server.disk.slow_file("cold", 200 * MS);
    let crowd: Vec<_> = (0..20).map(|_| server.connect()).collect();
    crowd.iter().for_each(|client| client.write(&get("cold")));
    server.pass(300);
    assert_eq!(copied(&mut server), 1);
    server.disk.overwrite_file("cold", vec![2; LEN]);
    server.disk.slow_file("cold", 0);
    for client in &crowd {
        take(&mut server, client, 2);
    }
    // The same without room for a copy.
    server.disk.age_files(100_000);
    server.pass(5_000);
    server.disk.slow_file("cold", 200 * MS);
    for number in 0..COPIES_AT_ONCE {
        server.disk.slow_file(&format!("slow{number}"), 1_000 * MS);
    }
    let busy: Vec<_> = (0..COPIES_AT_ONCE).map(|_| server.connect()).collect();
    for (number, client) in busy.iter().enumerate() {
        client.write(&get(&format!("slow{number}")));
    }
    server.pass(1_100);
    let client = server.connect();
    client.write(&get("cold"));
    server.pass(300);
    server.disk.overwrite_file("cold", vec![3; LEN]);
    let mut got = Vec::new();
    server.until("its end", || {
        got.extend(client.read());
        client.is_closed_by_server()
    });
    assert_eq!(copied(&mut server), 1 + COPIES_AT_ONCE);
    let is_whole = got.len() > LEN;
    assert!(!is_whole && !got.contains(&3), "{} bytes", got.len());
    for client in &busy {
        take(&mut server, client, b's');
    }
}
