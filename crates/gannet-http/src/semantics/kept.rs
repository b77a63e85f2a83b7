//! A request that outlives its input bytes, because it waits for something, such as a disk.

use std::ops::Range;

use super::fields::{FieldIndex, Fields};
use super::request::{Content, Method, Request, RequestTarget, TargetForm, Version};

/// An owned [`Request`].
#[derive(Clone, Debug)]
pub struct KeptRequest {
    /// Method, target and field section, one after the other, followed by parts contained in none
    /// of them.
    bytes: Vec<u8>,
    method: Method,
    method_end: usize,
    /// The field section, which begins where the target ends.
    section: Range<usize>,
    path: Range<usize>,
    query: Option<Range<usize>>,
    authority: Option<Range<usize>>,
    form: TargetForm,
    version: Version,
    content: Content,
    index: FieldIndex,
}

impl KeptRequest {
    /// Copies a request. The copy takes as many bytes as the request, and a few hundred more: path,
    /// query and authority are stored as ranges of the target or section, which usually contain
    /// them.
    #[must_use]
    pub fn new(request: &Request<'_>) -> Self {
        let (section, index) = request.fields.parts();
        let RequestTarget {
            raw, path, query, ..
        } = request.target;
        let method_end = request.method_name.len();
        let section_start = method_end + raw.len();
        let mut bytes = [request.method_name, raw, section].concat();
        let mut keep = |part: &[u8], whole: &[u8], start: usize| {
            let found = within(part, whole).map(|it| start + it.start..start + it.end);
            found.unwrap_or_else(|| {
                let start = bytes.len();
                bytes.reserve_exact(part.len());
                bytes.extend_from_slice(part);
                start..bytes.len()
            })
        };
        let path = keep(path, raw, method_end);
        let query = query.map(|query| keep(query, raw, method_end));
        let authority = request.authority;
        let authority = authority.map(|authority| keep(authority, section, section_start));
        Self {
            method: request.method,
            method_end,
            section: section_start..section_start + section.len(),
            path,
            query,
            authority,
            form: request.target.form,
            version: request.version,
            content: request.content,
            index,
            bytes,
        }
    }

    /// Memory that the value takes, in bytes.
    #[must_use]
    pub fn memory(&self) -> usize {
        size_of::<Self>() + self.bytes.capacity()
    }

    /// The request, borrowed.
    #[must_use]
    pub fn as_request(&self) -> Request<'_> {
        let part = |range: &Range<usize>| &self.bytes[range.clone()];
        Request {
            method: self.method,
            method_name: &self.bytes[..self.method_end],
            target: RequestTarget {
                raw: &self.bytes[self.method_end..self.section.start],
                form: self.form,
                path: part(&self.path),
                query: self.query.as_ref().map(part),
            },
            authority: self.authority.as_ref().map(part),
            version: self.version,
            fields: Fields::indexed(part(&self.section), &self.index),
            content: self.content,
        }
    }
}

/// The range of `part` in `whole`; `None` if its bytes are elsewhere.
fn within(part: &[u8], whole: &[u8]) -> Option<Range<usize>> {
    let start = part.as_ptr().addr().checked_sub(whole.as_ptr().addr())?;
    let range = start..start.checked_add(part.len())?;
    (whole.get(range.clone()) == Some(part)).then_some(range)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::h1::{Connection, Event};

    #[test]
    fn a_kept_request_is_the_request() {
        for head in [
            "GET /a/b?c=d HTTP/1.1\r\nhost: x\r\nrange: bytes=0-1\r\nrange: bytes=2-3\r\n\r\n",
            "HEAD / HTTP/1.0\r\n\r\n",
            "OPTIONS * HTTP/1.1\r\nhost: x\r\n\r\n",
            "GET http://y?q HTTP/1.1\r\nhost: x\r\nx-y: z\r\n\r\n",
        ] {
            let mut connection = Connection::new();
            let Event::Request(request) = connection.receive(head.as_bytes()).event else {
                panic!("a request: {head}");
            };
            let kept = KeptRequest::new(&request);
            assert!(
                kept.bytes.capacity() <= head.len(),
                "twice the bytes: {head}"
            );
            let again = kept.as_request();
            assert_eq!(format!("{again:?}"), format!("{request:?}"));
        }
    }
}
