//! Replays the seeds of the fuzz targets for rules files, so that past findings stay fixed.

mod rules_fuzz_checks;

use std::fs;
use std::path::Path;

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
fn redirects_files() {
    replay("redirects_file", rules_fuzz_checks::redirects_file);
}

#[test]
fn headers_files() {
    replay("headers_file", rules_fuzz_checks::headers_file);
}
