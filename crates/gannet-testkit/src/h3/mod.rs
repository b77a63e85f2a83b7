//! HTTP/3 on the wire: builds and parses frames by hand, valid or not.
//!
//! These are the bytes of QUIC streams, without QUIC itself. Nothing here is validated: [`frame`]
//! writes any type and payload. [`qpack`] is an encoder and a decoder independent of gannet's.

pub mod qpack;

/// Frame type: content.
pub const DATA: u64 = 0x0;
/// Frame type: a field section.
pub const HEADERS: u64 = 0x1;
/// Frame type: cancels a push.
pub const CANCEL_PUSH: u64 = 0x3;
/// Frame type: settings.
pub const SETTINGS: u64 = 0x4;
/// Frame type: a server push.
pub const PUSH_PROMISE: u64 = 0x5;
/// Frame type: connection shutdown.
pub const GOAWAY: u64 = 0x7;
/// Frame type: limits pushes.
pub const MAX_PUSH_ID: u64 = 0xd;
/// Frame type: the priority of a request (RFC 9218 section 7.2).
pub const PRIORITY_UPDATE: u64 = 0xf_0700;
/// Frame type: the priority of a push.
pub const PRIORITY_UPDATE_PUSH: u64 = 0xf_0701;
/// A reserved frame type, stream type and setting, without meaning (RFC 9114 section 7.2.8).
pub const GREASE: u64 = 0x1f * 7 + 0x21;

/// Stream type: the control stream.
pub const CONTROL_STREAM: u64 = 0x0;
/// Stream type: a push.
pub const PUSH_STREAM: u64 = 0x1;
/// Stream type: QPACK's encoder stream.
pub const ENCODER_STREAM: u64 = 0x2;
/// Stream type: QPACK's decoder stream.
pub const DECODER_STREAM: u64 = 0x3;

/// Setting: the capacity of QPACK's dynamic table.
pub const QPACK_MAX_TABLE_CAPACITY: u64 = 0x1;
/// Setting: the largest field section.
pub const MAX_FIELD_SECTION_SIZE: u64 = 0x6;
/// Setting: how many streams may be blocked.
pub const QPACK_BLOCKED_STREAMS: u64 = 0x7;

/// Error code: graceful shutdown.
pub const NO_ERROR: u64 = 0x100;
/// Error code: the server is at fault.
pub const INTERNAL_ERROR: u64 = 0x102;
/// Error code: the peer causes excessive load.
pub const EXCESSIVE_LOAD: u64 = 0x107;
/// Error code: the request was not processed.
pub const REQUEST_REJECTED: u64 = 0x10b;
/// Error code: the request is no longer needed.
pub const REQUEST_CANCELLED: u64 = 0x10c;

/// A variable-length integer in its shortest form (RFC 9000 section 16).
pub fn varint(number: u64) -> Vec<u8> {
    let len = match number {
        0..64 => 1,
        64..16_384 => 2,
        16_384..1_073_741_824 => 4,
        _ => 8,
    };
    varint_of(number, len)
}

/// The same in `len` bytes: 1, 2, 4 or 8, possibly more than necessary.
pub fn varint_of(number: u64, len: usize) -> Vec<u8> {
    let mut bytes = number.to_be_bytes()[8 - len..].to_vec();
    assert!(bytes[0] < 64 && number < 1 << 62, "it fits");
    bytes[0] |= (len.trailing_zeros() as u8) << 6;
    bytes
}

/// Removes an integer from the bytes, if it is complete.
pub fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let len = 1 << (bytes.first()? >> 6);
    let (taken, rest) = bytes.split_at_checked(len)?;
    *bytes = rest;
    let number = taken
        .iter()
        .fold(0, |number, &byte| number << 8 | u64::from(byte));
    // The two most significant bits encode the length.
    Some(number & (u64::MAX >> (66 - 8 * len)))
}

/// A frame.
pub fn frame(kind: u64, payload: &[u8]) -> Vec<u8> {
    [&varint(kind), &varint(payload.len() as u64), payload].concat()
}

/// A frame whose payload is one integer: GOAWAY, MAX_PUSH_ID, CANCEL_PUSH.
pub fn number_frame(kind: u64, number: u64) -> Vec<u8> {
    frame(kind, &varint(number))
}

/// SETTINGS with these identifiers and values.
pub fn settings_frame(settings: &[(u64, u64)]) -> Vec<u8> {
    let pairs = settings
        .iter()
        .map(|(id, value)| [varint(*id), varint(*value)].concat());
    frame(SETTINGS, &pairs.collect::<Vec<_>>().concat())
}

/// The beginning of a control stream.
pub fn control(settings: &[(u64, u64)]) -> Vec<u8> {
    [varint(CONTROL_STREAM), settings_frame(settings)].concat()
}

/// PRIORITY_UPDATE for a request.
pub fn priority_update(stream: u64, value: &str) -> Vec<u8> {
    frame(
        PRIORITY_UPDATE,
        &[&varint(stream), value.as_bytes()].concat(),
    )
}

/// HEADERS with these fields.
pub fn headers(fields: &[(&str, &str)]) -> Vec<u8> {
    frame(HEADERS, &qpack::encode(fields))
}

/// HEADERS of a request to `test`; the end of the stream completes it.
pub fn request(method: &str, path: &str, fields: &[(&str, &str)]) -> Vec<u8> {
    let pseudo = [
        (":method", method),
        (":scheme", "https"),
        (":authority", "test"),
        (":path", path),
    ];
    headers(&[&pseudo, fields].concat())
}

/// A received frame.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Frame {
    /// Its type, such as [`DATA`].
    pub kind: u64,
    /// Its payload.
    pub payload: Vec<u8>,
}

impl Frame {
    /// Removes a complete frame from the bytes, if there is one.
    pub fn take(bytes: &mut &[u8]) -> Option<Self> {
        let mut rest = *bytes;
        let kind = take_varint(&mut rest)?;
        let len = take_varint(&mut rest)?;
        let (payload, rest) = rest.split_at_checked(usize::try_from(len).ok()?)?;
        *bytes = rest;
        let payload = payload.to_vec();
        Some(Self { kind, payload })
    }
}

/// The answer to a request.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Answer {
    /// The status code; 0 before the head.
    pub status: u16,
    /// Names and values, in order, without `:status`.
    pub fields: Vec<(String, String)>,
    /// The content.
    pub body: Vec<u8>,
}

impl Answer {
    /// Parses all bytes of a response stream that has ended.
    pub fn parse(stream: &[u8]) -> Self {
        let (answer, rest) = Self::parse_part(stream);
        assert!(rest.is_empty(), "cut off: {} bytes more", rest.len());
        answer
    }

    /// Parses the beginning of a response stream; also returns the bytes of an incomplete frame.
    pub fn parse_part(stream: &[u8]) -> (Self, &[u8]) {
        let mut answer = Self::default();
        let mut rest = stream;
        while let Some(frame) = Frame::take(&mut rest) {
            match frame.kind {
                HEADERS => answer.take_head(&frame.payload),
                DATA => {
                    assert!(answer.status != 0, "content before its head");
                    answer.body.extend_from_slice(&frame.payload);
                }
                other => panic!("a frame of type {other:#x} in a response"),
            }
        }
        (answer, rest)
    }

    fn take_head(&mut self, section: &[u8]) {
        assert_eq!(self.status, 0, "one head per stream");
        let fields = qpack::decode(section).expect("a section that decodes");
        let text = |bytes| String::from_utf8(bytes).expect("ASCII");
        let mut fields = fields.into_iter().map(|(n, v)| (text(n), text(v)));
        let (name, status) = fields.next().expect("a first field");
        assert_eq!(name, ":status");
        self.status = status.parse().expect("three digits");
        self.fields = fields.collect();
    }

    /// The value of a field that occurs at most once.
    pub fn field(&self, name: &str) -> Option<&str> {
        let mut values = self.fields.iter().filter(|(n, _)| n == name);
        let value = values.next().map(|(_, value)| value.as_str());
        assert!(values.next().is_none(), "{name} occurs twice: {self:?}");
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_come_apart_as_they_were_made() {
        for number in [0, 63, 64, 16_383, 16_384, (1 << 30) - 1, 1 << 30] {
            let shortest = varint(number);
            for len in [1, 2, 4, 8] {
                if len >= shortest.len() {
                    let bytes = varint_of(number, len);
                    assert_eq!(bytes.len(), len);
                    assert_eq!(take_varint(&mut &bytes[..]), Some(number));
                    assert_eq!(take_varint(&mut &bytes[..len - 1]), None);
                }
            }
        }
        assert_eq!(varint((1 << 62) - 1), [0xff; 8]);
    }

    #[test]
    fn an_answer_is_read() {
        let head = headers(&[(":status", "200"), ("etag", "\"a\"")]);
        let stream = [head, frame(DATA, b"one "), frame(DATA, b"two")].concat();
        let answer = Answer::parse(&stream);
        assert_eq!((answer.status, &answer.body[..]), (200, &b"one two"[..]));
        assert_eq!(answer.field("etag"), Some("\"a\""));
        let (part, rest) = Answer::parse_part(&stream[..stream.len() - 1]);
        assert_eq!((&part.body[..], rest), (&b"one "[..], &b"\x00\x03tw"[..]));
    }
}
