//! Removes unfinished files when a command fails or is stopped.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use gannet_site::archive::{self, SiteError};
use gannet_site::import::{self, ImportError, Kind, Unpacked};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};
use signal_hook::low_level::emulate_default_handler;

use super::failure;
use crate::messages::Failure;

/// While it lives, SIGINT and SIGTERM remove unfinished files and then end the process, which would
/// skip destructors. They take effect at once, even during a long compression.
pub(super) struct RemovalOnSignal(Handle);

/// A signal has come: nothing more is to be written.
static STOP: AtomicBool = AtomicBool::new(false);

impl RemovalOnSignal {
    /// `remove` is called before the process ends.
    ///
    /// # Errors
    /// The signal handler or its thread cannot be created.
    pub(super) fn by(remove: impl Fn() + Send + 'static) -> Result<Self, Failure> {
        let refuse = |error: io::Error| Failure::of_system("handle", "SIGINT and SIGTERM", &error);
        let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(refuse)?;
        let handle = signals.handle();
        std::thread::Builder::new()
            .name("gannet-signals".into())
            .spawn(move || {
                for signal in signals.forever() {
                    STOP.store(true, Ordering::Relaxed);
                    remove();
                    let _ = emulate_default_handler(signal);
                }
            })
            .map_err(refuse)?;
        Ok(Self(handle))
    }
}

/// Unpacks a foreign archive. A signal ends it, and with it the process: removing files while more are
/// written would take as long as writing all.
pub(super) fn unpack(archive: &Path, kind: Kind, directory: &Path) -> Result<Unpacked, Failure> {
    match import::unpack(archive, kind, directory, &STOP) {
        Err(ImportError::Stopped) => loop {
            std::thread::park();
        },
        unpacked => unpacked.map_err(|error| failure::of_import(archive, &error)),
    }
}

impl Drop for RemovalOnSignal {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Removes a folder into which another thread may still be writing: that can make an attempt fail.
pub(super) fn remove_folder(folder: &Path) {
    const ATTEMPTS: usize = 100;
    for _ in 0..ATTEMPTS {
        match fs::remove_dir_all(folder) {
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {}
            _ => return,
        }
    }
}

/// A directory that is restored to its earlier state unless unpacking completes.
#[derive(Clone, Debug)]
pub(super) struct Unpacking {
    directory: PathBuf,
    /// The topmost folder that does not exist.
    missing: Option<PathBuf>,
    /// What is in the directory is from here.
    is_own: Arc<AtomicBool>,
}

impl Unpacking {
    /// Into this directory, which is not touched yet.
    pub(super) fn into(directory: &Path) -> Self {
        let is_missing =
            |path: &&Path| !path.as_os_str().is_empty() && fs::symlink_metadata(path).is_err();
        let missing = directory.ancestors().take_while(is_missing).last();
        Self {
            directory: directory.to_path_buf(),
            missing: missing.map(Path::to_path_buf),
            is_own: Arc::default(),
        }
    }

    /// Creates the directory, which must be empty if it exists.
    ///
    /// # Errors
    /// The directory cannot be created, or is not empty.
    pub(super) fn begin(&self) -> Result<(), SiteError> {
        archive::prepare(&self.directory)?;
        self.is_own.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Removes everything created. Failures are ignored: the original error is reported.
    pub(super) fn undo(&self) {
        if let Some(made) = &self.missing {
            return remove_folder(made);
        }
        if !self.is_own.load(Ordering::Relaxed) {
            return;
        }
        // The directory existed, and was empty.
        for item in fs::read_dir(&self.directory)
            .into_iter()
            .flatten()
            .flatten()
        {
            let path = item.path();
            match item.file_type().is_ok_and(|it| it.is_dir()) {
                true => remove_folder(&path),
                false => drop(fs::remove_file(path)),
            }
        }
    }
}
