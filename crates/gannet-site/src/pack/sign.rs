//! Signs an archive: a minisign signature of its build id, inside the superblock.
//!
//! It is inside so that a release stays one file, which is replaced atomically and cannot lose its
//! signature. The build id covers everything, so that signing takes constant time.

use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use gannet_archive::{Finished, Superblock, put_signature, signed_text};
use gannet_io::named_file;
use minisign::{ErrorKind, PError, SecretKey, SecretKeyBox};

use super::PackError;
use super::error::READ_KEY;

/// The environment variable with the password of a secret key that has one.
pub const PASSWORD_VARIABLE: &str = "GANNET_KEY_PASSWORD";

/// A secret key, ready to sign.
pub struct Signer {
    key: SecretKey,
    path: PathBuf,
}

/// The bytes of a key file: algorithms of key, password and checksum (two bytes each), salt and
/// costs of the password (48), key number (8), key (64), checksum (32).
fn key_bytes(text: &str) -> Option<[u8; KEY_LEN]> {
    let coded = text.lines().nth(1)?;
    STANDARD.decode(coded.trim()).ok()?.try_into().ok()
}

/// Whether a file is a minisign secret key.
#[must_use]
pub fn is_secret_key(text: &str) -> bool {
    key_bytes(text).is_some()
}

/// Describes a file that is not a minisign secret key.
fn other_than_secret_key(text: &str) -> Option<&'static str> {
    if key_bytes(text).is_some() {
        return None;
    }
    Some(match text {
        _ if text.contains("BEGIN OPENSSH PRIVATE KEY") => {
            "it is an OpenSSH key, not a minisign key"
        }
        _ if text.contains("BEGIN PGP") => "it is an OpenPGP key, not a minisign key",
        _ if text.contains("-----BEGIN") => "it is a PEM file, not a minisign secret key",
        _ if text.contains("minisign public key") => {
            "it is a public key; signing needs the secret one"
        }
        _ => "it is not a minisign secret key",
    })
}

fn has_no_password(text: &str) -> bool {
    key_bytes(text).is_some_and(|bytes| bytes[2..4] == [0; 2])
}

/// A key without a password and without a checksum, as `minisign -G -W` writes it: the crate does
/// not read these.
fn without_checksum(text: &str) -> Option<SecretKey> {
    let bytes = key_bytes(text).filter(|bytes| bytes.starts_with(b"Ed"))?;
    let has_checksum = bytes[CHECKSUM_AT..].iter().any(|byte| *byte != 0);
    let key = SecretKey::from_bytes(&bytes).ok()?;
    (has_no_password(text) && !has_checksum).then_some(key)
}

fn why(error: &PError) -> String {
    match error.kind() {
        ErrorKind::Io => format!(
            "it has a password, and there is no terminal to prompt on ({error}): set {PASSWORD_VARIABLE}"
        ),
        _ => error.to_string(),
    }
}

/// Maximum length in bytes of a key file; minisign's have some 300 bytes.
const KEY_FILE_MAX: u64 = 64 << 10;

const KEY_LEN: usize = 158;
const CHECKSUM_AT: usize = 126;

impl Signer {
    /// Reads a minisign secret key. Its password, if it has one, comes from the environment or is
    /// requested at the terminal.
    ///
    /// # Errors
    /// The file cannot be read or is no such key, or its password is wrong.
    pub fn open(path: &Path) -> Result<Self, PackError> {
        let refuse = |why: String| PackError::Key(path.to_path_buf(), why);
        let bytes = named_file::read(path, KEY_FILE_MAX).map_err(PackError::io(READ_KEY, path))?;
        // Reports the cause instead of the byte at which minisign failed.
        let text = String::from_utf8(bytes).unwrap_or_default();
        if let Some(what) = other_than_secret_key(&text) {
            return Err(refuse(what.into()));
        }
        let boxed = || SecretKeyBox::from_string(&text).map_err(|error| refuse(error.to_string()));
        let key = match boxed()?.into_unencrypted_secret_key() {
            Ok(key) => key,
            Err(error) => match without_checksum(&text) {
                Some(key) => key,
                None if has_no_password(&text) => return Err(refuse(error.to_string())),
                None => boxed()?
                    .into_secret_key(std::env::var(PASSWORD_VARIABLE).ok())
                    .map_err(|error| refuse(why(&error)))?,
            },
        };
        Ok(Self {
            key,
            path: path.to_path_buf(),
        })
    }

    /// The public key that verifies its signatures: minisign's line of Base64.
    ///
    /// # Errors
    /// The secret key has none.
    pub fn public_key(&self) -> Result<String, PackError> {
        let refuse = |error: PError| PackError::Key(self.path.clone(), error.to_string());
        let key = minisign::PublicKey::from_secret_key(&self.key).map_err(refuse)?;
        Ok(key.to_base64())
    }

    /// The signature of a text: four lines, as minisign writes them, of which the comments tell
    /// people what was signed.
    ///
    /// # Errors
    /// The key cannot sign.
    pub fn sign_text(
        &self,
        text: &str,
        untrusted_comment: &str,
        trusted_comment: &str,
    ) -> Result<String, PackError> {
        let (trusted, untrusted) = (Some(trusted_comment), Some(untrusted_comment));
        minisign::sign(None, &self.key, text.as_bytes(), trusted, untrusted)
            .map(|signature| signature.to_string())
            .map_err(|error| PackError::Key(self.path.clone(), error.to_string()))
    }

    /// Signs a finished archive before it is written.
    pub(super) fn sign(&self, finished: &mut Finished) -> Result<(), PackError> {
        let refuse = |why: String| PackError::Key(self.path.clone(), why);
        let superblock = Superblock::parse(&finished.superblock, finished.file_len)
            .map_err(|error| refuse(error.to_string()))?;
        let signed = signed_text(superblock.build_id());
        let comment = "signature of a gannet archive";
        let signature = self.sign_text(&signed, comment, signed.trim_end())?;
        if put_signature(&mut finished.superblock, signature.as_bytes()) {
            Ok(())
        } else {
            Err(refuse("its signature is too long".into()))
        }
    }
}
