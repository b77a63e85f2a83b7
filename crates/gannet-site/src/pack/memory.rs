//! What a build knows from earlier ones: stamps of files, and archives.
//!
//! The archive that is about to be replaced is the main source. A directory that was asked for keeps
//! further ones (`last-1.gannet`, `last-2.gannet`, newest first), as hard links where it is on the
//! same file system, so that two branches of a site do not undo each other's work.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use super::error::KEEP;
use super::limits::KEPT_ARCHIVES;
use super::previous::Previous;
use super::stamps::{Stamp, Stamps, stamps_path};
use super::{PackError, PackOptions};

/// What earlier builds have left.
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

    /// The stamps by which files are known unread.
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

    /// Gives back the memory of what was read: a large site has a million stamps.
    pub(super) fn forget(&mut self) {
        self.stamps = Stamps::default();
    }

    /// A file did not match its stamp: the next build must not trust any.
    pub(super) fn doubt(&self, error: &PackError) {
        if let (PackError::Changed(_), Some(path)) = (error, &self.stamps_path) {
            // It may not be there; an error of the build is on its way already.
            let _ = fs::remove_file(path);
        }
    }

    /// Leaves for the next build what this one knows; gives a warning if that fails, since the
    /// archive is there and good.
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
        // First the links: they count as changes of the file.
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

/// Refuses a directory to keep things in that is none.
pub(super) fn check(options: &PackOptions) -> Result<(), PackError> {
    match kept_in(options).map(|folder| (folder, fs::metadata(folder))) {
        Some((folder, Ok(found))) if !found.is_dir() => {
            Err(PackError::io(KEEP, folder)(Errno::NOTDIR.into()))
        }
        _ => Ok(()),
    }
}

/// Where archives of earlier builds may be, the one that is replaced first; nowhere if nothing of
/// earlier builds is to be used.
pub(super) fn archives(options: &PackOptions) -> Vec<PathBuf> {
    if options.memory.is_fresh {
        return Vec::new();
    }
    let mut paths = vec![options.output.clone()];
    if let Some(folder) = kept_in(options) {
        paths.extend((1..=KEPT_ARCHIVES).map(|number| kept_path(folder, number)));
    }
    paths
}

fn kept_in(options: &PackOptions) -> Option<&Path> {
    let folder = options.memory.folder.as_deref()?;
    options.memory.keeps_archives.then_some(folder)
}

fn kept_path(folder: &Path, number: usize) -> PathBuf {
    folder.join(format!("last-{number}.gannet"))
}

/// Makes the archive the newest of those that are kept.
fn keep_archive(folder: &Path, archive: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    for number in (1..KEPT_ARCHIVES).rev() {
        match fs::rename(kept_path(folder, number), kept_path(folder, number + 1)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    let newest = kept_path(folder, 1);
    match fs::hard_link(archive, &newest) {
        Ok(()) => Ok(()),
        // Another file system, or one without links.
        Err(_) => fs::copy(archive, &newest).map(|_| ()),
    }
}
