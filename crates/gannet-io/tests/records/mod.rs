//! Decrypts TLS 1.3 records with the keys that encrypted them (RFC 8446 section 5.2).

use aws_lc_rs::aead::{
    AES_128_GCM, AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey,
};
use gannet_io::ktls::{Cipher, TxKeys};

pub(crate) const ALERT: u8 = 21;
pub(crate) const HANDSHAKE: u8 = 22;
pub(crate) const DATA: u8 = 23;

const HEADER_LEN: usize = 5;

/// The keys of one direction, and the number of the first record.
pub(crate) struct Keys {
    cipher: Cipher,
    key: Vec<u8>,
    iv: [u8; 12],
    sequence: u64,
}

impl Keys {
    /// Keys derived from cipher and sequence number.
    pub(crate) fn new(cipher: Cipher, sequence: u64) -> Self {
        let len = if cipher == Cipher::Aes128Gcm { 16 } else { 32 };
        Self {
            cipher,
            key: (0..len).map(|n| n as u8 * 7 + sequence as u8).collect(),
            iv: std::array::from_fn(|n| 200 - n as u8 - sequence as u8),
            sequence,
        }
    }

    pub(crate) fn tx(&self) -> TxKeys<'_> {
        TxKeys {
            cipher: self.cipher,
            key: &self.key,
            iv: self.iv,
            sequence: self.sequence,
        }
    }

    fn opener(&self) -> LessSafeKey {
        let algorithm = match self.cipher {
            Cipher::Aes128Gcm => &AES_128_GCM,
            Cipher::Aes256Gcm => &AES_256_GCM,
            Cipher::ChaCha20Poly1305 => &CHACHA20_POLY1305,
        };
        LessSafeKey::new(UnboundKey::new(algorithm, &self.key).unwrap())
    }

    fn nonce(&self, sequence: u64) -> Nonce {
        let mut nonce = self.iv;
        for (byte, number) in nonce[4..].iter_mut().zip(sequence.to_be_bytes()) {
            *byte ^= number;
        }
        Nonce::assume_unique_for_key(nonce)
    }
}

/// Decrypts all whole records in `bytes`: content type and content. A handshake record (a
/// `KeyUpdate`) switches to the next keys.
pub(crate) fn open(mut bytes: &[u8], keys: &[Keys]) -> Vec<(u8, Vec<u8>)> {
    let mut keys = keys.iter();
    let mut current = keys.next().expect("at least one key");
    let mut opener = current.opener();
    let mut sequence = current.sequence;
    let mut records = Vec::new();
    while bytes.len() >= HEADER_LEN {
        let len = usize::from(u16::from_be_bytes([bytes[3], bytes[4]]));
        let Some((record, rest)) = bytes.split_at_checked(HEADER_LEN + len) else {
            break;
        };
        bytes = rest;
        let (header, encrypted) = record.split_at(HEADER_LEN);
        assert_eq!(header[..3], [DATA, 3, 3], "the head of a TLS 1.3 record");
        let mut encrypted = encrypted.to_vec();
        let plain = opener
            .open_in_place(current.nonce(sequence), Aad::from(header), &mut encrypted)
            .expect("encrypted with these keys");
        sequence += 1;
        let last = plain
            .iter()
            .rposition(|&byte| byte != 0)
            .expect("a content type");
        records.push((plain[last], plain[..last].to_vec()));
        if plain[last] == HANDSHAKE {
            current = keys.next().expect("another key");
            opener = current.opener();
            sequence = current.sequence;
        }
    }
    records
}
