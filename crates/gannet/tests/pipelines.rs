//! Requests with content over real sockets, as the simulator's (`gannet-server/tests/sim/pipelines.rs`):
//! content is never answered as a request, and a connection with malformed content ends without
//! occupying memory.

#[path = "../../gannet-http/tests/fuzz_checks/pipelines.rs"]
mod model;
use std::fs;

use gannet_testkit::client::{Client, End};
use gannet_testkit::engine::{Engine, on_both_engines};
use gannet_testkit::tls::Secure;
use gannet_testkit::{Folder, Gannet, gannet_in};
use model::{Dice, Ended, cut, judge, write};

/// Pipelines per server. Each file is requested only once, so that most requests are cache misses.
const PIPELINES: usize = 40;

const FILES: usize = 40 * 4;

fn content(target: &str) -> Option<Vec<u8>> {
    let number: usize = target
        .strip_prefix("/f")?
        .strip_suffix(".txt")?
        .parse()
        .ok()?;
    let len = [10, 3_000, 40_000][number % 3];
    let line = format!("the content of file {number}\n");
    (number < FILES).then(|| line.bytes().cycle().take(len).collect())
}

fn target(number: usize) -> String {
    format!("/f{number}.txt")
}

fn site() -> Folder {
    let site = Folder::new();
    for number in 0..FILES {
        let target = target(number);
        site.write(&target[1..], content(&target).expect("it is one"));
    }
    site
}

/// Sends random pipelines, split anywhere, and checks the answers.
fn check(what: &str, connect: impl Fn() -> Client) {
    let mut dice = Dice::new(u64::from(std::process::id()));
    let mut targets: Vec<String> = (0..FILES + 20).map(target).collect();
    for _ in 0..PIPELINES {
        let stream = write(&mut dice, &mut targets);
        let mut client = connect();
        for piece in cut(&mut dice, &stream) {
            // Sending after the last request may be answered with a reset.
            if client.try_send(&piece).is_err() {
                break;
            }
            if dice.below(4) == 0 {
                std::thread::yield_now();
            }
        }
        client.finish_sending();
        let (got, end) = client.rest();
        let ended = match end {
            End::Reset => Ended::Reset,
            End::Closed | End::Truncated => Ended::ByClient,
        };
        if let Err(why) = judge(&stream, &got, ended, content) {
            panic!("{what}: {why}\nstream: {}", stream.escape_ascii());
        }
    }
}

#[test]
fn content_is_never_taken_for_a_request() {
    let site = site();
    let archive = site.join("site.gannet");
    let archive = archive.to_str().expect("UTF-8");
    gannet_in(
        &site,
        ["pack", ".", "-o", archive, "--fast", "--drop-identity"],
    );
    let directory = site.path().to_str().expect("UTF-8");
    on_both_engines(|engine| {
        for (what, path) in [("directory", directory), ("archive", archive)] {
            let server = engine.serve(path, &["--workers", "1"]);
            check(what, || Client::new(&server));
            let secure = Secure::serve(engine, path, &["--workers", "1"]);
            check(&format!("{what} over TLS"), || secure.connect());
        }
    });
}

/// Private memory of the process in bytes.
fn memory(server: &Gannet) -> u64 {
    let path = format!("/proc/{}/smaps_rollup", server.pid());
    let text = fs::read_to_string(path).expect("it runs");
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
    kib.and_then(|kib| kib.parse::<u64>().ok())
        .expect("a number")
        << 10
}

/// Sends an invalid chunk after the answer to a request with chunked content, and then as much as
/// the server accepts.
fn flood(server: &Gannet, mut client: Client) {
    let before = memory(server);
    client.send("POST /f1.txt HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n");
    client.response().expect(405);
    client.send("zz\r\n");
    let block = vec![b'z'; 1 << 20];
    for _ in 0..64 {
        if client.try_send(&block).is_err() {
            break;
        }
    }
    let held = memory(server).saturating_sub(before);
    assert!(held < 8 << 20, "{held} bytes are held");
    // The connection ends by itself, without a second answer. A reset may discard data already
    // sent.
    let (got, _) = client.rest();
    assert!(got.is_empty(), "{}", got.escape_ascii());
}

#[test]
fn malformed_content_ends_its_connection_and_is_not_held() {
    let site = site();
    on_both_engines(|engine: Engine| {
        let server = engine.serve(site.path(), &["--workers", "1"]);
        let secure = Secure::serve(engine, site.path(), &["--workers", "1"]);
        flood(&server, Client::new(&server));
        flood(&secure.server, secure.connect());
    });
}
