//! The machine against a model that reads the same bytes independently.

use super::fuzz_checks::pipeline;

#[test]
fn pipelines_are_read_as_the_model_reads_them() {
    for seed in 0..3_000u64 {
        pipeline(&seed.to_le_bytes());
    }
}
