//! A directory that has a folder for each host, as packing and serving take it.

use std::io;
use std::path::{Path, PathBuf};

use gannet_archive::is_host_name;

/// The folder for all hosts that have none of their own.
pub const DEFAULT_FOLDER: &str = "_default";

/// What a directory with a folder for each host holds.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct HostFolders {
    /// Names of hosts and their folders, in the order of the names; the folder for all other hosts
    /// comes first, without a name.
    pub folders: Vec<(Option<String>, PathBuf)>,
    /// What else is there.
    pub others: Vec<PathBuf>,
}

impl HostFolders {
    /// Looks at what is in a directory. A symbolic link is what it leads to: two names of one
    /// folder are two hosts with one site.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn of(root: &Path) -> io::Result<Self> {
        let mut found = Self::default();
        for item in std::fs::read_dir(root)? {
            let path = item?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let host = match &*name {
                DEFAULT_FOLDER => Some(None),
                name if is_host_name(name.as_bytes()) => Some(Some(name.to_owned())),
                _ => None,
            };
            match host {
                Some(host) if path.is_dir() => found.folders.push((host, path)),
                _ => found.others.push(path),
            }
        }
        found.folders.sort();
        found.others.sort();
        Ok(found)
    }
}
