//! Which file answers which path, beyond exact names: index pages, clean URLs, slashes, fallbacks.
//!
//! Directory mode uses [`directory::lookup`](crate::directory::lookup), which follows a
//! [`Routing`]; the packer applies the same one once for all paths.

use gannet_http::semantics::fields::Fields;
use gannet_http::semantics::status::Status;

use crate::mime::{self, looks_like_asset};
use crate::rules::Compat;

/// How paths lead to files.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Routing {
    /// Names of pages that answer for their folder, in the order in which they are tried.
    pub index_names: Vec<Vec<u8>>,
    /// Suffixes that may be omitted from a page's path (clean URLs), with the dot.
    pub page_suffixes: Vec<Vec<u8>>,
    /// How an extra or a missing slash at the end is treated.
    pub trailing_slash: TrailingSlash,
    /// Files that answer for missing paths below their folder. Those of the deepest folder apply;
    /// within a folder, the first.
    pub fallbacks: Vec<Fallback>,
    /// The site's rules files are read as rules of this dialect, and are never served.
    pub rules: Option<Compat>,
}

/// How an extra or a missing slash at the end of a path is treated.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum TrailingSlash {
    /// `/folder` redirects to `/folder/`, `/page/` to `/page`.
    #[default]
    Auto,
    /// `/folder` and `/page` redirect to `/folder/` and `/page/`.
    Always,
    /// `/folder/` and `/page/` redirect to `/folder` and `/page`.
    Never,
    /// No redirects: `/folder` answers as `/folder/` does, `/page/` is not found.
    Off,
}

impl TrailingSlash {
    /// Whether `/page/` redirects to `/page`, if that exists and `/page/` does not.
    #[must_use]
    pub const fn removes(self) -> bool {
        !matches!(self, Self::Off)
    }

    /// Whether `/folder` redirects to `/folder/`.
    #[must_use]
    pub const fn adds(self) -> bool {
        matches!(self, Self::Auto | Self::Always)
    }
}

/// A file that answers for missing paths.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Fallback {
    /// Its name.
    pub name: Vec<u8>,
    /// How it answers.
    pub kind: FallbackKind,
}

/// How a file answers for missing paths.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum FallbackKind {
    /// With 200, for every path.
    Wildcard,
    /// With 200, except for paths that look like an asset: a page in place of a script would break
    /// more than it helps.
    Application,
    /// With 404.
    NotFound,
}

impl FallbackKind {
    /// The status with which a page of this kind answers for the missing `path`; `None` if it does
    /// not answer.
    #[must_use]
    pub fn status(self, path: &[u8], is_navigation: bool) -> Option<Status> {
        match self {
            Self::Wildcard => Some(Status::OK),
            Self::Application => is_application_path(path, is_navigation).then_some(Status::OK),
            Self::NotFound => Some(Status::NOT_FOUND),
        }
    }
}

/// Whether the page of an application may answer for a missing path. A name with a suffix is taken
/// for an asset, unless the request is a navigation: `/docs/v1.2` in the address bar is a page of
/// the application, and the same path in an `<img>` is not. Names that start with a dot are never
/// its pages.
#[must_use]
pub fn is_application_path(path: &[u8], is_navigation: bool) -> bool {
    let relative = path.strip_prefix(b"/").unwrap_or(path);
    (is_navigation || !looks_like_asset(path)) && hidden_segment(relative).is_none()
}

/// Whether a page answers for `path` only because the request is a navigation: no cache may send it
/// for other requests.
#[must_use]
pub fn is_for_navigation(path: &[u8], is_navigation: bool) -> bool {
    is_navigation && looks_like_asset(path)
}

/// Whether a browser requests a page to show, according to its Fetch Metadata (section 2.2).
/// Browsers send that over HTTPS and on the machine itself; elsewhere `Accept` shows it: it names
/// HTML only for pages, and not for images, scripts, styles or requests by scripts.
///
/// The mode is needed only if a path names nothing, so it has no place in the table of known
/// fields.
#[must_use]
pub fn is_navigation(fields: &Fields<'_>) -> bool {
    let mode = |(name, _): &(&[u8], &[u8])| name.eq_ignore_ascii_case(b"sec-fetch-mode");
    match fields.iter().find(mode) {
        Some((_, value)) => value == b"navigate",
        None => mime::accepts_by_name(fields, "text/html"),
    }
}

/// The offset of the first segment of a path (without its first slash) that starts with a dot. RFC
/// 8615 defines one such folder at the root as public.
#[must_use]
pub fn hidden_segment(path: &[u8]) -> Option<usize> {
    let mut start = 0;
    for segment in path.split(|&byte| byte == b'/') {
        let is_well_known = start == 0 && segment == b".well-known";
        if segment.starts_with(b".") && !is_well_known {
            return Some(start);
        }
        start += segment.len() + 1;
    }
    None
}

/// The suffixes of kawipiko's index and fallback pages.
const KAWIPIKO_SUFFIXES: [&str; 7] = ["html", "htm", "xhtml", "xht", "txt", "json", "xml"];

impl Default for Routing {
    fn default() -> Self {
        Self::new(Compat::default())
    }
}

impl Routing {
    /// The routing expected by sites made for a server or host.
    #[must_use]
    pub fn new(compat: Compat) -> Self {
        let (indexes, pages, fallback_suffixes): (Vec<Vec<u8>>, &[&str], &[&str]) = match compat {
            Compat::Netlify | Compat::Cloudflare => {
                (vec![b"index.html".to_vec()], &["html"], &["html"])
            }
            Compat::Kawipiko => (
                named(&["_index", "index"], &KAWIPIKO_SUFFIXES),
                &KAWIPIKO_SUFFIXES[..5],
                &KAWIPIKO_SUFFIXES,
            ),
        };
        // kawipiko's 200.html is a wildcard like others: it answers for assets, too.
        let application = match compat {
            Compat::Netlify | Compat::Cloudflare => FallbackKind::Application,
            Compat::Kawipiko => FallbackKind::Wildcard,
        };
        let kinds = [
            (FallbackKind::Wildcard, &["_wildcard"][..]),
            (application, &["_200", "200"]),
            (FallbackKind::NotFound, &["_404", "404"]),
        ];
        let fallbacks = kinds.into_iter().flat_map(|(kind, stems)| {
            let names = named(stems, fallback_suffixes).into_iter();
            names.map(move |name| Fallback { name, kind })
        });
        Self {
            index_names: indexes,
            page_suffixes: pages.iter().map(|s| format!(".{s}").into_bytes()).collect(),
            trailing_slash: TrailingSlash::default(),
            fallbacks: fallbacks.collect(),
            rules: Some(compat),
        }
    }

    /// Its index names that are none of its dialect.
    pub fn own_index_names(&self) -> impl Iterator<Item = &[u8]> {
        let dialect = Self::new(self.rules.unwrap_or_default()).index_names;
        let names = self.index_names.iter();
        let own = names.filter(move |name| !dialect.contains(name));
        own.map(Vec::as_slice)
    }

    /// Whether a path, without its first slash, is that of a rules file.
    #[must_use]
    pub fn is_rules_file(&self, path: &[u8]) -> bool {
        let Some(compat) = self.rules else {
            return false;
        };
        match compat {
            Compat::Netlify | Compat::Cloudflare => matches!(path, b"_redirects" | b"_headers"),
            Compat::Kawipiko => {
                let name = path.rsplit(|byte| *byte == b'/').next();
                path == b"_headers" || name.is_some_and(|name| is_redirects_name(name, compat))
            }
        }
    }

    /// Whether a path ends like a page: then nothing is appended to it, and no page without a
    /// suffix answers it.
    #[must_use]
    pub fn has_page_suffix(&self, path: &[u8]) -> bool {
        let mut suffixes = self.page_suffixes.iter();
        suffixes.any(|suffix| path.ends_with(suffix))
    }

    /// The path that a page answers without its suffix, if that is the one at this position. A
    /// directory appends the suffixes in order; this is the inverse, starting from the page.
    #[must_use]
    pub fn clean_path<'p>(&self, page: &'p [u8], position: usize) -> Option<&'p [u8]> {
        let clean = page.strip_suffix(self.page_suffixes.get(position)?.as_slice())?;
        (!clean.ends_with(b"/") && !self.has_page_suffix(clean)).then_some(clean)
    }
}

/// Whether a file of this name holds redirects. kawipiko reads one in every folder, the others
/// the one at the root.
#[must_use]
pub fn is_redirects_name(name: &[u8], compat: Compat) -> bool {
    match compat {
        Compat::Netlify | Compat::Cloudflare => name == b"_redirects",
        Compat::Kawipiko => matches!(name, b"_redirects" | b"_redirects.txt"),
    }
}

fn named(stems: &[&str], suffixes: &[&str]) -> Vec<Vec<u8>> {
    let name = |stem: &&str, suffix: &&str| format!("{stem}.{suffix}").into_bytes();
    stems
        .iter()
        .flat_map(|stem| suffixes.iter().map(move |suffix| name(stem, suffix)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kawipiko_has_fourteen_index_names_and_its_own_fallbacks() {
        let routing = Routing::new(Compat::Kawipiko);
        assert_eq!(routing.index_names.len(), 14);
        assert_eq!(routing.index_names[0], b"_index.html");
        assert_eq!(routing.index_names[13], b"index.xml");
        let kind = |routing: &Routing, name: &str| {
            let mut fallbacks = routing.fallbacks.iter();
            let found = fallbacks.find(|one| one.name == name.as_bytes());
            found.map(|one| one.kind)
        };
        let check = |name, expect| assert_eq!(kind(&routing, name), expect, "{name}");
        check("_wildcard.txt", Some(FallbackKind::Wildcard));
        check("_200.html", Some(FallbackKind::Wildcard));
        check("404.json", Some(FallbackKind::NotFound));
        check("404.html.txt", None);
        assert_eq!(kind(&Routing::default(), "404.json"), None);
    }

    #[test]
    fn a_page_answers_without_its_suffix() {
        let routing = Routing::new(Compat::Kawipiko);
        let check = |page: &str, position, expect: Option<&str>| {
            let found = routing.clean_path(page.as_bytes(), position);
            assert_eq!(found, expect.map(str::as_bytes), "{page} {position}");
        };
        check("/about.html", 0, Some("/about"));
        check("/about.html", 1, None);
        check("/about.htm", 1, Some("/about"));
        check("/about.txt.html", 0, None);
        check("/.html", 0, None);
        check("/about", 0, None);
        check("/about.html", 9, None);
    }

    #[test]
    fn browsers_navigate_with_a_mode_or_else_by_what_they_accept() {
        let check = |section: &str, expect| {
            let fields = Fields::parse(section.as_bytes()).expect("well formed");
            assert_eq!(is_navigation(&fields), expect, "{section}");
        };
        let page = "accept: application/xhtml+xml, Text/HTML;q=0.9, */*;q=0.8\r\n";
        let picture = "accept: image/avif,image/webp,image/*,*/*;q=0.8\r\n";
        check(page, true);
        check(picture, false);
        check("accept: */*\r\n", false);
        check("accept: text/html-sandboxed\r\n", false);
        check("accept: image/png\r\naccept: text/html\r\n", true);
        check("", false);
        check("sec-fetch-mode: navigate\r\n", true);
        check(&format!("{picture}Sec-Fetch-Mode: navigate\r\n"), true);
        check(&format!("{page}Sec-Fetch-Mode: no-cors\r\n"), false);
    }

    #[test]
    fn rules_files_are_known_by_their_paths() {
        let check = |compat, path: &str, expect| {
            let routing = Routing::new(compat);
            assert_eq!(routing.is_rules_file(path.as_bytes()), expect, "{path}");
        };
        check(Compat::Netlify, "_redirects", true);
        check(Compat::Netlify, "_headers", true);
        check(Compat::Netlify, "docs/_redirects", false);
        check(Compat::Netlify, "_redirects.txt", false);
        check(Compat::Kawipiko, "docs/_redirects.txt", true);
        check(Compat::Kawipiko, "docs/_headers", false);
        let off = Routing {
            rules: None,
            ..Routing::default()
        };
        assert!(!off.is_rules_file(b"_redirects"));
    }
}
