//! Asking the disk for one request: a chain of questions, each of which may take its time.
//!
//! ```text
//!   Looking ──file──▶ Sidecar ──▶ Sidecar ... ──▶ done, or Reading ──▶ done
//!      └──directory, redirect, missing ──▶ done
//! ```
//!
//! Where the operator asks for it, a missing file is looked for in a coding alone ([`coded_alone`]).
//!
//! Content is read last, and only what a request needs bytes of (`exchange/first_reads`).

mod at_path;
mod coded_alone;
mod reading;

use std::cell::OnceCell;
use std::rc::Rc;

use gannet_content::directory::lookup::{AtPath, Found, Lookup, Step};
use gannet_content::directory::sidecars::{SIDECARS, Sidecar, is_usable, may_have_sidecars};
use gannet_content::mime;
use gannet_content::rules::headers::FieldChanges;
use gannet_content::rules::matcher::RuleInput;
use gannet_content::rules::pattern::Scheme;
use gannet_content::rules::table::Ruled;
use gannet_content::stored_coding;
use gannet_http::semantics::coding::Coding;
use gannet_http::semantics::status::Status;
use gannet_io::driver::{Driver, Errno, FileKind, Meta, Nanos, OpenedFile, Root, Started, Token};

use self::at_path::{at_path, is_shortage};
use self::coded_alone::Alone;
use super::listings::ListingPage;
use super::{Cached, CodedAlone, DirectorySite, Draft, Role, is_recent, is_settled};
use crate::exchange::Wakeup;
use crate::exchange::body::Body;
use crate::limits::{CONFIRMED_MS, DESCRIPTOR_TRIES_MAX, SMALL_FILE_MAX};
use crate::release::ServedFile;
use crate::release::bodies::Load;
use crate::release::rules::Ruling;
use crate::worker::ledger::Charge;

/// What the disk said in the end.
pub(crate) enum Filled {
    /// A file, to be remembered. If its content is not, it is sent from this one.
    File(Rc<Cached>, Status, Option<Rc<ServedFile>>),
    /// Elsewhere: an encoded path.
    Redirect(Vec<u8>),
    /// Elsewhere, as a rule says: a whole location.
    Elsewhere(Status, Vec<u8>),
    /// This directory below the root is to be listed.
    Directory(Vec<u8>),
    /// A directory's listing.
    Listing(ListingPage),
    /// Nothing yet: this content has to be decoded, for which the lookup will be woken.
    Undecoded(Load),
    /// Nothing yet: descriptors, memory or room among what waits for the disk are used up.
    Short,
    /// Nothing to send.
    Error(Status),
}

/// Retries for a file that changes while being read.
const READS_MAX: u32 = 4;

/// One chain of questions.
pub(crate) struct Fill {
    /// That of the release with which it began: all its questions are about that.
    site: Rc<DirectorySite>,
    /// The canonical request path.
    path: Vec<u8>,
    /// What else rules look at.
    scheme: Scheme,
    host: Vec<u8>,
    query: Option<Vec<u8>>,
    /// The path that is looked up.
    wanted: Vec<u8>,
    /// A browser asks for a page to show.
    is_navigation: bool,
    lookup: Lookup,
    state: State,
    /// What the lookup's last question opened.
    opened: Option<OpenedFile>,
    /// That is in a coding.
    alone: Option<Alone>,
    status: Status,
    /// What was found is the path's own, not what answers for others.
    is_own: bool,
    /// Relative path of the file that was found.
    file_path: Vec<u8>,
    content_type: String,
    drafts: Vec<Draft>,
    /// Files whose content nobody has read yet.
    unread: Vec<(Coding, OpenedFile)>,
    /// Its turn to read has come.
    is_admitted: bool,
    /// A file of it has just changed.
    is_brief: bool,
    /// A file of it has changed not long ago.
    is_recent: bool,
    reads: u32,
    /// How often it had to close other files.
    tries: u32,
    /// The time when it last asked or was woken, seconds.
    unix: i64,
    /// When it began. What it finds is no newer than that, however long the disk takes.
    began: Nanos,
}

/// Which question is asked.
enum State {
    /// The lookup's own.
    Looking,
    /// The content of one coding, from this file.
    Reading {
        cached: Rc<Cached>,
        coding: Coding,
        opened: OpenedFile,
        /// Of the memory that it is read into; a copy is charged elsewhere.
        charge: Option<Charge>,
    },
    /// Whether there is this sidecar.
    Sidecar(usize),
    /// Whether what is missing is there in this coding of those that are looked for.
    Alone(usize),
    /// The last bytes of this gzip.
    GzipEnd(OpenedFile),
    /// How long the content is of what is there in a coding alone.
    Measuring(OpenedFile, Rc<CodedAlone>),
    /// The content of what is there in a coding alone.
    Decoding(Rc<Cached>),
}

impl Fill {
    /// Begins to ask for a canonical path, maybe for a browser that shows a page. `ruled` is what
    /// rules say of it before files; `now` and `unix` (seconds) are the time now.
    #[cold]
    pub(crate) fn new(
        site: &Rc<DirectorySite>,
        (asked, is_navigation): (&RuleInput<'_>, bool),
        ruled: Option<Ruled>,
        now: Nanos,
        unix: i64,
    ) -> Self {
        let path = asked.path;
        let wanted = match &site.options.single {
            Some(name) if path == b"/" || &path[1..] == name.as_slice() => {
                [b"/", name.as_slice()].concat()
            }
            // Not a canonical path: the lookup finds it missing without asking.
            Some(_) => Vec::new(),
            None => path.to_vec(),
        };
        // Only rules look at more than the path.
        let (host, query) = match site.rules() {
            Some(_) => (asked.host.to_vec(), asked.query.map(<[u8]>::to_vec)),
            None => (Vec::new(), None),
        };
        Self {
            site: Rc::clone(site),
            path: path.to_vec(),
            scheme: asked.scheme,
            host,
            query,
            lookup: lookup(site, &wanted, is_navigation, ruled),
            wanted,
            is_navigation,
            state: State::Looking,
            opened: None,
            alone: None,
            status: Status::OK,
            is_own: true,
            file_path: Vec::new(),
            content_type: String::new(),
            drafts: Vec::new(),
            unread: Vec::new(),
            is_admitted: false,
            is_brief: false,
            is_recent: false,
            reads: 0,
            tries: 0,
            unix,
            began: now,
        }
    }

    /// Asks the site's redirects about a path that no file has.
    fn claim(&mut self) {
        match self.ruling().and_then(|ruling| ruling.for_missing()) {
            Some(ruled) => self.lookup.claim(ruled),
            None => self.lookup.go_on(),
        }
    }

    /// The site's own rules, and what they are asked about.
    pub(crate) fn ruling(&self) -> Option<Ruling<'_>> {
        let rules = self.site.rules()?;
        let asked = RuleInput {
            scheme: self.scheme,
            host: &self.host,
            path: &self.path,
            query: self.query.as_deref(),
        };
        Some(Ruling::new(rules, asked))
    }

    /// Since when what it finds is known.
    pub(crate) fn began(&self) -> Nanos {
        self.began
    }

    /// The site that is asked.
    pub(crate) fn site(&self) -> &Rc<DirectorySite> {
        &self.site
    }

    /// Remembers what it has found, for later requests to the same release. True if that keeps a
    /// file open that somebody may delete.
    pub(crate) fn remember(&self, cached: Rc<Cached>, status: Status) -> bool {
        self.site.remember(&self.key(), cached, status, self.began)
    }

    /// The canonical request path.
    pub(crate) fn path(&self) -> &[u8] {
        &self.path
    }

    /// Asks on, until an answer has to be awaited (`None`) or all is known. `answer` is the one
    /// that was awaited, if any.
    pub(crate) fn advance<D: Driver>(
        &mut self,
        driver: &mut D,
        token: Token,
        mut answer: Option<Result<Wakeup, Errno>>,
    ) -> Option<Filled> {
        let Some(root) = self.site.root().cloned() else {
            return Some(Filled::Error(Status::SERVICE_UNAVAILABLE));
        };
        self.unix = driver.unix_seconds();
        loop {
            // Whenever it begins, there may be nothing to ask.
            if let (State::Looking, Step::Done(_)) = (&self.state, self.lookup.step()) {
                let filled = self.looked();
                if filled.is_some() {
                    return filled;
                }
            }
            let result = match answer.take() {
                Some(result) => result,
                None => match self.ask(driver, &root, token) {
                    Started::Now(result) => result,
                    Started::Pending => return None,
                },
            };
            let filled = self.woken(driver, result);
            if filled.is_some() {
                return filled;
            }
        }
    }

    fn ask<D: Driver>(&self, driver: &mut D, root: &Root, token: Token) -> Started<Wakeup> {
        let open = |started| match started {
            Started::Now(result) => Started::Now(Result::map(result, Wakeup::Opened)),
            Started::Pending => Started::Pending,
        };
        match &self.state {
            State::Looking => match self.lookup.step() {
                Step::Open(path) => open(driver.open(root, path, token)),
                Step::Done(_) => unreachable!("a finished lookup leaves this state"),
            },
            State::Sidecar(index) => {
                let name = [&self.file_path, SIDECARS[*index].suffix].concat();
                open(driver.open(root, &name, token))
            }
            State::Alone(index) => open(driver.open(root, &self.coded_name(*index), token)),
            State::GzipEnd(opened) => Self::ask_end(driver, opened, token),
            State::Reading { .. } | State::Measuring(..) | State::Decoding(_) => {
                unreachable!("what is being read was asked for")
            }
        }
    }

    /// Takes an answer and turns to the next question, or is done.
    fn woken<D: Driver>(
        &mut self,
        driver: &mut D,
        result: Result<Wakeup, Errno>,
    ) -> Option<Filled> {
        // What is read has an answer of its own to that.
        let is_lookup = !matches!(
            self.state,
            State::Reading { .. } | State::Measuring(..) | State::Decoding(_)
        );
        if let Err(errno) = &result
            && is_lookup
            && is_shortage(*errno)
        {
            return self.lack(*errno);
        }
        match (std::mem::replace(&mut self.state, State::Looking), result) {
            (State::Looking, result) => {
                let found = at_path(&result);
                if found == AtPath::Missing && self.may_be_coded() {
                    self.state = State::Alone(0);
                    return None;
                }
                self.lookup.found(found);
                self.alone = None;
                if let Ok(Wakeup::Opened(opened)) = result {
                    self.opened = Some(opened);
                }
                self.looked()
            }
            (State::Sidecar(index), Ok(Wakeup::Opened(opened))) if self.is_usable(&opened.meta) => {
                let coding = SIDECARS[index].coding;
                self.take(coding, opened, index + 1)
            }
            (State::Sidecar(index), _) => self.next_sidecar(index + 1),
            (State::Alone(index), result) => self.coded_opened(index, result),
            (State::GzipEnd(opened), result) => self.gzip_end(opened, result),
            (reading @ State::Reading { .. }, result) => {
                self.state = reading;
                self.content_read(driver, result)
            }
            (State::Measuring(coded, alone), result) => {
                self.coded_measured(driver, (coded, alone), result)
            }
            (State::Decoding(cached), result) => self.decoded(driver, cached, result),
        }
    }

    /// Something is used up: the question is asked again at once if closing files may help.
    fn lack(&mut self, errno: Errno) -> Option<Filled> {
        let is_full = errno == Errno::AGAIN || self.tries >= DESCRIPTOR_TRIES_MAX;
        if is_full || !self.site.drop_descriptors() {
            return Some(Filled::Short);
        }
        self.tries += 1;
        None
    }

    /// Looks whether the lookup is done.
    fn looked(&mut self) -> Option<Filled> {
        if let Step::Done(Found::Unclaimed) = self.lookup.step() {
            self.claim();
        }
        let found = match self.lookup.step() {
            Step::Open(_) => return None,
            Step::Done(found) => found,
        };
        Some(match found {
            Found::File {
                path,
                status,
                is_own,
            } => {
                self.file_path = path.to_vec();
                self.status = status;
                self.is_own = is_own;
                let opened = self.opened.take()?;
                self.content_type = self.site.options.types.content_type(path).to_owned();
                return match self.alone.take() {
                    Some(alone) => self.take_alone(opened, alone),
                    None => self.take(Coding::Identity, opened, 0),
                };
            }
            Found::Listing { path } => Filled::Directory(path.to_vec()),
            Found::Redirect { location } => Filled::Redirect(location.to_vec()),
            Found::Elsewhere {
                status, location, ..
            } => Filled::Elsewhere(status, location.to_vec()),
            Found::Unclaimed | Found::Missing => Filled::Error(Status::NOT_FOUND),
            Found::Forbidden => Filled::Error(Status::FORBIDDEN),
            Found::Failed => Filled::Error(Status::INTERNAL_SERVER_ERROR),
        })
    }

    /// Takes a file as the representation in one coding, then asks for sidecar number `next`.
    fn take(&mut self, coding: Coding, opened: OpenedFile, next: usize) -> Option<Filled> {
        let meta = opened.meta;
        let is_settled = is_settled(&meta, self.unix);
        self.is_brief |= !is_settled;
        self.is_recent |= is_recent(&meta, self.unix);
        // What has just changed is sent from the disk, or read for the requests of one turn.
        let copy_max = match is_settled {
            true => self.site.options.read_max,
            false => SMALL_FILE_MAX,
        };
        // A file that is being truncated is empty before its times say so: it is asked at each request.
        let is_copied = (1..=copy_max).contains(&meta.len);
        let same = |cached: &Rc<Cached>| {
            let body = cached.body(coding, &meta);
            let is_kept = |body: &Body| match is_copied {
                true => !body.is_live() && !cached.is_brief && !self.reads_again(cached),
                false => body.is_live(),
            };
            body.filter(is_kept)
        };
        let body = match self.previous().as_ref().and_then(same) {
            Some(body) => Some(body),
            None if is_copied => {
                self.unread.push((coding, opened));
                None
            }
            None => Some(Body::live(opened.file, opened.meta)),
        };
        self.drafts.push(Draft {
            path: self.variant_path(coding),
            coding,
            meta,
            len: meta.len,
            body: body.map_or_else(OnceCell::new, OnceCell::from),
            coded: None,
        });
        self.next_sidecar(next)
    }

    /// The status of what was found.
    pub(crate) fn status(&self) -> Status {
        self.status
    }

    /// It may read content now.
    pub(crate) fn admit(&mut self) {
        self.is_admitted = true;
    }

    /// Whether it may read content, once.
    pub(crate) fn take_admission(&mut self) -> bool {
        std::mem::take(&mut self.is_admitted)
    }

    /// Begins again later, and holds nothing until then.
    pub(crate) fn defer(&mut self) {
        self.start_over();
        self.is_admitted = false;
    }

    /// Asks for everything again.
    pub(crate) fn start_over(&mut self) {
        let ruled = self.ruling().and_then(|ruling| ruling.before_files());
        self.lookup = lookup(&self.site, &self.wanted, self.is_navigation, ruled);
        self.state = State::Looking;
        self.opened = None;
        self.alone = None;
        self.unread.clear();
        self.drafts.clear();
        self.status = Status::OK;
        self.is_own = true;
    }

    fn next_sidecar(&mut self, next: usize) -> Option<Filled> {
        let original_len = self.drafts.first().map_or(0, |draft| draft.meta.len);
        let has = |sidecar: &Sidecar| self.drafts.iter().any(|it| it.coding == sidecar.coding);
        let next = next + usize::from(SIDECARS.get(next).is_some_and(has));
        let wanted = self.site.options.sidecars
            && next < SIDECARS.len()
            && may_have_sidecars(&self.file_path, original_len)
            && mime::is_compressible(&self.content_type)
            && stored_coding::of(&self.file_path).is_none();
        if wanted {
            self.state = State::Sidecar(next);
            return None;
        }
        let drafts = std::mem::take(&mut self.drafts);
        let is_brief = self.is_brief;
        let again = self.began.plus_ms(CONFIRMED_MS);
        let read_again_at = self.is_recent.then_some(again);
        let is_lasting = |previous: &Cached| {
            !is_brief
                && !previous.is_brief
                && !self.reads_again(previous)
                && previous.is_made_of(&drafts)
        };
        let cached = match self.previous() {
            Some(previous) if is_lasting(&previous) => {
                // Another one than that which had the bodies, perhaps.
                for draft in drafts {
                    if let Some(body) = draft.body.into_inner() {
                        previous.set_body(draft.coding, body);
                    }
                }
                previous
            }
            _ => {
                let changes = match self.is_own {
                    true => stored_coding::with_coding(self.changes(), &self.file_path),
                    false => self.changes(),
                };
                let role = Role {
                    is_own: self.is_own,
                    is_error: self.status.0 >= 400,
                    name: &self.file_path,
                    changes: changes.as_ref(),
                };
                let content_type = std::mem::take(&mut self.content_type);
                match Cached::new(content_type, drafts, self.unix, &self.site, &role) {
                    Some(cached) => Rc::new(Cached {
                        is_brief,
                        read_again_at,
                        ..cached
                    }),
                    None => return Some(Filled::Error(Status::INTERNAL_SERVER_ERROR)),
                }
            }
        };
        Some(Filled::File(cached, self.status, None))
    }

    /// Whether the bytes of what is remembered are not to be relied on any more: see [`is_recent`].
    fn reads_again(&self, cached: &Cached) -> bool {
        cached.read_again_at.is_some_and(|at| self.began > at)
    }

    /// What is remembered of the file that was found.
    fn previous(&self) -> Option<Rc<Cached>> {
        self.site.previous(&self.key())
    }

    /// What the site's rules make of the fields of the path's own content, if that is the same at
    /// every request. (What answers for other paths has fields of theirs.)
    fn changes(&self) -> Option<FieldChanges> {
        let rules = self.site.rules();
        let rules = rules.filter(|it| self.is_own && it.fields_are_fixed())?;
        let asked = RuleInput {
            scheme: Scheme::Http,
            host: b"",
            path: &self.path,
            query: None,
        };
        Some(rules.changes(&asked).unwrap_or_default())
    }

    /// The path below the root of the file in a coding.
    fn variant_path(&self, coding: Coding) -> Vec<u8> {
        let sidecar = SIDECARS.iter().find(|sidecar| sidecar.coding == coding);
        let suffix = sidecar.map_or(b"".as_slice(), |sidecar| sidecar.suffix);
        [self.file_path.as_slice(), suffix].concat()
    }

    /// Whether what was opened may stand in for the file found.
    fn is_usable(&self, sidecar: &Meta) -> bool {
        sidecar.kind == FileKind::Regular
            && self.drafts.first().is_some_and(|original| {
                let original = &original.meta;
                is_usable(
                    (sidecar.mtime_ns, sidecar.len),
                    (original.mtime_ns, original.len),
                )
            })
    }

    /// Under which key the file is remembered: the request path, or for a page that stands in for
    /// any number of paths (404.html, an application's front page) the page's own, apart for errors,
    /// which may not be kept.
    fn key(&self) -> Vec<u8> {
        match (self.is_own, self.status.0) {
            (true, _) => self.path.clone(),
            (false, 400..) => [b"\0\0", self.file_path.as_slice()].concat(),
            (false, _) => [b"\0", self.file_path.as_slice()].concat(),
        }
    }
}

/// A lookup of a path, as far as rules leave it to the files.
fn lookup(
    site: &DirectorySite,
    wanted: &[u8],
    is_navigation: bool,
    ruled: Option<Ruled>,
) -> Lookup {
    let options = &site.options;
    let lookup = Lookup::new(wanted, options.lookup, &options.routing);
    let mut lookup = lookup.of_navigation(is_navigation);
    if let Some(ruled) = ruled {
        lookup.claim(ruled);
    }
    lookup
}
