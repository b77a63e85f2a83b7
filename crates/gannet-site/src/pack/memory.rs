//! The state of earlier builds: stamps of files, and archives.
//!
//! The main source is the archive about to be replaced. A cache directory keeps further ones
//! (`last-1.gannet`, `last-2.gannet`, newest first), as copies, so that builds of two branches do not
//! undo each other's work.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use super::error::KEEP;
use super::limits::KEPT_ARCHIVES;
use super::previous::Previous;
use super::stamps::{Stamp, Stamps, stamps_path};
use super::{PackError, PackOptions};

/// The state left by earlier builds.
#[derive(Debug, Default)]
pub(super) struct Memory {
    stamps: Stamps,
    stamps_path: Option<PathBuf>,
    nothing: Stamps,
    verify_sources: bool,
}

impl Memory {
    pub(super) fn open(options: &PackOptions) -> Self {
        let memory = &options.memory;
        let folder = memory.folder.as_deref();
        let stamps_path = folder.map(|folder| stamps_path(folder, &options.source));
        let stamps = match &stamps_path {
            Some(path) if !memory.is_fresh => Stamps::load(path),
            _ => Stamps::default(),
        };
        Self {
            stamps,
            stamps_path,
            nothing: Stamps::default(),
            verify_sources: memory.verify_sources,
        }
    }

    /// The stamps that identify unchanged files.
    pub(super) fn known(&self) -> &Stamps {
        if self.verify_sources {
            &self.nothing
        } else {
            &self.stamps
        }
    }

    /// The archives of earlier builds.
    pub(super) fn previous(&self, options: &PackOptions) -> Previous {
        let paths = archives(options);
        let paths = paths.iter().map(PathBuf::as_path);
        Previous::open(paths, &options.compressible, self.known())
    }

    /// Frees the stamps, of which a large site has a million.
    pub(super) fn forget(&mut self) {
        self.stamps = Stamps::default();
    }

    /// A file did not match its stamp: the next build must not trust any stamps.
    pub(super) fn doubt(&self, error: &PackError) {
        if let (PackError::Changed(_), Some(path)) = (error, &self.stamps_path) {
            // The file may not exist; the build's own error is already being reported.
            let _ = fs::remove_file(path);
        }
    }

    /// Saves the state for the next build. Failure is only a warning, since the archive is
    /// complete.
    pub(super) fn keep(
        &self,
        options: &PackOptions,
        mut stamps: Stamps,
        build_id: &[u8; 32],
    ) -> Option<String> {
        let path = self.stamps_path.as_ref()?;
        let warn = |path: &Path, error: &io::Error| {
            let error = gannet_io::cause::cause(error);
            let path = path.display();
            Some(format!(
                "the next build will take longer: cannot write '{path}': {error}"
            ))
        };
        if let Some(folder) = kept_in(options)
            && let Err(error) = keep_archive(folder, &options.output)
        {
            return warn(folder, &error);
        }
        if let Ok(metadata) = fs::metadata(&options.output) {
            stamps.insert(Stamp::of_archive(&metadata), *build_id);
        }
        match stamps.save(path) {
            Ok(()) => None,
            Err(error) => warn(path, &error),
        }
    }
}

/// Rejects a cache directory that is not a directory.
pub(super) fn check(options: &PackOptions) -> Result<(), PackError> {
    match kept_in(options).map(|folder| (folder, fs::metadata(folder))) {
        Some((folder, Ok(found))) if !found.is_dir() => {
            Err(PackError::io(KEEP, folder)(Errno::NOTDIR.into()))
        }
        _ => Ok(()),
    }
}

/// Where archives of earlier builds may be, the one to be replaced first; empty if earlier builds
/// are to be ignored.
pub(super) fn archives(options: &PackOptions) -> Vec<PathBuf> {
    if options.memory.is_fresh {
        return Vec::new();
    }
    let mut paths = vec![options.output.clone()];
    if let Some(folder) = kept_in(options) {
        paths.extend((1..=KEPT_ARCHIVES).map(|number| kept_path(folder, number)));
    }
    paths.extend(options.previous.clone());
    paths
}

fn kept_in(options: &PackOptions) -> Option<&Path> {
    let folder = options.memory.folder.as_deref()?;
    options.memory.keeps_archives.then_some(folder)
}

fn kept_path(folder: &Path, number: usize) -> PathBuf {
    folder.join(format!("last-{number}.gannet"))
}

/// Makes the archive the newest of those kept.
fn keep_archive(folder: &Path, archive: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    for number in (1..KEPT_ARCHIVES).rev() {
        match fs::rename(kept_path(folder, number), kept_path(folder, number + 1)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    // A link would let who can write to the archive, as to a store, change what the next one reuses.
    fs::copy(archive, kept_path(folder, 1)).map(|_| ())
}
