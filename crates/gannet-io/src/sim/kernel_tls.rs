//! Kernel TLS in the simulation: records are really encrypted, by an encryptor that the test
//! provides.
//!
//! This crate contains no cryptography. A test lends its record layer to the virtual kernel, so
//! that its clients can decrypt what they receive.

use std::fmt;

use crate::ktls::TxKeys;

/// Encrypts records as the kernel would, with the keys that it was made from.
pub trait RecordEncryptor: Send {
    /// Appends one record with this content type (RFC 8446 section 5.1) to `out`. `content` has at
    /// most 16384 bytes.
    fn encrypt(&mut self, content_type: u8, content: &[u8], out: &mut Vec<u8>);
}

/// The most content of a record, in bytes (RFC 8446 section 5.1).
const CONTENT_MAX: usize = 1 << 14;

const APPLICATION_DATA: u8 = 23;

type MakeEncryptor = dyn Fn(&TxKeys<'_>) -> Box<dyn RecordEncryptor> + Send;

/// A virtual kernel's TLS module.
pub struct KernelTlsModel {
    make: Box<MakeEncryptor>,
    pub(super) can_update_keys: bool,
}

impl KernelTlsModel {
    /// A module that encrypts with the encryptor that `make` builds from the keys. Without
    /// `can_update_keys` a second key is refused with `EBUSY`, as before Linux 6.14.
    #[must_use]
    pub fn new(
        make: impl Fn(&TxKeys<'_>) -> Box<dyn RecordEncryptor> + Send + 'static,
        can_update_keys: bool,
    ) -> Self {
        Self {
            make: Box::new(make),
            can_update_keys,
        }
    }

    pub(super) fn encrypting(&self, keys: &TxKeys<'_>) -> Encrypting {
        Encrypting((self.make)(keys))
    }
}

impl fmt::Debug for KernelTlsModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KernelTlsModel(updates: {})", self.can_update_keys)
    }
}

/// A socket's encryptor.
pub(super) struct Encrypting(Box<dyn RecordEncryptor>);

impl Encrypting {
    /// One control record.
    pub(super) fn encrypt(&mut self, content_type: u8, content: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        self.0.encrypt(content_type, content, &mut out);
        out
    }

    /// As many full records as possible, and one with the rest.
    pub(super) fn encrypt_data(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        for content in bytes.chunks(CONTENT_MAX) {
            self.0.encrypt(APPLICATION_DATA, content, &mut out);
        }
        out
    }
}

impl fmt::Debug for Encrypting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Encrypting")
    }
}
