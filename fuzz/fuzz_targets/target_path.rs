//! Decoded paths are canonical and come back from their encoded form.
#![no_main]

#[path = "../../crates/gannet-http/tests/fuzz_checks/mod.rs"]
mod fuzz_checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz_checks::target_path(bytes));
