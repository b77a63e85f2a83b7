//! The seeds of the fuzz targets, replayed: what once was found stays fixed.

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
