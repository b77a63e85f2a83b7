//! A client's first flight of TLS: anything may be sent, nothing panics.
#![no_main]

#[path = "../../crates/gannet-server/tests/tls_fuzz_checks/mod.rs"]
#[expect(dead_code, reason = "each target uses its own check")]
mod tls_fuzz_checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tls_fuzz_checks::handshake(bytes));
