//! HTTP/2 on the wire: builds and parses frames by hand, valid or not.
//!
//! Nothing here is validated: [`frame`] writes any type, flags, stream and payload. HPACK is from
//! another implementation ([`hpack`]); requests are uncompressed literals.

pub mod hpack;
#[cfg(feature = "program")]
mod peer;

#[cfg(feature = "program")]
pub use peer::{Answer, Peer};

/// The connection preface of a client (RFC 9113 section 3.4).
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Frame type: content.
pub const DATA: u8 = 0;
/// Frame type: the first fragment of a field block.
pub const HEADERS: u8 = 1;
/// Frame type: deprecated priorities.
pub const PRIORITY: u8 = 2;
/// Frame type: immediate termination of a stream.
pub const RST_STREAM: u8 = 3;
/// Frame type: settings.
pub const SETTINGS: u8 = 4;
/// Frame type: a server push.
pub const PUSH_PROMISE: u8 = 5;
/// Frame type: a ping.
pub const PING: u8 = 6;
/// Frame type: connection shutdown.
pub const GOAWAY: u8 = 7;
/// Frame type: a window increment.
pub const WINDOW_UPDATE: u8 = 8;
/// Frame type: another fragment of a field block.
pub const CONTINUATION: u8 = 9;
/// Frame type: a priority (RFC 9218 section 7.1).
pub const PRIORITY_UPDATE: u8 = 16;

/// Flag: the last frame of the stream.
pub const END_STREAM: u8 = 1;
/// Flag: acknowledges SETTINGS or PING.
pub const ACK: u8 = 1;
/// Flag: the field block is complete.
pub const END_HEADERS: u8 = 4;

/// Setting: the initial window of streams.
pub const INITIAL_WINDOW_SIZE: u16 = 4;

/// Error code: graceful shutdown.
pub const NO_ERROR: u32 = 0x0;
/// Error code: the server is at fault.
pub const INTERNAL_ERROR: u32 = 0x2;
/// Error code: the stream is no longer needed.
pub const CANCEL: u32 = 0x8;
/// Error code: the peer causes excessive load.
pub const ENHANCE_YOUR_CALM: u32 = 0xb;

/// A window that is never exhausted: 1 GiB.
pub const WIDE: u32 = 1 << 30;

/// A frame.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// The preface and SETTINGS.
pub fn opening(settings: &[(u16, u32)]) -> Vec<u8> {
    [PREFACE, &settings_frame(settings)].concat()
}

/// The preface, with [`WIDE`] windows for the streams and the connection.
pub fn wide_opening() -> Vec<u8> {
    let opening = opening(&[(INITIAL_WINDOW_SIZE, WIDE)]);
    [opening, window_update(0, WIDE)].concat()
}

/// SETTINGS with these identifiers and values.
pub fn settings_frame(settings: &[(u16, u32)]) -> Vec<u8> {
    let mut payload = Vec::new();
    for (id, value) in settings {
        payload.extend(id.to_be_bytes());
        payload.extend(value.to_be_bytes());
    }
    frame(SETTINGS, 0, 0, &payload)
}

/// WINDOW_UPDATE; stream 0 is the connection.
pub fn window_update(stream: u32, increment: u32) -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, stream, &increment.to_be_bytes())
}

/// RST_STREAM.
pub fn rst_stream(stream: u32, code: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, stream, &code.to_be_bytes())
}

/// HEADERS with a complete field block and END_STREAM.
pub fn headers(stream: u32, block: &[u8]) -> Vec<u8> {
    frame(HEADERS, END_HEADERS | END_STREAM, stream, block)
}

/// A field block of literals that are neither indexed nor compressed (RFC 7541 section 6.2.2).
pub fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, value) in fields {
        bytes.push(0);
        string(name.as_bytes(), &mut bytes);
        string(value.as_bytes(), &mut bytes);
    }
    bytes
}

/// A literal that is added to the dynamic table (RFC 7541 section 6.2.1).
pub fn indexed(name: &str, value: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x40];
    string(name.as_bytes(), &mut bytes);
    string(value, &mut bytes);
    bytes
}

/// The field block of a request to `test`.
pub fn request(method: &str, path: &str, fields: &[(&str, &str)]) -> Vec<u8> {
    request_by("http", method, path, fields)
}

/// The same with a given scheme.
pub fn request_by(scheme: &str, method: &str, path: &str, fields: &[(&str, &str)]) -> Vec<u8> {
    let pseudo = [
        (":method", method),
        (":scheme", scheme),
        (":authority", "test"),
        (":path", path),
    ];
    block(&[&pseudo, fields].concat())
}

/// An uncompressed string (RFC 7541 section 5.2).
fn string(bytes: &[u8], out: &mut Vec<u8>) {
    if bytes.len() < 127 {
        out.push(bytes.len() as u8);
    } else {
        out.push(127);
        let mut rest = bytes.len() - 127;
        while rest >= 128 {
            out.push(rest as u8 | 128);
            rest >>= 7;
        }
        out.push(rest as u8);
    }
    out.extend_from_slice(bytes);
}

/// A received frame.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Frame {
    /// Its type, such as [`DATA`].
    pub kind: u8,
    /// Its flags.
    pub flags: u8,
    /// Its stream, without the reserved bit.
    pub stream: u32,
    /// The payload length in its header.
    pub len: u32,
    /// Its payload.
    pub payload: Vec<u8>,
}

impl Frame {
    /// Parses a frame header of nine bytes; the payload is left empty.
    pub fn header(bytes: &[u8]) -> Option<Self> {
        let [a, b, c, kind, flags, stream @ ..] = bytes.first_chunk::<9>()?;
        Some(Self {
            kind: *kind,
            flags: *flags,
            stream: number(stream) & 0x7fff_ffff,
            len: number(&[0, *a, *b, *c]),
            payload: Vec::new(),
        })
    }

    /// Removes a complete frame from the received bytes, if there is one.
    pub fn take(received: &mut Vec<u8>) -> Option<Self> {
        let frame = Self::read(received)?;
        received.drain(..9 + frame.payload.len());
        Some(frame)
    }

    /// Parses a frame at the beginning of some bytes, if it is complete.
    fn read(bytes: &[u8]) -> Option<Self> {
        let mut frame = Self::header(bytes)?;
        let payload = bytes[9..].get(..frame.len as usize)?;
        frame.payload = payload.to_vec();
        Some(frame)
    }

    /// Whether a flag is set.
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// The complete frames at the beginning of some bytes.
pub fn frames(bytes: &[u8]) -> Vec<Frame> {
    let mut rest = bytes;
    let next = || {
        let frame = Frame::read(rest)?;
        rest = &rest[9 + frame.payload.len()..];
        Some(frame)
    };
    std::iter::from_fn(next).collect()
}

/// The first four bytes as a number: an error code, an increment or a stream.
pub fn number(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(*bytes.first_chunk().expect("four bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_apart_as_they_were_made() {
        let mut bytes = [window_update(0x8000_0003, 5), frame(0xfa, 7, 1, b"?")].concat();
        bytes.extend(&frame(DATA, END_STREAM, 1, b"cut short")[..12]);
        let taken = frames(&bytes);
        let brief: Vec<_> = taken
            .iter()
            .map(|f| (f.kind, f.flags, f.stream, f.len, &f.payload[..]))
            .collect();
        assert_eq!(
            brief,
            [
                (WINDOW_UPDATE, 0, 3, 4, &[0, 0, 0, 5][..]),
                (0xfa, 7, 1, 1, b"?")
            ]
        );
        let mut rest = bytes.split_off(13 + 10);
        assert_eq!(Frame::take(&mut rest), None);
        assert_eq!(rest.len(), 12, "what is not whole stays");
    }

    #[test]
    fn literals_of_every_length_are_read_by_another_decoder() {
        for len in [0, 1, 126, 127, 128, 254, 255, 256, 16_510, 16_511, 70_000] {
            let value = "v".repeat(len);
            let fields = hpack::Decoder::new().decode(&block(&[("name", &value)]));
            let expect = (b"name".to_vec(), value.into_bytes());
            assert_eq!(fields.as_ref(), Ok(&vec![expect]), "{len}");
        }
    }
}
