//! The listing as a page: no scripts, usable in dark mode, on a phone, and with a screen reader.

use gannet_http::semantics::decimal::write_decimal;
use gannet_http::semantics::target_path::encode_path;

use super::{Entry, ListingRequest, Sort, escape_html, rfc3339};
use crate::limits::{LISTING_BYTES_MAX, LISTING_CRUMBS_MAX};

pub(super) fn render(request: &ListingRequest<'_>, entries: &[Entry], is_cut: bool) -> Vec<u8> {
    let segments: Vec<&[u8]> = request
        .path
        .split(|&byte| byte == b'/')
        .filter(|segment| !segment.is_empty())
        .collect();
    let mut out = Vec::with_capacity(4096 + entries.len() * 256);
    out.extend_from_slice(HEAD_START.as_bytes());
    for segment in &segments {
        text(segment, &mut out);
        out.push(b'/');
    }
    out.extend_from_slice(HEAD_END.as_bytes());
    breadcrumbs(&segments, &mut out);
    out.extend_from_slice(b"</h1>\n</header>\n<main>\n<table>\n<thead>\n<tr>");
    column(request, Sort::Name, "name", "Name", &mut out);
    column(request, Sort::Size, "size", "Size", &mut out);
    column(request, Sort::Modified, "modified", "Modified", &mut out);
    out.extend_from_slice(b"</tr>\n</thead>\n<tbody>\n");
    if !segments.is_empty() {
        out.extend_from_slice(PARENT.as_bytes());
    }
    let mut shown = 0;
    // The longest row and the end of the page still fit then.
    while shown < entries.len() && out.len() < LISTING_BYTES_MAX - ROOM_AT_END {
        row(&entries[shown], &mut out);
        shown += 1;
    }
    let (entries, is_cut) = (&entries[..shown], is_cut || shown < entries.len());
    out.extend_from_slice(b"</tbody>\n</table>\n");
    if entries.is_empty() {
        out.extend_from_slice(b"<p class=empty>This folder is empty.</p>\n");
    }
    out.extend_from_slice(b"</main>\n<footer>\n<p>");
    summary(entries, is_cut, &mut out);
    out.extend_from_slice(b"</p>\n<p><a href=\"?format=json\">JSON</a></p>\n</footer>\n");
    out
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
    out.extend_from_slice(b" class=root title=\"Top folder\">/</a>");
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
    out.extend_from_slice(b"<tr><td><a href=\"");
    let mut href = b".".to_vec();
    encode_path(&entry.name, &mut href);
    href.extend_from_slice(slash);
    // Encoded paths are ASCII; `&` and `'` remain unescaped in them.
    escape_html(&String::from_utf8_lossy(&href), out);
    out.extend_from_slice(b"\"><svg aria-hidden=true><use href=\"");
    out.extend_from_slice(if entry.is_directory { b"#d" } else { b"#f" });
    out.extend_from_slice(b"\"/></svg><span><bdi>");
    text(&entry.name, out);
    out.extend_from_slice(b"</bdi>");
    out.extend_from_slice(slash);
    out.extend_from_slice(b"</span></a></td><td>");
    if !entry.is_directory {
        size(entry.len, out);
    }
    out.extend_from_slice(b"</td><td>");
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
    out.extend_from_slice(b"</td></tr>\n");
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

/// The numbers of folders and files.
fn summary(entries: &[Entry], is_cut: bool, out: &mut Vec<u8>) {
    let folders = entries.iter().filter(|entry| entry.is_directory).count();
    let files = entries.len() - folders;
    let total = entries
        .iter()
        .filter(|entry| !entry.is_directory)
        .fold(0, |total: u64, entry| total.saturating_add(entry.len));
    if is_cut {
        out.extend_from_slice(b"Only the first ");
        grouped(entries.len() as u64, out);
        out.extend_from_slice(b" entries are shown: ");
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
/// them.
fn text(name: &[u8], out: &mut Vec<u8>) {
    let name = String::from_utf8_lossy(name);
    let visible: String = name.chars().map(picture).collect();
    escape_html(&visible, out);
}

fn picture(character: char) -> char {
    match u32::from(character) {
        code @ 0..0x20 => char::from_u32(0x2400 + code).unwrap_or('\u{fffd}'),
        0x7f => '\u{2421}',
        0x80..0xa0 => '\u{fffd}',
        _ => character,
    }
}

/// Room for a row with the longest name and for the end of the page, in bytes.
const ROOM_AT_END: usize = 8 << 10;

const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

const HEAD_START: &str = "<!doctype html>
<html lang=en>
<meta charset=utf-8>
<meta name=viewport content=\"width=device-width\">
<title>/";

const HEAD_END: &str = concat!(
    "</title>\n<style>",
    include_str!("style.css"),
    "</style>\n<svg class=icons>\
     <symbol id=d viewBox=\"0 0 20 20\"><path d=\"M2 5.5A1.5 1.5 0 0 1 3.5 4h4l2 2.5h7A1.5 1.5 \
     0 0 1 18 8v7a1.5 1.5 0 0 1-1.5 1.5h-13A1.5 1.5 0 0 1 2 15z\"/></symbol>\
     <symbol id=f viewBox=\"0 0 20 20\"><path d=\"M5 2.5h6.5l4 4v10a1 1 0 0 1-1 1H5a1 1 0 0 1-1-1\
     v-13a1 1 0 0 1 1-1z\"/><path d=\"M11.5 2.5v4h4\"/></symbol>\
     <symbol id=u viewBox=\"0 0 20 20\"><path d=\"M10 16.5v-12M5 9.5l5-5 5 5\"/></symbol></svg>\n\
     <header>\n<h1>"
);

const PARENT: &str = "<tr class=up><td><a href=\"../\"><svg aria-hidden=true><use href=\"#u\"/>\
                      </svg><span>Parent folder</span></a></td><td></td><td></td></tr>\n";
