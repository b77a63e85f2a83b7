//! Workloads of the protocol machines for counting instructions: `cargo xtask instructions`.
//!
//! `http_instructions NAME COUNT` runs it COUNT times; without arguments it prints the names.

use std::hint::black_box;

use gannet_http::h1::{Connection, Event};
use gannet_http::h2::Time;
use gannet_http::h2::hpack::Decoder;
use gannet_http::h2::hpack::encoder::write_field;
use gannet_http::h2::hpack::ready::render;
use gannet_http::h3::{self, qpack};
use gannet_http::semantics::date::DateLine;
use gannet_http::semantics::ready_fields::{ReadyFields, RepresentationFields};
use gannet_http::semantics::response::{ReadyBlock, ReadyPart, ResponseHead};
use gannet_http::semantics::status::Status;
use gannet_http::semantics::target_path::decode_path;
use gannet_testkit::workload;

const NAMES: [&str; 6] = [
    "h1-exchange-load",
    "h1-exchange-browser",
    "h3-exchange-load",
    "h3-exchange-browser",
    "hpack-decode",
    "hpack-encode",
];

fn main() {
    let Some((name, count)) = workload(&NAMES) else {
        return;
    };
    match name {
        "h1-exchange-load" => h1_exchange(LOAD_GENERATOR, count),
        "h1-exchange-browser" => h1_exchange(BROWSER, count),
        "h3-exchange-load" => h3_exchange(&FIELDS[..4], count),
        "h3-exchange-browser" => h3_exchange(FIELDS, count),
        "hpack-decode" => hpack_decode(count),
        "hpack-encode" => hpack_encode(count),
        _ => unreachable!("it is one of them"),
    }
}

fn ready() -> ReadyFields {
    let fields = RepresentationFields {
        content_length: 13,
        content_type: Some(b"text/plain;charset=utf-8"),
        entity_tag: Some(b"\"0123456789abcdef\""),
        last_modified: Some(784_111_777),
        accept_ranges: true,
        ..Default::default()
    };
    fields.render().expect("fields of the benchmark")
}

/// Reads a request, decodes its path, and writes a ready response head.
fn h1_exchange(input: &str, count: u64) {
    let ready = ready();
    let date_line = DateLine::new(784_111_777);
    let (mut connection, mut scratch) = (Connection::new(), Vec::new());
    let mut out = Vec::with_capacity(4096);
    for _ in 0..count {
        let Event::Request(request) = connection.receive(black_box(input.as_bytes())).event else {
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
        black_box(&out);
    }
}

/// The same on a stream of its own, with the head in its form for HTTP/2, as an archive has it.
fn h3_exchange(fields: &[(&str, &str)], count: u64) {
    let ready = ready();
    let hpack = render(ready.as_block()).expect("lines");
    let block = ReadyBlock {
        h1: ready.as_block(),
        hpack: Some(hpack.as_block()),
    };
    // HEADERS with its length in two bytes, and a section without dynamic references.
    let mut input = vec![1, 0, 0, 0, 0];
    for (name, value) in fields {
        qpack::encoder::write_field(name, value.as_bytes(), &mut input);
    }
    let len = (input.len() - 3) as u16 | 0x4000;
    input[1..3].copy_from_slice(&len.to_be_bytes());
    let date_line = DateLine::new(784_111_777);
    let mut connection = h3::Connection::new(Time(0));
    let (mut scratch, mut path_scratch) = (Vec::new(), Vec::new());
    let mut out = Vec::with_capacity(4096);
    for number in 0..count {
        let stream = connection.open_request(h3::StreamId(4 * number));
        let mut stream = stream.expect("the connection goes on");
        let received = stream.receive(&mut connection, black_box(&input), true, &mut scratch);
        let Ok(h3::Event::Request(request)) = received.map(|received| received.event) else {
            unreachable!("a request of the benchmark");
        };
        let path = decode_path(request.target.path, &mut path_scratch);
        black_box(path).expect("a path of the benchmark");
        out.clear();
        let head = ResponseHead {
            status: Status::OK,
            ready: Some((block, ReadyPart::Whole)),
            content_length: None,
            fields: &[],
        };
        stream.respond(black_box(&head), date_line.as_bytes(), 13, &mut out);
        black_box(&out);
        connection.answered(13);
    }
}

fn block() -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in FIELDS {
        write_field(name, value.as_bytes(), &mut block);
    }
    block
}

fn hpack_decode(count: u64) {
    let (block, mut decoder) = (block(), Decoder::new());
    for _ in 0..count {
        let mut len = 0;
        let show = |name: &[u8], value: &[u8]| len += name.len() + value.len();
        decoder
            .decode_each(black_box(&block), show)
            .expect("a block of ours");
        black_box(len);
    }
}

fn hpack_encode(count: u64) {
    let mut block = Vec::with_capacity(4096);
    for _ in 0..count {
        block.clear();
        for (name, value) in black_box(FIELDS) {
            write_field(name, value.as_bytes(), &mut block);
        }
        black_box(&block);
    }
}

const FIELDS: &[(&str, &str)] = &[
    (":method", "GET"),
    (":scheme", "https"),
    (":authority", "docs.example.org"),
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
    ("priority", "u=0, i"),
];

const LOAD_GENERATOR: &str = "GET /plaintext HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n\r\n";

const BROWSER: &str = "GET /library/functools.html?highlight=cache HTTP/1.1\r\n\
    Host: docs.example.org\r\n\
    User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0\r\n\
    Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\n\
    Accept-Language: en-GB,en;q=0.5\r\n\
    Accept-Encoding: gzip, deflate, br, zstd\r\n\
    Referer: https://docs.example.org/library/index.html\r\n\
    Connection: keep-alive\r\n\
    Priority: u=0, i\r\n\r\n";
