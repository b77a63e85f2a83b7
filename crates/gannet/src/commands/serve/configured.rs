//! Whether the configuration file is still the one that the server was started with.

use std::fs::{self, File, Metadata};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use gannet_io::cause::printable;
use gannet_io::named_file;

use crate::command_line::config_file::{CONFIG_LEN_MAX, Source};

/// The file as it was at the start.
pub(super) struct Configured {
    path: PathBuf,
    /// Open since then: the sandbox keeps the main thread from opening it, but not from reading it.
    file: File,
    stamp: Stamp,
    text: String,
}

/// Changes with the content. The sandbox does not hide it.
#[derive(Clone, Copy, Eq, PartialEq)]
struct Stamp {
    /// Device and inode.
    file: (u64, u64),
    len: u64,
    modified: (i64, i64),
}

impl Configured {
    /// The file, as the start has read it.
    pub(super) fn of(source: Source) -> Self {
        Self {
            stamp: Stamp::of(&source.before),
            path: source.path,
            file: source.file,
            text: source.text,
        }
    }

    /// What to tell if it is another one now. The user of `--user` may see less than whoever read it:
    /// where it cannot be seen, nothing is known of it.
    pub(super) fn changed(&self) -> Option<String> {
        let what = match fs::metadata(&self.path) {
            Ok(meta) => self.how(Stamp::of(&meta))?,
            Err(error) if error.kind() == ErrorKind::NotFound => CHANGED,
            Err(_) => return None,
        };
        let path = printable(&self.path.display().to_string());
        Some(format!(
            "gannet: '{path}' {what}\nhelp: an upgrade (SIGUSR2) or a restart applies it"
        ))
    }

    /// How the file with this stamp differs, if it does.
    fn how(&self, now: Stamp) -> Option<&'static str> {
        if now == self.stamp {
            return None;
        }
        let text = match now.file == self.stamp.file {
            true => named_file::read_text_of(&self.file, CONFIG_LEN_MAX),
            false => named_file::read_text(&self.path, CONFIG_LEN_MAX),
        };
        match text {
            Ok(text) if text == self.text => None,
            Err(error) if error.kind() == ErrorKind::PermissionDenied => Some(REPLACED),
            Ok(_) | Err(_) => Some(CHANGED),
        }
    }
}

impl Stamp {
    fn of(meta: &Metadata) -> Self {
        Self {
            file: (meta.dev(), meta.ino()),
            len: meta.len(),
            modified: (meta.mtime(), meta.mtime_nsec()),
        }
    }
}

const CHANGED: &str = "has changed since the start: what is new in it is not in force";

/// It is another file, of which the sandbox shows no more.
const REPLACED: &str =
    "was replaced since the start: if anything is new in it, that is not in force";
