//! Errors of stores: the object, the cause, and what to do.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use gannet_archive::signature::SignatureError;
use gannet_io::cause::{cause, next_step};

use crate::pointer::PointerError;

/// An error of a store.
#[derive(Debug)]
pub enum StoreError {
    /// The system refused something.
    Io {
        /// What was being done: `read`, `write`, ...
        doing: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The cause.
        error: io::Error,
    },
    /// The folder is not a store.
    NotAStore(PathBuf),
    /// The store exists, and nothing has been published to it.
    Empty(PathBuf),
    /// The file does not hold a pointer.
    Pointer(PathBuf, PointerError),
    /// The pointer in the file is not signed as required.
    Signature(PathBuf, SignatureError),
}

impl StoreError {
    pub(crate) fn io<'p>(
        doing: &'static str,
        path: &'p Path,
    ) -> impl FnOnce(io::Error) -> Self + use<'p> {
        move |error| Self::Io {
            doing,
            path: path.to_path_buf(),
            error,
        }
    }

    /// The next step, for a line `help: ...`.
    #[must_use]
    pub fn help(&self) -> Option<String> {
        Some(match self {
            Self::Io { error, .. } => next_step(error)?.to_owned(),
            Self::NotAStore(_) => {
                "a store has 'releases', 'log' and 'current'; 'gannet publish SITE STORE' makes one"
                    .into()
            }
            Self::Empty(path) => {
                format!("publish to it: 'gannet publish SITE {}'", path.display())
            }
            Self::Pointer(..) => {
                "'gannet rollback' or 'gannet publish' writes a new one; 'log' has those before it"
                    .into()
            }
            Self::Signature(_, SignatureError::Missing) => {
                "sign it when it is published: 'gannet publish SITE STORE --sign KEY'".into()
            }
            Self::Signature(_, SignatureError::OtherKey) => {
                "is this the right store, and the right public key?".into()
            }
            Self::Signature(_, SignatureError::Key) => {
                "give the second line of a .pub file, or the file's name".into()
            }
            Self::Signature(..) => "it was changed after it was signed: publish again".into(),
        })
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { doing, path, error } => {
                write!(out, "cannot {doing} '{}': {}", path.display(), cause(error))
            }
            Self::NotAStore(path) => {
                write!(
                    out,
                    "cannot open store '{}': it is not a store",
                    path.display()
                )
            }
            Self::Empty(path) => {
                let path = path.display();
                write!(
                    out,
                    "cannot read store '{path}': nothing has been published yet"
                )
            }
            Self::Pointer(path, error) => {
                write!(out, "cannot read pointer '{}': {error}", path.display())
            }
            Self::Signature(path, error) => {
                write!(out, "cannot use pointer '{}': {error}", path.display())
            }
        }
    }
}

impl std::error::Error for StoreError {}
