//! Compressed copies of a directory's files in a folder elsewhere, for sites that are only read.
//!
//! A file's copies have its resolved path below that folder, which thus serves any number of sites, and
//! another directory under the same name has others. A folder does not move with its site, so times that
//! prove a neighbour fresh prove nothing here: a copy counts only with exactly the time of its file, and if the
//! file's status has not changed since it was made.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use gannet_io::driver::Root;
use gannet_io::named_file;

/// Opens a folder of copies, if it may be entered: otherwise its site is served without copies.
pub(crate) fn enter(folder: &Path) -> io::Result<Root> {
    let root = Root::open_straight(folder)?;
    named_file::metadata_below(&root, Path::new("."))?;
    Ok(root)
}

/// The copies of one directory's files.
#[derive(Clone)]
pub(crate) struct CopiesElsewhere {
    folder: Root,
    /// Its path, for messages.
    path: Vec<u8>,
    /// The directory's path without links, from the root of the file system on, with a slash at its end.
    site: Vec<u8>,
}

impl CopiesElsewhere {
    /// The copies in `folder` of the directory at `site`.
    ///
    /// # Errors
    /// One of them cannot be found; the folder is in the site, which would serve the copies.
    pub(crate) fn open(folder: &Path, site: &Path) -> io::Result<Self> {
        let (path, real) = (fs::canonicalize(folder)?, fs::canonicalize(site)?);
        // In the root of the file system, the copies would be beside their files.
        if path.starts_with(&real) || path == Path::new("/") {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "it is in the site, which would serve the copies",
            ));
        }
        Self {
            // Folders there belong to the owners of the sites: a link would show another site's copies.
            folder: Root::open_straight(folder)?,
            path: path.into_os_string().into_encoded_bytes(),
            site: Vec::new(),
        }
        .of(site)
    }

    /// The copies in the same folder of the directory that is at `site` now.
    ///
    /// # Errors
    /// It cannot be found.
    pub(crate) fn of(&self, site: &Path) -> io::Result<Self> {
        let mut site = fs::canonicalize(site)?.as_os_str().as_bytes()[1..].to_vec();
        if !site.is_empty() {
            site.push(b'/');
        }
        Ok(Self {
            folder: self.folder.clone(),
            path: self.path.clone(),
            site,
        })
    }

    /// The folder.
    pub(crate) fn folder(&self) -> &Root {
        &self.folder
    }

    /// The path below the folder of a copy of this file.
    pub(crate) fn path_of(&self, file: &[u8], suffix: &[u8]) -> Vec<u8> {
        [&self.site, file, suffix].concat()
    }

    /// The whole path of a copy of this file, for messages.
    pub(crate) fn shown(&self, file: &[u8], suffix: &[u8]) -> Vec<u8> {
        [&self.path, b"/".as_slice(), &self.path_of(file, suffix)].concat()
    }
}
