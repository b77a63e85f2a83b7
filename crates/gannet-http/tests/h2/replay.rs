//! Replays the seeds of the fuzz targets, so that past findings stay fixed.

use std::fs;
use std::path::Path;

use super::h2_checks;

fn replay(target: &str, check: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/seeds")
        .join(target);
    let entries = fs::read_dir(&folder).expect("the seeds of the target");
    let mut count = 0;
    for entry in entries {
        check(&fs::read(entry.expect("an entry").path()).expect("a readable input"));
        count += 1;
    }
    assert!(count > 0, "{} has inputs", folder.display());
}

#[test]
fn frames() {
    replay("h2_frames", h2_checks::h2_frames);
}

#[test]
fn field_blocks() {
    replay("hpack", h2_checks::hpack);
}

#[test]
fn operations() {
    replay("h2_operations", h2_checks::h2_operations);
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
