//! Replays the seeds of the fuzz targets, so that defects once found stay fixed.

use gannet_testkit::replay_seeds;

use super::h3_checks;

#[test]
fn streams() {
    replay_seeds("h3_streams", h3_checks::h3_streams);
}

#[test]
fn field_sections() {
    replay_seeds("qpack", h3_checks::qpack);
}
