//! Pointers to try, and what must hold for any text: shared with the fuzz target.

use gannet_archive::signature::PublicKey;
use gannet_store::limits::POINTER_LEN_MAX;
use gannet_store::{Pointer, split_signature};

/// Whatever is read as a pointer has exactly the text that it is written as, and does not get in
/// force without a signature where one is required.
#[allow(dead_code, reason = "each user has its own")]
pub(crate) fn read(bytes: &[u8]) {
    let key = PublicKey::parse(KEY).expect("it is a key");
    let Ok(pointer) = Pointer::parse(bytes) else {
        return;
    };
    assert!(bytes.len() <= POINTER_LEN_MAX);
    let text = str::from_utf8(bytes).expect("a pointer is text");
    let (signed, _) = split_signature(text);
    assert_eq!(pointer.to_text(), signed);
    let activation = pointer.activation("node");
    assert!(activation <= pointer.settled());
    assert!(pointer.is_expired(u64::MAX) == pointer.expires.is_some());
    // Nobody has the secret key of this one.
    assert!(Pointer::verify(bytes, &key).is_err());
}

const KEY: &str = "RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3";

/// A pointer that has every key.
#[allow(dead_code, reason = "each user has its own")]
pub(crate) const FULL: &str = "gannet pointer 1
serial 12
replaces 11
release 3f0a9c21d4e84b7796e1c02d5a86f913
size 81920
blake3 8d1f2c0b6a5e49378071f2e3d4c5b6a798897a6b5c4d3e2f1a0b9c8d7e6f5a4b
published 2026-11-23T08:30:00Z by ann@build
activate 2026-11-23T08:30:30Z
stages 5% +0s, 50% +10m, 100% +30m
keep 7d 3..20 10GiB
void 00ff10203040506070809a0b0c0d0e0f ffff10203040506070809a0b0c0d0e0f
note new front page
expires 2026-12-23T08:30:00Z
";
