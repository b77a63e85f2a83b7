//! Extracts the files of an archive into a directory.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use gannet_archive::{Archive, Coding, Entry, EntryKind, Namespace, is_normalised};

use super::unpacked_rules::{read_options, rules_files};
use super::{ArchiveFile, SiteError, host_name, url};
use crate::host_folders::DEFAULT_FOLDER;
use crate::pack::PackOptions;

/// What to extract, and where to.
#[derive(Clone, Debug)]
pub struct ExtractOptions {
    /// The archive.
    pub archive: PathBuf,
    /// A directory that is empty or does not exist yet.
    pub output: PathBuf,
}

/// What was extracted.
#[derive(Clone, Debug)]
pub struct ExtractReport {
    /// The number of files, including rules files.
    pub file_count: u64,
    /// Their total length in bytes.
    pub bytes: u64,
    /// The options with which the directory packs to the same site; they are recorded in no file.
    pub packing: PackOptions,
}

/// Writes every file of an archive under its path, with its modification time if that is known, and its
/// rules as `_redirects` and `_headers`. Other names of files, slash redirects and listings are
/// omitted, since packing recreates them, and files of earlier releases that are carried on. If the
/// archive has virtual hosts, each has a folder of its own.
///
/// Nothing is written outside the directory. Paths in an archive have no `..`; the directory is
/// empty at the start, and files are only ever created, so no symbolic link is followed.
///
/// # Errors
///
/// The archive cannot be opened or read, its bytes are damaged, or a file cannot be written.
pub fn extract(options: &ExtractOptions) -> Result<ExtractReport, SiteError> {
    let file = ArchiveFile::open(&options.archive)?;
    prepare(&options.output)?;
    let archive = file.archive();
    let has_hosts = archive.hosts().len() > 0;
    let root = |host| match has_hosts {
        false => options.output.clone(),
        true => options.output.join(host_folder(archive, host)),
    };
    // Rules that no file can express are reported before anything is written.
    let rules = rules_files(&file)?;
    let mut report = ExtractReport {
        file_count: 0,
        bytes: 0,
        packing: PackOptions::new(&options.output, &options.archive),
    };
    read_options(&file, &mut report.packing)?;
    for entry in archive.entries() {
        let is_file = entry.key().namespace == Namespace::Content
            && entry.kind() == EntryKind::Content
            && !entry.is_alias()
            && !entry.is_generated()
            && entry.carried_since().is_none();
        if is_file {
            let target = root(entry.key().host).join(relative(&entry)?);
            report.bytes += write_file(&file, &entry, &target)?;
            report.file_count += 1;
        }
    }
    for rules in rules {
        write_rules(&root(rules.host).join(rules.name), &rules.text)?;
        report.bytes += rules.text.len() as u64;
        report.file_count += 1;
    }
    Ok(report)
}

fn write_rules(target: &Path, text: &str) -> Result<(), SiteError> {
    let write = |error| SiteError::io("write", target)(error);
    if let Some(folder) = target.parent() {
        fs::create_dir_all(folder).map_err(SiteError::io("create", folder))?;
    }
    let mut out = File::create_new(target).map_err(write)?;
    let unfinished = UnfinishedFile(Some(target));
    io::Write::write_all(&mut out, text.as_bytes()).map_err(write)?;
    unfinished.keep();
    Ok(())
}

/// Removes a file on drop unless it was completed.
pub(crate) struct UnfinishedFile<'p>(pub(crate) Option<&'p Path>);

impl UnfinishedFile<'_> {
    /// Keeps the file.
    pub(crate) fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for UnfinishedFile<'_> {
    fn drop(&mut self) {
        if let Some(path) = self.0 {
            // The original error is reported, so a failure to remove is ignored.
            let _ = fs::remove_file(path);
        }
    }
}

/// The folder of a virtual host, as packing expects it. Host names contain no slash.
fn host_folder(archive: &Archive<Vec<u8>>, host: u16) -> &str {
    match host_name(archive, host) {
        "" => DEFAULT_FOLDER,
        name => name,
    }
}

/// Creates a directory, which must be empty if it exists.
///
/// # Errors
/// The directory cannot be created or read, or is not empty.
pub fn prepare(output: &Path) -> Result<(), SiteError> {
    fs::create_dir_all(output).map_err(SiteError::io("create", output))?;
    let mut items = fs::read_dir(output).map_err(SiteError::io("read", output))?;
    match items.next() {
        None => Ok(()),
        Some(_) => Err(SiteError::NotEmpty(output.to_path_buf())),
    }
}

/// The path of an entry below the directory. Archives are checked when they are opened; the path is
/// checked again here, where a mistake could write anywhere.
fn relative<'a>(entry: &Entry<'a>) -> Result<&'a Path, SiteError> {
    let path = entry.path();
    let refuse = |why| SiteError::Unsafe {
        path: url(path),
        why,
    };
    if !is_normalised(path) {
        return Err(refuse("its path leads outside the directory"));
    }
    match path.strip_prefix(b"/") {
        Some(relative) if !relative.is_empty() && !relative.ends_with(b"/") => {
            Ok(Path::new(OsStr::from_bytes(relative)))
        }
        _ => Err(refuse("its path is also a folder")),
    }
}

fn write_file(file: &ArchiveFile, entry: &Entry<'_>, target: &Path) -> Result<u64, SiteError> {
    let write = |error| SiteError::io("write", target)(error);
    if let Some(folder) = target.parent() {
        fs::create_dir_all(folder).map_err(SiteError::io("create", folder))?;
    }
    let damaged = |what: String| SiteError::Damaged {
        archive: file.path().to_path_buf(),
        what: format!("{what} of '{}'", url(entry.path())),
    };
    let content = file
        .content(entry)
        .map_err(SiteError::io("read", file.path()))?;
    let Some(mut content) = content else {
        return Err(damaged("no content".into()));
    };
    let mut out = File::create_new(target).map_err(write)?;
    let unfinished = UnfinishedFile(Some(target));
    let mut hashing = Hashing {
        out: &mut out,
        hasher: blake3::Hasher::new(),
    };
    let len = match io::copy(&mut content, &mut hashing) {
        Ok(len) => len,
        // Decoders report corrupt input by this kind; other errors are the disk's.
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            return Err(damaged(format!("{error}: coded bytes")));
        }
        Err(error) => return Err(write(error)),
    };
    let digest = hashing.hasher.finalize();
    if let Some(identity) = entry.select(Coding::Identity.into())
        && identity.digest() != digest.as_bytes()
    {
        return Err(damaged("wrong digest".into()));
    }
    if let Some(seconds) = entry.last_modified().and_then(|at| u64::try_from(at).ok()) {
        out.set_modified(UNIX_EPOCH + Duration::from_secs(seconds))
            .map_err(write)?;
    }
    unfinished.keep();
    Ok(len)
}

/// Hashes the bytes written.
struct Hashing<'f> {
    out: &'f mut File,
    hasher: blake3::Hasher,
}

impl io::Write for Hashing<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.out.write(bytes)?;
        self.hasher.update(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
