//! RST_STREAM (RFC 9113 section 6.4): a premature end of a stream.

use super::{FrameHeader, FrameType, parse_u32};
use crate::h2::error::{ErrorCode, Why};

/// Reads a payload.
///
/// # Errors
/// [`Why::FrameLength`] unless it is 4 bytes long.
pub(crate) fn parse(payload: &[u8]) -> Result<ErrorCode, Why> {
    parse_u32(payload).map(ErrorCode)
}

/// Appends a frame.
pub(crate) fn write(stream: u32, code: ErrorCode, out: &mut Vec<u8>) {
    FrameHeader {
        len: 4,
        kind: FrameType::RST_STREAM,
        flags: 0,
        stream,
    }
    .write(out);
    out.extend_from_slice(&code.0.to_be_bytes());
}
