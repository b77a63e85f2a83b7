//! Frames (RFC 9113 sections 4 and 6): one file per type, each with parsing and writing.
//!
//! `parse` takes a whole payload whose header was read; `write` appends a whole frame. The effect
//! of a frame on a connection is not decided here.

pub mod continuation;
pub mod data;
pub mod goaway;
pub mod headers;
pub mod ping;
pub mod priority;
pub mod priority_update;
pub mod push_promise;
pub mod rst_stream;
pub mod settings;
pub mod window_update;

use super::error::Why;

/// Bytes of a frame header.
pub const FRAME_HEADER_LEN: usize = 9;

/// The type of a frame, as its byte on the wire.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FrameType(pub u8);

impl FrameType {
    /// Content (RFC 9113 section 6.1).
    pub const DATA: Self = Self(0x0);
    /// The beginning of a field block (6.2).
    pub const HEADERS: Self = Self(0x1);
    /// The deprecated priority signal (6.3).
    pub const PRIORITY: Self = Self(0x2);
    /// A premature end of a stream (6.4).
    pub const RST_STREAM: Self = Self(0x3);
    /// Settings, or their acknowledgement (6.5).
    pub const SETTINGS: Self = Self(0x4);
    /// A push, which clients must not send (6.6).
    pub const PUSH_PROMISE: Self = Self(0x5);
    /// A liveness check, or its acknowledgement (6.7).
    pub const PING: Self = Self(0x6);
    /// The end of the connection (6.8).
    pub const GOAWAY: Self = Self(0x7);
    /// A growth of a flow-control window (6.9).
    pub const WINDOW_UPDATE: Self = Self(0x8);
    /// More of a field block (6.10).
    pub const CONTINUATION: Self = Self(0x9);
    /// A priority signal (RFC 9218 section 7.1).
    pub const PRIORITY_UPDATE: Self = Self(0x10);
}

/// The flags of a frame; each type defines its own.
pub mod flags {
    /// DATA, HEADERS: the sender's part of the stream ends.
    pub const END_STREAM: u8 = 0x1;
    /// SETTINGS, PING: an acknowledgement.
    pub const ACK: u8 = 0x1;
    /// HEADERS, CONTINUATION: the field block ends.
    pub const END_HEADERS: u8 = 0x4;
    /// DATA, HEADERS: padding follows.
    pub const PADDED: u8 = 0x8;
    /// HEADERS: the deprecated priority fields are present.
    pub const PRIORITY: u8 = 0x20;
}

/// A frame header (RFC 9113 section 4.1).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FrameHeader {
    /// Length of the payload in bytes, below 2^24.
    pub len: u32,
    /// The type.
    pub kind: FrameType,
    /// The flags.
    pub flags: u8,
    /// The stream identifier, without the reserved bit; 0 is the connection.
    pub stream: u32,
}

impl FrameHeader {
    /// Reads a header.
    #[inline]
    #[must_use]
    pub fn parse(bytes: &[u8; FRAME_HEADER_LEN]) -> Self {
        let [a, b, c, kind, flags, s @ ..] = *bytes;
        Self {
            len: u32::from_be_bytes([0, a, b, c]),
            kind: FrameType(kind),
            flags,
            stream: u32::from_be_bytes(s) & STREAM_MASK,
        }
    }

    /// The header's bytes.
    #[inline]
    #[must_use]
    pub fn to_bytes(self) -> [u8; FRAME_HEADER_LEN] {
        debug_assert!(
            self.len < 1 << 24 && self.stream <= STREAM_MASK,
            "header fields fit"
        );
        let [_, a, b, c] = self.len.to_be_bytes();
        let [s, t, u, v] = self.stream.to_be_bytes();
        [a, b, c, self.kind.0, self.flags, s, t, u, v]
    }

    /// Appends the header.
    #[inline]
    pub fn write(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_bytes());
    }

    /// Whether all bits of `flag` are set.
    #[inline]
    #[must_use]
    pub fn has(self, flag: u8) -> bool {
        self.flags & flag == flag
    }
}

/// Strips the padding off a payload: its length byte and the bytes at the end.
///
/// # Errors
/// [`Why::FrameLength`] without a length byte, [`Why::Padding`] for more padding than payload.
#[inline]
pub(crate) fn strip_padding(payload: &[u8]) -> Result<&[u8], Why> {
    let (&padding, rest) = payload.split_first().ok_or(Why::FrameLength)?;
    let len = rest.len().checked_sub(padding.into()).ok_or(Why::Padding)?;
    Ok(&rest[..len])
}

/// Reads a 32-bit number.
pub(crate) fn parse_u32(payload: &[u8]) -> Result<u32, Why> {
    payload
        .try_into()
        .map(u32::from_be_bytes)
        .map_err(|_| Why::FrameLength)
}

/// All bits except the reserved one.
pub(crate) const STREAM_MASK: u32 = 0x7fff_ffff;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_come_back_and_the_reserved_bit_is_ignored() {
        let header = FrameHeader {
            len: 0x01_0203,
            kind: FrameType::HEADERS,
            flags: flags::END_STREAM | flags::END_HEADERS,
            stream: 0x7fff_fffe,
        };
        let bytes = header.to_bytes();
        assert_eq!(bytes, [1, 2, 3, 1, 5, 0x7f, 0xff, 0xff, 0xfe]);
        assert_eq!(FrameHeader::parse(&bytes), header);
        let mut reserved = bytes;
        reserved[5] |= 0x80;
        assert_eq!(FrameHeader::parse(&reserved), header);
        assert!(header.has(flags::END_STREAM) && !header.has(flags::PADDED));
    }

    #[test]
    fn padding() {
        assert_eq!(strip_padding(&[]), Err(Why::FrameLength));
        assert_eq!(strip_padding(&[1]), Err(Why::Padding));
        assert_eq!(strip_padding(&[0]), Ok(&[][..]));
        assert_eq!(strip_padding(&[2, 7, 0, 0]), Ok(&[7][..]));
        assert_eq!(strip_padding(&[3, 7, 0, 0]), Ok(&[][..]));
        assert_eq!(strip_padding(&[4, 7, 0, 0]), Err(Why::Padding));
    }
}
