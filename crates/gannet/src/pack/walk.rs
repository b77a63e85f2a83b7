//! The files of a site: what is in a directory, in one order whatever the file system's.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use gannet_archive::is_normalised;

use super::PackError;
use super::ignore_rules::rule_against;
use super::limits::DEPTH_MAX;

/// A file that is to be packed.
#[derive(Clone, Debug)]
pub(super) struct SourceFile {
    /// Its path on the site: decoded, starting with `/`.
    pub(super) url: Vec<u8>,
    /// Where it is.
    pub(super) path: PathBuf,
    /// Its length in bytes when it was seen.
    pub(super) len: u64,
    /// Its modification time, nanoseconds since the Unix epoch.
    pub(super) mtime_ns: i128,
}

/// What was left out, and why.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Skipped {
    /// Where it is.
    pub path: PathBuf,
    /// The rule that leaves it out.
    pub rule: &'static str,
}

/// What a walk has found.
#[derive(Debug, Default)]
pub(super) struct Tree {
    /// In the order of their paths.
    pub(super) files: Vec<SourceFile>,
    /// In the order of their paths.
    pub(super) skipped: Vec<Skipped>,
}

/// Walks through `root`. Symbolic links are followed where they stay in it; `output` is the archive
/// being made, which may lie in the site and is never a part of it.
pub(super) fn walk(
    root: &Path,
    output: &Path,
    with_dotfiles: bool,
    mut found: impl FnMut(u64, u64),
) -> Result<Tree, PackError> {
    let canonical = root.canonicalize().map_err(PackError::io("read", root))?;
    if !canonical.is_dir() {
        return Err(PackError::NotADirectory(root.to_path_buf()));
    }
    let mut walk = Walk {
        output: canonical_output(output),
        root: canonical.clone(),
        with_dotfiles,
        tree: Tree::default(),
        chain: vec![canonical],
        bytes: 0,
        found: &mut found,
    };
    walk.folder(root, b"/")?;
    let mut tree = walk.tree;
    // Bytes, not the order of folders: what the archive's entries are sorted by, too.
    tree.files.sort_by(|a, b| a.url.cmp(&b.url));
    tree.skipped.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(tree)
}

/// The output does not exist yet, as a rule; its folder does.
fn canonical_output(output: &Path) -> Option<PathBuf> {
    let folder = match output.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    Some(folder.canonicalize().ok()?.join(output.file_name()?))
}

struct Walk<'f> {
    root: PathBuf,
    output: Option<PathBuf>,
    with_dotfiles: bool,
    tree: Tree,
    /// The canonical folders from the root to here: a link to one of them is a circle.
    chain: Vec<PathBuf>,
    bytes: u64,
    found: &'f mut dyn FnMut(u64, u64),
}

impl Walk<'_> {
    fn folder(&mut self, path: &Path, url: &[u8]) -> Result<(), PackError> {
        for item in fs::read_dir(path).map_err(PackError::io("read", path))? {
            let item = item.map_err(PackError::io("read", path))?;
            self.item(&path.join(item.file_name()), url, &item.file_name())?;
        }
        Ok(())
    }

    fn item(&mut self, path: &Path, folder: &[u8], name: &OsStr) -> Result<(), PackError> {
        if let Some(rule) = rule_against(name.as_bytes(), self.with_dotfiles) {
            return self.skip(path, rule);
        }
        let url = [folder, name.as_bytes()].concat();
        if !is_normalised(&url) {
            return self.skip(path, "no request can name it");
        }
        let kind = fs::symlink_metadata(path).map_err(PackError::io("read", path))?;
        let target = if kind.is_symlink() {
            match self.target(path) {
                Ok(target) => target,
                Err(rule) => return self.skip(path, rule),
            }
        } else {
            self.chain.last().unwrap_or(&self.root).join(name)
        };
        let metadata = fs::metadata(path).map_err(PackError::io("read", path))?;
        if metadata.is_dir() {
            if self.chain.contains(&target) {
                return self.skip(path, "symbolic link in a circle");
            }
            if self.chain.len() >= DEPTH_MAX {
                return self.skip(path, "folders too deep");
            }
            self.chain.push(target);
            self.folder(path, &[&url, b"/".as_slice()].concat())?;
            self.chain.pop();
        } else if self.output.as_ref() == Some(&target) {
            return self.skip(path, "the archive being written");
        } else if metadata.is_file() {
            self.bytes += metadata.len();
            self.tree.files.push(SourceFile {
                url,
                path: path.to_path_buf(),
                len: metadata.len(),
                mtime_ns: metadata.modified().map_or(0, nanoseconds),
            });
            (self.found)(self.tree.files.len() as u64, self.bytes);
        } else {
            return self.skip(path, "neither file nor folder");
        }
        Ok(())
    }

    /// Where a symbolic link leads, if it may be followed.
    fn target(&self, path: &Path) -> Result<PathBuf, &'static str> {
        match path.canonicalize() {
            Ok(target) if target.starts_with(&self.root) => Ok(target),
            Ok(_) => Err("symbolic link out of the site"),
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => {
                Err("symbolic link in a circle")
            }
            Err(_) => Err("symbolic link to nothing"),
        }
    }

    #[expect(clippy::unnecessary_wraps, reason = "so that callers can end with it")]
    fn skip(&mut self, path: &Path, rule: &'static str) -> Result<(), PackError> {
        self.tree.skipped.push(Skipped {
            path: path.to_path_buf(),
            rule,
        });
        Ok(())
    }
}

fn nanoseconds(time: SystemTime) -> i128 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => after.as_nanos() as i128,
        Err(before) => -(before.duration().as_nanos() as i128),
    }
}
