//! Pipelines of requests with content that looks like requests, against a model of HTTP/1.
#![no_main]

#[path = "../../crates/gannet-http/tests/fuzz_checks/mod.rs"]
mod fuzz_checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz_checks::pipeline(bytes));
