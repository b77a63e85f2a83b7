//! The keys of one direction of a connection, and encryption and decryption of a record with them.

use std::fmt;

use aws_lc_rs::aead::{
    AES_128_GCM, AES_256_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey,
};
use zeroize::Zeroize;

/// The negotiated version of the protocol.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum TlsVersion {
    /// RFC 5246, with AEAD suites only.
    Tls12,
    /// RFC 8446.
    Tls13,
}

impl fmt::Display for TlsVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tls12 => "TLSv1.2",
            Self::Tls13 => "TLSv1.3",
        })
    }
}

/// The AEAD of a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Cipher {
    /// AES-128-GCM.
    Aes128Gcm,
    /// AES-256-GCM.
    Aes256Gcm,
    /// ChaCha20-Poly1305.
    ChaCha20Poly1305,
}

impl Cipher {
    /// Length of a key in bytes.
    #[must_use]
    pub fn key_len(self) -> usize {
        match self {
            Self::Aes128Gcm => 16,
            Self::Aes256Gcm | Self::ChaCha20Poly1305 => 32,
        }
    }

    /// Whether TLS 1.2 records carry eight bytes of nonce (RFC 5288 section 3).
    pub(super) fn has_explicit_nonce(self, version: TlsVersion) -> bool {
        version == TlsVersion::Tls12 && self != Self::ChaCha20Poly1305
    }

    fn algorithm(self) -> &'static Algorithm {
        match self {
            Self::Aes128Gcm => &AES_128_GCM,
            Self::Aes256Gcm => &AES_256_GCM,
            Self::ChaCha20Poly1305 => &CHACHA20_POLY1305,
        }
    }
}

impl fmt::Display for Cipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Aes128Gcm => "AES-128-GCM",
            Self::Aes256Gcm => "AES-256-GCM",
            Self::ChaCha20Poly1305 => "ChaCha20-Poly1305",
        })
    }
}

/// Key, initialisation vector and next sequence number of one direction. Wiped when dropped.
pub struct Secrets {
    /// Their AEAD.
    pub cipher: Cipher,
    /// The key, in the first [`Cipher::key_len`] bytes.
    pub key: [u8; 32],
    /// The initialisation vector. TLS 1.2 with AES-GCM: four bytes of salt, then the start of the
    /// explicit nonces (encryption only).
    pub iv: [u8; 12],
    /// The sequence number of the next record.
    pub sequence: u64,
}

impl Secrets {
    /// The bytes of the key.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        &self.key[..self.cipher.key_len()]
    }
}

impl Drop for Secrets {
    fn drop(&mut self) {
        self.key.zeroize();
        self.iv.zeroize();
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secrets({}, sequence {})", self.cipher, self.sequence)
    }
}

/// A record was encrypted with another key, or altered in transit.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct NotAuthentic;

/// A key ready for use, with its nonce construction.
pub(super) struct RecordKey {
    key: LessSafeKey,
    iv: [u8; 12],
}

impl RecordKey {
    pub(super) fn new(secrets: &Secrets) -> Self {
        let unbound = UnboundKey::new(secrets.cipher.algorithm(), secrets.key())
            .expect("the key has the length that its algorithm requires");
        Self {
            key: LessSafeKey::new(unbound),
            iv: secrets.iv,
        }
    }

    /// RFC 8446 section 5.3, RFC 7905 section 2: the vector XORed with the sequence number. For TLS
    /// 1.2 with AES-GCM the same construction gives nonces that never repeat (RFC 5288 leaves the
    /// choice open).
    pub(super) fn nonce(&self, sequence: u64) -> [u8; 12] {
        let mut nonce = self.iv;
        for (byte, over) in nonce[4..].iter_mut().zip(sequence.to_be_bytes()) {
            *byte ^= over;
        }
        nonce
    }

    /// RFC 5288 section 3: the salt and the nonce in the record.
    pub(super) fn explicit_nonce(&self, explicit: [u8; 8]) -> [u8; 12] {
        let mut nonce = self.iv;
        nonce[4..].copy_from_slice(&explicit);
        nonce
    }

    /// Encrypts in place. `encrypted` is the plaintext followed by room for the tag.
    pub(super) fn encrypt(&self, nonce: [u8; 12], additional: &[u8], encrypted: &mut [u8]) {
        let (content, tag_to) =
            encrypted.split_at_mut(encrypted.len() - crate::bounds::tls::TAG_LEN);
        let tag = self
            .key
            .seal_in_place_separate_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(additional),
                content,
            )
            .expect("a record is far shorter than the AEAD's limit");
        tag_to.copy_from_slice(tag.as_ref());
    }

    /// Encrypts `plain` into `encrypted` without copying it first, followed by `extra`; `encrypted`
    /// has room for both and the tag.
    pub(super) fn encrypt_from(
        &self,
        nonce: [u8; 12],
        additional: &[u8],
        plain: &[u8],
        extra: &[u8],
        encrypted: &mut [u8],
    ) {
        let (content, rest) = encrypted.split_at_mut(plain.len());
        self.key
            .seal_out_of_place_scatter(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(additional),
                plain,
                content,
                extra,
                rest,
            )
            .expect("a record is far shorter than the AEAD's limit, and the room is exact");
    }

    /// Decrypts `encrypted` (with its tag) into `plain`, which is as long as the content.
    pub(super) fn open(
        &self,
        nonce: [u8; 12],
        additional: &[u8],
        encrypted: &[u8],
        plain: &mut [u8],
    ) -> Result<(), NotAuthentic> {
        let (content, tag) = encrypted.split_at(plain.len());
        self.key
            .open_separate_gather(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(additional),
                content,
                tag,
                plain,
            )
            .map_err(|_| NotAuthentic)
    }
}
