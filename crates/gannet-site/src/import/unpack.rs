//! Unpacks the files of an archive into a directory, within limits.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use gannet_io::quantities::counted;

use crate::archive::UnfinishedFile;

use super::limits::{
    BYTES_FREE, DEPTH_MAX, ENTRY_COST, EXPANSION_MAX, FILES_MAX, FOLDERS_FREE, FOLDERS_PER_FILE,
    LEFT_OUT_LISTED_MAX, PATH_LEN_MAX,
};
use super::{ImportError, Kind, read_error, read_file};

/// Receives the files of an archive.
pub trait Entries {
    /// Counts bytes that are read besides contents: headers, names, metadata.
    ///
    /// # Errors
    /// A limit is reached.
    fn account(&mut self, bytes: u64) -> Result<(), ImportError>;

    /// A file. `path` is as in the archive; the time is in seconds since the Unix epoch, the length
    /// in bytes, if the archive claims one.
    ///
    /// # Errors
    /// The path is unsafe, the content cannot be read or stored, or a limit is reached.
    fn file(
        &mut self,
        path: &[u8],
        modified: Option<i64>,
        len: Option<u64>,
        content: &mut dyn Read,
    ) -> Result<(), ImportError>;

    /// A file with the same content as an earlier one.
    ///
    /// # Errors
    /// As for [`Entries::file`]; or there is no earlier one.
    fn same_as(&mut self, path: &[u8], before: &[u8]) -> Result<(), ImportError>;

    /// An entry that is skipped: its path and the reason.
    fn left_out(&mut self, path: &[u8], why: &str);
}

/// What was unpacked.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Unpacked {
    /// Files.
    pub file_count: u64,
    /// Their total length.
    pub bytes: u64,
    /// The first skipped entries, with reasons.
    pub left_out: Vec<String>,
    /// The number of skipped entries.
    pub left_out_count: u64,
    /// The only top-level folder of a zip or tar, if all files are in one, as in archives of
    /// folders.
    pub only_folder: Option<String>,
}

/// Unpacks an archive into an empty directory, unless it is to `stop`.
///
/// # Errors
/// See [`ImportError`].
pub fn unpack(
    archive: &Path,
    kind: Kind,
    directory: &Path,
    stop: &AtomicBool,
) -> Result<Unpacked, ImportError> {
    let metadata = fs::metadata(archive).map_err(ImportError::Read)?;
    let len = metadata.len();
    let time = metadata.modified().ok();
    let since = time.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let mut into = Directory {
        root: directory.to_path_buf(),
        unpacked: Unpacked::default(),
        modified: since.and_then(|since| i64::try_from(since.as_secs()).ok()),
        top: Top::Empty,
        folder_count: 0,
        left: BYTES_FREE.saturating_add(len.saturating_mul(EXPANSION_MAX)),
        stop,
    };
    read_file(archive, kind, &mut into)?;
    if let Top::Folder(folder) = into.top
        && kind != Kind::Kawipiko
    {
        into.unpacked.only_folder = Some(folder.to_string_lossy().into_owned());
    }
    Ok(into.unpacked)
}

/// What is at the top of the archive.
enum Top {
    Empty,
    /// Every file so far is in this folder.
    Folder(OsString),
    Several,
}

/// Receives files. It does not keep their names: the directory has them.
struct Directory<'a> {
    root: PathBuf,
    unpacked: Unpacked,
    /// The modification time of the archive, for files without their own.
    modified: Option<i64>,
    top: Top,
    folder_count: u64,
    /// Bytes that may still be read or written.
    left: u64,
    /// Nothing more is to be written.
    stop: &'a AtomicBool,
}

/// The path below the directory. Only plain names are allowed: no `..`, no root, nothing that a
/// file system or a URL cannot express.
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
    if relative.components().count() > DEPTH_MAX + 1 {
        return refuse("is in too many folders");
    }
    Ok(relative)
}

impl Directory<'_> {
    /// Creates a file and its folders. No component is ever a symbolic link: the directory was
    /// empty, and only files and folders are created in it. As in tar, a later file of the same name
    /// replaces an earlier one.
    fn create(&mut self, relative: &Path) -> Result<(PathBuf, File), ImportError> {
        self.count_entry()?;
        let target = self.root.join(relative);
        let refuse = |error| ImportError::Write(target.clone(), error);
        if let Some(folder) = relative.parent() {
            self.create_folder(folder)?;
        }
        let file = match File::create_new(&target) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                fs::remove_file(&target).map_err(refuse)?;
                self.unpacked.file_count -= 1;
                File::create_new(&target)
            }
            created => created,
        };
        let file = file.map_err(refuse)?;
        self.unpacked.file_count += 1;
        let mut components = relative.components();
        let (first, second) = (components.next(), components.next());
        let folder = first.filter(|_| second.is_some()).map(Component::as_os_str);
        self.top = match (std::mem::replace(&mut self.top, Top::Several), folder) {
            (Top::Empty, Some(folder)) => Top::Folder(folder.to_owned()),
            (Top::Folder(before), Some(folder)) if before == folder => Top::Folder(before),
            _ => Top::Several,
        };
        Ok((target, file))
    }

    /// Creates a folder and those above it, of which there are at most [`DEPTH_MAX`].
    fn create_folder(&mut self, relative: &Path) -> Result<(), ImportError> {
        let path = self.root.join(relative);
        let error = match fs::create_dir(&path) {
            Ok(()) => {
                self.folder_count += 1;
                let files = self.unpacked.file_count;
                if self.folder_count > FOLDERS_FREE + FOLDERS_PER_FILE * files {
                    let files = counted(files, "file");
                    let what = format!("it has {} folders for {files}", self.folder_count);
                    return Err(ImportError::TooMuch(what));
                }
                return self.count_entry();
            }
            Err(error) => error,
        };
        match (error.kind(), relative.parent()) {
            (io::ErrorKind::AlreadyExists, _) => Ok(()),
            (io::ErrorKind::NotFound, Some(parent)) => {
                self.create_folder(parent)?;
                self.create_folder(relative)
            }
            _ => Err(ImportError::Write(path, error)),
        }
    }

    fn count_entry(&mut self) -> Result<(), ImportError> {
        if self.unpacked.file_count + self.folder_count >= FILES_MAX {
            return Err(ImportError::TooMuch("it has too many files".into()));
        }
        self.account(ENTRY_COST)
    }

    fn copy(
        &mut self,
        content: &mut dyn Read,
        target: &Path,
        file: &mut File,
    ) -> Result<(), ImportError> {
        let unfinished = UnfinishedFile(Some(target));
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
            self.account(count as u64)?;
            self.unpacked.bytes += count as u64;
            file.write_all(&chunk[..count])
                .map_err(|error| ImportError::Write(target.to_path_buf(), error))?;
        }
    }
}

impl Entries for Directory<'_> {
    fn account(&mut self, bytes: u64) -> Result<(), ImportError> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(ImportError::Stopped);
        }
        let Some(left) = self.left.checked_sub(bytes) else {
            let what = "what it unpacks to is more than a hundred times as long as it is";
            return Err(ImportError::TooMuch(what.into()));
        };
        self.left = left;
        Ok(())
    }

    fn file(
        &mut self,
        path: &[u8],
        modified: Option<i64>,
        len: Option<u64>,
        content: &mut dyn Read,
    ) -> Result<(), ImportError> {
        let relative = checked(path)?;
        if let Some(len) = len.filter(|len| *len > self.left) {
            let shown = relative.display();
            return Err(ImportError::TooMuch(format!(
                "with entry '{shown}' of {len} bytes, what it unpacks to is more than a hundred \
                 times as long as it is"
            )));
        }
        let (target, mut file) = self.create(&relative)?;
        self.copy(content, &target, &mut file)?;
        let modified = modified.or(self.modified);
        if let Some(seconds) = modified.and_then(|at| u64::try_from(at).ok()) {
            // A time that the file system cannot represent is not an error.
            if let Some(time) = UNIX_EPOCH.checked_add(Duration::from_secs(seconds)) {
                let _ = file.set_modified(time);
            }
        }
        Ok(())
    }

    fn same_as(&mut self, path: &[u8], before: &[u8]) -> Result<(), ImportError> {
        let before = checked(before)?;
        let source = self.root.join(&before);
        // Links that are not in the archive lead nowhere: the directory was empty.
        if !fs::symlink_metadata(&source).is_ok_and(|it| it.is_file()) {
            self.left_out(path, "a link to something outside the archive");
            return Ok(());
        }
        let relative = checked(path)?;
        if relative == before {
            return Ok(());
        }
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
        if self.unpacked.left_out.len() < LEFT_OUT_LISTED_MAX {
            let path = String::from_utf8_lossy(path);
            self.unpacked.left_out.push(format!("{path}: {why}"));
        }
    }
}
