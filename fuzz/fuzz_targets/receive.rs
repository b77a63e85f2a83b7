//! What a publisher sends to a receiver: nothing but the whole release that a pointer names comes into force.
#![no_main]

#[path = "../../crates/gannet-fleet/tests/fleet/receive_checks.rs"]
mod receive_checks;
#[path = "../../crates/gannet-fleet/tests/fleet/stores.rs"]
#[expect(dead_code, reason = "the tests use all of it")]
mod stores;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    receive_checks::conversation(bytes);
});
