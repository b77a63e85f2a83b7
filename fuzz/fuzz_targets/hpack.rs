//! Field blocks decode as another implementation decodes them.
#![no_main]

#[path = "../../crates/gannet-http/tests/h2_checks/mod.rs"]
#[expect(unused_imports, reason = "each target uses its own check")]
mod h2_checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| h2_checks::hpack(bytes));
