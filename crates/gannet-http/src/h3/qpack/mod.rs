//! QPACK, field compression for HTTP/3 (RFC 9204), without a dynamic table on either side.
//!
//! Received field sections that refer to one are errors, because we announce a capacity of 0. Ours
//! refer to the static table alone, so we need no encoder stream.

mod decoder;
pub mod encoder;
mod static_table;
mod transcode;

use crate::semantics::date::DATE_LINE_LEN;
use crate::semantics::response::{ReadyBlock, ReadyPart, ResponseHead};

use super::frame::FrameType;

pub(crate) use decoder::decode;
pub use decoder::decode_each;
pub use transcode::transcode;

/// Appends the HEADERS frame of a response.
#[inline]
pub(crate) fn write_head(
    head: &ResponseHead<'_>,
    date_line: &[u8; DATE_LINE_LEN],
    wire: &mut Vec<u8>,
) {
    wire.reserve(PLAIN_HEAD_LEN);
    let start = wire.len();
    wire.extend_from_slice(&[FrameType::HEADERS.0 as u8, 0, 0]);
    let section_start = wire.len();
    // Required Insert Count and Base (RFC 9204 section 4.5.1).
    wire.extend_from_slice(&[0, 0]);
    write_fields(head, date_line, wire);
    let len = wire.len() - section_start;
    if len < 0x4000 {
        // Always two bytes, even for a short length, so that nothing has to be moved.
        let len = (len as u16 | 0x4000).to_be_bytes();
        wire[start + 1..section_start].copy_from_slice(&len);
    } else {
        let len = (len as u32 | 0x8000_0000).to_be_bytes();
        wire.splice(start + 1..section_start, len);
    }
}

/// Appends the fields of a response.
#[inline]
fn write_fields(head: &ResponseHead<'_>, date_line: &[u8; DATE_LINE_LEN], out: &mut Vec<u8>) {
    encoder::write_status(head.status, out);
    encoder::write_date(date_line, out);
    if let Some((block, part)) = head.ready {
        debug_assert!(
            part != ReadyPart::Whole || head.content_length.is_none(),
            "the length is given once"
        );
        write_ready(block, part, out);
    }
    if let Some(len) = head.content_length
        && !head.status.is_without_content()
    {
        encoder::write_content_length(len, out);
    }
    for (name, value) in head.fields {
        debug_assert!(
            !value.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)),
            "values of fields are checked where they are made"
        );
        encoder::write_field(name, value, out);
    }
}

/// Appends a part of a ready block: from its HPACK form if it has one.
#[inline]
fn write_ready(block: ReadyBlock<'_>, part: ReadyPart, out: &mut Vec<u8>) {
    let start = out.len();
    if let Some(hpack) = block.hpack {
        let mut pieces = hpack.part(part).into_iter();
        if pieces.all(|piece| transcode(piece, out).is_some()) {
            return;
        }
        debug_assert!(false, "ready blocks are stateless");
        out.truncate(start);
    }
    for piece in block.h1.part(part) {
        let written = encoder::write_lines(piece, out);
        debug_assert!(written.is_some(), "ready blocks are lines");
    }
}

/// Room for the HEADERS frame of a typical response and the header of a DATA frame, in bytes.
const PLAIN_HEAD_LEN: usize = 256;
