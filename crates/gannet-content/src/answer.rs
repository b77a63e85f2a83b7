//! From the properties of a resource to the fields of its responses.
//!
//! The packer renders the fields of each variant with [`ready_fields`], directory mode those of
//! each file, so both modes give the same answers. Responses use the resulting block as follows:
//!
//! | answer | part of the block | further fields |
//! |---|---|---|
//! | 200, a site's own 404 page | whole | |
//! | 304 | shared | |
//! | 206, one range | without length | `content-range` |
//! | 206, several ranges | shared | `content-type` of the [boundary](crate::multipart) |
//! | 416 | none: an [error page](crate::error_page) | `content-range` |
//! | 301 | none, no content | [`location`] |
//! | 405, 204 to `OPTIONS` | none | `allow`: [`ALLOW`] |
//!
//! Pages of the server and redirects also have the fields of
//! [`DefaultFields`](crate::policy::defaults::DefaultFields).

use gannet_http::semantics::coding::Coding;
use gannet_http::semantics::ready_fields::{
    CheckedLines, ReadyFields, ReadyFieldsError, RepresentationFields,
};

/// `cache-control` of content that may change under its name: stored, and revalidated once it is a
/// second old. A live directory takes a second to notice a change.
///
/// Neither nginx nor Varnish stores a response that says `no-cache` or `max-age=0`: they would
/// fetch a whole film for each of its ranges. `s-maxage=1` beside `max-age=0` would let them, but
/// like `public` and `must-revalidate` it also lets them store a response to an authenticated
/// request, and send it to everyone (RFC 9111 section 3.5).
pub const CACHE_REVALIDATE: &str = "max-age=1";

/// `cache-control` of responses that no shared cache should store and that browsers revalidate:
/// redirects, and a site's own not-found page, since a deploy may be about to add the missing file.
pub const CACHE_NO_CACHE: &str = "no-cache";

/// `cache-control` of content that never changes under its name: stored for a year, never
/// revalidated (RFC 8246).
pub const CACHE_IMMUTABLE: &str = "max-age=31536000, immutable";

/// The default `cache-control` of content for a request with `authorization`, in place of
/// `default`; `None` if that is not one of the defaults, or already excludes shared caches.
///
/// A proxy may check the field, and a cache in front of it may store anything that has a lifetime,
/// as nginx does.
#[must_use]
pub fn private_cache_control(default: &[u8]) -> Option<&'static str> {
    if default == CACHE_REVALIDATE.as_bytes() {
        Some("private, max-age=1")
    } else if default == CACHE_IMMUTABLE.as_bytes() {
        Some("private, max-age=31536000, immutable")
    } else {
        None
    }
}

/// The `cache-control` of content that only some may have, in place of `value`: no shared cache may
/// keep it. `None` if `value` says so already.
#[must_use]
pub fn protected_cache_control(value: &[u8]) -> Option<Vec<u8>> {
    let directives = value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    let name = |directive: &[u8]| {
        let end = directive.iter().position(|byte| *byte == b'=');
        let name = &directive[..end.unwrap_or(directive.len())];
        (name.trim_ascii().to_ascii_lowercase(), end.is_some())
    };
    let is_shared = |it: &&[u8]| {
        let (name, has_value) = name(it);
        // `private="set-cookie"` concerns that field alone.
        it.is_empty()
            || matches!(
                name.as_slice(),
                b"public" | b"s-maxage" | b"proxy-revalidate"
            )
            || (has_value && name == b"private")
    };
    let is_private =
        |it: &&[u8]| matches!(name(it), (name, false) if name == b"private" || name == b"no-store");
    if directives.clone().any(|it| is_private(&it)) && !directives.clone().any(|it| is_shared(&it))
    {
        return None;
    }
    let mut kept = directives
        .filter(|it| !is_shared(it) && !is_private(it))
        .collect::<Vec<_>>();
    let first: &[u8] = match value
        .to_ascii_lowercase()
        .windows(8)
        .any(|it| it == b"no-store")
    {
        true => b"no-store",
        false => b"private",
    };
    kept.insert(0, first);
    Some(kept.join(&b", "[..]))
}

/// `vary` of a resource that has content in several codings.
pub const VARY_BY_CODING: &str = "accept-encoding";

/// `vary` of a resource that has other [forms](crate::negotiation), in one coding each.
pub const VARY_BY_TYPE: &str = "accept";

/// `vary` of answers where rules look at the client's language.
pub const VARY_BY_LANGUAGE: &str = "accept-language";

/// `vary` of a resource that has other forms and several codings.
pub const VARY_BY_CODING_AND_TYPE: &str = "accept-encoding, accept";

/// The methods that every resource allows: the value of `allow` (RFC 9110 section 10.2.1). A 405
/// must have it, the answer to `OPTIONS` should.
pub const ALLOW: &[u8] = b"GET, HEAD, OPTIONS";

/// The content security policy of error pages.
///
/// It allows their own style sheet, by hash, and nothing else: no script, no image, no frame, no
/// form, whatever a request might inject.
pub const PAGE_POLICY: &str = "default-src 'none'; style-src \
    'sha256-IXfSK8Z1mKrYOjm6PKCEMDHKgEhwOyJR4iWXtdMdJY8='; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The content security policy of listings.
///
/// It allows their own style sheet and their own script, by hash, and that this script requests the
/// JSON of the folder. Nothing else, whatever a file name might inject.
pub const LISTING_POLICY: &str = "default-src 'none'; style-src \
    'sha256-HwRBvOl1DtOZh8PVu4pDbO46yXopUR6Mz6/8Ryj0T3c='; script-src \
    'sha256-u3pl6yTqKPDIsTpf+bBzFmWugl6Tl1tMwN4DbctDgUc='; connect-src 'self'; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// One form of a resource, as it will be sent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Resource<'a> {
    /// `content-type`: see [`mime`](crate::mime).
    pub content_type: &'a str,
    /// The coding of the content.
    pub coding: Coding,
    /// Length of the content in its coding, in bytes.
    pub len: u64,
    /// The entity tag of this coding, with quotes: see [`validators`](crate::validators).
    pub entity_tag: &'a str,
    /// When it was modified, in Unix seconds: see
    /// [`last_modified`](crate::validators::last_modified).
    pub last_modified: Option<i64>,
    /// The request fields that select one of several representations of the resource, of which this
    /// is one, since caches must know them (RFC 9110 section 12.5.5).
    pub vary: Option<&'a str>,
    /// `cache-control`.
    pub cache_control: Option<&'a str>,
    /// Further fields of this resource, also sent in a 304: names in lower case.
    pub fields: &'a [(&'a str, &'a [u8])],
    /// Those that many resources have, after them.
    pub common: Option<&'a CheckedLines>,
}

/// Renders the fields of a resource.
///
/// # Errors
/// A value that cannot be sent, or a name that is not in lower case.
pub fn ready_fields(resource: &Resource<'_>) -> Result<ReadyFields, ReadyFieldsError> {
    RepresentationFields {
        content_length: resource.len,
        content_type: Some(resource.content_type.as_bytes()),
        content_encoding: Some(resource.coding),
        entity_tag: Some(resource.entity_tag.as_bytes()),
        last_modified: resource.last_modified,
        cache_control: resource.cache_control.map(str::as_bytes),
        vary: resource.vary.map(str::as_bytes),
        accept_ranges: true,
        nosniff: true,
        further: resource.fields,
        checked: resource.common,
        ..Default::default()
    }
    .render()
}

/// The value of `location` for a redirect to a path of this server that keeps the target's query.
///
/// `path` is percent-encoded and starts with one slash, as a
/// [`Lookup`](crate::directory::lookup::Lookup) returns it. The query is kept as sent, except that
/// bytes not allowed in a URI (RFC 3986 section 3.4) are percent-encoded: it can neither end the
/// field nor be read as something else.
#[must_use]
pub fn location(path: &[u8], query: Option<&[u8]>) -> Vec<u8> {
    let mut value = path.to_vec();
    if let Some(query) = query {
        value.push(b'?');
        write_raw(query, &mut value);
    }
    value
}

/// Appends a part of a target as sent, except that bytes not allowed in a URI are percent-encoded.
pub fn write_raw(part: &[u8], out: &mut Vec<u8>) {
    for &byte in part {
        let is_kept = byte.is_ascii_graphic() && !matches!(byte, b'"' | b'#' | b'<' | b'>' | b'\\');
        if is_kept {
            out.push(byte);
        } else {
            let digit = |nibble: u8| b"0123456789ABCDEF"[usize::from(nibble)];
            out.extend_from_slice(&[b'%', digit(byte >> 4), digit(byte & 15)]);
        }
    }
}

#[cfg(test)]
mod tests;
