//! CONTINUATION (RFC 9113 section 6.10): the next fragment of a field block is the whole payload.

use super::{FrameHeader, FrameType};

/// The header of a frame with `len` bytes of field block.
pub(crate) fn header(stream: u32, len: u32, frame_flags: u8) -> FrameHeader {
    FrameHeader {
        len,
        kind: FrameType::CONTINUATION,
        flags: frame_flags,
        stream,
    }
}
