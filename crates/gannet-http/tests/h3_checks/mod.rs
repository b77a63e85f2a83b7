//! What must hold of HTTP/3 for any bytes at all: one function per fuzz target.
//!
//! The targets in `fuzz/` call these, and so does the replay of their seeds in plain tests.

pub(crate) mod peer;

use gannet_http::h2::hpack;
use gannet_http::h3::qpack::{decode_each, encoder, transcode};
use gannet_testkit::h3::qpack as oracle;

use peer::{Given, Peer};

pub(crate) type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// The same streams whole, byte by byte and in pieces lead to the same events and answers.
///
/// The bytes say what comes: a number for the stream, one for what happens to it, a length, and so
/// many bytes of it.
#[allow(dead_code, reason = "each target needs one")]
pub(crate) fn h3_streams(bytes: &[u8]) {
    let script = script(bytes);
    let whole = record_in_pieces(&script, usize::MAX);
    let piece_len = 2 + bytes.len() % 61;
    for len in [1, piece_len] {
        assert_eq!(record_in_pieces(&script, len), whole, "in pieces of {len}");
    }
}

/// Reads what comes.
fn script(bytes: &[u8]) -> Vec<Given> {
    let mut script = Vec::new();
    let mut rest = bytes;
    while let [number, what, len, after @ ..] = rest {
        let (bytes, after) = after.split_at(after.len().min(usize::from(*len)));
        rest = after;
        // A few streams that the client opens, of both kinds.
        let stream = 2 * (u64::from(number & 0x3e) + u64::from(number & 1));
        script.push(match what % 8 {
            0..=4 => Given::bytes(stream, bytes),
            5 | 6 => Given::end(stream, bytes),
            _ => Given::Reset(stream),
        });
    }
    script
}

/// What a connection does that gets the bytes of streams in pieces of this length.
pub(crate) fn record_in_pieces(script: &[Given], piece_len: usize) -> Vec<String> {
    let mut peer = Peer::new();
    for given in script {
        match given {
            Given::Bytes(stream, bytes, is_fin) => {
                let mut pieces = bytes.chunks(piece_len.min(bytes.len().max(1))).peekable();
                while let Some(piece) = pieces.next() {
                    let is_last = pieces.peek().is_none();
                    // Its end comes with the last piece, or behind it.
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

/// A section decodes as another decoder does it, and what it decodes to comes back from our encoder;
/// a block of HPACK keeps its meaning.
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
        // What is only too large is read by others.
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
        // Strings are not looked into on the way.
        Err(_) => assert!(
            found.is_none_or(|found| found.len() > pairs.len()),
            "{block:x?}"
        ),
    }
}
