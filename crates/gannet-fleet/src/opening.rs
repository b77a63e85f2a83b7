//! How a conversation is opened: a request of HTTP/1.1 to speak something else (RFC 9110 section 7.8), which
//! passes proxies. The receiver looks at nothing else of it, not even at its path.

use std::io::{self, Read, Write};

use crate::limits::OPENING_LEN_MAX;

/// What is spoken after it.
const PROTOCOL: &str = "gannet-publish";

/// Opens a conversation with a receiver.
///
/// # Errors
/// It answers otherwise (`InvalidData`), or the connection fails.
pub fn open(stream: &mut (impl Read + Write), host: &str, path: &str) -> io::Result<()> {
    let request = format!(
        "GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: upgrade\r\nupgrade: {PROTOCOL}\r\n\r\n"
    );
    stream.write_all(request.as_bytes())?;
    stream.flush()?;
    let answer = read_head(stream)?;
    match answer.starts_with("HTTP/1.1 101 ") && asks(&answer) {
        true => Ok(()),
        false => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Answers the request of a publisher.
///
/// # Errors
/// It is another request, which is answered, too (`InvalidData`); or the connection fails.
pub fn accept(stream: &mut (impl Read + Write)) -> io::Result<()> {
    let head = read_head(stream);
    let is_ours = match &head {
        Ok(head) => head.starts_with("GET ") && asks(head),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => false,
        Err(_) => return head.map(drop),
    };
    let status = match is_ours {
        true => "101 Switching Protocols\r\nconnection: upgrade",
        false => "426 Upgrade Required\r\nconnection: upgrade, close\r\ncontent-length: 0",
    };
    let answer = format!("HTTP/1.1 {status}\r\nupgrade: {PROTOCOL}\r\n\r\n");
    stream.write_all(answer.as_bytes())?;
    stream.flush()?;
    match is_ours {
        true => Ok(()),
        false => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Whether a head asks for our protocol, or agrees to it.
fn asks(head: &str) -> bool {
    head.lines().skip(1).any(|line| {
        line.split_once(':').is_some_and(|(name, value)| {
            name.eq_ignore_ascii_case("upgrade") && value.trim().eq_ignore_ascii_case(PROTOCOL)
        })
    })
}

/// Reads a head with its empty line, and nothing after it.
fn read_head(stream: &mut impl Read) -> io::Result<String> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() == OPENING_LEN_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        stream.read_exact(&mut byte)?;
        head.extend(byte);
    }
    String::from_utf8(head).map_err(|_| io::ErrorKind::InvalidData.into())
}
