//! The HTTP/3 state machine: the same events and responses however the bytes of streams are split.
#![no_main]

#[path = "../../crates/gannet-http/tests/h3_checks/mod.rs"]
mod h3_checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| h3_checks::h3_streams(bytes));
