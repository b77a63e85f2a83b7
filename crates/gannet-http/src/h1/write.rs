//! The wire form of a response head (RFC 9112 section 4).

use crate::semantics::date::DATE_LINE_LEN;
use crate::semantics::decimal::write_decimal;
use crate::semantics::field_names::write_title;
use crate::semantics::response::{ReadyPart, ResponseHead};
use crate::semantics::status::Status;

/// What the response announces about the connection (RFC 9112 section 9.3).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ConnectionLine {
    /// Nothing: the connection persists, which is HTTP/1.1's default.
    None,
    /// `Connection: close`
    Close,
    /// `Connection: keep-alive`, for HTTP/1.0.
    KeepAlive,
}

/// Appends a response head: status line, `Date`, ready fields, length, further fields,
/// `Connection`, empty line.
#[inline]
pub(crate) fn write_head(
    head: &ResponseHead<'_>,
    date_line: &[u8; DATE_LINE_LEN],
    connection: ConnectionLine,
    out: &mut Vec<u8>,
) {
    let ready = head.ready.map(|(block, part)| block.h1.part(part));
    let ready = ready.unwrap_or_default();
    out.reserve(ready.iter().map(|piece| piece.len()).sum::<usize>() + PLAIN_HEAD_LEN);
    match head.status {
        Status::OK => out.extend_from_slice(b"HTTP/1.1 200 OK\r\n"),
        status => write_status_line(status, out),
    }
    out.extend_from_slice(date_line);
    for piece in ready {
        out.extend_from_slice(piece);
    }
    if let Some(len) = content_length(head) {
        out.extend_from_slice(b"Content-Length: ");
        write_decimal(len, out);
        out.extend_from_slice(b"\r\n");
    }
    for (name, value) in head.fields {
        debug_assert!(
            !value.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)),
            "values of fields are checked where they are made"
        );
        write_title(name, out);
        out.extend_from_slice(b": ");
        out.extend_from_slice(value);
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(match connection {
        ConnectionLine::None => b"\r\n",
        ConnectionLine::Close => b"Connection: close\r\n\r\n",
        ConnectionLine::KeepAlive => b"Connection: keep-alive\r\n\r\n",
    });
}

/// The length to write, if any (RFC 9110 section 8.6).
///
/// A response that may have content always has a length: without one the content would last until
/// the connection closes, and a client would wait for that.
fn content_length(head: &ResponseHead<'_>) -> Option<u64> {
    let is_whole = matches!(head.ready, Some((_, ReadyPart::Whole)));
    debug_assert!(
        !(is_whole && head.content_length.is_some()),
        "the length is given once"
    );
    if is_whole || head.status.is_without_content() {
        return None;
    }
    debug_assert!(
        head.content_length.is_some(),
        "a response with content has a length"
    );
    Some(head.content_length.unwrap_or(0))
}

fn write_status_line(status: Status, out: &mut Vec<u8>) {
    if let Some(line) = status.line() {
        out.extend_from_slice(line.as_bytes());
        return;
    }
    // RFC 9112 4: the space is required even if the reason phrase is empty.
    out.extend_from_slice(b"HTTP/1.1 ");
    write_decimal(u64::from(status.0), out);
    out.extend_from_slice(b" \r\n");
}

/// Room for the fields around the ready ones of a usual response.
const PLAIN_HEAD_LEN: usize = 160;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::semantics::date::DateLine;
    use crate::semantics::response::{FieldBlock, ReadyBlock};

    const BLOCK: ReadyBlock<'_> = ReadyBlock {
        h1: FieldBlock {
            bytes: b"Content-Length: 5\r\nContent-Type: t\r\nETag: \"e\"\r\n",
            length_end: 19,
            shared_start: 36,
            common: b"",
            common_shared_start: 0,
        },
        hpack: None,
    };

    fn check(head: ResponseHead<'_>, connection: ConnectionLine, expect: &str) {
        let mut out = Vec::new();
        write_head(&head, DateLine::new(0).as_bytes(), connection, &mut out);
        let text = String::from_utf8(out).expect("ASCII");
        assert_eq!(
            text.replace("Date: Thu, 01 Jan 1970 00:00:00 GMT\r\n", "D "),
            expect
        );
    }

    #[test]
    fn parts_of_the_ready_block() {
        let mut head = ResponseHead {
            status: Status::OK,
            ready: Some((BLOCK, ReadyPart::Whole)),
            content_length: None,
            fields: &[],
        };
        let text =
            "HTTP/1.1 200 OK\r\nD Content-Length: 5\r\nContent-Type: t\r\nETag: \"e\"\r\n\r\n";
        check(head, ConnectionLine::None, text);

        head.status = Status::NOT_MODIFIED;
        head.ready = Some((BLOCK, ReadyPart::Shared));
        let text = "HTTP/1.1 304 Not Modified\r\nD ETag: \"e\"\r\nConnection: close\r\n\r\n";
        check(head, ConnectionLine::Close, text);

        head.status = Status::PARTIAL_CONTENT;
        head.ready = Some((BLOCK, ReadyPart::WithoutLength));
        head.content_length = Some(2);
        head.fields = &[("content-range", b"bytes 0-1/5")];
        let text = "HTTP/1.1 206 Partial Content\r\nD Content-Type: t\r\nETag: \"e\"\r\n\
                    Content-Length: 2\r\nContent-Range: bytes 0-1/5\r\n\
                    Connection: keep-alive\r\n\r\n";
        check(head, ConnectionLine::KeepAlive, text);
    }

    #[test]
    fn without_a_ready_block() {
        let mut head = ResponseHead {
            status: Status(299),
            ready: None,
            content_length: Some(0),
            fields: &[],
        };
        check(
            head,
            ConnectionLine::None,
            "HTTP/1.1 299 \r\nD Content-Length: 0\r\n\r\n",
        );
        head.status = Status::NO_CONTENT;
        check(
            head,
            ConnectionLine::None,
            "HTTP/1.1 204 No Content\r\nD \r\n",
        );
    }
}
