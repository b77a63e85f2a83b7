//! Coded bytes come to as many bytes as were announced, or to none.
#![no_main]

use gannet_archive::limits::DECODED_LEN_MAX;
use gannet_archive::{Coding, decode, decode_brotli};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let [len_low, len_high, coded @ ..] = bytes else {
        return;
    };
    let len = u64::from(u16::from_le_bytes([*len_low, *len_high]));
    for coding in [Coding::Gzip, Coding::Brotli] {
        if let Ok(content) = decode(coding, coded, len) {
            assert_eq!(content.len() as u64, len);
        }
    }
    if let Ok(content) = decode_brotli(coded) {
        assert!(content.len() as u64 <= DECODED_LEN_MAX);
        let again = decode(Coding::Brotli, coded, content.len() as u64);
        assert_eq!(again.as_deref(), Ok(content.as_slice()));
    }
});
