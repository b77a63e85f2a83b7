//! Every kind of useless work is bounded.

use gannet_http::h2::Time;
use gannet_http::h3::{Connection, RequestStream, StreamId};
use gannet_testkit::h3::*;

use super::h3_checks::peer::{Given, Peer};

/// Repeats an action until the connection ends; returns how often.
fn until_closed(name: &str, mut next: impl FnMut(&mut Peer, u64)) -> u64 {
    let mut peer = Peer::new();
    peer.give(&Given::bytes(2, &control(&[])));
    for count in 0..20_000 {
        next(&mut peer, count);
        if let Some(error) = peer.connection.error() {
            assert_eq!(error.code.0, EXCESSIVE_LOAD, "{name}: {error:?}");
            return count;
        }
    }
    panic!("{name}: no end");
}

#[test]
fn floods_end_the_connection() {
    let on_control = |bytes: Vec<u8>| move |peer: &mut Peer, _| peer.give(&Given::bytes(2, &bytes));
    let check = |name: &str, count: u64, least: u64, most: u64| {
        assert!((least..=most).contains(&count), "{name}: {count}");
    };
    let count = until_closed("grease", on_control(frame(GREASE, b"")));
    check("frames of no meaning", count, 4_000, 6_000);
    let count = until_closed("long grease", on_control(frame(GREASE, &[0; 50_000])));
    check("long frames of no meaning", count, 1_000, 2_000);
    let count = until_closed("goaway", on_control(number_frame(GOAWAY, 4)));
    check("GOAWAY", count, 4_000, 6_000);
    let count = until_closed("push", on_control(number_frame(MAX_PUSH_ID, 4)));
    check("MAX_PUSH_ID", count, 4_000, 6_000);
    let count = until_closed("priority", on_control(priority_update(40, "u=1")));
    check("PRIORITY_UPDATE", count, 4_000, 6_000);
    for (kind, instruction) in [(ENCODER_STREAM, 0x20), (DECODER_STREAM, 0x44)] {
        let count = until_closed("qpack", |peer, count| {
            if count == 0 {
                peer.give(&Given::bytes(6, &varint(kind)));
            }
            peer.give(&Given::bytes(6, &[instruction]));
        });
        check("instructions", count, 4_000, 6_000);
    }
    let count = until_closed("resets", |peer, count| {
        peer.give(&Given::bytes(4 * count, &[1]));
        peer.give(&Given::Reset(4 * count));
    });
    check("requests that are taken back", count, 400, 600);
    let count = until_closed("malformed", |peer, count| {
        peer.give(&Given::end(4 * count, &headers(&[("a", "b")])));
    });
    check("malformed requests", count, 400, 600);
    let count = until_closed("too large", |peer, count| {
        let bytes = [varint(HEADERS), varint(1 << 20)].concat();
        peer.give(&Given::bytes(4 * count, &bytes));
        peer.give(&Given::Reset(4 * count));
    });
    check("requests that are too large", count, 400, 600);
    let count = until_closed("byte by byte", |peer, count| {
        let head = if count == 0 {
            request("POST", "/", &[])
        } else {
            Vec::new()
        };
        let data = frame(DATA, b"x").repeat(100);
        peer.give(&Given::bytes(0, &[head, data].concat()));
    });
    check("content byte by byte", count, 90, 110);
    let count = until_closed("empty content", |peer, count| {
        let head = if count == 0 {
            request("POST", "/", &[])
        } else {
            Vec::new()
        };
        peer.give(&Given::bytes(0, &[head, frame(DATA, b"")].concat()));
    });
    check("content without content", count, 1_900, 2_100);
}

#[test]
fn a_frame_of_no_meaning_is_charged_by_the_length_that_it_announces() {
    let mut peer = Peer::new();
    let huge = [varint(GREASE), varint((1 << 62) - 1)].concat();
    peer.give(&Given::bytes(0, &huge));
    assert_eq!(peer.record, ["close H3_EXCESSIVE_LOAD budget_spent"]);
}

#[test]
fn control_frames_and_settings_are_bounded() {
    let check = |bytes: Vec<u8>| {
        let mut peer = Peer::new();
        peer.give(&Given::bytes(2, &bytes));
        let expect = ["close H3_EXCESSIVE_LOAD control_frame_too_long"];
        assert_eq!(peer.record, expect);
    };
    let many: Vec<_> = (0..65).map(|n| (0x21 + 0x1f * n, 0)).collect();
    check(control(&many));
    // Before its payload arrives.
    check([varint(CONTROL_STREAM), varint(SETTINGS), varint(1025)].concat());
    check([control(&[]), varint(PRIORITY_UPDATE), varint(1025)].concat());
}

#[test]
fn unidirectional_streams_are_bounded_at_once_and_in_all() {
    let expect = ["close H3_EXCESSIVE_LOAD too_many_streams"];
    let mut peer = Peer::new();
    for number in 0..8 {
        peer.give(&Given::bytes(2 + 4 * number, b""));
    }
    assert!(peer.record.is_empty());
    peer.give(&Given::bytes(2 + 4 * 8, b""));
    assert_eq!(peer.record, expect);
    let mut peer = Peer::new();
    for number in 0..100 {
        peer.give(&Given::end(2 + 4 * number, b""));
    }
    assert!(peer.record.is_empty());
    peer.give(&Given::bytes(2 + 4 * 100, b""));
    assert_eq!(peer.record, expect);
}

#[test]
fn a_browser_in_a_hurry_is_no_flood() {
    let mut peer = Peer::new();
    peer.give(&Given::bytes(2, &control(&[(GREASE, 1)])));
    let grease = frame(GREASE, b"abc");
    for page in 0..100 {
        // A hundred images, each with grease and a change of priority; ten of them are cancelled.
        for number in 0..100 {
            let stream = 4 * (100 * page + number);
            let request = request("GET", "/10000", &[("priority", "u=4, i")]);
            peer.give(&Given::end(stream, &[&grease[..], &request].concat()));
            peer.give(&Given::bytes(2, &priority_update(stream, "u=2")));
            if number % 10 == 0 {
                peer.give(&Given::Reset(stream));
            }
        }
        peer.connection.refill(Time(page * 1_000_000_000));
    }
    assert_eq!(peer.connection.error(), None);
}

#[test]
fn content_that_is_not_wanted_is_said_so() {
    let mut connection = Connection::new(Time(0));
    let mut stream = connection.open_request(StreamId(0)).expect("a stream");
    assert!(stream.awaits_head() && stream.wants_input());
    let mut scratch = Vec::new();
    let mut give = |stream: &mut RequestStream, bytes: &[u8]| {
        let mut at = 0;
        while at < bytes.len() {
            let received = stream.receive(&mut connection, &bytes[at..], false, &mut scratch);
            at += received.expect("good bytes").consumed;
        }
    };
    give(&mut stream, &request("POST", "/", &[]));
    assert!(!stream.awaits_head() && stream.wants_input());
    give(&mut stream, &frame(DATA, &[0; 65_536]));
    assert!(stream.wants_input());
    give(&mut stream, &frame(DATA, &[0; 100]));
    assert!(!stream.wants_input() && !stream.has_responded());
    assert_eq!(stream.content_received(), 65_636);
    assert_eq!(stream.memory(), 0);
}

#[test]
fn what_is_kept_of_a_field_section_is_in_proportion_to_what_has_come() {
    let mut connection = Connection::new(Time(0));
    let mut stream = connection.open_request(StreamId(0)).expect("a stream");
    let announced = [varint(HEADERS), varint(32 * 1024)].concat();
    let bytes = [announced, vec![0; 32 * 1024 - 1]].concat();
    let mut scratch = Vec::new();
    for (index, byte) in bytes.iter().enumerate() {
        let received = stream.receive(&mut connection, &[*byte], false, &mut scratch);
        assert_eq!(received.expect("not all of it").consumed, 1);
        assert!(stream.memory() <= 256 + 2 * index, "{}", stream.memory());
    }
    assert!(stream.memory() <= 32 * 1024);
}
