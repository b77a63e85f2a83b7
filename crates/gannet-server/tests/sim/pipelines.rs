//! Random pipelines against a model of HTTP/1 that parses the same bytes independently: whatever
//! the content of requests looks like, whichever requests wait for the disk, and wherever the
//! stream is cut. Also the end of a connection whose content is malformed.

use gannet_io::options::EngineOptions;
use gannet_io::sim::{End, Faults, Sim};
use gannet_server::config::ContentOptions;
use gannet_server::driven::{Driven, DrivenContent};
use gannet_server::ledger::Account;
use gannet_server::tls::limits::ENCRYPTED_RECORDS_MAX;

use crate::floods::holding;
use crate::model::{Dice, Ended, cut, judge, write};
use crate::run::{LIMITS, Tls, secure};
use crate::server::Server;
use crate::wire::Wire;

/// Number of seeds in a normal test run.
const SEEDS: u64 = 400;

/// Files that no pipeline has requested before, some of them too long to be cached.
const FILES: usize = 40;

fn content(target: &str) -> Option<Vec<u8>> {
    let number: usize = target.strip_prefix("/f")?.parse().ok()?;
    let len = [10, 3_000, 40_000][number % 3];
    let line = format!("the content of file {number}\n");
    (number < FILES).then(|| line.bytes().cycle().take(len).collect())
}

/// A server of files that are not cached yet.
fn serve(seed: u64, tls: Tls) -> (Server, Wire) {
    let mut dice = Dice::new(!seed);
    let faults = Faults {
        cold: [0, 500, 1_000][dice.below(3)],
        ..Faults::none()
    };
    let options = EngineOptions {
        buffers: 1 << dice.below(5),
        buffer_len: 256 << dice.below(5),
        ..EngineOptions::default()
    };
    let driver = Sim::new(seed, 1, &options, faults);
    let disk = driver.handle();
    for number in 0..FILES {
        let target = format!("/f{number}");
        disk.put_file(&target[1..], content(&target).expect("it is one"));
    }
    let (tls, config) = secure(tls, ENCRYPTED_RECORDS_MAX, &disk).unzip();
    let content = DrivenContent::Directory(disk.root());
    let driven = Driven::new(driver, content, &ContentOptions::default(), LIMITS, tls);
    let server = Server {
        driven: driven.expect("a directory can be served"),
        disk,
    };
    let wire = Wire::connect(&server.disk, config.as_ref(), usize::MAX).expect("it listens");
    (server, wire)
}

fn run(seed: u64, tls: Tls) -> Result<(), String> {
    let (mut server, wire) = serve(seed, tls);
    let mut dice = Dice::new(seed);
    // One in ten does not exist.
    let mut targets: Vec<String> = (0..FILES + 4).map(|n| format!("/f{n}")).collect();
    let stream = write(&mut dice, &mut targets);
    let mut got = Vec::new();
    for piece in cut(&mut dice, &stream) {
        wire.write(&piece);
        if dice.below(3) > 0 {
            server.pass(1);
            got.extend(wire.read_at_most(usize::MAX)?);
        }
    }
    for _ in 0..40 {
        server.pass(20);
        got.extend(wire.read_at_most(usize::MAX)?);
    }
    let end = match wire.end() {
        End::Open => Ended::No,
        End::Finished => Ended::Closed,
        End::Reset => Ended::Reset,
    };
    judge(&stream, &got, end, content)
        .map_err(|why| format!("{why}\nstream: {}", stream.escape_ascii()))
}

fn check_all(tls: Tls, seeds: u64) {
    let failed: Vec<_> = (0..seeds)
        .filter_map(|seed| Some((seed, run(seed, tls).err()?)))
        .collect();
    let shown = failed
        .first()
        .map(|(seed, why)| format!("seed {seed}: {why}"));
    assert!(
        failed.is_empty(),
        "{} of {seeds}; {}",
        failed.len(),
        shown.unwrap_or_default()
    );
}

#[test]
fn content_is_never_taken_for_a_request() {
    check_all(Tls::None, SEEDS);
}

#[test]
fn content_is_never_taken_for_a_request_over_tls() {
    check_all(Tls::Own, SEEDS / 4);
}

/// Sends many bytes, which are in flight or already in the server.
fn flood(server: &mut Server, wire: &Wire) {
    for _ in 0..100 {
        wire.write(&[b'z'; 64 << 10]);
        server.pass(1);
    }
}

/// Malformed chunks are detected after the response, when no error can be sent any more. The
/// connection ends after a short linger, keeps none of the further input, and sends no second
/// response.
#[test]
fn malformed_content_ends_a_connection_that_was_answered() {
    let bad = b"zz\r\n".to_vec();
    let too_long = [b"fffff\r\n".to_vec(), vec![b'x'; 70_000]].concat();
    let rows = [(&bad, "f0"), (&too_long, "f1"), (&bad, "missing")];
    for ((rest, path), tls) in rows
        .into_iter()
        .flat_map(|row| [(row, Tls::None), (row, Tls::Own)])
    {
        let (mut server, wire) = serve(1, tls);
        let read = || wire.read_at_most(usize::MAX).expect("true records");
        let head =
            format!("POST /{path} HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n");
        wire.write(head.as_bytes());
        let mut got = Vec::new();
        server.until("it is answered", || {
            got.extend(read());
            !got.is_empty()
        });
        assert!(got.starts_with(b"HTTP/1.1 405 "));
        wire.write(rest);
        server.until("our half is ended", || {
            assert!(read().is_empty(), "there is no second response");
            wire.end() == End::Finished
        });
        flood(&mut server, &wire);
        server.until("it is closed", || wire.is_closed_by_server());
        assert!(read().is_empty(), "there is no second response");
        let held = holding(&server, Account::Input);
        assert!(held.peak < 100_000, "{held:?}");
    }
}
