//! Response heads, decoded by another implementation.

use gannet_http::h2::Time;
use gannet_http::h2::hpack::ready;
use gannet_http::h3::{Connection, RequestStream, StreamId};
use gannet_http::semantics::date::DateLine;
use gannet_http::semantics::ready_fields::RepresentationFields;
use gannet_http::semantics::response::{ReadyBlock, ReadyPart, ResponseHead};
use gannet_http::semantics::status::Status;
use gannet_testkit::h3::{Answer, DATA, Frame, HEADERS, request, take_varint};

/// A stream on which a request was received.
fn requested(method: &str) -> RequestStream {
    let mut connection = Connection::new(Time(0));
    let mut stream = connection.open_request(StreamId(0)).expect("a stream");
    let bytes = request(method, "/", &[]);
    let mut scratch = Vec::new();
    let received = stream.receive(&mut connection, &bytes, true, &mut scratch);
    assert_eq!(received.expect("a request").consumed, bytes.len());
    stream
}

/// The response: the bytes after its head, and the head.
fn respond(method: &str, head: &ResponseHead<'_>, content_len: u64) -> (Vec<u8>, Answer) {
    let mut wire = Vec::new();
    let date = DateLine::new(0);
    let has_content = requested(method).respond(head, date.as_bytes(), content_len, &mut wire);
    let (answer, rest) = Answer::parse_part(&wire);
    assert_eq!(has_content, !rest.is_empty());
    (rest.to_vec(), answer)
}

fn plain(status: Status, content_length: Option<u64>) -> ResponseHead<'static> {
    ResponseHead {
        status,
        ready: None,
        content_length,
        fields: &[],
    }
}

#[test]
fn content_is_announced_where_there_is_any() {
    for len in [1, 63, 64, 16_384, 1 << 40] {
        let (rest, answer) = respond("GET", &plain(Status::OK, Some(len)), len);
        let mut rest = &rest[..];
        assert_eq!(take_varint(&mut rest), Some(DATA));
        assert_eq!(take_varint(&mut rest), Some(len));
        assert!(rest.is_empty());
        assert_eq!(answer.field("content-length"), Some(&len.to_string()[..]));
    }
    let check = |method, status, len, expect: Option<&str>| {
        let (rest, answer) = respond(method, &plain(status, Some(len)), len);
        assert!(rest.is_empty());
        assert_eq!(answer.status, status.0);
        assert_eq!(
            answer.field("content-length"),
            expect,
            "{method} {status:?}"
        );
        assert_eq!(answer.field("date"), Some("Thu, 01 Jan 1970 00:00:00 GMT"));
    };
    check("HEAD", Status::OK, 9, Some("9"));
    check("GET", Status::OK, 0, Some("0"));
    check("GET", Status::NO_CONTENT, 9, None);
    check("GET", Status::NOT_MODIFIED, 9, None);
}

#[test]
fn a_ready_block_is_sent_with_and_without_its_form_for_http2() {
    let fields = RepresentationFields {
        content_length: 5,
        content_type: Some(b"text/css"),
        entity_tag: Some(b"\"abc\""),
        vary: Some(b"accept-encoding"),
        ..Default::default()
    };
    let ready = fields.render().expect("fields that may be sent");
    let hpack = ready::render(ready.as_block()).expect("lines");
    let without = ReadyBlock::from(ready.as_block());
    let with = ReadyBlock {
        hpack: Some(hpack.as_block()),
        ..without
    };
    let length = ("content-length", "5");
    let own = ("content-type", "text/css");
    let shared = [("etag", "\"abc\""), ("vary", "accept-encoding")];
    let all = [length, own, shared[0], shared[1]];
    let mut lens = Vec::new();
    for block in [without, with] {
        for (part, expect) in [
            (ReadyPart::Whole, &all[..]),
            (ReadyPart::WithoutLength, &all[1..]),
            (ReadyPart::Shared, &all[2..]),
        ] {
            let head = ResponseHead {
                ready: Some((block, part)),
                fields: &[("x-more", b"1")],
                ..plain(Status::OK, None)
            };
            let (_, answer) = respond("HEAD", &head, 5);
            let found: Vec<_> = answer
                .fields
                .iter()
                .map(|(n, v)| (&n[..], &v[..]))
                .collect();
            assert_eq!(found[0].0, "date");
            assert_eq!(
                found[1..],
                [expect, &[("x-more", "1")]].concat(),
                "{part:?}"
            );
        }
        let mut wire = Vec::new();
        let head = ResponseHead {
            ready: Some((block, ReadyPart::Whole)),
            ..plain(Status::OK, None)
        };
        requested("GET").respond(&head, DateLine::new(0).as_bytes(), 5, &mut wire);
        lens.push(wire.len());
    }
    // Lines that match whole entries of the static table.
    assert!(lens[0] < lens[1], "{lens:?}");
}

#[test]
fn a_head_may_be_long() {
    // About 40 bytes besides the value: the length of the frame needs two bytes, then four.
    for len in (16_330..16_390).chain([20_000]) {
        // Characters that Huffman coding does not shorten.
        let value = "~".repeat(len);
        let fields = [("x", value.as_bytes())];
        let head = ResponseHead {
            fields: &fields,
            ..plain(Status::OK, Some(1))
        };
        let mut wire = b"what was there before".to_vec();
        let before = wire.len();
        assert!(requested("GET").respond(&head, DateLine::new(0).as_bytes(), 1, &mut wire));
        let mut rest = &wire[before..];
        let frame = Frame::take(&mut rest).expect("a whole frame");
        assert_eq!((frame.kind, rest), (HEADERS, &[0, 1][..]));
        let (_, answer) = respond("GET", &head, 1);
        assert_eq!(answer.field("x"), Some(&value[..]));
    }
}
