//! Replays the seeds of the fuzz targets, so that past findings stay fixed.

use gannet_testkit::replay_seeds;

use super::fuzz_checks;

#[test]
fn request_heads() {
    replay_seeds("request_head", fuzz_checks::request_head);
}

#[test]
fn ranges() {
    replay_seeds("range", fuzz_checks::range);
}

#[test]
fn dates() {
    replay_seeds("date", fuzz_checks::date);
}

#[test]
fn target_paths() {
    replay_seeds("target_path", fuzz_checks::target_path);
}

#[test]
fn pipelines() {
    replay_seeds("pipeline", fuzz_checks::pipeline);
}

#[test]
fn proxy_protocol() {
    replay_seeds("proxy_protocol", fuzz_checks::proxy_protocol);
}
