//! The listing as JSON (RFC 8259).

use gannet_http::semantics::decimal::write_decimal;
use gannet_http::semantics::target_path::encode_path;

use super::{Entry, rfc3339};
use crate::limits::LISTING_BYTES_MAX;

/// One object per line, so that simple tools can process a listing too.
pub(super) fn render(entries: &[Entry]) -> Vec<u8> {
    let mut out = Vec::with_capacity((entries.len() * 96 + 8).min(LISTING_BYTES_MAX));
    out.push(b'[');
    for (index, entry) in entries.iter().enumerate() {
        if out.len() >= LISTING_BYTES_MAX - ROOM_AT_END {
            break;
        }
        out.extend_from_slice(if index == 0 { b"\n" } else { b",\n" });
        object(entry, &mut out);
    }
    out.extend_from_slice(b"\n]\n");
    out
}

fn object(entry: &Entry, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"name\":");
    let name = String::from_utf8_lossy(&entry.name);
    string(&name, out);
    if name.as_bytes() != entry.name {
        let mut href = b".".to_vec();
        encode_path(&entry.name, &mut href);
        out.extend_from_slice(b",\"href\":");
        string(&String::from_utf8_lossy(&href), out);
    }
    if entry.is_directory {
        out.extend_from_slice(b",\"type\":\"directory\"");
    } else {
        out.extend_from_slice(b",\"type\":\"file\",\"size\":");
        write_decimal(entry.len, out);
    }
    if let Some(time) = entry.modified.and_then(rfc3339) {
        out.extend_from_slice(b",\"mtime\":\"");
        out.extend_from_slice(&time);
        out.push(b'"');
    }
    out.push(b'}');
}

fn string(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            0..0x20 | 0x7f => {
                let digit = |nibble: u8| b"0123456789abcdef"[usize::from(nibble)];
                out.extend_from_slice(b"\\u00");
                out.extend_from_slice(&[digit(byte >> 4), digit(byte & 15)]);
            }
            _ => out.push(byte),
        }
    }
    out.push(b'"');
}

/// Room for an object with the longest name and for the end, in bytes.
const ROOM_AT_END: usize = 8 << 10;
