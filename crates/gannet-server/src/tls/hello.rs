//! Inspects the first bytes from a client: is it TLS, which host does it request, which cipher does
//! it prefer?
//!
//! The ClientHello (RFC 8446 section 4.1.2) is plaintext, and the certificate, hence the ticket
//! keys, is chosen before the TLS library sees it. Malformed input is left to the library, which
//! parses everything again and sends the right alert.

use super::config::AlpnProtocol;
use crate::bounds::tls::{CLIENT_HELLO_MAX, PLAINTEXT_MAX, RECORD_HEADER_LEN};

/// The apparent protocol of a connection.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Look {
    /// Not enough input yet.
    NeedInput,
    /// A complete ClientHello.
    Hello(Hello),
    /// An HTTP request in clear text.
    ClearHttp,
    /// A record with more content than any may have (RFC 8446 section 5.1).
    Overlong,
    /// Anything else; the library rejects it.
    Other,
}

/// The relevant parts of a ClientHello.
#[derive(Debug, Default, Eq, PartialEq)]
pub(super) struct Hello {
    /// The requested host name, in lower case (RFC 6066 section 3).
    pub(super) server_name: Option<Box<str>>,
    /// ChaCha20-Poly1305 is the first suite that we support.
    pub(super) prefers_chacha: bool,
    /// It offers no version newer than TLS 1.1, or names SSL 3.0 (RFC 8446 section D.5).
    pub(super) is_outdated: bool,
    /// It offers the application protocol `acme-tls/1`, and no other (RFC 8737 section 3).
    pub(super) is_challenge: bool,
}

/// Inspects all input received so far.
pub(super) fn look(input: &[u8]) -> Look {
    const HANDSHAKE: u8 = 22;
    match input.first() {
        None => return Look::NeedInput,
        Some(&HANDSHAKE) => {}
        Some(first) if first.is_ascii_uppercase() => return look_http(input),
        Some(_) => return Look::Other,
    }
    match gather(input) {
        Gathered::Short => Look::NeedInput,
        Gathered::Odd => Look::Other,
        Gathered::Overlong => Look::Overlong,
        Gathered::One(message) => Look::Hello(parse(message).unwrap_or_default()),
        Gathered::Several(message) => Look::Hello(parse(&message).unwrap_or_default()),
    }
}

/// Recognises methods that a browser or a person would send; `PRI` is the preface of HTTP/2.
fn look_http(input: &[u8]) -> Look {
    const METHODS: [&[u8]; 8] = [
        b"GET ",
        b"HEAD ",
        b"POST ",
        b"PUT ",
        b"OPTIONS ",
        b"DELETE ",
        b"CONNECT ",
        b"PRI ",
    ];
    let whole = METHODS.iter().any(|method| input.starts_with(method));
    let part = METHODS.iter().any(|method| method.starts_with(input));
    match (whole, part) {
        (true, _) => Look::ClearHttp,
        (false, true) => Look::NeedInput,
        (false, false) => Look::Other,
    }
}

enum Gathered<'a> {
    Short,
    Odd,
    Overlong,
    One(&'a [u8]),
    Several(Vec<u8>),
}

/// The body of the first handshake message, which may span records.
fn gather(input: &[u8]) -> Gathered<'_> {
    const CLIENT_HELLO: u8 = 1;
    let mut rest = input;
    let mut joined: Vec<u8> = Vec::new();
    loop {
        let Some((header, after)) = rest.split_first_chunk::<RECORD_HEADER_LEN>() else {
            return Gathered::Short;
        };
        let len = usize::from(u16::from_be_bytes([header[3], header[4]]));
        if header[0] != 22 || header[1] != 3 || len == 0 {
            return Gathered::Odd;
        }
        if len > PLAINTEXT_MAX {
            return Gathered::Overlong;
        }
        let fragment = &after[..len.min(after.len())];
        let message: &[u8] = if joined.is_empty() {
            fragment
        } else {
            joined.extend_from_slice(fragment);
            &joined
        };
        let Some((start, body)) = message.split_first_chunk::<4>() else {
            if after.len() < len {
                return Gathered::Short;
            }
            if joined.is_empty() {
                joined.extend_from_slice(fragment);
            }
            rest = &after[len..];
            continue;
        };
        let body_len =
            usize::from(start[1]) << 16 | usize::from(start[2]) << 8 | usize::from(start[3]);
        if start[0] != CLIENT_HELLO || body_len > CLIENT_HELLO_MAX {
            return Gathered::Odd;
        }
        if body.len() >= body_len {
            if joined.is_empty() {
                return Gathered::One(&fragment[4..4 + body_len]);
            }
            joined.truncate(4 + body_len);
            joined.drain(..4);
            return Gathered::Several(joined);
        }
        if after.len() < len {
            return Gathered::Short;
        }
        if joined.is_empty() {
            joined.extend_from_slice(fragment);
        }
        rest = &after[len..];
    }
}

/// Parses the relevant parts; `None` if the message is malformed.
fn parse(body: &[u8]) -> Option<Hello> {
    const SERVER_NAME: u16 = 0;
    const PROTOCOLS: u16 = 16;
    const SUPPORTED_VERSIONS: u16 = 43;
    const SSL3: u16 = 0x0300;
    const TLS12: u16 = 0x0303;
    let mut body = Reader(body);
    let version = body.number()?;
    body.take(32)?;
    body.short_vector()?;
    let mut hello = Hello {
        prefers_chacha: prefers_chacha(body.vector()?),
        is_outdated: version < TLS12,
        ..Hello::default()
    };
    body.short_vector()?;
    if body.0.is_empty() {
        return Some(hello);
    }
    let mut extensions = Reader(body.vector()?);
    while !extensions.0.is_empty() {
        let kind = extensions.number()?;
        let content = extensions.vector()?;
        match kind {
            SERVER_NAME => hello.server_name = server_name(content),
            PROTOCOLS => hello.is_challenge = is_challenge(content),
            // This extension overrides the version above, and the library checks it.
            SUPPORTED_VERSIONS => hello.is_outdated = version == SSL3,
            _ => {}
        }
    }
    Some(hello)
}

/// Whether ChaCha20-Poly1305 comes before AES-GCM.
fn prefers_chacha(suites: &[u8]) -> bool {
    const CHACHA: [u16; 3] = [0x1303, 0xcca8, 0xcca9];
    const AES: [u16; 6] = [0x1301, 0x1302, 0xc02b, 0xc02c, 0xc02f, 0xc030];
    suites
        .chunks_exact(2)
        .map(|suite| u16::from_be_bytes([suite[0], suite[1]]))
        .find(|suite| CHACHA.contains(suite) || AES.contains(suite))
        .is_some_and(|suite| CHACHA.contains(&suite))
}

/// Whether the list of application protocols (RFC 7301 section 3.1) is that of an ACME server.
fn is_challenge(content: &[u8]) -> bool {
    let list = Reader(content).vector();
    let only = list.and_then(|list| {
        let mut list = Reader(list);
        let first = list.short_vector()?;
        list.0.is_empty().then_some(first)
    });
    only == Some(AlpnProtocol::Challenge.alpn())
}

/// The host name in the extension, in lower case.
fn server_name(content: &[u8]) -> Option<Box<str>> {
    const HOST_NAME: u8 = 0;
    let mut list = Reader(Reader(content).vector()?);
    if list.take(1)? != [HOST_NAME] {
        return None;
    }
    let name = std::str::from_utf8(list.vector()?).ok()?;
    // RFC 6066 section 3 excludes a trailing dot; some clients send it nevertheless.
    let name = name.strip_suffix('.').unwrap_or(name);
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_');
    let is_name = !name.is_empty() && name.len() <= 253 && name.bytes().all(is_plain);
    is_name.then(|| name.to_ascii_lowercase().into())
}

/// Reads the vectors of the presentation language (RFC 8446 section 3.4).
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (now, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(now)
    }

    fn number(&mut self) -> Option<u16> {
        self.take(2)
            .map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    fn vector(&mut self) -> Option<&'a [u8]> {
        let len = self.number()?;
        self.take(usize::from(len))
    }

    fn short_vector(&mut self) -> Option<&'a [u8]> {
        let len = self.take(1)?[0];
        self.take(usize::from(len))
    }
}
