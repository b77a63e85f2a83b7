//! The form of paths in an archive.

use crate::limits::PATH_LEN_MAX;

/// Whether `path` is in the form of keys: it starts with `/`, has no empty, `.` or `..` segment
/// (except that a folder ends with `/`), no control byte and no backslash (no server accepts those
/// in a target), and at most [`PATH_LEN_MAX`] bytes. Percent-encoding is decoded; UTF-8 is not
/// required.
pub fn is_normalised(path: &[u8]) -> bool {
    let Some(rest) = path.strip_prefix(b"/") else {
        return false;
    };
    if path.len() as u64 > PATH_LEN_MAX || path.iter().any(is_refused) {
        return false;
    }
    if rest.is_empty() {
        return true;
    }
    let rest = rest.strip_suffix(b"/").unwrap_or(rest);
    rest.split(|byte| *byte == b'/')
        .all(|segment| !matches!(segment, b"" | b"." | b".."))
}

fn is_refused(byte: &u8) -> bool {
    byte.is_ascii_control() || *byte == b'\\'
}

/// Whether `location` may follow `location: `: visible ASCII, and no network-path reference, which
/// would leave the host without naming a scheme.
pub(crate) fn is_location(location: &[u8]) -> bool {
    !location.is_empty()
        && location.iter().all(u8::is_ascii_graphic)
        && !location.starts_with(b"//")
        && !location.contains(&b'\\')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normalised_paths() {
        for good in [
            "/",
            "/a",
            "/a/",
            "/a/b.html",
            "/.well-known/x",
            "/...",
            "/a b",
        ] {
            assert!(is_normalised(good.as_bytes()), "{good}");
        }
        for bad in [
            "", "a", "//", "/a//", "/./", "/a/..", "/../a", "/a/./b", "/a\0", "//a", "/a\\b",
            "/\x7f",
        ] {
            assert!(!is_normalised(bad.as_bytes()), "{bad}");
        }
        assert!(is_normalised(b"/\xff"), "UTF-8 is not required");
        assert!(!is_normalised(&[b"/".as_slice(), &[b'a'; 8192]].concat()));
    }

    #[test]
    fn locations() {
        for good in ["/a/", "https://example.org/", "a%20b/"] {
            assert!(is_location(good.as_bytes()), "{good}");
        }
        for bad in ["", "//host", "/a b", "/a\r\nx: y", "/\\host", "/\u{e9}"] {
            assert!(!is_location(bad.as_bytes()), "{bad}");
        }
    }
}
