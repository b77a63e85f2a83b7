//! Workloads of the protocol machines for counting instructions: `cargo xtask instructions`.
//!
//! `http_instructions NAME COUNT` runs it COUNT times; without arguments it prints the names.

use std::hint::black_box;

use gannet_http::h1::{Connection, Event};
use gannet_http::h2::hpack::Decoder;
use gannet_http::h2::hpack::encoder::write_field;
use gannet_http::semantics::date::DateLine;
use gannet_http::semantics::ready_fields::RepresentationFields;
use gannet_http::semantics::response::{ReadyPart, ResponseHead};
use gannet_http::semantics::status::Status;
use gannet_http::semantics::target_path::decode_path;

const NAMES: [&str; 4] = [
    "h1-exchange-load",
    "h1-exchange-browser",
    "hpack-decode",
    "hpack-encode",
];

fn main() {
    let mut arguments = std::env::args().skip(1);
    let Some(name) = arguments.next() else {
        println!("{}", NAMES.join("\n"));
        return;
    };
    let count = arguments
        .next()
        .and_then(|count| count.parse().ok())
        .unwrap_or(1);
    match name.as_str() {
        "h1-exchange-load" => h1_exchange(LOAD_GENERATOR, count),
        "h1-exchange-browser" => h1_exchange(BROWSER, count),
        "hpack-decode" => hpack_decode(count),
        "hpack-encode" => hpack_encode(count),
        other => panic!("'{other}' is none of {NAMES:?}"),
    }
}

/// Reads a request, decodes its path, and writes a ready response head.
fn h1_exchange(input: &str, count: u64) {
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
            ready: Some((ready.as_block(), ReadyPart::Whole)),
            content_length: None,
            fields: &[],
        };
        connection.respond(black_box(&head), date_line.as_bytes(), &mut out);
        black_box(&out);
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
