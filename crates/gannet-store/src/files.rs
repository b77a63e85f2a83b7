//! How a publisher changes a store: the few operations whose order decides what survives a loss of
//! power.
//!
//! A trait, so that a test can record them and cut the power between any two.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::Path;

use gannet_io::named_file;

use crate::error::StoreError;

/// Changes to a store. Modes of new files and folders are left to the umask.
pub trait Files {
    /// Makes a folder. Its name is durable once the folder above it is flushed.
    ///
    /// # Errors
    /// It exists, or cannot be made.
    fn make_folder(&self, path: &Path) -> io::Result<()>;

    /// Creates a file that does not exist yet, writes all of `content`, and flushes it to the disk.
    ///
    /// # Errors
    /// It exists, cannot be written, or `content` cannot be read. An unfinished file may remain.
    fn create(&self, path: &Path, content: &mut dyn Read) -> io::Result<()>;

    /// Replaces `to` with `from` at once.
    ///
    /// # Errors
    /// The system refuses it.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Gives a file a second name, which must not exist.
    ///
    /// # Errors
    /// The name exists, or the system refuses it.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// The system refuses it.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Flushes the names in a folder to the disk.
    ///
    /// # Errors
    /// The system refuses it.
    fn flush_folder(&self, path: &Path) -> io::Result<()>;
}

/// The files of the system.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemFiles;

impl Files for SystemFiles {
    fn make_folder(&self, path: &Path) -> io::Result<()> {
        fs::create_dir(path)
    }

    fn create(&self, path: &Path, content: &mut dyn Read) -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
        let mut chunk = vec![0; CHUNK];
        loop {
            match content.read(&mut chunk) {
                Ok(0) => return file.sync_all(),
                Ok(len) => file.write_all(&chunk[..len])?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::hard_link(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn flush_folder(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }
}

/// The length and the BLAKE3 digest of a file.
pub(crate) fn digest_of(path: &Path) -> Result<(u64, [u8; 32]), StoreError> {
    let refuse = |error| StoreError::io("read", path)(error);
    let mut file = named_file::open(path).map_err(refuse)?;
    let mut hasher = blake3::Hasher::new();
    let mut chunk = vec![0; CHUNK];
    let mut size = 0;
    loop {
        match file.read(&mut chunk) {
            Ok(0) => return Ok((size, *hasher.finalize().as_bytes())),
            Ok(len) => {
                hasher.update(&chunk[..len]);
                size += len as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(refuse(error)),
        }
    }
}

/// Bytes read or copied at one time.
const CHUNK: usize = 1 << 20;
