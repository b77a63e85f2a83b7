//! A request that outlives the bytes it arrived in: it waits for something, such as a disk.

use std::ops::Range;

use super::fields::{FieldIndex, Fields};
use super::request::{Content, Method, Request, RequestTarget, TargetForm, Version};

/// An owned [`Request`].
#[derive(Clone, Debug)]
pub struct KeptRequest {
    /// Method, target, path, query, authority and field section, one after the other.
    bytes: Vec<u8>,
    method: Method,
    method_end: usize,
    target_end: usize,
    path_end: usize,
    query: Option<Range<usize>>,
    authority: Option<Range<usize>>,
    section_start: usize,
    form: TargetForm,
    version: Version,
    content: Content,
    index: FieldIndex,
}

impl KeptRequest {
    /// Copies a request. It takes as many bytes as the request did, and a few hundred more.
    #[must_use]
    pub fn new(request: &Request<'_>) -> Self {
        let (section, index) = request.fields.parts();
        let mut bytes = Vec::with_capacity(section.len() + 2 * request.target.raw.len() + 64);
        let mut copy = |part: &[u8]| {
            let start = bytes.len();
            bytes.extend_from_slice(part);
            start..bytes.len()
        };
        let method_end = copy(request.method_name).end;
        let target_end = copy(request.target.raw).end;
        let path_end = copy(request.target.path).end;
        let query = request.target.query.map(&mut copy);
        let authority = request.authority.map(&mut copy);
        let section_start = copy(section).start;
        Self {
            bytes,
            method: request.method,
            method_end,
            target_end,
            path_end,
            query,
            authority,
            section_start,
            form: request.target.form,
            version: request.version,
            content: request.content,
            index,
        }
    }

    /// The request, borrowed.
    #[must_use]
    pub fn as_request(&self) -> Request<'_> {
        let part = |range: &Range<usize>| &self.bytes[range.clone()];
        Request {
            method: self.method,
            method_name: &self.bytes[..self.method_end],
            target: RequestTarget {
                raw: &self.bytes[self.method_end..self.target_end],
                form: self.form,
                path: &self.bytes[self.target_end..self.path_end],
                query: self.query.as_ref().map(part),
            },
            authority: self.authority.as_ref().map(part),
            version: self.version,
            fields: Fields::indexed(&self.bytes[self.section_start..], &self.index),
            content: self.content,
        }
    }
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
            let again = kept.as_request();
            assert_eq!(format!("{again:?}"), format!("{request:?}"));
        }
    }
}
