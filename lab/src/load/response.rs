//! Reads the head of a response as strictly as a client that must not be fooled.
//!
//! Only what a static file needs is understood (RFC 9112 sections 2.2, 4 and 6.2): a status line,
//! field lines ended by CRLF, one `Content-Length`; where codings were asked for, also one of them, and
//! chunks. Anything else is an error, because a measurement of a wrong answer is worse than none.

use memchr::memchr;

use super::coded::{Coding, Framing};

/// Longest head accepted, in bytes: four times what any server here sends.
pub(crate) const HEAD_MAX: usize = 4096;

/// The parts of a response head that decide how the connection goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// Status code, 100 to 999.
    pub(crate) status: u16,
    /// How the end of the content that follows is told.
    pub(crate) framing: Framing,
    /// What it is coded with.
    pub(crate) coding: Coding,
    /// Whether the server announced that it will close the connection.
    pub(crate) close: bool,
    /// Length of the head itself, in bytes, with its empty line.
    pub(crate) len: usize,
}

/// Why bytes are not a response head that this client accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeadError {
    /// The status line is not `HTTP/1.1`, a space and three digits.
    StatusLine,
    /// A line does not end with CRLF.
    LineEnd,
    /// A field line has no colon or an empty name.
    Field,
    /// `Content-Length` is not a number, or is given twice.
    ContentLength,
    /// Neither is there a `Content-Length`, so the end of the content is not known.
    NoContentLength,
    /// A transfer coding was used for a file of known length.
    TransferCoding,
    /// A content coding was used that was not asked for.
    ContentCoding,
    /// No end of the head within [`HEAD_MAX`] bytes.
    TooLong,
}

/// Parses the head at the start of `input`; `None` means that more bytes are needed. Content may be
/// coded, and come in chunks, if `codings` were asked for.
pub(crate) fn parse(input: &[u8], codings: bool) -> Result<Option<Head>, HeadError> {
    let Some(mut at) = line_end(input, 0)? else {
        return incomplete(input);
    };
    let status = parse_status(&input[..at - 2])?;
    let mut content_length = None;
    let mut is_chunked = false;
    let mut coding = Coding::Identity;
    let mut close = false;
    loop {
        let start = at;
        let Some(next) = line_end(input, start)? else {
            return incomplete(input);
        };
        at = next;
        let line = &input[start..at - 2];
        if line.is_empty() {
            break;
        }
        // Most fields are none of ours: the first letter sorts them out.
        match line[0] | 0x20 {
            b'c' | b't' => {}
            _ => continue,
        }
        let colon = memchr(b':', line)
            .filter(|&i| i > 0)
            .ok_or(HeadError::Field)?;
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if name.eq_ignore_ascii_case(b"content-length") {
            if content_length.is_some() {
                return Err(HeadError::ContentLength);
            }
            content_length = Some(parse_length(value)?);
        } else if name.eq_ignore_ascii_case(b"connection") {
            close |= value
                .split(|&b| b == b',')
                .any(|token| token.trim_ascii().eq_ignore_ascii_case(b"close"));
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            if !codings || is_chunked || !value.eq_ignore_ascii_case(b"chunked") {
                return Err(HeadError::TransferCoding);
            }
            is_chunked = true;
        } else if name.eq_ignore_ascii_case(b"content-encoding") {
            // "identity" is no coding, though nobody has to say so (RFC 9110 section 8.4.1):
            // kawipiko does.
            let known = Coding::parse(value).filter(|known| codings || *known == Coding::Identity);
            coding = known.ok_or(HeadError::ContentCoding)?;
        }
    }
    let framing = match (content_length, is_chunked) {
        (Some(len), false) => Framing::Length(len),
        (None, true) => Framing::Chunks,
        (None, false) => return Err(HeadError::NoContentLength),
        (Some(_), true) => return Err(HeadError::TransferCoding),
    };
    Ok(Some(Head {
        status,
        framing,
        coding,
        close,
        len: at,
    }))
}

/// Index after the line that starts at `start`, or `None` when its end has not arrived.
fn line_end(input: &[u8], start: usize) -> Result<Option<usize>, HeadError> {
    let Some(line_feed) = memchr(b'\n', &input[start..]) else {
        return Ok(None);
    };
    let end = start + line_feed;
    if line_feed == 0 || input[end - 1] != b'\r' {
        return Err(HeadError::LineEnd);
    }
    Ok(Some(end + 1))
}

fn incomplete(input: &[u8]) -> Result<Option<Head>, HeadError> {
    if input.len() >= HEAD_MAX {
        Err(HeadError::TooLong)
    } else {
        Ok(None)
    }
}

fn parse_status(line: &[u8]) -> Result<u16, HeadError> {
    let rest = line
        .strip_prefix(b"HTTP/1.1 ")
        .ok_or(HeadError::StatusLine)?;
    let (digits, after) = rest.split_at_checked(3).ok_or(HeadError::StatusLine)?;
    if !digits.iter().all(u8::is_ascii_digit) || !(after.is_empty() || after[0] == b' ') {
        return Err(HeadError::StatusLine);
    }
    let status = digits
        .iter()
        .fold(0, |sum, &digit| sum * 10 + u16::from(digit - b'0'));
    if status < 100 {
        Err(HeadError::StatusLine)
    } else {
        Ok(status)
    }
}

fn parse_length(value: &[u8]) -> Result<u64, HeadError> {
    // 18 digits cannot overflow a u64.
    if value.is_empty() || value.len() > 18 || !value.iter().all(u8::is_ascii_digit) {
        return Err(HeadError::ContentLength);
    }
    Ok(value
        .iter()
        .fold(0, |sum, &digit| sum * 10 + u64::from(digit - b'0')))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(input: &str, expect: Result<Option<(u16, u64, bool)>, HeadError>) {
        let found = parse(input.as_bytes(), false);
        let found = found.map(|head| {
            head.map(|h| match h.framing {
                Framing::Length(len) => (h.status, len, h.close),
                Framing::Chunks => panic!("chunks were not asked for"),
            })
        });
        assert_eq!(found, expect, "{input:?}");
    }

    #[test]
    fn accepts_codings_and_chunks_that_were_asked_for() {
        let check = |fields: &str, expect| {
            let input = format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\n");
            let found = parse(input.as_bytes(), true);
            let found = found.map(|head| head.map(|it| (it.framing, it.coding)));
            assert_eq!(found, expect, "{input:?}");
            let refused = parse(input.as_bytes(), false);
            assert!(refused.is_err(), "{input:?}");
        };
        check(
            "Content-Encoding: gzip\r\nTransfer-Encoding: chunked",
            Ok(Some((Framing::Chunks, Coding::Gzip))),
        );
        check(
            "content-encoding: BR\r\ncontent-length: 7",
            Ok(Some((Framing::Length(7), Coding::Brotli))),
        );
        check(
            "Content-Encoding: compress\r\nContent-Length: 7",
            Err(HeadError::ContentCoding),
        );
        check(
            "Content-Length: 7\r\nTransfer-Encoding: chunked",
            Err(HeadError::TransferCoding),
        );
        check(
            "Transfer-Encoding: gzip, chunked",
            Err(HeadError::TransferCoding),
        );
    }

    #[test]
    fn accepts_heads_of_files() {
        check(
            "HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\nHello",
            Ok(Some((200, 13, false))),
        );
        check(
            "HTTP/1.1 200\r\ncontent-LENGTH:0\r\n\r\n",
            Ok(Some((200, 0, false))),
        );
        check(
            "HTTP/1.1 404 Not Found\r\nConnection: x, Close\r\nContent-Length: 7\r\n\r\n",
            Ok(Some((404, 7, true))),
        );
    }

    #[test]
    fn refuses_what_it_cannot_trust() {
        use HeadError::*;
        check(
            "HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\n",
            Err(StatusLine),
        );
        check(
            "HTTP/1.1 2x0 OK\r\nContent-Length: 1\r\n\r\n",
            Err(StatusLine),
        );
        check(
            "HTTP/1.1 099 OK\r\nContent-Length: 1\r\n\r\n",
            Err(StatusLine),
        );
        check("HTTP/1.1 200 OK\nContent-Length: 1\n\n", Err(LineEnd));
        check("HTTP/1.1 200 OK\r\n\r\n", Err(NoContentLength));
        check("HTTP/1.1 200 OK\r\ncolonless\r\n\r\n", Err(Field));
        check(
            "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
            Err(ContentLength),
        );
        let twice = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n";
        check(twice, Err(ContentLength));
        check(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            Err(TransferCoding),
        );
        check(
            "HTTP/1.1 200 OK\r\nContent-Encoding: identity\r\nContent-Length: 1\r\n\r\n",
            Ok(Some((200, 1, false))),
        );
        check(
            "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n",
            Err(ContentCoding),
        );
        check(
            &format!("HTTP/1.1 200 OK\r\nX: {}", "y".repeat(HEAD_MAX)),
            Err(TooLong),
        );
    }

    /// Every prefix of a head asks for more, and the head is the same wherever it was cut.
    #[test]
    fn any_prefix_is_incomplete() {
        let head =
            b"HTTP/1.1 200 OK\r\nServer: x\r\nContent-Length: 5\r\nConnection: close\r\n\r\n";
        for cut in 0..head.len() {
            assert_eq!(parse(&head[..cut], false), Ok(None), "cut at {cut}");
        }
        let whole = Head {
            status: 200,
            framing: Framing::Length(5),
            coding: Coding::Identity,
            close: true,
            len: head.len(),
        };
        assert_eq!(parse(head, false), Ok(Some(whole)));
    }
}
