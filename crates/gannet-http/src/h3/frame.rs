//! Frame headers (RFC 9114 section 7) and the variable-length integers that they consist of (RFC
//! 9000 section 16). Other modules interpret the frames.

/// The type of a frame.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FrameType(pub u64);

impl FrameType {
    /// Content (RFC 9114 section 7.2.1).
    pub const DATA: Self = Self(0x0);
    /// A field section (7.2.2).
    pub const HEADERS: Self = Self(0x1);
    /// Cancels a push (7.2.3).
    pub const CANCEL_PUSH: Self = Self(0x3);
    /// Settings (7.2.4).
    pub const SETTINGS: Self = Self(0x4);
    /// A push, which clients must not send (7.2.5).
    pub const PUSH_PROMISE: Self = Self(0x5);
    /// Announces the end of the connection (7.2.6).
    pub const GOAWAY: Self = Self(0x7);
    /// The maximum number of pushes (7.2.7).
    pub const MAX_PUSH_ID: Self = Self(0xd);
    /// The priority of a request (RFC 9218 section 7.2).
    pub const PRIORITY_UPDATE_REQUEST: Self = Self(0xf_0700);
    /// The priority of a push (RFC 9218 section 7.2).
    pub const PRIORITY_UPDATE_PUSH: Self = Self(0xf_0701);

    /// Whether it is a type of HTTP/2 that HTTP/3 forbids (RFC 9114 section 7.2.8): PRIORITY, PING,
    /// WINDOW_UPDATE, CONTINUATION.
    #[must_use]
    pub const fn is_reserved(self) -> bool {
        matches!(self.0, 0x2 | 0x6 | 0x8 | 0x9)
    }
}

/// The header of a frame.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FrameHeader {
    /// The type.
    pub kind: FrameType,
    /// Bytes of the payload, below 2^62.
    pub len: u64,
}

/// Maximum length of a frame header in bytes: two integers of eight.
pub const FRAME_HEADER_MAX: usize = 16;

/// The largest variable-length integer.
pub const VARINT_MAX: u64 = (1 << 62) - 1;

/// Reads an integer and advances the input; `None`, without advancing, if it is incomplete.
#[inline]
#[must_use]
pub fn read_varint(input: &mut &[u8]) -> Option<u64> {
    let first = *input.first()?;
    let len = varint_len(first);
    let (bytes, rest) = input.split_at_checked(len)?;
    let number = bytes[1..]
        .iter()
        .fold(u64::from(first & 0x3f), |number, &byte| {
            number << 8 | u64::from(byte)
        });
    *input = rest;
    Some(number)
}

/// Appends an integer below 2^62 in the shortest form.
#[inline]
pub fn write_varint(number: u64, out: &mut Vec<u8>) {
    debug_assert!(number <= VARINT_MAX, "an integer of QUIC");
    match number {
        0..0x40 => out.push(number as u8),
        0x40..0x4000 => out.extend_from_slice(&(number as u16 | 0x4000).to_be_bytes()),
        0x4000..0x4000_0000 => {
            out.extend_from_slice(&(number as u32 | 0x8000_0000).to_be_bytes());
        }
        _ => out.extend_from_slice(&(number | 0xc000_0000_0000_0000).to_be_bytes()),
    }
}

/// Length in bytes of an integer with this first byte.
#[inline]
const fn varint_len(first: u8) -> usize {
    1 << (first >> 6)
}

/// Buffers an incomplete integer or frame header: at most [`FRAME_HEADER_MAX`] bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Partial {
    bytes: [u8; FRAME_HEADER_MAX],
    len: u8,
}

impl Partial {
    /// Whether nothing is buffered.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Reads an integer, or buffers its available bytes and returns `None`.
    pub(crate) fn read_varint(&mut self, input: &mut &[u8]) -> Option<u64> {
        self.read(input, read_varint)
    }

    /// Reads a frame header, or buffers its available bytes and returns `None`.
    #[inline]
    pub(crate) fn read_header(&mut self, input: &mut &[u8]) -> Option<FrameHeader> {
        self.read(input, |bytes| {
            let kind = FrameType(read_varint(bytes)?);
            let len = read_varint(bytes)?;
            Some(FrameHeader { kind, len })
        })
    }

    #[inline]
    fn read<T>(&mut self, input: &mut &[u8], parse: impl Fn(&mut &[u8]) -> Option<T>) -> Option<T> {
        if self.is_empty() {
            let mut rest = *input;
            if let Some(value) = parse(&mut rest) {
                *input = rest;
                return Some(value);
            }
        }
        // Byte by byte: its end is where parsing first succeeds.
        while let Some((&byte, rest)) = input.split_first() {
            self.bytes[usize::from(self.len)] = byte;
            self.len += 1;
            *input = rest;
            if let Some(value) = parse(&mut &self.bytes[..usize::from(self.len)]) {
                self.len = 0;
                return Some(value);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_come_back_in_the_shortest_form() {
        for (number, len) in [
            (0, 1),
            (63, 1),
            (64, 2),
            (16_383, 2),
            (16_384, 4),
            ((1 << 30) - 1, 4),
            (1 << 30, 8),
            (VARINT_MAX, 8),
        ] {
            let mut bytes = Vec::new();
            write_varint(number, &mut bytes);
            assert_eq!(bytes.len(), len, "{number}");
            for cut in 0..len {
                assert_eq!(read_varint(&mut &bytes[..cut]), None);
            }
            bytes.push(7);
            let mut input = &bytes[..];
            assert_eq!(read_varint(&mut input), Some(number));
            assert_eq!(input, [7]);
        }
    }

    #[test]
    fn the_examples_of_the_standard() {
        // RFC 9000 A.1
        let check = |bytes: &[u8], number| assert_eq!(read_varint(&mut &*bytes), Some(number));
        check(
            &[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c],
            151_288_809_941_952_652,
        );
        check(&[0x9d, 0x7f, 0x3e, 0x7d], 494_878_333);
        check(&[0x7b, 0xbd], 15_293);
        check(&[0x25], 37);
        check(&[0x40, 0x25], 37);
    }

    #[test]
    fn headers_come_in_pieces() {
        // Both integers in longer than the shortest form.
        let mut bytes = vec![0xc0, 0, 0, 0, 0, 0xf, 7, 0, 0xc0, 0, 0, 0, 0, 0, 0, 5];
        bytes.extend_from_slice(b"hello");
        let expect = FrameHeader {
            kind: FrameType::PRIORITY_UPDATE_REQUEST,
            len: 5,
        };
        for cut in 0..=FRAME_HEADER_MAX {
            let mut partial = Partial::default();
            let (mut first, mut second) = bytes.split_at(cut);
            let found = match partial.read_header(&mut first) {
                Some(header) => Some(header),
                None => partial.read_header(&mut second),
            };
            assert_eq!(found, Some(expect), "{cut}");
            assert!(partial.is_empty() && first.is_empty() && second.ends_with(b"hello"));
        }
    }
}
