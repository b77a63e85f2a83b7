//! DATA (RFC 9113 section 6.1): content, counted by flow control with its padding.

use super::{FrameHeader, FrameType, flags, strip_padding};
use crate::h2::error::Why;

/// Bytes of content in a payload, without padding.
///
/// # Errors
/// Padding that does not fit.
pub(crate) fn content_len(header: FrameHeader, payload: &[u8]) -> Result<u32, Why> {
    if !header.has(flags::PADDED) {
        return Ok(header.len);
    }
    // A payload is at most FRAME_PAYLOAD_MAX bytes long.
    strip_padding(payload).map(|content| content.len() as u32)
}

/// Appends the header of a frame; `len` bytes of content have to follow.
#[inline]
pub(crate) fn write_header(stream: u32, len: u32, is_last: bool, out: &mut Vec<u8>) {
    let flags = if is_last { flags::END_STREAM } else { 0 };
    FrameHeader {
        len,
        kind: FrameType::DATA,
        flags,
        stream,
    }
    .write(out);
}
