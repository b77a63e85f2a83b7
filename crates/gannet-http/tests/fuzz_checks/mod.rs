//! Properties that must hold for any bytes: one function per fuzz target.
//!
//! The targets in `fuzz/` call these, and so does the replay of their seeds in plain tests.

pub(crate) mod peer;
pub mod pipelines;

use gannet_http::proxy_protocol::{self, Malformed};
use gannet_http::semantics::date::{parse_date, write_date};
use gannet_http::semantics::range::{RangeRequest, parse_range};
use gannet_http::semantics::target_path::{decode_path, encode_path};

use peer::Peer;
use pipelines::{Dice, Seen, Then};

/// The same bytes, whole, one by one and in pieces, lead to the same events and output.
#[allow(dead_code)]
pub(crate) fn request_head(bytes: &[u8]) {
    let whole = record_in_pieces(bytes, usize::MAX);
    let piece_len = 2 + bytes.len() % 61;
    for len in [1, piece_len] {
        assert_eq!(record_in_pieces(bytes, len), whole, "in pieces of {len}");
    }
}

/// A generated pipeline, split anywhere, is read as the model reads it: the same requests, nothing
/// else, and the same end. The bytes are the seed; all after the first eight are appended.
#[allow(dead_code)]
pub(crate) fn pipeline(bytes: &[u8]) {
    let (seed, rest) = bytes.split_at(bytes.len().min(8));
    let seed = seed
        .iter()
        .fold(0, |seed, &byte| seed << 8 | u64::from(byte));
    let mut dice = Dice::new(seed);
    let mut targets = (0..20).map(|number| format!("/{number}")).collect();
    let mut stream = pipelines::write(&mut dice, &mut targets);
    if pipelines::read(&stream).1 == Then::Closed {
        // Anything after the last request is dropped.
        stream.extend_from_slice(rest);
    }
    let (seen, then) = pipelines::read(&stream);
    let mut peer = Peer::new();
    for piece in pipelines::cut(&mut dice, &stream) {
        peer.feed(&piece);
    }
    let lines: Vec<&str> = peer.record.lines().collect();
    let events = lines.iter().filter_map(|line| line.strip_prefix("! "));
    let events: Vec<&str> = events.filter(|event| !event.starts_with("close")).collect();
    assert_eq!(
        events.len(),
        seen.len(),
        "{events:?}: {}",
        stream.escape_ascii()
    );
    for (event, seen) in events.iter().zip(&seen) {
        let is_same = match seen {
            Seen::Request { method, target } => {
                let form = event.split(' ').nth(2).unwrap_or_default();
                *event.split(" host=").next().unwrap_or_default()
                    == format!("request {method} {form} {target}")
            }
            Seen::Refused { .. } => event.starts_with("reject "),
        };
        assert!(is_same, "{event}, not {seen:?}: {}", stream.escape_ascii());
    }
    let has_closed = peer.connection.is_closing();
    assert_eq!(
        has_closed,
        then == Then::Closed,
        "{}",
        stream.escape_ascii()
    );
}

/// The record of a machine that gets the bytes in pieces of this length.
pub(crate) fn record_in_pieces(bytes: &[u8], piece_len: usize) -> String {
    let mut peer = Peer::new();
    for piece in bytes.chunks(piece_len.min(bytes.len().max(1))) {
        peer.feed(piece);
    }
    peer.record
}

/// Ranges are within the representation, neither overlap nor touch, and mean the same when requested alone.
/// The first two bytes are the length of the representation.
#[allow(dead_code)]
pub(crate) fn range(bytes: &[u8]) {
    let Some((len, value)) = bytes.split_first_chunk() else {
        return;
    };
    let len = u64::from(u16::from_le_bytes(*len));
    let RangeRequest::Satisfiable(set) = parse_range(value, len) else {
        return;
    };
    let ranges = set.as_slice();
    assert!(!ranges.is_empty(), "satisfiable");
    for (index, range) in ranges.iter().enumerate() {
        assert!(
            range.start < range.end && range.end <= len,
            "{range:?} of {len}"
        );
        for other in &ranges[..index] {
            assert!(
                range.end < other.start || other.end < range.start,
                "{ranges:?}"
            );
        }
        let alone = format!("bytes={}-{}", range.start, range.end - 1);
        let RangeRequest::Satisfiable(again) = parse_range(alone.as_bytes(), len) else {
            panic!("{alone} was satisfiable");
        };
        assert_eq!(again.as_slice(), [*range]);
    }
}

/// A date that parses equals the one written for it.
#[allow(dead_code)]
pub(crate) fn date(bytes: &[u8]) {
    const NOW: i64 = 1_790_000_000;
    if let Some(moment) = parse_date(bytes, NOW) {
        let written = write_date(moment);
        // The leap second at the end of the last year that can be written has no successor.
        if written != *b"Fri, 31 Dec 9999 23:59:59 GMT" {
            assert_eq!(parse_date(&written, NOW), Some(moment));
        }
    }
}

/// A decoded path is canonical, and its encoded form decodes to it.
#[allow(dead_code)]
pub(crate) fn target_path(bytes: &[u8]) {
    let mut scratch = Vec::new();
    let Ok(path) = decode_path(bytes, &mut scratch) else {
        return;
    };
    let decoded = path.as_bytes();
    assert_eq!(decoded.first(), Some(&b'/'));
    assert!(!decoded.windows(2).any(|pair| pair == b"//"));
    assert!(
        !decoded
            .iter()
            .any(|&byte| byte.is_ascii_control() || byte == b'\\')
    );
    assert!(
        path.segments()
            .all(|segment| !matches!(segment, b"." | b".."))
    );

    let mut encoded = Vec::new();
    encode_path(decoded, &mut encoded);
    assert!(encoded.is_ascii() && !encoded.starts_with(b"//"));
    let mut scratch = Vec::new();
    assert_eq!(decode_path(&encoded, &mut scratch), Ok(path));
}

/// A header that parses does so as soon as its last byte is there, whatever comes behind it; what is
/// malformed stays so.
#[allow(dead_code)]
pub(crate) fn proxy_protocol(bytes: &[u8]) {
    let parse = |len: usize| proxy_protocol::parse(&bytes[..len]);
    let whole = parse(bytes.len());
    for len in 0..bytes.len() {
        match (parse(len), whole) {
            (Ok(None), _) | (Err(Malformed), Err(Malformed)) => {}
            (Ok(Some(found)), Ok(Some(expect))) => {
                assert_eq!(found, expect);
                assert!(len >= found.1);
            }
            (found, whole) => panic!("{found:?} after {len} bytes, then {whole:?}"),
        }
    }
    if let Ok(Some((_, len))) = whole {
        assert!(len <= proxy_protocol::limits::HEADER_LEN_MAX);
        assert_eq!(parse(len), whole);
    }
}
