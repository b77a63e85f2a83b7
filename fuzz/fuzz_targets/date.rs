//! A date that is read is the one that is written for it.
#![no_main]

#[path = "../../crates/gannet-http/tests/fuzz_checks/mod.rs"]
mod fuzz_checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz_checks::date(bytes));
