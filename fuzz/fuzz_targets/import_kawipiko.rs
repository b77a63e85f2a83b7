//! Whatever is taken for an archive of kawipiko is read or refused, without a panic.
#![no_main]

#[path = "import/sink.rs"]
mod sink;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sink::import(
    bytes,
    gannet_site::import::Kind::Kawipiko
));
