//! Sends one HTTP/1.1 request (RFC 9112) as a client.

use std::io;

use gannet_io::cause::printable;

use super::error::wrong;
use super::limits::{HEAD_MAX, INTERIM_MAX};
use super::response::Head;
use super::transport::Transport;
use super::url::Url;

/// A response whose content has not been read yet.
pub(super) struct Exchange {
    transport: Transport,
    body: Body,
    /// Content received with the head.
    early: Vec<u8>,
}

/// How the content is framed (RFC 9112 section 6.3).
enum Body {
    /// By its length in bytes.
    Length(u64),
    /// By chunks.
    Chunked(Chunks),
    /// By the end of the connection.
    Close,
}

/// Requests `url` with additional `fields`, and reads the head of the final response.
///
/// # Errors
/// The connection fails, or the response is malformed.
pub(super) fn get(
    mut transport: Transport,
    url: &Url,
    fields: &[(&str, String)],
) -> io::Result<(Head, Exchange)> {
    let (target, host) = (&url.target, url.authority());
    let mut request = format!("GET {target} HTTP/1.1\r\nhost: {host}\r\naccept: */*\r\n");
    for (name, value) in fields {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    request.push_str("connection: close\r\n\r\n");
    transport.send(request.as_bytes())?;
    let mut received = Vec::new();
    for _ in 0..INTERIM_MAX {
        let len = loop {
            if let Some(end) = received.windows(4).position(|w| w == b"\r\n\r\n") {
                break end + 4;
            }
            if received.len() > HEAD_MAX {
                return Err(wrong("the response head is too long"));
            }
            let more = transport.receive(&mut |bytes| {
                received.extend_from_slice(bytes);
                Ok(())
            })?;
            if !more {
                return Err(wrong("closed before a response"));
            }
        };
        let mut head = parse(&received[..len]).map_err(wrong)?;
        received.drain(..len);
        if head.status >= 200 {
            let body = match head.content_length {
                _ if head.is_chunked => Body::Chunked(Chunks::default()),
                _ if matches!(head.status, 204 | 304) => Body::Length(0),
                Some(length) => Body::Length(length),
                None => Body::Close,
            };
            if head.is_chunked {
                // RFC 9112 section 6.3: the chunked coding overrides it.
                head.content_length = None;
            }
            let early = received;
            return Ok((
                head,
                Exchange {
                    transport,
                    body,
                    early,
                },
            ));
        }
    }
    Err(wrong("too many interim responses"))
}

impl Exchange {
    /// Passes the next content to `take`, or only counts `unwanted` content where that is cheaper.
    /// Returns the number of bytes, or `None` at the end.
    ///
    /// # Errors
    /// The connection fails, `take` fails, or the content is truncated.
    pub(super) fn next(
        &mut self,
        unwanted: bool,
        take: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<Option<u64>> {
        if !self.early.is_empty() {
            let early = std::mem::take(&mut self.early);
            return self.body.take(&early, take).map(Some);
        }
        match &mut self.body {
            Body::Length(0) => return Ok(None),
            Body::Chunked(chunks) if chunks.is_done() => return Ok(None),
            Body::Length(left) if unwanted => {
                if let Some(count) = self.transport.discard(*left) {
                    let count = count?;
                    if count == 0 {
                        return Err(wrong(format!("closed {left} bytes before the end")));
                    }
                    *left -= count.min(*left);
                    return Ok(Some(count));
                }
            }
            _ => {}
        }
        let body = &mut self.body;
        let mut count = 0;
        let more = self.transport.receive(&mut |bytes| {
            count += body.take(bytes, take)?;
            Ok(())
        })?;
        match (&self.body, more) {
            (_, true) => Ok(Some(count)),
            // RFC 9112 section 9.8: anyone on the path can close a TCP connection.
            (Body::Close, false) if self.transport.is_cut() => {
                Err(wrong("the connection was cut off (no close_notify)"))
            }
            (Body::Close, false) => Ok(None),
            (Body::Length(0), false) => Ok(Some(count)),
            (Body::Length(left), false) => {
                Err(wrong(format!("closed {left} bytes before the end")))
            }
            (Body::Chunked(_), false) => Err(wrong("closed before the last chunk")),
        }
    }
}

impl Body {
    /// Passes the content in `bytes` to `take` and returns its length.
    fn take(
        &mut self,
        bytes: &[u8],
        take: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<u64> {
        match self {
            Self::Close => take(bytes).map(|()| bytes.len() as u64),
            Self::Length(left) => {
                let len = usize::try_from(*left)
                    .unwrap_or(usize::MAX)
                    .min(bytes.len());
                *left -= len as u64;
                take(&bytes[..len]).map(|()| len as u64)
            }
            Self::Chunked(chunks) => chunks.take(bytes, take),
        }
    }
}

/// A decoder of the chunked coding (RFC 9112 section 7.1); processes all but the content byte by
/// byte.
#[derive(Default)]
struct Chunks {
    state: Chunk,
    /// The remaining length of the chunk, or its size while that is read.
    size: u64,
    /// Bytes of the current line.
    line: usize,
    /// Bytes of the trailer section.
    trailer: usize,
}

#[derive(Clone, Copy, Default, PartialEq)]
enum Chunk {
    #[default]
    Size,
    Extension,
    Content,
    End,
    Trailer,
    Done,
}

impl Chunks {
    fn is_done(&self) -> bool {
        self.state == Chunk::Done
    }

    fn take(
        &mut self,
        mut bytes: &[u8],
        take: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<u64> {
        let mut count = 0;
        while let Some((&byte, rest)) = bytes.split_first() {
            if self.state == Chunk::Content {
                let len = usize::try_from(self.size)
                    .unwrap_or(usize::MAX)
                    .min(bytes.len());
                take(&bytes[..len])?;
                (count, self.size) = (count + len as u64, self.size - len as u64);
                bytes = &bytes[len..];
                if self.size == 0 {
                    self.state = Chunk::End;
                }
                continue;
            }
            bytes = rest;
            self.line += 1;
            if self.line > HEAD_MAX {
                return Err(wrong("a chunk's line is too long"));
            }
            self.trailer += usize::from(self.state == Chunk::Trailer);
            if self.trailer > HEAD_MAX {
                return Err(wrong("the trailer section is too long"));
            }
            self.state = match (self.state, byte) {
                (Chunk::Size, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                    let digit = char::from(byte).to_digit(16).unwrap_or(0);
                    let size = self.size.checked_mul(16).map(|s| s + u64::from(digit));
                    self.size = size.ok_or_else(|| wrong("a chunk's size is too large"))?;
                    Chunk::Size
                }
                (Chunk::Size, b';' | b'\r' | b' ' | b'\t') => Chunk::Extension,
                (Chunk::Size | Chunk::Extension, b'\n') => {
                    self.line = 0;
                    if self.size == 0 {
                        Chunk::Trailer
                    } else {
                        Chunk::Content
                    }
                }
                (Chunk::Extension, _) => Chunk::Extension,
                (Chunk::End, b'\r') => Chunk::End,
                (Chunk::End, b'\n') => {
                    self.line = 0;
                    Chunk::Size
                }
                // An empty line, except for its CRLF, ends the trailer section.
                (Chunk::Trailer, b'\n') if self.line <= 2 => Chunk::Done,
                (Chunk::Trailer, b'\n') => {
                    self.line = 0;
                    Chunk::Trailer
                }
                (Chunk::Trailer, _) => Chunk::Trailer,
                (Chunk::Done, _) => return Err(wrong("bytes after the last chunk")),
                _ => return Err(wrong("a chunk's size is not a number")),
            };
        }
        Ok(count)
    }
}

fn parse(head: &[u8]) -> Result<Head, String> {
    let mut lines = head
        .split(|&b| b == b'\n')
        .map(|line| line.trim_ascii_end());
    let start = lines.next().unwrap_or_default();
    let status = start
        .strip_prefix(b"HTTP/1.")
        .and_then(|rest| rest.get(2..5))
        .and_then(|digits| str::from_utf8(digits).ok()?.parse::<u16>().ok())
        .filter(|status| (100..1000).contains(status));
    let Some(status) = status else {
        let start = String::from_utf8_lossy(&start[..start.len().min(40)]).into_owned();
        return Err(format!("the response starts with '{}'", printable(&start)));
    };
    let mut head = Head {
        status,
        ..Head::default()
    };
    // Obsolete line folding (RFC 9112 section 5.2) occurs only in fields that are not used here.
    let is_folded = |line: &&[u8]| line.first().is_some_and(|b| b" \t".contains(b));
    for line in lines.filter(|line| !line.is_empty() && !is_folded(line)) {
        let colon = line
            .iter()
            .position(|&b| b == b':')
            .ok_or("a field has no colon")?;
        head.add(&line[..colon], &line[colon + 1..])?;
    }
    Ok(head)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Wherever the coded bytes are split, the content is the same.
    #[test]
    fn chunks_are_joined_wherever_they_are_cut() {
        let coded = b"5\r\nHello\r\n8;x=y\r\n, World!\r\n0\r\nA: b\r\n\r\n";
        for cut in 0..=coded.len() {
            let (mut chunks, mut content) = (Chunks::default(), Vec::new());
            for part in [&coded[..cut], &coded[cut..]] {
                let mut take = |bytes: &[u8]| {
                    content.extend_from_slice(bytes);
                    Ok(())
                };
                chunks.take(part, &mut take).expect("well coded");
            }
            assert_eq!(
                (content.as_slice(), chunks.is_done()),
                (&b"Hello, World!"[..], true)
            );
        }
        for bad in [&b"x\r\n"[..], b"fffffffffffffffff\r\n", b"1\r\nab"] {
            let taken = Chunks::default().take(bad, &mut |_| Ok(()));
            assert!(taken.is_err(), "{bad:?}");
        }
    }

    #[test]
    fn trailers_end_within_the_bound_of_a_head() {
        let line = b"a: b\r\n";
        for (count, is_sound) in [
            (HEAD_MAX / line.len(), true),
            (HEAD_MAX / line.len() + 1, false),
        ] {
            let mut chunks = Chunks::default();
            let mut take = |bytes: &[u8]| chunks.take(bytes, &mut |_| Ok(()));
            take(b"0\r\n").expect("well coded");
            let taken = (0..count).try_for_each(|_| take(line).map(drop));
            assert_eq!(taken.is_ok(), is_sound, "{count} lines");
        }
    }

    #[test]
    fn heads() {
        let head =
            parse(b"HTTP/1.1 206 \r\nContent-Length: 3\r\nETag: \"a\"\r\n\r\n").expect("good");
        assert_eq!((head.status, head.content_length), (206, Some(3)));
        assert_eq!(head.tag.as_deref(), Some("\"a\""));
        let folded = parse(b"HTTP/1.0 200 OK\r\nX: a\r\n b\r\nContent-Length: 3\r\n\r\n");
        assert_eq!(folded.map(|head| head.content_length), Ok(Some(3)));
        for bad in [
            "SSH-2.0\r\n\r\n",
            "HTTP/1.1 2x0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nx\r\n\r\n",
        ] {
            assert!(parse(bad.as_bytes()).is_err(), "{bad:?}");
        }
    }
}
