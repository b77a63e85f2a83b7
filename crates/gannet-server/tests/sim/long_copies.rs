//! Longer files that are requested repeatedly are copied in the background, within a bound, and
//! every answer is one version.

use gannet_io::options::EngineOptions;
use gannet_io::sim::{Faults, Sim};
use gannet_server::config::ContentOptions;
use gannet_server::driven::Driven;
use gannet_server::ledger::Account;

use crate::budget::MS;
use crate::run::LIMITS;
use crate::server::{Server, directory, get};

/// Longer than what is copied for a first request.
const LEN: usize = 200_000;

/// Room for two copies, half of the cache.
const CACHE: u64 = 4 * LEN as u64 + 1_000;

/// A directory with four files of [`LEN`] bytes, which have not changed for a while.
fn server() -> Server {
    let driver = Sim::new(1, 1, &EngineOptions::default(), Faults::none());
    let disk = driver.handle();
    for number in 0..4u8 {
        disk.put_file(&number.to_string(), vec![b'a' + number; LEN]);
    }
    disk.age_files(100_000);
    let content = directory(&disk);
    let options = ContentOptions {
        cache_memory: Some(CACHE),
        snapshot_max: 64 << 10,
        ..ContentOptions::default()
    };
    let driven = Driven::new(driver, content, &options, LIMITS, None).expect("no archive");
    Server { driven, disk }
}

/// Requests a file and checks that the answer is its content.
fn ask(server: &mut Server, path: &str, byte: u8) {
    let client = server.connect();
    client.write(&get(path));
    let mut got = Vec::new();
    server.until("the whole answer", || {
        got.extend(client.read());
        got.len() > LEN
    });
    assert!(got.starts_with(b"HTTP/1.1 200 "));
    assert!(got[got.len() - LEN..].iter().all(|it| *it == byte));
}

fn held(server: &Server) -> u64 {
    let holdings = server.driven.holdings();
    let mut found = holdings
        .iter()
        .filter(|it| it.account == Account::LongCopies);
    found.next().expect("every account is there").held
}

#[test]
fn a_file_that_is_requested_repeatedly_is_copied_once() {
    let mut server = server();
    for _ in 0..2 {
        ask(&mut server, "0", b'a');
        assert_eq!(held(&server), 0);
    }
    for _ in 0..10 {
        ask(&mut server, "0", b'a');
        assert_eq!(held(&server), LEN as u64);
    }
    assert_eq!(server.disk.copied_bytes(), LEN as u64);
    assert_eq!(server.driven.counters().first_reads, 1);
    // No file is open, and another version is noticed as soon as without a copy.
    server.disk.put_file("0", vec![b'z'; LEN]);
    server.pass(1_000);
    ask(&mut server, "0", b'z');
}

/// The file is changed in place while it is copied: no bytes of the copy are sent.
#[test]
fn a_copy_of_a_file_that_changes_meanwhile_is_not_used() {
    let mut server = server();
    ask(&mut server, "0", b'a');
    ask(&mut server, "0", b'a');
    server.disk.slow_file("0", 300 * MS);
    let client = server.connect();
    client.write(&get("0"));
    server.until_it("it is being copied", |driven| {
        driven.counters().first_reads == 1
    });
    assert_eq!(held(&server), LEN as u64);
    server.disk.overwrite_file("0", vec![b'y'; LEN]);
    client.reset();
    server.pass(2_000);
    assert_eq!((held(&server), server.disk.copied_bytes()), (0, 0));
    server.disk.slow_file("0", 0);
    server.pass(3_000);
    for _ in 0..5 {
        ask(&mut server, "0", b'y');
    }
}

/// The directory has nothing else open for longer than files stay open.
#[test]
fn a_copy_that_takes_long_is_dropped_as_others_are() {
    let mut server = server();
    server.disk.slow_copies(20_000 * MS);
    for _ in 0..3 {
        ask(&mut server, "0", b'a');
    }
    assert_eq!(server.driven.counters().first_reads, 1);
    server.pass(15_000);
    assert_eq!(server.disk.copied_bytes(), 0);
    server.pass(15_000);
    assert_eq!(server.disk.copied_bytes(), LEN as u64);
    server.pass(40_000);
    server.pass(40_000);
    assert_eq!((held(&server), server.disk.copied_bytes()), (0, 0));
}

/// Files that do not fit together: those that are copied stay, until they are no longer requested.
#[test]
pub(crate) fn copies_have_a_bound_and_make_room_when_idle() {
    let mut server = server();
    for _ in 0..8 {
        for number in 0..4u8 {
            ask(&mut server, &number.to_string(), b'a' + number);
        }
    }
    assert_eq!(server.driven.counters().first_reads, 2);
    assert_eq!(held(&server), 2 * LEN as u64);
    server.pass(12_000);
    for _ in 0..8 {
        ask(&mut server, "2", b'c');
        ask(&mut server, "3", b'd');
    }
    assert_eq!(server.driven.counters().first_reads, 4);
    assert_eq!(held(&server), 2 * LEN as u64);
}
