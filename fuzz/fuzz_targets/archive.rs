//! Whatever opens as an archive can be read without a panic, and every entry is found.
//!
//! Checksums are made right first: otherwise the fuzzer would only ever meet them.
#![no_main]

#[path = "../../crates/gannet-archive/tests/sample/mod.rs"]
mod sample;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut file = bytes.to_vec();
    sample::reseal(&mut file);
    if let Ok(archive) = sample::open(&file) {
        sample::read_all(&archive);
    }
});
