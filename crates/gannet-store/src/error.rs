//! Errors of stores: the object, the cause, and what to do.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use gannet_archive::signature::SignatureError;
use gannet_io::cause::{FileError, next_step};
use rustix::io::Errno;

use crate::pointer::PointerError;
use crate::release_id::ReleaseId;

/// Making the folder of a store.
pub(crate) const MAKE_STORE: &str = "make store";
/// Taking its lock.
pub(crate) const LOCK: &str = "lock";

/// An error of a store.
#[derive(Debug)]
pub enum StoreError {
    /// The system refused something.
    Io(FileError),
    /// The folder is not a store.
    NotAStore(PathBuf),
    /// The store exists, and nothing has been published to it.
    Empty(PathBuf),
    /// The file does not hold a pointer.
    Pointer(PathBuf, PointerError),
    /// The pointer in the file is not signed as required.
    Signature(PathBuf, SignatureError),
    /// The file of a release is not the one that its pointer names.
    OtherFile(PathBuf),
    /// Parts of this release cannot be verified: an earlier version packed it.
    NoTrees(ReleaseId),
    /// Another publisher is at work.
    Busy {
        /// The store.
        store: PathBuf,
        /// Who it is, and since when; empty if it has not said so yet.
        by: String,
    },
    /// Another publisher has taken the serial, or a higher one: on another machine, where the lock
    /// of this one does not count.
    Overtaken {
        /// The store.
        store: PathBuf,
        /// What has been published, when and by whom.
        what: String,
    },
    /// The pointer in the file, of this serial, may no longer be taken up.
    Expired(PathBuf, u64),
    /// The pointer of a store that is copied is older than the one that the copy has, or another one
    /// of the same serial.
    Older {
        /// Where it is.
        origin: PathBuf,
        /// Its serial.
        serial: u64,
        /// The highest serial that the copy has had.
        newest: u64,
    },
}

impl StoreError {
    pub(crate) fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        FileError::when(doing, path, Self::Io)
    }

    /// The next step, for a line `help: ...`.
    #[must_use]
    pub fn help(&self) -> Option<String> {
        Some(match self {
            Self::Io(FileError { doing, error, .. })
                if *doing == MAKE_STORE && error.kind() == io::ErrorKind::NotFound =>
            {
                "make the folder above it first, with 'mkdir -p'".into()
            }
            Self::Io(FileError { doing, error, .. })
                if *doing == LOCK && error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) =>
            {
                "it is a symbolic link, which is not followed: remove it".into()
            }
            Self::Io(FileError { error, .. }) => next_step(error)?.to_owned(),
            Self::NotAStore(_) => {
                "a store has 'releases', 'log' and 'current'; 'gannet publish SITE STORE' makes one \
                 of a new or an empty folder"
                    .into()
            }
            Self::Empty(path) => {
                format!(
                    "publish to it: 'gannet publish SITE {path}'; or 'gannet rollback {path} ID', if its log has any",
                    path = path.display()
                )
            }
            Self::Pointer(..) => {
                "'gannet publish', or 'gannet rollback STORE ID', writes a new one; 'log' has those \
                 before it"
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
            Self::Busy { .. } => {
                "wait until it has ended; one that was killed holds nothing up".into()
            }
            Self::Overtaken { store, .. } => format!(
                "see 'gannet releases {}', and publish again if this one is still to come",
                store.display()
            ),
            Self::OtherFile(_) => {
                "it was damaged or replaced: publish its site again, which writes it anew".into()
            }
            Self::NoTrees(_) => {
                "publish its site again with this version, or follow without --on-demand".into()
            }
            Self::Expired(..) => {
                "is this store still published to? 'gannet publish' writes a new one"
                    .into()
            }
            Self::Older { .. } => {
                "was an older state of the store put back? 'gannet publish' and 'gannet rollback' \
                 there write higher serials"
                    .into()
            }
            Self::Signature(..) => "it was changed after it was signed: publish again".into(),
        })
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(out),
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
                    "cannot read store '{path}': nothing has been published yet, or its pointer is gone"
                )
            }
            Self::Pointer(path, error) => {
                write!(out, "cannot read pointer '{}': {error}", path.display())
            }
            Self::Busy { store, by } => {
                let who = if by.is_empty() { "unnamed" } else { by };
                let store = store.display();
                write!(
                    out,
                    "cannot change store '{store}': another publisher is at work ({who})"
                )
            }
            Self::Overtaken { store, what } => {
                write!(out, "cannot change store '{}': {what}", store.display())
            }
            Self::OtherFile(path) => {
                let path = path.display();
                write!(
                    out,
                    "cannot use '{path}': it is not the file that its pointer names"
                )
            }
            Self::NoTrees(id) => {
                write!(
                    out,
                    "cannot copy release {id} on demand: it has files of more than 1 MiB, and an \
                     earlier version packed it"
                )
            }
            Self::Signature(path, error) => {
                write!(out, "cannot use pointer '{}': {error}", path.display())
            }
            Self::Older {
                origin,
                serial,
                newest,
            } => {
                let origin = origin.display();
                write!(
                    out,
                    "cannot use pointer '{origin}': it has serial {serial}, and serial {newest} was \
                     in force already"
                )
            }
            Self::Expired(path, serial) => {
                let path = path.display();
                write!(
                    out,
                    "cannot use pointer '{path}': serial {serial} has expired"
                )
            }
        }
    }
}

impl std::error::Error for StoreError {}
