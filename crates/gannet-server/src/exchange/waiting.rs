//! Requests whose answer has to be looked for on the disk.

use std::rc::Rc;

use gannet_http::semantics::coding::accept_encoding;
use gannet_http::semantics::fields::KnownField;
use gannet_http::semantics::kept::KeptRequest;
use gannet_http::semantics::request::Request;
use gannet_http::semantics::status::Status;
use gannet_io::driver::{Driver, Errno, Token};

use super::Wakeup;
use super::answering::{Answered, Answering, Reply, Turn, needed_bytes};
use super::first_reads::FirstRead;
use super::outgoing::Outgoing;
use crate::release::archive::{ArchiveSite, KeptEntry};
use crate::release::bodies::{Load, Unloaded};
use crate::release::directory::Cached;
use crate::release::directory::fill::{Fill, Filled};
use crate::release::rules::{Ruling, rule_input};
use crate::release::{Release, Selected, Source};
use crate::worker::shared::Shared;

/// A request that has to wait, of whatever version, with the release that it began with: whatever
/// takes that one's place meanwhile, the answer is of this one.
pub(crate) struct WaitingRequest {
    request: KeptRequest,
    release: Rc<Release>,
    waits: Waits,
}

/// What a request waits for.
#[expect(clippy::large_enum_variant, reason = "it is in a box with the request")]
pub(crate) enum Waits {
    /// The answers to questions asked of the disk.
    Lookup(Fill),
    /// A body of an archive that is not in memory.
    Load(KeptBody),
}

/// What was selected of an archive, and is not selected again.
pub(crate) struct KeptBody {
    site: Rc<ArchiveSite>,
    /// The canonical path.
    path: Vec<u8>,
    selected: KeptEntry,
    /// It is stored in a coding alone.
    is_coded: bool,
    /// `None` when it was asked for.
    load: Option<Load>,
}

impl Waits {
    /// For this `body` of what was selected at a canonical path.
    #[cold]
    pub(crate) fn body(
        site: &Rc<ArchiveSite>,
        path: &[u8],
        selected: &Selected<'_>,
        body: &Unloaded<'_>,
    ) -> Self {
        let load = body.load();
        Self::Load(KeptBody {
            site: Rc::clone(site),
            path: path.to_vec(),
            selected: KeptEntry::new(selected, body),
            is_coded: load.as_ref().is_some_and(Load::is_coded),
            load,
        })
    }
}

impl WaitingRequest {
    /// Keeps a request that waits for something of `release`.
    #[cold]
    pub(crate) fn new(request: &Request<'_>, release: &Rc<Release>, waits: Waits) -> Box<Self> {
        Box::new(Self {
            request: KeptRequest::new(request),
            release: Rc::clone(release),
            waits,
        })
    }

    /// The request.
    pub(crate) fn request(&self) -> Request<'_> {
        self.request.as_request()
    }

    /// The release that answers it.
    pub(crate) fn release(&self) -> &Rc<Release> {
        &self.release
    }

    /// Bytes of memory that keeping the request takes.
    pub(crate) fn memory(&self) -> u64 {
        self.request.memory() as u64
    }

    /// Answers it, in a `turn` with the fields of its release.
    pub(crate) fn answer(
        &self,
        reply: Reply<'_>,
        turn: &Turn<'_>,
        found: Found,
        out: &mut Outgoing,
    ) -> Answered {
        let request = self.request();
        let mut to = Answering {
            reply,
            turn,
            out,
            ruling: None,
        };
        match (&self.waits, found) {
            (Waits::Lookup(fill), Found::Filled(filled)) => {
                to.ruling = fill.ruling();
                self.answer_filled(&mut to, fill, filled)
            }
            (Waits::Load(_), Found::Body(Err(status))) => to.error(status, None),
            (Waits::Load(body), Found::Body(Ok(is_loaded))) => {
                let selected = body.site.selected_again(&body.selected, is_loaded);
                let Some(selected) = selected else {
                    debug_assert!(false, "an archive never changes");
                    return to.error(Status::INTERNAL_SERVER_ERROR, None);
                };
                let input = rule_input(turn.scheme, &request, &body.path);
                let rules = body.site.rules.as_deref();
                to.ruling = rules.map(|rules| Ruling::new(rules, input));
                to.selected(&request, &selected)
            }
            _ => to.error(Status::INTERNAL_SERVER_ERROR, None),
        }
    }

    /// Answers with what the disk has said, and remembers it.
    fn answer_filled(&self, to: &mut Answering<'_>, fill: &Fill, filled: Filled) -> Answered {
        let request = &self.request();
        match filled {
            Filled::File(cached, status, live) => {
                let lines = request.fields.lines(KnownField::AcceptEncoding);
                let mut selected = cached.select(accept_encoding(lines), status);
                if let Some(file) = &live {
                    selected.source = Source::File(file, 0);
                }
                let answered = to.selected(request, &selected);
                if fill.remember(cached, status) {
                    self.release.note_live();
                }
                answered
            }
            Filled::Redirect(location) => to.redirect(request, &location),
            Filled::Elsewhere(status, location) => to.elsewhere(status, &location),
            Filled::Listing(page) => to.listing(&page),
            Filled::Directory(_) | Filled::Undecoded(_) | Filled::Short => {
                debug_assert!(
                    false,
                    "a directory is listed and content decoded first, and what was short is asked \
                     for again"
                );
                to.error(Status::INTERNAL_SERVER_ERROR, None)
            }
            Filled::Error(status) => to.missing(request, status),
        }
    }
}

impl<D: Driver> Shared<D> {
    /// Asks on for what a request waits for; `None` if an answer has to be awaited, with which
    /// `waiter` is woken.
    pub(crate) fn find_out(
        &mut self,
        waiting: &mut WaitingRequest,
        waiter: Token,
        wakeup: Option<Result<Wakeup, Errno>>,
    ) -> Option<Found> {
        let request = &waiting.request.as_request();
        let fill = match &mut waiting.waits {
            Waits::Lookup(fill) => fill,
            Waits::Load(body) => {
                let Some(load) = body.load.take() else {
                    return Some(Found::Body(match wakeup {
                        Some(Ok(Wakeup::Loaded)) => Ok(true),
                        // Something is used up. What is stored as it is can be sent from the file.
                        Some(Err(Errno::AGAIN | Errno::NOMEM)) if !body.is_coded => Ok(false),
                        Some(Err(Errno::AGAIN | Errno::NOMEM)) => Err(Status::SERVICE_UNAVAILABLE),
                        _ => Err(Status::INTERNAL_SERVER_ERROR),
                    }));
                };
                self.ask_for_body(load, waiter);
                return None;
            }
        };
        self.find_in_directory(request, fill, waiter, wakeup)
            .map(Found::Filled)
    }

    fn find_in_directory(
        &mut self,
        request: &Request<'_>,
        fill: &mut Fill,
        waiter: Token,
        wakeup: Option<Result<Wakeup, Errno>>,
    ) -> Option<Filled> {
        if wakeup.is_none() && !self.may_look_up(waiter) {
            return None;
        }
        if let Some(Ok(Wakeup::Again)) = wakeup
            && let Some((cached, status)) = self.remembered(request, fill)
        {
            return Some(Filled::File(cached, status, None));
        }
        match self.ask_directory(request, fill, waiter, wakeup)? {
            Filled::Short => self.defer_short(fill, waiter),
            filled => {
                self.shortage.ease();
                Some(filled)
            }
        }
    }

    /// What answers a request that was deferred, if that is in memory by now.
    fn remembered(&mut self, request: &Request<'_>, fill: &Fill) -> Option<(Rc<Cached>, Status)> {
        if fill.ruling().and_then(|it| it.before_files()).is_some() {
            return None;
        }
        let now = self.driver.now();
        let (cached, status) = fill.site().lookup(fill.path(), now, &self.driver)?;
        let lines = request.fields.lines(KnownField::AcceptEncoding);
        let selected = cached.select(accept_encoding(lines), status);
        let unix = self.driver.unix_seconds();
        let is_whole = selected.is_at_hand() || needed_bytes(request, &selected, unix).is_none();
        is_whole.then_some((cached, status))
    }

    fn ask_directory(
        &mut self,
        request: &Request<'_>,
        fill: &mut Fill,
        waiter: Token,
        wakeup: Option<Result<Wakeup, Errno>>,
    ) -> Option<Filled> {
        let mut wakeup = match wakeup {
            Some(Ok(Wakeup::Listed(page))) => {
                return Some(page.map_or_else(Filled::Error, Filled::Listing));
            }
            Some(Ok(Wakeup::Admitted)) => {
                fill.admit();
                None
            }
            Some(Ok(Wakeup::Again)) => None,
            wakeup => wakeup,
        };
        loop {
            let filled = fill.advance(&mut self.driver, waiter, wakeup.take())?;
            let (cached, status) = match filled {
                Filled::Directory(folder) => {
                    let page = self.ask_for_listing(fill, &folder, request, waiter)?;
                    return Some(page.map_or_else(Filled::Error, Filled::Listing));
                }
                Filled::File(cached, status, None) => (cached, status),
                Filled::Undecoded(load) => return self.ask_to_decode(load, waiter),
                filled => return Some(filled),
            };
            let lines = request.fields.lines(KnownField::AcceptEncoding);
            let selected = cached.select(accept_encoding(lines), status);
            let needed = needed_bytes(request, &selected, self.driver.unix_seconds());
            let Some(needed) = needed.filter(|_| !selected.is_at_hand()) else {
                return Some(Filled::File(cached, status, None));
            };
            if let Source::Unloaded(body) = selected.source {
                let Some(load) = body.load() else {
                    return Some(Filled::Error(Status::INTERNAL_SERVER_ERROR));
                };
                fill.await_load(Rc::clone(&cached));
                return self.ask_to_decode(load, waiter);
            }
            let coding = selected.representation.coding;
            match self.read_first(fill, (cached, coding), needed, waiter) {
                FirstRead::Ended(filled) => return Some(filled),
                FirstRead::Awaited => return None,
                FirstRead::Changed => {}
            }
        }
    }

    /// Has content of a live file decoded, unless peers hold as many copies as there may be.
    fn ask_to_decode(&mut self, load: Load, waiter: Token) -> Option<Filled> {
        if !self.has_room_for_body(load.len()) {
            return Some(Filled::Short);
        }
        self.ask_for_body(load, waiter);
        None
    }
}

/// What a request that had to wait is answered with.
pub(crate) enum Found {
    /// What the disk has said.
    Filled(Filled),
    /// A body of an archive is in memory now, or (false) to be sent from the file, or cannot be had.
    Body(Result<bool, Status>),
}
