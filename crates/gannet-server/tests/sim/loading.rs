//! Bodies that an archive or a directory stores only in a coding: requests for them wait, and no
//! others do.

use std::cell::Cell;

use gannet_io::options::EngineOptions;
use gannet_io::sim::{Client, Faults, Sim};
use gannet_server::config::ContentOptions;
use gannet_server::driven::{Driven, DrivenContent};

use crate::run::{LIMITS, Packing, gzip};
use crate::server::{Server, get};

const MS: u64 = 1_000_000;

/// Bodies in the archive.
const COUNT: usize = 8;

/// Length of the first body; each further one is a byte shorter.
const LONGEST: usize = 1 << 20;

/// "hello hello hello hello\n", compressed by brotli at quality 11.
const HELLO_BROTLI: &[u8] =
    b"\x1b\x17\x00\xf8\x8d\x94\x6e\xde\x44\x55\x86\xd6\x0a\x20\x6c\x6f\x4a\x11\x79\xe2\x80\xae\x16";

fn body(number: usize) -> Vec<u8> {
    let mut body = vec![b'z'; LONGEST - number];
    // Incompressible bytes, so that the gzip is too long for the metadata.
    let mut seed = number as u64 + 1;
    body[..20_000].fill_with(|| {
        seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        (seed >> 56) as u8
    });
    body
}

/// A directory with the same bodies, each only as gzip.
fn directory() -> Server {
    let driver = Sim::new(1, 1, &EngineOptions::default(), Faults::none());
    let disk = driver.handle();
    disk.put_file("small", "small");
    disk.put_file("hello.br", HELLO_BROTLI);
    for number in 0..COUNT {
        disk.put_file(&format!("{number}.gz"), gzip(&body(number)));
    }
    disk.age_files(10_000);
    let options = ContentOptions {
        compressed_only: true,
        ..ContentOptions::default()
    };
    let content = DrivenContent::Directory(disk.root());
    let driven = Driven::new(driver, content, &options, LIMITS, None).expect("no archive");
    Server { driven, disk }
}

/// The archive, with only the last body cached.
fn server() -> Server {
    let mut packing = Packing::new();
    // Bodies this short are in the metadata.
    packing.add("small", b"small", None);
    for number in 0..COUNT {
        packing.add_decoded(&number.to_string(), &body(number));
    }
    Server::of_archive(packing, 0)
}

/// Runs turns until more than `len` bytes have arrived.
fn read(server: &mut Server, client: &Client, len: usize) -> Vec<u8> {
    let mut got = Vec::new();
    server.until("an answer", || {
        got.extend(client.read());
        got.len() > len
    });
    got
}

#[test]
fn one_long_body_is_inflated_in_a_turn() {
    inflate_in_turns(server());
    inflate_in_turns(directory());
}

fn inflate_in_turns(mut server: Server) {
    let client = server.connect();
    let requests: Vec<u8> = (0..COUNT).flat_map(|it| get(&it.to_string())).collect();
    client.write(&requests);
    let (mut before, mut got) = (0, 0);
    while got < COUNT * (LONGEST - COUNT) {
        server.driven.turn(None).expect("it goes on");
        got += client.read().len();
        let now = server.driven.counters().decoded;
        assert!(
            now <= before + 1,
            "{before} before the turn, {now} after it"
        );
        before = now;
    }
    assert_eq!(before, COUNT as u64);
}

#[test]
fn those_who_want_the_same_body_wait_for_one_read_and_nobody_else_does() {
    let mut server = server();
    server.disk.slow_file("site.gannet", 500 * MS);
    let clients: Vec<_> = (0..5).map(|_| server.connect()).collect();
    for client in &clients {
        client.write(&get("0"));
    }
    // This client is gone when the body arrives.
    server.connect().write(&get("0"));
    let other = server.connect();
    other.write(&get("small"));
    let took = server.until("another client's response", || other.readable() > 0);
    assert!(took < 400, "{took} ms");
    assert!(clients.iter().all(|client| client.readable() == 0));
    for client in &clients {
        read(&mut server, client, LONGEST);
    }
    assert_eq!(server.driven.counters().decoded, 1);
}

#[test]
fn parts_of_one_body_cost_one_inflation_even_without_memory_for_it() {
    let mut server = server();
    let client = server.connect();
    for start in 0..20 {
        let range = format!("range: bytes={start}-{}", start + 999);
        client.write(format!("GET /3 HTTP/1.1\r\nhost: sim\r\n{range}\r\n\r\n").as_bytes());
        let got = read(&mut server, &client, 1_000);
        assert!(got.starts_with(b"HTTP/1.1 206"));
    }
    assert_eq!(server.driven.counters().decoded, 1);
    // Preconditions are evaluated without it.
    client.write(b"HEAD /4 HTTP/1.1\r\nhost: sim\r\n\r\n");
    assert!(read(&mut server, &client, 100).starts_with(b"HTTP/1.1 200"));
    assert_eq!(server.driven.counters().decoded, 1);
}

#[test]
fn a_body_that_cannot_be_read_is_an_error_of_the_server() {
    let mut server = server();
    let broken = Cell::new(true);
    for expect in [&b"HTTP/1.1 500"[..], b"HTTP/1.1 200"] {
        let until = broken.replace(false).then_some(0);
        server.disk.break_file("site.gannet", until);
        let client = server.connect();
        client.write(&get("5"));
        let got = read(&mut server, &client, 100);
        assert!(got.starts_with(expect), "{}", String::from_utf8_lossy(&got));
        client.read();
        client.write(&get("small"));
        let mut got = got;
        server.until("the next answer", || {
            got.extend(client.read());
            got.ends_with(b"small")
        });
    }
}

#[test]
fn gzip_on_a_slow_disk_is_inflated_for_all_who_wait_and_let_go() {
    let mut server = directory();
    server.disk.slow_file("0.gz", 500 * MS);
    let clients: Vec<_> = (0..5).map(|_| server.connect()).collect();
    for client in &clients {
        client.write(&get("0"));
    }
    let other = server.connect();
    other.write(&get("small"));
    let took = server.until("another client's response", || other.readable() > 0);
    assert!(took < 400, "{took} ms");
    for client in &clients {
        let got = read(&mut server, client, LONGEST);
        assert!(got.ends_with(&body(0)[LONGEST - 100..]) && got.len() < LONGEST + 1_000);
    }
    drop(clients);
    server.disk.remove_file("0.gz");
    server.pass(20_000);
    assert_eq!(server.disk.leaks().files_open, 0);
}

#[test]
fn gzip_that_changes_while_it_is_read_is_read_again() {
    let mut server = directory();
    server.disk.slow_file("1.gz", 500 * MS);
    let client = server.connect();
    client.write(&get("1"));
    server.pass(700);
    server.disk.overwrite_file("1.gz", gzip(&body(2)));
    let got = read(&mut server, &client, LONGEST);
    let content = body(2);
    assert!(got[got.len() - content.len()..] == content);
}

#[test]
fn gzip_that_cannot_be_read_is_an_error_as_long_as_that_is_so() {
    let mut server = directory();
    for (until, expect) in [(Some(0), &b"HTTP/1.1 500"[..]), (None, b"HTTP/1.1 200")] {
        server.disk.break_file("3.gz", until);
        let client = server.connect();
        client.write(&get("3"));
        let got = read(&mut server, &client, 100);
        assert!(got.starts_with(expect), "{}", String::from_utf8_lossy(&got));
    }
}

/// A disk failure says nothing about the content, which can be decoded once it is readable.
#[test]
fn brotli_that_cannot_be_read_is_an_error_as_long_as_that_is_so() {
    let mut server = directory();
    for (until, expect) in [(Some(0), &b"HTTP/1.1 500"[..]), (None, b"HTTP/1.1 200")] {
        server.disk.break_file("hello.br", until);
        let client = server.connect();
        client.write(&get("hello"));
        let got = read(&mut server, &client, 100);
        assert!(got.starts_with(expect), "{}", String::from_utf8_lossy(&got));
        let is_decoded = got.ends_with(b"\r\n\r\nhello hello hello hello\n");
        assert_eq!(is_decoded, until.is_none());
    }
}
