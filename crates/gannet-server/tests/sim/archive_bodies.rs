//! Bodies of an archive that is served from its file: long ones that are asked for again are copied, within
//! the room of the caches, and sent from the copy.

use std::sync::Arc;

use gannet_server::ledger::Account;
use gannet_testkit::h2::{headers, request, wide_opening};
use rustls::ClientConfig;

use crate::run::{Packing, Tls};
use crate::server::{Server, get};
use crate::wire::Wire;

/// Longer than what is read for a first request.
const LEN: usize = 200_000;

const COUNT: usize = 12;

fn content(number: usize) -> Vec<u8> {
    (0..LEN).map(|at| (at / 9 + 31 * number) as u8).collect()
}

/// A server of an archive with these bodies, with room for so many of them.
fn server(room: usize) -> Server {
    server_with(room, Tls::None).0
}

fn server_with(room: usize, tls: Tls) -> (Server, Option<Arc<ClientConfig>>) {
    let mut packing = Packing::new();
    for number in 0..COUNT {
        packing.add(&number.to_string(), &content(number), None);
    }
    Server::of_archive_with(packing, (room * LEN) as u64, tls)
}

/// Requests a body and checks that the answer is all of it.
fn ask(server: &mut Server, number: usize) {
    let body = server.body(&number.to_string(), LEN);
    assert!(body == content(number), "another body than {number}");
}

fn held(server: &Server) -> u64 {
    let holdings = server.driven.holdings();
    let copies = holdings.iter().find(|it| it.account == Account::Copies);
    copies.expect("every account is there").held
}

#[test]
fn a_body_is_copied_for_its_second_request_and_sent_from_there() {
    let mut server = server(8);
    ask(&mut server, 0);
    assert_eq!((held(&server), server.disk.copied_bytes()), (0, 0));
    for _ in 0..3 {
        ask(&mut server, 0);
        assert_eq!(held(&server), LEN as u64);
    }
    assert_eq!(server.disk.copied_bytes(), LEN as u64);
    // Nothing of it is read any more.
    server.disk.break_file("site.gannet", Some(0));
    ask(&mut server, 0);
    server.disk.break_file("site.gannet", None);
    server.disk.overwrite_file("site.gannet", vec![0; 1 << 20]);
    ask(&mut server, 0);
}

/// Who asks for parts takes as many bytes before there is a copy as who asks for the whole.
#[test]
fn parts_are_copied_once_they_are_as_much_as_the_whole() {
    let mut server = server(8);
    let client = server.connect();
    let mut ask = |first: usize, last: usize| {
        let range = format!("range: bytes={first}-{last}");
        client.write(format!("GET /3 HTTP/1.1\r\nhost: sim\r\n{range}\r\n\r\n").as_bytes());
        let (mut got, part) = (Vec::new(), &content(3)[first..=last]);
        server.until("a part", || {
            got.extend(client.read());
            got.ends_with(part)
        });
        server.disk.copied_bytes()
    };
    for at in 0..50 {
        assert_eq!(ask(at, at), 0);
    }
    assert_eq!(ask(0, LEN - 51), 0);
    assert_eq!(ask(7, 7), LEN as u64);
}

/// Without room for it beside others, a body is sent from the file, however often.
#[test]
fn a_body_without_room_is_not_copied() {
    for room in [0, 1] {
        let mut server = server(room);
        for _ in 0..4 {
            ask(&mut server, 1);
        }
        assert_eq!((held(&server), server.disk.copied_bytes()), (0, 0));
    }
}

/// Of an archive that cannot change, pages of the file are as good as those of a copy, where pages are sent.
#[test]
fn a_body_that_cannot_change_is_not_copied() {
    let mut server = server(8);
    server.disk.fix_file("site.gannet");
    for _ in 0..4 {
        ask(&mut server, 1);
    }
    assert_eq!((held(&server), server.disk.copied_bytes()), (0, 0));
}

/// Records and frames would read it anew for each response.
#[test]
fn a_body_that_cannot_change_is_copied_for_tls_and_http2() {
    for version in [1, 2] {
        let tls = if version == 1 { Tls::Own } else { Tls::None };
        let (mut server, config) = server_with(8, tls);
        server.disk.fix_file("site.gannet");
        for _ in 0..4 {
            let wire = Wire::connect(&server.disk, config.as_ref(), usize::MAX);
            let wire = wire.expect("it listens");
            match version {
                1 => wire.write(&get("1")),
                _ => {
                    let request = headers(1, &request("GET", "/1", &[]));
                    wire.write(&[wide_opening(), request].concat());
                }
            }
            let mut got = 0;
            server.until("an answer", || {
                let bytes = wire.read_at_most(usize::MAX);
                got += bytes.expect("true records").len();
                got > LEN
            });
        }
        assert_eq!(server.disk.copied_bytes(), LEN as u64, "HTTP/{version}");
    }
}

/// Each turn the bounds of all memory are checked.
#[test]
pub(crate) fn copies_of_all_bodies_at_once_stay_within_the_room() {
    let mut server = server(4);
    server.disk.slow_copies(50_000_000);
    for _ in 0..4 {
        let clients: Vec<_> = (0..COUNT).map(|_| server.connect()).collect();
        for (number, client) in clients.iter().enumerate() {
            client.write(&get(&number.to_string()));
        }
        for (number, client) in clients.iter().enumerate() {
            let (mut got, expected) = (Vec::new(), content(number));
            server.until("an answer", || {
                got.extend(client.read());
                got.ends_with(&expected)
            });
        }
    }
    let copied = server.disk.copied_bytes();
    assert!(copied > 0 && held(&server) <= 4 * (LEN + 1_000) as u64);
}

/// The archive is overwritten while a body is copied: no byte of the copy is sent.
#[test]
fn a_copy_of_what_changes_meanwhile_is_not_used() {
    let mut server = server(8);
    ask(&mut server, 2);
    server.disk.slow_copies(300_000_000);
    let client = server.connect();
    client.write(&get("2"));
    server.pass(100);
    server
        .disk
        .overwrite_file("site.gannet", vec![b'y'; 4 << 20]);
    let mut got = Vec::new();
    server.until("an answer", || {
        got.extend(client.read());
        got.starts_with(b"HTTP/1.1 5")
    });
    server.pass(1_000);
    assert_eq!((held(&server), server.disk.copied_bytes()), (0, 0));
}
