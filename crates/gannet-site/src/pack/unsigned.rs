//! Stands in for `sign` in a build without the feature of that name: no archive can be signed.

use std::path::Path;

use gannet_archive::Finished;

use super::PackError;

/// A secret key, of which this build can read none.
pub enum Signer {}

impl Signer {
    /// Refuses any key.
    ///
    /// # Errors
    /// Always.
    pub fn open(path: &Path) -> Result<Self, PackError> {
        let why = "gannet-site was built without its feature 'sign'";
        Err(PackError::Key(path.to_path_buf(), why.into()))
    }

    pub(super) fn sign(&self, _: &mut Finished) -> Result<(), PackError> {
        match *self {}
    }
}
