//! Replays the seeds of the fuzz targets, so that past findings stay fixed.

use gannet_testkit::replay_seeds;

use super::h2_checks;

#[test]
fn frames() {
    replay_seeds("h2_frames", h2_checks::h2_frames);
}

#[test]
fn field_blocks() {
    replay_seeds("hpack", h2_checks::hpack);
}

#[test]
fn operations() {
    replay_seeds("h2_operations", h2_checks::h2_operations);
}

/// The input that makes a connection hold the most: as many streams as allowed, pings and
/// priorities that wait, and a field block that never ends.
#[test]
fn what_is_held_is_in_proportion_to_what_was_sent() {
    use super::h2_checks::wire::{frame, get, request};
    let streams = (0..200).map(|number| request(1 + 2 * number, "/hold/70000"));
    let streams: Vec<u8> = streams.flatten().collect();
    let pings = frame(6, 0, 0, &[7; 8]).repeat(100);
    let priorities: Vec<u8> = (0..100u32)
        .flat_map(|number| {
            frame(
                0x10,
                0,
                0,
                &[&(901 + 2 * number).to_be_bytes()[..], b"u=1"].concat(),
            )
        })
        .collect();
    let block = [get("/"), vec![0; 10_000]].concat();
    let block = [
        frame(1, 1, 999, &block),
        frame(9, 0, 999, &vec![0; 9_000]),
        frame(9, 0, 999, &vec![0; 9_000]),
    ]
    .concat();
    for bytes in [&streams, &pings, &priorities, &block] {
        h2_checks::h2_frames(bytes);
    }
}
