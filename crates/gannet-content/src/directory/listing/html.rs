//! The listing as a page, usable in dark mode, on a phone, with a keyboard, with a screen reader, and
//! without its script.
//!
//! The script (`script.js`) sorts and filters the rows without a request; if the page has only some
//! of the folder's entries, it takes all of them from the JSON. End tags of rows are left out, as HTML
//! allows: a page may have thousands of rows.

use gannet_http::semantics::decimal::write_decimal;
use gannet_http::semantics::target_path::encode_path;

use super::{Entry, ListingRequest, Sort, escape_html, rfc3339};
use crate::limits::{LISTING_BYTES_MAX, LISTING_CRUMBS_MAX, LISTING_ROWS_MAX};

pub(super) fn render(request: &ListingRequest<'_>, entries: &[Entry]) -> Vec<u8> {
    let segments: Vec<&[u8]> = request
        .path
        .split(|&byte| byte == b'/')
        .filter(|segment| !segment.is_empty())
        .collect();
    let mut out = Vec::with_capacity((32 << 10) + entries.len().min(LISTING_ROWS_MAX) * 192);
    out.extend_from_slice(HEAD_START.as_bytes());
    out.extend_from_slice(match segments.is_empty() {
        true => ROOT_TITLE,
        false => b"/",
    });
    for segment in &segments {
        text(segment, &mut out);
        out.push(b'/');
    }
    out.extend_from_slice(HEAD_END.as_bytes());
    breadcrumbs(&segments, &mut out);
    out.extend_from_slice(b"</h1>\n<div id=tools>\n<p>");
    summary(entries, request.is_partial, &mut out);
    out.extend_from_slice(b"</p>\n");
    let note_at = out.len();
    out.extend_from_slice(b"</div>\n</header>\n<main>\n<table aria-label=Entries>\n<thead>\n<tr>");
    column(request, Sort::Name, "name", "Name", &mut out);
    column(request, Sort::Size, "size", "Size", &mut out);
    column(
        request,
        Sort::Modified,
        "modified",
        "Modified (UTC)",
        &mut out,
    );
    out.extend_from_slice(b"</tr>\n</thead>\n<tbody>\n");
    if !segments.is_empty() {
        out.extend_from_slice(PARENT.as_bytes());
    }
    let mut shown = 0;
    // The longest row, the note and the end of the page still fit then.
    while shown < entries.len().min(LISTING_ROWS_MAX) && out.len() < ROWS_END_MAX {
        row(&entries[shown], &mut out);
        shown += 1;
    }
    out.extend_from_slice(b"</tbody>\n</table>\n");
    if entries.is_empty() {
        out.extend_from_slice(b"<p class=empty>This folder is empty.</p>\n");
    }
    out.extend_from_slice(END.as_bytes());
    let note = note(shown, entries.len(), request.is_partial);
    out.splice(note_at..note_at, note);
    out
}

/// What a page says if it has only some of the folder's entries. The script adds that a filter finds others, and
/// removes what it shows then: not what is in no listing.
fn note(shown: usize, listed: usize, is_partial: bool) -> Vec<u8> {
    let mut note = Vec::new();
    if shown < listed {
        note.extend_from_slice(b"<p id=cut>The first ");
        grouped(shown as u64, &mut note);
        note.extend_from_slice(b" are shown; sort to see others.</p>\n");
    }
    if is_partial {
        note.extend_from_slice(b"<p id=rest>The folder has more entries than can be listed.</p>\n");
    }
    note
}

/// The path with a link to each of its folders. Relative links work below a proxy's prefix too.
fn breadcrumbs(segments: &[&[u8]], out: &mut Vec<u8>) {
    let link = |up: usize, out: &mut Vec<u8>| {
        out.extend_from_slice(b"<a href=\"");
        out.extend_from_slice(if up == 0 { b"./" } else { b"" });
        (0..up).for_each(|_| out.extend_from_slice(b"../"));
        out.push(b'"');
    };
    link(segments.len(), out);
    out.extend_from_slice(b" class=root title=\"Top folder\">");
    out.extend_from_slice(match segments.is_empty() {
        true => ROOT_TITLE,
        false => b"/",
    });
    out.extend_from_slice(b"</a>");
    let first = segments.len().saturating_sub(LISTING_CRUMBS_MAX);
    if first > 0 {
        out.extend_from_slice("<span>…/</span>".as_bytes());
    }
    for (index, segment) in segments.iter().enumerate().skip(first) {
        let up = segments.len() - 1 - index;
        link(up, out);
        out.extend_from_slice(if up == 0 {
            b" aria-current=page>"
        } else {
            b">"
        });
        out.extend_from_slice(b"<bdi>");
        text(segment, out);
        out.extend_from_slice(b"</bdi></a><span>/</span><wbr>");
    }
}

/// A column's heading: a link that sorts by it, or reverses the order if already sorted by it.
fn column(request: &ListingRequest<'_>, sort: Sort, key: &str, label: &str, out: &mut Vec<u8>) {
    let is_current = request.sort == sort;
    // When sorting by size or date, the largest or latest are most useful.
    let is_descending = if is_current {
        !request.is_descending
    } else {
        sort != Sort::Name
    };
    out.extend_from_slice(b"<th scope=col");
    if is_current {
        let order: &[u8] = match request.is_descending {
            false => b" aria-sort=ascending",
            true => b" aria-sort=descending",
        };
        out.extend_from_slice(order);
    }
    out.extend_from_slice(b"><a href=\"?sort=");
    out.extend_from_slice(key.as_bytes());
    out.extend_from_slice(if is_descending {
        b"&amp;order=desc"
    } else {
        b"&amp;order=asc"
    });
    out.extend_from_slice(b"\">");
    out.extend_from_slice(label.as_bytes());
    out.extend_from_slice(b"</a></th>");
}

fn row(entry: &Entry, out: &mut Vec<u8>) {
    let slash: &[u8] = if entry.is_directory { b"/" } else { b"" };
    out.extend_from_slice(if entry.is_directory {
        b"<tr class=d><td><a href=\""
    } else {
        b"<tr><td><a href=\""
    });
    let mut href = b".".to_vec();
    encode_path(&entry.name, &mut href);
    href.extend_from_slice(slash);
    // Encoded paths are ASCII; `&` remains unescaped in them. Programs that read listings without
    // decoding character references know `'` only as `%27`.
    let href = String::from_utf8_lossy(&href).replace('\'', "%27");
    escape_html(&href, out);
    out.extend_from_slice(b"\"><bdi>");
    text(&entry.name, out);
    out.extend_from_slice(b"</bdi>");
    out.extend_from_slice(slash);
    out.extend_from_slice(b"</a><td>");
    if !entry.is_directory {
        size(entry.len, out);
    }
    out.extend_from_slice(b"<td>");
    if let Some(time) = entry.modified.and_then(rfc3339) {
        out.extend_from_slice(b"<time datetime=\"");
        out.extend_from_slice(&time);
        out.extend_from_slice(b"\" title=\"");
        out.extend_from_slice(&time[..10]);
        out.push(b' ');
        out.extend_from_slice(&time[11..19]);
        out.extend_from_slice(b" UTC\">");
        out.extend_from_slice(&time[..10]);
        out.extend_from_slice(b" <span>");
        out.extend_from_slice(&time[11..16]);
        out.extend_from_slice(b"</span></time>");
    }
    out.push(b'\n');
}

/// A length in a unit that keeps it short, with the exact one as title.
fn size(len: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(b"<data value=");
    write_decimal(len, out);
    out.extend_from_slice(b" title=\"");
    grouped(len, out);
    out.extend_from_slice(if len == 1 { b" byte\">" } else { b" bytes\">" });
    short_size(len, out);
    out.extend_from_slice(b"</data>");
}

/// `512 B`, `1.5 KiB`, `15 KiB`: at least two digits, at most four.
fn short_size(len: u64, out: &mut Vec<u8>) {
    if len < 1024 {
        write_decimal(len, out);
        return out.extend_from_slice(b" B");
    }
    // The rounded number selects the unit: 1 MiB is never written as 1024 KiB.
    let mut unit = 0;
    let mut tenths = tenths_of(len, unit);
    while tenths >= 10_235 && unit + 1 < UNITS.len() {
        unit += 1;
        tenths = tenths_of(len, unit);
    }
    if tenths < 100 {
        write_decimal(tenths / 10, out);
        out.push(b'.');
        write_decimal(tenths % 10, out);
    } else {
        write_decimal((tenths + 5) / 10, out);
    }
    out.push(b' ');
    out.extend_from_slice(UNITS[unit].as_bytes());
}

/// `len` in tenths of a unit, rounded.
fn tenths_of(len: u64, unit: usize) -> u64 {
    let shift = 10 * (unit as u32 + 1);
    let tenths = (u128::from(len) * 10 + (1 << (shift - 1))) >> shift;
    // At most a tenth of 2^64 * 10, which fits in 64 bits.
    tenths as u64
}

/// The number with its digits in groups of three: `1,234,567`.
fn grouped(number: u64, out: &mut Vec<u8>) {
    let mut digits = Vec::with_capacity(20);
    write_decimal(number, &mut digits);
    for (index, &digit) in digits.iter().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            out.push(b',');
        }
        out.push(digit);
    }
}

/// The numbers of folders and files, and the bytes of the files: of all entries, however many are
/// shown.
fn summary(entries: &[Entry], is_partial: bool, out: &mut Vec<u8>) {
    let folders = entries.iter().filter(|entry| entry.is_directory).count();
    let files = entries.len() - folders;
    let total = entries
        .iter()
        .filter(|entry| !entry.is_directory)
        .fold(0, |total: u64, entry| total.saturating_add(entry.len));
    if is_partial {
        out.extend_from_slice(b"At least ");
    }
    if folders > 0 {
        grouped(folders as u64, out);
        out.extend_from_slice(if folders == 1 {
            b" folder, "
        } else {
            b" folders, "
        });
    }
    grouped(files as u64, out);
    out.extend_from_slice(if files == 1 { b" file" } else { b" files" });
    if files > 0 {
        out.extend_from_slice(b", ");
        short_size(total, out);
    }
}

/// Appends a name as text: invalid UTF-8 as the replacement character, control characters as the
/// pictures that Unicode has for them, since a page must not contain them and a reader should see
/// them. Characters that turn the direction of the text around them become replacement characters:
/// with them `exe.pdf` can be shown where the name ends in `fdp.exe`. Spaces that a page would not show
/// have a picture as well: at either end, and after another one.
fn text(name: &[u8], out: &mut Vec<u8>) {
    let name = String::from_utf8_lossy(name);
    let mut visible = String::with_capacity(name.len());
    let mut characters = name.chars().peekable();
    let mut before = ' ';
    while let Some(character) = characters.next() {
        let is_lost = character == ' ' && (before == ' ' || characters.peek().is_none());
        visible.push(if is_lost {
            '\u{2423}'
        } else {
            picture(character)
        });
        before = character;
    }
    escape_html(&visible, out);
}

fn picture(character: char) -> char {
    match u32::from(character) {
        code @ 0..0x20 => char::from_u32(0x2400 + code).unwrap_or('\u{fffd}'),
        0x7f => '\u{2421}',
        0x80..0xa0 | 0x202a..=0x202e | 0x2066..=0x2069 => '\u{fffd}',
        _ => character,
    }
}

/// The last row begins before this place of a page.
const ROWS_END_MAX: usize = LISTING_BYTES_MAX - (32 << 10);

const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

const HEAD_START: &str = "<!doctype html>
<html lang=en>
<meta charset=utf-8>
<meta name=viewport content=\"width=device-width, initial-scale=1\">
<title>";

/// What the page of the root is called: its path alone says little.
const ROOT_TITLE: &[u8] = b"Index of /";

const HEAD_END: &str = concat!(
    "</title>\n<style>",
    include_str!("style.css"),
    "</style>\n<header>\n<h1>"
);

const PARENT: &str = "<tr class=u><td><a href=\"../\">Parent folder</a><td><td>\n";

const END: &str = concat!(
    "</main>\n<footer><a href=\"?format=json\">JSON</a></footer>\n<script>",
    include_str!("script.js"),
    "</script>\n"
);
