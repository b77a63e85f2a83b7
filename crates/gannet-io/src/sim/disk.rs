//! The virtual disk: files that are created, replaced, truncated, slow or broken.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;

use crate::driver::{DirectoryEntry, File, FileKind, Meta, OpenedFile, Token};
use crate::files::FileInner;

/// A virtual open file; counted while it lives.
#[derive(Debug)]
pub(crate) struct SimFile {
    pub(super) node: Arc<Mutex<Node>>,
    open_count: Arc<AtomicUsize>,
}

impl Drop for SimFile {
    fn drop(&mut self) {
        self.open_count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A virtual root directory: there is one disk per simulation, so it needs no content.
#[derive(Debug)]
pub(crate) struct SimRoot;

/// What a file is, whatever its name.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) content: Vec<u8>,
    pub(super) meta: Meta,
    /// Reading beyond this offset fails with `EIO`.
    pub(super) broken_at: Option<u64>,
    /// Opening and reading take this long.
    pub(super) slow_ns: u64,
    /// Guards, each told of a waiting change or not yet.
    pub(super) guards: Vec<(Token, Told)>,
    /// Changes that wait for the guards to end.
    waiting: Vec<Change>,
}

/// Whether the holder of a guard has been told that somebody waits.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Told {
    Yes,
    No,
}

/// A change of a file's bytes in place.
#[derive(Clone, Debug)]
pub(super) enum Change {
    Truncate(u64),
    Overwrite(Vec<u8>),
}

/// The tree of names.
#[derive(Debug, Default)]
pub(super) struct Disk {
    /// Paths without leading or trailing slash. Directories exist as long as something is below.
    files: BTreeMap<Vec<u8>, Arc<Mutex<Node>>>,
    next_inode: u64,
    pub(super) open_count: Arc<AtomicUsize>,
}

/// Locks a node; a panicked test left nothing behind that matters.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Disk {
    /// A new file at the path: created, or in the place of the old one, as by rename.
    pub(super) fn put(&mut self, path: &[u8], content: Vec<u8>, now_ns: i128) {
        self.next_inode += 1;
        let meta = Meta {
            kind: FileKind::Regular,
            len: content.len() as u64,
            mtime_ns: now_ns,
            ctime_ns: now_ns,
            identity: (1, self.next_inode),
        };
        let node = Node {
            content,
            meta,
            broken_at: None,
            slow_ns: 0,
            guards: Vec::new(),
            waiting: Vec::new(),
        };
        self.files.insert(path.to_vec(), Arc::new(Mutex::new(node)));
    }

    pub(super) fn remove(&mut self, path: &[u8]) {
        self.files.remove(path);
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
            return Ok(Arc::new(Mutex::new(directory_node(trimmed))));
        }
        // A file where a directory would have to be.
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
    pub(super) fn snapshot(&self, bytes: &[u8]) -> File {
        let meta = Meta {
            kind: FileKind::Regular,
            len: bytes.len() as u64,
            mtime_ns: 0,
            ctime_ns: 0,
            identity: (0, 0),
        };
        let node = Node {
            content: bytes.to_vec(),
            meta,
            broken_at: None,
            slow_ns: 0,
            guards: Vec::new(),
            waiting: Vec::new(),
        };
        self.opened(Arc::new(Mutex::new(node))).file
    }

    fn opened(&self, node: Arc<Mutex<Node>>) -> OpenedFile {
        self.open_count.fetch_add(1, Ordering::Relaxed);
        let meta = lock(&node).meta;
        let file = SimFile {
            node,
            open_count: Arc::clone(&self.open_count),
        };
        OpenedFile {
            file: File(Arc::new(FileInner::Sim(file))),
            meta,
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

    pub(super) fn list(&self, path: &[u8], max: usize) -> Result<Vec<DirectoryEntry>, Errno> {
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
                    let name = rest[..slash].to_vec();
                    let meta = directory_node(&name).meta;
                    entries
                        .entry(name.clone())
                        .or_insert(DirectoryEntry { name, meta });
                }
                None => {
                    let entry = DirectoryEntry {
                        name: rest.to_vec(),
                        meta: lock(node).meta,
                    };
                    entries.insert(rest.to_vec(), entry);
                }
            }
        }
        Ok(entries.into_values().take(max).collect())
    }
}

fn directory_node(path: &[u8]) -> Node {
    // Directories have no identity beyond their path: a number made from it.
    let inode = path.iter().fold(1u64 << 63, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3) | 1 << 63
    });
    let kind = FileKind::Directory;
    let meta = Meta {
        kind,
        len: 4096,
        mtime_ns: 0,
        ctime_ns: 0,
        identity: (1, inode),
    };
    Node {
        content: Vec::new(),
        meta,
        broken_at: None,
        slow_ns: 0,
        guards: Vec::new(),
        waiting: Vec::new(),
    }
}

impl Node {
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

    /// Changes the bytes in place, when the guards let it.
    pub(super) fn change(&mut self, change: Change, now_ns: i128) {
        if self.guards.is_empty() {
            self.apply(change, now_ns);
        } else {
            self.waiting.push(change);
        }
    }

    /// Whether a writer waits for the guards.
    pub(super) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    pub(super) fn unguard(&mut self, token: Token, now_ns: i128) {
        if let Some(index) = self.guards.iter().position(|&(held, _)| held == token) {
            self.guards.remove(index);
        }
        if self.guards.is_empty() {
            for change in std::mem::take(&mut self.waiting) {
                self.apply(change, now_ns);
            }
        }
    }

    fn apply(&mut self, change: Change, now_ns: i128) {
        match change {
            Change::Truncate(len) => self.content.resize(len as usize, 0),
            Change::Overwrite(content) => self.content = content,
        }
        self.meta.len = self.content.len() as u64;
        self.meta.mtime_ns = now_ns;
        self.meta.ctime_ns = now_ns;
    }
}
