//! Replays the fuzzer's TLS seeds, and random inputs, in every test run.

mod tls_fuzz_checks;
mod tls_support;

use gannet_testkit::replay_seeds;
use tls_support::{Abilities, Authority, Random, connect, from_client};

#[test]
fn records() {
    replay_seeds("tls_record", tls_fuzz_checks::record);
    let mut random = Random(0x0123_4567_89ab_cdef);
    for _ in 0..3000 {
        let len = random.below(60) + 1;
        let mut bytes: Vec<_> = (0..len).map(|_| random.next() as u8).collect();
        if random.below(2) == 0 && len > 6 {
            // Resembles a record.
            bytes[1..6].copy_from_slice(&[23, 3, 3, 0, random.below(len) as u8]);
        }
        tls_fuzz_checks::record(&bytes);
    }
}

#[test]
fn handshakes() {
    replay_seeds("tls_handshake", tls_fuzz_checks::handshake);
    let authority = Authority::new();
    let config = authority.client(Abilities::default());
    let mut random = Random(0x4242_1111_9999_0001);
    for _ in 0..600 {
        let mut bytes = vec![random.next() as u8];
        bytes.extend(from_client(&mut connect(&config, "localhost")));
        for _ in 0..random.below(6) + 1 {
            let at = 1 + random.below(bytes.len() - 1);
            match random.below(3) {
                0 => bytes[at] = random.next() as u8,
                1 => bytes.truncate(at + 1),
                _ => bytes.insert(at, random.next() as u8),
            }
        }
        tls_fuzz_checks::handshake(&bytes);
    }
}
