//! A directory with a folder for each host, for packing and serving.

use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use crate::host_name::host_name;

/// The folder for hosts without one of their own.
pub const DEFAULT_FOLDER: &str = "_default";

/// Whether a name is that of an archive.
#[must_use]
pub fn is_archive(path: &Path) -> bool {
    path.extension().is_some_and(|it| it == "gannet")
}

/// What an entry is that has the name of an archive, and is none.
fn not_a_file(path: &Path) -> &'static str {
    let Ok(meta) = path.metadata() else {
        return "nothing is there, or it is not accessible";
    };
    let kind = meta.file_type();
    match () {
        () if kind.is_dir() => "it is a directory, and not an archive as its name says",
        () if kind.is_fifo() => "it is a FIFO, not a file",
        () if kind.is_socket() => "it is a socket, not a file",
        () => "it is a device, not a file",
    }
}

/// The contents of a directory with a folder for each host.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct HostFolders {
    /// Host names with their folders, ordered by name; the folder for all other hosts comes first,
    /// without a name.
    pub folders: Vec<(Option<String>, PathBuf)>,
    /// Other entries, with the reasons why they are not sites.
    pub others: Vec<(PathBuf, String)>,
}

impl HostFolders {
    /// Lists a directory. Symbolic links are followed: two links to one folder are two hosts with
    /// one site.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn of(root: &Path) -> io::Result<Self> {
        Self::list(root, false)
    }

    /// The same with archives, each named `HOST.gannet`.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn with_archives(root: &Path) -> io::Result<Self> {
        Self::list(root, true)
    }

    fn list(root: &Path, archives: bool) -> io::Result<Self> {
        let mut found = Self::default();
        for item in std::fs::read_dir(root)? {
            let item = item?;
            let path = item.path();
            let kind = item.file_type()?;
            let is_of_host = match archives && is_archive(&path) {
                true => kind.is_file() || (kind.is_symlink() && path.is_file()),
                false => kind.is_dir() || (kind.is_symlink() && path.is_dir()),
            };
            if !is_of_host {
                let cause = match archives && is_archive(&path) {
                    true => not_a_file(&path),
                    false => "no folder with the name of a host",
                };
                found.others.push((path, cause.into()));
                continue;
            }
            let name = match is_archive(&path) && archives {
                true => path.file_stem(),
                false => path.file_name(),
            };
            let name = name.unwrap_or_default().to_string_lossy();
            match &*name {
                DEFAULT_FOLDER => found.folders.push((None, path)),
                name => match host_name(name) {
                    Ok(host) => found.folders.push((Some(host), path)),
                    Err(cause) => found.others.push((path, cause)),
                },
            }
        }
        // Of several folders for one host, the one with exactly its name comes first.
        let is_other = |(host, path): &(Option<String>, PathBuf)| {
            let name = path.file_name().unwrap_or_default();
            host.as_ref().is_some_and(|host| name != host.as_str())
        };
        let order = |one: &(Option<String>, PathBuf)| (one.0.clone(), is_other(one), one.1.clone());
        found.folders.sort_by_cached_key(order);
        let folders = std::mem::take(&mut found.folders);
        for (host, path) in folders {
            match found.folders.last() {
                Some((last, first)) if *last == host => {
                    let cause = format!("'{}' is for the same host", first.display());
                    found.others.push((path, cause));
                }
                _ => found.folders.push((host, path)),
            }
        }
        found.others.sort();
        Ok(found)
    }
}
