//! Whether the configuration file is still the one that the server was started with.

use std::fs::{self, File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use gannet_io::named_file;

use crate::command_line::config_file::{CONFIG_LEN_MAX, Source};

/// The file as it was at the start.
pub(super) struct Configured {
    path: PathBuf,
    /// Open since then: the sandbox keeps the main thread from opening it, but not from reading it.
    file: File,
    stamp: ContentStamp,
    text: String,
}

/// Changes with the content. The sandbox does not hide it.
#[derive(Clone, Copy, Eq, PartialEq)]
struct ContentStamp {
    /// Device and inode.
    file: (u64, u64),
    len: u64,
    modified: (i64, i64),
}

impl Configured {
    /// The file, as the start has read it.
    pub(super) fn of(source: Source) -> Self {
        Self {
            stamp: ContentStamp::of(&source.before),
            path: source.path,
            file: source.file,
            text: source.text,
        }
    }

    /// Whether it may be another one now. Where it cannot be seen, it may: the user of `--user` sees
    /// less than the user who read it, and so does the sandbox.
    pub(super) fn may_have_changed(&self) -> bool {
        let Ok(meta) = fs::metadata(&self.path) else {
            return true;
        };
        let now = ContentStamp::of(&meta);
        let read = || match now.file == self.stamp.file {
            true => named_file::read_text_of(&self.file, CONFIG_LEN_MAX),
            false => named_file::read_text(&self.path, CONFIG_LEN_MAX),
        };
        now != self.stamp && read().ok().as_ref() != Some(&self.text)
    }

    /// The path, as typed.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl ContentStamp {
    fn of(meta: &Metadata) -> Self {
        Self {
            file: (meta.dev(), meta.ino()),
            len: meta.len(),
            modified: (meta.mtime(), meta.mtime_nsec()),
        }
    }
}
