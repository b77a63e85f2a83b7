//! Errors of sites and archives.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use gannet_archive::ArchiveError;
use gannet_archive::signature::SignatureError;
use gannet_io::cause::{FileError, cause, next_step};

/// What [`SiteError::Io`] was doing: opening an archive.
pub const OPEN_ARCHIVE: &str = "open archive";

/// An error of a site or an archive.
#[derive(Debug)]
pub enum SiteError {
    /// The file is not a valid archive.
    Open(PathBuf, ArchiveError),
    /// The system refused something.
    Io(FileError),
    /// Output could not be written.
    Output(io::Error),
    /// A path is not in the archive.
    NotFound {
        /// The archive.
        archive: PathBuf,
        /// The path as requested.
        path: String,
        /// Where the path redirects to, if it does.
        redirect: Option<String>,
    },
    /// A path exists, but not in the requested coding.
    NotStored {
        /// The path as requested.
        path: String,
        /// The coding.
        coding: &'static str,
        /// The codings it is stored in.
        stored: Vec<&'static str>,
    },
    /// Bytes do not match their digest.
    Damaged {
        /// The archive.
        archive: PathBuf,
        /// What is wrong, and where.
        what: String,
    },
    /// The required signature is missing or invalid.
    Signature(PathBuf, SignatureError),
    /// An entry cannot be a file in a directory.
    Unsafe {
        /// The path of the entry.
        path: String,
        /// The reason.
        why: &'static str,
    },
    /// The directory to extract into is not empty.
    NotEmpty(PathBuf),
}

impl SiteError {
    pub(crate) fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        FileError::when(doing, path, Self::Io)
    }

    /// The next step, for a line `help: ...`.
    #[must_use]
    pub fn help(&self) -> Option<String> {
        Some(match self {
            Self::Open(_, error) => return error.help().map(str::to_string),
            Self::Io(FileError { error, .. }) | Self::Output(error) => {
                return next_step(error).map(str::to_string);
            }
            Self::NotFound {
                redirect: Some(to), ..
            } => {
                format!("it redirects to '{to}'; use that path")
            }
            Self::NotStored { stored, .. } => format!("it is stored as {}", stored.join(", ")),
            Self::Damaged { .. } => "copy the archive again, or rebuild it".into(),
            Self::NotFound { .. } | Self::Signature(..) => return None,
            Self::Unsafe { .. } => "this archive was not packed from a directory".into(),
            Self::NotEmpty(_) => "name a directory that is empty or does not exist yet".into(),
        })
    }
}

impl fmt::Display for SiteError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open(path, error) => {
                write!(out, "cannot open archive '{}': {error}", path.display())
            }
            Self::Io(error) => error.fmt(out),
            Self::Signature(path, error) => {
                write!(out, "cannot verify '{}': {error}", path.display())
            }
            Self::Output(error) => write!(out, "cannot write output: {}", cause(error)),
            Self::NotFound { archive, path, .. } => {
                write!(
                    out,
                    "cannot find '{path}' in '{}': no file has this path",
                    archive.display()
                )
            }
            Self::NotStored { path, coding, .. } => {
                write!(
                    out,
                    "cannot write '{path}' as {coding}: not stored in this coding"
                )
            }
            Self::Damaged { archive, what } => {
                write!(out, "cannot verify archive '{}': {what}", archive.display())
            }
            Self::Unsafe { path, why } => write!(out, "cannot extract '{path}': {why}"),
            Self::NotEmpty(path) => {
                write!(
                    out,
                    "cannot extract to '{}': it is not empty",
                    path.display()
                )
            }
        }
    }
}

impl std::error::Error for SiteError {}
