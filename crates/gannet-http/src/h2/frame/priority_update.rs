//! PRIORITY_UPDATE (RFC 9218 section 7.1): a new priority for a stream, in a frame of stream 0.

use super::{STREAM_MASK, parse_u32};
use crate::h2::error::Why;

/// The stream that is prioritized, and its priority field value.
///
/// # Errors
/// [`Why::FrameLength`] if it is shorter than a stream identifier.
pub(crate) fn parse(payload: &[u8]) -> Result<(u32, &[u8]), Why> {
    let (stream, value) = payload.split_at_checked(4).ok_or(Why::FrameLength)?;
    Ok((parse_u32(stream)? & STREAM_MASK, value))
}
