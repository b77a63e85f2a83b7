//! HEADERS (RFC 9113 section 6.2): the beginning of a field block, often all of it.

use super::{FrameHeader, FrameType, flags, priority, strip_padding};
use crate::h2::error::Why;

/// The payload of a HEADERS frame.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Headers<'a> {
    /// The first fragment of the field block.
    pub(crate) fragment: &'a [u8],
    /// Whether the deprecated priority fields make the stream depend on itself.
    pub(crate) depends_on_itself: bool,
}

/// Reads a payload.
///
/// # Errors
/// Padding or priority fields that do not fit.
#[inline]
pub(crate) fn parse(header: FrameHeader, payload: &[u8]) -> Result<Headers<'_>, Why> {
    let mut fragment = payload;
    if header.has(flags::PADDED) {
        fragment = strip_padding(fragment)?;
    }
    let mut depends_on_itself = false;
    if header.has(flags::PRIORITY) {
        let (fields, rest) = fragment
            .split_at_checked(priority::PAYLOAD_LEN)
            .ok_or(Why::FrameLength)?;
        depends_on_itself = priority::depends_on(fields)? == header.stream;
        fragment = rest;
    }
    Ok(Headers {
        fragment,
        depends_on_itself,
    })
}

/// The header of a frame with `len` bytes of field block.
#[inline]
pub(crate) fn header(stream: u32, len: u32, frame_flags: u8) -> FrameHeader {
    FrameHeader {
        len,
        kind: FrameType::HEADERS,
        flags: frame_flags,
        stream,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_and_priority_come_before_the_fragment() {
        let check = |frame_flags, payload: &[u8], expect: Result<(&[u8], bool), Why>| {
            let found = parse(header(5, payload.len() as u32, frame_flags), payload);
            let found = found.map(|headers| (headers.fragment, headers.depends_on_itself));
            assert_eq!(found, expect, "{frame_flags} {payload:?}");
        };
        let both = flags::PADDED | flags::PRIORITY;
        check(0, &[1, 2], Ok((&[1, 2], false)));
        check(flags::PADDED, &[1, 2, 3], Ok((&[2], false)));
        check(flags::PRIORITY, &[0x80, 0, 0, 5, 9, 1], Ok((&[1], true)));
        check(both, &[1, 0, 0, 0, 3, 9, 7, 0], Ok((&[7], false)));
        check(both, &[4, 0, 0, 0, 3, 9, 7, 0], Err(Why::FrameLength));
        check(flags::PRIORITY, &[0, 0, 0, 3], Err(Why::FrameLength));
        check(flags::PADDED, &[], Err(Why::FrameLength));
    }
}
