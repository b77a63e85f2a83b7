//! The HTTP/1 machine: the same events and output in any division of any bytes.
#![no_main]

#[path = "../../crates/gannet-http/tests/fuzz_checks/mod.rs"]
mod fuzz_checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz_checks::request_head(bytes));
