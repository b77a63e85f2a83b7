//! What requests of HTTP/2 and HTTP/3 have in common.

use std::fmt::Debug;
use std::io;

use super::error::wrong;
use super::response::Head;
use super::url::Url;

/// Writes the fields of a request for `url`, and further `fields`; `write` encodes one.
pub(super) fn write_request(
    url: &Url,
    fields: &[(&str, String)],
    write: fn(&str, &[u8], &mut Vec<u8>),
    out: &mut Vec<u8>,
) {
    let scheme = if url.is_https { "https" } else { "http" };
    write(":method", b"GET", out);
    write(":scheme", scheme.as_bytes(), out);
    write(":authority", url.authority().as_bytes(), out);
    write(":path", url.target.as_bytes(), out);
    write("accept", b"*/*", out);
    for (name, value) in fields {
        write(name, value.as_bytes(), out);
    }
}

/// Takes a field section, of which `decode` passes on each field. The first of a final response is
/// its `head`; an interim response before it and trailers after it are skipped.
///
/// # Errors
/// It cannot be decoded, or is no response.
pub(super) fn take_section<E: Debug>(
    head: &mut Option<Head>,
    decode: impl FnOnce(&mut dyn FnMut(&[u8], &[u8])) -> Result<(), E>,
) -> io::Result<()> {
    let (mut found, mut result) = (Head::default(), Ok(()));
    let decoded = decode(&mut |name, value| {
        if name == b":status" {
            let status = str::from_utf8(value).ok().and_then(|v| v.parse().ok());
            found.status = status.unwrap_or(0);
        } else if result.is_ok() {
            result = found.add(name, value);
        }
    });
    decoded.map_err(|error| wrong(format!("a field section cannot be decoded ({error:?})")))?;
    result.map_err(wrong)?;
    if head.is_none() && found.status < 100 {
        return Err(wrong("the response has no status"));
    }
    if head.is_none() && found.status >= 200 {
        *head = Some(found);
    }
    Ok(())
}

/// An error with its code, by name and number, and the server's words for it.
pub(super) fn protocol_error(what: &str, name: &str, code: u64, words: &[u8]) -> io::Error {
    let mut text = format!("{what}: {name} ({code:#x})");
    if !words.is_empty() {
        text += &format!(": {}", String::from_utf8_lossy(words));
    }
    wrong(text)
}
