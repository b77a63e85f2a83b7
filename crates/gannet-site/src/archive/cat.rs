//! Writes the content of a URL, decoded or in a stored coding.

use std::io::{self, Write};
use std::path::PathBuf;

use gannet_archive::{Coding, EntryKind, Key};

use super::{ArchiveFile, SiteError, host_number};
use crate::target::Target;

/// What to write.
#[derive(Clone, Debug)]
pub struct CatOptions {
    /// The archive.
    pub archive: PathBuf,
    /// URLs, or their paths; the first slash may be missing.
    pub paths: Vec<String>,
    /// Write the bytes stored in this coding.
    pub coding: Option<Coding>,
}

/// Writes the contents of the paths one after another.
///
/// # Errors
///
/// The archive cannot be opened or read, a path is not in it, or `out` cannot be written.
pub fn cat(options: &CatOptions, out: &mut dyn Write) -> Result<(), SiteError> {
    let file = ArchiveFile::open(&options.archive)?;
    for path in &options.paths {
        write_content(&file, path, options.coding, out)?;
    }
    out.flush().map_err(SiteError::Output)
}

fn write_content(
    file: &ArchiveFile,
    path: &str,
    coding: Option<Coding>,
    out: &mut dyn Write,
) -> Result<(), SiteError> {
    let not_found = |redirect| SiteError::NotFound {
        archive: file.path().to_path_buf(),
        path: path.to_string(),
        redirect,
    };
    let target = Target::parse(path).map_err(|_| not_found(None))?;
    let host = host_number(file.archive(), target.host_name().as_bytes());
    let key = Key::content(&target.path).on(host);
    let entry = file.archive().lookup(key).ok_or_else(|| not_found(None))?;
    if let EntryKind::Redirect { location, .. } = entry.kind() {
        return Err(not_found(Some(
            String::from_utf8_lossy(location).into_owned(),
        )));
    }
    let refuse = |error| SiteError::io("read", file.path())(error);
    if let Some(coding) = coding {
        let Some(variant) = entry.select(coding.into()) else {
            let stored = entry.variants().map(|variant| variant.coding().name());
            return Err(SiteError::NotStored {
                path: path.to_string(),
                coding: coding.name(),
                stored: stored.collect(),
            });
        };
        return copy(&mut file.stored(&variant).map_err(refuse)?, out, refuse);
    }
    let Some(mut content) = file.content(&entry).map_err(refuse)? else {
        return Err(not_found(None));
    };
    copy(&mut content, out, refuse)
}

/// Copies, distinguishing read errors from write errors.
pub(super) fn copy(
    from: &mut dyn io::Read,
    to: &mut dyn Write,
    refuse: impl FnOnce(io::Error) -> SiteError,
) -> Result<(), SiteError> {
    let mut chunk = vec![0; 256 << 10];
    loop {
        let count = match from.read(&mut chunk) {
            Ok(0) => return Ok(()),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(refuse(error)),
        };
        to.write_all(&chunk[..count]).map_err(SiteError::Output)?;
    }
}
