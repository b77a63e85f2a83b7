//! Replays the seeds of the fuzz targets, so that past findings stay fixed.

use std::fs;
use std::path::Path;

use super::fuzz_checks;

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
fn request_heads() {
    replay("request_head", fuzz_checks::request_head);
}

#[test]
fn ranges() {
    replay("range", fuzz_checks::range);
}

#[test]
fn dates() {
    replay("date", fuzz_checks::date);
}

#[test]
fn target_paths() {
    replay("target_path", fuzz_checks::target_path);
}

#[test]
fn pipelines() {
    replay("pipeline", fuzz_checks::pipeline);
}

#[test]
fn proxy_protocol() {
    replay("proxy_protocol", fuzz_checks::proxy_protocol);
}
