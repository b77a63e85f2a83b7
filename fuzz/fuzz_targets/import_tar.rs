//! Whatever is taken for a tar is read or refused, without a panic.
#![no_main]

#[path = "import/sink.rs"]
mod sink;

use gannet_archive::Coding;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    sink::import(bytes, gannet_site::import::Kind::Tar(Coding::Identity));
});
