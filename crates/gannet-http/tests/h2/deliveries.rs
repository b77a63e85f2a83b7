//! Content arrives once, in order, within the windows: a client in memory with arbitrary
//! operations.

use proptest::prelude::*;

use super::h2_checks;
use super::h2_checks::client::Client;

/// A sequence of pseudo-random bytes (xorshift).
fn random_bytes(seed: u64, count: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..count).map(|_| next()).collect()
}

#[test]
fn many_streams_with_any_windows_resets_and_priorities() {
    let mut finished = 0;
    for seed in 0..60 {
        finished += Client::run(&random_bytes(seed, 3 * 600));
    }
    assert!(finished > 1_000, "completed streams: {finished}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_operations(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        h2_checks::h2_operations(&bytes);
    }

    #[test]
    fn any_bytes_in_any_pieces(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        h2_checks::h2_frames(&bytes);
    }

    /// Frames of every type, most of them nearly valid.
    #[test]
    fn any_frames_in_any_pieces(frames in proptest::collection::vec(any_frame(), 0..40)) {
        h2_checks::h2_frames(&frames.concat());
    }
}

fn any_frame() -> impl Strategy<Value = Vec<u8>> {
    use h2_checks::wire::{frame, get, request};
    let stream = prop_oneof![4 => (0u32..8).prop_map(|n| 2 * n + 1), 1 => 0u32..4];
    let payload = prop_oneof![
        Just(Vec::new()),
        proptest::collection::vec(any::<u8>(), 4..=5),
        proptest::collection::vec(any::<u8>(), 8),
        proptest::collection::vec(any::<u8>(), 0..40),
        Just(get("/hold/9")),
        Just(get("/70000")),
    ];
    let parts = (0u8..18, 0u8..64, stream, payload);
    let any = parts.prop_map(|(kind, flags, stream, payload)| frame(kind, flags, stream, &payload));
    let good = (0u32..100).prop_map(|n| request(2 * n + 1, "/3000"));
    prop_oneof![3 => any, 2 => good]
}
