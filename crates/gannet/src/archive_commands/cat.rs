//! `gannet cat`: the content of a path, as a client without codings gets it.

use std::io::{self, Write};
use std::path::PathBuf;

use gannet_archive::{EntryKind, Key};
use gannet_http::semantics::target_path::decode_path;

use super::{ArchiveFile, CommandError};

/// What to write.
#[derive(Clone, Debug)]
pub struct CatOptions {
    /// The archive.
    pub archive: PathBuf,
    /// Paths as in a URL; the first slash may be missing.
    pub paths: Vec<String>,
}

/// Writes the contents of the paths, one after the other.
///
/// # Errors
///
/// The archive cannot be opened or read, a path is not in it, or `out` takes no more.
pub fn cat(options: &CatOptions, out: &mut dyn Write) -> Result<(), CommandError> {
    let file = ArchiveFile::open(&options.archive)?;
    for path in &options.paths {
        write_content(&file, path, out)?;
    }
    out.flush().map_err(CommandError::Output)
}

fn write_content(file: &ArchiveFile, path: &str, out: &mut dyn Write) -> Result<(), CommandError> {
    let not_found = |redirect| CommandError::NotFound {
        archive: file.path().to_path_buf(),
        path: path.to_string(),
        redirect,
    };
    let target = if path.starts_with('/') {
        path.to_string()
    } else {
        format!("/{path}")
    };
    let mut scratch = Vec::new();
    let decoded = decode_path(target.as_bytes(), &mut scratch).map_err(|_| not_found(None))?;
    let key = Key::content(decoded.as_bytes());
    let entry = file.archive().lookup(key).ok_or_else(|| not_found(None))?;
    if let EntryKind::Redirect { location, .. } = entry.kind() {
        return Err(not_found(Some(
            String::from_utf8_lossy(location).into_owned(),
        )));
    }
    let refuse = |error| CommandError::io("read", file.path())(error);
    let Some(mut content) = file.content(&entry).map_err(refuse)? else {
        return Err(not_found(None));
    };
    copy(&mut content, out, refuse)
}

/// Copies, telling apart who failed.
pub(super) fn copy(
    from: &mut dyn io::Read,
    to: &mut dyn Write,
    refuse: impl FnOnce(io::Error) -> CommandError,
) -> Result<(), CommandError> {
    let mut chunk = vec![0; 256 << 10];
    loop {
        let count = match from.read(&mut chunk) {
            Ok(0) => return Ok(()),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(refuse(error)),
        };
        to.write_all(&chunk[..count])
            .map_err(CommandError::Output)?;
    }
}
