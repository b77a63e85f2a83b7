//! From what is known of a resource to the head of a response.
//!
//! The packer renders the fields of each variant with [`ready_fields`], directory mode those of
//! each file, so both modes answer alike. Answers that no file gives (errors, `OPTIONS`,
//! redirects) are rendered once, with the operator's own fields, into [`StandingAnswers`].
//!
//! | answer | ready part | own fields |
//! |---|---|---|
//! | 200, a site's 404 page | whole | |
//! | 304 | shared | |
//! | 206, one range | without length | [`OneField::content_range`] |
//! | 206, several ranges | shared | [`OneField::multipart`] |
//! | 416 | the standing error's | [`OneField::unsatisfied_range`] |
//! | 308 | the standing redirect's | [`OneField::location`] |
//! | 204, 400, 403, 404, ... | the standing answer's | |

use gannet_http::semantics::coding::Coding;
use gannet_http::semantics::range::{ByteRange, write_unsatisfied_range};
use gannet_http::semantics::ready_fields::{ReadyFields, ReadyFieldsError, RepresentationFields};
use gannet_http::semantics::response::{ReadyBlock, ReadyPart, ResponseHead, Status};

use crate::error_page;
use crate::multipart::Boundary;

/// `cache-control` of what may change under its name: kept, but asked for again each time.
pub const CACHE_REVALIDATE: &str = "no-cache";

/// `cache-control` of what never changes under its name: kept for a year, never asked for again
/// (RFC 8246).
pub const CACHE_IMMUTABLE: &str = "public, max-age=31536000, immutable";

/// The methods that every resource allows: the value of `allow`.
pub const ALLOW: &str = "GET, HEAD, OPTIONS";

/// Fields that the operator wants in every answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Policy<'a> {
    /// `x-content-type-options: nosniff`.
    pub nosniff: bool,
    /// Further fields: names in lower case, checked values.
    pub fields: &'a [(&'a str, &'a [u8])],
}

impl Default for Policy<'_> {
    fn default() -> Self {
        Self {
            nosniff: true,
            fields: &[],
        }
    }
}

/// One form of a resource, as it is to be sent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Resource<'a> {
    /// `content-type`: see [`mime`](crate::mime).
    pub content_type: &'a str,
    /// The coding of the content.
    pub coding: Coding,
    /// Bytes of the content in its coding.
    pub len: u64,
    /// The entity tag, with quotes.
    pub entity_tag: Option<&'a str>,
    /// When it was modified, in Unix seconds: see
    /// [`last_modified`](crate::validators::last_modified).
    pub last_modified: Option<i64>,
    /// `cache-control`.
    pub cache_control: Option<&'a str>,
    /// The resource has content in several codings, of which this is one; caches must know.
    pub is_negotiated: bool,
    /// It is only ever sent as the page of an error: its validators are left out, since no
    /// condition or range applies to it.
    pub is_error_page: bool,
}

impl Default for Resource<'_> {
    fn default() -> Self {
        Self {
            content_type: crate::mime::UNKNOWN,
            coding: Coding::Identity,
            len: 0,
            entity_tag: None,
            last_modified: None,
            cache_control: None,
            is_negotiated: false,
            is_error_page: false,
        }
    }
}

/// Renders the fields of a resource.
///
/// # Errors
/// A value that cannot be sent: in the type, the tag, or the policy's fields.
pub fn ready_fields(
    resource: &Resource<'_>,
    policy: &Policy<'_>,
) -> Result<ReadyFields, ReadyFieldsError> {
    let has_validators = !resource.is_error_page;
    let overrides = |name: &str| policy.fields.iter().any(|&(own, _)| own == name);
    RepresentationFields {
        content_length: resource.len,
        content_type: Some(resource.content_type.as_bytes()),
        content_encoding: Some(resource.coding),
        entity_tag: resource
            .entity_tag
            .filter(|_| has_validators)
            .map(str::as_bytes),
        last_modified: resource.last_modified.filter(|_| has_validators),
        cache_control: resource
            .cache_control
            .filter(|_| !overrides("cache-control"))
            .map(str::as_bytes),
        vary: resource.is_negotiated.then_some(b"accept-encoding"),
        accept_ranges: has_validators,
        nosniff: policy.nosniff,
        further: policy.fields,
        ..Default::default()
    }
    .render()
}

/// 200 with the whole content, or a page of the site with an error's status.
#[must_use]
pub fn whole(status: Status, block: ReadyBlock<'_>) -> ResponseHead<'_> {
    ResponseHead {
        status,
        ready: Some((block, ReadyPart::Whole)),
        content_length: None,
        fields: &[],
    }
}

/// 304.
#[must_use]
pub fn not_modified(block: ReadyBlock<'_>) -> ResponseHead<'_> {
    ResponseHead {
        status: Status::NOT_MODIFIED,
        ready: Some((block, ReadyPart::Shared)),
        content_length: None,
        fields: &[],
    }
}

/// 206 with one range; `fields` are those of [`OneField::content_range`].
#[must_use]
pub fn partial<'a>(
    block: ReadyBlock<'a>,
    range: ByteRange,
    fields: &'a [(&'a str, &'a [u8])],
) -> ResponseHead<'a> {
    ResponseHead {
        status: Status::PARTIAL_CONTENT,
        ready: Some((block, ReadyPart::WithoutLength)),
        content_length: Some(range.len()),
        fields,
    }
}

/// 206 with several ranges; `fields` are those of [`OneField::multipart`], `content_length` is
/// that of the [`Multipart`](crate::multipart::Multipart).
#[must_use]
pub fn partial_multipart<'a>(
    block: ReadyBlock<'a>,
    content_length: u64,
    fields: &'a [(&'a str, &'a [u8])],
) -> ResponseHead<'a> {
    ResponseHead {
        status: Status::PARTIAL_CONTENT,
        // Its content type is the representation's no more; the parts tell that.
        ready: Some((block, ReadyPart::Shared)),
        content_length: Some(content_length),
        fields,
    }
}

/// A field made for one response. Keep it, and the array that [`fields`](Self::fields) gives,
/// beside the head that borrows them.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct OneField {
    name: &'static str,
    value: Vec<u8>,
}

impl OneField {
    /// `content-range` of a 206 with one range of a representation of `complete_len` bytes.
    #[must_use]
    pub fn content_range(range: ByteRange, complete_len: u64) -> Self {
        let mut value = Vec::with_capacity(CONTENT_RANGE_LEN_MAX);
        range.write_content_range(complete_len, &mut value);
        Self {
            name: "content-range",
            value,
        }
    }

    /// `content-range` of a 416.
    #[must_use]
    pub fn unsatisfied_range(complete_len: u64) -> Self {
        let mut value = Vec::with_capacity(CONTENT_RANGE_LEN_MAX);
        write_unsatisfied_range(complete_len, &mut value);
        Self {
            name: "content-range",
            value,
        }
    }

    /// `content-type` of a 206 with several ranges.
    #[must_use]
    pub fn multipart(boundary: &Boundary) -> Self {
        Self {
            name: "content-type",
            value: boundary.content_type().to_vec(),
        }
    }

    /// `location` of a redirect to a path of this server, keeping the query of the target.
    ///
    /// `path` is percent-encoded and begins with one slash, as a lookup gives it. The query is
    /// kept as it was sent; bytes that no URI has (RFC 3986 section 3.4) are percent-encoded, so
    /// that nothing in it can end the field.
    #[must_use]
    pub fn location(path: &[u8], query: Option<&[u8]>) -> Self {
        let mut value = Vec::with_capacity(path.len() + 1 + query.map_or(0, <[u8]>::len));
        value.extend_from_slice(path);
        if let Some(query) = query {
            value.push(b'?');
            for &byte in query {
                if byte.is_ascii_graphic() && !matches!(byte, b'"' | b'<' | b'>' | b'\\') {
                    value.push(byte);
                } else {
                    let digit = |nibble: u8| b"0123456789ABCDEF"[usize::from(nibble)];
                    value.extend_from_slice(&[b'%', digit(byte >> 4), digit(byte & 15)]);
                }
            }
        }
        Self {
            name: "location",
            value,
        }
    }

    /// The field as a [`ResponseHead`] takes it.
    #[must_use]
    pub fn fields(&self) -> [(&str, &[u8]); 1] {
        [(self.name, &self.value)]
    }
}

/// A response that no file gives: its head and its content.
#[derive(Clone, Copy, Debug)]
pub struct StandingAnswer<'a> {
    /// The head, complete but for the field that some answers add (location, content-range).
    pub head: ResponseHead<'a>,
    /// The content, of the length that the head says.
    pub content: &'static [u8],
}

/// Answers that no file gives, rendered once at start.
#[derive(Clone, Debug)]
pub struct StandingAnswers {
    /// In the order of [`error_page::STATUSES`].
    errors: Vec<ReadyFields>,
    redirect: ReadyFields,
    options: ReadyFields,
}

impl StandingAnswers {
    /// Renders all of them with the operator's fields.
    ///
    /// # Errors
    /// If a field of the policy cannot be sent.
    pub fn new(policy: &Policy<'_>) -> Result<Self, ReadyFieldsError> {
        let render = |page: Option<(Status, &[u8])>, own: &[(&str, &[u8])]| {
            let mut further = own.to_vec();
            let replaces = |name: &str| {
                let is_ours = matches!(name, "cache-control" | "content-security-policy");
                page.is_some() && is_ours || own.iter().any(|&(ours, _)| ours == name)
            };
            let kept = policy.fields.iter().filter(|(name, _)| !replaces(name));
            further.extend(kept.copied());
            RepresentationFields {
                content_length: page.map_or(0, |(_, content)| content.len() as u64),
                content_type: page.map(|_| error_page::CONTENT_TYPE.as_bytes()),
                // Whatever is wrong may be right in a moment, and a page of ours is no news.
                cache_control: page.map(|_| b"no-store".as_slice()),
                nosniff: policy.nosniff,
                further: &further,
                ..Default::default()
            }
            .render()
        };
        let csp: (&str, &[u8]) = (
            "content-security-policy",
            error_page::CONTENT_SECURITY_POLICY.as_bytes(),
        );
        let allow: (&str, &[u8]) = ("allow", ALLOW.as_bytes());
        let retry: (&str, &[u8]) = ("retry-after", b"5");
        let errors = error_page::STATUSES.iter().map(|&status| {
            let own: &[_] = match status {
                Status::METHOD_NOT_ALLOWED => &[csp, allow],
                Status::SERVICE_UNAVAILABLE => &[csp, retry],
                _ => &[csp],
            };
            render(Some((status, error_page::page(status))), own)
        });
        Ok(Self {
            errors: errors.collect::<Result<_, _>>()?,
            redirect: render(None, &[])?,
            options: render(None, &[allow])?,
        })
    }

    /// The answer to an error. A 405 has `allow`; a 416 needs the fields of
    /// [`OneField::unsatisfied_range`], given by [`with_fields`](StandingAnswer::with_fields). A
    /// status without page of its own (see [`error_page::STATUSES`]) is answered as 500.
    #[must_use]
    pub fn error(&self, status: Status) -> StandingAnswer<'_> {
        let index = error_page::index_of(status);
        StandingAnswer {
            head: whole(error_page::STATUSES[index], self.errors[index].as_block()),
            content: error_page::page(error_page::STATUSES[index]),
        }
    }

    /// 308 without content; `fields` are those of [`OneField::location`].
    #[must_use]
    pub fn redirect<'a>(&'a self, fields: &'a [(&'a str, &'a [u8])]) -> StandingAnswer<'a> {
        StandingAnswer {
            head: ResponseHead {
                fields,
                ..whole(Status::PERMANENT_REDIRECT, self.redirect.as_block())
            },
            content: &[],
        }
    }

    /// 204 with `allow`: the answer to `OPTIONS`, for a path or for `*` (RFC 9110 section 9.3.7).
    #[must_use]
    pub fn options(&self) -> StandingAnswer<'_> {
        StandingAnswer {
            head: ResponseHead {
                status: Status::NO_CONTENT,
                // RFC 9110 8.6: a 204 has no content-length.
                ready: Some((self.options.as_block(), ReadyPart::Shared)),
                content_length: None,
                fields: &[],
            },
            content: &[],
        }
    }
}

impl<'a> StandingAnswer<'a> {
    /// The answer with further fields.
    #[must_use]
    pub fn with_fields(mut self, fields: &'a [(&'a str, &'a [u8])]) -> Self {
        self.head.fields = fields;
        self
    }
}

/// The value of a field in a block, by its name in lower case: for instance the content type that
/// the parts of a multipart response repeat.
#[must_use]
pub fn ready_value<'a>(block: ReadyBlock<'a>, name: &str) -> Option<&'a [u8]> {
    block.bytes.split(|&byte| byte == b'\n').find_map(|line| {
        let value = line.strip_prefix(name.as_bytes())?.strip_prefix(b": ")?;
        value.strip_suffix(b"\r")
    })
}

/// Bytes of `bytes a-b/c` with three numbers of twenty digits.
const CONTENT_RANGE_LEN_MAX: usize = 68;

#[cfg(test)]
mod tests;
