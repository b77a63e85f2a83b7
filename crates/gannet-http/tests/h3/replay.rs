//! Replays the seeds of the fuzz targets, so that defects once found stay fixed.

use std::fs;
use std::path::Path;

use super::h3_checks;

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
fn streams() {
    replay("h3_streams", h3_checks::h3_streams);
}

#[test]
fn field_sections() {
    replay("qpack", h3_checks::qpack);
}
