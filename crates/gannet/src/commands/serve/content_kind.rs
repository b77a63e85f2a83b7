//! Decides what a path is: a directory, a store, a single file or an archive.

use std::io::{self, Read};
use std::path::Path;

use gannet_io::named_file;
use gannet_server::config::Content;
use gannet_server::permission;
use gannet_store::Store;

use crate::messages::Failure;

/// The first bytes of every archive. Shorter than the magic, so that an archive with line ends
/// converted in transfer is still recognised, and rejected for that reason; and those of a part of one, which is
/// rejected as well.
const ARCHIVE_STARTS: [[u8; 7]; 2] = [*b"\x89gannet", *b"\x89gnpart"];

/// Inspects `path`, following symbolic links.
///
/// # Errors
/// It does not exist, cannot be inspected, or is a FIFO, socket or device.
pub fn examine(path: &Path) -> Result<Content, Failure> {
    let fail = |error: &io::Error| {
        let failure = Failure::of_system("serve", path.display(), error);
        match error.kind() {
            io::ErrorKind::PermissionDenied => failure.help(permission(path)),
            _ => failure,
        }
    };
    // Checked before opening, since opening a FIFO would wait for a writer.
    let kind = std::fs::metadata(path)
        .map_err(|error| fail(&error))?
        .file_type();
    if kind.is_dir() && Store::is_store(path) {
        return Ok(Content::Store(path.to_owned()));
    }
    if kind.is_dir() {
        return Ok(Content::Directory(path.to_owned()));
    }
    if !kind.is_file() {
        return Err(
            Failure::new("serve", path.display(), "not a regular file or directory")
                .help("give a directory, a file or an archive"),
        );
    }
    let is_archive = is_archive(path).map_err(|error| fail(&error))?;
    // A damaged or empty `site.gannet` is rejected as an archive instead of served as a file.
    if is_archive || path.extension().is_some_and(|suffix| suffix == "gannet") {
        return Ok(Content::Archive(path.to_owned()));
    }
    Ok(Content::File(path.to_owned()))
}

/// Whether a regular file begins like an archive.
///
/// # Errors
/// It cannot be read, or is no regular file.
pub fn is_archive(path: &Path) -> io::Result<bool> {
    let mut start = Vec::new();
    let file = named_file::open(path)?;
    file.take(ARCHIVE_STARTS[0].len() as u64)
        .read_to_end(&mut start)?;
    Ok(ARCHIVE_STARTS.iter().any(|it| *it == *start))
}
