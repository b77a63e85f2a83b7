//! The client's side of the wire: frames built and read by hand, apart from the code under test.

use gannet_http::h2::hpack::Decoder;

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const PRIORITY: u8 = 2;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PUSH_PROMISE: u8 = 5;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;
pub(crate) const PRIORITY_UPDATE: u8 = 16;

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

pub(crate) const END_STREAM: u8 = 1;
pub(crate) const ACK: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

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

/// A frame.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// A field block of literals that nobody compresses: names and values up to 2^14 bytes.
pub(crate) fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, value) in fields {
        bytes.push(0);
        for text in [name, value] {
            match text.len() {
                len @ ..127 => bytes.push(len as u8),
                len => {
                    let rest = len - 127;
                    bytes.extend([127, (rest & 127) as u8 | 128, (rest >> 7) as u8 | 128, 0]);
                }
            }
            bytes.extend(text.as_bytes());
        }
    }
    bytes
}

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
    frame(HEADERS, END_STREAM | END_HEADERS, stream, &get(path))
}

/// The preface and SETTINGS.
pub(crate) fn opening(settings: &[(u16, u32)]) -> Vec<u8> {
    let mut bytes = PREFACE.to_vec();
    bytes.extend(settings_frame(settings));
    bytes
}

/// SETTINGS.
pub(crate) fn settings_frame(settings: &[(u16, u32)]) -> Vec<u8> {
    let mut payload = Vec::new();
    for (id, value) in settings {
        payload.extend(id.to_be_bytes());
        payload.extend(value.to_be_bytes());
    }
    frame(SETTINGS, 0, 0, &payload)
}

/// WINDOW_UPDATE.
pub(crate) fn window_update(stream: u32, increment: u32) -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, stream, &increment.to_be_bytes())
}

/// A frame of the server; of a DATA frame the payload is not on the wire.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) len: u32,
    pub(crate) payload: Vec<u8>,
}

/// Takes the frames off wire bytes, which are whole frames but for the content of DATA.
pub(crate) fn frames(wire: &[u8]) -> Vec<Frame> {
    let mut rest = wire;
    let mut frames = Vec::new();
    while !rest.is_empty() {
        let (header, after) = rest.split_at(9);
        let len = u32::from_be_bytes([0, header[0], header[1], header[2]]);
        let kind = header[3];
        let on_wire = if kind == DATA { 0 } else { len as usize };
        let (payload, after) = after.split_at(on_wire);
        frames.push(Frame {
            kind,
            flags: header[4],
            stream: u32_at(header, 5),
            len,
            payload: payload.to_vec(),
        });
        rest = after;
    }
    frames
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// A frame in words. `decoder` follows the server's field blocks; one that is cut into several
/// frames is shown by its length.
pub(crate) fn describe(frame: &Frame, decoder: &mut Decoder) -> String {
    let payload = &frame.payload;
    let flag = |bit, name| if frame.flags & bit == 0 { "" } else { name };
    let code = |at| {
        let code = u32_at(payload, at);
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
                let show = |name: &[u8], value: &[u8]| {
                    text += &format!(" {}={}", name.escape_ascii(), value.escape_ascii());
                };
                decoder
                    .decode_each(payload, show)
                    .expect("a block that decodes");
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
                    u32_at(setting, 2)
                )
            });
            format!(
                "SETTINGS{}{}",
                flag(1, " ACK"),
                settings.collect::<String>()
            )
        }
        PING => format!("PING{} {}", flag(1, " ACK"), payload.escape_ascii()),
        GOAWAY => format!("GOAWAY last={} {}", u32_at(payload, 0), code(4)),
        WINDOW_UPDATE => format!("WINDOW_UPDATE {} {}", frame.stream, u32_at(payload, 0)),
        other => format!("type {other}?"),
    }
}
