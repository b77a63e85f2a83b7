//! How a request to an archive is resolved. Everything that depends on the path alone was decided
//! when the archive was packed, and is one lookup; missing paths and the site's own rules are
//! decided here.
//!
//! ```text
//!  rules that go before files ──▶ the path's own entry ──▶ an immutable asset of another release
//!                                                            │ no
//!    rules for what is missing ◀── /page/ redirects to /page ◀┘
//!           │  (and for listings)
//!           └──▶ the application's page ──▶ the pages of folders
//! ```
//!
//! A live directory resolves the same way in [`directory::lookup`](crate::directory::lookup), which
//! has to query the disk; their common decisions are in [`routing`](crate::routing). The server,
//! `explain` and `check` query a [`Host`] of the archive and make no decisions themselves.

use gannet_archive::{Archive, Entry, EntryKind, Key, Namespace};
use gannet_http::semantics::status::Status;
use gannet_http::semantics::target_path::encode_path;

use crate::limits::NOT_FOUND_FOLDERS_MAX;
use crate::routing::{FallbackKind, is_application_path};
use crate::rules::matcher::RuleInput;
use crate::rules::steps::Steps;
use crate::rules::table::{RedirectTable, Ruled};

/// The page of a single-page application: the file of this name at the root, as in a directory, and
/// not the answer for `/`, which may be a listing.
pub const FRONT_PAGE: &[u8] = b"/index.html";

/// Where an archive keeps an entry.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Space {
    /// Under the requested path.
    Content,
    /// Under the path, with the fields that its content has when it answers for another path.
    Unruled,
    /// Under the folder that it answers for.
    Fallback(FallbackKind),
}

impl Space {
    fn namespace(self) -> Namespace {
        match self {
            Self::Content => Namespace::Content,
            Self::Unruled => Namespace::Unruled,
            Self::Fallback(FallbackKind::Wildcard) => Namespace::Wildcard,
            Self::Fallback(FallbackKind::Application) => Namespace::ApplicationPage,
            Self::Fallback(FallbackKind::NotFound) => Namespace::NotFoundPage,
        }
    }
}

/// The entries of one host of an archive.
pub trait Entries {
    /// An entry.
    type Entry;

    /// The entry of a path.
    fn find(&self, space: Space, path: &[u8]) -> Option<Self::Entry>;

    /// Whether it has content; otherwise it is a redirect.
    fn has_content(&self, entry: &Self::Entry) -> bool;

    /// Whether it is the file of that name, and not a folder's page or another file that answers
    /// there.
    fn is_file(&self, entry: &Self::Entry) -> bool;

    /// Whether another release of the site that still answers has an immutable asset of this path.
    /// Called only if [`find`](Self::find) finds no content of the path.
    fn is_kept(&self, _path: &[u8]) -> bool {
        false
    }

    /// Whether it is a listing, or the redirect to one: rules precede it.
    fn is_listing(&self, entry: &Self::Entry) -> bool;

    /// Called with the verdict of the redirect rules, for callers that report reasons.
    fn ruled(&self, _ruled: Option<&Ruled>) {}
}

/// One host of an archive.
#[derive(Debug)]
pub struct Host<'a, B> {
    archive: &'a Archive<B>,
    number: u16,
}

impl<'a, B: AsRef<[u8]>> Host<'a, B> {
    /// The host of this number.
    #[inline]
    pub fn of(archive: &'a Archive<B>, number: u16) -> Self {
        Self { archive, number }
    }

    /// The kinds of folder pages that it has, best first.
    #[must_use]
    pub fn fallbacks(&self) -> Vec<FallbackKind> {
        let has = |kind: &FallbackKind| {
            let namespace = Space::Fallback(*kind).namespace();
            self.archive.has_namespace(self.number, namespace)
        };
        let all = [
            FallbackKind::Wildcard,
            FallbackKind::Application,
            FallbackKind::NotFound,
        ];
        all.into_iter().filter(has).collect()
    }

    /// Whether it has the page that [`Facts::spa`] answers with.
    #[must_use]
    pub fn has_front_page(&self) -> bool {
        content(self, FRONT_PAGE).is_some_and(|page| self.is_file(&page))
    }
}

impl<'a, B: AsRef<[u8]>> Entries for Host<'a, B> {
    type Entry = Entry<'a>;

    #[inline]
    fn find(&self, space: Space, path: &[u8]) -> Option<Entry<'a>> {
        self.archive.lookup(Key {
            host: self.number,
            namespace: space.namespace(),
            path,
        })
    }

    fn has_content(&self, entry: &Entry<'a>) -> bool {
        entry.kind() == EntryKind::Content
    }

    fn is_file(&self, entry: &Entry<'a>) -> bool {
        !entry.is_alias() && !entry.is_generated()
    }

    fn is_listing(&self, entry: &Entry<'a>) -> bool {
        let is_of_listing = || {
            let folder = [entry.path(), b"/"].concat();
            let page = self.find(Space::Content, &folder);
            page.is_some_and(|page| page.is_generated())
        };
        entry.is_generated() || (!self.has_content(entry) && is_of_listing())
    }
}

/// Properties of an archive, and the rules of the requested host.
#[derive(Clone, Copy, Debug, Default)]
pub struct Facts<'a> {
    /// Its [`FRONT_PAGE`] answers for missing paths.
    pub spa: bool,
    /// `/page/` redirects to `/page`.
    pub slash_redirects: bool,
    /// Field rules of a path are already applied in its entry, so content that answers for other
    /// paths has a second entry without them.
    pub has_unruled: bool,
    /// The kinds of folder pages that it has, best first.
    pub fallbacks: &'a [FallbackKind],
    /// The site's own redirects.
    pub redirects: Option<&'a RedirectTable>,
}

/// The outcome of a request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Resolution<E> {
    /// An entry.
    Entry {
        /// Content; a redirect only if it is the path's own.
        entry: E,
        /// The status to send content with. Conditions and ranges apply only to a 200.
        status: Status,
        /// It is the path's own entry, not one that answers for others.
        is_own: bool,
    },
    /// An immutable asset of another release ([`Entries::is_kept`]): pages that were loaded from that
    /// release refer to it.
    Kept,
    /// 301 to this path, percent-encoded, to which the query of the target is appended.
    Redirect(Vec<u8>),
    /// A redirect rule leads elsewhere.
    Elsewhere {
        /// 301, 302, 303, 307 or 308.
        status: Status,
        /// The whole value of the field.
        location: Vec<u8>,
        /// The position of the rule.
        rule: u32,
    },
    /// This error, and the site has no page for that: 404, unless a rule says 410 or 451; 500 if it is not known which
    /// rule precedes the content.
    Missing(Status),
}

/// Resolves a request, of whose steps the rules take theirs. `is_navigation` is called only if a path
/// names nothing.
#[inline]
pub fn resolve<E: Entries>(
    entries: &E,
    facts: &Facts<'_>,
    (request, steps): (&RuleInput<'_>, &Steps),
    is_navigation: impl FnOnce() -> bool,
) -> Resolution<E::Entry> {
    if let Some(redirects) = facts.redirects
        && let Some(ruled) = redirects.before_files(request, steps)
    {
        return claimed(entries, facts, ruled);
    }
    match entries.find(Space::Content, request.path) {
        Some(entry) => {
            if let Some(redirects) = facts.redirects
                && entries.is_listing(&entry)
                && let Some(ruled) = redirects.for_missing(request, steps)
            {
                return claimed(entries, facts, ruled);
            }
            Resolution::Entry {
                entry,
                status: Status::OK,
                is_own: true,
            }
        }
        None => missing(entries, facts, (request, steps), is_navigation()),
    }
}

/// The outcome of a redirect rule.
#[cold]
fn claimed<E: Entries>(entries: &E, facts: &Facts<'_>, ruled: Ruled) -> Resolution<E::Entry> {
    entries.ruled(Some(&ruled));
    let (status, path) = match ruled {
        Ruled::Elsewhere {
            status,
            location,
            rule,
        } => {
            return Resolution::Elsewhere {
                status,
                location,
                rule,
            };
        }
        Ruled::Content { status, path, .. } => (status, path),
        Ruled::Unknown => return Resolution::Missing(Status::INTERNAL_SERVER_ERROR),
    };
    // With or without a trailing slash.
    let other = match path.strip_suffix(b"/") {
        Some(path) => path.to_vec(),
        None => [path.as_slice(), b"/"].concat(),
    };
    // A rule that gives a path up says so, whatever folder it names.
    let may_be = |entry: &E::Entry| status == Status::OK || !entries.is_listing(entry);
    let find = |path: &[u8]| content_for_others(entries, facts, path).filter(may_be);
    match find(&path).or_else(|| find(&other)) {
        Some(entry) => stands_in(entry, status),
        None => {
            let page = fallback(entries, &path, &[FallbackKind::NotFound], false);
            // Without a page to send, an error is still that error.
            let error = match status {
                Status::OK => Status::NOT_FOUND,
                error => error,
            };
            match page {
                Resolution::Entry { entry, .. } => stands_in(entry, error),
                _ => Resolution::Missing(error),
            }
        }
    }
}

/// No entry has the path itself.
#[cold]
fn missing<E: Entries>(
    entries: &E,
    facts: &Facts<'_>,
    (request, steps): (&RuleInput<'_>, &Steps),
    is_navigation: bool,
) -> Resolution<E::Entry> {
    let path = request.path;
    if entries.is_kept(path) {
        return Resolution::Kept;
    }
    if let Some(page) = path.strip_suffix(b"/")
        && facts.slash_redirects
        && content(entries, page).is_some()
    {
        let mut location = Vec::new();
        encode_path(page, &mut location);
        return Resolution::Redirect(location);
    }
    if let Some(redirects) = facts.redirects {
        match redirects.for_missing(request, steps) {
            Some(ruled) => return claimed(entries, facts, ruled),
            None => entries.ruled(None),
        }
    }
    if facts.spa
        && is_application_path(path, is_navigation)
        && let Some(entry) = front_page(entries, facts)
    {
        return stands_in(entry, Status::OK);
    }
    fallback(entries, path, facts.fallbacks, is_navigation)
}

/// The page of the nearest folder that answers for missing paths below it.
fn fallback<E: Entries>(
    entries: &E,
    path: &[u8],
    kinds: &[FallbackKind],
    is_navigation: bool,
) -> Resolution<E::Entry> {
    let is_slash = |(end, byte): (usize, &u8)| (*byte == b'/').then_some(end);
    // As in a directory, folders are counted from the root down.
    let below = path.iter().enumerate().filter_map(is_slash);
    let deepest = below.take(NOT_FOUND_FOLDERS_MAX).last();
    let mut next = deepest;
    while let Some(end) = next {
        for kind in kinds {
            if let Some(status) = kind.status(path, is_navigation)
                && let Some(entry) = entries.find(Space::Fallback(*kind), &path[..=end])
            {
                return stands_in(entry, status);
            }
        }
        next = path[..end].iter().rposition(|byte| *byte == b'/');
    }
    Resolution::Missing(Status::NOT_FOUND)
}

fn stands_in<E>(entry: E, status: Status) -> Resolution<E> {
    Resolution::Entry {
        entry,
        status,
        is_own: false,
    }
}

/// The page of a single-page application. A folder of that name does not count, as in a directory.
fn front_page<E: Entries>(entries: &E, facts: &Facts<'_>) -> Option<E::Entry> {
    let page = content(entries, FRONT_PAGE).filter(|page| entries.is_file(page))?;
    let unruled = facts
        .has_unruled
        .then(|| entries.find(Space::Unruled, FRONT_PAGE));
    Some(unruled.flatten().unwrap_or(page))
}

/// The content of a path, as an answer for another one.
fn content_for_others<E: Entries>(entries: &E, facts: &Facts<'_>, path: &[u8]) -> Option<E::Entry> {
    let unruled = facts
        .has_unruled
        .then(|| entries.find(Space::Unruled, path));
    unruled.flatten().or_else(|| content(entries, path))
}

fn content<E: Entries>(entries: &E, path: &[u8]) -> Option<E::Entry> {
    let entry = entries.find(Space::Content, path)?;
    entries.has_content(&entry).then_some(entry)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::rules::pattern::Scheme;
    use crate::rules::{Compat, SourceFile, redirects};

    /// Entries by name; a name ending with `->` marks a redirect, one ending with ` alias` an entry
    /// that is not a file. Records the queries.
    struct Site {
        entries: Vec<(Space, &'static str)>,
        asked: RefCell<usize>,
    }

    impl Entries for Site {
        type Entry = String;

        fn find(&self, space: Space, path: &[u8]) -> Option<String> {
            *self.asked.borrow_mut() += 1;
            let name = |name: &str| {
                let name = name.trim_end_matches("->").trim_end_matches(" alias");
                name.as_bytes() == path
            };
            let mut entries = self.entries.iter();
            let found = entries.find(|(one, it)| *one == space && name(it))?;
            Some(format!("{space:?} {}", found.1))
        }

        fn has_content(&self, entry: &String) -> bool {
            !entry.ends_with("->")
        }

        fn is_file(&self, entry: &String) -> bool {
            !entry.ends_with("alias")
        }

        fn is_listing(&self, entry: &String) -> bool {
            entry.ends_with("alias")
        }
    }

    const WILDCARD: Space = Space::Fallback(FallbackKind::Wildcard);
    const APPLICATION: Space = Space::Fallback(FallbackKind::Application);
    const NOT_FOUND: Space = Space::Fallback(FallbackKind::NotFound);
    const FALLBACKS: [FallbackKind; 3] = [
        FallbackKind::Wildcard,
        FallbackKind::Application,
        FallbackKind::NotFound,
    ];

    fn site(entries: &[(Space, &'static str)]) -> Site {
        Site {
            entries: entries.to_vec(),
            asked: RefCell::new(0),
        }
    }

    fn ask(site: &Site, facts: &Facts<'_>, path: &str, is_navigation: bool) -> String {
        let request = RuleInput {
            prefix: b"",
            scheme: Scheme::Https,
            host: b"",
            path: path.as_bytes(),
            query: None,
            language: b"",
        };
        match resolve(site, facts, (&request, &Steps::default()), || is_navigation) {
            Resolution::Entry {
                entry,
                status,
                is_own,
            } => {
                format!("{} {entry}{}", status.0, if is_own { ", own" } else { "" })
            }
            Resolution::Redirect(location) => format!("301 {}", String::from_utf8_lossy(&location)),
            Resolution::Elsewhere {
                status,
                location,
                rule,
            } => {
                format!(
                    "{} {} by {rule}",
                    status.0,
                    String::from_utf8_lossy(&location)
                )
            }
            Resolution::Kept => "kept".into(),
            Resolution::Missing(Status::NOT_FOUND) => "missing".into(),
            Resolution::Missing(status) => format!("{}", status.0),
        }
    }

    #[test]
    fn pages_for_folders_answer_in_the_order_of_a_directory() {
        let site = site(&[
            (Space::Content, "/"),
            (Space::Content, "/page"),
            (Space::Content, "/docs->"),
            (NOT_FOUND, "/"),
            (APPLICATION, "/app/"),
            (NOT_FOUND, "/app/"),
            (WILDCARD, "/all/"),
            (APPLICATION, "/all/"),
        ]);
        let facts = Facts {
            slash_redirects: true,
            fallbacks: &FALLBACKS,
            ..Facts::default()
        };
        let check = |path: &str, is_navigation, expect: &str| {
            assert_eq!(ask(&site, &facts, path, is_navigation), expect, "{path}");
        };
        check("/", false, "200 Content /, own");
        check("/docs", false, "200 Content /docs->, own");
        check("/page/", false, "301 /page");
        check("/docs/", false, "404 Fallback(NotFound) /");
        check("/app/x", false, "200 Fallback(Application) /app/");
        check("/app/x.js", false, "404 Fallback(NotFound) /app/");
        check("/app/x.js", true, "200 Fallback(Application) /app/");
        check("/app/.x", true, "404 Fallback(NotFound) /app/");
        check("/all/deep/x.js", false, "200 Fallback(Wildcard) /all/");
        check("/x/y", false, "404 Fallback(NotFound) /");
    }

    #[test]
    fn the_applications_page_is_a_file_and_no_listing() {
        let facts = Facts {
            spa: true,
            has_unruled: true,
            ..Facts::default()
        };
        let listed = site(&[(Space::Content, "/")]);
        assert_eq!(ask(&listed, &facts, "/view", false), "missing");
        // `/index.html/index.html`, which answers for its folder.
        let folder = site(&[
            (Space::Content, "/index.html alias"),
            (Space::Unruled, "/index.html"),
        ]);
        assert_eq!(ask(&folder, &facts, "/view", false), "missing");
        let paged = site(&[
            (Space::Content, "/index.html"),
            (Space::Unruled, "/index.html"),
        ]);
        assert_eq!(
            ask(&paged, &facts, "/view", false),
            "200 Unruled /index.html"
        );
        assert_eq!(ask(&paged, &facts, "/view/v1.2", false), "missing");
        assert_eq!(
            ask(&paged, &facts, "/view/v1.2", true),
            "200 Unruled /index.html"
        );
    }

    #[test]
    fn rules_come_before_files_if_forced_and_else_after_slashes() {
        let text = b"/page/ /x 301\n/gone /page 410\n/forced /x 302!\n/lost /none 200\n\
            /past /none 410\n/list /l 301\n/listed /l 200\n/unlisted /l 410\n";
        let file = SourceFile {
            path: "_redirects",
            text,
        };
        let (rules, problems) = redirects::parse(&[file], Compat::Netlify);
        assert!(problems.is_empty(), "{problems:?}");
        let table = RedirectTable::new(rules);
        let site = site(&[
            (Space::Content, "/page"),
            (Space::Content, "/forced"),
            (Space::Content, "/list/ alias"),
            (Space::Content, "/l alias"),
            (WILDCARD, "/"),
            (NOT_FOUND, "/"),
        ]);
        let facts = Facts {
            slash_redirects: true,
            fallbacks: &FALLBACKS,
            redirects: Some(&table),
            ..Facts::default()
        };
        let check = |path: &str, expect: &str| {
            assert_eq!(ask(&site, &facts, path, false), expect, "{path}");
        };
        check("/page", "200 Content /page, own");
        check("/page/", "301 /page");
        check("/gone", "410 Content /page");
        check("/forced", "302 /x by 2");
        // A path that a rule names and that does not exist is 404, whatever answers for other
        // paths.
        check("/lost", "404 Fallback(NotFound) /");
        check("/past", "410 Fallback(NotFound) /");
        // Rules precede listings, and may send them.
        check("/list/", "301 /l by 5");
        check("/listed", "200 Content /l alias");
        check("/unlisted", "410 Fallback(NotFound) /");
        let bare = Site {
            entries: Vec::new(),
            asked: RefCell::new(0),
        };
        assert_eq!(ask(&bare, &facts, "/past", false), "410");
        assert_eq!(ask(&bare, &facts, "/lost", false), "missing");
        check("/else", "200 Fallback(Wildcard) /");
    }

    /// A peer chooses how deep a path is, and each folder costs a lookup for each kind of page.
    #[test]
    fn a_deep_path_asks_a_bounded_number_of_times() {
        let site = site(&[(NOT_FOUND, "/")]);
        let facts = Facts {
            spa: true,
            slash_redirects: true,
            fallbacks: &FALLBACKS,
            ..Facts::default()
        };
        let deep = "/d".repeat(2_000);
        assert_eq!(ask(&site, &facts, &deep, false), "404 Fallback(NotFound) /");
        let asked = *site.asked.borrow();
        assert!(asked <= 3 * NOT_FOUND_FOLDERS_MAX + 4, "{asked} lookups");
    }
}
