//! The virtual disk: files that are created, replaced, truncated, slow or broken.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;

use crate::file::{File, OpenedFile};
use crate::meta::{DirectoryEntry, FileKind, Meta};
use crate::sim::shared_pages::{SimPages, SimPart};

/// A virtual open file; counted while it lives.
#[derive(Debug)]
pub(super) struct SimFile {
    pub(super) node: Arc<Mutex<Node>>,
    open_count: Arc<AtomicUsize>,
    copied: Option<Copied>,
}

/// For a copy: the count of all bytes of copies in memory, its own, and its part of a page, if it has one.
type Copied = (Arc<AtomicU64>, u64, Option<SimPart>);

impl Drop for SimFile {
    fn drop(&mut self) {
        self.open_count.fetch_sub(1, Ordering::Relaxed);
        if let Some((copied, len, _)) = &self.copied {
            copied.fetch_sub(*len, Ordering::Relaxed);
        }
    }
}

/// A file, independent of its names.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) content: Vec<u8>,
    pub(super) meta: Meta,
    /// The metadata after a removal of its name, which takes the kernel two steps, has completed.
    next_meta: Option<Meta>,
    /// Reading beyond this offset fails with `EIO`.
    pub(super) broken_at: Option<u64>,
    /// Opening and reading take this long.
    pub(super) slow_ns: u64,
    pub(super) cannot_change: bool,
    /// A change that happens after so many further calls that see the bytes or the metadata.
    next_change: Option<(u32, Change)>,
    /// What each call that sees it is followed by.
    pub(super) appended: Vec<u8>,
}

/// A change of a file's bytes in place.
#[derive(Clone, Debug)]
pub(super) enum Change {
    Truncate(u64),
    Overwrite(Vec<u8>),
    /// The first half of a write of as many bytes as the file has: it sets the times.
    Begin(Vec<u8>),
    /// The second half.
    End(Vec<u8>),
}

/// The tree of names.
#[derive(Debug, Default)]
pub(super) struct DiskTree {
    /// Paths without leading or trailing slash. Directories exist as long as something is below.
    files: BTreeMap<Vec<u8>, Arc<Mutex<Node>>>,
    /// When a name in a directory last changed. (A name far below counts as well: its folders may
    /// have been created with it.)
    changed: BTreeMap<Vec<u8>, i128>,
    next_inode: u64,
    pub(super) open_count: Arc<AtomicUsize>,
    /// Bytes of copies in memory.
    pub(super) copied: Arc<AtomicU64>,
    /// What short ones of them share.
    pub(super) pages: SimPages,
    /// A folder on another machine, and how long listing anything in it takes.
    pub(super) foreign: Option<(Vec<u8>, u64)>,
    /// Copying any file takes this long at least.
    pub(super) copy_ns: u64,
}

/// Locks a node; a panicked test leaves nothing behind that matters.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl DiskTree {
    /// A new file at the path: created, or replacing the old one as by rename.
    pub(super) fn put(&mut self, path: &[u8], content: Vec<u8>, now_ns: i128) {
        self.next_inode += 1;
        let meta = Meta {
            kind: FileKind::Regular,
            len: content.len() as u64,
            mtime_ns: now_ns,
            ctime_ns: now_ns,
            identity: (1, self.next_inode),
            links: 1,
        };
        let node = Node {
            content,
            meta,
            next_meta: None,
            broken_at: None,
            slow_ns: 0,
            cannot_change: false,
            next_change: None,
            appended: Vec::new(),
        };
        let before = self.files.insert(path.to_vec(), Arc::new(Mutex::new(node)));
        unlink(before, now_ns);
        self.touch_directories(path, now_ns);
    }

    pub(super) fn remove(&mut self, path: &[u8], now_ns: i128) {
        unlink(self.files.remove(path), now_ns);
        self.touch_directories(path, now_ns);
    }

    fn touch_directories(&mut self, path: &[u8], now_ns: i128) {
        let mut parent = path;
        while let Some(slash) = parent.iter().rposition(|&byte| byte == b'/') {
            parent = &parent[..slash];
            self.changed.insert(parent.to_vec(), now_ns);
        }
        self.changed.insert(Vec::new(), now_ns);
    }

    /// Makes every file older by this much.
    pub(super) fn age(&mut self, ns: i128) {
        for node in self.files.values() {
            let meta = &mut lock(node).meta;
            meta.mtime_ns -= ns;
            meta.ctime_ns -= ns;
        }
    }

    pub(super) fn node(&self, path: &[u8]) -> Option<&Arc<Mutex<Node>>> {
        self.files.get(path)
    }

    pub(super) fn open(&self, path: &[u8]) -> Result<OpenedFile, Errno> {
        self.find(path).map(|node| self.opened(node))
    }

    pub(super) fn meta(&self, path: &[u8]) -> Result<Meta, Errno> {
        self.find(path).map(|node| lock(&node).meta)
    }

    fn find(&self, path: &[u8]) -> Result<Arc<Mutex<Node>>, Errno> {
        let trimmed = path.strip_suffix(b"/").unwrap_or(path);
        if let Some(node) = self.files.get(trimmed) {
            if trimmed.len() < path.len() {
                return Err(Errno::NOTDIR);
            }
            return Ok(Arc::clone(node));
        }
        if self.is_directory(trimmed) {
            return Ok(Arc::new(Mutex::new(self.directory_node(trimmed))));
        }
        // A file where there would have to be a directory.
        let mut parent = trimmed;
        while let Some(slash) = parent.iter().rposition(|&byte| byte == b'/') {
            parent = &parent[..slash];
            if self.files.contains_key(parent) {
                return Err(Errno::NOTDIR);
            }
        }
        Err(Errno::NOENT)
    }

    /// A file without a name, which nothing can change.
    pub(super) fn snapshot(&mut self, bytes: &[u8]) -> File {
        let meta = Meta {
            kind: FileKind::Regular,
            len: bytes.len() as u64,
            mtime_ns: 0,
            ctime_ns: 0,
            identity: (0, 0),
            links: 0,
        };
        let node = Node {
            content: bytes.to_vec(),
            meta,
            next_meta: None,
            broken_at: None,
            slow_ns: 0,
            cannot_change: false,
            next_change: None,
            appended: Vec::new(),
        };
        let len = bytes.len() as u64;
        self.copied.fetch_add(len, Ordering::Relaxed);
        let copied = Some((Arc::clone(&self.copied), len, self.pages.part(len)));
        self.open_as(Arc::new(Mutex::new(node)), copied).file
    }

    fn opened(&self, node: Arc<Mutex<Node>>) -> OpenedFile {
        self.open_as(node, None)
    }

    fn open_as(&self, node: Arc<Mutex<Node>>, copied: Option<Copied>) -> OpenedFile {
        self.open_count.fetch_add(1, Ordering::Relaxed);
        let meta = lock(&node).meta;
        let file = SimFile {
            node,
            open_count: Arc::clone(&self.open_count),
            copied,
        };
        OpenedFile {
            file: File::of_virtual(file),
            meta,
            content: Vec::new(),
        }
    }

    fn is_directory(&self, path: &[u8]) -> bool {
        path.is_empty() || self.below(path).next().is_some()
    }

    /// Paths below a directory, relative to it.
    fn below<'a>(
        &'a self,
        path: &'a [u8],
    ) -> impl Iterator<Item = (&'a [u8], &'a Arc<Mutex<Node>>)> {
        self.files.iter().filter_map(move |(name, node)| {
            let rest = if path.is_empty() {
                name.as_slice()
            } else {
                name.strip_prefix(path)?.strip_prefix(b"/")?
            };
            Some((rest, node))
        })
    }

    /// How long listing a path on another machine takes.
    pub(super) fn foreign_ns(&self, path: &[u8]) -> Option<u64> {
        let (folder, slow_ns) = self.foreign.as_ref()?;
        path.starts_with(folder).then_some(*slow_ns)
    }

    pub(super) fn list(
        &self,
        path: &[u8],
        max: usize,
    ) -> Result<(Vec<DirectoryEntry>, bool), Errno> {
        if self.files.contains_key(path) {
            return Err(Errno::NOTDIR);
        }
        if !self.is_directory(path) {
            return Err(Errno::NOENT);
        }
        let mut entries = BTreeMap::new();
        for (rest, node) in self.below(path) {
            match rest.iter().position(|&byte| byte == b'/') {
                Some(slash) => {
                    let name = &rest[..slash];
                    let full = match path {
                        b"" => name.to_vec(),
                        _ => [path, b"/", name].concat(),
                    };
                    let meta = self.directory_node(&full).meta;
                    let entry = entries.entry(name.to_vec());
                    entry.or_insert_with(|| DirectoryEntry::new(name, &meta));
                }
                None => {
                    let entry = DirectoryEntry::new(rest, &lock(node).meta);
                    entries.insert(rest.to_vec(), entry);
                }
            }
        }
        let is_partial = entries.len() > max;
        Ok((entries.into_values().take(max).collect(), is_partial))
    }

    fn directory_node(&self, path: &[u8]) -> Node {
        // Directories have no identity beyond their path: a number derived from it.
        let inode = path.iter().fold(1u64 << 63, |hash, &byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3) | 1 << 63
        });
        let kind = FileKind::Directory;
        let changed_ns = self.changed.get(path).copied().unwrap_or(0);
        let meta = Meta {
            kind,
            len: 4096,
            mtime_ns: changed_ns,
            ctime_ns: changed_ns,
            identity: (1, inode),
            links: 1,
        };
        Node {
            content: Vec::new(),
            meta,
            next_meta: None,
            broken_at: None,
            slow_ns: 0,
            cannot_change: false,
            next_change: None,
            appended: Vec::new(),
        }
    }
}

impl Node {
    /// The answer to a query of an open file's metadata.
    pub(super) fn query(&mut self) -> Meta {
        let next = self.next_meta.take().unwrap_or(self.meta);
        std::mem::replace(&mut self.meta, next)
    }

    /// Bytes of the range that can be read before the end of the file or a broken place.
    pub(super) fn read(&self, offset: u64, len: u64) -> Result<&[u8], Errno> {
        if self.meta.kind != FileKind::Regular {
            return Err(Errno::ISDIR);
        }
        let end_of_file = self.content.len() as u64;
        let mut end = offset.saturating_add(len).min(end_of_file);
        if offset >= end {
            return Ok(&[]);
        }
        if let Some(broken) = self.broken_at {
            if offset >= broken {
                return Err(Errno::IO);
            }
            end = end.min(broken);
        }
        Ok(&self.content[offset as usize..end as usize])
    }

    /// Has a change happen after so many further calls.
    pub(super) fn change_after(&mut self, calls: u32, change: Change) {
        self.next_change = Some((calls, change));
    }

    /// A call has seen it: perhaps it changes now.
    pub(super) fn seen(&mut self, now_ns: i128) {
        if !self.appended.is_empty() {
            let longer = [&self.content[..], &self.appended].concat();
            self.change(Change::Overwrite(longer), now_ns);
        }
        match self.next_change.take() {
            Some((0 | 1, change)) => self.change(change, now_ns),
            Some((calls, change)) => self.next_change = Some((calls - 1, change)),
            None => {}
        }
    }

    /// Changes the bytes in place.
    pub(super) fn change(&mut self, change: Change, now_ns: i128) {
        match change {
            Change::Truncate(len) => self.content.resize(len as usize, 0),
            Change::Overwrite(content) => self.content = content,
            Change::Begin(content) => {
                let half = content.len() / 2;
                self.content[..half].copy_from_slice(&content[..half]);
            }
            Change::End(content) => return self.content = content,
        }
        self.meta.len = self.content.len() as u64;
        self.meta.mtime_ns = now_ns;
        self.meta.ctime_ns = now_ns;
    }
}

/// A file has lost its name, which changes its status. One query sees the state between the two
/// steps, which come in either order.
fn unlink(node: Option<Arc<Mutex<Node>>>, now_ns: i128) {
    if let Some(node) = node {
        let mut node = lock(&node);
        let after = Meta {
            links: 0,
            ctime_ns: now_ns,
            ..node.meta
        };
        match node.meta.identity.1 % 2 {
            0 => node.meta.links = 0,
            _ => node.meta.ctime_ns = now_ns,
        }
        node.next_meta = Some(after);
    }
}
