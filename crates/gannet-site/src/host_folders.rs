//! A directory with a folder for each host, for packing and serving.

use std::fs::FileType;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use gannet_content::host_name::{WILDCARD, site_name};

/// The folder for hosts without one of their own.
pub const DEFAULT_FOLDER: &str = "_default";

/// How the name of an entry for all hosts below one may begin: `_wildcard.example.org` is
/// `*.example.org`, which shells expand and other systems cannot store.
pub const WILDCARD_FOLDER: &str = "_wildcard.";

/// Whether a name is that of an archive.
#[must_use]
pub fn is_archive(path: &Path) -> bool {
    path.extension().is_some_and(|it| it == "gannet")
}

/// What an entry is that has the name of an archive, and is none.
fn not_a_file(path: &Path, kind: FileType) -> &'static str {
    let kind = match kind.is_symlink() {
        true => path.metadata().map(|meta| meta.file_type()),
        false => Ok(kind),
    };
    let Ok(kind) = kind else {
        return "nothing is there, or it is not accessible";
    };
    match () {
        () if kind.is_dir() => "it is a directory, and not an archive as its name says",
        () if kind.is_fifo() => "it is a FIFO, not a file",
        () if kind.is_socket() => "it is a socket, not a file",
        () => "it is a device, not a file",
    }
}

/// An entry that is no site.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Other {
    /// Its path.
    pub path: PathBuf,
    /// What it is itself; not what a symbolic link leads to.
    pub kind: FileType,
    /// Why it is no site.
    pub cause: String,
}

/// The contents of a directory with a folder for each host.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct HostFolders {
    /// Host names with their folders, ordered by name; the folder for all other hosts comes first,
    /// without a name.
    pub folders: Vec<(Option<String>, PathBuf)>,
    /// Other entries, ordered by path.
    pub others: Vec<Other>,
}

/// Which entries of a directory are listed, and how.
#[derive(Clone, Copy)]
struct Listing {
    /// Archives are sites as well.
    archives: bool,
    /// A symbolic link is a site if it leads to one; otherwise if it has the name of one.
    follows: bool,
}

/// The host that an entry is named after.
fn host_of(name: &str) -> Result<String, String> {
    match name.strip_prefix(WILDCARD_FOLDER) {
        Some(parent) => site_name(&format!("{WILDCARD}{parent}")),
        None => site_name(name),
    }
}

/// The names of sites that answer for a host, in this order: its own, then those of all names below one,
/// the longest first.
pub fn names_for(host: &str) -> impl Iterator<Item = String> {
    let dots = host.match_indices('.').filter(|(at, _)| *at > 0);
    let parents = dots.map(|(at, _)| format!("*{}", &host[at..]));
    std::iter::once(host.to_owned()).chain(parents)
}

impl HostFolders {
    /// Lists a directory. Symbolic links are followed: two links to one folder are two hosts with
    /// one site.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn of(root: &Path) -> io::Result<Self> {
        let listing = Listing {
            archives: false,
            follows: true,
        };
        Self::list(root, listing)
    }

    /// The same with archives, each named `HOST.gannet`.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn with_archives(root: &Path) -> io::Result<Self> {
        let listing = Listing {
            archives: true,
            follows: true,
        };
        Self::list(root, listing)
    }

    /// The same for a server: a symbolic link is what its name says, and where it leads is not looked
    /// at. That may be a file system that does not answer, which is to harm one site alone.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn to_serve(root: &Path) -> io::Result<Self> {
        let listing = Listing {
            archives: true,
            follows: false,
        };
        Self::list(root, listing)
    }

    fn list(root: &Path, listing: Listing) -> io::Result<Self> {
        let mut found = Self::default();
        let mut folders = Vec::new();
        for item in std::fs::read_dir(root)? {
            let item = item?;
            let path = item.path();
            let kind = item.file_type()?;
            let is_archive = listing.archives && is_archive(&path);
            let leads_to_site = || match (listing.follows, is_archive) {
                (false, _) => true,
                (true, true) => path.is_file(),
                (true, false) => path.is_dir(),
            };
            let is_of_host = match is_archive {
                true => kind.is_file(),
                false => kind.is_dir(),
            } || (kind.is_symlink() && leads_to_site());
            let other = |path, cause| Other { path, kind, cause };
            if !is_of_host {
                let cause = match is_archive {
                    true => not_a_file(&path, kind),
                    false => "no folder with the name of a host",
                };
                found.others.push(other(path, cause.into()));
                continue;
            }
            let name = match is_archive {
                true => path.file_stem(),
                false => path.file_name(),
            };
            let name = name.unwrap_or_default().to_string_lossy();
            let host = match &*name {
                DEFAULT_FOLDER => Ok(None),
                name => host_of(name).map(Some),
            };
            let host = host.and_then(|host| match (listing.archives, &host) {
                (false, Some(name)) if name.starts_with(WILDCARD) => {
                    Err("an archive has no sites for all names below one".into())
                }
                _ => Ok(host),
            });
            match host {
                Ok(host) => folders.push((host, path, kind)),
                Err(cause) => found.others.push(other(path, cause)),
            }
        }
        // Of several folders for one host, the one with exactly its name comes first.
        let is_other = |host: &Option<String>, path: &Path| {
            let name = path.file_name().unwrap_or_default();
            host.as_ref().is_some_and(|host| name != host.as_str())
        };
        folders.sort_by_cached_key(|(host, path, _): &(Option<String>, PathBuf, FileType)| {
            (host.clone(), is_other(host, path), path.clone())
        });
        for (host, path, kind) in folders {
            match found.folders.last() {
                Some((last, first)) if *last == host => {
                    let cause = format!("'{}' is for the same host", first.display());
                    found.others.push(Other { path, kind, cause });
                }
                _ => found.folders.push((host, path)),
            }
        }
        found.others.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_a_host_and_of_wildcards_above_it() {
        let names: Vec<_> = names_for("a.b.example.org").collect();
        let expect = [
            "a.b.example.org",
            "*.b.example.org",
            "*.example.org",
            "*.org",
        ];
        assert_eq!(names, expect);
        assert_eq!(names_for("localhost").collect::<Vec<_>>(), ["localhost"]);
    }

    #[test]
    fn wildcards_are_entries_by_either_name() {
        for name in ["_wildcard.example.org", "*.Example.org"] {
            assert_eq!(host_of(name), Ok("*.example.org".into()), "{name}");
        }
        assert!(host_of("_wildcard.").is_err());
    }
}
