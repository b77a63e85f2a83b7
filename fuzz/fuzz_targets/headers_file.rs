//! Any `_headers` file is read, and its fields can be sent; so does any table.
#![no_main]

#[path = "../../crates/gannet-content/tests/rules_fuzz_checks/mod.rs"]
mod rules_fuzz_checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rules_fuzz_checks::headers_file(bytes));
