//! One request to the server behind, and the head of its answer.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;

use gannet_http::semantics::fields::Fields;

use super::limits::{ANSWER_HEAD_MAX, ANSWER_TIMEOUT};
use super::served::CurrentServer;

/// An answer whose content is still to be read.
pub(super) struct UpstreamAnswer {
    /// `200 OK`.
    pub(super) status: String,
    /// Names in lower case.
    pub(super) fields: Vec<(String, String)>,
    /// The beginning of the content.
    begun: Vec<u8>,
    stream: UnixStream,
}

/// Fields of a request that are not passed on: those of the connection, those that ask for a coding,
/// and conditions, since nothing is to be cached.
const LEFT_OUT: [&str; 12] = [
    "accept-encoding",
    "connection",
    "content-length",
    "expect",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-unmodified-since",
    "keep-alive",
    "te",
    "transfer-encoding",
    "upgrade",
];

/// The head of the request to the server behind, with a range only if it `takes_ranges`.
pub(super) fn head(
    method: &[u8],
    target: &[u8],
    fields: &Fields<'_>,
    takes_ranges: bool,
) -> Vec<u8> {
    let mut head = [method, b" ", target, b" HTTP/1.1\r\n"].concat();
    for (name, value) in fields.iter() {
        let is = |other: &str| name.eq_ignore_ascii_case(other.as_bytes());
        if LEFT_OUT.into_iter().any(is) || (!takes_ranges && (is("range") || is("if-range"))) {
            continue;
        }
        head.extend([name, b": ", value, b"\r\n"].concat());
    }
    // HTTP/1.0 does without.
    if !fields
        .iter()
        .any(|(name, _)| name.eq_ignore_ascii_case(b"host"))
    {
        head.extend(b"host: localhost\r\n");
    }
    head.extend(b"connection: close\r\n\r\n");
    head
}

/// Asks the server behind.
///
/// # Errors
/// It does not answer.
pub(super) fn ask(server: &CurrentServer, head: &[u8]) -> io::Result<UpstreamAnswer> {
    let mut stream = server.connect()?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
    stream.write_all(head)?;
    let mut input = Vec::new();
    let mut chunk = vec![0; 16 << 10];
    let end = loop {
        let count = match stream.read(&mut chunk)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => count,
        };
        let from = input.len().saturating_sub(3);
        input.extend(&chunk[..count]);
        let mut windows = input[from..].windows(4);
        if let Some(at) = windows.position(|it| it == b"\r\n\r\n") {
            break from + at + 4;
        }
        if input.len() > ANSWER_HEAD_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
    };
    let begun = input.split_off(end);
    let text = String::from_utf8_lossy(&input);
    let mut lines = text.split("\r\n").filter(|line| !line.is_empty());
    let first = lines.next().unwrap_or_default();
    let status = first.split_once(' ').unwrap_or_default().1.to_owned();
    let fields = lines.filter_map(|line| {
        let (name, value) = line.split_once(':')?;
        Some((name.to_ascii_lowercase(), value.trim().to_owned()))
    });
    Ok(UpstreamAnswer {
        status,
        fields: fields.collect(),
        begun,
        stream,
    })
}

impl UpstreamAnswer {
    /// The value of a field.
    pub(super) fn field(&self, name: &str) -> Option<&str> {
        let mut fields = self.fields.iter();
        fields.find(|(it, _)| it == name).map(|it| it.1.as_str())
    }

    /// The length that the content is announced with.
    pub(super) fn len(&self) -> Option<u64> {
        self.field("content-length")?.parse().ok()
    }

    /// The status code.
    pub(super) fn code(&self) -> u16 {
        let code = self.status.split(' ').next().unwrap_or_default();
        code.parse().unwrap_or(502)
    }

    /// The content.
    pub(super) fn content(&mut self) -> impl Read + '_ {
        self.begun.as_slice().chain(&mut self.stream)
    }
}
