//! PING (RFC 9113 section 6.7): eight opaque bytes, to be sent back.

use super::{FrameHeader, FrameType, flags};
use crate::h2::error::Why;

/// Bytes of a payload.
pub(crate) const PAYLOAD_LEN: usize = 8;

/// Reads a payload.
///
/// # Errors
/// [`Why::FrameLength`] unless it is 8 bytes long.
pub(crate) fn parse(payload: &[u8]) -> Result<[u8; PAYLOAD_LEN], Why> {
    payload.try_into().map_err(|_| Why::FrameLength)
}

/// Appends a frame.
pub(crate) fn write(opaque: &[u8; PAYLOAD_LEN], is_ack: bool, out: &mut Vec<u8>) {
    FrameHeader {
        len: PAYLOAD_LEN as u32,
        kind: FrameType::PING,
        flags: if is_ack { flags::ACK } else { 0 },
        stream: 0,
    }
    .write(out);
    out.extend_from_slice(opaque);
}
