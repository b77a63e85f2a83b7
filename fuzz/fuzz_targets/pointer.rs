//! Any text is read as a pointer, or refused; a pointer has one text.
#![no_main]

#[path = "../../crates/gannet-store/tests/sample/mod.rs"]
mod sample;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sample::read(bytes));
