//! WINDOW_UPDATE (RFC 9113 section 6.9): a growth of a flow-control window.

use super::{FrameHeader, FrameType, STREAM_MASK, parse_u32};
use crate::h2::error::Why;

/// Reads the increment of a payload, which may be 0.
///
/// # Errors
/// [`Why::FrameLength`] unless it is 4 bytes long.
pub(crate) fn parse(payload: &[u8]) -> Result<u32, Why> {
    parse_u32(payload).map(|increment| increment & STREAM_MASK)
}

/// Appends a frame.
pub(crate) fn write(stream: u32, increment: u32, out: &mut Vec<u8>) {
    debug_assert!(
        (1..=STREAM_MASK).contains(&increment),
        "an increment is positive"
    );
    FrameHeader {
        len: 4,
        kind: FrameType::WINDOW_UPDATE,
        flags: 0,
        stream,
    }
    .write(out);
    out.extend_from_slice(&increment.to_be_bytes());
}
