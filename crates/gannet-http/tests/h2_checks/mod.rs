//! Properties of HTTP/2 that must hold for any bytes: one function per fuzz target.
//!
//! The targets in `fuzz/` call these, and so does the replay of their seeds in plain tests.

pub(crate) mod client;
#[allow(dead_code, reason = "no target needs all of it")]
pub(crate) mod held;
pub(crate) mod peer;
#[allow(dead_code, reason = "no target needs all of it")]
pub(crate) mod wire;

use gannet_http::h2::hpack::Decoder;
use gannet_http::h2::hpack::encoder::write_field;
use gannet_http::h2::limits::MEMORY_MAX;

use client::Client;
use held::Held;
use peer::Peer;

/// The same frames, whole, one by one and in pieces, lead to the same events and output. The bytes
/// follow a preface and empty SETTINGS.
#[allow(dead_code)]
pub(crate) fn h2_frames(bytes: &[u8]) {
    let input = [&wire::opening(&[])[..], bytes].concat();
    let whole = record_in_pieces(&input, usize::MAX);
    let piece_len = 2 + bytes.len() % 61;
    for len in [1, piece_len] {
        assert_eq!(record_in_pieces(&input, len), whole, "in pieces of {len}");
    }
}

/// The record of a machine that gets the bytes in pieces of this length, and sends at the end.
pub(crate) fn record_in_pieces(bytes: &[u8], piece_len: usize) -> String {
    let mut peer = Peer::new();
    let mut held = Held::default();
    for piece in bytes.chunks(piece_len.min(bytes.len().max(1))) {
        peer.feed(piece);
        held.sent(piece);
        let (has, most) = (peer.connection.memory(), held.most());
        assert!(has <= most, "{has} bytes are held, of at most {most}");
    }
    peer.poll();
    assert!(peer.connection.memory() <= MEMORY_MAX, "bounded");
    peer.record
}

/// A block decodes as another decoder decodes it, and the result survives our encoder.
#[allow(dead_code)]
pub(crate) fn hpack(bytes: &[u8]) {
    let mut decoder = Decoder::new();
    let mut oracle = gannet_testkit::h2::hpack::Decoder::new();
    // Two blocks, so that the second meets a non-empty table.
    let (first, second) = bytes.split_at(bytes.len() / 2);
    for block in [first, second] {
        let mut pairs = Vec::new();
        let result = decoder.decode_each(block, |name, value| {
            pairs.push((name.to_vec(), value.to_vec()));
        });
        // The other decoder rejects a block of nothing but size updates.
        if result.is_err() || (pairs.is_empty() && !block.is_empty()) {
            return;
        }
        assert_eq!(oracle.decode(block).as_ref(), Ok(&pairs), "{block:x?}");
        for (name, value) in &pairs {
            let Ok(name) = std::str::from_utf8(name) else {
                continue;
            };
            let mut again = Vec::new();
            write_field(name, value, &mut again);
            let mut found = None;
            Decoder::new()
                .decode_each(&again, |name, value| {
                    found = Some((name.to_vec(), value.to_vec()));
                })
                .expect("a block of ours");
            assert_eq!(found, Some((name.as_bytes().to_vec(), value.clone())));
        }
    }
}

/// A client that obeys the protocol, directed by the bytes, gets every content exactly once.
#[allow(dead_code)]
pub(crate) fn h2_operations(bytes: &[u8]) {
    Client::run(bytes);
}
