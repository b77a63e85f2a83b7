//! The head of a request: request line and field section, read in one pass without copying.
//!
//! The grammar is RFC 9112's without its leniencies: no head passes that two readers could take for
//! two different messages. A head that arrives in pieces is checked line by line, each line once
//! when it is complete, and read as a whole after the last. What is refused, and why, depends on
//! the bytes alone and not on the pieces.

use super::error::Why;
use super::framing::{self, FRAMING};
use super::limits::{FIELD_SECTION_MAX, REQUEST_LINE_MAX};
use super::target;
use crate::scan;
use crate::semantics::fields::{FieldError, Fields, KnownField, Section};
use crate::semantics::request::{Content, Method, Request, Version};

/// A complete head.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head<'a> {
    pub(crate) request: Request<'a>,
    /// Length from the request line to the empty line, in bytes.
    pub(crate) len: usize,
    /// Whether the connection may continue.
    pub(crate) is_persistent: bool,
    /// Whether the client holds content back until a 100 arrives.
    pub(crate) expects_continue: bool,
}

/// How much of an incomplete head was read: that part is not read again until the head is complete.
///
/// Invariant: `fields_start <= line_start <= scanned <= HEAD_MAX`, or all of them are 0.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Progress {
    /// Length of the prefix already searched for line ends.
    scanned: u32,
    /// Where the field section begins; 0 while the request line is incomplete.
    fields_start: u32,
    /// Where the first incomplete line begins.
    line_start: u32,
    /// Field lines before it.
    line_count: u16,
}

impl Progress {
    /// Whether no byte of a head has arrived.
    pub(crate) fn is_none(&self) -> bool {
        self.scanned == 0
    }
}

/// Reads the head that `input` starts with; `None` if it is not complete yet.
#[inline]
pub(crate) fn parse<'a>(input: &'a [u8], progress: &mut Progress) -> Result<Option<Head<'a>>, Why> {
    if !progress.is_none() && !resume(input, progress)? {
        return Ok(None);
    }
    // Decided by the first byte, before a line is complete: a TLS hello or other noise on this port
    // would otherwise wait for a line end that never arrives.
    match input.first() {
        None => return Ok(None),
        Some(&byte) if !scan::is_token_byte(byte) => return Err(Why::RequestLine),
        Some(_) => {}
    }
    let Some(line) = parse_request_line(input)? else {
        progress.scanned = input.len() as u32;
        return Ok(None);
    };
    let section = section_view(input, line.len);
    let mut fields = Fields::over(section);
    let mut line_count = 0;
    match fields.read(0, &mut line_count).map_err(field_cause)? {
        Section::End(section_len) => finish(line, fields, section_len).map(Some),
        Section::Incomplete(at) => {
            *progress = Progress {
                scanned: input.len() as u32,
                fields_start: line.len as u32,
                line_start: (line.len + at) as u32,
                line_count,
            };
            check_section_len(section)?;
            Ok(None)
        }
    }
}

/// Whether a head known to be incomplete (or its request line) is complete now: only then is it
/// read from its beginning. Checks the field lines that have become complete.
#[cold]
fn resume(input: &[u8], progress: &mut Progress) -> Result<bool, Why> {
    let fields_start = progress.fields_start as usize;
    let arrived = input.get(progress.scanned as usize..).unwrap_or_default();
    let has_line_end = memchr::memchr(b'\n', arrived).is_some();
    progress.scanned = input.len() as u32;
    if fields_start == 0 {
        if !has_line_end && input.len() >= REQUEST_LINE_MAX {
            return Err(too_long(&input[..REQUEST_LINE_MAX]));
        }
        return Ok(has_line_end);
    }
    let section = section_view(input, fields_start);
    if has_line_end {
        let line_start = progress.line_start as usize - fields_start;
        // The field table is not kept: it would make every waiting connection larger.
        let mut fields = Fields::over(section);
        match fields
            .read(line_start, &mut progress.line_count)
            .map_err(field_cause)?
        {
            Section::End(_) => return Ok(true),
            Section::Incomplete(at) => progress.line_start = (fields_start + at) as u32,
        }
    }
    check_section_len(section)?;
    Ok(false)
}

/// The field section, cut at its maximum length.
#[inline]
fn section_view(input: &[u8], fields_start: usize) -> &[u8] {
    let section = &input[fields_start..];
    &section[..section.len().min(FIELD_SECTION_MAX)]
}

/// Refuses an incomplete section that has reached the maximum length.
fn check_section_len(section: &[u8]) -> Result<(), Why> {
    if section.len() == FIELD_SECTION_MAX {
        return Err(Why::FieldSectionTooLarge);
    }
    Ok(())
}

fn field_cause(error: FieldError) -> Why {
    match error {
        FieldError::Name => Why::FieldName,
        FieldError::Value => Why::FieldValue,
        FieldError::TooMany => Why::TooManyFieldLines,
    }
}

/// A request line; the target has not been parsed yet.
#[derive(Clone, Copy)]
struct RequestLine<'a> {
    method: Method,
    method_name: &'a [u8],
    target: &'a [u8],
    version: Version,
    /// Length including its CRLF.
    len: usize,
}

/// Reads the request line; `None` if it is not complete.
#[inline]
fn parse_request_line(input: &[u8]) -> Result<Option<RequestLine<'_>>, Why> {
    let view = &input[..input.len().min(REQUEST_LINE_MAX)];
    match split_request_line(view) {
        Ok(line) => Ok(Some(line)),
        Err(why) => incomplete_or(why, view),
    }
}

/// The meaning of an unreadable request line: nothing yet, if its end is missing.
#[cold]
fn incomplete_or(why: Why, view: &[u8]) -> Result<Option<RequestLine<'_>>, Why> {
    match memchr::memchr(b'\n', view) {
        Some(_) => Err(why),
        None if view.len() == REQUEST_LINE_MAX => Err(too_long(view)),
        None => Ok(None),
    }
}

/// The error for a request line without an end. RFC 9112 section 3 distinguishes a method that is
/// too long from a target that is.
fn too_long(view: &[u8]) -> Why {
    match view.iter().position(|&byte| !scan::is_token_byte(byte)) {
        None => Why::MethodTooLong,
        Some(end) if view[end] == b' ' => Why::RequestLineTooLong,
        Some(_) => Why::RequestLine,
    }
}

/// Method, one space, target, one space, version, CRLF (RFC 9112 section 3).
#[inline]
fn split_request_line(view: &[u8]) -> Result<RequestLine<'_>, Why> {
    let (method, method_len) = match view {
        [b'G', b'E', b'T', b' ', ..] => (Method::Get, 3),
        [b'H', b'E', b'A', b'D', b' ', ..] => (Method::Head, 4),
        [b'O', b'P', b'T', b'I', b'O', b'N', b'S', b' ', ..] => (Method::Options, 7),
        _ => {
            let end = view.iter().position(|&byte| !scan::is_token_byte(byte));
            match end {
                Some(end) if end > 0 && view[end] == b' ' => (Method::Other, end),
                _ => return Err(Why::RequestLine),
            }
        }
    };
    let rest = &view[method_len + 1..];
    let target_len = scan::find_not_visible(rest);
    if target_len == 0 {
        return Err(Why::RequestLine);
    }
    let (version, version_len) = match rest.get(target_len..).and_then(<[u8]>::first_chunk) {
        Some(b" HTTP/1.1\r\n") => (Version::Http11, 11),
        _ => (parse_version(&rest[target_len..])?, 11),
    };
    Ok(RequestLine {
        method,
        method_name: &view[..method_len],
        target: &rest[..target_len],
        version,
        len: method_len + 1 + target_len + version_len,
    })
}

/// ` HTTP/x.y` and CRLF (RFC 9112 section 2.3). A later minor version is read as 1.1.
fn parse_version(rest: &[u8]) -> Result<Version, Why> {
    match rest {
        [
            b' ',
            b'H',
            b'T',
            b'T',
            b'P',
            b'/',
            major,
            b'.',
            minor,
            b'\r',
            b'\n',
            ..,
        ] if major.is_ascii_digit() && minor.is_ascii_digit() => match (major, minor) {
            (b'1', b'0') => Ok(Version::Http10),
            (b'1', _) => Ok(Version::Http11),
            _ => Err(Why::VersionUnsupported),
        },
        // A control byte inside the target, rather than white space after it.
        [byte, ..] if !matches!(byte, b' ' | b'\r' | b'\n') => Err(Why::Target),
        _ => Err(Why::VersionMalformed),
    }
}

/// Checks the head as a whole, once it is complete and every line is well formed.
#[inline]
fn finish<'a>(
    line: RequestLine<'a>,
    fields: Fields<'a>,
    section_len: usize,
) -> Result<Head<'a>, Why> {
    let RequestLine {
        method,
        method_name,
        version,
        ..
    } = line;
    let (target, target_authority) = target::parse_target(line.target, method, method_name)?;
    let host = fields.get(KnownField::Host);
    if fields.is_repeated(KnownField::Host) {
        return Err(Why::HostRepeated);
    }
    match host {
        Some(host) if !target::is_authority(host) => return Err(Why::HostInvalid),
        None if version != Version::Http10 => return Err(Why::HostMissing),
        _ => {}
    }
    let mut head = Head {
        request: Request {
            method,
            method_name,
            target,
            // RFC 9112 3.2.2: in absolute-form the Host field is ignored.
            authority: target_authority.or(host),
            version,
            fields,
            content: Content::None,
        },
        len: line.len + section_len,
        is_persistent: version != Version::Http10,
        expects_continue: false,
    };
    if fields.has_any(FRAMING) {
        head.request.content = framing::parse_content(&fields, version)?;
        head.expects_continue = framing::parse_expect(&fields, version)?;
        let options = framing::parse_connection(&fields);
        head.is_persistent = !options.close && (head.is_persistent || options.keep_alive);
    }
    Ok(head)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// This makes reading linear: complete lines are before `line_start`, and bytes without a line
    /// end before `scanned`, whatever the pieces.
    #[test]
    fn lines_that_were_read_are_not_read_again() {
        let head = b"GET / HTTP/1.1\r\nHost: a\r\nAccept: b\r\nX: y\r\n\r\n";
        let line_starts: Vec<_> = (1..head.len())
            .filter(|&at| head[at - 1] == b'\n')
            .collect();
        let mut progress = Progress::default();
        for len in 1..head.len() {
            let result = parse(&head[..len], &mut progress);
            assert!(matches!(result, Ok(None)), "incomplete at {len}");
            let complete = line_starts.iter().filter(|&&start| start <= len);
            assert_eq!(
                progress.line_start as usize,
                complete.clone().max().map_or(0, |&at| at)
            );
            assert_eq!(
                usize::from(progress.line_count),
                complete.count().saturating_sub(1)
            );
            assert_eq!(progress.scanned as usize, len);
        }
        let parsed = parse(head, &mut progress)
            .expect("a good head")
            .expect("a complete one");
        assert_eq!(
            (parsed.len, parsed.request.fields.iter().count()),
            (head.len(), 3)
        );
    }
}
