//! Times a request's path through the HTTP/1 machine, in nanoseconds per request.
//!
//! `cargo run --release -p gannet-http --example bench_head`
//!
//! Two requests: one of a load generator, one of a browser. Each is parsed, its path decoded, and
//! answered with a ready block. Prints the best of several rounds, because other load on the
//! machine only makes a round longer.

use std::hint::black_box;
use std::time::Instant;

use gannet_http::h1::{Connection, Event};
use gannet_http::semantics::date::DateLine;
use gannet_http::semantics::ready_fields::RepresentationFields;
use gannet_http::semantics::response::{ReadyPart, ResponseHead};
use gannet_http::semantics::status::Status;
use gannet_http::semantics::target_path::decode_path;

fn main() {
    for (name, input) in [("load generator", LOAD_GENERATOR), ("browser", BROWSER)] {
        println!(
            "{name}, {} bytes: read {:.1} ns, with path {:.1} ns, with response {:.1} ns",
            input.len(),
            time(|| read(input)),
            time(|| read_and_decode(input)),
            exchange_time(input),
        );
    }
}

fn read(input: &str) -> usize {
    let mut connection = Connection::new();
    let step = connection.receive(black_box(input.as_bytes()));
    assert!(
        matches!(black_box(&step.event), Event::Request(_)),
        "a request of the benchmark"
    );
    step.consumed
}

fn read_and_decode(input: &str) -> usize {
    let mut connection = Connection::new();
    let mut scratch = Vec::new();
    match connection.receive(black_box(input.as_bytes())).event {
        Event::Request(request) => {
            let path = decode_path(black_box(&request).target.path, &mut scratch);
            path.map_or(0, |path| path.as_bytes().len())
        }
        _ => unreachable!("a request of the benchmark"),
    }
}

fn exchange_time(input: &str) -> f64 {
    let fields = RepresentationFields {
        content_length: 13,
        content_type: Some(b"text/plain;charset=utf-8"),
        entity_tag: Some(b"\"0123456789abcdef\""),
        last_modified: Some(784_111_777),
        accept_ranges: true,
        ..Default::default()
    };
    let ready = fields.render().expect("fields of the benchmark");
    let date_line = DateLine::new(784_111_777);
    let mut connection = Connection::new();
    let mut out = Vec::with_capacity(4096);
    let mut scratch = Vec::new();
    time(|| {
        let step = connection.receive(black_box(input.as_bytes()));
        let Event::Request(request) = step.event else {
            unreachable!("a request of the benchmark");
        };
        let path = decode_path(request.target.path, &mut scratch);
        black_box(path).expect("a path of the benchmark");
        out.clear();
        let head = ResponseHead {
            status: Status::OK,
            ready: Some((ready.as_block().into(), ReadyPart::Whole)),
            content_length: None,
            fields: &[],
        };
        connection.respond(black_box(&head), date_line.as_bytes(), &mut out);
        black_box(&out).len()
    })
}

/// Nanoseconds per call, best round.
fn time(mut call: impl FnMut() -> usize) -> f64 {
    const ROUNDS: u32 = 20;
    const CALLS: u32 = 100_000;
    let mut best = f64::INFINITY;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for _ in 0..CALLS {
            black_box(call());
        }
        best = best.min(start.elapsed().as_secs_f64());
    }
    best * 1e9 / f64::from(CALLS)
}

const LOAD_GENERATOR: &str = "GET /plaintext HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n\r\n";

const BROWSER: &str = "GET /library/functools.html?highlight=cache HTTP/1.1\r\n\
    Host: docs.example.org\r\n\
    User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0\r\n\
    Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\n\
    Accept-Language: en-GB,en;q=0.5\r\n\
    Accept-Encoding: gzip, deflate, br, zstd\r\n\
    Referer: https://docs.example.org/library/index.html\r\n\
    Connection: keep-alive\r\n\
    Upgrade-Insecure-Requests: 1\r\n\
    Sec-Fetch-Dest: document\r\n\
    Sec-Fetch-Mode: navigate\r\n\
    Sec-Fetch-Site: same-origin\r\n\
    Sec-Fetch-User: ?1\r\n\
    Priority: u=0, i\r\n\r\n";
