//! Field sections decode as by another implementation; HPACK blocks keep their meaning.
#![no_main]

#[path = "../../crates/gannet-http/tests/h3_checks/mod.rs"]
mod h3_checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| h3_checks::qpack(bytes));
