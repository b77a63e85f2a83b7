//! Any `_redirects` file is read, and its rules answer without harm; so does any table.
#![no_main]

#[path = "../../crates/gannet-content/tests/rules_fuzz_checks/mod.rs"]
mod rules_fuzz_checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rules_fuzz_checks::redirects_file(bytes));
