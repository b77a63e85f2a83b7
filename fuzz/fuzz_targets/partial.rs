//! Whatever a partial release and its presence say, blobs alone are changed.
#![no_main]

#[path = "../../crates/gannet-store/tests/sample/partial.rs"]
mod sample;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sample::change(bytes));
