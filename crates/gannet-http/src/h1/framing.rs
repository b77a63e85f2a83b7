//! What a head's fields specify for the message and the connection (RFC 9112 sections 6, 7 and 9).

use super::error::Why;
use crate::semantics::decimal::parse_decimal;
use crate::semantics::fields::{FieldMask, Fields, KnownField};
use crate::semantics::request::{Content, Version};

/// Fields that affect the framing or the connection, apart from `Host`.
pub(crate) const FRAMING: FieldMask = FieldMask::of(&[
    KnownField::Connection,
    KnownField::ContentLength,
    KnownField::TransferEncoding,
    KnownField::Expect,
]);

/// How a request's content is framed.
///
/// # Errors
/// Anything that two readers might understand differently (RFC 9112 section 6.3), including
/// repeated lengths that agree.
pub(crate) fn parse_content(fields: &Fields<'_>, version: Version) -> Result<Content, Why> {
    let has_length = fields.has(KnownField::ContentLength);
    if fields.has(KnownField::TransferEncoding) {
        if version == Version::Http10 {
            return Err(Why::TransferEncoding); // RFC 9112 6.1: faulty framing
        }
        if has_length {
            return Err(Why::LengthAndCoding);
        }
        return parse_transfer_encoding(fields);
    }
    if !has_length {
        return Ok(Content::None);
    }
    if fields.is_repeated(KnownField::ContentLength) {
        return Err(Why::ContentLength);
    }
    match fields
        .get(KnownField::ContentLength)
        .and_then(parse_decimal)
    {
        None => Err(Why::ContentLength),
        Some(0) => Ok(Content::None),
        Some(len) => Ok(Content::Length(len)),
    }
}

/// Only `chunked` alone is supported. Other codings before it are not implemented; if `chunked` is
/// not last, or occurs twice, the end of the content is in doubt (RFC 9112 section 6.3).
fn parse_transfer_encoding(fields: &Fields<'_>) -> Result<Content, Why> {
    let mut coding_count = 0u32;
    let mut chunked_count = 0u32;
    let mut last_is_chunked = false;
    for line in fields.lines(KnownField::TransferEncoding) {
        for coding in line.split(|&byte| byte == b',').map(<[u8]>::trim_ascii) {
            if coding.is_empty() || !coding.iter().all(|&byte| crate::scan::is_token_byte(byte)) {
                return Err(Why::TransferEncoding);
            }
            coding_count += 1;
            last_is_chunked = coding.eq_ignore_ascii_case(b"chunked");
            chunked_count += u32::from(last_is_chunked);
        }
    }
    match (last_is_chunked, chunked_count, coding_count) {
        (true, 1, 1) => Ok(Content::Chunked),
        (true, 1, _) => Err(Why::CodingUnsupported),
        _ => Err(Why::TransferEncoding),
    }
}

/// What the `Connection` field requests.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct ConnectionOptions {
    pub(crate) close: bool,
    pub(crate) keep_alive: bool,
}

/// The options in all lines of `Connection` that affect persistence (RFC 9112 section 9.3).
pub(crate) fn parse_connection(fields: &Fields<'_>) -> ConnectionOptions {
    let mut options = ConnectionOptions::default();
    for line in fields.lines(KnownField::Connection) {
        for option in line.split(|&byte| byte == b',').map(<[u8]>::trim_ascii) {
            options.close |= option.eq_ignore_ascii_case(b"close");
            options.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
        }
    }
    options
}

/// Whether the client waits for a 100 before it sends content (RFC 9110 section 10.1.1).
///
/// # Errors
/// [`Why::ExpectationUnknown`] for another expectation. HTTP/1.0 has none: the field is ignored.
pub(crate) fn parse_expect(fields: &Fields<'_>, version: Version) -> Result<bool, Why> {
    if version == Version::Http10 {
        return Ok(false);
    }
    let mut expects_continue = false;
    for line in fields.lines(KnownField::Expect) {
        if !line.eq_ignore_ascii_case(b"100-continue") {
            return Err(Why::ExpectationUnknown);
        }
        expects_continue = true;
    }
    Ok(expects_continue)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(section: &str) -> Result<Content, Why> {
        let fields = Fields::parse(section.as_bytes()).expect("a section of the test");
        parse_content(&fields, Version::Http11)
    }

    #[test]
    fn lengths() {
        assert_eq!(content(""), Ok(Content::None));
        assert_eq!(content("content-length: 0\r\n"), Ok(Content::None));
        assert_eq!(content("content-length: 007\r\n"), Ok(Content::Length(7)));
        for bad in [
            "",
            "+1",
            "-1",
            "1 1",
            "1,1",
            "1, 1",
            "0x1",
            "1.0",
            "1_0",
            "18446744073709551616",
        ] {
            assert_eq!(
                content(&format!("content-length: {bad}\r\n")),
                Err(Why::ContentLength)
            );
        }
        let twice = "content-length: 1\r\ncontent-length: 1\r\n";
        assert_eq!(content(twice), Err(Why::ContentLength));
    }

    #[test]
    fn transfer_codings() {
        let check = |values: &[&str], expect| {
            let section: String = values
                .iter()
                .map(|value| format!("transfer-encoding: {value}\r\n"))
                .collect();
            assert_eq!(content(&section), expect, "{values:?}");
        };
        check(&["chunked"], Ok(Content::Chunked));
        check(&["Chunked"], Ok(Content::Chunked));
        check(&["gzip, chunked"], Err(Why::CodingUnsupported));
        check(&["gzip", "chunked"], Err(Why::CodingUnsupported));
        for bad in [
            "",
            "chunked, gzip",
            "chunked, chunked",
            ",chunked",
            "chunked,",
            "chunked;x=y",
            "\"chunked\"",
            "chunked chunked",
            "chunked, identity",
            "gzip",
            "identity",
            "xchunked",
        ] {
            check(&[bad], Err(Why::TransferEncoding));
        }
        check(&["chunked", "chunked"], Err(Why::TransferEncoding));
        let both = "transfer-encoding: chunked\r\ncontent-length: 1\r\n";
        assert_eq!(content(both), Err(Why::LengthAndCoding));
        let fields = Fields::parse(b"transfer-encoding: chunked\r\n").expect("a section");
        assert_eq!(
            parse_content(&fields, Version::Http10),
            Err(Why::TransferEncoding)
        );
    }

    #[test]
    fn connection_options() {
        let check = |section: &str, close, keep_alive| {
            let fields = Fields::parse(section.as_bytes()).expect("a section of the test");
            let expect = ConnectionOptions { close, keep_alive };
            assert_eq!(parse_connection(&fields), expect, "{section:?}");
        };
        check("", false, false);
        check("connection: keep-alive\r\n", false, true);
        check("connection: Close\r\n", true, false);
        check("connection: upgrade, Keep-Alive ,close\r\n", true, true);
        check(
            "connection: keep-alive\r\nconnection: x, close\r\n",
            true,
            true,
        );
        check("connection: closed\r\n", false, false);
    }
}
