//! Properties of HTTP/3 that must hold for any bytes: one function per fuzz target.
//!
//! The targets in `fuzz/` call these, and so does the replay of their seeds in plain tests.

pub(crate) mod peer;

use gannet_http::h2::hpack;
use gannet_http::h3::qpack::{decode_each, encoder, transcode};
use gannet_testkit::h3::qpack as oracle;

use peer::{Given, Peer};

pub(crate) type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// The same streams as a whole, byte by byte and in pieces produce the same events and responses.
///
/// The bytes are a script: a number for the stream, one for the action, a length, and this many
/// bytes for the stream.
#[allow(dead_code, reason = "each target needs one")]
pub(crate) fn h3_streams(bytes: &[u8]) {
    let script = script(bytes);
    let whole = record_in_pieces(&script, usize::MAX);
    let piece_len = 2 + bytes.len() % 61;
    for len in [1, piece_len] {
        assert_eq!(record_in_pieces(&script, len), whole, "in pieces of {len}");
    }
}

/// Parses the script.
fn script(bytes: &[u8]) -> Vec<Given> {
    let mut script = Vec::new();
    let mut rest = bytes;
    while let [number, what, len, after @ ..] = rest {
        let (bytes, after) = after.split_at(after.len().min(usize::from(*len)));
        rest = after;
        // A few client-opened streams of both kinds.
        let stream = 2 * (u64::from(number & 0x3e) + u64::from(number & 1));
        script.push(match what % 8 {
            0..=4 => Given::bytes(stream, bytes),
            5 | 6 => Given::end(stream, bytes),
            _ => Given::Reset(stream),
        });
    }
    script
}

/// The record of a connection that receives the bytes of its streams in pieces of this length.
pub(crate) fn record_in_pieces(script: &[Given], piece_len: usize) -> Vec<String> {
    let mut peer = Peer::new();
    for given in script {
        match given {
            Given::Bytes(stream, bytes, is_fin) => {
                let mut pieces = bytes.chunks(piece_len.min(bytes.len().max(1))).peekable();
                while let Some(piece) = pieces.next() {
                    let is_last = pieces.peek().is_none();
                    // The end arrives with the last piece or after it.
                    let is_fin = *is_fin && is_last && piece_len > 1;
                    peer.give(&Given::Bytes(*stream, piece.to_vec(), is_fin));
                }
                if *is_fin && (piece_len == 1 || bytes.is_empty()) {
                    peer.give(&Given::end(*stream, b""));
                }
            }
            other => peer.give(other),
        }
    }
    peer.record
}

/// A section decodes as by another decoder; the fields survive our encoder; an HPACK block keeps
/// its meaning.
#[allow(dead_code, reason = "each target needs one")]
pub(crate) fn qpack(bytes: &[u8]) {
    decodes_alike(&[&[0, 0], bytes].concat());
    decodes_alike(bytes);
    transcodes(bytes);
}

fn decodes_alike(section: &[u8]) {
    let mut pairs = Pairs::new();
    let result = decode_each(section, |name, value| {
        pairs.push((name.to_vec(), value.to_vec()));
    });
    let expect = oracle::decode(section);
    match (result, expect) {
        (Ok(()), expect) => assert_eq!(Some(&pairs), expect.as_ref(), "{section:x?}"),
        (Err(_), None) => return,
        // Other decoders accept a section that is only too large.
        (Err(error), Some(_)) => {
            use gannet_http::binary::CodingError::{Integer, TooLarge};
            assert!(
                matches!(error, Integer | TooLarge),
                "{error:?} {section:x?}"
            );
            return;
        }
    }
    let mut again = vec![0, 0];
    let mut expect = Pairs::new();
    for (name, value) in pairs {
        if let Ok(text) = std::str::from_utf8(&name) {
            encoder::write_field(text, &value, &mut again);
            expect.push((name, value));
        }
    }
    assert_eq!(oracle::decode(&again), Some(expect), "{section:x?}");
}

/// From HPACK to QPACK.
pub(crate) fn transcodes(block: &[u8]) {
    let mut section = vec![0, 0];
    if transcode(block, &mut section).is_none() {
        return;
    }
    let mut pairs = Pairs::new();
    let result = hpack::Decoder::new().decode_each(block, |name, value| {
        pairs.push((name.to_vec(), value.to_vec()));
    });
    let found = oracle::decode(&section);
    match result {
        Ok(()) => assert_eq!(found, Some(pairs), "{block:x?}"),
        // The conversion does not check strings.
        Err(_) => assert!(
            found.is_none_or(|found| found.len() > pairs.len()),
            "{block:x?}"
        ),
    }
}
