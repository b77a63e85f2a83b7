//! A request of HTTP/1.1 on a connection of its own, and what a server of any kind answers.

use std::fmt::Display;
use std::io::{Read, Write};
use std::net::TcpStream;

use anyhow::{Context, Result, ensure};

use crate::running::PATIENCE;

/// An answer.
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// Its lines up to the empty one.
    pub head: String,
    /// The content.
    pub body: Vec<u8>,
}

impl Answer {
    /// The value of the first field of this name.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        let found = lines.find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value)
    }
}

/// Asks a server on a port of loopback; `fields` are lines without their ends.
///
/// # Errors
///
/// The server does not answer, not within [`PATIENCE`], or with content in chunks, whose length is not known.
pub fn ask(port: impl Display, method: &str, target: &str, fields: &[&str]) -> Result<Answer> {
    let mut stream = TcpStream::connect(format!("127.0.0.1:{port}"))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let fields: String = fields.iter().map(|line| format!("{line}\r\n")).collect();
    let first = format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\n");
    let head = format!("{first}Connection: close\r\n{fields}\r\n");
    stream.write_all(head.as_bytes())?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    let end = bytes.windows(4).position(|it| it == b"\r\n\r\n");
    let body = bytes.split_off(end.context("no head")? + 4);
    let head = String::from_utf8_lossy(&bytes).into_owned();
    let status = head.split(' ').nth(1).and_then(|it| it.parse().ok());
    let answer = Answer {
        status: status.context("no status")?,
        head,
        body,
    };
    let is_chunked = answer.field("transfer-encoding").is_some();
    ensure!(!is_chunked, "the length is not known: {}", answer.head);
    Ok(answer)
}
