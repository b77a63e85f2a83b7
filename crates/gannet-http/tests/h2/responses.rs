//! Response heads: ready blocks, their parts, size updates, blocks longer than a frame.

use gannet_http::h2::hpack::ready;
use gannet_http::h2::{Connection, Event, StreamId, Time, Timeouts};
use gannet_http::semantics::date::DateLine;
use gannet_http::semantics::ready_fields::{ReadyFields, RepresentationFields};
use gannet_http::semantics::response::{ReadyBlock, ReadyPart, ResponseHead};
use gannet_http::semantics::status::Status;
use gannet_testkit::h2::hpack;

use super::h2_checks::wire::{self, CONTINUATION, END_HEADERS, END_STREAM, HEADERS};

/// A connection whose client has sent settings and a request, and has read all output so far.
fn asked(settings: &[(u16, u32)], method: &str) -> Connection {
    let mut connection = Connection::new(Time(0), Timeouts::default());
    let fields = [
        (":method", method),
        (":scheme", "http"),
        (":path", "/"),
        (":authority", "a"),
    ];
    let block = wire::block(&fields);
    let input = [
        wire::opening(settings),
        wire::frame(HEADERS, END_STREAM | END_HEADERS, 1, &block),
    ]
    .concat();
    let mut scratch = Vec::new();
    let received = connection.receive(Time(0), &input, &mut scratch);
    assert!(matches!(received.event, Event::Request { .. }));
    assert_eq!(connection.poll_frame(Time(0), 0, &mut Vec::new()), None);
    connection
}

/// The frames of a response, and its fields, one line each.
fn respond(
    connection: &mut Connection,
    head: &ResponseHead<'_>,
    len: u64,
) -> (Vec<wire::Frame>, String) {
    let mut wire = Vec::new();
    let date = DateLine::new(0);
    connection.respond(StreamId(1), head, date.as_bytes(), len, &mut wire);
    let frames = wire::frames(&wire);
    let block: Vec<u8> = frames
        .iter()
        .flat_map(|frame| frame.payload.clone())
        .collect();
    // With a decoder of another implementation.
    let fields = hpack::Decoder::new()
        .decode(&block)
        .expect("a block that decodes");
    let lines = fields
        .iter()
        .map(|(name, value)| format!("{}: {}\n", name.escape_ascii(), value.escape_ascii()));
    (frames, lines.collect())
}

fn fields() -> ReadyFields {
    let fields = RepresentationFields {
        content_length: 12,
        content_type: Some(b"text/html;charset=utf-8"),
        entity_tag: Some(b"\"x\""),
        ..Default::default()
    };
    fields.render().expect("fields that may be sent")
}

const DATE: &str = "date: Thu, 01 Jan 1970 00:00:00 GMT\n";

#[test]
fn ready_blocks_are_the_same_rendered_ahead_or_not() {
    let fields = fields();
    let hpack = ready::render(fields.as_block()).expect("lines");
    for is_rendered in [false, true] {
        let block = ReadyBlock {
            h1: fields.as_block(),
            hpack: is_rendered.then(|| hpack.as_block()),
        };
        let check = |status, part, content_length, more: &[(&str, &[u8])], expect: &str| {
            let head = ResponseHead {
                status,
                ready: Some((block, part)),
                content_length,
                fields: more,
            };
            let (_, lines) = respond(&mut asked(&[], "GET"), &head, 12);
            assert_eq!(lines.replace(DATE, "D\n"), expect, "{is_rendered}");
        };
        let whole = ":status: 200\nD\ncontent-length: 12\n\
                     content-type: text/html;charset=utf-8\netag: \\\"x\\\"\n";
        check(Status::OK, ReadyPart::Whole, None, &[], whole);
        let range = [("content-range", &b"bytes 0-1/12"[..])];
        let partial = ":status: 206\nD\ncontent-type: text/html;charset=utf-8\netag: \\\"x\\\"\n\
                       content-length: 2\ncontent-range: bytes 0-1/12\n";
        check(
            Status::PARTIAL_CONTENT,
            ReadyPart::WithoutLength,
            Some(2),
            &range,
            partial,
        );
        let unchanged = ":status: 304\nD\netag: \\\"x\\\"\n";
        check(
            Status::NOT_MODIFIED,
            ReadyPart::Shared,
            None,
            &[],
            unchanged,
        );
    }
}

#[test]
fn content_does_not_follow_head_304_and_nothing() {
    let check = |method, status, len, is_ended| {
        let head = ResponseHead {
            status,
            ready: None,
            content_length: Some(len),
            fields: &[],
        };
        let mut connection = asked(&[], method);
        let (frames, _) = respond(&mut connection, &head, len);
        assert_eq!(
            frames[0].flags & END_STREAM != 0,
            is_ended,
            "{method} {status:?}"
        );
        let body = connection.poll_frame(Time(0), u32::MAX, &mut Vec::new());
        assert_eq!(body.is_none(), is_ended);
        assert_eq!(connection.stream_count(), 0);
    };
    check("GET", Status::OK, 5, false);
    check("GET", Status::OK, 0, true);
    check("HEAD", Status::OK, 5, true);
    check("GET", Status::NOT_MODIFIED, 5, true);
    check("OPTIONS", Status::NO_CONTENT, 5, true);
    check("DELETE", Status::METHOD_NOT_ALLOWED, 5, false);
}

#[test]
fn a_lowered_table_is_acknowledged_once_in_the_next_block() {
    let head = ResponseHead {
        status: Status::OK,
        ready: None,
        content_length: Some(0),
        fields: &[],
    };
    for (settings, is_owed) in [
        (&[][..], false),
        (&[(1, 65_536)], false),
        (&[(1, 100)], true),
        (&[(1, 0), (1, 4096)], true),
    ] {
        let mut connection = asked(settings, "GET");
        let (frames, _) = respond(&mut connection, &head, 0);
        assert_eq!(frames[0].payload[0] == 0x20, is_owed, "{settings:?}");
        let mut scratch = Vec::new();
        let received = connection.receive(Time(0), &wire::request(3, "/"), &mut scratch);
        assert!(matches!(received.event, Event::Request { .. }));
        let mut wire = Vec::new();
        let date = DateLine::new(0);
        connection.respond(StreamId(3), &head, date.as_bytes(), 0, &mut wire);
        assert_eq!(wire[9], 0x88, "not twice");
    }
}

#[test]
fn a_block_that_is_longer_than_a_frame_is_continued() {
    // Bytes that Huffman coding makes longer.
    let value = [b'~'; 10_000];
    for count in [1, 2, 4] {
        let more = vec![("x-long", &value[..]); count];
        let head = ResponseHead {
            status: Status::OK,
            ready: None,
            content_length: Some(9),
            fields: &more,
        };
        let (frames, lines) = respond(&mut asked(&[], "GET"), &head, 9);
        assert_eq!(lines.matches("x-long").count(), count);
        let last = frames.len() - 1;
        assert_eq!(frames.len(), (count * 10_000).div_ceil(16_384));
        for (index, frame) in frames.iter().enumerate() {
            assert_eq!(frame.kind, if index == 0 { HEADERS } else { CONTINUATION });
            assert_eq!(frame.flags, if index == last { END_HEADERS } else { 0 });
            assert!(frame.len <= 16_384 && frame.stream == 1);
        }
    }
}

#[test]
fn a_response_to_a_stream_that_is_gone_is_nothing() {
    let mut connection = asked(&[], "GET");
    connection.abort(StreamId(1), gannet_http::h2::ErrorCode::INTERNAL_ERROR);
    let mut wire = Vec::new();
    assert_eq!(connection.poll_frame(Time(0), 0, &mut wire), None);
    let (frames, length) = (wire::frames(&wire), wire.len());
    assert_eq!((frames.len(), frames[0].kind), (1, wire::RST_STREAM));
    let head = ResponseHead {
        status: Status::OK,
        ready: None,
        content_length: Some(9),
        fields: &[],
    };
    let date = DateLine::new(0);
    assert!(!connection.respond(StreamId(1), &head, date.as_bytes(), 9, &mut wire));
    assert_eq!(wire.len(), length);
}
