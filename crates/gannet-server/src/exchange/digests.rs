//! Digests of content, on request (RFC 9530).

use aws_lc_rs::digest::{SHA256, digest};
use gannet_content::policy::digest::{CONTENT_DIGEST, REPR_DIGEST, value, wants_sha256};
use gannet_http::semantics::fields::{FieldMask, KnownField};
use gannet_http::semantics::request::{Method, Request};
use gannet_http::semantics::status::Status;

use crate::release::{Selected, Source};

/// The digest fields that a request adds to its response, besides those of the ready block.
#[derive(Debug, Default)]
pub(crate) struct Digests {
    /// The value of `repr-digest`.
    repr: Option<String>,
    /// The value of `content-digest`, if the content is the whole representation.
    content: Option<String>,
}

/// The request fields that request digests.
const WANTS: FieldMask =
    FieldMask::of(&[KnownField::WantReprDigest, KnownField::WantContentDigest]);

impl Digests {
    /// The digests that a request wants, if available: from the ready block, or from bytes in
    /// memory, which are hashed once.
    #[inline]
    pub(crate) fn asked(request: &Request<'_>, selected: &Selected<'_>) -> Self {
        if !request.fields.has_any(WANTS) || selected.status != Status::OK {
            return Self::default();
        }
        Self::of(request, selected)
    }

    /// Whether a request wants any, so that bytes may have to be read for it.
    pub(crate) fn are_wanted(request: &Request<'_>) -> bool {
        request.fields.has_any(WANTS)
    }

    #[cold]
    fn of(request: &Request<'_>, selected: &Selected<'_>) -> Self {
        let wants = |field| {
            let mut lines = request.fields.lines(field);
            lines.any(wants_sha256)
        };
        let wants_repr = wants(KnownField::WantReprDigest);
        let wants_content = wants(KnownField::WantContentDigest) && request.method == Method::Get;
        if !wants_repr && !wants_content {
            return Self::default();
        }
        let ready = selected.block.h1.get(REPR_DIGEST);
        let ready = ready.and_then(|value| str::from_utf8(value).ok());
        let known = match ready {
            Some(value) => Some(value.to_owned()),
            None => sha256(selected).map(|digest| value(&digest)),
        };
        Self {
            content: known.clone().filter(|_| wants_content),
            repr: known.filter(|_| wants_repr && ready.is_none()),
        }
    }

    /// The fields of a response; `is_whole` if its content is the whole representation.
    pub(crate) fn fields(&self, is_whole: bool) -> impl Iterator<Item = (&str, &[u8])> {
        let repr = self.repr.as_ref().map(|it| (REPR_DIGEST, it.as_bytes()));
        let content = self.content.as_ref().filter(|_| is_whole);
        let content = content.map(|it| (CONTENT_DIGEST, it.as_bytes()));
        repr.into_iter().chain(content)
    }

    /// Whether no field is added.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.repr.is_none() && self.content.is_none()
    }
}

/// The digest of a representation whose bytes are in memory; computed only for the first request.
fn sha256(selected: &Selected<'_>) -> Option<[u8; 32]> {
    let bytes = match selected.source {
        Source::Bytes(bytes) => bytes,
        Source::Memory(memory, offset) | Source::Made(memory, offset) => {
            memory.bytes().get(offset..)?
        }
        Source::File(..) | Source::Unloaded(_) | Source::Unread => return None,
    };
    let take = || {
        let digest = digest(&SHA256, bytes);
        digest.as_ref().try_into().expect("SHA-256 has 32 bytes")
    };
    Some(*selected.sha256?.get_or_init(take))
}
