//! The client side of the wire: frames built and parsed by hand, independent of the code under
//! test.

use gannet_testkit::h2::hpack::Decoder;
pub(crate) use gannet_testkit::h2::{
    ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, Frame, GOAWAY, HEADERS, PING, PREFACE,
    PRIORITY, PRIORITY_UPDATE, PUSH_PROMISE, RST_STREAM, SETTINGS, WINDOW_UPDATE, block, frame,
    headers, number, opening, rst_stream, settings_frame, window_update,
};

/// Types by their names, as conversations spell them.
pub(crate) const KINDS: [(&str, u8); 11] = [
    ("DATA", DATA),
    ("HEADERS", HEADERS),
    ("PRIORITY", PRIORITY),
    ("RST_STREAM", RST_STREAM),
    ("SETTINGS", SETTINGS),
    ("PUSH_PROMISE", PUSH_PROMISE),
    ("PING", PING),
    ("GOAWAY", GOAWAY),
    ("WINDOW_UPDATE", WINDOW_UPDATE),
    ("CONTINUATION", CONTINUATION),
    ("PRIORITY_UPDATE", PRIORITY_UPDATE),
];

/// Error codes as conversations spell them.
pub(crate) const CODES: [&str; 14] = [
    "NO_ERROR",
    "PROTOCOL_ERROR",
    "INTERNAL_ERROR",
    "FLOW_CONTROL_ERROR",
    "SETTINGS_TIMEOUT",
    "STREAM_CLOSED",
    "FRAME_SIZE_ERROR",
    "REFUSED_STREAM",
    "CANCEL",
    "COMPRESSION_ERROR",
    "CONNECT_ERROR",
    "ENHANCE_YOUR_CALM",
    "INADEQUATE_SECURITY",
    "HTTP_1_1_REQUIRED",
];

/// The fields of a request for a path.
pub(crate) fn get(path: &str) -> Vec<u8> {
    block(&[
        (":method", "GET"),
        (":scheme", "http"),
        (":path", path),
        (":authority", "a"),
    ])
}

/// HEADERS of a request without content.
pub(crate) fn request(stream: u32, path: &str) -> Vec<u8> {
    headers(stream, &get(path))
}

/// Takes the frames off wire bytes, which are whole frames except for the content of DATA.
pub(crate) fn frames(wire: &[u8]) -> Vec<Frame> {
    let mut rest = wire;
    let mut frames = Vec::new();
    while let Some(mut frame) = Frame::header(rest) {
        let on_wire = if frame.kind == DATA { 0 } else { frame.len };
        let (payload, after) = rest[9..].split_at(on_wire as usize);
        frame.payload = payload.to_vec();
        frames.push(frame);
        rest = after;
    }
    assert!(rest.is_empty(), "whole frames");
    frames
}

/// A frame in words. `decoder` follows the server's field blocks; one that is split over several
/// frames is shown by its length.
pub(crate) fn describe(frame: &Frame, decoder: &mut Decoder<'_>) -> String {
    let payload = &frame.payload;
    let flag = |bit, name| if frame.flags & bit == 0 { "" } else { name };
    let code = |at| {
        let code = number(&payload[at..]);
        CODES
            .get(code as usize)
            .map_or(format!("{code:#x}"), |name| (*name).to_owned())
    };
    match frame.kind {
        DATA => format!(
            "DATA {}{} len={}",
            frame.stream,
            flag(1, " END_STREAM"),
            frame.len
        ),
        HEADERS | CONTINUATION => {
            let name = if frame.kind == HEADERS {
                "HEADERS"
            } else {
                "CONTINUATION"
            };
            let flags = [flag(1, " END_STREAM"), flag(4, " END_HEADERS")].concat();
            let mut text = format!("{name} {}{flags}", frame.stream);
            if frame.kind == HEADERS && frame.flags & END_HEADERS != 0 {
                if payload.first() == Some(&0x20) {
                    text += " (table size 0)";
                }
                let fields = decoder.decode(payload).expect("a block that decodes");
                for (name, value) in fields {
                    text += &format!(" {}={}", name.escape_ascii(), value.escape_ascii());
                }
            } else {
                text += &format!(" len={}", frame.len);
            }
            text
        }
        RST_STREAM => format!("RST_STREAM {} {}", frame.stream, code(0)),
        SETTINGS => {
            let settings = payload.chunks(6).map(|setting| {
                format!(
                    " {}={}",
                    u16::from_be_bytes([setting[0], setting[1]]),
                    number(&setting[2..])
                )
            });
            format!(
                "SETTINGS{}{}",
                flag(1, " ACK"),
                settings.collect::<String>()
            )
        }
        PING => format!("PING{} {}", flag(1, " ACK"), payload.escape_ascii()),
        GOAWAY => format!("GOAWAY last={} {}", number(payload), code(4)),
        WINDOW_UPDATE => format!("WINDOW_UPDATE {} {}", frame.stream, number(payload)),
        other => format!("type {other}?"),
    }
}
