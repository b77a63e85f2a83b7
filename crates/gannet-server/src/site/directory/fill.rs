//! Asking the disk for one request: a chain of questions, each of which may take its time.
//!
//! ```text
//!   Looking ──file──▶ Reading ──▶ Sidecar ──▶ Reading ──▶ Sidecar ... ──▶ done
//!      │        └─ large ────────────▲  └─ large or none ────▲
//!      ├──directory──▶ Listing ──▶ done
//!      └──redirect, missing ──▶ done
//! ```

use std::rc::Rc;
use std::sync::Arc;

use gannet_content::directory::lookup::{Ask, Found, Lookup, Told};
use gannet_content::directory::sidecars::{SIDECARS, is_usable, may_have_sidecars};
use gannet_content::mime;
use gannet_content::rules::headers::FieldChanges;
use gannet_content::rules::matcher::Request as Asked;
use gannet_content::rules::pattern::Scheme;
use gannet_http::semantics::coding::Coding;
use gannet_http::semantics::status::Status;
use gannet_io::driver::{
    DirectoryEntry, Driver, Errno, FileKind, Meta, Nanos, OpenedFile, Started, Token,
};
use gannet_io::memory::Memory;

use super::{Cached, CachedBody, DirectorySite, Draft};
use crate::limits::{LISTING_MAX, SMALL_FILE_MAX};
use crate::site::ServedFile;
use crate::site::rules::{Ruled, Rules, Ruling};
use crate::worker::Disk;

/// What the disk said in the end.
pub(crate) enum Filled {
    /// A file, remembered.
    File(Rc<Cached>, Status),
    /// Elsewhere: an encoded path.
    Redirect(Vec<u8>),
    /// Elsewhere, as a rule says: a whole location.
    Elsewhere(Status, Vec<u8>),
    /// A directory's entries.
    Listing(Vec<DirectoryEntry>),
    /// Nothing to send.
    Error(Status),
}

/// How often a file is read again that changed while it was read, before that is an error.
const READS_MAX: u32 = 4;

/// One chain of questions.
pub(crate) struct Fill {
    /// The number of the site.
    site: u32,
    /// The canonical request path.
    path: Vec<u8>,
    /// What else rules look at.
    scheme: Scheme,
    host: Vec<u8>,
    query: Option<Vec<u8>>,
    lookup: Lookup,
    state: State,
    /// What the lookup's last question opened.
    opened: Option<OpenedFile>,
    status: Status,
    /// What was found is the path's own, not what answers for others.
    is_own: bool,
    /// The site's own rules when it began.
    rules: Option<Rules>,
    /// Relative path of the file that was found.
    file_path: Vec<u8>,
    content_type: String,
    /// What was remembered of it before.
    previous: Option<Rc<Cached>>,
    drafts: Vec<Draft>,
    reads: u32,
    /// The time now, seconds.
    unix: i64,
    /// When it began. What it finds is no newer than that, however long the disk takes.
    began: Nanos,
}

/// Which question is asked.
enum State {
    /// The lookup's own.
    Looking,
    /// The bytes of a small file; then sidecar number `next`.
    Reading {
        coding: Coding,
        opened: OpenedFile,
        next: usize,
    },
    /// Whether there is this sidecar.
    Sidecar(usize),
    /// The entries of a directory.
    Listing(Vec<u8>),
}

impl Fill {
    /// Begins to ask for a canonical path. `now` and `unix` (seconds) are the time now.
    pub(crate) fn new(
        (number, site): (u32, &DirectorySite),
        asked: &Asked<'_>,
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
        let rules = site.rules().cloned();
        let (host, query) = match rules {
            Some(_) => (asked.host.to_vec(), asked.query.map(<[u8]>::to_vec)),
            None => (Vec::new(), None),
        };
        let mut fill = Self {
            site: number,
            path: path.to_vec(),
            scheme: asked.scheme,
            host,
            query,
            lookup: Lookup::new(&wanted, site.options.lookup, &site.options.routing),
            state: State::Looking,
            opened: None,
            status: Status::OK,
            is_own: true,
            rules,
            file_path: Vec::new(),
            content_type: String::new(),
            previous: None,
            drafts: Vec::new(),
            reads: 0,
            unix,
            began: now,
        };
        let ruled = fill.ruling().and_then(|ruling| ruling.before_files());
        // A redirect was answered before any disk was asked.
        if let Some(Ruled::Content { status, path }) = ruled {
            fill.turn_to(site, status, &path);
        }
        fill
    }

    /// Asks the site's redirects about a path that no file has.
    fn claim(&mut self, site: &DirectorySite) -> Option<Filled> {
        match self.ruling().and_then(|ruling| ruling.for_missing()) {
            Some(Ruled::Elsewhere { status, location }) => {
                return Some(Filled::Elsewhere(status, location));
            }
            Some(Ruled::Content { status, path }) => self.turn_to(site, status, &path),
            None => self.lookup.go_on(),
        }
        None
    }

    /// A redirect rule wants the content of this path with this status.
    fn turn_to(&mut self, site: &DirectorySite, status: Status, path: &[u8]) {
        let options = &site.options;
        self.lookup = Lookup::of_rule(path, status, options.lookup, &options.routing);
    }

    /// The site's own rules, and what they are asked about.
    pub(crate) fn ruling(&self) -> Option<Ruling<'_>> {
        let rules = self.rules.as_deref()?;
        let asked = Asked {
            scheme: self.scheme,
            host: &self.host,
            path: &self.path,
            query: self.query.as_deref(),
        };
        Some(Ruling { rules, asked })
    }

    /// Whether the site's rules are still those that it began with.
    pub(crate) fn is_current(&self, site: &DirectorySite) -> bool {
        match (&self.rules, site.rules()) {
            (Some(one), Some(other)) => Rc::ptr_eq(one, other),
            (None, None) => true,
            _ => false,
        }
    }

    /// Since when what it finds is known.
    pub(crate) fn began(&self) -> Nanos {
        self.began
    }

    /// The number of the site that is asked.
    pub(crate) fn site(&self) -> u32 {
        self.site
    }

    /// The canonical request path.
    pub(crate) fn path(&self) -> &[u8] {
        &self.path
    }

    /// Asks on, until an answer has to be awaited (`None`) or all is known. `answer` is the one
    /// that was awaited, if any; `guard` is told of files that responses will be sent from.
    pub(crate) fn advance<D: Driver>(
        &mut self,
        driver: &mut D,
        site: &mut DirectorySite,
        token: Token,
        mut answer: Option<Result<Disk, Errno>>,
        guard: impl Fn(&mut D, &ServedFile),
    ) -> Option<Filled> {
        if let (State::Looking, Ask::Done(_)) = (&self.state, self.lookup.step()) {
            let filled = self.looked(driver, site, &guard);
            if filled.is_some() {
                return filled;
            }
        }
        loop {
            let result = match answer.take() {
                Some(result) => result,
                None => match self.ask(driver, site, token) {
                    Started::Now(result) => result,
                    Started::Pending => return None,
                },
            };
            let filled = self.told(driver, site, result, &guard);
            if filled.is_some() {
                return filled;
            }
        }
    }

    fn ask<D: Driver>(&self, driver: &mut D, site: &DirectorySite, token: Token) -> Started<Disk> {
        let open = |started| match started {
            Started::Now(result) => Started::Now(Result::map(result, Disk::Opened)),
            Started::Pending => Started::Pending,
        };
        match &self.state {
            State::Looking => match self.lookup.step() {
                Ask::Open(path) => open(driver.open(&site.root, path, token)),
                Ask::Done(_) => unreachable!("a finished lookup leaves this state"),
            },
            State::Sidecar(index) => {
                let name = [&self.file_path, SIDECARS[*index].suffix].concat();
                open(driver.open(&site.root, &name, token))
            }
            State::Reading { opened, .. } => {
                let len = usize::try_from(opened.meta.len).expect("only small files are read");
                match driver.read(&opened.file, 0, len, token) {
                    Started::Now(result) => Started::Now(result.map(Disk::Read)),
                    Started::Pending => Started::Pending,
                }
            }
            State::Listing(path) => match driver.list(&site.root, path, LISTING_MAX, token) {
                Started::Now(result) => Started::Now(result.map(Disk::Listed)),
                Started::Pending => Started::Pending,
            },
        }
    }

    /// Takes an answer and turns to the next question, or is done.
    fn told<D: Driver>(
        &mut self,
        driver: &mut D,
        site: &mut DirectorySite,
        result: Result<Disk, Errno>,
        guard: &impl Fn(&mut D, &ServedFile),
    ) -> Option<Filled> {
        match (std::mem::replace(&mut self.state, State::Looking), result) {
            (State::Looking, result) => {
                self.lookup.told(told(&result));
                if let Ok(Disk::Opened(opened)) = result {
                    self.opened = Some(opened);
                }
                self.looked(driver, site, guard)
            }
            (
                State::Reading {
                    coding,
                    opened,
                    next,
                },
                Ok(Disk::Read(bytes)),
            ) => self.read(driver, site, coding, opened, next, bytes),
            (State::Sidecar(index), Ok(Disk::Opened(opened))) if self.is_usable(&opened.meta) => {
                let coding = SIDECARS[index].coding;
                self.take(driver, site, coding, opened, index + 1, guard)
            }
            (State::Sidecar(index), _) => self.next_sidecar(site, index + 1),
            (State::Listing(_), Ok(Disk::Listed(mut entries))) => {
                let folder = self.path.get(1..).unwrap_or_default();
                let is_rules = |e: &DirectoryEntry| {
                    let path = [folder, e.name.as_slice()].concat();
                    site.options.routing.is_rules_file(&path)
                };
                entries.retain(|entry| !is_rules(entry));
                if !site.options.lookup.dotfiles {
                    entries.retain(|e| !e.name.starts_with(b".") || e.name == b".well-known");
                }
                Some(Filled::Listing(entries))
            }
            // It was opened a moment ago, and is gone.
            (State::Listing(_), Err(Errno::NOENT | Errno::NOTDIR)) => {
                Some(Filled::Error(Status::NOT_FOUND))
            }
            (State::Listing(_), Err(Errno::ACCESS)) => Some(Filled::Error(Status::FORBIDDEN)),
            (State::Reading { .. } | State::Listing(_), _) => {
                Some(Filled::Error(Status::INTERNAL_SERVER_ERROR))
            }
        }
    }

    /// Looks whether the lookup is done.
    fn looked<D: Driver>(
        &mut self,
        driver: &mut D,
        site: &mut DirectorySite,
        guard: &impl Fn(&mut D, &ServedFile),
    ) -> Option<Filled> {
        if let Ask::Done(Found::Unclaimed) = self.lookup.step()
            && let Some(elsewhere) = self.claim(site)
        {
            return Some(elsewhere);
        }
        let found = match self.lookup.step() {
            Ask::Open(_) => return None,
            Ask::Done(found) => found,
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
                self.content_type = site.options.types.content_type(path).to_owned();
                self.previous = site.previous(&self.key());
                return self.take(driver, site, Coding::Identity, opened, 0, guard);
            }
            Found::Listing { path } => {
                self.state = State::Listing(path.to_vec());
                return None;
            }
            Found::Redirect { location } => Filled::Redirect(location.to_vec()),
            Found::Unclaimed | Found::Missing => Filled::Error(Status::NOT_FOUND),
            Found::Forbidden => Filled::Error(Status::FORBIDDEN),
            Found::Failed => Filled::Error(Status::INTERNAL_SERVER_ERROR),
        })
    }

    /// Takes a file as the representation in one coding, then asks for sidecar number `next`.
    fn take<D: Driver>(
        &mut self,
        driver: &mut D,
        site: &mut DirectorySite,
        coding: Coding,
        opened: OpenedFile,
        next: usize,
        guard: &impl Fn(&mut D, &ServedFile),
    ) -> Option<Filled> {
        let same = |cached: &Rc<Cached>| cached.body(coding, &opened.meta);
        let body = match self.previous.as_ref().and_then(same) {
            Some(body) => body,
            None if opened.meta.len <= site.options.read_max => {
                self.state = State::Reading {
                    coding,
                    opened,
                    next,
                };
                return None;
            }
            None => {
                let file = site.serve_file(opened.clone());
                guard(driver, &file);
                CachedBody::File(file)
            }
        };
        self.drafts.push(Draft {
            path: self.variant_path(coding),
            coding,
            meta: opened.meta,
            body,
        });
        self.next_sidecar(site, next)
    }

    /// The bytes of a small file are there: if it changed meanwhile, they are read again, so that
    /// what is kept is one version of it.
    fn read<D: Driver>(
        &mut self,
        driver: &mut D,
        site: &mut DirectorySite,
        coding: Coding,
        opened: OpenedFile,
        next: usize,
        bytes: Vec<u8>,
    ) -> Option<Filled> {
        let Ok(meta) = driver.meta(&opened.file) else {
            return Some(Filled::Error(Status::INTERNAL_SERVER_ERROR));
        };
        if meta == opened.meta && bytes.len() as u64 == meta.len {
            let body = if meta.len <= SMALL_FILE_MAX {
                CachedBody::Memory(Arc::new(Memory::from_vec(bytes)))
            } else {
                match driver.snapshot(&bytes) {
                    Ok(file) => CachedBody::File(site.serve_snapshot(file)),
                    // No descriptor or memory to spare: from the file itself, as copies.
                    Err(_) => CachedBody::File(site.serve_file(opened)),
                }
            };
            self.drafts.push(Draft {
                path: self.variant_path(coding),
                coding,
                meta,
                body,
            });
            return self.next_sidecar(site, next);
        }
        self.reads += 1;
        if self.reads >= READS_MAX || meta.len > site.options.read_max {
            return Some(Filled::Error(Status::SERVICE_UNAVAILABLE));
        }
        let opened = OpenedFile { meta, ..opened };
        self.state = State::Reading {
            coding,
            opened,
            next,
        };
        None
    }

    fn next_sidecar(&mut self, site: &mut DirectorySite, next: usize) -> Option<Filled> {
        let original_len = self.drafts.first().map_or(0, |draft| draft.meta.len);
        let wanted = site.options.sidecars
            && next < SIDECARS.len()
            && may_have_sidecars(&self.file_path, original_len)
            && mime::is_compressible(&self.content_type);
        if wanted {
            self.state = State::Sidecar(next);
            return None;
        }
        let drafts = std::mem::take(&mut self.drafts);
        let cached = match self.previous.take() {
            Some(previous) if previous.is_made_of(&drafts) => previous,
            _ => {
                let content_type = std::mem::take(&mut self.content_type);
                let changes = self.changes();
                let defaults = &site.options.defaults;
                match Cached::new(content_type, drafts, self.unix, defaults, changes.as_ref()) {
                    Some(cached) => Rc::new(cached),
                    None => return Some(Filled::Error(Status::INTERNAL_SERVER_ERROR)),
                }
            }
        };
        Some(Filled::File(cached, self.status))
    }

    /// What the site's rules make of the fields of the path's own content, if that is the same at
    /// every request. (What answers for other paths has fields of theirs.)
    fn changes(&self) -> Option<FieldChanges> {
        let rules = self
            .rules
            .as_ref()
            .filter(|r| self.is_own && r.fields_are_fixed())?;
        let asked = Asked {
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
    /// any number of paths (404.html, an application's front page) the page's own.
    pub(crate) fn key(&self) -> Vec<u8> {
        if self.is_own {
            self.path.clone()
        } else {
            [b"\0", self.file_path.as_slice()].concat()
        }
    }
}

/// What a lookup is told of an answer.
fn told(result: &Result<Disk, Errno>) -> Told {
    match result {
        Ok(Disk::Opened(opened)) => match opened.meta.kind {
            FileKind::Regular => Told::Regular,
            FileKind::Directory => Told::Directory,
            FileKind::Other => Told::Other,
        },
        Ok(_) => Told::Failed,
        Err(Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG | Errno::INVAL) => Told::Missing,
        Err(Errno::ACCESS | Errno::PERM) => Told::Denied,
        Err(Errno::XDEV | Errno::LOOP) => Told::Escapes,
        Err(_) => Told::Failed,
    }
}
