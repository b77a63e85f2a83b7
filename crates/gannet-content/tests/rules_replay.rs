//! Replays the seeds of the fuzz targets for rules files, so that past findings stay fixed.

mod rules_fuzz_checks;

use gannet_testkit::replay_seeds;

#[test]
fn redirects_files() {
    replay_seeds("redirects_file", rules_fuzz_checks::redirects_file);
}

#[test]
fn headers_files() {
    replay_seeds("headers_file", rules_fuzz_checks::headers_file);
}
