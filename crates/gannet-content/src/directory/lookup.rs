//! Which paths of a live directory to try for a target path, and what was found.
//!
//! A small state machine, so that its caller may open files at once or wait for a slow disk. It
//! requests one path at a time and receives what is at that path:
//!
//! ```text
//!  /name   ──▶ name ──regular──▶ File                 /name/ ──▶ name/index.html ──regular──▶ File
//!               │ └──directory─▶ name.html ─no─▶ Redirect          │ missing
//!               │ missing                                          ▼
//!               ▼                                     (listing)   name: is it a directory?
//!              name.html ──regular──▶ File                         │
//!               │ no                                               ▼
//!               │                                             name.html ──regular──▶ Redirect
//!               ▼                                                  │ no
//!       Unclaimed: the site's redirects, if it has any ◀───────────┘
//!               │ go on
//!               ▼
//!       Listing of a directory
//!               │ no
//!               ▼
//!       index.html, 200 (single-page application, unless the path looks like an asset)
//!               │ no
//!               ▼
//!       the deepest existing folder of the path, by bisection
//!               │
//!               ▼
//!       its fallbacks (200.html, 404.html, ...), then those of the folders above it, up to the
//!       root ──none──▶ Missing
//! ```
//!
//! Index names, suffixes, fallbacks and the treatment of slashes are those of a [`Routing`].
//!
//! A file that exists but must not be revealed (a way out of the root, a device, a dotfile) is
//! answered like a missing one: 404. A file that the server may not read is 403: a mistake to be
//! noticed. Everything below a dotfile is 404 without querying the disk. `/page.html` is served as
//! it is, not redirected to `/page`.
//!
//! A page `name.html` beside a folder `name/` answers `/name`, the folder answers `/name/`. Site
//! generators write such pairs, and the folder often has no index page.

mod fallbacks;

use std::sync::Arc;

use gannet_http::semantics::status::Status;
use gannet_http::semantics::target_path::encode_path;

use crate::routing::{Routing, TrailingSlash, hidden_segment, is_application_path};
use crate::rules::table::Ruled;

/// Features of a lookup beyond exact names and index pages.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct LookupOptions {
    /// `/about` finds `about.html`.
    pub clean_urls: bool,
    /// A missing path that does not look like an asset is answered with `/index.html`.
    pub spa: bool,
    /// A folder without an index page is listed.
    pub listing: bool,
    /// Names that start with a dot are served like others.
    pub dotfiles: bool,
}

/// The next query of a lookup, or its result.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Step<'a> {
    /// What is at this path? It is relative to the root, without a slash at either end; `""` is the
    /// root itself. Answer with [`Lookup::found`].
    Open(&'a [u8]),
    /// The lookup is finished, with this result.
    Done(Found<'a>),
}

/// What is at a path.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum AtPath {
    /// A regular file, open for reading.
    Regular,
    /// A directory.
    Directory,
    /// A FIFO, socket or device.
    Other,
    /// Nothing, or a path that cannot exist: `ENOENT`, `ENOTDIR`, `ENAMETOOLONG`.
    Missing,
    /// A file that this process may not open: `EACCES`, `EPERM`.
    Denied,
    /// A symbolic link that leads out of the root or forms a loop: `EXDEV`, `ELOOP`.
    Escapes,
    /// Unknown for now: `EIO`, `EMFILE`, `ENFILE`, `ENOMEM`, ...
    Failed,
}

/// The result for a target path.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Found<'a> {
    /// The file last requested, relative to the root, with this status: 200, or another for an
    /// error page of the site. Conditions and ranges apply only to a 200.
    File {
        /// Its path.
        path: &'a [u8],
        /// The status to send it with.
        status: Status,
        /// It is the target path's own file, not one that answers for others.
        is_own: bool,
    },
    /// 301 to this path, percent-encoded, to which the query of the target is appended. It begins
    /// with exactly one slash, so it stays on this host (RFC 3986 section 4.2).
    Redirect {
        /// The path.
        location: &'a [u8],
    },
    /// List this directory.
    Listing {
        /// Its path relative to the root, `""` for the root itself.
        path: &'a [u8],
    },
    /// A redirect rule leads elsewhere.
    Elsewhere {
        /// 301, 302, 303, 307 or 308.
        status: Status,
        /// The whole value of the field.
        location: &'a [u8],
        /// The position of the rule.
        rule: u32,
    },
    /// No file has the path, and the site's redirects come next: [`Lookup::claim`] takes their
    /// verdict. If they have none either, [`Lookup::go_on`] finds what answers.
    Unclaimed,
    /// This error, and the site has no page for that: 404, unless a rule says 410 or 451.
    Missing(Status),
    /// 403.
    Forbidden,
    /// 500 or 503, depending on the error.
    Failed,
}

/// The lookup of one target path.
///
/// Call [`step`](Self::step); answer each [`Step::Open`] with [`found`](Self::found) and step again,
/// until [`Step::Done`]. It queries the path, each index name and each suffix once; then a few of the
/// path's folders, and each fallback in the existing ones, at most
/// [`NOT_FOUND_FOLDERS_MAX`](crate::limits::NOT_FOUND_FOLDERS_MAX). So a long path that names nothing
/// costs little.
#[derive(Clone, Debug)]
pub struct Lookup {
    /// The target path without its first slash.
    path: Vec<u8>,
    /// The requested path, the one found, or the location.
    name: Vec<u8>,
    options: LookupOptions,
    routing: Arc<Routing>,
    trailing_slash: TrailingSlash,
    /// A redirect rule has claimed this path, with this status.
    rule_status: Option<Status>,
    /// Fallbacks are searched in folders within this prefix of the path, in bytes.
    fallback_len: usize,
    /// A browser requests a page to show.
    is_navigation: bool,
    /// The path is a directory to list, if no rule decides.
    is_listed: bool,
    state: State,
}

/// The purpose of the query for the path in `name`, or the result. `next` counts names and
/// suffixes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    /// The path itself, which has no trailing slash.
    Exact,
    /// The path with a suffix, because the path itself is missing (or a directory).
    CleanUrl {
        is_directory: bool,
        next: usize,
    },
    /// An index page of the path, which is a folder's.
    Index {
        next: usize,
    },
    /// The path without its slash: a directory that can be listed, or a file.
    WithoutSlash,
    /// The path without its slash and with a suffix.
    SlashPage {
        next: usize,
    },
    /// The page of a single-page application.
    Application,
    /// A folder between two levels of the path, to find the deepest one that exists: the folder at
    /// level `low` exists (0 is the root), and none below `high` counts.
    Folder {
        low: usize,
        high: usize,
    },
    /// A fallback of the folder whose name has this length.
    Fallback {
        folder_len: usize,
        next: usize,
    },
    Done(End),
}

/// [`Found`] without its paths, which are in `name`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum End {
    File { status: Status, is_own: bool },
    Redirect,
    Elsewhere { status: Status, rule: u32 },
    Listing,
    Unclaimed,
    Missing,
    Forbidden,
    Failed,
}

impl Lookup {
    /// Begins the lookup of a canonical path: decoded, beginning with a slash, without empty
    /// segments, `.` and `..`. A path that is not canonical counts as missing.
    #[must_use]
    pub fn new(path: &[u8], options: LookupOptions, routing: &Arc<Routing>) -> Self {
        Self::begin(path, options, routing, None)
    }

    /// Marks a request by a browser for a page to show: see [`is_application_path`].
    #[must_use]
    pub fn of_navigation(self, is_navigation: bool) -> Self {
        Self {
            is_navigation,
            ..self
        }
    }

    /// A redirect rule decides: before any query, because it precedes files, or because the path is
    /// [unclaimed](Found::Unclaimed). Content that it names is found with or without a trailing
    /// slash; missing content is 404.
    pub fn claim(&mut self, ruled: Ruled) {
        match ruled {
            Ruled::Elsewhere {
                status,
                location,
                rule,
            } => {
                self.name = location;
                self.state = State::Done(End::Elsewhere { status, rule });
            }
            Ruled::Unknown => self.state = State::Done(End::Failed),
            Ruled::Content { status, path, .. } => {
                *self = Self::begin(&path, self.options, &self.routing, Some(status));
            }
        }
    }

    fn begin(
        path: &[u8],
        options: LookupOptions,
        routing: &Arc<Routing>,
        rule_status: Option<Status>,
    ) -> Self {
        let trailing_slash = match rule_status {
            Some(_) => TrailingSlash::Off,
            None => routing.trailing_slash,
        };
        let mut lookup = Self {
            path: path.get(1..).unwrap_or_default().to_vec(),
            name: Vec::new(),
            options,
            routing: Arc::clone(routing),
            trailing_slash,
            rule_status,
            fallback_len: path.len().saturating_sub(1),
            is_navigation: false,
            is_listed: false,
            state: State::Exact,
        };
        let hidden = hidden_segment(&lookup.path).filter(|_| !options.dotfiles);
        if !is_canonical(path) {
            lookup.state = State::Done(End::Missing);
        } else if let Some(hidden) = hidden {
            // Searched above it: whether the hidden folder exists must not show.
            lookup.fallback_len = hidden;
            lookup.unclaimed();
        } else if lookup.routing.is_rules_file(&lookup.path) {
            lookup.unclaimed();
        } else if lookup.path.is_empty() || lookup.path.ends_with(b"/") {
            lookup.ask_index(0);
        } else {
            lookup.ask(State::Exact, b"");
        }
        lookup
    }

    /// The next step. Returns the same one until [`found`](Self::found) is called.
    #[must_use]
    pub fn step(&self) -> Step<'_> {
        let State::Done(result) = self.state else {
            return Step::Open(&self.name);
        };
        let path = self.name.as_slice();
        Step::Done(match result {
            End::File { status, is_own } => Found::File {
                path,
                status,
                is_own,
            },
            End::Redirect => Found::Redirect { location: path },
            End::Elsewhere { status, rule } => Found::Elsewhere {
                status,
                location: path,
                rule,
            },
            End::Listing => Found::Listing { path },
            End::Unclaimed => Found::Unclaimed,
            End::Missing => Found::Missing(self.missing_status()),
            End::Forbidden => Found::Forbidden,
            End::Failed => Found::Failed,
        })
    }

    /// Takes the answer for the path last requested.
    ///
    /// # Panics
    /// If there was no query: the lookup is done.
    pub fn found(&mut self, at_path: AtPath) {
        let at_path = match at_path {
            // Neither sent nor redirected to, with whatever slash or suffix: whether there is one must not
            // show.
            AtPath::Regular | AtPath::Denied if self.routing.is_rules_file(&self.name) => {
                AtPath::Missing
            }
            at_path => at_path,
        };
        match (self.state, at_path) {
            (State::Done(_), _) => panic!("a finished lookup asks nothing"),
            (_, AtPath::Failed) => self.state = State::Done(End::Failed),
            (State::Folder { low, high }, at_path) => self.take_folder(low, high, at_path),
            (State::Fallback { folder_len, next }, at_path) => {
                self.take_fallback(folder_len, next, at_path);
            }
            (_, AtPath::Denied) => self.state = State::Done(End::Forbidden),
            (State::WithoutSlash, AtPath::Directory) if self.may_list() => {
                self.is_listed = true;
                match self.routing.trailing_slash {
                    // A rule names what the path has: without redirects, that is the listing.
                    TrailingSlash::Off => self.unclaimed(),
                    // Pages were queried before.
                    _ if self.trailing_slash == TrailingSlash::Always => self.unclaimed(),
                    _ => self.ask_slash_page(0),
                }
            }
            (State::WithoutSlash, AtPath::Regular) if self.rule_status.is_some() => {
                self.found_file();
            }
            (State::WithoutSlash, AtPath::Regular) if self.trailing_slash.removes() => {
                self.redirect_without_slash();
            }
            // Pages were queried before.
            (State::WithoutSlash, _) if self.trailing_slash == TrailingSlash::Always => {
                self.unclaimed();
            }
            (State::WithoutSlash, _) => self.ask_slash_page(0),
            (State::SlashPage { .. }, AtPath::Regular) => match self.trailing_slash {
                // Off: it is what a rule names.
                TrailingSlash::Always | TrailingSlash::Off => self.found_file(),
                _ => self.redirect_without_slash(),
            },
            (State::SlashPage { next }, _) => self.ask_slash_page(next + 1),
            (State::Application, AtPath::Regular) => self.found_other(Status::OK),
            (State::Application, _) => self.ask_nearest_fallback(),
            (State::Exact, AtPath::Regular) => self.found_file(),
            (State::Exact, at_path) => self.ask_clean_url(at_path == AtPath::Directory, 0),
            (State::CleanUrl { .. }, AtPath::Regular)
                if self.trailing_slash == TrailingSlash::Always =>
            {
                self.redirect_with_slash();
            }
            (State::CleanUrl { .. }, AtPath::Regular) => self.found_file(),
            (State::CleanUrl { is_directory, next }, _) => {
                self.ask_clean_url(is_directory, next + 1);
            }
            (State::Index { .. }, AtPath::Regular) => self.found_index(),
            (State::Index { next }, _) => self.ask_index(next + 1),
        }
    }

    /// The site's redirects have nothing for the path: lists it, or queries what answers in its
    /// place.
    ///
    /// # Panics
    /// If the result is not [`Found::Unclaimed`].
    pub fn go_on(&mut self) {
        assert_eq!(
            self.state,
            State::Done(End::Unclaimed),
            "only an unclaimed path goes on"
        );
        self.not_found();
    }

    /// The status of a path without content: a rule may say another one than 404.
    fn missing_status(&self) -> Status {
        let error = self.rule_status.filter(|status| *status != Status::OK);
        error.unwrap_or(Status::NOT_FOUND)
    }

    /// Queries the path with `suffix` appended.
    fn ask(&mut self, state: State, suffix: &[u8]) {
        self.name.clear();
        self.name.extend_from_slice(&self.path);
        self.name.extend_from_slice(suffix);
        self.state = state;
    }

    fn is_of_folder(&self) -> bool {
        self.path.is_empty() || self.path.ends_with(b"/")
    }

    /// Queries the path with the suffix of a page, from number `next` on.
    fn ask_clean_url(&mut self, is_directory: bool, next: usize) {
        let routing = Arc::clone(&self.routing);
        // `/page.html` is not a clean URL: nothing is appended to it.
        let is_clean = !routing.has_page_suffix(&self.path);
        match routing.page_suffixes.get(next) {
            Some(suffix) if self.options.clean_urls && is_clean => {
                self.ask(State::CleanUrl { is_directory, next }, suffix);
            }
            _ if !is_directory => self.unclaimed(),
            // With rules, a folder that has nothing to show is left to them.
            _ if self.trailing_slash.adds() && self.routing.rules.is_none() => {
                self.redirect_with_slash();
            }
            _ => self.ask_index(0),
        }
    }

    /// Queries an index page, from number `next` on.
    fn ask_index(&mut self, next: usize) {
        let routing = Arc::clone(&self.routing);
        let slash: &[u8] = if self.is_of_folder() { b"" } else { b"/" };
        if let Some(name) = routing.index_names.get(next) {
            let suffix = [slash, name].concat();
            return self.ask(State::Index { next }, &suffix);
        }
        if !self.is_of_folder() {
            self.is_listed = self.may_list();
            return self.unclaimed();
        }
        let wants_page = self.wants_page() && !self.path.is_empty();
        match self.trailing_slash {
            TrailingSlash::Always if wants_page => self.ask_slash_page(0),
            _ if self.options.listing || wants_page => self.ask_without_slash(),
            _ => self.unclaimed(),
        }
    }

    /// Whether a folder is listed: a rule that gives a path up says so, whatever folder it names.
    fn may_list(&self) -> bool {
        self.options.listing && self.rule_status.is_none_or(|status| status == Status::OK)
    }

    /// Whether what the path would name without its slash counts.
    fn wants_page(&self) -> bool {
        self.trailing_slash.removes() || self.rule_status.is_some()
    }

    fn ask_without_slash(&mut self) {
        self.ask(State::WithoutSlash, b"");
        if self.name.ends_with(b"/") {
            self.name.pop();
        }
    }

    /// Queries the page that the path would name without its slash, from number `next` on.
    fn ask_slash_page(&mut self, next: usize) {
        let routing = Arc::clone(&self.routing);
        let path = self.path.strip_suffix(b"/").unwrap_or_default();
        let may_have = self.options.clean_urls
            && self.wants_page()
            && !path.is_empty()
            && !routing.has_page_suffix(path);
        match routing.page_suffixes.get(next).filter(|_| may_have) {
            Some(suffix) => {
                self.name = [path, suffix].concat();
                self.state = State::SlashPage { next };
            }
            // Pages precede the listing, which was not queried yet.
            None if self.trailing_slash == TrailingSlash::Always => self.ask_without_slash(),
            None => self.unclaimed(),
        }
    }

    fn redirect_with_slash(&mut self) {
        let path = [b"/", self.path.as_slice(), b"/"].concat();
        self.redirect(&path);
    }

    fn redirect_without_slash(&mut self) {
        let path = [b"/", self.path.strip_suffix(b"/").unwrap_or_default()].concat();
        self.redirect(&path);
    }

    fn redirect(&mut self, decoded: &[u8]) {
        self.name.clear();
        encode_path(decoded, &mut self.name);
        let is_local = self.name.starts_with(b"/") && !self.name.starts_with(b"//");
        assert!(is_local, "a redirect stays on this host");
        self.state = State::Done(End::Redirect);
    }

    fn found_index(&mut self) {
        match self.trailing_slash {
            TrailingSlash::Never if self.is_of_folder() && !self.path.is_empty() => {
                self.redirect_without_slash();
            }
            slash if slash.adds() && !self.is_of_folder() => self.redirect_with_slash(),
            _ => self.found_file(),
        }
    }

    fn found_file(&mut self) {
        let is_own = self.rule_status.is_none();
        let status = self.rule_status.unwrap_or(Status::OK);
        self.state = State::Done(End::File { status, is_own });
    }

    /// A file that answers for others was found.
    fn found_other(&mut self, status: Status) {
        let is_own = false;
        self.state = State::Done(End::File { status, is_own });
    }

    /// The target path names nothing.
    fn unclaimed(&mut self) {
        if self.routing.rules.is_some() && self.rule_status.is_none() {
            self.state = State::Done(End::Unclaimed);
        } else {
            self.not_found();
        }
    }

    /// Nothing claims the target path: lists it, or uses the application's page, or the nearest
    /// fallback.
    fn not_found(&mut self) {
        if self.is_listed && !self.is_of_folder() {
            // A listing's links are wrong without the slash.
            self.redirect_with_slash();
        } else if self.is_listed {
            self.ask_without_slash();
            self.state = State::Done(End::Listing);
        } else if self.options.spa
            && self.rule_status.is_none()
            && is_application_path(&self.path, self.is_navigation)
        {
            self.name.clear();
            self.name.extend_from_slice(b"index.html");
            self.state = State::Application;
        } else {
            self.ask_nearest_fallback();
        }
    }

    /// Whether the query is for a folder, and no other type of file counts.
    #[must_use]
    pub fn wants_folder(&self) -> bool {
        matches!(self.state, State::Folder { .. })
    }
}

/// Whether the path is as `target_path::decode_path` returns it. Checked again here because the
/// path will be opened: this is the last line of defence before the disk.
fn is_canonical(path: &[u8]) -> bool {
    let Some(rest) = path.strip_prefix(b"/") else {
        return false;
    };
    let segments = rest.strip_suffix(b"/").unwrap_or(rest);
    if path.contains(&0) {
        return false;
    }
    rest.is_empty()
        || segments
            .split(|&byte| byte == b'/')
            .all(|segment| !matches!(segment, b"" | b"." | b".."))
}

#[cfg(test)]
mod tests;
