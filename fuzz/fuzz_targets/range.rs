//! Ranges lie in the representation and do not overlap.
#![no_main]

#[path = "../../crates/gannet-http/tests/fuzz_checks/mod.rs"]
mod fuzz_checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz_checks::range(bytes));
