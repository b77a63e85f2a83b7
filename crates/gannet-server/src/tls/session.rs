//! An established connection: both directions of the record layer, and their key updates.
//!
//! ```text
//!  Handshake ── Done ──▶ Session ── into_kernel ──▶ Session whose records the kernel encrypts
//!                          │ receive: bytes in, plaintext out      (what we receive stays ours)
//!                          │ encrypt:    pieces in, records out
//! ```
//!
//! # Key updates (RFC 8446 section 4.6.3)
//! The peer's updates are applied at once. If it requests one of ours, or our key nears its limit,
//! a `KeyUpdate` precedes the next bytes encrypted, as early as the RFC requires. While the kernel
//! encrypts, the worker passes the new key on: see [`Session::kernel_update`].
//!
//! # Tickets
//! The last flight of the handshake (session tickets) is sent together with the first response, or
//! with the close. If no request arrived with the end of the handshake, the caller sends it at
//! once: see [`Session::take_waiting`].

use std::fmt;

use rustls::kernel::KernelConnection;
use rustls::server::ServerConnectionData;

use super::alert::{Alert, TlsFault};
use super::config::secrets_of;
use super::record::ContentType;
use super::record::aead::{Cipher, Secrets, TlsVersion};
use super::record::decrypt::{Control, Decryptor};
use super::record::encrypt::{Encryptor, Exhausted};
use crate::bounds::tls::{ENCRYPTED_RECORDS_MAX, PLAINTEXT_MAX, encrypted_records_end};

/// See the module documentation.
pub struct Session {
    decryptor: Decryptor,
    sender: Sender,
    version: TlsVersion,
    keys: KernelConnection<ServerConnectionData>,
    /// Bytes of the client's certificates, which `keys` holds.
    chain_bytes: usize,
    /// Encrypted bytes to send before the next ones.
    waiting: Vec<u8>,
    /// A `KeyUpdate` of ours is due.
    owes_key_update: bool,
    /// Our last alert was encrypted: nothing may follow it.
    is_ended: bool,
    updates: KeyUpdates,
    /// Records encrypted with our earlier keys.
    encrypted_before: u64,
    /// Records encrypted when the peer last sent data.
    encrypted_seen: u64,
    /// Number of records after which our key is updated.
    records_max: u64,
}

/// Keys replaced since the last query.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct KeyUpdates {
    /// The peer's keys, for the records we receive.
    pub peers: u32,
    /// Our keys, while our own record layer encrypts.
    pub ours: u32,
}

/// The encryptor of our output.
enum Sender {
    Ours(Encryptor),
    /// The kernel, with an upper bound on the records encrypted with its key.
    Kernel {
        cipher: Cipher,
        records: u64,
    },
}

/// The content of a control record for the kernel to encrypt: `KeyUpdate`, nothing requested.
const KEY_UPDATE: [u8; 5] = [24, 0, 0, 1, 0];

/// State of the receiving direction.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[must_use]
pub enum Received {
    /// The peer may send more.
    Open,
    /// The peer has sent `close_notify`: its earlier requests are still answered.
    Closed,
}

/// A step required before more output is passed to the kernel.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[must_use]
pub enum KernelNeeds {
    /// Nothing.
    Nothing,
    /// A new key: [`Session::kernel_update`]. If the kernel cannot change keys, the connection ends
    /// after the response in progress.
    KeyUpdate,
    /// The key must not encrypt any more: end the connection now.
    End,
}

/// Why our own record layer keeps encrypting a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum StaysOurs {
    /// TLS 1.2: the kernel counts its explicit nonces differently.
    Tls12,
    /// Encrypted bytes are waiting to be sent first: [`Session::take_waiting`].
    Waiting,
    /// Our last alert is encrypted, or the kernel already encrypts.
    Over,
}

impl Session {
    /// Bytes held for incomplete records, for sending, and of the client's certificates.
    pub(crate) fn held_bytes(&self) -> usize {
        self.decryptor.held_bytes() + self.waiting.capacity() + self.chain_bytes
    }

    pub(super) fn new(
        version: TlsVersion,
        tx: Secrets,
        rx: Secrets,
        keys: KernelConnection<ServerConnectionData>,
        chain_bytes: usize,
        waiting: Vec<u8>,
    ) -> Self {
        Self {
            decryptor: Decryptor::new(version, rx),
            sender: Sender::Ours(Encryptor::new(version, tx)),
            version,
            keys,
            chain_bytes,
            waiting,
            owes_key_update: false,
            is_ended: false,
            updates: KeyUpdates::default(),
            encrypted_before: 0,
            encrypted_seen: 0,
            records_max: ENCRYPTED_RECORDS_MAX,
        }
    }

    /// Limits our keys to `max` records each before an update, or before the connection ends where
    /// an update is impossible: 1 to 2^23, which is the default.
    pub fn limit_records(&mut self, max: u64) {
        self.records_max = max.clamp(1, ENCRYPTED_RECORDS_MAX);
        if let Sender::Ours(encryptor) = &mut self.sender {
            encryptor.limit_records(max);
        }
    }

    /// Takes received bytes, cut anywhere, and appends their plaintext to `plain`. The start of an
    /// incomplete record is kept.
    ///
    /// # Errors
    /// The connection has failed: for [`TlsFault::Ours`] send the output of [`end`](Self::end), then
    /// close (plaintext before the fault was appended and may be answered or discarded); for
    /// [`TlsFault::Peers`] close at once.
    pub fn receive(&mut self, mut input: &[u8], plain: &mut Vec<u8>) -> Result<Received, TlsFault> {
        let encrypted = self.encrypted_before + self.encrypted_by_key();
        self.decryptor
            .allow_key_updates(encrypted - self.encrypted_seen);
        self.encrypted_seen = encrypted;
        while let Some(control) = self.decryptor.receive(&mut input, plain)? {
            match control {
                Control::KeyUpdate { is_requested } => {
                    let (sequence, secrets) = self.keys.update_rx_secret().map_err(|_| INTERNAL)?;
                    self.decryptor
                        .rekey(secrets_of(sequence, &secrets).ok_or(INTERNAL)?);
                    self.owes_key_update |= is_requested;
                    self.updates.peers += 1;
                }
            }
        }
        Ok(if self.decryptor.is_closed() {
            Received::Closed
        } else {
            Received::Open
        })
    }

    /// Takes the counts of key updates since the last call.
    pub fn take_key_updates(&mut self) -> KeyUpdates {
        std::mem::take(&mut self.updates)
    }

    /// The version of the protocol.
    #[must_use]
    pub fn version(&self) -> TlsVersion {
        self.version
    }

    /// The AEAD in use.
    #[must_use]
    pub fn cipher(&self) -> Cipher {
        match &self.sender {
            Sender::Ours(encryptor) => encryptor.cipher(),
            Sender::Kernel { cipher, .. } => *cipher,
        }
    }

    /// Whether the connection should end after the response in progress: our key has encrypted
    /// enough, and TLS 1.2 cannot update it.
    #[must_use]
    pub fn wants_end(&self) -> bool {
        match &self.sender {
            Sender::Ours(encryptor) => self.version == TlsVersion::Tls12 && encryptor.is_used(),
            Sender::Kernel { .. } => false,
        }
    }

    /// Encrypts the pieces as one stream and appends the records to `out`: several pieces that fit
    /// become one record.
    ///
    /// # Errors
    /// [`Exhausted`]: the key is used up and cannot be updated (TLS 1.2); end the connection.
    ///
    /// # Panics
    /// If the kernel encrypts.
    pub fn encrypt(&mut self, pieces: &[&[u8]], out: &mut Vec<u8>) -> Result<(), Exhausted> {
        self.prepare(out)?;
        self.encryptor().encrypt(pieces, out)
    }

    /// Appends to `out` what must precede the next records (tickets, a key update).
    /// [`encrypt`](Self::encrypt) calls it itself.
    ///
    /// # Errors
    /// As [`encrypt`](Self::encrypt).
    ///
    /// # Panics
    /// If the kernel encrypts.
    pub fn prepare(&mut self, out: &mut Vec<u8>) -> Result<(), Exhausted> {
        self.take_waiting(out);
        if self.is_ended {
            return Err(Exhausted);
        }
        if self.owes_key_update || self.encryptor().wants_key_update() {
            self.update_keys(false, out)?;
        }
        Ok(())
    }

    /// The encryptor, for encrypting into existing memory after [`prepare`](Self::prepare).
    ///
    /// # Panics
    /// If the kernel encrypts.
    pub fn encryptor(&mut self) -> &mut Encryptor {
        match &mut self.sender {
            Sender::Ours(encryptor) => encryptor,
            Sender::Kernel { .. } => panic!("the kernel encrypts what this connection sends"),
        }
    }

    /// Updates our key now, and requests an update by the peer if `request` is set. TLS 1.3 only;
    /// otherwise does nothing.
    ///
    /// # Errors
    /// As [`encrypt`](Self::encrypt).
    ///
    /// # Panics
    /// If the kernel encrypts.
    pub fn update_keys(&mut self, request: bool, out: &mut Vec<u8>) -> Result<(), Exhausted> {
        if self.version != TlsVersion::Tls13 {
            return Ok(());
        }
        self.take_waiting(out);
        let mut content = KEY_UPDATE;
        content[4] = u8::from(request);
        self.encryptor()
            .encrypt_control(ContentType::Handshake, &content, out)?;
        let secrets = self.next_secrets().ok_or(Exhausted)?;
        self.encrypted_before += self.encrypted_by_key();
        self.encryptor().rekey(secrets);
        self.updates.ours += 1;
        self.owes_key_update = false;
        Ok(())
    }

    /// Appends our last record: `close_notify` for an orderly end (RFC 8446 section 6.1), else
    /// the alert. Nothing can be encrypted after it; a second call appends nothing. While the
    /// kernel encrypts, nothing is appended: send [`Alert::content`] as a control record.
    pub fn end(&mut self, alert: Alert, out: &mut Vec<u8>) {
        self.take_waiting(out);
        if std::mem::replace(&mut self.is_ended, true) {
            return;
        }
        if let Sender::Ours(encryptor) = &mut self.sender {
            // An exhausted key cannot encrypt the alert: the end of the stream has to suffice.
            let _ = encryptor.encrypt_control(ContentType::Alert, &alert.content(), out);
        }
    }

    /// Takes the bytes to send before the next records (tickets), if any. The peer may depend on
    /// them: without `TCP_NODELAY` it sends its request only once the end of its handshake is
    /// acknowledged, which takes 40 ms if nothing is sent.
    pub fn take_waiting(&mut self, out: &mut Vec<u8>) {
        if out.is_empty() {
            std::mem::swap(out, &mut self.waiting);
        } else {
            out.append(&mut self.waiting);
        }
        self.waiting = Vec::new();
    }

    /// Whether [`take_waiting`](Self::take_waiting) would return bytes.
    #[must_use]
    pub fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether the kernel encrypts.
    #[must_use]
    pub fn is_kernel(&self) -> bool {
        matches!(self.sender, Sender::Kernel { .. })
    }

    /// Hands encryption over to the kernel; returns the secrets, which must be passed to it before
    /// the next byte is sent. Everything encrypted so far must be sent first.
    ///
    /// # Errors
    /// [`StaysOurs`], with the reason; nothing has changed.
    pub fn into_kernel(&mut self) -> Result<Secrets, StaysOurs> {
        if self.version != TlsVersion::Tls13 {
            return Err(StaysOurs::Tls12);
        }
        if self.is_ended || self.is_kernel() {
            return Err(StaysOurs::Over);
        }
        if !self.waiting.is_empty() {
            return Err(StaysOurs::Waiting);
        }
        let cipher = self.cipher();
        let sender = Sender::Kernel {
            cipher,
            records: self.encryptor().sequence(),
        };
        match std::mem::replace(&mut self.sender, sender) {
            Sender::Ours(encryptor) => Ok(encryptor.into_secrets()),
            Sender::Kernel { .. } => unreachable!("tested above"),
        }
    }

    /// Resumes encryption after the kernel refused the secrets from
    /// [`into_kernel`](Self::into_kernel).
    pub fn take_back(&mut self, secrets: Secrets) {
        let mut encryptor = Encryptor::new(self.version, secrets);
        encryptor.limit_records(self.records_max);
        self.sender = Sender::Ours(encryptor);
    }

    /// Counts a send of `bytes` that the kernel is about to encrypt; returns the step that must
    /// precede it. Each send counts one record more, because the last one is rarely full.
    pub fn kernel_sends(&mut self, bytes: u64) -> KernelNeeds {
        let Sender::Kernel { records, .. } = &mut self.sender else {
            return KernelNeeds::Nothing;
        };
        *records = records.saturating_add(bytes.div_ceil(PLAINTEXT_MAX as u64) + 1);
        if *records > encrypted_records_end(self.records_max) {
            KernelNeeds::End
        } else if self.owes_key_update || *records > self.records_max {
            KernelNeeds::KeyUpdate
        } else {
            KernelNeeds::Nothing
        }
    }

    /// The next key for the kernel: first send the returned content as a control record of type 22
    /// (handshake) with no other send in progress, then install the secrets. `None` if the kernel
    /// does not encrypt.
    pub fn kernel_update(&mut self) -> Option<([u8; 5], Secrets)> {
        let secrets = self.is_kernel().then(|| self.next_secrets()).flatten()?;
        self.encrypted_before += self.encrypted_by_key();
        if let Sender::Kernel { records, .. } = &mut self.sender {
            *records = 0;
        }
        self.owes_key_update = false;
        Some((KEY_UPDATE, secrets))
    }

    /// Records encrypted with our current key.
    fn encrypted_by_key(&self) -> u64 {
        match &self.sender {
            Sender::Ours(encryptor) => encryptor.sequence(),
            Sender::Kernel { records, .. } => *records,
        }
    }

    fn next_secrets(&mut self) -> Option<Secrets> {
        let (sequence, secrets) = self.keys.update_tx_secret().ok()?;
        secrets_of(sequence, &secrets)
    }
}

const INTERNAL: TlsFault = TlsFault::Ours(Alert::INTERNAL_ERROR);

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("version", &self.version)
            .field("cipher", &self.cipher())
            .field("is_kernel", &self.is_kernel())
            .finish_non_exhaustive()
    }
}
