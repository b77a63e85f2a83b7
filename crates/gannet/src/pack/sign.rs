//! Signing an archive: a minisign signature of its build id, inside the superblock.
//!
//! Inside, so that a release stays one file that is replaced at once and cannot lose its signature.
//! The build id covers everything, so signing takes no time however long the archive is.

use std::fs;
use std::path::{Path, PathBuf};

use gannet_archive::{Finished, Superblock, put_signature, signed_text};
use minisign::{SecretKey, SecretKeyBox};

use super::PackError;

/// The environment variable with the password of a secret key that has one.
pub(super) const PASSWORD_VARIABLE: &str = "GANNET_KEY_PASSWORD";

/// A secret key, ready to sign.
pub(super) struct Signer {
    key: SecretKey,
    path: PathBuf,
}

impl Signer {
    /// Reads a secret key of minisign. The password of one that has one comes from the environment,
    /// or is asked for at the terminal.
    pub(super) fn open(path: &Path) -> Result<Self, PackError> {
        let refuse = |why: String| PackError::Key(path.to_path_buf(), why);
        let text = fs::read_to_string(path).map_err(PackError::io("read", path))?;
        let boxed = || SecretKeyBox::from_string(&text).map_err(|error| refuse(error.to_string()));
        let key = match boxed()?.into_unencrypted_secret_key() {
            Ok(key) => key,
            Err(_) => boxed()?
                .into_secret_key(std::env::var(PASSWORD_VARIABLE).ok())
                .map_err(|error| refuse(error.to_string()))?,
        };
        Ok(Self {
            key,
            path: path.to_path_buf(),
        })
    }

    /// Signs a finished archive that is not written yet.
    pub(super) fn sign(&self, finished: &mut Finished) -> Result<(), PackError> {
        let refuse = |why: String| PackError::Key(self.path.clone(), why);
        let superblock = Superblock::parse(&finished.superblock, finished.file_len)
            .map_err(|error| refuse(error.to_string()))?;
        let signed = signed_text(superblock.build_id());
        let comment = signed.trim_end();
        let untrusted = Some("signature of a gannet archive");
        let signature =
            minisign::sign(None, &self.key, signed.as_bytes(), Some(comment), untrusted)
                .map_err(|error| refuse(error.to_string()))?;
        if put_signature(&mut finished.superblock, signature.to_string().as_bytes()) {
            Ok(())
        } else {
            Err(refuse("its signature is too long".into()))
        }
    }
}
