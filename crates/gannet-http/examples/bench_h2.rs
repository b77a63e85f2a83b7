//! Times a request's path through the HTTP/2 machine, in nanoseconds per request.
//!
//! `cargo run --release -p gannet-http --example bench_h2`
//!
//! Decodes field blocks of a browser and of a load generator, as literals (the first request of a
//! connection) and as references to the dynamic table (all others). Then runs whole exchanges: one
//! request at a time, and 32 in one read, each answered with a ready block and one DATA frame.
//! Prints the best of several rounds, because other load on the machine only makes a round longer.
//! An argument selects `load` or `browser`; a second one sets the number of rounds (1 for counting
//! instructions).

use std::hint::black_box;
use std::time::Instant;

use gannet_http::binary::integer;
use gannet_http::h2::hpack::encoder::write_field;
use gannet_http::h2::hpack::{Decoder, ready};
use gannet_http::h2::{Connection, Event, Time, Timeouts};
use gannet_http::semantics::date::DateLine;
use gannet_http::semantics::ready_fields::RepresentationFields;
use gannet_http::semantics::response::{ReadyBlock, ReadyPart, ResponseHead};
use gannet_http::semantics::status::Status;

fn main() {
    let chosen = std::env::args().nth(1).unwrap_or_default();
    let all = [("load generator", LOAD_GENERATOR), ("browser", BROWSER)];
    for (name, fields) in all
        .into_iter()
        .filter(|(name, _)| name.starts_with(&chosen))
    {
        let literals = literals(fields);
        let first = entries(fields);
        let references = references(fields.len());
        let mut decoder = Decoder::new();
        println!(
            "{name}, {} fields: {} bytes of literals {:.1} ns, {} bytes of references {:.1} ns",
            fields.len(),
            literals.len(),
            time(1, || decode(&mut Decoder::new(), &literals)),
            references.len(),
            {
                decode(&mut decoder, &first);
                time(1, || decode(&mut decoder, &references))
            },
        );
        for count in [1, 8, 32] {
            println!(
                "{name}, {count} at a time: {:.1} ns read, {:.1} ns with response and content",
                exchange_time(fields, count, false),
                exchange_time(fields, count, true),
            );
        }
    }
}

/// A block that enters all fields into the dynamic table.
fn entries(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0x40);
        for string in [name, value] {
            integer::encode(string.len(), 0, 7, &mut block);
            block.extend_from_slice(string.as_bytes());
        }
    }
    block
}

/// A block that refers to the newest entries, in their order.
fn references(count: usize) -> Vec<u8> {
    (0..count)
        .rev()
        .map(|index| 0x80 | (62 + index) as u8)
        .collect()
}

fn literals(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        write_field(name, value.as_bytes(), &mut block);
    }
    block
}

fn decode(decoder: &mut Decoder, block: &[u8]) -> usize {
    let mut len = 0;
    decoder
        .decode_each(black_box(block), |name, value| {
            len += name.len() + value.len();
        })
        .expect("a block of the benchmark");
    len
}

/// Nanoseconds per request of exchanges with `count` requests in one read. Without a response the
/// stream is aborted, which costs little.
fn exchange_time(fields: &[(&str, &str)], count: usize, responds: bool) -> f64 {
    let represented = RepresentationFields {
        content_length: 13,
        content_type: Some(b"text/plain;charset=utf-8"),
        entity_tag: Some(b"\"0123456789abcdef\""),
        last_modified: Some(784_111_777),
        accept_ranges: true,
        ..Default::default()
    };
    let lines = represented.render().expect("fields of the benchmark");
    let hpack = ready::render(lines.as_block()).expect("lines");
    let block = ReadyBlock {
        h1: lines.as_block(),
        hpack: Some(hpack.as_block()),
    };
    let head = ResponseHead {
        status: Status::OK,
        ready: Some((block, ReadyPart::Whole)),
        content_length: None,
        fields: &[],
    };
    let date_line = DateLine::new(784_111_777);

    let mut client = Client::new(&entries(fields));
    client.set_requests(&references(fields.len()), count);
    let mut wire = Vec::with_capacity(1 << 16);
    let mut scratch = Vec::new();
    time(count, || {
        client.next_streams();
        let mut at = 0;
        wire.clear();
        while at < client.input.len() {
            let input = black_box(&client.input[at..]);
            let received = client.connection.receive(client.now, input, &mut scratch);
            at += received.consumed;
            let Event::Request { stream, request } = received.event else {
                unreachable!("a request of the benchmark");
            };
            black_box(&request);
            let head = black_box(&head);
            if responds {
                let date = date_line.as_bytes();
                client.connection.respond(stream, head, date, 13, &mut wire);
            } else {
                client
                    .connection
                    .abort(stream, gannet_http::h2::ErrorCode::CANCEL);
            }
        }
        while let Some(body) = client
            .connection
            .poll_frame(client.now, u32::MAX, &mut wire)
        {
            wire.extend_from_slice(&b"Hello, World!"[body.range.start as usize..]);
        }
        black_box(&wire).len()
    })
}

/// A connection, and the input from its client.
struct Client {
    connection: Connection,
    input: Vec<u8>,
    frame_len: usize,
    stream: u32,
    now: Time,
}

impl Client {
    /// A client that has sent one request, with this field block.
    fn new(block: &[u8]) -> Self {
        let mut client = Self {
            connection: Connection::new(Time(0), Timeouts::default()),
            input: Vec::new(),
            frame_len: 0,
            stream: 1,
            now: Time(0),
        };
        let mut input = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        input.extend([0, 0, 0, 4, 0, 0, 0, 0, 0]);
        // A window of 2^31 - 1: the benchmark sends no updates.
        input.extend([0, 0, 4, 8, 0, 0, 0, 0, 0, 0x7f, 0xfe, 0xff, 0xff]);
        client.set_requests(block, 1);
        input.extend_from_slice(&client.input);
        let mut scratch = Vec::new();
        let received = client.connection.receive(client.now, &input, &mut scratch);
        assert!(matches!(received.event, Event::Request { .. }));
        client
    }

    /// Sends `count` requests with this field block from now on.
    fn set_requests(&mut self, block: &[u8], count: usize) {
        let mut frame = vec![0, 0, block.len() as u8, 1, 5, 0, 0, 0, 1];
        assert!(block.len() < 256 * 256, "a block of the benchmark");
        frame[1] = (block.len() >> 8) as u8;
        frame.extend_from_slice(block);
        self.frame_len = frame.len();
        self.input = frame.repeat(count);
    }

    /// Gives the requests new stream identifiers, and the connection enough window and time.
    fn next_streams(&mut self) {
        for frame in self.input.chunks_exact_mut(self.frame_len) {
            self.stream += 2;
            frame[5..9].copy_from_slice(&self.stream.to_be_bytes());
        }
        self.now = self.now.plus_ms(1_000);
    }
}

/// Nanoseconds per request of calls that each make `count` requests, best round.
fn time(count: usize, mut call: impl FnMut() -> usize) -> f64 {
    let rounds = std::env::args().nth(2).and_then(|count| count.parse().ok());
    let calls = 50_000 / count as u32;
    let mut best = f64::INFINITY;
    for _ in 0..rounds.unwrap_or(20) {
        let start = Instant::now();
        for _ in 0..calls {
            black_box(call());
        }
        best = best.min(start.elapsed().as_secs_f64() / f64::from(calls));
    }
    best * 1e9 / count as f64
}

const LOAD_GENERATOR: &[(&str, &str)] = &[
    (":path", "/plaintext"),
    (":scheme", "http"),
    (":authority", "127.0.0.1:8080"),
    (":method", "GET"),
    ("user-agent", "h2load nghttp2/1.52.0"),
];

const BROWSER: &[(&str, &str)] = &[
    (":method", "GET"),
    (":authority", "docs.example.org"),
    (":scheme", "https"),
    (":path", "/library/functools.html?highlight=cache"),
    (
        "user-agent",
        "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
    ),
    (
        "accept",
        "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
    ),
    ("accept-language", "en-GB,en;q=0.5"),
    ("accept-encoding", "gzip, deflate, br, zstd"),
    ("referer", "https://docs.example.org/library/index.html"),
    ("upgrade-insecure-requests", "1"),
    ("sec-fetch-dest", "document"),
    ("sec-fetch-mode", "navigate"),
    ("sec-fetch-site", "same-origin"),
    ("sec-fetch-user", "?1"),
    ("priority", "u=0, i"),
    ("te", "trailers"),
];
