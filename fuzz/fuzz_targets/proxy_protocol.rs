//! Headers of the PROXY protocol mean the same however they arrive.
#![no_main]

#[path = "../../crates/gannet-http/tests/fuzz_checks/mod.rs"]
mod fuzz_checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz_checks::proxy_protocol(bytes));
