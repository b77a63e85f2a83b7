//! PRIORITY (RFC 9113 section 6.3): deprecated; its form is checked and its meaning ignored.

use super::{STREAM_MASK, parse_u32};
use crate::h2::error::Why;

/// Bytes of the priority fields: dependency and weight.
pub(crate) const PAYLOAD_LEN: usize = 5;

/// The stream on which the priority fields declare a dependency.
///
/// # Errors
/// [`Why::FrameLength`] for fields of another length than [`PAYLOAD_LEN`].
pub(crate) fn depends_on(fields: &[u8]) -> Result<u32, Why> {
    match fields {
        [dependency @ .., _weight] if fields.len() == PAYLOAD_LEN => {
            Ok(parse_u32(dependency)? & STREAM_MASK)
        }
        _ => Err(Why::FrameLength),
    }
}
