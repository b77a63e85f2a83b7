//! What a worker serves: an archive or a live directory, each answering by canonical path.

pub(crate) mod archive;
pub(crate) mod directory;
pub(crate) mod files;
pub(crate) mod inflated;
pub(crate) mod rules;
pub(crate) mod sites;

use std::borrow::Cow;
use std::cell::{Cell, OnceCell};
use std::rc::Rc;
use std::sync::Arc;

use gannet_content::plan::Representation;
use gannet_http::semantics::coding::CodingSet;
use gannet_http::semantics::response::{ReadyBlock, Status};
use gannet_io::driver::{File, Meta};
use gannet_io::memory::Memory;

/// What a worker serves.
pub(crate) enum Site {
    /// A compiled archive.
    Archive(archive::ArchiveSite),
    /// A live directory, or one file of it.
    Directory(directory::DirectorySite),
}

/// What a path came to.
pub(crate) enum Resolved<'s> {
    /// A representation to send (or its page for 404).
    Selected(Selected<'s>),
    /// Elsewhere on this host: a path, encoded, without the query.
    Redirect(Cow<'s, [u8]>),
    /// Elsewhere, as a rule says: the whole location.
    Elsewhere(Status, Vec<u8>),
    /// An error with a page of our own.
    Error(Status),
}

/// The selected representation of a resource.
#[derive(Clone, Copy)]
pub(crate) struct Selected<'s> {
    /// 200, or the status that this page stands for.
    pub(crate) status: Status,
    /// Its fields, ready for HTTP/1.
    pub(crate) block: ReadyBlock<'s>,
    /// What conditions and ranges are evaluated against.
    pub(crate) representation: Representation<'s>,
    /// For the parts of a multipart answer.
    pub(crate) content_type: &'s [u8],
    /// Where the bytes are.
    pub(crate) source: Source<'s>,
    /// Its SHA-256, once somebody has asked for it; `None` if it cannot be had cheaply.
    pub(crate) sha256: Option<&'s OnceCell<[u8; 32]>>,
    /// The block is what the site's rules make of it for this request.
    pub(crate) is_ruled: bool,
}

/// Where the bytes of a representation are.
#[derive(Clone, Copy)]
pub(crate) enum Source<'s> {
    /// In memory that is always safe to read.
    Bytes(&'s [u8]),
    /// In shared memory, from this offset; possibly a mapping that only the kernel may read.
    Memory(&'s Arc<Memory>, usize),
    /// In a file, from this offset.
    File(&'s Rc<ServedFile>, u64),
    /// In memory, when it is inflated. That is for who has to send bytes of it.
    Gzip(inflated::GzipBody<'s>),
}

/// A file that responses are sent from.
pub(crate) struct ServedFile {
    /// The descriptor.
    pub(crate) file: File,
    /// How its bytes may leave.
    pub(crate) trust: Cell<Trust>,
    /// Names the file within its worker, for guards; `u32::MAX` if it is in no list.
    pub(crate) id: u32,
    /// What was known of a live file when it was opened; `None` for an archive.
    pub(crate) meta: Option<Meta>,
    /// The list that it is in, and that has to end its guard when it is dropped. A file that
    /// cannot change is in none.
    pub(crate) files: Option<files::ServedFiles>,
}

impl Drop for ServedFile {
    fn drop(&mut self) {
        let Some(files) = &self.files else { return };
        let is_guarded = matches!(self.trust.get(), Trust::Guarded | Trust::Broken);
        files.drop_file(self.id, is_guarded.then(|| self.file.clone()));
    }
}

impl ServedFile {
    /// Whether bytes read from it are still those of the version that was announced, going by its
    /// metadata now. A file that has only become longer is taken to be one that is appended to.
    /// (The time of the last status change says nothing: a rename or a deletion sets it too.)
    pub(crate) fn is_same_version(&self, now: &Meta) -> bool {
        let is_same = |then: Meta| then.len == now.len && then.mtime_ns == now.mtime_ns;
        self.meta
            .is_none_or(|then| is_same(then) || now.len > then.len)
    }
}

/// Whether page-cache pages of a file may sit in socket queues.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Trust {
    /// Yes: by its kind the file cannot change (sealed memory, an archive).
    Constant,
    /// Yes: a guard stands, and we are told before a writer gets at it.
    Guarded,
    /// No: it may be truncated at any time, and pages of it would then be sent as zeros. Its
    /// bytes are read first.
    Copies,
    /// No more: a writer is waiting for the guard to end.
    Broken,
}

/// What of a request decides the representation.
#[derive(Clone, Copy)]
pub(crate) struct Wanted<'r> {
    /// The canonical decoded path.
    pub(crate) path: &'r [u8],
    /// Codings that the client accepts.
    pub(crate) codings: CodingSet,
}

impl Site {
    /// The site's own rules, if it has any.
    pub(crate) fn rules(&self) -> Option<&rules::Rules> {
        match self {
            Self::Archive(archive) => archive.rules.as_ref(),
            Self::Directory(directory) => directory.rules(),
        }
    }
}
