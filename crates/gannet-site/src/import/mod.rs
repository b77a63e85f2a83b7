//! Imports sites from other archives: zip, tar (plain, gzip, zstd), and kawipiko's.
//!
//! Archives are untrusted: a path that leads out of the directory is an error, links are not
//! created, and files, folders and bytes are limited before they are written or held.

mod kawipiko;
mod kawipiko_types;
mod limits;
mod range;
mod tar;
mod unpack;
mod zip;

use std::fmt;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use gannet_archive::Coding;
use gannet_io::cause::{cause, next_step, printable};
use gannet_io::named_file;

use crate::pack::decoder;

pub use range::Positioned;
pub use unpack::{Entries, Unpacked, unpack};

/// The supported kinds of archives.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// zip.
    Zip,
    /// tar in this coding.
    Tar(Coding),
    /// The constant database of kawipiko.
    Kawipiko,
}

impl Kind {
    /// Detects the kind from the first bytes of a file, at least 512 if it has them, and its
    /// length.
    #[must_use]
    pub fn of(first: &[u8], len: u64) -> Option<Self> {
        match first {
            [b'P', b'K', 3, 4, ..] | [b'P', b'K', 5, 6, ..] => Some(Self::Zip),
            [0x1f, 0x8b, ..] => Some(Self::Tar(Coding::Gzip)),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Some(Self::Tar(Coding::Zstd)),
            _ if first.get(257..262) == Some(b"ustar") => Some(Self::Tar(Coding::Identity)),
            _ if kawipiko::looks_like(first, len) => Some(Self::Kawipiko),
            _ => None,
        }
    }

    /// The name in messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Zip => "zip",
            Self::Tar(Coding::Identity) => "tar",
            Self::Tar(Coding::Gzip) => "tar.gz",
            Self::Tar(_) => "tar.zst",
            Self::Kawipiko => "kawipiko",
        }
    }
}

/// Why an archive could not be imported.
#[derive(Debug)]
pub enum ImportError {
    /// The archive cannot be read.
    Read(io::Error),
    /// The archive is corrupt.
    Damaged(String),
    /// An unsupported feature: encrypted files, an unknown method.
    Unsupported(String),
    /// An entry has an unsafe path.
    Path {
        /// The path.
        path: String,
        /// The reason.
        why: &'static str,
    },
    /// A limit was exceeded.
    TooMuch(String),
    /// A file cannot be written.
    Write(PathBuf, io::Error),
    /// It is to stop.
    Stopped,
}

impl ImportError {
    /// The next step.
    #[must_use]
    pub fn help(&self) -> Option<&'static str> {
        match self {
            Self::Path { .. } => Some("unpack and inspect it yourself, then pack the directory"),
            Self::TooMuch(_) => Some("if you trust it, unpack it yourself and pack the directory"),
            Self::Unsupported(_) => Some("unpack it yourself, and pack the directory"),
            Self::Damaged(_) => Some("fetch the archive again"),
            Self::Read(error) | Self::Write(_, error) => next_step(error),
            Self::Stopped => None,
        }
    }
}

impl fmt::Display for ImportError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(error) => write!(out, "{}", cause(error)),
            Self::Damaged(what) | Self::Unsupported(what) => write!(out, "{what}"),
            Self::Path { path, why } => {
                write!(out, "entry '{}' {why}", printable(path))
            }
            Self::TooMuch(what) => write!(out, "{what}"),
            Self::Stopped => write!(out, "stopped"),
            Self::Write(path, error) => {
                write!(out, "cannot write '{}': {}", path.display(), cause(error))
            }
        }
    }
}

impl std::error::Error for ImportError {}

/// Decoders report corrupt input by this kind; other errors are the disk's.
fn read_error(error: io::Error) -> ImportError {
    match error.kind() {
        io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof | io::ErrorKind::Other => {
            ImportError::Damaged(error.to_string())
        }
        io::ErrorKind::InvalidInput => ImportError::Damaged(error.to_string()),
        _ => ImportError::Read(error),
    }
}

/// The kind of an archive; `None` if it is unsupported.
///
/// # Errors
/// The file cannot be read.
pub fn kind_of(path: &Path) -> io::Result<Option<Kind>> {
    let file = named_file::open(path)?;
    let mut first = Vec::new();
    (&file).take(2048).read_to_end(&mut first)?;
    Ok(Kind::of(&first, file.metadata()?.len()))
}

/// Passes the files of an archive to `entries`.
///
/// # Errors
/// See [`ImportError`].
pub fn read_file(path: &Path, kind: Kind, entries: &mut dyn Entries) -> Result<(), ImportError> {
    let file = named_file::open(path).map_err(ImportError::Read)?;
    match kind {
        Kind::Zip => zip::read(&file, entries),
        Kind::Tar(coding) => read_tar(BufReader::new(file), coding, entries),
        Kind::Kawipiko => kawipiko::read(&file, entries),
    }
}

/// Reads an archive in memory.
///
/// # Errors
/// See [`ImportError`].
pub fn read_bytes(bytes: &[u8], kind: Kind, entries: &mut dyn Entries) -> Result<(), ImportError> {
    match kind {
        Kind::Zip => zip::read(&bytes, entries),
        Kind::Tar(coding) => read_tar(bytes, coding, entries),
        Kind::Kawipiko => kawipiko::read(&bytes, entries),
    }
}

fn read_tar(from: impl Read, coding: Coding, entries: &mut dyn Entries) -> Result<(), ImportError> {
    let mut decoded = decoder(coding, from).map_err(read_error)?;
    let mut first = Vec::new();
    let mut header = decoded.by_ref().take(tar::HEADER_LEN);
    header.read_to_end(&mut first).map_err(read_error)?;
    if coding != Coding::Identity && !tar::is_header(&first) {
        let what = "it is compressed, but is not a compressed tar";
        return Err(ImportError::Unsupported(what.into()));
    }
    tar::read(first.as_slice().chain(decoded), entries)
}

#[cfg(test)]
mod tests;
