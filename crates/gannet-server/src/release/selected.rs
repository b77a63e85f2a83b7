//! What a site has for a path.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::rc::Rc;
use std::sync::Arc;

use gannet_content::plan::Representation;
use gannet_http::semantics::coding::CodingSet;
use gannet_http::semantics::request::Request;
use gannet_http::semantics::response::{ReadyBlock, Status};
use gannet_io::driver::Driver;
use gannet_io::memory::Memory;

use super::{ServedFile, bodies};

/// What a path came to.
#[expect(clippy::large_enum_variant, reason = "it is made and used in one call")]
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
    /// It is the content of the path, and does not stand in for it.
    pub(crate) is_own: bool,
}

impl Selected<'_> {
    /// Whether its bytes are in memory, or in a file that they are sent from.
    pub(crate) fn is_at_hand(&self) -> bool {
        match self.source {
            Source::Unloaded(body) => body.body().is_some(),
            Source::Unread => false,
            Source::Bytes(_) | Source::Memory(..) | Source::File(..) => true,
        }
    }

    /// Whether its file has changed, so that an answer with bytes of it could not be finished.
    pub(crate) fn is_lost<D: Driver>(&self, driver: &D) -> bool {
        matches!(self.source, Source::File(file, _) if !file.is_unchanged(driver))
    }
}

/// Where the bytes of a representation are: those of a [`Body`](crate::exchange::body::Body), or not
/// at hand.
#[derive(Clone, Copy)]
pub(crate) enum Source<'s> {
    /// In memory that is always safe to read.
    Bytes(&'s [u8]),
    /// In shared memory, from this offset.
    Memory(&'s Arc<Memory>, usize),
    /// In a file, from this offset.
    File(&'s Rc<ServedFile>, u64),
    /// Read or decoded on demand.
    Unloaded(bodies::Unloaded<'s>),
    /// On the disk: nobody has asked for bytes of it yet.
    Unread,
}

/// What of a request decides the representation.
#[derive(Clone, Copy)]
pub(crate) struct Wanted<'r> {
    /// The canonical decoded path.
    pub(crate) path: &'r [u8],
    /// Codings that the client accepts.
    pub(crate) codings: CodingSet,
    /// Its bytes are copied on their way out: encrypted, or put into frames.
    pub(crate) is_copied: bool,
    /// All of it, for what hardly any answer depends on.
    pub(crate) request: &'r Request<'r>,
}
