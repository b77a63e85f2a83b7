//! Requirements of RFC 9114, 9204 and 9218 on a server, rule by rule: streams, settings, frames,
//! priorities, shutdown.

use gannet_testkit::h3::*;

use super::h3_checks::peer::{Given, Peer};
use super::rules::*;

#[test]
fn the_control_stream_begins_with_settings() {
    let missing = ["close H3_MISSING_SETTINGS settings_expected"];
    let begins = |bytes: &[u8]| [&varint(CONTROL_STREAM), bytes].concat();
    for kind in [
        DATA,
        HEADERS,
        GOAWAY,
        MAX_PUSH_ID,
        CANCEL_PUSH,
        PRIORITY_UPDATE,
        GREASE,
        0x6,
    ] {
        // RFC 9114 6.2.1
        let bytes = begins(&bare(kind));
        check(&format!("first {kind:#x}"), &[on(CONTROL, bytes)], &missing);
    }
    check_control(
        "settings twice",
        &settings_frame(&[]),
        &["close H3_FRAME_UNEXPECTED frame_unexpected"],
    );
}

#[test]
fn the_control_stream_has_frames_of_its_own() {
    let unexpected = "close H3_FRAME_UNEXPECTED frame_unexpected";
    // RFC 9114 7.2.1, 7.2.2, 7.2.5
    for kind in [DATA, HEADERS, PUSH_PROMISE] {
        check_control(&format!("{kind:#x}"), &bare(kind), &[unexpected]);
    }
    // RFC 9114 7.2.8
    for kind in [0x2, 0x6, 0x8, 0x9] {
        let reserved = "close H3_FRAME_UNEXPECTED frame_reserved";
        check_control(&format!("{kind:#x}"), &bare(kind), &[reserved]);
    }
}

#[test]
fn critical_streams_are_there_once_and_stay_open() {
    let second = ["close H3_STREAM_CREATION_ERROR second_critical_stream"];
    let closed = ["close H3_CLOSED_CRITICAL_STREAM critical_stream_closed"];
    let types = [
        (CONTROL_STREAM, control(&[])),
        (ENCODER_STREAM, varint(ENCODER_STREAM)),
        (DECODER_STREAM, varint(DECODER_STREAM)),
    ];
    for (kind, bytes) in types {
        // RFC 9114 6.2.1, RFC 9204 4.2
        let again = [on(CONTROL, &bytes), on(SECOND, varint(kind))];
        check(&format!("{kind} again"), &again, &second);
        check(&format!("{kind} ends"), &[end(CONTROL, &bytes)], &closed);
        let reset = [on(CONTROL, &bytes), Given::Reset(CONTROL)];
        check(&format!("{kind} is reset"), &reset, &closed);
    }
    check("the type alone", &[end(CONTROL, [0])], &closed);
    // A truncated frame has the same cause.
    let cut = [control(&[]), frame(GOAWAY, &[0])].concat();
    check(
        "within a frame",
        &[end(CONTROL, &cut[..cut.len() - 1])],
        &closed,
    );
    // Ours is critical as well.
    let mut peer = Peer::new();
    let result = peer.connection.stop_control();
    assert_eq!(peer.check(result), None);
    assert_eq!(peer.record, closed);
}

#[test]
fn clients_do_not_push() {
    check(
        "a push stream",
        &[on(CONTROL, control(&[])), on(SECOND, [1, 0])],
        &["close H3_STREAM_CREATION_ERROR push_stream"],
    );
    for (name, stream) in [("control", CONTROL), ("request", 0)] {
        let before = if stream == 0 { get() } else { control(&[]) };
        let script = [on(
            stream,
            [before, frame(PUSH_PROMISE, b"\0\0\0")].concat(),
        )];
        let unexpected = "close H3_FRAME_UNEXPECTED frame_unexpected";
        let good: &[&str] = if stream == 0 { &GET } else { &[] };
        check(name, &script, &[good, &[unexpected]].concat());
    }
}

#[test]
fn settings() {
    let check = |name: &str, payload: &[u8], expect: &[&str]| {
        let bytes = [varint(CONTROL_STREAM), frame(SETTINGS, payload)].concat();
        check(name, &[on(CONTROL, bytes)], expect);
    };
    // RFC 9114 7.2.4.1
    for id in [0, 2, 3, 4, 5] {
        let reserved = ["close H3_SETTINGS_ERROR setting_reserved"];
        check(&format!("{id}"), &[id, 0], &reserved);
    }
    let repeated = ["close H3_SETTINGS_ERROR setting_repeated"];
    check("one twice", &[6, 1, 7, 1, 6, 1], &repeated);
    // RFC 8441 3, RFC 9297 2.1.1
    let value = ["close H3_SETTINGS_ERROR setting_value"];
    check("extended CONNECT", &[8, 2], &value);
    check("datagrams", &[0x33, 2], &value);
    let length = ["close H3_FRAME_ERROR frame_length"];
    check("no value", &[6], &length);
    check("half of a value", &[6, 0x40], &length);
    check("half of an identifier", &[6, 1, 0x40], &length);
    check("none", &[], &[]);
    let usual = [[1, 0x40, 100], [7, 0x40, 16], [6, 0x4f, 0xff]].concat();
    check("those of browsers", &usual, &[]);
    check("of no meaning", &[0x21, 5, 0x40, 0x40, 0], &[]);
}

#[test]
fn frames_that_hold_an_identifier() {
    let length = ["close H3_FRAME_ERROR frame_length"];
    for kind in [GOAWAY, MAX_PUSH_ID, CANCEL_PUSH] {
        // RFC 9114 7.1
        check_control("empty", &frame(kind, &[]), &length);
        check_control("too short", &frame(kind, &[0x40]), &length);
        check_control("too long", &frame(kind, &[0, 0]), &length);
        check_control("much too long", &frame(kind, &[0; 9]), &length);
    }
    check_control("no stream", &frame(PRIORITY_UPDATE, &[]), &length);
    check_control(
        "half of a stream",
        &frame(PRIORITY_UPDATE, &[0xc0, 0]),
        &length,
    );
    // RFC 9114 7.2.7
    let ids = |kind, ids: [u64; 3]| ids.map(|id| number_frame(kind, id)).concat();
    let lowered = ["close H3_ID_ERROR push_id_lowered"];
    check_control(
        "MAX_PUSH_ID",
        &ids(MAX_PUSH_ID, [5, 1 << 61, (1 << 61) - 1]),
        &lowered,
    );
    check_control("MAX_PUSH_ID", &ids(MAX_PUSH_ID, [0, 5, 5]), &[]);
    // RFC 9114 5.2
    let raised = ["close H3_ID_ERROR goaway_raised"];
    check_control("GOAWAY", &ids(GOAWAY, [9, 7, 8]), &raised);
    check_control("GOAWAY", &ids(GOAWAY, [9, 9, 0]), &[]);
    // RFC 9114 7.2.3
    let unknown = ["close H3_ID_ERROR push_unknown"];
    check_control("CANCEL_PUSH", &number_frame(CANCEL_PUSH, 0), &unknown);
}

#[test]
fn priorities() {
    let update = priority_update;
    let target = ["close H3_ID_ERROR priority_target"];
    // RFC 9218 7.2
    for stream in [1, 2, 3, 7] {
        check_control("no request", &update(stream, "u=1"), &target);
    }
    check_control("beyond all", &update((1 << 62) - 4, "u=1"), &target);
    check_control("beyond what may be open", &update(400, "u=1"), &target);
    check_control("the last that may be", &update(396, "u=1"), &[]);
    let push = frame(PRIORITY_UPDATE_PUSH, b"\0u=1");
    check_control("a push", &push, &["close H3_ID_ERROR push_unknown"]);
    let control = |bytes: Vec<u8>| on(CONTROL, [control(&[]), bytes].concat());
    let with_field = request("GET", "/", &[("priority", "u=5, i")]);
    check(
        "a field",
        &[on(0, &with_field)],
        &["request 0 GET / test fields=1 u=5 i", GET[1]],
    );
    check(
        "ahead of the request",
        &[
            control([update(0, "u=7"), update(0, "u=1")].concat()),
            on(0, &with_field),
        ],
        &["request 0 GET / test fields=1 u=1", GET[1]],
    );
    check(
        "after it",
        &[
            on(0, &with_field),
            control([update(0, "i"), update(0, "u=2")].concat()),
        ],
        &[
            "request 0 GET / test fields=1 u=5 i",
            GET[1],
            "priority 0 u=3 i",
            "priority 0 u=2",
        ],
    );
    // The stream is open, the request incomplete.
    check(
        "between",
        &[
            on(0, &with_field[..1]),
            control(update(0, "u=0")),
            on(0, &with_field[1..]),
        ],
        &[
            "priority 0 u=0",
            "request 0 GET / test fields=1 u=0",
            GET[1],
        ],
    );
    check(
        "an odd value",
        &[control(update(0, "u=9, i=7")), on(0, get())],
        &GET,
    );
}

#[test]
fn frames_of_a_request_stream() {
    let unexpected = "close H3_FRAME_UNEXPECTED frame_unexpected";
    // RFC 9114 4.1
    check_request("content first", &frame(DATA, b"x"), &[unexpected]);
    let trailers = headers(&[("x", "y")]);
    let content = frame(DATA, b"abc");
    check_behind(
        "content behind trailers",
        &[&trailers[..], &content].concat(),
        unexpected,
    );
    check_behind(
        "trailers twice",
        &[&trailers[..], &trailers].concat(),
        unexpected,
    );
    let others = [
        CANCEL_PUSH,
        SETTINGS,
        PUSH_PROMISE,
        GOAWAY,
        MAX_PUSH_ID,
        PRIORITY_UPDATE,
        PRIORITY_UPDATE_PUSH,
    ];
    for kind in others {
        // RFC 9114 7.2
        check_behind(&format!("{kind:#x}"), &bare(kind), unexpected);
        check_request(&format!("{kind:#x} first"), &bare(kind), &[unexpected]);
    }
    for kind in [0x2, 0x6, 0x8, 0x9] {
        let reserved = "close H3_FRAME_UNEXPECTED frame_reserved";
        check_behind(&format!("{kind:#x}"), &bare(kind), reserved);
        check_request(&format!("{kind:#x} first"), &bare(kind), &[reserved]);
    }
}

#[test]
fn a_stream_ends_between_frames() {
    let cut = "close H3_FRAME_ERROR frame_cut";
    // RFC 9114 7.1
    let request = get();
    for end in 1..request.len() {
        check_request("the head", &request[..end], &[cut]);
    }
    for (name, frame) in [
        ("content", frame(DATA, b"abc")),
        ("grease", frame(GREASE, b"abc")),
    ] {
        for end in 1..frame.len() {
            check_behind(name, &frame[..end], cut);
        }
    }
    // RFC 9114 4.1.1
    let incomplete = ["reset 0 H3_REQUEST_INCOMPLETE incomplete"];
    check_request("nothing at all", &[], &incomplete);
    check_request("grease alone", &frame(GREASE, b"abc"), &incomplete);
    // A stream that is reset may end anywhere.
    check(
        "a reset",
        &[on(0, &request[..9]), Given::Reset(0), on(4, b"")],
        &[],
    );
}

#[test]
fn instructions_of_qpack() {
    let check = |name: &str, kind: u64, instructions: &[u8], expect: &[&str]| {
        let bytes = [&varint(kind), instructions].concat();
        check(
            name,
            &[on(CONTROL, control(&[])), on(SECOND, bytes)],
            expect,
        );
    };
    let encoder = ["close QPACK_ENCODER_STREAM_ERROR encoder_instruction"];
    // RFC 9204 3.2.3, 4.3
    check("capacity 0", ENCODER_STREAM, &[0x20, 0x20], &[]);
    check("capacity 1", ENCODER_STREAM, &[0x21], &encoder);
    check(
        "capacity 4096",
        ENCODER_STREAM,
        &[0x3f, 0xe1, 0x1f],
        &encoder,
    );
    check(
        "insert with a static name",
        ENCODER_STREAM,
        &[0xc1, 1, b'a'],
        &encoder,
    );
    check(
        "insert with a dynamic name",
        ENCODER_STREAM,
        &[0x80, 1, b'a'],
        &encoder,
    );
    check("insert", ENCODER_STREAM, &[0x41, b'a', 1, b'b'], &encoder);
    check("duplicate", ENCODER_STREAM, &[0x00], &encoder);
    let decoder = ["close QPACK_DECODER_STREAM_ERROR decoder_instruction"];
    // RFC 9204 4.4
    check("increment by 0", DECODER_STREAM, &[0x00], &decoder);
    check("increment by 1", DECODER_STREAM, &[0x01], &decoder);
    check("acknowledgment", DECODER_STREAM, &[0x80], &decoder);
    check(
        "a long acknowledgment",
        DECODER_STREAM,
        &[0xff, 1],
        &decoder,
    );
    check(
        "cancellations",
        DECODER_STREAM,
        &[0x40, 0x44, 0x7f, 0xff, 3, 0x48],
        &[],
    );
    let mut longest = vec![0x7f];
    longest.extend([0x80; 8]);
    longest.push(0);
    check("of a long number", DECODER_STREAM, &longest, &[]);
    longest.insert(1, 0x80);
    check("of a longer one", DECODER_STREAM, &longest, &decoder);
}

#[test]
fn after_the_end_requests_are_refused() {
    let mut peer = Peer::new();
    let mut control = Vec::new();
    peer.give(&end(0, get()));
    peer.connection.announce_end(&mut control);
    // RFC 9114 5.2: every request sent before is served.
    peer.give(&end(4, request("GET", "/9", &[])));
    peer.connection.end(&mut control);
    peer.connection.end(&mut control);
    peer.connection.announce_end(&mut control);
    peer.give(&end(8, get()));
    let mut rest = &control[..];
    let goaways: Vec<_> = std::iter::from_fn(|| Frame::take(&mut rest)).collect();
    assert!(rest.is_empty());
    let ids = goaways.iter().map(|frame| {
        assert_eq!(frame.kind, GOAWAY);
        take_varint(&mut &frame.payload[..]).expect("an integer")
    });
    assert_eq!(ids.collect::<Vec<_>>(), [(1 << 62) - 4, 8]);
    let second = ["request 4 GET /9 test", "answer 4 200 9", "end 4 after 0"];
    let refused = "reset 8 H3_REQUEST_REJECTED refused";
    assert_eq!(peer.record[..3], [GET[0], GET[1], "end 0 after 0"]);
    assert_eq!(peer.record[3..], [&second[..], &[refused]].concat());
}

#[test]
fn our_control_stream_begins_with_settings() {
    let opening = Peer::new().connection.opening();
    let mut rest = &opening[..];
    assert_eq!(take_varint(&mut rest), Some(CONTROL_STREAM));
    let settings = Frame::take(&mut rest).expect("a frame");
    assert!(rest.is_empty() && settings.kind == SETTINGS);
    let mut payload = &settings.payload[..];
    let mut take = || Some((take_varint(&mut payload)?, take_varint(&mut payload)?));
    assert_eq!(take(), Some((MAX_FIELD_SECTION_SIZE, 24 * 1024)));
    let (grease, _) = take().expect("one that means nothing");
    assert_eq!(grease % 0x1f, 0x21 % 0x1f);
    assert_eq!(take(), None, "a table of capacity 0");
}

#[test]
fn a_priority_that_came_early_is_kept_until_its_request_and_no_longer() {
    let mut peer = Peer::new();
    peer.give(&on(CONTROL, control(&[])));
    for number in 0..50 {
        peer.give(&on(CONTROL, priority_update(4 * number, "u=1")));
        peer.give(&end(4 * number, get()));
    }
    let urgent = peer.record.iter().filter(|line| line.ends_with("u=1"));
    assert_eq!(urgent.count(), 50, "{:?}", peer.record);
    // Those beyond the limit are dropped.
    for number in 50..100 {
        peer.give(&on(CONTROL, priority_update(4 * number, "u=1")));
    }
    peer.give(&end(4 * 99, get()));
    assert_eq!(peer.record[peer.record.len() - 3], "request 396 GET / test");
}
