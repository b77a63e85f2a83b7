//! Whether the configuration file is still the one that the server was started with.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use gannet_io::cause::printable;
use gannet_io::named_file;

use crate::command_line::config_file::CONFIG_LEN_MAX;

/// The file as it was at the start.
pub(super) struct Configured {
    path: PathBuf,
    stamp: Option<Stamp>,
    text: Option<String>,
}

/// Changes with the content. The sandbox keeps the main thread from reading the file, but not from
/// this.
type Stamp = (u64, u64, u64, i64, i64);

impl Configured {
    /// The file, which has just been read.
    pub(super) fn at(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            stamp: stamp(path),
            text: named_file::read_text(path, CONFIG_LEN_MAX).ok(),
        }
    }

    /// What to tell if it is another one now.
    pub(super) fn changed(&self) -> Option<String> {
        if stamp(&self.path) == self.stamp {
            return None;
        }
        let now = named_file::read_text(&self.path, CONFIG_LEN_MAX).ok();
        if now.is_some() && now == self.text {
            return None;
        }
        let path = printable(&self.path.display().to_string());
        Some(format!(
            "gannet: '{path}' has changed since the start: what is new in it is not in force\n\
             help: an upgrade (SIGUSR2) or a restart applies it"
        ))
    }
}

fn stamp(path: &Path) -> Option<Stamp> {
    let meta = fs::metadata(path).ok()?;
    let (seconds, nanoseconds) = (meta.mtime(), meta.mtime_nsec());
    Some((meta.dev(), meta.ino(), meta.len(), seconds, nanoseconds))
}
