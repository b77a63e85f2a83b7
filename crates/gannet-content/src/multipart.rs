//! Several ranges in one response: the framing of `multipart/byteranges` (RFC 9110 section 14.6).

use std::ops::Range;

use gannet_http::semantics::range::ByteRange;

/// The content of a 206 with several ranges: generated framing, and the ranges of the bodies.
///
/// Sent as, for each part, `framing[part.head]` and then the representation's bytes of `part.body`;
/// and `framing[closing]` at the end. It starts with a line end, an empty preamble (RFC 2046 section
/// 5.1.1), as nginx and Apache send it: zsync and programs like it read a line before the first
/// delimiter.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Multipart {
    /// All delimiters and part heads, one after the other.
    pub framing: Vec<u8>,
    /// The parts, in request order.
    pub parts: Vec<RangePart>,
    /// The closing delimiter in `framing`.
    pub closing: Range<usize>,
    /// Length of the whole content in bytes: framing and bodies.
    pub content_length: u64,
}

/// One range in a [`Multipart`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RangePart {
    /// Its delimiter and fields in [`Multipart::framing`].
    pub head: Range<usize>,
    /// Its bytes in the representation.
    pub body: ByteRange,
}

/// The separator of parts: 32 hexadecimal digits from 16 unpredictable bytes, so that no file can
/// be crafted to contain it (RFC 2046 section 5.1.1).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Boundary([u8; 32]);

impl Boundary {
    /// The boundary for these bytes.
    #[must_use]
    pub fn new(random: [u8; 16]) -> Self {
        let mut digits = [0; 32];
        for (pair, byte) in digits.chunks_exact_mut(2).zip(random) {
            pair[0] = HEX[usize::from(byte >> 4)];
            pair[1] = HEX[usize::from(byte & 15)];
        }
        Self(digits)
    }

    /// The value of `content-type` for a response with this boundary.
    #[must_use]
    pub fn content_type(&self) -> [u8; CONTENT_TYPE_LEN] {
        let mut value = [0; CONTENT_TYPE_LEN];
        let (prefix, digits) = value.split_at_mut(CONTENT_TYPE_PREFIX.len());
        prefix.copy_from_slice(CONTENT_TYPE_PREFIX);
        digits.copy_from_slice(&self.0);
        value
    }
}

/// Lays out the ranges of a representation of `complete_len` bytes and type `content_type`.
///
/// The ranges are those of a [`RangeSet`](gannet_http::semantics::range::RangeSet): inside the
/// representation, few, not overlapping, so no sum here can overflow.
#[must_use]
pub fn multipart(
    ranges: &[ByteRange],
    content_type: Option<&[u8]>,
    complete_len: u64,
    boundary: &Boundary,
) -> Multipart {
    let mut framing = Vec::with_capacity(ranges.len() * 160 + 64);
    let mut parts = Vec::with_capacity(ranges.len());
    let mut body_len = 0;
    for &body in ranges {
        let start = framing.len();
        framing.extend_from_slice(b"\r\n--");
        framing.extend_from_slice(&boundary.0);
        if let Some(content_type) = content_type {
            framing.extend_from_slice(b"\r\nContent-Type: ");
            framing.extend_from_slice(content_type);
        }
        framing.extend_from_slice(b"\r\nContent-Range: ");
        body.write_content_range(complete_len, &mut framing);
        framing.extend_from_slice(b"\r\n\r\n");
        parts.push(RangePart {
            head: start..framing.len(),
            body,
        });
        body_len += body.len();
    }
    let start = framing.len();
    framing.extend_from_slice(b"\r\n--");
    framing.extend_from_slice(&boundary.0);
    framing.extend_from_slice(b"--\r\n");
    let closing = start..framing.len();
    let content_length = body_len + framing.len() as u64;
    Multipart {
        framing,
        parts,
        closing,
        content_length,
    }
}

const HEX: &[u8; 16] = b"0123456789abcdef";
const CONTENT_TYPE_PREFIX: &[u8; 31] = b"multipart/byteranges; boundary=";
/// Length of [`Boundary::content_type`], in bytes.
pub const CONTENT_TYPE_LEN: usize = 63;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_ranges_read_as_the_rfc_shows_them_and_fit_the_length() {
        let boundary = Boundary::new([0xa5; 16]);
        let ranges = [
            ByteRange { start: 0, end: 2 },
            ByteRange { start: 6, end: 10 },
        ];
        let content = b"0123456789";
        let multipart = multipart(&ranges, Some(b"text/plain"), 10, &boundary);
        let mut sent = Vec::new();
        for part in &multipart.parts {
            sent.extend_from_slice(&multipart.framing[part.head.clone()]);
            sent.extend_from_slice(&content[part.body.start as usize..part.body.end as usize]);
        }
        sent.extend_from_slice(&multipart.framing[multipart.closing.clone()]);
        assert_eq!(sent.len() as u64, multipart.content_length);
        let digits = "a5".repeat(16);
        let expect = format!(
            "\r\n--{digits}\r\nContent-Type: text/plain\r\nContent-Range: bytes 0-1/10\r\n\r\n01\r\n\
             --{digits}\r\nContent-Type: text/plain\r\nContent-Range: bytes 6-9/10\r\n\r\n6789\r\n\
             --{digits}--\r\n"
        );
        assert_eq!(String::from_utf8_lossy(&sent), expect);
        assert_eq!(
            boundary.content_type(),
            format!("multipart/byteranges; boundary={digits}").as_bytes()
        );
    }

    #[test]
    fn lengths_near_the_largest_do_not_overflow() {
        let ranges = [
            ByteRange { start: 0, end: 1 },
            ByteRange {
                start: u64::MAX - 2,
                end: u64::MAX,
            },
        ];
        let multipart = multipart(&ranges, None, u64::MAX, &Boundary::new([0; 16]));
        assert_eq!(multipart.content_length, 3 + multipart.framing.len() as u64);
        let head = &multipart.framing[multipart.parts[1].head.clone()];
        assert!(head.ends_with(
            b"\r\nContent-Range: bytes 18446744073709551613-18446744073709551614/\
              18446744073709551615\r\n\r\n"
        ));
    }
}
