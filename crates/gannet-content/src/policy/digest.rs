//! Digests of content in fields (RFC 9530).
//!
//! `repr-digest` covers the selected representation: all of it, in the coding in which it is sent,
//! even if only a part is sent, or nothing. `content-digest` covers the content of this one
//! response, so the two are equal only if the content is the whole representation.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use gannet_http::semantics::structured::{self, Value};

/// The field for the whole representation, whatever part of it is sent.
pub const REPR_DIGEST: &str = "repr-digest";

/// The field for the content of one response.
pub const CONTENT_DIGEST: &str = "content-digest";

/// The part of the representation in a response.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Extent<'a> {
    /// All of it: a 200 to `GET`.
    Whole,
    /// One range: a 206. With the digest of its bytes, if known.
    Range(Option<&'a [u8; 32]>),
    /// Several ranges: a 206 whose content is more than bytes of the representation.
    Ranges,
    /// Nothing: a response to `HEAD`, or a 304.
    Nothing,
}

/// The fields of a response: names in lower case. `digest` is the SHA-256 of the representation in
/// its coding.
#[must_use]
pub fn fields(digest: &[u8; 32], extent: Extent<'_>) -> Vec<(&'static str, String)> {
    let mut fields = vec![(REPR_DIGEST, value(digest))];
    let of_content = match extent {
        Extent::Whole => Some(digest),
        Extent::Range(digest) => digest,
        // RFC 9530 appendix B.2 sends the digest of no bytes here, which is useless.
        Extent::Ranges | Extent::Nothing => None,
    };
    fields.extend(of_content.map(|digest| (CONTENT_DIGEST, value(digest))));
    fields
}

/// The value of a digest field: `sha-256=:...:`, a dictionary with a byte sequence (RFC 8941).
#[must_use]
pub fn value(digest: &[u8; 32]) -> String {
    format!("sha-256=:{}:", STANDARD.encode(digest))
}

/// Whether a `want-repr-digest` or `want-content-digest` requests SHA-256 (RFC 9530 section 4):
/// with a weight other than 0. An invalid value requests nothing.
#[must_use]
pub fn wants_sha256(value: &[u8]) -> bool {
    let mut wants = false;
    let parsed = structured::dictionary(value, |key, value| {
        if key == b"sha-256" {
            wants = matches!(value, Value::Integer(1..=10));
        }
    });
    parsed.is_ok() && wants
}
