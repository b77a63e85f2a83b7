//! GOAWAY (RFC 9113 section 6.8): the end of the connection, and the last stream served.

use super::{FrameHeader, FrameType, STREAM_MASK};
use crate::h2::error::{ErrorCode, Why};

/// Bytes before the debug data.
const PAYLOAD_LEN: usize = 8;

/// Reads the error code of a payload.
///
/// # Errors
/// [`Why::FrameLength`] if it is shorter than 8 bytes.
pub(crate) fn parse(payload: &[u8]) -> Result<ErrorCode, Why> {
    match payload {
        &[_, _, _, _, a, b, c, d, ..] => Ok(ErrorCode(u32::from_be_bytes([a, b, c, d]))),
        _ => Err(Why::FrameLength),
    }
}

/// Appends a frame without debug data.
pub(crate) fn write(last_stream: u32, code: ErrorCode, out: &mut Vec<u8>) {
    FrameHeader {
        len: PAYLOAD_LEN as u32,
        kind: FrameType::GOAWAY,
        flags: 0,
        stream: 0,
    }
    .write(out);
    out.extend_from_slice(&(last_stream & STREAM_MASK).to_be_bytes());
    out.extend_from_slice(&code.0.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_comes_back() {
        let mut out = Vec::new();
        write(7, ErrorCode::ENHANCE_YOUR_CALM, &mut out);
        assert_eq!(out.len(), 17);
        out.extend_from_slice(b"debug data");
        assert_eq!(parse(&out[9..]), Ok(ErrorCode::ENHANCE_YOUR_CALM));
        assert_eq!(parse(&out[9..16]), Err(Why::FrameLength));
    }
}
