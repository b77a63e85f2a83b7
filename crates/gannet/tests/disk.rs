//! A disk that fails or hangs harms only those who read from it.

mod support;

use support::client::{Client, End, get, head, metric};
use support::content::{assert_pattern, pattern};
use support::engine::on_both_engines;
use support::fuse::{Disk, Mounted};
use support::process::until;

/// Longer than what is kept in memory or copied.
const LARGE: usize = 6 << 20;
/// Up to here its disk is good.
const GOOD: u64 = 2 << 20;

#[test]
fn a_read_error_in_the_middle_ends_the_response_short() {
    let large = pattern(LARGE, 3);
    on_both_engines(|engine| {
        let Some(disk) = Mounted::new(&[
            ("fine.txt", b"fine", Disk::Good),
            ("large.bin", &large, Disk::BrokenFrom(GOOD)),
        ]) else {
            return;
        };
        let flags = ["--workers", "1", "--metrics", "127.0.0.1:0"];
        let server = engine.serve(disk.path(), &flags);
        let mut other = Client::new(&server);
        other.get("/fine.txt").expect(200);
        let mut client = Client::new(&server);
        client.send(head("GET", "/large.bin", &[]));
        let announced = client.head().expect(200).content_length();
        assert_eq!(announced, Some(LARGE as u64));
        let (got, end) = client.rest();
        assert!(got.len() as u64 <= GOOD, "nothing was read beyond {GOOD}");
        assert_pattern(&got, 3);
        assert_eq!(end, End::Reset);
        assert_eq!(metric(&server, "gannet_responses_cut_short_total"), 1);
        assert_eq!(other.get("/fine.txt").expect(200).body, b"fine");
        // What the disk can read is served.
        let range = format!("range: bytes=0-{}", GOOD / 2 - 1);
        let part = support::client::ask(&server, "GET", "/large.bin", &[&range]).expect(206);
        assert_pattern(&part.body, 3);
    });
}

#[test]
fn a_small_file_that_cannot_be_read_is_an_error_of_the_server() {
    on_both_engines(|engine| {
        let Some(disk) = Mounted::new(&[
            ("fine.txt", b"fine", Disk::Good),
            ("small.txt", b"never seen", Disk::BrokenFrom(0)),
        ]) else {
            return;
        };
        let server = engine.serve(disk.path(), &["--workers", "1"]);
        get(&server, "/small.txt").expect(500);
        assert_eq!(get(&server, "/fine.txt").expect(200).body, b"fine");
    });
}

#[test]
fn a_slow_disk_delays_only_its_own_readers() {
    let large = pattern(LARGE, 5);
    on_both_engines(|engine| {
        let Some(disk) = Mounted::new(&[
            ("fine.txt", b"fine", Disk::Good),
            ("large.bin", &large, Disk::SlowFrom(64 << 10)),
            ("small.txt", b"late", Disk::SlowFrom(0)),
            ("name.txt", b"found", Disk::SlowName),
        ]) else {
            return;
        };
        let server = engine.serve(disk.path(), &["--workers", "1"]);
        let _release = disk.release_at_end();
        let mut waiting: Vec<Client> = ["/large.bin", "/small.txt", "/name.txt"]
            .iter()
            .map(|target| {
                let mut client = Client::new(&server);
                client.send(head("GET", target, &[]));
                client
            })
            .collect();
        until("all three hang", || disk.hanging() >= 3);
        // One worker: were it to wait for the disk, nobody would be answered.
        let mut other = Client::new(&server);
        for _ in 0..100 {
            assert_eq!(other.get("/fine.txt").expect(200).body, b"fine");
            get(&server, "/nothing").expect(404);
        }
        disk.release();
        let large = waiting[0].response().expect(200);
        assert_eq!(large.body.len(), LARGE);
        assert_pattern(&large.body, 5);
        assert_eq!(waiting[1].response().expect(200).body, b"late");
        assert_eq!(waiting[2].response().expect(200).body, b"found");
    });
}
