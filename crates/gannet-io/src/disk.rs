//! Files: opening below a root, metadata, reading, listing, copying.
//!
//! Both real engines have the same disk ([`os_disk`](crate::os_disk)); the simulator has its own.
//!
//! # Order of calls
//!
//! The server opens a [`Root`] at start, and then paths below it:
//!
//! ```text
//!   open ─▶ OpenedFile ─▶ read, copy, meta, or Network::send_file ─▶ dropped
//!   peek, survey, list: by path; no descriptor remains open
//! ```
//!
//! `peek` and `meta` never wait. A call that returns [`Started`] ends at once if nothing has to be
//! waited for, and otherwise by a completion of a later wait, with the given token. An operation
//! that has begun cannot be cancelled: a caller that has lost interest drops the completion. A file
//! may be dropped at any time: operations begun with it keep it open.

use std::fmt;
use std::ops::Range;

use rustix::io::Errno;

use crate::file::{File, OpenedFile};
use crate::meta::{DirectoryEntry, Meta};
use crate::operation::{Started, Token};
use crate::root::Root;
use crate::survey::{KeepName, Survey};

/// The result of reading a directory.
#[derive(Debug)]
pub struct Listed {
    /// The directory's own metadata, from its descriptor, before the first entry was read.
    pub meta: Meta,
    /// What [`Render`] made of the entries.
    pub rendered: Vec<u8>,
}

/// Turns the entries of a directory into bytes. It runs where the directory is read, off the
/// caller's thread: sorting and rendering 100,000 entries takes a tenth of a second.
pub struct Render(Box<RenderFn>);

type RenderFn = dyn FnOnce(Vec<DirectoryEntry>, bool) -> Vec<u8> + Send;

impl Render {
    /// Renders with this function; its second argument is whether the directory has more entries.
    pub fn new(render: impl FnOnce(Vec<DirectoryEntry>, bool) -> Vec<u8> + Send + 'static) -> Self {
        Self(Box::new(render))
    }

    pub(crate) fn run(self, (entries, is_partial): (Vec<DirectoryEntry>, bool)) -> Vec<u8> {
        (self.0)(entries, is_partial)
    }
}

impl fmt::Debug for Render {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Render")
    }
}

/// The file side of an engine.
pub trait Disk {
    /// Under a memory limit, starts a helper thread for files, as there might be no room for it later.
    /// To be called by the thread that will use the engine, once it is confined: threads inherit
    /// their [`sandbox`](crate::sandbox).
    fn start_helpers(&mut self) {}

    /// Opens `path` (relative, no leading slash, `""` for the root itself) below `root`, following
    /// symbolic links only inside it (`openat2`: `RESOLVE_BENEATH`, no magic links), without
    /// blocking on FIFOs or devices, and reads its metadata from the descriptor. Only regular files
    /// and directories are opened for reading; others are returned as
    /// [`FileKind::Other`](crate::meta::FileKind::Other).
    ///
    /// Errors: `ENOENT`, `ENOTDIR`, `EACCES`, `ELOOP`, `ENAMETOOLONG`, `EXDEV` (left the root),
    /// `EMFILE`, `EIO`, ...
    fn open(&mut self, root: &Root, path: &[u8], token: Token) -> Started<OpenedFile>;

    /// As [`open`](Self::open), for a path that was a regular file or a directory a moment ago: see
    /// [`Survey::is_plain`]. A first lookup that has no side effects is left out. If a FIFO or a
    /// device took the path meanwhile, it is opened as well, without waiting, and closed again when
    /// the result is dropped.
    ///
    /// If the call ends at once and the file has at most `ahead` bytes (at most
    /// [`READ_AHEAD_MAX`](crate::limits::READ_AHEAD_MAX)), all in memory, they are read first, and the
    /// metadata afterwards. So if these say that it was last changed before the call, by a clock of this
    /// machine, the bytes are the version that they describe. Nothing is read ahead on a file system of
    /// another machine or process.
    fn open_plain(
        &mut self,
        root: &Root,
        path: &[u8],
        ahead: usize,
        token: Token,
    ) -> Started<OpenedFile>;

    /// Reads at most `max` names of the directory `path` below `root`, always on a helper thread.
    /// `keep` has what is kept of each.
    ///
    /// # Errors
    /// `EXDEV` on another mount than the root's, and where any call may hang.
    fn survey(
        &mut self,
        root: &Root,
        path: &[u8],
        max_and_keep: (usize, KeepName),
        token: Token,
    ) -> Started<Survey>;

    /// The metadata of the file that `path` names below `root` now, if available at once. `None`
    /// where [`open`](Self::open) would fail, and where the query might wait: the kernel does not
    /// have all of the path cached, or the path leads to another mount than the root's, or the root
    /// itself is on another machine's file system. Only `open` gives the answer then.
    fn peek(&self, root: &Root, path: &[u8]) -> Option<Meta>;

    /// The metadata of an open file, now.
    fn meta(&self, file: &File) -> Result<Meta, Errno>;

    /// Whether no process can change the file's bytes: see [`Fixed`](crate::fixed::Fixed).
    fn cannot_change(&self, file: &File) -> bool;

    /// Reads `len` bytes at `offset` (fewer only at the end of the file).
    fn read(&mut self, file: &File, offset: u64, len: usize, token: Token) -> Started<Vec<u8>>;

    /// Reads the directory `path` below `root` (at most `max` entries, in no particular order, with
    /// names of at most [`LISTED_NAMES_MAX`](crate::limits::LISTED_NAMES_MAX) bytes) and renders them,
    /// both always on a helper thread. A directory on a file system of another machine or process, or
    /// on another mount than the root's, is read only if the call may hang; otherwise the result is
    /// `EXDEV`.
    fn list(
        &mut self,
        root: &Root,
        path: &[u8],
        max_and_may_hang: (usize, bool),
        render: Render,
        token: Token,
    ) -> Started<Listed>;

    /// Copies a range of `file`, always on a helper thread, to an immutable file in memory, whose
    /// pages may stay in any queue for any length of time. Whether the copy is one version of the
    /// file is for the caller to check, from the metadata before and after.
    ///
    /// # Errors
    /// `EMFILE`, `ENFILE`, `ENOMEM`; `ENODATA` when the file is shorter.
    fn copy(&mut self, file: &File, range: Range<u64>, token: Token) -> Started<File>;

    /// Short copies share pages of at most `max` bytes from now on. Returns how many bytes of such pages no copy
    /// has: they are free only when all copies of their page are gone.
    fn share_copies(&mut self, max: u64) -> u64;

    /// Drops operations that are no longer awaited and have not begun: those whose socket is
    /// closed, and those for whose token `is_awaited` returns false. They do not complete.
    /// `is_awaited` may itself drop files.
    fn drop_unawaited(&mut self, is_awaited: &mut dyn FnMut(Token) -> bool);

    /// Returns a vector that [`read`](Self::read) delivered, for reuse.
    fn give_back(&mut self, bytes: Vec<u8>) {
        drop(bytes);
    }
}
