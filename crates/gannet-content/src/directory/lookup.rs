//! Which paths of a live directory to try for a target path, and what was found in the end.
//!
//! A small state machine, so that whoever opens files may do it at once or wait for a slow disk.
//! It asks for one path at a time and is told what is there:
//!
//! ```text
//!  /name   ──▶ name ──regular──▶ File                 /name/ ──▶ name/index.html ──regular──▶ File
//!               │ └──directory─▶ name.html ─no─▶ Redirect          │ missing
//!               │ missing                                          ▼
//!               ▼                                     (listing)   name ──directory──▶ Listing
//!              name.html ──regular──▶ File                         │ no
//!               │ no                                               │
//!               ▼                                                  ▼
//!       index.html, 200 (single-page application, unless the path looks like an asset)
//!               │ no
//!               ▼
//!       the nearest 404.html from the path's folder up to the root ──none──▶ Missing
//! ```
//!
//! What is there but must not be revealed (a way out of the root, a device, a dotfile) is answered
//! like what is not there: 404. A file that the server may not read is 403: that is a mistake to
//! be noticed. `file/`, with a slash after a file's name, is 404; so is everything below a dotfile,
//! without a question to the disk. `/page.html` is served as it is, not redirected to `/page`.
//!
//! A page `name.html` beside a folder `name/` answers `/name`, the folder answers `/name/`. Site
//! generators write such pairs, and the folder often has no index of its own.

use gannet_http::semantics::status::Status;
use gannet_http::semantics::target_path::encode_path;

use crate::limits::NOT_FOUND_FOLDERS_MAX;
use crate::mime::looks_like_asset;

/// What a lookup does beyond exact names and index pages.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct LookupOptions {
    /// `/about` finds `about.html`.
    pub clean_urls: bool,
    /// What is not found and does not look like an asset is answered with `/index.html`.
    pub spa: bool,
    /// A folder without index page is listed.
    pub listing: bool,
    /// Names that begin with a dot are served like others.
    pub dotfiles: bool,
}

/// What a lookup wants to know, or what it has found.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Ask<'a> {
    /// What is at this path? It is relative to the root, without slash at either end; `""` is
    /// the root itself. Answer with [`Lookup::told`].
    Open(&'a [u8]),
    /// Nothing more; this is the result.
    Done(Found<'a>),
}

/// What is at a path.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Told {
    /// A regular file, open for reading.
    Regular,
    /// A directory.
    Directory,
    /// A FIFO, socket or device.
    Other,
    /// Nothing, or a path that nothing can be at: `ENOENT`, `ENOTDIR`, `ENAMETOOLONG`.
    Missing,
    /// Something that this process may not open: `EACCES`, `EPERM`.
    Denied,
    /// A symbolic link that leads out of the root or in a circle: `EXDEV`, `ELOOP`.
    Escapes,
    /// It cannot be told now: `EIO`, `EMFILE`, `ENFILE`, `ENOMEM`, ...
    Failed,
}

/// What a target path comes to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Found<'a> {
    /// The file last asked for, relative to the root, with this status: 200, or 404 for an error
    /// page of the site. Conditions and ranges apply only to a 200.
    File {
        /// Its path.
        path: &'a [u8],
        /// The status to send it with.
        status: Status,
    },
    /// 308 to this path, percent-encoded, to which the query of the target is to be appended. It
    /// begins with exactly one slash, so it stays on this host (RFC 3986 section 4.2).
    Redirect {
        /// The path.
        location: &'a [u8],
    },
    /// The directory last asked for is to be listed.
    Listing {
        /// Its path relative to the root, `""` for the root itself.
        path: &'a [u8],
    },
    /// 404, and the site has no page for it.
    Missing,
    /// 403.
    Forbidden,
    /// 500 or 503, as the error says that was met.
    Failed,
}

/// The lookup of one target path.
///
/// Call [`step`](Self::step); answer each [`Ask::Open`] with [`told`](Self::told) and step again,
/// until [`Ask::Done`]. It asks for at most three paths and then [`NOT_FOUND_FOLDERS_MAX`] more.
#[derive(Clone, Debug)]
pub struct Lookup {
    /// The target path without its first slash.
    path: Vec<u8>,
    /// The path asked for, the one found, or the location.
    name: Vec<u8>,
    options: LookupOptions,
    state: State,
}

/// What the path in `name` is asked for, or what was found.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    /// The path itself, which has no slash at its end.
    Exact,
    /// The path with `.html`, because the path itself is missing (or a directory).
    CleanUrl {
        is_directory: bool,
    },
    /// The index page of the path, which has a slash at its end.
    Index,
    /// Whether the path is a directory that can be listed.
    ListingOf,
    /// The page of a single-page application.
    Application,
    /// The error page of the folder whose name is this long.
    NotFoundPage {
        folder_len: usize,
    },
    Done(End),
}

/// [`Found`] without its paths, which are in `name`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum End {
    File(Status),
    Redirect,
    Listing,
    Missing,
    Forbidden,
    Failed,
}

impl Lookup {
    /// Begins the lookup of a canonical path: decoded, beginning with a slash, without empty
    /// segments, `.` and `..`. A path that is not canonical is found missing.
    #[must_use]
    pub fn new(path: &[u8], options: LookupOptions) -> Self {
        let mut lookup = Self {
            path: path.get(1..).unwrap_or_default().to_vec(),
            name: Vec::new(),
            options,
            state: State::Exact,
        };
        if !is_canonical(path) {
            lookup.state = State::Done(End::Missing);
        } else if let Some(hidden) = lookup.hidden_segment() {
            // Searched above it: whether the folder that is hidden exists must not show.
            lookup.ask_not_found_page(hidden);
        } else if lookup.path.is_empty() || lookup.path.ends_with(b"/") {
            lookup.ask(State::Index, b"index.html");
        } else {
            lookup.ask(State::Exact, b"");
        }
        lookup
    }

    /// What is wanted now. Gives the same until [`told`](Self::told) is called.
    #[must_use]
    pub fn step(&self) -> Ask<'_> {
        let State::Done(result) = self.state else {
            return Ask::Open(&self.name);
        };
        let path = self.name.as_slice();
        Ask::Done(match result {
            End::File(status) => Found::File { path, status },
            End::Redirect => Found::Redirect { location: path },
            End::Listing => Found::Listing { path },
            End::Missing => Found::Missing,
            End::Forbidden => Found::Forbidden,
            End::Failed => Found::Failed,
        })
    }

    /// Takes the answer to the path last asked for.
    ///
    /// # Panics
    /// If nothing was asked: the lookup is done.
    pub fn told(&mut self, told: Told) {
        match (self.state, told) {
            (State::Done(_), _) => panic!("a finished lookup asks nothing"),
            (_, Told::Failed) => self.state = State::Done(End::Failed),
            // A page that cannot be read must not turn a 404 into a 403: the path is missing.
            (State::NotFoundPage { .. }, Told::Regular) => self.found_file(Status::NOT_FOUND),
            (State::NotFoundPage { folder_len }, _) => self.ask_next_not_found_page(folder_len),
            (_, Told::Denied) => self.state = State::Done(End::Forbidden),
            (State::ListingOf, Told::Directory) => self.state = State::Done(End::Listing),
            (State::ListingOf, _) => self.not_found(),
            (_, Told::Regular) => self.found_file(Status::OK),
            (State::Exact, Told::Directory) => self.exact_is_directory(),
            (State::Exact, _) if self.wants_clean_url() => {
                self.ask(
                    State::CleanUrl {
                        is_directory: false,
                    },
                    b".html",
                );
            }
            (State::CleanUrl { is_directory: true }, _) => self.redirect(),
            (State::Index, _) if self.options.listing => self.ask_listing(),
            (State::Application, _) => self.ask_nearest_not_found_page(),
            (State::Exact | State::CleanUrl { .. } | State::Index, _) => self.not_found(),
        }
    }

    /// Asks for the path with `suffix` appended.
    fn ask(&mut self, state: State, suffix: &[u8]) {
        self.name.clear();
        self.name.extend_from_slice(&self.path);
        self.name.extend_from_slice(suffix);
        self.state = state;
    }

    fn ask_listing(&mut self) {
        self.ask(State::ListingOf, b"");
        if self.name.ends_with(b"/") {
            self.name.pop();
        }
    }

    fn exact_is_directory(&mut self) {
        if self.wants_clean_url() {
            self.ask(State::CleanUrl { is_directory: true }, b".html");
        } else {
            self.redirect();
        }
    }

    fn redirect(&mut self) {
        let mut decoded = Vec::with_capacity(self.path.len() + 2);
        decoded.push(b'/');
        decoded.extend_from_slice(&self.path);
        decoded.push(b'/');
        self.name.clear();
        encode_path(&decoded, &mut self.name);
        let is_local = self.name.starts_with(b"/") && !self.name.starts_with(b"//");
        assert!(is_local, "a redirect stays on this host");
        self.state = State::Done(End::Redirect);
    }

    fn found_file(&mut self, status: Status) {
        self.state = State::Done(End::File(status));
    }

    /// The target path names nothing: the application's page, or the nearest error page.
    fn not_found(&mut self) {
        if self.options.spa && !looks_like_asset(&self.path) {
            self.name.clear();
            self.name.extend_from_slice(b"index.html");
            self.state = State::Application;
        } else {
            self.ask_nearest_not_found_page();
        }
    }

    fn ask_nearest_not_found_page(&mut self) {
        self.ask_not_found_page(self.path.len());
    }

    /// Asks for the error page of the deepest folder within the first `len` bytes of the path.
    fn ask_not_found_page(&mut self, len: usize) {
        let path = &self.path[..len];
        // The ends of the folders' names, from the root down: 0, then before each slash.
        let ends = path
            .iter()
            .enumerate()
            .filter_map(|(index, &byte)| (byte == b'/').then_some(index));
        let folder_len = ends.take(NOT_FOUND_FOLDERS_MAX - 1).last().unwrap_or(0);
        self.ask_not_found_page_in(folder_len);
    }

    /// Goes one folder up from the one whose name is `folder_len` bytes long.
    fn ask_next_not_found_page(&mut self, folder_len: usize) {
        if folder_len == 0 {
            self.state = State::Done(End::Missing);
            return;
        }
        let parent = self.path[..folder_len]
            .iter()
            .rposition(|&byte| byte == b'/');
        self.ask_not_found_page_in(parent.unwrap_or(0));
    }

    fn ask_not_found_page_in(&mut self, folder_len: usize) {
        self.name.clear();
        self.name.extend_from_slice(&self.path[..folder_len]);
        if folder_len > 0 {
            self.name.push(b'/');
        }
        self.name.extend_from_slice(b"404.html");
        self.state = State::NotFoundPage { folder_len };
    }

    /// Whether `name.html` may answer for the path.
    fn wants_clean_url(&self) -> bool {
        self.options.clean_urls && !self.path.ends_with(b".html")
    }

    /// Where the first segment begins that is a dotfile's and not to be served.
    fn hidden_segment(&self) -> Option<usize> {
        if self.options.dotfiles {
            return None;
        }
        let mut start = 0;
        for segment in self.path.split(|&byte| byte == b'/') {
            // RFC 8615 gives this one folder of the root a meaning for everybody.
            let is_well_known = start == 0 && segment == b".well-known";
            if segment.starts_with(b".") && !is_well_known {
                return Some(start);
            }
            start += segment.len() + 1;
        }
        None
    }
}

/// Whether the path is what `target_path::decode_path` gives. Checked again here because what is
/// asked for is opened: this is the last line before the disk.
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
