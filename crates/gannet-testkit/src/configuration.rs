//! Configurations for servers in tests.

use std::path::{Path, PathBuf};

use crate::Folder;

/// A file with a configuration, removed on drop.
#[derive(Debug)]
pub struct Configuration {
    path: PathBuf,
    _folder: Folder,
}

impl Configuration {
    /// A file with this text.
    pub fn new(text: &str) -> Self {
        let folder = Folder::new();
        let path = folder.write("gannet.toml", text);
        Self {
            path,
            _folder: folder,
        }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The flags for a server that reads it.
    pub fn flags(&self) -> [&str; 2] {
        ["--config", self.path.to_str().expect("UTF-8")]
    }
}
