//! Whether the configuration file is still the one that the server was started with.

use std::fs::{self, Metadata};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use gannet_io::cause::printable;
use gannet_io::named_file;

use crate::command_line::config_file::{CONFIG_LEN_MAX, Source};

/// The file as it was at the start.
pub(super) struct Configured {
    path: PathBuf,
    stamp: Option<Stamp>,
    text: String,
}

/// Changes with the content. The sandbox keeps the main thread from reading the file, but not from
/// this.
type Stamp = (u64, u64, u64, i64, i64);

impl Configured {
    /// The file, as the start has read it.
    pub(super) fn of(Source { path, text, before }: Source) -> Self {
        let stamp = before.as_ref().map(stamp);
        Self { path, stamp, text }
    }

    /// What to tell if it is another one now. The user of `--user` may see less than whoever read it:
    /// where it cannot be seen, nothing is known of it.
    pub(super) fn changed(&self) -> Option<String> {
        let now = match fs::metadata(&self.path) {
            Ok(meta) => Some(stamp(&meta)),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(_) => return None,
        };
        if now.is_some() && now == self.stamp {
            return None;
        }
        let text = named_file::read_text(&self.path, CONFIG_LEN_MAX);
        if text.is_ok_and(|text| text == self.text) {
            return None;
        }
        let path = printable(&self.path.display().to_string());
        Some(format!(
            "gannet: '{path}' has changed since the start: what is new in it is not in force\n\
             help: an upgrade (SIGUSR2) or a restart applies it"
        ))
    }
}

fn stamp(meta: &Metadata) -> Stamp {
    let (seconds, nanoseconds) = (meta.mtime(), meta.mtime_nsec());
    (meta.dev(), meta.ino(), meta.len(), seconds, nanoseconds)
}
