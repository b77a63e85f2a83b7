//! Encrypts plaintext into records.

use super::ContentType;
use super::aead::{Cipher, RecordKey, Secrets, TlsVersion};
use crate::bounds::tls::{
    ENCRYPTED_RECORDS_MAX, PLAINTEXT_MAX, RECORD_HEADER_LEN, SMALL_RECORD_LEN, SMALL_RECORDS,
    TAG_LEN, encrypted_records_end,
};

/// Pieces at least this long that fill a record alone are encrypted from their place; shorter ones
/// are copied first, which costs less than the cipher's second call for the content type byte.
const STRAIGHT_MIN: usize = 1024;

/// Encrypts the records of one direction.
///
/// Invariant: `sequence` never repeats under one key; encryption is refused at
/// [`encrypted_records_end`].
pub struct Encryptor {
    key: RecordKey,
    secrets: Secrets,
    version: TlsVersion,
    sequence: u64,
    /// Number of records after which the key should be updated.
    records_max: u64,
    /// Number of upcoming small records.
    small_records: u32,
}

/// The key has encrypted as many records as allowed, and was not updated.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Exhausted;

impl Encryptor {
    /// An encryptor with the secrets of the handshake or of a key update.
    #[must_use]
    pub fn new(version: TlsVersion, secrets: Secrets) -> Self {
        Self {
            key: RecordKey::new(&secrets),
            version,
            sequence: secrets.sequence,
            secrets,
            records_max: ENCRYPTED_RECORDS_MAX,
            small_records: 0,
        }
    }

    /// Makes the next [`SMALL_RECORDS`] small: usable as soon as their segment has arrived. The
    /// full ones of 16,384 bytes after them cost less.
    pub fn begin_small(&mut self) {
        self.small_records = SMALL_RECORDS;
    }

    /// Limits each key to `max` records, 1 to 2^23, before an update.
    pub fn limit_records(&mut self, max: u64) {
        self.records_max = max.clamp(1, ENCRYPTED_RECORDS_MAX);
    }

    /// Length of the records for `len` bytes of plaintext.
    #[must_use]
    pub fn encrypted_len(&self, len: usize) -> usize {
        len + self.records_of(len) * self.overhead()
    }

    /// Number of records for `len` bytes of plaintext.
    fn records_of(&self, len: usize) -> usize {
        let small = self.small_records as usize;
        match len.checked_sub(small * SMALL_RECORD_LEN) {
            Some(rest) => small + rest.div_ceil(PLAINTEXT_MAX),
            None => len.div_ceil(SMALL_RECORD_LEN),
        }
    }

    /// Plaintext bytes of the next record, with `left` bytes to encrypt.
    fn next_len(&mut self, left: usize) -> usize {
        if self.small_records == 0 {
            return left.min(PLAINTEXT_MAX);
        }
        self.small_records -= 1;
        left.min(SMALL_RECORD_LEN)
    }

    /// Whether the key should be updated before more is encrypted.
    #[must_use]
    pub fn wants_key_update(&self) -> bool {
        self.version == TlsVersion::Tls13 && self.is_used()
    }

    /// Whether the key has encrypted as many records as it should.
    #[must_use]
    pub fn is_used(&self) -> bool {
        self.sequence >= self.records_max
    }

    /// Encrypts the pieces as one stream, and appends the records to `out`. Without input nothing
    /// is appended.
    ///
    /// # Errors
    /// [`Exhausted`] at the limit of the AEAD (RFC 8446 section 5.5); nothing is appended.
    pub fn encrypt(&mut self, pieces: &[&[u8]], out: &mut Vec<u8>) -> Result<(), Exhausted> {
        let len = pieces.iter().map(|piece| piece.len()).sum();
        let start = out.len();
        out.resize(start + self.encrypted_len(len), 0);
        let encrypted = self.encrypt_into(pieces, &mut out[start..]);
        if encrypted.is_err() {
            out.truncate(start);
        }
        encrypted.map(|_| ())
    }

    /// As [`encrypt`](Self::encrypt), into existing memory; returns the number of bytes used, which
    /// is [`encrypted_len`](Self::encrypted_len). Saves clearing a new buffer.
    ///
    /// # Errors
    /// As [`encrypt`](Self::encrypt).
    ///
    /// # Panics
    /// If `out` is too short.
    pub fn encrypt_into(&mut self, pieces: &[&[u8]], out: &mut [u8]) -> Result<usize, Exhausted> {
        let mut left: usize = pieces.iter().map(|piece| piece.len()).sum();
        self.check_room(self.records_of(left) as u64)?;
        let mut gather = Gather { pieces, offset: 0 };
        let mut used = 0;
        while left > 0 {
            let len = self.next_len(left);
            let record_len = len + self.overhead();
            let record = &mut out[used..used + record_len];
            self.encrypt_record(ContentType::ApplicationData, &mut gather, len, record);
            used += record_len;
            left -= len;
        }
        Ok(used)
    }

    /// Encrypts one record of another type: an alert or a handshake message, at most 2^14 bytes.
    ///
    /// # Errors
    /// As [`encrypt`](Self::encrypt).
    pub fn encrypt_control(
        &mut self,
        content_type: ContentType,
        content: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), Exhausted> {
        debug_assert!(content.len() <= PLAINTEXT_MAX, "one record");
        self.check_room(1)?;
        let start = out.len();
        out.resize(start + content.len() + self.overhead(), 0);
        let mut gather = Gather {
            pieces: &[content],
            offset: 0,
        };
        self.encrypt_record(content_type, &mut gather, content.len(), &mut out[start..]);
        Ok(())
    }

    /// Continues with new secrets.
    pub(crate) fn rekey(&mut self, secrets: Secrets) {
        self.key = RecordKey::new(&secrets);
        self.sequence = secrets.sequence;
        self.secrets = secrets;
    }

    /// Returns key and sequence number for another encryptor.
    #[must_use]
    pub(crate) fn into_secrets(self) -> Secrets {
        let mut secrets = self.secrets;
        secrets.sequence = self.sequence;
        secrets
    }

    /// The sequence number of the next record.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// The AEAD in use.
    #[must_use]
    pub fn cipher(&self) -> Cipher {
        self.secrets.cipher
    }

    fn check_room(&self, records: u64) -> Result<(), Exhausted> {
        // ChaCha20-Poly1305 has no such limit within reach, but needs no more records, either.
        if self.sequence.saturating_add(records) > encrypted_records_end(self.records_max) {
            return Err(Exhausted);
        }
        Ok(())
    }

    fn overhead(&self) -> usize {
        let inside = match self.version {
            TlsVersion::Tls13 => 1,
            TlsVersion::Tls12 if self.secrets.cipher.has_explicit_nonce(self.version) => 8,
            TlsVersion::Tls12 => 0,
        };
        RECORD_HEADER_LEN + inside + TAG_LEN
    }

    /// Encrypts `len` gathered bytes into `record`, which has exactly the required length.
    fn encrypt_record(
        &mut self,
        content_type: ContentType,
        gather: &mut Gather<'_>,
        len: usize,
        record: &mut [u8],
    ) {
        let nonce = self.key.nonce(self.sequence);
        let (header, body) = record.split_at_mut(RECORD_HEADER_LEN);
        let body_len = u16::try_from(body.len()).expect("a record's length fits its field");
        match self.version {
            TlsVersion::Tls13 => {
                header[0] = ContentType::ApplicationData as u8;
                header[1..3].copy_from_slice(&[3, 3]);
                header[3..].copy_from_slice(&body_len.to_be_bytes());
                let kind = [content_type as u8];
                match gather.straight(len) {
                    Some(plain) => self.key.encrypt_from(nonce, header, plain, &kind, body),
                    None => {
                        gather.copy(&mut body[..len]);
                        body[len] = kind[0];
                        self.key.encrypt(nonce, header, body);
                    }
                }
            }
            TlsVersion::Tls12 => {
                header[0] = content_type as u8;
                header[1..3].copy_from_slice(&[3, 3]);
                header[3..].copy_from_slice(&body_len.to_be_bytes());
                let additional = additional_tls12(self.sequence, content_type as u8, len);
                let skip = body.len() - len - TAG_LEN;
                body[..skip].copy_from_slice(&nonce[12 - skip..]);
                let body = &mut body[skip..];
                match gather.straight(len) {
                    Some(plain) => self.key.encrypt_from(nonce, &additional, plain, &[], body),
                    None => {
                        gather.copy(&mut body[..len]);
                        self.key.encrypt(nonce, &additional, body);
                    }
                }
            }
        }
        self.sequence += 1;
    }
}

/// The additional data of TLS 1.2 (RFC 5246 section 6.2.3.3); `len` is the plaintext's length.
pub(super) fn additional_tls12(sequence: u64, content_type: u8, len: usize) -> [u8; 13] {
    let mut additional = [0; 13];
    additional[..8].copy_from_slice(&sequence.to_be_bytes());
    additional[8] = content_type;
    additional[9..11].copy_from_slice(&[3, 3]);
    let len = u16::try_from(len).expect("plaintext of a record is at most 2^14 bytes");
    additional[11..].copy_from_slice(&len.to_be_bytes());
    additional
}

/// Takes bytes from pieces in order.
struct Gather<'a> {
    pieces: &'a [&'a [u8]],
    /// Bytes already taken from the first piece.
    offset: usize,
}

impl<'a> Gather<'a> {
    /// The next `len` bytes, if they are in one piece and long enough to avoid the copy.
    fn straight(&mut self, len: usize) -> Option<&'a [u8]> {
        if len < STRAIGHT_MIN {
            return None;
        }
        self.skip_used();
        let rest = &self.pieces.first()?[self.offset..];
        let plain = rest.get(..len)?;
        self.offset += len;
        Some(plain)
    }

    /// Copies the next bytes; the pieces must have enough.
    fn copy(&mut self, mut to: &mut [u8]) {
        while !to.is_empty() {
            self.skip_used();
            let rest = &self.pieces[0][self.offset..];
            let len = rest.len().min(to.len());
            let (now, later) = to.split_at_mut(len);
            now.copy_from_slice(&rest[..len]);
            self.offset += len;
            to = later;
        }
    }

    fn skip_used(&mut self) {
        while self
            .pieces
            .first()
            .is_some_and(|piece| piece.len() == self.offset)
        {
            self.pieces = &self.pieces[1..];
            self.offset = 0;
        }
    }
}
