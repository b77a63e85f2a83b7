//! Files of an archive into a directory, within bounds.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use crate::archive::Unfinished;

use super::limits::{BYTES_FREE, EXPANSION_MAX, FILES_MAX, NAMED_MAX, PATH_LEN_MAX};
use super::{ImportError, Kind, read_error, read_file};

/// Takes the files of an archive.
pub trait Entries {
    /// A file. `path` is as the archive has it; seconds since the Unix epoch.
    ///
    /// # Errors
    /// The path leads elsewhere, the content cannot be read or kept, or a bound is reached.
    fn file(
        &mut self,
        path: &[u8],
        modified: Option<i64>,
        content: &mut dyn Read,
    ) -> Result<(), ImportError>;

    /// A file that is the same as one before.
    ///
    /// # Errors
    /// As for [`Entries::file`]; or there was none.
    fn same_as(&mut self, path: &[u8], before: &[u8]) -> Result<(), ImportError>;

    /// Something that is left out: its path, and why.
    fn left_out(&mut self, path: &[u8], why: &str);
}

/// What was unpacked.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Unpacked {
    /// Files.
    pub file_count: u64,
    /// Their lengths together.
    pub bytes: u64,
    /// What was left out, with the reason; the first ones of them.
    pub left_out: Vec<String>,
    /// How much was left out.
    pub left_out_count: u64,
    /// The folder of the archive that all files are in, if they are in one, and it is a zip or a
    /// tar: those of folders often are.
    pub only_folder: Option<String>,
}

/// Unpacks an archive into a directory that is empty.
///
/// # Errors
/// See [`ImportError`].
pub fn unpack(archive: &Path, kind: Kind, directory: &Path) -> Result<Unpacked, ImportError> {
    let metadata = fs::metadata(archive).map_err(ImportError::Read)?;
    let len = metadata.len();
    let time = metadata.modified().ok();
    let since = time.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let mut into = Directory {
        root: directory.to_path_buf(),
        unpacked: Unpacked::default(),
        modified: since.and_then(|since| i64::try_from(since.as_secs()).ok()),
        files: BTreeSet::new(),
        bytes_max: BYTES_FREE.saturating_add(len.saturating_mul(EXPANSION_MAX)),
    };
    read_file(archive, kind, &mut into)?;
    if kind != Kind::Kawipiko {
        into.unpacked.only_folder = only_folder(&into.files);
    }
    Ok(into.unpacked)
}

/// The first component of all paths, if it is the same and the name of a folder.
fn only_folder(files: &BTreeSet<PathBuf>) -> Option<String> {
    // In a sorted set, the first and the last differ the most in their beginnings.
    let folder = |path: &PathBuf| {
        let mut components = path.components();
        let first = components.next()?;
        components.next()?;
        Some(first.as_os_str().to_string_lossy().into_owned())
    };
    let (first, last) = (folder(files.first()?)?, folder(files.last()?)?);
    (first == last).then_some(first)
}

struct Directory {
    root: PathBuf,
    unpacked: Unpacked,
    /// When files changed that have no time of their own: when the archive did.
    modified: Option<i64>,
    /// What is there already: a later file of the same name takes its place, as in tar.
    files: BTreeSet<PathBuf>,
    bytes_max: u64,
}

/// A path below the directory. Only plain names: no `..`, no root, nothing that a file system or a
/// URL cannot have.
pub(super) fn checked(path: &[u8]) -> Result<PathBuf, ImportError> {
    let refuse = |why| {
        let path = String::from_utf8_lossy(path).into_owned();
        Err(ImportError::Path { path, why })
    };
    if path.len() > PATH_LEN_MAX {
        return refuse("has a path that is too long");
    }
    if path.contains(&0) {
        return refuse("has a zero byte in its path");
    }
    let mut relative = PathBuf::new();
    for component in Path::new(std::ffi::OsStr::from_bytes(path)).components() {
        match component {
            Component::Normal(name) => relative.push(name),
            Component::CurDir => {}
            Component::ParentDir => return refuse("leads out of the archive by '..'"),
            Component::RootDir | Component::Prefix(_) => {
                return refuse("has an absolute path");
            }
        }
    }
    if relative.as_os_str().is_empty() {
        return refuse("has no name");
    }
    Ok(relative)
}

impl Directory {
    /// Makes the folders of a file and its place. Nothing here is ever a symbolic link: the
    /// directory was empty, and only files and folders are made in it.
    fn create(&mut self, relative: &Path) -> Result<(PathBuf, File), ImportError> {
        if self.unpacked.file_count >= FILES_MAX {
            return Err(ImportError::TooMuch("it has too many files"));
        }
        let target = self.root.join(relative);
        let refuse = |error| ImportError::Write(target.clone(), error);
        if let Some(folder) = target.parent() {
            fs::create_dir_all(folder).map_err(refuse)?;
        }
        if !self.files.insert(relative.to_path_buf()) {
            fs::remove_file(&target).map_err(refuse)?;
            self.unpacked.file_count -= 1;
        }
        let file = File::create_new(&target).map_err(refuse)?;
        self.unpacked.file_count += 1;
        Ok((target, file))
    }

    fn copy(
        &mut self,
        content: &mut dyn Read,
        target: &Path,
        file: &mut File,
    ) -> Result<(), ImportError> {
        let unfinished = Unfinished(Some(target));
        let mut chunk = vec![0; 64 << 10];
        loop {
            let count = match content.read(&mut chunk) {
                Ok(0) => {
                    unfinished.keep();
                    return Ok(());
                }
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(read_error(error)),
            };
            self.unpacked.bytes += count as u64;
            if self.unpacked.bytes > self.bytes_max {
                return Err(ImportError::TooMuch(
                    "its files are more than a hundred times as long as it is",
                ));
            }
            file.write_all(&chunk[..count])
                .map_err(|error| ImportError::Write(target.to_path_buf(), error))?;
        }
    }
}

impl Entries for Directory {
    fn file(
        &mut self,
        path: &[u8],
        modified: Option<i64>,
        content: &mut dyn Read,
    ) -> Result<(), ImportError> {
        let relative = checked(path)?;
        let (target, mut file) = self.create(&relative)?;
        self.copy(content, &target, &mut file)?;
        let modified = modified.or(self.modified);
        if let Some(seconds) = modified.and_then(|at| u64::try_from(at).ok()) {
            // A time that the file system cannot keep is no reason to fail.
            if let Some(time) = UNIX_EPOCH.checked_add(Duration::from_secs(seconds)) {
                let _ = file.set_modified(time);
            }
        }
        Ok(())
    }

    fn same_as(&mut self, path: &[u8], before: &[u8]) -> Result<(), ImportError> {
        let before = checked(before)?;
        if !self.files.contains(&before) {
            self.left_out(path, "a link to something outside the archive");
            return Ok(());
        }
        let relative = checked(path)?;
        if relative == before {
            return Ok(());
        }
        let source = self.root.join(before);
        let mut content = File::open(&source).map_err(|error| ImportError::Write(source, error))?;
        let modified = content.metadata().and_then(|it| it.modified()).ok();
        let (target, mut file) = self.create(&relative)?;
        self.copy(&mut content, &target, &mut file)?;
        if let Some(modified) = modified {
            let _ = file.set_modified(modified);
        }
        Ok(())
    }

    fn left_out(&mut self, path: &[u8], why: &str) {
        self.unpacked.left_out_count += 1;
        if self.unpacked.left_out.len() < NAMED_MAX {
            let path = String::from_utf8_lossy(path);
            self.unpacked.left_out.push(format!("{path}: {why}"));
        }
    }
}
