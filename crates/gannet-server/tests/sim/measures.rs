//! What is measured of responses, in virtual time.

use gannet_io::sim::Faults;
use gannet_server::measures::{Histogram, Measures};
use gannet_testkit::h2::{INITIAL_WINDOW_SIZE, headers, opening, request};

use crate::server::{LARGE, Server, get};

const MS: u64 = 1_000_000;

/// How long a slow thing takes, milliseconds.
const LONG_MS: u64 = 4_000;

fn measures(server: &mut Server, responses: u64) -> Measures {
    server.until_it("the responses have ended", |driven| {
        let counters = driven.counters();
        let measures = counters.measures.expect("they are on");
        measures.durations().count() >= responses
    });
    let counters = server.driven.counters();
    *counters.measures.expect("they are on")
}

/// Sum of the times to the first byte, milliseconds.
fn first_byte_ms(measures: &Measures) -> u64 {
    let all = measures.first_byte().map(|(_, it)| Histogram::sum(it));
    all.sum::<u64>() / MS
}

fn durations_ms(measures: &Measures) -> u64 {
    measures.durations().sum() / MS
}

/// A request that waits for the disk has waited since its head was there.
#[test]
fn a_wait_for_the_disk_counts() {
    let mut server = Server::new(Faults::none());
    server.disk.slow_file("small", LONG_MS * MS);
    server.body("small", 5);
    let first = measures(&mut server, 1);
    assert!(durations_ms(&first) >= LONG_MS);
    assert!(first_byte_ms(&first) >= LONG_MS);
    server.body("large", LARGE);
    let second = measures(&mut server, 2);
    let took = durations_ms(&second) - durations_ms(&first);
    assert!(took < LONG_MS, "another file: {took} ms");
}

/// A client that takes its time with the content has had the first byte long before the last.
#[test]
fn the_first_byte_comes_before_the_last() {
    let mut server = Server::new(Faults::none());
    let client = server.connect();
    client.write(&get("large"));
    server.until("it begins", || client.readable() > 0);
    server.pass(LONG_MS);
    let mut got = 0;
    server.until("an answer", || {
        got += client.read().len();
        got > LARGE
    });
    let measures = measures(&mut server, 1);
    assert!(first_byte_ms(&measures) < LONG_MS / 2);
    assert!(durations_ms(&measures) >= LONG_MS);
    let (_, longest) = measures
        .longest()
        .find(|(version, _)| *version == "1.1")
        .expect("one");
    assert!(longest >= LONG_MS * MS);
    (0..3).for_each(|_| server.pass(50_000));
    let later = server.driven.counters().measures.expect("they are on");
    assert!(later.longest().all(|(_, ns)| ns == 0), "two minutes later");
}

/// The same for streams of one connection, each of which has a first byte of its own.
#[test]
fn each_stream_has_a_first_byte() {
    const STREAMS: u64 = 5;
    let mut server = Server::new(Faults::none());
    let client = server.connect();
    // A window that suffices for the beginning of each.
    let mut bytes = opening(&[(INITIAL_WINDOW_SIZE, 1_000)]);
    for number in 0..STREAMS {
        let id = 1 + 2 * number as u32;
        bytes.extend(headers(id, &request("GET", "/large", &[])));
    }
    client.write(&bytes);
    server.until("they begin", || {
        client.readable() > 1_000 * STREAMS as usize
    });
    client.read();
    server.pass(LONG_MS);
    client.reset();
    let measures = measures(&mut server, STREAMS);
    let (version, first) = measures.first_byte().next().expect("there are responses");
    assert_eq!((version, first.count()), ("2", STREAMS));
    assert!(first_byte_ms(&measures) < STREAMS * LONG_MS / 2);
    assert!(durations_ms(&measures) >= STREAMS * LONG_MS);
    let ([_, _, class], series) = measures.series().next().expect("there are responses");
    assert_eq!((class, series.size.sum()), ("2xx", STREAMS * 1_000));
}
