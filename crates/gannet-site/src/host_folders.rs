//! A directory that has a folder for each host, as packing and serving take it.

use std::io;
use std::path::{Path, PathBuf};

use crate::host_name::host_name;

/// The folder for all hosts that have none of their own.
pub const DEFAULT_FOLDER: &str = "_default";

/// What a directory with a folder for each host holds.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct HostFolders {
    /// Names of hosts and their folders, in the order of the names; the folder for all other hosts
    /// comes first, without a name.
    pub folders: Vec<(Option<String>, PathBuf)>,
    /// Other entries, and why they are not sites.
    pub others: Vec<(PathBuf, String)>,
}

impl HostFolders {
    /// Lists a directory. A symbolic link is what it leads to: two names of one folder are two
    /// hosts with one site.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn of(root: &Path) -> io::Result<Self> {
        let mut found = Self::default();
        for item in std::fs::read_dir(root)? {
            let path = item?.path();
            if !path.is_dir() {
                let cause = "no folder with the name of a host";
                found.others.push((path, cause.into()));
                continue;
            }
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            match &*name {
                DEFAULT_FOLDER => found.folders.push((None, path)),
                name => match host_name(name) {
                    Ok(host) => found.folders.push((Some(host), path)),
                    Err(cause) => found.others.push((path, cause)),
                },
            }
        }
        // Where several folders mean one host, that which has exactly its name comes first.
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
