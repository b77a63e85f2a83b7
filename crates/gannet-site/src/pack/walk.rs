//! Lists the files of a directory, in an order independent of the file system's.

use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use gannet_archive::{Coding, is_normalised};
use gannet_content::routing::Routing;

use super::compressed_only;
use super::ignore_rules::IgnoreRules;
use super::limits::DEPTH_MAX;
use super::stamps::{Stamp, is_settled, now_ns};
use super::{PackError, PackOptions, Warning};

/// A file to be packed.
#[derive(Clone, Debug)]
pub(super) struct SourceFile {
    /// The number of the host whose folder it is in; 0 for all other hosts, or without hosts.
    pub(super) host: u16,
    /// Its path on the site: decoded, starting with `/`.
    pub(super) url: Vec<u8>,
    /// Where it is.
    pub(super) path: PathBuf,
    /// The coding of the bytes in the file, which is removed when packing.
    pub(super) coding: Coding,
    /// Its uncoded length in bytes when examined.
    pub(super) len: u64,
    /// Its modification time, nanoseconds since the Unix epoch.
    pub(super) mtime_ns: i128,
    /// Its state when examined; equal for several names of one file.
    pub(super) stamp: Stamp,
    /// Whether the stamp may be trusted later.
    pub(super) is_settled: bool,
    /// Whether a pattern asks for it by name.
    pub(super) is_asked_for: bool,
}

/// A skipped file or folder, and why.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Skipped {
    /// Where it is.
    pub path: PathBuf,
    /// The rule or the pattern that excludes it.
    pub rule: String,
    /// The rule is one of the patterns in [`PackOptions::exclude`].
    pub is_excluded: bool,
}

/// The result of a walk.
#[derive(Debug, Default)]
pub(super) struct Tree {
    /// In the order of their paths.
    pub(super) files: Vec<SourceFile>,
    /// In the order of their paths.
    pub(super) skipped: Vec<Skipped>,
    /// Warnings for the user.
    pub(super) warnings: Vec<Warning>,
    /// What could not be read, if the walk went on.
    pub(super) failed: Vec<PackError>,
    /// Links that lead out of the site, in the order of their paths.
    pub(super) outside: Vec<PathBuf>,
}

/// Walks the site of a host in the folder `root`. Symbolic links are followed inside the site, and out of
/// it only if the options say so: the author of the site need not be the one who packs it, and may not choose
/// files of that machine to be published. The archive being written may be inside the site and is never
/// included.
pub(super) fn walk(
    root: &Path,
    host: u16,
    options: &PackOptions,
    found: impl FnMut(u64, u64),
) -> Result<Tree, PackError> {
    walk_as(root, host, options, false, found)
}

/// The same; continues beside files and folders that cannot be read, and links that lead out of the site.
pub(super) fn walk_what_can_be(
    root: &Path,
    options: &PackOptions,
    found: impl FnMut(u64, u64),
) -> Result<Tree, PackError> {
    walk_as(root, 0, options, true, found)
}

fn walk_as(
    root: &Path,
    host: u16,
    options: &PackOptions,
    goes_on: bool,
    mut found: impl FnMut(u64, u64),
) -> Result<Tree, PackError> {
    let canonical = root.canonicalize().map_err(PackError::io("read", root))?;
    let metadata = fs::metadata(root).map_err(PackError::io("read", root))?;
    if !metadata.is_dir() {
        return Err(PackError::NotADirectory(root.to_path_buf()));
    }
    let mut walk = Walk {
        output: fs::metadata(&options.output).ok().map(|file| id(&file)),
        root: canonical,
        follows_out: options.follow_links,
        host,
        routing: &options.routing,
        rules: IgnoreRules::new(options, root)?,
        goes_on,
        tree: Tree::default(),
        chain: vec![id(&metadata)],
        bytes: 0,
        found: &mut found,
    };
    walk.folder(root, b"/")?;
    let mut tree = walk.tree;
    tree.outside.sort();
    if let Some(first) = tree.outside.first().filter(|_| !goes_on) {
        let count = tree.outside.len();
        if !options.follow_links {
            return Err(PackError::LeadsOut(first.clone(), count - 1));
        }
        let first = first.display();
        let text =
            format!("symbolic links out of the site are followed: {count}, such as '{first}'");
        tree.warnings.push(text.into());
    }
    // Bytewise, not folder by folder: the order of the archive's entries.
    tree.files.sort_by(|a, b| a.url.cmp(&b.url));
    if options.compressed_only {
        compressed_only::add(&mut tree, &options.routing)?;
    }
    tree.skipped.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(tree)
}

struct Walk<'f> {
    root: PathBuf,
    /// Links that lead out of the site are followed.
    follows_out: bool,
    host: u16,
    output: Option<(u64, u64)>,
    routing: &'f Routing,
    rules: IgnoreRules,
    goes_on: bool,
    tree: Tree,
    /// The folders from the root to here: a link to one of them is a cycle.
    chain: Vec<(u64, u64)>,
    bytes: u64,
    found: &'f mut dyn FnMut(u64, u64),
}

impl Walk<'_> {
    fn folder(&mut self, path: &Path, url: &[u8]) -> Result<(), PackError> {
        let site = (!self.follows_out).then_some(self.root.as_path());
        self.rules.enter(path, site)?;
        let done = self.items(path, url);
        self.rules.leave();
        done
    }

    fn items(&mut self, path: &Path, url: &[u8]) -> Result<(), PackError> {
        let mut items = Vec::new();
        for item in fs::read_dir(path).map_err(PackError::io("read", path))? {
            let item = item.map_err(PackError::io("read", path))?;
            let kind = item.file_type().map_err(PackError::io("read", path))?;
            items.push((item.file_name(), kind, item));
        }
        // This nearly gives the order of paths.
        items.sort_unstable_by(|a, b| in_paths(&a.0, a.1).cmp(in_paths(&b.0, b.1)));
        for (name, kind, item) in items {
            let path = path.join(&name);
            // Follows symbolic links.
            let metadata = match kind.is_symlink() {
                true => fs::metadata(&path),
                false => item.metadata(),
            };
            match self.item(path, url, &name, kind, metadata) {
                Err(error) if self.goes_on => self.tree.failed.push(error),
                done => done?,
            }
        }
        Ok(())
    }

    fn item(
        &mut self,
        file: PathBuf,
        folder: &[u8],
        name: &OsStr,
        kind: fs::FileType,
        metadata: io::Result<Metadata>,
    ) -> Result<(), PackError> {
        let path = file.as_path();
        // A rule may also exclude a dangling link.
        let is_folder = metadata.as_ref().is_ok_and(Metadata::is_dir);
        if let Some((rule, is_excluded)) = self.rules.against(path, is_folder) {
            self.tree.skipped.push(Skipped {
                path: file,
                rule,
                is_excluded,
            });
            return Ok(());
        }
        let url = [folder, name.as_bytes()].concat();
        if !is_normalised(&url) {
            return self.skip(path, "no request can name it");
        }
        // Ignoring an unusable rules file silently would drop its rules.
        if self.routing.is_rules_file(&url[1..])
            && let Some(what) = no_file(metadata.as_ref())
        {
            return Err(PackError::NoFile(file, what));
        }
        let metadata = match metadata {
            Ok(metadata) => metadata,
            Err(error) if kind.is_symlink() => match broken_link(&error) {
                Some(rule) => return self.skip(path, rule),
                None => return Err(PackError::io("read", path)(error)),
            },
            Err(error) => return Err(PackError::io("read", path)(error)),
        };
        if kind.is_symlink() {
            let target = path.canonicalize().map_err(PackError::io("read", path))?;
            if !target.starts_with(&self.root) {
                self.tree.outside.push(path.to_path_buf());
                if !self.follows_out {
                    // All of them are counted before the walk fails, if it does.
                    return Ok(());
                }
            }
        }
        if metadata.is_dir() {
            return self.inner_folder(path, &url, &metadata);
        }
        if self.output == Some(id(&metadata)) {
            return self.skip(path, "the archive being written");
        }
        if !metadata.is_file() {
            return self.skip(path, "neither a file nor a folder");
        }
        self.bytes += metadata.len();
        self.tree.files.push(SourceFile {
            host: self.host,
            url,
            coding: Coding::Identity,
            len: metadata.len(),
            mtime_ns: metadata.modified().map_or(0, nanoseconds),
            stamp: Stamp::of(&metadata),
            is_settled: is_settled(&metadata, now_ns()),
            is_asked_for: self.rules.asks_for(path),
            path: file,
        });
        (self.found)(self.tree.files.len() as u64, self.bytes);
        Ok(())
    }

    fn inner_folder(
        &mut self,
        path: &Path,
        url: &[u8],
        metadata: &Metadata,
    ) -> Result<(), PackError> {
        let id = id(metadata);
        if self.chain.contains(&id) {
            return self.skip(path, "symbolic link loop");
        }
        if self.chain.len() >= DEPTH_MAX {
            return self.skip(path, "folders too deep");
        }
        self.chain.push(id);
        let done = self.folder(path, &[url, b"/".as_slice()].concat());
        self.chain.pop();
        done
    }

    #[expect(clippy::unnecessary_wraps, reason = "so that callers can end with it")]
    fn skip(&mut self, path: &Path, rule: impl Into<String>) -> Result<(), PackError> {
        self.tree.skipped.push(Skipped {
            path: path.to_path_buf(),
            rule: rule.into(),
            is_excluded: false,
        });
        Ok(())
    }
}

/// How a name sorts among paths: a folder's ends with a slash.
fn in_paths(name: &OsStr, kind: fs::FileType) -> impl Iterator<Item = u8> {
    let slash = kind.is_dir().then_some(b'/');
    name.as_bytes().iter().copied().chain(slash)
}

/// What exists in place of a file that controls the site; `None` for a file, and for conditions
/// that other errors report.
pub(super) fn no_file(metadata: Result<&Metadata, &io::Error>) -> Option<&'static str> {
    let kind = match metadata {
        Ok(metadata) => metadata.file_type(),
        Err(error) => return broken_link(error).map(|_| "a dangling link"),
    };
    match kind {
        _ if kind.is_file() => None,
        _ if kind.is_dir() => Some("a folder"),
        _ if kind.is_fifo() => Some("a FIFO"),
        _ if kind.is_socket() => Some("a socket"),
        _ => Some("a device"),
    }
}

/// Why a link is broken, if it is.
fn broken_link(error: &io::Error) -> Option<&'static str> {
    if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) {
        return Some("symbolic link loop");
    }
    let is_nothing = matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    );
    is_nothing.then_some("dangling symbolic link")
}

/// Identifies a file or folder, independent of its names.
fn id(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

fn nanoseconds(time: SystemTime) -> i128 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => after.as_nanos() as i128,
        Err(before) => -(before.duration().as_nanos() as i128),
    }
}
