//! The result of resolving a path.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::rc::Rc;
use std::sync::Arc;

use gannet_content::plan::Representation;
use gannet_content::rules::matcher::RuleInput;
use gannet_content::rules::pattern::Scheme;
use gannet_content::rules::steps::Steps;
use gannet_http::semantics::coding::{CodingSet, accept_encoding};
use gannet_http::semantics::fields::KnownField;
use gannet_http::semantics::request::Request;
use gannet_http::semantics::response::{ReadyBlock, Status};
use gannet_io::driver::Driver;
use gannet_io::memory::Memory;

use super::rules::rule_input;
use super::{Release, ServedFile, bodies};

/// The result of resolving a path.
#[expect(clippy::large_enum_variant, reason = "it is made and used in one call")]
pub(crate) enum Resolved<'s> {
    /// A representation to send (or the page for a 404).
    Selected(Selected<'s>),
    /// A redirect on this host: an encoded path without the query.
    Redirect(Cow<'s, [u8]>),
    /// A redirect by a rule: the complete location.
    Elsewhere(Status, Vec<u8>),
    /// An error with a built-in page.
    Error(Status),
}

/// The selected representation of a resource.
#[derive(Clone, Copy)]
pub(crate) struct Selected<'s> {
    /// 200, or the status of the page.
    pub(crate) status: Status,
    /// Its fields, rendered for HTTP/1.
    pub(crate) block: ReadyBlock<'s>,
    /// The input of preconditions and ranges.
    pub(crate) representation: Representation<'s>,
    /// For the parts of a multipart response.
    pub(crate) content_type: &'s [u8],
    /// Location of the bytes.
    pub(crate) source: Source<'s>,
    /// Its SHA-256, computed on the first request for it; `None` if computing it would be
    /// expensive.
    pub(crate) sha256: Option<&'s OnceCell<[u8; 32]>>,
    /// The site's rules are already applied to the block.
    pub(crate) is_ruled: bool,
    /// It is the content of the path, not a substitute.
    pub(crate) is_own: bool,
    /// It is one of several forms, chosen by the type that the client wants, which its fields do not
    /// say.
    pub(crate) varies_by_type: bool,
}

impl Selected<'_> {
    /// Whether its bytes are in memory, or in a file to send from.
    pub(crate) fn is_at_hand(&self) -> bool {
        match self.source {
            Source::Unloaded(body) => body.body().is_some(),
            Source::Unread => false,
            Source::Bytes(_) | Source::Memory(..) | Source::Made(..) | Source::File(..) => true,
        }
    }

    /// Whether its file has changed, so that a response with its bytes could not be completed.
    pub(crate) fn is_lost<D: Driver>(&self, driver: &D) -> bool {
        matches!(self.source, Source::File(file, _) if !file.is_unchanged(driver))
    }
}

/// Location of a representation's bytes: that of a [`Body`](crate::release::body::Body), or not
/// yet available.
#[derive(Clone, Copy)]
pub(crate) enum Source<'s> {
    /// In memory that is always safe to read.
    Bytes(&'s [u8]),
    /// In shared memory, from this offset.
    Memory(&'s Arc<Memory>, usize),
    /// In memory made for one response, from this offset.
    Made(&'s Arc<Memory>, usize),
    /// In a file, from this offset.
    File(&'s Rc<ServedFile>, u64),
    /// Read or decoded on demand.
    Unloaded(bodies::Unloaded<'s>),
    /// On the disk, not read by any request yet.
    Unread,
}

/// A request for a path of a site, as its client has sent it: a trusted proxy may have forwarded it.
#[derive(Clone, Copy)]
pub(crate) struct RequestView<'r> {
    pub(crate) request: &'r Request<'r>,
    /// Decoded.
    pub(crate) path: &'r [u8],
    /// The scheme by which it was sent.
    pub(crate) scheme: Scheme,
    /// Fields that the operator configured for every response.
    pub(crate) fields: &'r [(&'r str, &'r [u8])],
    /// The release that answers it, and the number of its site there.
    pub(crate) release: &'r Rc<Release>,
    pub(crate) site: usize,
    /// Those that the site's rules may take for it.
    pub(crate) steps: &'r Steps,
}

impl<'r> RequestView<'r> {
    /// The codings that the client accepts.
    pub(crate) fn codings(&self) -> CodingSet {
        accept_encoding(self.request.fields.lines(KnownField::AcceptEncoding))
    }

    /// What the rules of a site see of it.
    pub(crate) fn input(&self) -> RuleInput<'r> {
        let prefix = self.release.prefix(self.site);
        rule_input(self.scheme, self.request, (prefix, self.path))
    }
}
