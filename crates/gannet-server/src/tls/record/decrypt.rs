//! Decrypts received bytes into plaintext and control messages.

use super::ContentType;
use super::aead::{RecordKey, Secrets, TlsVersion};
use super::encrypt::additional_tls12;
use crate::bounds::tls::{
    CIPHERTEXT_MAX_TLS12, CIPHERTEXT_MAX_TLS13, EMPTY_RECORDS_MAX, KEY_UPDATES_MAX, PLAINTEXT_MAX,
    RECORD_HEADER_LEN, TAG_LEN, WARNING_ALERTS_MAX,
};
use crate::tls::alert::{Alert, TlsFault};

/// Decrypts the records of one direction; input may be cut anywhere.
///
/// Invariant: `partial` is shorter than one record: header and at most
/// [`CIPHERTEXT_MAX_TLS12`] bytes.
pub struct Decryptor {
    key: RecordKey,
    secrets: Secrets,
    version: TlsVersion,
    sequence: u64,
    /// The start of an incomplete record.
    partial: Vec<u8>,
    /// The start of a handshake message (a `KeyUpdate` has five bytes).
    message: Vec<u8>,
    empty_records: u32,
    /// Key updates that the peer may still send.
    key_updates_left: u32,
    warnings: u32,
    /// The peer sent `close_notify`: further input is ignored (RFC 8446 section 6.1).
    is_closed: bool,
}

/// A message that changes the connection; records after it wait until it is handled.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Control {
    /// From here on the peer's records are encrypted with its next key, and it may request an
    /// update of ours (RFC 8446 section 4.6.3).
    KeyUpdate {
        /// `update_requested`.
        is_requested: bool,
    },
}

impl Decryptor {
    /// Bytes held for incomplete records and messages.
    pub(crate) fn held_bytes(&self) -> usize {
        self.partial.capacity() + self.message.capacity()
    }

    /// A decryptor with the secrets of the handshake.
    #[must_use]
    pub fn new(version: TlsVersion, secrets: Secrets) -> Self {
        Self {
            key: RecordKey::new(&secrets),
            version,
            sequence: secrets.sequence,
            secrets,
            partial: Vec::new(),
            message: Vec::new(),
            empty_records: 0,
            key_updates_left: KEY_UPDATES_MAX,
            warnings: 0,
            is_closed: false,
        }
    }

    /// Whether the peer has sent `close_notify`.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Decrypts the records in `input`, as
    /// [`Session::receive`](crate::tls::session::Session::receive) does, but without the secrets
    /// for a key update: true if there was one, in which case the rest of the input is unread.
    ///
    /// # Errors
    /// [`TlsFault`]; the connection has failed.
    pub fn decrypt(&mut self, mut input: &[u8], plain: &mut Vec<u8>) -> Result<bool, TlsFault> {
        self.receive(&mut input, plain)
            .map(|control| control.is_some())
    }

    /// Decrypts the complete records at the start of `input` and appends their content to `plain`,
    /// up to a control message. Removes the used bytes from `input`; the start of an incomplete
    /// record is kept, so that without a control message all of `input` is used.
    ///
    /// # Errors
    /// [`TlsFault`]; the connection has failed.
    pub(crate) fn receive(
        &mut self,
        input: &mut &[u8],
        plain: &mut Vec<u8>,
    ) -> Result<Option<Control>, TlsFault> {
        while !input.is_empty() && !self.is_closed {
            if !self.partial.is_empty() {
                let Some(record) = self.complete_partial(input)? else {
                    break;
                };
                let control = self.open_record(&record, plain)?;
                self.keep_capacity(record);
                if control.is_some() {
                    return Ok(control);
                }
                continue;
            }
            match self.record_len(input)? {
                Some(len) if input.len() >= len => {
                    let (record, rest) = input.split_at(len);
                    *input = rest;
                    if let Some(control) = self.open_record(record, plain)? {
                        return Ok(Some(control));
                    }
                }
                _ => {
                    self.partial.extend_from_slice(input);
                    *input = &[];
                }
            }
        }
        if self.is_closed {
            *input = &[];
        }
        Ok(None)
    }

    /// Allows the peer one more key update for each record exchanged, up to a total of
    /// [`KEY_UPDATES_MAX`].
    pub(crate) fn allow_key_updates(&mut self, records: u64) {
        let left = u64::from(self.key_updates_left).saturating_add(records);
        self.key_updates_left = u32::try_from(left)
            .unwrap_or(KEY_UPDATES_MAX)
            .min(KEY_UPDATES_MAX);
    }

    /// Continues with the peer's next secrets.
    pub(crate) fn rekey(&mut self, secrets: Secrets) {
        self.key = RecordKey::new(&secrets);
        self.sequence = secrets.sequence;
        self.secrets = secrets;
    }

    /// The total length of the record at the start of `input`, if its header is complete. Checked
    /// at once, so that an invalid record is not waited for.
    fn record_len(&self, input: &[u8]) -> Result<Option<usize>, TlsFault> {
        let Some(header) = input.first_chunk::<RECORD_HEADER_LEN>() else {
            return Ok(None);
        };
        let len = usize::from(u16::from_be_bytes([header[3], header[4]]));
        let max = match self.version {
            TlsVersion::Tls13 => CIPHERTEXT_MAX_TLS13,
            TlsVersion::Tls12 => CIPHERTEXT_MAX_TLS12,
        };
        if len > max {
            return Err(TlsFault::Ours(Alert::RECORD_OVERFLOW));
        }
        Ok(Some(RECORD_HEADER_LEN + len))
    }

    /// Adds to the held record; returns it once it is complete.
    fn complete_partial(&mut self, input: &mut &[u8]) -> Result<Option<Vec<u8>>, TlsFault> {
        if self.partial.len() < RECORD_HEADER_LEN {
            self.take(input, RECORD_HEADER_LEN);
        }
        let Some(len) = self.record_len(&self.partial)? else {
            return Ok(None);
        };
        self.take(input, len);
        Ok((self.partial.len() == len).then(|| std::mem::take(&mut self.partial)))
    }

    /// Moves input to the held record until that has `len` bytes.
    fn take(&mut self, input: &mut &[u8], len: usize) {
        let (now, rest) = input.split_at(input.len().min(len - self.partial.len()));
        self.partial.extend_from_slice(now);
        *input = rest;
    }

    /// Keeps the buffer if it is small, so that an idle connection does not hold memory for a large
    /// record.
    fn keep_capacity(&mut self, mut record: Vec<u8>) {
        if record.capacity() <= 1024 {
            record.clear();
            self.partial = record;
        }
    }

    fn open_record(
        &mut self,
        record: &[u8],
        plain: &mut Vec<u8>,
    ) -> Result<Option<Control>, TlsFault> {
        let (header, encrypted) = record.split_at(RECORD_HEADER_LEN);
        let start = plain.len();
        let kind = match self.version {
            TlsVersion::Tls13 => self.decrypt_tls13(header, encrypted, plain)?,
            TlsVersion::Tls12 => self.decrypt_tls12(header, encrypted, plain)?,
        };
        self.sequence += 1;
        let len = plain.len() - start;
        if kind == ContentType::ApplicationData as u8 {
            return self.note_application_data(len);
        }
        let result = self.control(kind, &plain[start..]);
        plain.truncate(start);
        result
    }

    /// Decrypts a TLS 1.3 record, appends its content and returns its type.
    fn decrypt_tls13(
        &mut self,
        header: &[u8],
        encrypted: &[u8],
        plain: &mut Vec<u8>,
    ) -> Result<u8, TlsFault> {
        // RFC 8446 section 5: after the handshake every record is protected, with the outer type
        // application data.
        if header[0] != ContentType::ApplicationData as u8 {
            return Err(TlsFault::Ours(Alert::UNEXPECTED_MESSAGE));
        }
        let Some(inner_len) = encrypted.len().checked_sub(TAG_LEN).filter(|len| *len > 0) else {
            return Err(TlsFault::Ours(Alert::BAD_RECORD_MAC));
        };
        let start = plain.len();
        plain.resize(start + inner_len, 0);
        let nonce = self.key.nonce(self.sequence);
        if self
            .key
            .open(nonce, header, encrypted, &mut plain[start..])
            .is_err()
        {
            plain.truncate(start);
            return Err(TlsFault::Ours(Alert::BAD_RECORD_MAC));
        }
        // RFC 8446 section 5.4: the type is the last non-zero byte.
        let Some(at) = plain[start..].iter().rposition(|byte| *byte != 0) else {
            plain.truncate(start);
            return Err(TlsFault::Ours(Alert::UNEXPECTED_MESSAGE));
        };
        let kind = plain[start + at];
        plain.truncate(start + at);
        if at > PLAINTEXT_MAX {
            return Err(TlsFault::Ours(Alert::RECORD_OVERFLOW));
        }
        Ok(kind)
    }

    /// Decrypts a TLS 1.2 record, appends its content and returns its type.
    fn decrypt_tls12(
        &mut self,
        header: &[u8],
        encrypted: &[u8],
        plain: &mut Vec<u8>,
    ) -> Result<u8, TlsFault> {
        if header[1..3] != [3, 3] {
            return Err(TlsFault::Ours(Alert::PROTOCOL_VERSION));
        }
        let bad = TlsFault::Ours(Alert::BAD_RECORD_MAC);
        let (nonce, encrypted) = if self.secrets.cipher.has_explicit_nonce(self.version) {
            let (explicit, encrypted) = encrypted.split_first_chunk::<8>().ok_or(bad)?;
            (self.key.explicit_nonce(*explicit), encrypted)
        } else {
            (self.key.nonce(self.sequence), encrypted)
        };
        let len = encrypted.len().checked_sub(TAG_LEN).ok_or(bad)?;
        if len > PLAINTEXT_MAX {
            return Err(TlsFault::Ours(Alert::RECORD_OVERFLOW));
        }
        let additional = additional_tls12(self.sequence, header[0], len);
        let start = plain.len();
        plain.resize(start + len, 0);
        if self
            .key
            .open(nonce, &additional, encrypted, &mut plain[start..])
            .is_err()
        {
            plain.truncate(start);
            return Err(bad);
        }
        Ok(header[0])
    }

    fn note_application_data(&mut self, len: usize) -> Result<Option<Control>, TlsFault> {
        if !self.message.is_empty() {
            // RFC 8446 section 5.1: handshake messages must not be interleaved with other records.
            return Err(TlsFault::Ours(Alert::UNEXPECTED_MESSAGE));
        }
        if len > 0 {
            (self.empty_records, self.warnings) = (0, 0);
            self.allow_key_updates(1);
            return Ok(None);
        }
        self.empty_records += 1;
        if self.empty_records > EMPTY_RECORDS_MAX {
            return Err(TlsFault::Ours(Alert::UNEXPECTED_MESSAGE));
        }
        Ok(None)
    }

    fn control(&mut self, kind: u8, content: &[u8]) -> Result<Option<Control>, TlsFault> {
        match kind {
            k if k == ContentType::Alert as u8 => self.alert(content).map(|()| None),
            k if k == ContentType::Handshake as u8 => self.handshake(content),
            _ => Err(TlsFault::Ours(Alert::UNEXPECTED_MESSAGE)),
        }
    }

    fn alert(&mut self, content: &[u8]) -> Result<(), TlsFault> {
        // RFC 8446 section 5.1: a record carries exactly one complete alert.
        let [level, description] = *content else {
            return Err(TlsFault::Ours(Alert::DECODE_ERROR));
        };
        let alert = Alert(description);
        if alert == Alert::CLOSE_NOTIFY {
            self.is_closed = true;
            return Ok(());
        }
        let is_warning =
            alert == Alert::USER_CANCELED || (self.version == TlsVersion::Tls12 && level == 1);
        if !is_warning {
            return Err(TlsFault::Peers(alert));
        }
        self.warnings += 1;
        if self.warnings > WARNING_ALERTS_MAX {
            return Err(TlsFault::Ours(Alert::UNEXPECTED_MESSAGE));
        }
        Ok(())
    }

    fn handshake(&mut self, content: &[u8]) -> Result<Option<Control>, TlsFault> {
        const KEY_UPDATE: u8 = 24;
        const KEY_UPDATE_LEN: usize = 5;
        let unexpected = TlsFault::Ours(Alert::UNEXPECTED_MESSAGE);
        // In TLS 1.2 it could only mean renegotiation, which is unsupported (RFC 9325 section 3.5);
        // an empty handshake record is forbidden (RFC 8446 section 5.1).
        if self.version == TlsVersion::Tls12 || content.is_empty() {
            return Err(unexpected);
        }
        self.message.extend_from_slice(content);
        if self.message[0] != KEY_UPDATE {
            return Err(unexpected);
        }
        let Some(message) = self.message.first_chunk::<KEY_UPDATE_LEN>() else {
            return Ok(None);
        };
        if self.message.len() > KEY_UPDATE_LEN {
            // RFC 8446 section 5.1: a message before a key change must end its record.
            return Err(unexpected);
        }
        let [_, 0, 0, 1, wanted @ (0 | 1)] = *message else {
            let is_length = message[1..4] != [0, 0, 1];
            let alert = if is_length {
                Alert::DECODE_ERROR
            } else {
                Alert::ILLEGAL_PARAMETER
            };
            return Err(TlsFault::Ours(alert));
        };
        self.message.clear();
        self.key_updates_left = self.key_updates_left.checked_sub(1).ok_or(unexpected)?;
        Ok(Some(Control::KeyUpdate {
            is_requested: wanted == 1,
        }))
    }
}
