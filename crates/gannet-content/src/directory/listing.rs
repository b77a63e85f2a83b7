//! A directory listing, as a page without scripts and as JSON.

use gannet_http::semantics::fields::{Fields, KnownField};

/// One entry of a directory.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Entry<'a> {
    /// Its name: one segment, not necessarily UTF-8.
    pub name: &'a [u8],
    /// Whether it is a directory; else it is a regular file.
    pub is_directory: bool,
    /// Bytes of a file.
    pub len: u64,
    /// When it was modified, in Unix seconds.
    pub modified: i64,
}

/// What entries are sorted by; directories come first in any case.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Sort {
    /// By name, as people read: case counts last, numbers in names by their value.
    #[default]
    Name,
    /// By size, then by name.
    Size,
    /// By modification date, then by name.
    Modified,
}

/// In which form a listing is wanted.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Format {
    /// A page.
    #[default]
    Html,
    /// An array of objects.
    Json,
}

/// How a listing is wanted.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct View {
    /// What entries are sorted by.
    pub sort: Sort,
    /// Largest, latest or last first.
    pub is_descending: bool,
    /// The form.
    pub format: Format,
}

impl View {
    /// Reads `sort`, `order` and `format` from the query, the format else from `Accept`.
    #[must_use]
    pub fn parse(query: Option<&[u8]>, fields: &Fields<'_>) -> Self {
        let _ = (query, fields.get(KnownField::Accept));
        Self::default()
    }
}

/// The type of a listing in this form.
#[must_use]
pub fn content_type(format: Format) -> &'static str {
    match format {
        Format::Html => "text/html; charset=utf-8",
        Format::Json => "application/json",
    }
}

/// Renders the listing of the directory at `path` (canonical, with a slash at its end).
#[must_use]
pub fn render(path: &[u8], entries: &mut [Entry<'_>], is_cut: bool, view: View) -> Vec<u8> {
    let _ = (path, entries, is_cut, view);
    Vec::new()
}

/// Appends text with `&`, `<`, `>`, `"` and `'` escaped.
pub(crate) fn escape_html(text: &str, out: &mut Vec<u8>) {
    for byte in text.bytes() {
        match byte {
            b'&' => out.extend_from_slice(b"&amp;"),
            b'<' => out.extend_from_slice(b"&lt;"),
            b'>' => out.extend_from_slice(b"&gt;"),
            b'"' => out.extend_from_slice(b"&quot;"),
            b'\'' => out.extend_from_slice(b"&#39;"),
            _ => out.push(byte),
        }
    }
}
