//! The path of a target: decoded once into its canonical form, and encoded again for `Location`.
//!
//! The result of decoding is never decoded again. A canonical path starts with `/`; its segments
//! are separated by single slashes; none is `.` or `..`; a trailing slash is kept.

use super::limits::PATH_MAX;
use crate::scan::{below, equal, letters_digits_and};

/// A decoded path in canonical form.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct CanonicalPath<'a>(&'a [u8]);

impl<'a> CanonicalPath<'a> {
    /// The root.
    pub const ROOT: CanonicalPath<'static> = CanonicalPath(b"/");

    /// The path, beginning with `/`.
    #[must_use]
    pub fn as_bytes(&self) -> &'a [u8] {
        self.0
    }

    /// Whether it ends with a slash, as the root does.
    #[must_use]
    pub fn has_trailing_slash(&self) -> bool {
        self.0.ends_with(b"/")
    }

    /// The segments from the root on, none of them empty.
    pub fn segments(&self) -> impl DoubleEndedIterator<Item = &'a [u8]> + Clone {
        self.0
            .split(|&byte| byte == b'/')
            .filter(|segment| !segment.is_empty())
    }
}

/// Why a path is rejected.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PathError {
    /// It does not start with a slash.
    NotAbsolute,
    /// A percent sign without two hexadecimal digits.
    Percent,
    /// A NUL or another control byte, or a backslash.
    Byte,
    /// `..` above the root.
    AboveRoot,
    /// Longer than [`PATH_MAX`] when decoded.
    TooLong,
}

/// Decodes a raw path (percent-encoded, without its query) into its canonical form.
///
/// Percent signs are decoded, runs of slashes become one, and only then are `.` and `..` removed
/// (RFC 3986 section 5.2.4), so `%2e%2e`, `//..` and `%2f..` mean the same as `..` and `/..`.
/// Everything after this sees the decoded path alone: files, rules, passwords. A path that is
/// already canonical, which is the usual case, is returned unchanged after one scan; otherwise
/// `scratch` holds the result.
///
/// # Errors
/// See [`PathError`]. A path that climbs above the root is rejected even if it returns.
#[inline]
pub fn decode_path<'a>(
    raw: &'a [u8],
    scratch: &'a mut Vec<u8>,
) -> Result<CanonicalPath<'a>, PathError> {
    if is_surely_canonical(raw) {
        return Ok(CanonicalPath(raw));
    }
    decode_into(raw, scratch)?;
    Ok(CanonicalPath(scratch))
}

/// Appends a decoded path in URI form, as in `Location`: `path-absolute` of RFC 3986.
///
/// Bytes not allowed in a path are percent-encoded. The result starts with exactly one slash,
/// whatever `path` starts with, so that it can never name another host (`//host`).
pub fn encode_path(path: &[u8], out: &mut Vec<u8>) {
    let first = path
        .iter()
        .position(|&byte| byte != b'/')
        .unwrap_or(path.len());
    out.push(b'/');
    for &byte in &path[first..] {
        if IS_PATH_BYTE[usize::from(byte)] {
            out.push(byte);
        } else {
            let digit = |nibble: u8| HEX_DIGITS[usize::from(nibble & 15)];
            out.extend_from_slice(&[b'%', digit(byte >> 4), digit(byte)]);
        }
    }
}

/// Whether a quick scan finds nothing that might need a change or be rejected; if so, the path is
/// canonical. False only means that a full check is needed.
#[inline]
fn is_surely_canonical(raw: &[u8]) -> bool {
    if raw.first() != Some(&b'/') || raw.len() > PATH_MAX {
        return false;
    }
    let (words, tail) = raw.as_chunks::<8>();
    // The high bit of the lowest byte, if the byte before this word was a slash.
    let mut after_slash = 0;
    for word in words {
        let word = u64::from_le_bytes(*word);
        let slash = equal(word, b'/');
        let slash_or_dot = slash | equal(word, b'.');
        let other = below(word, 0x20) | equal(word, 0x7f) | equal(word, b'%') | equal(word, b'\\');
        if other | (slash_or_dot & (slash << 8 | after_slash)) != 0 {
            return false;
        }
        after_slash = slash >> 56;
    }
    let mut is_after_slash = after_slash != 0;
    for &byte in tail {
        let is_slash = byte == b'/';
        let is_special = byte < 0x20 || matches!(byte, 0x7f | b'%' | b'\\');
        if is_special || (is_after_slash && (is_slash || byte == b'.')) {
            return false;
        }
        is_after_slash = is_slash;
    }
    true
}

/// Full decoding, for any path.
fn decode_into(raw: &[u8], out: &mut Vec<u8>) -> Result<(), PathError> {
    if raw.first() != Some(&b'/') {
        return Err(PathError::NotAbsolute);
    }
    out.clear();
    decode_percent(raw, out)?;
    remove_dots(out)?;
    match out.len() > PATH_MAX {
        true => Err(PathError::TooLong),
        false => Ok(()),
    }
}

/// Makes a decoded path that starts with a slash canonical, in place.
fn remove_dots(path: &mut Vec<u8>) -> Result<(), PathError> {
    // Invariant: `path[..len]` is the canonical path of a directory, with its slash; the segments
    // from `at` on, which is not before `len`, have not been read.
    let (mut len, mut at) = (1, 1);
    while at < path.len() {
        let slash = path[at..].iter().position(|&byte| byte == b'/');
        let end = slash.map_or(path.len(), |slash| at + slash);
        match &path[at..end] {
            b"" | b"." => {}
            b".." => {
                if len == 1 {
                    return Err(PathError::AboveRoot);
                }
                let parent = path[..len - 1].iter().rposition(|&byte| byte == b'/');
                len = parent.map_or(1, |slash| slash + 1);
            }
            _ => {
                let with_slash = (end + 1).min(path.len());
                path.copy_within(at..with_slash, len);
                len += with_slash - at;
            }
        }
        at = end + 1;
    }
    path.truncate(len);
    Ok(())
}

/// Appends the bytes of a path, decoded.
fn decode_percent(raw: &[u8], out: &mut Vec<u8>) -> Result<(), PathError> {
    let mut rest = raw;
    while let [first, tail @ ..] = rest {
        let (byte, tail) = match (first, tail) {
            (b'%', [high, low, tail @ ..]) => {
                let digit = |byte: &u8| char::from(*byte).to_digit(16).ok_or(PathError::Percent);
                ((digit(high)? << 4 | digit(low)?) as u8, tail)
            }
            (b'%', _) => return Err(PathError::Percent),
            (&byte, tail) => (byte, tail),
        };
        if byte < 0x20 || matches!(byte, 0x7f | b'\\') {
            return Err(PathError::Byte);
        }
        out.push(byte);
        rest = tail;
    }
    Ok(())
}

const HEX_DIGITS: &[u8; 16] = b"0123456789ABCDEF";

/// `pchar` of RFC 3986 section 3.3 and the slash.
const IS_PATH_BYTE: [bool; 256] = letters_digits_and(b"-._~!$&'()*+,;=:@/");

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decode(raw: &[u8]) -> Result<Vec<u8>, PathError> {
        let mut scratch = b"left over".to_vec();
        decode_path(raw, &mut scratch).map(|path| path.as_bytes().to_vec())
    }

    fn check(raw: &str, expect: Result<&str, PathError>) {
        assert_eq!(
            decode(raw.as_bytes()),
            expect.map(|path| path.as_bytes().to_vec()),
            "{raw:?}"
        );
    }

    #[test]
    fn canonical_paths_are_borrowed() {
        for path in ["/", "/a", "/a/", "/a/b.c", "/a.b/..c/"] {
            let raw = path.as_bytes();
            let mut scratch = Vec::new();
            let found = decode_path(raw, &mut scratch)
                .expect("canonical")
                .as_bytes();
            assert_eq!(found, raw);
            let is_dot_first = path.contains("/.");
            assert_eq!(std::ptr::eq(found, raw), !is_dot_first, "{path}");
        }
    }

    #[test]
    fn paths_are_decoded_once_and_normalised() {
        check("/%61%2fb", Ok("/a/b"));
        check("/%2Fa%2f%2F/b%2f", Ok("/a/b/"));
        check("/a%2f..%2Fb", Ok("/b"));
        check("/a/..%2f..", Err(PathError::AboveRoot));
        check("/a%2f%2e%2e/%2E%2E%2fb", Err(PathError::AboveRoot));
        check("/a%252fb", Ok("/a%2fb"));
        check("/@scope%2fname", Ok("/@scope/name"));
        check("/%61b", Ok("/ab"));
        check("/a%20b", Ok("/a b"));
        check("/%c3%a9", Ok("/é"));
        check("/é", Ok("/é"));
        check("/%2561", Ok("/%61"));
        check("/%2e%2E/a", Err(PathError::AboveRoot));
        check("/a/%2e%2e/b", Ok("/b"));
        check("//a///b//", Ok("/a/b/"));
        check("//", Ok("/"));
        check("/./a/./b/.", Ok("/a/b/"));
        check("/a/b/..", Ok("/a/"));
        check("/a/b/../", Ok("/a/"));
        check("/a/b/../../c", Ok("/c"));
        check("/a//../b", Ok("/b"));
        check("/..a/...", Ok("/..a/..."));
        check("/.well-known/x", Ok("/.well-known/x"));
        check("/a.b/c./d", Ok("/a.b/c./d"));
    }

    #[test]
    fn paths_in_doubt_are_refused() {
        check("", Err(PathError::NotAbsolute));
        check("a/b", Err(PathError::NotAbsolute));
        check("%2fa", Err(PathError::NotAbsolute));
        check("/..", Err(PathError::AboveRoot));
        check("/a/../..", Err(PathError::AboveRoot));
        check("/../a", Err(PathError::AboveRoot));
        check("/%", Err(PathError::Percent));
        check("/%4", Err(PathError::Percent));
        check("/%zz", Err(PathError::Percent));
        check("/%+1", Err(PathError::Percent));
        check("/a%00", Err(PathError::Byte));
        check("/a\0", Err(PathError::Byte));
        check("/a%0a", Err(PathError::Byte));
        check("/a%7f", Err(PathError::Byte));
        check("/a%5cb", Err(PathError::Byte));
        check("/a\\b", Err(PathError::Byte));
        let longest = format!("/{}", "a".repeat(PATH_MAX - 1));
        check(&longest, Ok(&longest));
        check(&format!("{longest}a"), Err(PathError::TooLong));
        check(&format!("/%61{}", &longest[2..]), Ok(&longest));
        check(&format!("/%61{}", &longest[1..]), Err(PathError::TooLong));
    }

    #[test]
    fn encoded_paths_begin_with_exactly_one_slash() {
        let check = |path: &str, expect: &str| {
            let mut out = Vec::new();
            encode_path(path.as_bytes(), &mut out);
            assert_eq!(out, expect.as_bytes(), "{path:?}");
        };
        check("/a b/é", "/a%20b/%C3%A9");
        check("//host/x", "/host/x");
        check("/\\host", "/%5Chost");
        check("", "/");
        check("/a?b#c%d\r\n", "/a%3Fb%23c%25d%0D%0A");
        check("/~a!$&'()*+,;=:@", "/~a!$&'()*+,;=:@");
    }

    /// Decodes with vectors of vectors, without regard for speed.
    fn decode_plainly(raw: &[u8]) -> Result<Vec<u8>, PathError> {
        if raw.first() != Some(&b'/') {
            return Err(PathError::NotAbsolute);
        }
        let mut decoded = Vec::new();
        let mut index = 1;
        while index < raw.len() {
            let mut byte = raw[index];
            index += 1;
            if byte == b'%' {
                let digits = raw.get(index..index + 2).ok_or(PathError::Percent)?;
                let text = std::str::from_utf8(digits).map_err(|_| PathError::Percent)?;
                if text.contains('+') {
                    return Err(PathError::Percent);
                }
                byte = u8::from_str_radix(text, 16).map_err(|_| PathError::Percent)?;
                index += 2;
            }
            if byte.is_ascii_control() || byte == b'\\' {
                return Err(PathError::Byte);
            }
            decoded.push(byte);
        }
        let mut kept: Vec<&[u8]> = Vec::new();
        let mut is_directory = true;
        for segment in decoded.split(|&byte| byte == b'/') {
            is_directory = matches!(segment, b"" | b"." | b"..");
            match segment {
                b"" | b"." => {}
                b".." => drop(kept.pop().ok_or(PathError::AboveRoot)?),
                _ => kept.push(segment),
            }
        }
        let mut path = b"/".to_vec();
        path.extend_from_slice(&kept.join(&b'/'));
        if is_directory && !kept.is_empty() {
            path.push(b'/');
        }
        Ok(path)
    }

    proptest! {
        #[test]
        fn the_quick_scan_agrees_with_the_plain_decoder(
            raw in r"/?([a./]|%2[ef]|%61|[\x00-\xff]){0,40}",
        ) {
            prop_assert_eq!(decode(raw.as_bytes()), decode_plainly(raw.as_bytes()));
        }

        #[test]
        fn what_was_encoded_decodes_to_itself(raw in r"(/[a.%? \\é]{1,9}){0,5}/?") {
            if let Ok(path) = decode(raw.as_bytes()) {
                let mut encoded = Vec::new();
                encode_path(&path, &mut encoded);
                prop_assert_eq!(decode(&encoded), Ok(path));
            }
        }
    }
}
