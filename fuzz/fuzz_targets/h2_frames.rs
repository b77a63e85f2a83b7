//! The HTTP/2 machine: the same events and output in any division of any bytes.
#![no_main]

#[path = "../../crates/gannet-http/tests/h2_checks/mod.rs"]
#[expect(unused_imports, reason = "each target uses its own check")]
mod h2_checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| h2_checks::h2_frames(bytes));
