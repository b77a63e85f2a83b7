//! Other forms of a resource, from which the request's `accept` chooses (RFC 9110 section 12.5.1): a
//! picture in a newer format beside the old one, the Markdown beside a page.
//!
//! Another form is a file of its own, found by its name: `photo.avif` beside `photo.jpg`. It is sent
//! only to clients that name its type: `*/*` is also sent by those that know no such format.

use gannet_http::semantics::fields::{Fields, KnownField};

use crate::mime;

/// A form that may be beside a file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Form {
    /// Its type.
    pub essence: &'static str,
    /// The suffix of its name, in place of that of the file.
    pub suffix: &'static str,
}

/// Forms of pictures.
const PICTURES: [Form; 2] = [
    Form {
        essence: "image/avif",
        suffix: ".avif",
    },
    Form {
        essence: "image/webp",
        suffix: ".webp",
    },
];

/// Forms of pages.
const PAGES: [Form; 1] = [Form {
    essence: "text/markdown",
    suffix: ".md",
}];

/// The forms that may be beside a file of this name, in this order, and the length of the name
/// without suffix.
#[inline]
#[must_use]
pub fn forms(name: &[u8]) -> (&'static [Form], usize) {
    let stem = |suffix: &str| name.len() - suffix.len();
    for suffix in [".jpg", ".jpeg", ".png"] {
        if name.ends_with(suffix.as_bytes()) {
            return (&PICTURES, stem(suffix));
        }
    }
    match name.ends_with(b".html") {
        true => (&PAGES, stem(".html")),
        false => (&[], name.len()),
    }
}

/// The name of a form of the file with this name.
#[must_use]
pub fn name_of(name: &[u8], form: Form) -> Vec<u8> {
    let (_, stem) = forms(name);
    [&name[..stem], form.suffix.as_bytes()].concat()
}

/// Whether a name is that of a form that may be beside another file, in upper or lower case.
#[must_use]
pub fn is_form(name: &[u8]) -> bool {
    let ends = |suffix: &str| {
        let start = name.len().checked_sub(suffix.len());
        start.is_some_and(|start| name[start..].eq_ignore_ascii_case(suffix.as_bytes()))
    };
    let mut forms = PICTURES.iter().chain(&PAGES);
    forms.any(|form| ends(form.suffix))
}

/// The forms that may be beside the file which answers a path, each with its own path. A page answers
/// without its suffix, too, and the index page of a folder for the folder: then `is_page` tells whether
/// it is one.
#[must_use]
pub fn paths_of(path: &[u8], is_page: impl FnOnce() -> bool) -> Vec<(Form, Vec<u8>)> {
    let (forms, stem) = forms(path);
    let with = |form: &Form, stem: &[u8]| (*form, [stem, form.suffix.as_bytes()].concat());
    if !forms.is_empty() {
        return forms.iter().map(|form| with(form, &path[..stem])).collect();
    }
    let index: &[u8] = match path.ends_with(b"/") {
        true => b"index",
        false => b"",
    };
    match is_page() {
        true => PAGES
            .iter()
            .map(|form| with(form, &[path, index].concat()))
            .collect(),
        false => Vec::new(),
    }
}

/// The form to send in place of a file with this type and length: one of `others`, by position. Of
/// those that the client wants equally, the shortest.
#[must_use]
pub fn choose(
    fields: &Fields<'_>,
    (essence, len): (&str, u64),
    others: impl IntoIterator<Item = (Form, u64)>,
) -> Option<usize> {
    if !fields.has(KnownField::Accept) {
        return None;
    }
    let essence = mime::essence(essence);
    let mut best = (weight(fields, essence).0, len, None);
    for (position, (form, len)) in others.into_iter().enumerate() {
        let (weight, is_named) = weight(fields, form.essence);
        let is_better = weight > best.0 || (weight == best.0 && len < best.1);
        if is_named && weight > 0 && is_better {
            best = (weight, len, Some(position));
        }
    }
    best.2
}

/// How much a client wants a type, in thousandths, and whether it names it. The most specific range
/// counts; of several the last one.
fn weight(fields: &Fields<'_>, essence: &str) -> (u16, bool) {
    let top = essence.split('/').next().unwrap_or_default();
    let lines = fields.lines(KnownField::Accept);
    let mut found = (0, 0);
    for element in lines.flat_map(|line| line.split(|byte| *byte == b',')) {
        let mut parts = element.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
        let range = parts.next().unwrap_or_default();
        let rank = if range.eq_ignore_ascii_case(essence.as_bytes()) {
            3
        } else if range == b"*/*" {
            1
        } else {
            match range.strip_suffix(b"/*") {
                Some(it) if it.eq_ignore_ascii_case(top.as_bytes()) => 2,
                _ => continue,
            }
        };
        if rank >= found.0 {
            let q = parts.find_map(|it| it.strip_prefix(b"q=").or_else(|| it.strip_prefix(b"Q=")));
            found = (rank, q.map_or(1000, thousandths));
        }
    }
    (found.1, found.0 == 3)
}

/// The value of a weight (RFC 9110 section 12.4.2): up to three decimals; 0 if it is malformed.
fn thousandths(text: &[u8]) -> u16 {
    let (whole, decimals) = match text.split_first() {
        Some((whole @ b'0'..=b'1', rest)) => (u16::from(whole - b'0'), rest),
        _ => return 0,
    };
    let decimals = match decimals {
        [] => decimals,
        [b'.', decimals @ ..] => decimals,
        _ => return 0,
    };
    if decimals.len() > 3 || !decimals.iter().all(u8::is_ascii_digit) {
        return 0;
    }
    let digit = |index: usize| decimals.get(index).map_or(0, |it| u16::from(it - b'0'));
    (whole * 1000 + digit(0) * 100 + digit(1) * 10 + digit(2)).min(1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(accept: &str, own: (&str, u64), others: &[(Form, u64)]) -> &'static str {
        let section = format!("accept: {accept}\r\n");
        let section = if accept.is_empty() { "" } else { &section };
        let fields = Fields::parse(section.as_bytes()).expect("fields");
        let position = choose(&fields, own, others.iter().copied());
        position.map_or("own", |position| others[position].0.suffix)
    }

    #[test]
    fn the_smallest_of_the_best_wanted_is_chosen() {
        let [avif, webp] = PICTURES;
        let check = |accept: &str, lens: (u64, u64, u64), expect: &str| {
            let others = [(avif, lens.1), (webp, lens.2)];
            assert_eq!(
                chosen(accept, ("image/jpeg", lens.0), &others),
                expect,
                "{accept}"
            );
        };
        let browser = "image/avif,image/webp,image/apng,image/svg+xml,image/*,*/*;q=0.8";
        check(browser, (9, 5, 6), ".avif");
        check(browser, (9, 6, 5), ".webp");
        check(browser, (4, 6, 5), "own");
        check("image/webp, */*;q=0.5", (9, 5, 10), ".webp");
        check(
            "image/avif;q=0.4, image/webp;q=0.6, image/jpeg;q=0.5",
            (1, 1, 9),
            ".webp",
        );
        check(
            "image/avif;q=0, image/webp;q=0.000, */*;q=0",
            (9, 5, 6),
            "own",
        );
        check("IMAGE/AVIF ; q=1.0", (9, 5, 6), ".avif");
        check("image/avif;q=2, image/webp;q=0.1234", (9, 5, 6), "own");
        check(
            "image/avif;q=11, image/webp;q=1., */*;q=0.5",
            (9, 5, 6),
            ".webp",
        );
        for accept in ["", "*/*", "image/*", "text/html", "image/avifx"] {
            check(accept, (9, 5, 6), "own");
        }
    }

    #[test]
    fn markdown_is_for_those_who_name_it() {
        let markdown = [(PAGES[0], 5)];
        let check = |accept: &str, expect: &str| {
            assert_eq!(
                chosen(accept, ("text/html; charset=utf-8", 9), &markdown),
                expect
            );
        };
        check("text/markdown", ".md");
        check("text/markdown, text/html;q=0.9, */*;q=0.8", ".md");
        check("text/html, text/markdown;q=0.5", "own");
        check("text/html,application/xhtml+xml,*/*;q=0.8", "own");
    }

    #[test]
    fn forms_are_beside_their_file() {
        let check = |path: &str, expect: &[&str]| {
            let is_page = || !path.contains("LICENSE");
            let found: Vec<_> = paths_of(path.as_bytes(), is_page)
                .into_iter()
                .map(|it| it.1)
                .collect();
            let found: Vec<_> = found.iter().map(|it| String::from_utf8_lossy(it)).collect();
            assert_eq!(found, expect, "{path}");
        };
        check("/a/b.jpg", &["/a/b.avif", "/a/b.webp"]);
        check("/a/b.min.jpeg", &["/a/b.min.avif", "/a/b.min.webp"]);
        check("/b.png", &["/b.avif", "/b.webp"]);
        check("/page", &["/page.md"]);
        check("/page.html", &["/page.md"]);
        check("/", &["/index.md"]);
        check("/page/", &["/page/index.md"]);
        check("/v1.2", &["/v1.2.md"]);
        check("/LICENSE", &[]);
        assert_eq!(name_of(b"a/index.html", PAGES[0]), b"a/index.md");
        assert!(is_form(b"x.webp") && is_form(b"X.AVIF") && is_form(b"x.md") && !is_form(b"x.png"));
    }
}
