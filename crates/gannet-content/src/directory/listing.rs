//! A directory listing, as a page and as JSON.
//!
//! Names come from the disk and may be anything that a file name can be. On the page they are
//! escaped as text and percent-encoded as links; links start with `./`, so that no name can be read
//! as a scheme (`javascript:x`) or a host. Sorting works by links: `?sort=size&order=desc`. The script
//! of the page, which only adds to that, inserts names as text.
//!
//! Send it with [`answer::LISTING_POLICY`](crate::answer::LISTING_POLICY), which allows the style
//! sheet and the script of the page, and with [`Page::further`].

use std::cmp::Ordering;

use gannet_http::semantics::date::{DATE_MAX, DATE_MIN, write_timestamp};
use gannet_http::semantics::request::Request;

use crate::mime::accepts_by_name;

mod html;
mod json;

/// One entry of a directory.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Entry {
    /// Its name: one segment, not necessarily UTF-8.
    pub name: Vec<u8>,
    /// Whether it is a directory; otherwise it is a regular file.
    pub is_directory: bool,
    /// Length of a file, in bytes.
    pub len: u64,
    /// When it was modified, in Unix seconds, if known.
    pub modified: Option<i64>,
}

/// The sort key; directories come first in any case.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Sort {
    /// By name in natural order: numbers in names by their value, letters without their case.
    #[default]
    Name,
    /// By size, then by name.
    Size,
    /// By modification date, then by name.
    Modified,
}

/// The form of a listing.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Format {
    /// A page.
    #[default]
    Html,
    /// An array of objects: `name`, `type` (`file` or `directory`), `size` (of files), `mtime`
    /// (RFC 3339), and `href` where the name is not UTF-8 and `name` therefore not exact. By name:
    /// a reader can sort, and a long folder has one listing to keep, not six.
    Json,
}

impl Format {
    /// The content type of a listing in this form.
    #[must_use]
    pub fn content_type(self) -> &'static [u8] {
        match self {
            Self::Html => b"text/html; charset=utf-8",
            Self::Json => b"application/json",
        }
    }
}

/// The field sent with every listing, whose form depends on `Accept`.
pub const VARY: (&str, &[u8]) = ("vary", b"accept");

/// The parameters of a listing.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ListingRequest<'a> {
    /// The directory's path below the root, decoded; leading and trailing slashes make no
    /// difference.
    pub path: &'a [u8],
    /// The sort key.
    pub sort: Sort,
    /// Last, largest or latest first.
    pub is_descending: bool,
    /// The form.
    pub format: Format,
    /// Names that start with a dot are listed too.
    pub dotfiles: bool,
    /// The directory has more entries than the given ones.
    pub is_partial: bool,
}

impl<'a> ListingRequest<'a> {
    /// Reads from a request how to list the directory at `path`.
    ///
    /// The query may have `format=html|json`, and for a page `sort=name|size|modified` and
    /// `order=asc|desc`; anything else in it is ignored. Without `format` the form is JSON for clients
    /// that accept `application/json` by name but not `text/html`, which no browser does.
    #[must_use]
    pub fn of(request: &Request<'_>, path: &'a [u8]) -> Self {
        let mut listing = Self {
            path,
            ..Self::default()
        };
        if accepts_json(request) {
            listing.format = Format::Json;
        }
        for pair in request
            .target
            .query
            .unwrap_or_default()
            .split(|&b| b == b'&')
        {
            match pair {
                b"sort=name" => listing.sort = Sort::Name,
                b"sort=size" => listing.sort = Sort::Size,
                b"sort=modified" => listing.sort = Sort::Modified,
                b"order=asc" => listing.is_descending = false,
                b"order=desc" => listing.is_descending = true,
                b"format=html" => listing.format = Format::Html,
                b"format=json" => listing.format = Format::Json,
                _ => {}
            }
        }
        match listing.format {
            Format::Html => listing,
            Format::Json => Self {
                path,
                format: Format::Json,
                ..Self::default()
            },
        }
    }
}

/// Where an archive keeps the JSON of the folder whose listing is at `path`: under the path and the
/// query with which a live directory serves it, as one path.
#[must_use]
pub fn json_path(path: &[u8]) -> Vec<u8> {
    [path, b"?format=json"].concat()
}

/// A rendered listing.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Page {
    /// Its content type.
    pub content_type: &'static [u8],
    /// Its content.
    pub content: Vec<u8>,
    /// A field to send with it, since it depends on `Accept`.
    pub further: Option<(&'static str, &'static [u8])>,
}

/// Renders a listing of as many entries as fit in
/// [`LISTING_BYTES_MAX`](crate::limits::LISTING_BYTES_MAX), as a page of at most
/// [`LISTING_ROWS_MAX`](crate::limits::LISTING_ROWS_MAX); a page mentions how many it shows, and
/// its totals are those of all entries.
#[must_use]
pub fn render(request: &ListingRequest<'_>, mut entries: Vec<Entry>) -> Page {
    entries.retain(|entry| {
        let is_hidden = entry.name.starts_with(b".") && !request.dotfiles;
        !is_hidden && !entry.name.is_empty() && !entry.name.contains(&b'/')
    });
    entries.sort_by(|a, b| compare(request, a, b));
    let content = match request.format {
        Format::Html => html::render(request, &entries),
        Format::Json => json::render(&entries),
    };
    Page {
        content_type: request.format.content_type(),
        content,
        further: Some(VARY),
    }
}

/// Whether a client prefers JSON to a page.
fn accepts_json(request: &Request<'_>) -> bool {
    let is_named = |essence| accepts_by_name(&request.fields, essence);
    is_named("application/json") && !is_named("text/html")
}

/// The order of two entries: a total one, so that the same directory always gives the same listing.
fn compare(request: &ListingRequest<'_>, a: &Entry, b: &Entry) -> Ordering {
    let by_key = match request.sort {
        Sort::Name => compare_names(&a.name, &b.name),
        // The length of a directory is meaningless.
        Sort::Size if a.is_directory && b.is_directory => Ordering::Equal,
        Sort::Size => a.len.cmp(&b.len),
        Sort::Modified => a.modified.cmp(&b.modified),
    };
    let by_key = if request.is_descending {
        by_key.reverse()
    } else {
        by_key
    };
    let directories_first = b.is_directory.cmp(&a.is_directory);
    directories_first
        .then(by_key)
        .then_with(|| compare_names(&a.name, &b.name))
}

/// Compares names in natural order: `file 2` before `File 10`. Names that are equal in that order
/// are distinguished by their bytes.
fn compare_names(a: &[u8], b: &[u8]) -> Ordering {
    let (mut rest_a, mut rest_b) = (a, b);
    loop {
        let order = match (rest_a, rest_b) {
            ([], []) => return a.cmp(b),
            ([], _) => Ordering::Less,
            (_, []) => Ordering::Greater,
            ([x, ..], [y, ..]) if x.is_ascii_digit() && y.is_ascii_digit() => {
                let (number_a, number_b);
                (number_a, rest_a) = split_number(rest_a);
                (number_b, rest_b) = split_number(rest_b);
                // Without leading zeros, more digits are a larger number.
                let by_len = number_a.len().cmp(&number_b.len());
                by_len.then_with(|| number_a.cmp(number_b))
            }
            ([x, tail_a @ ..], [y, tail_b @ ..]) => {
                (rest_a, rest_b) = (tail_a, tail_b);
                x.to_ascii_lowercase().cmp(&y.to_ascii_lowercase())
            }
        };
        if order != Ordering::Equal {
            return order;
        }
    }
}

/// The digits that `text` starts with, without leading zeros, and the rest.
fn split_number(text: &[u8]) -> (&[u8], &[u8]) {
    let is_digit = |byte: &&u8| byte.is_ascii_digit();
    let end = text.iter().take_while(is_digit).count();
    let zeros = text[..end].iter().take_while(|byte| **byte == b'0').count();
    (&text[zeros..end], &text[end..])
}

/// The moment in RFC 3339 form, `2026-11-21T07:26:32Z`, if its year has four digits.
fn rfc3339(unix_seconds: i64) -> Option<[u8; 20]> {
    (DATE_MIN..=DATE_MAX)
        .contains(&unix_seconds)
        .then(|| write_timestamp(unix_seconds))
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

#[cfg(test)]
mod tests;
