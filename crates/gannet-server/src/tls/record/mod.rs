//! The record layer: plaintext to encrypted records and back, once the handshake is over.
//!
//! * [`encrypt::Encryptor`]: plaintext pieces to records, in the buffer that is sent.
//! * [`decrypt::Decryptor`]: received bytes, cut anywhere, to plaintext and control messages.
//! * [`aead`]: the keys of one direction, for both versions of the protocol.
//!
//! A record of TLS 1.3 (RFC 8446 section 5.2); content, true type and padding are encrypted:
//!
//! ```text
//! | 23 | 3 3 | length (2) | encrypted( content | type | zeros ) | tag (16) |
//! '--- header: the AEAD's additional data ---'
//! ```
//!
//! A record of TLS 1.2 (RFC 5246 section 6.2.3.3); AES-GCM has the explicit nonce, ChaCha20 none:
//!
//! ```text
//! | type | 3 3 | length (2) | nonce (8) | encrypted( content ) | tag (16) |
//! ```

pub mod aead;
pub mod decrypt;
pub mod encrypt;

/// The content type of a record (RFC 8446 section 5.1).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum ContentType {
    /// Switches to the new keys in TLS 1.2; in TLS 1.3 only for middlebox compatibility during the
    /// handshake.
    ChangeCipherSpec = 20,
    /// An alert.
    Alert = 21,
    /// A handshake message: after the handshake only `KeyUpdate`.
    Handshake = 22,
    /// Data of the application protocol.
    ApplicationData = 23,
}
