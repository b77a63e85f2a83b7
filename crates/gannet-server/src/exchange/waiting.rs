//! Requests that have to wait: for the disk, or for a body.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use gannet_content::rules::steps::Steps;
use gannet_http::semantics::fields::FieldMask;
use gannet_http::semantics::kept::KeptRequest;
use gannet_http::semantics::request::{Method, Request};
use gannet_http::semantics::status::Status;
use gannet_http::semantics::target_path::decode_path;
use gannet_io::driver::{Driver, Errno, Nanos, Token};

use super::answering::{Answering, Reply, Turn, needed_bytes};
use super::first_reads::FirstRead;
use super::outgoing::Outgoing;
use super::workbench::ruling_of;
use crate::bounds::ledger::Work;
use crate::bounds::limits::{FETCH_WAIT_MS, HEAD_USUAL, SITE_WAIT_S, SLICE_READS_MAX};
use crate::bounds::waiting::{Awaited, WaitingCharge};
use crate::clients::ForwardedClient;
use crate::exchange::shared::Shared;
use crate::observe::record::Answered;
use crate::passwords::Proof;
use crate::passwords::checker::Checked;
use crate::release::access;
use crate::release::archive::{ArchiveSite, KeptEntry};
use crate::release::bodies::{Lacking, Load, Unloaded};
use crate::release::directory::Cached;
use crate::release::directory::fill::{DiskLookup, Filled};
use crate::release::rules::{RequestRules, SiteRules, may_stand_for, rule_input};
use crate::release::wakeup::{Wakeup, is_shortage};
use crate::release::{NO_SITE, Release, RequestView, Selected, Source};

/// A waiting request of any version, with the release that it began with: it is answered from that
/// release even if another one has replaced it.
pub(crate) struct WaitingRequest {
    request: KeptRequest,
    release: Rc<Release>,
    waits: Waits,
    forwarded: Option<ForwardedClient>,
    /// When its head was complete.
    began: Nanos,
    /// The number of its site in that release.
    site: usize,
    /// Bytes of the head of its answer, at most.
    head_len_max: u64,
    /// Those that the rules of its site may still take.
    steps_left: u32,
    /// For its memory.
    charge: WaitingCharge,
}

/// The event that a request waits for.
#[expect(clippy::large_enum_variant, reason = "it is in a box with the request")]
pub(crate) enum Waits {
    /// A lookup on disk.
    Lookup(DiskLookup),
    /// A body of an archive that is not in memory.
    Load(KeptBody),
    /// The comparison of a password with a hash; `None` once it was requested.
    Password(Option<Box<Proof>>),
    /// The site of a host, and whether it was requested.
    Site(Arc<[u8]>, bool),
}

/// A selected archive entry, kept so that it is not selected again.
pub(crate) struct KeptBody {
    site: Rc<ArchiveSite>,
    /// The canonical path.
    path: Vec<u8>,
    /// The requested path, if it is another form of what is there.
    instead_of: Option<Vec<u8>>,
    selected: KeptEntry,
    /// It is stored only in a coding.
    is_coded: bool,
    /// Bytes of its stored fields.
    fields_len: u64,
    /// What has to be fetched first.
    lacking: Option<Lacking>,
    /// How often something was requested.
    asks: u32,
    /// `None` once the load was started, or if it is sent from its file.
    load: Option<Load>,
}

impl Waits {
    /// Waits for `body`, selected at the second path, a canonical one, for the requested one; or only for what
    /// is `lacking` of it, if it is sent from its file from this offset on.
    #[cold]
    pub(crate) fn body(
        site: &Rc<ArchiveSite>,
        [asked, path]: [&[u8]; 2],
        selected: &Selected<'_>,
        (body, lacking, is_loaded): (&Unloaded<'_>, Option<Lacking>, bool),
    ) -> Self {
        let load = body.load().filter(|_| is_loaded);
        let pieces = selected.block.h1.pieces();
        Self::Load(KeptBody {
            site: Rc::clone(site),
            path: path.to_vec(),
            instead_of: (asked != path).then(|| asked.to_vec()),
            selected: KeptEntry::new(selected, body),
            is_coded: load.as_ref().is_some_and(Load::is_coded),
            fields_len: pieces.iter().map(|piece| piece.len() as u64).sum(),
            lacking,
            asks: 0,
            load,
        })
    }

    fn awaited(&self) -> Awaited {
        match self {
            Self::Lookup(_) | Self::Load(_) => Awaited::Disk,
            Self::Password(_) => Awaited::Password,
            Self::Site(..) => Awaited::Site,
        }
    }

    /// Bytes of the head of the answer of a site of a release, at most.
    fn head_len_max(&self, release: &Release, site: usize) -> u64 {
        match self {
            // A site that is not open may have any rules. Requests that wait for it must not keep those for
            // other sites from being looked up; how many wait is bounded (`SITE_QUEUE_MAX`).
            _ if site == NO_SITE => HEAD_USUAL,
            Self::Load(body) => {
                let rules = body.site.rules.as_deref();
                HEAD_USUAL + body.fields_len + rules.map_or(0, SiteRules::head_len_max)
            }
            Self::Lookup(_) | Self::Password(_) | Self::Site(..) => {
                let rules = release.site(site).rules();
                HEAD_USUAL + rules.map_or(0, SiteRules::head_len_max)
            }
        }
    }

    /// Bytes of what belongs to it. A password goes to the queue at once, and hosts are shared.
    fn memory(&self) -> usize {
        match self {
            Self::Lookup(fill) => fill.memory(),
            Self::Load(body) => body.path.len() + body.instead_of.as_ref().map_or(0, Vec::len),
            Self::Password(_) => 0,
            // It keeps the sites of no release.
            Self::Site(..) => size_of::<Release>(),
        }
    }
}

impl WaitingRequest {
    /// Keeps a request that waits for a part of its release; its head was complete in this turn.
    #[cold]
    pub(crate) fn new(view: &RequestView<'_>, waits: Waits, turn: &Turn<'_>) -> Box<Self> {
        let request = KeptRequest::new(view.request);
        let bytes = size_of::<Self>() - size_of::<KeptRequest>() + request.memory();
        let bytes = (bytes + waits.memory()) as u64;
        Box::new(Self {
            head_len_max: waits.head_len_max(view.release, view.site),
            steps_left: turn.steps.left(),
            charge: WaitingCharge::new(turn.ledger.waiting(), waits.awaited(), bytes),
            request,
            release: Rc::clone(view.release),
            waits,
            forwarded: None,
            began: turn.now,
            site: view.site,
        })
    }

    /// The steps that the rules of its site may still take for it.
    pub(crate) fn steps_left(&self) -> u32 {
        match &self.waits {
            Waits::Lookup(fill) => fill.steps().left(),
            _ => self.steps_left,
        }
    }

    /// The request.
    pub(crate) fn request(&self) -> Request<'_> {
        self.request.as_request()
    }

    /// What it waits for.
    pub(crate) fn awaited(&self) -> Awaited {
        self.charge.awaited()
    }

    /// Whether it may wait, while this many others of its connection do.
    #[inline]
    pub(crate) fn may_wait(&self, others: usize) -> bool {
        self.charge.may_wait(others)
    }

    /// Bytes of the head of its answer, at most.
    pub(crate) fn head_len_max(&self) -> u64 {
        self.head_len_max
    }

    /// The release that answers it.
    pub(crate) fn release(&self) -> &Rc<Release> {
        &self.release
    }

    /// When its head was complete.
    pub(crate) fn began(&self) -> Nanos {
        self.began
    }

    /// It has waited before, as this one: its head was complete then.
    pub(crate) fn began_with(&mut self, before: &Self) {
        self.began = before.began;
    }

    /// The number of its site in its release.
    pub(crate) fn site(&self) -> usize {
        self.site
    }

    /// What a trusted proxy has said about it, if it came from one.
    pub(crate) fn forwarded(&self) -> Option<&ForwardedClient> {
        self.forwarded.as_ref()
    }

    /// Keeps what a trusted proxy has said about it, besides the host, which is that of the request.
    pub(crate) fn keep(&mut self, forwarded: Option<ForwardedClient>) {
        self.forwarded = forwarded.map(|forwarded| ForwardedClient {
            authority: None,
            ..forwarded
        });
    }

    /// Answers the `request`, which is this one, in a `turn` with the fields of its release.
    pub(crate) fn answer(
        &self,
        request: &Request<'_>,
        reply: &mut dyn Reply,
        turn: &Turn<'_>,
        found: Found,
        out: &mut Outgoing,
    ) -> Answered {
        let mut to = Answering::new(reply, turn, out);
        to.prefix = self.release.prefix(self.site);
        match (&self.waits, found) {
            (Waits::Lookup(fill), Found::Filled(filled)) => {
                to.ruling = fill.ruling();
                let of = (fill.site().rules(), fill.path());
                to.is_protected = self.is_protected(of, fill.steps());
                self.answer_filled(request, &mut to, fill, filled)
            }
            (Waits::Load(body), Found::Body(Err(status))) => {
                to.pages = body.site.rules.as_deref().and_then(SiteRules::pages);
                to.error(status, None)
            }
            (Waits::Load(body), Found::Body(Ok(is_loaded))) => {
                let selected = body.site.selected_again(&body.selected, is_loaded);
                let Some(selected) = selected else {
                    debug_assert!(false, "an archive never changes");
                    return to.error(Status::INTERNAL_SERVER_ERROR, None);
                };
                let asked = body.instead_of.as_ref().unwrap_or(&body.path);
                let input = rule_input(turn.scheme, request, (to.prefix, asked));
                let rules = body.site.rules.as_deref();
                // The rules of the current release have decided, also on assets of another one.
                let own = self.release.site(self.site).rules();
                to.is_protected = self.is_protected((own, &body.path), &turn.steps);
                let ruling = |rules| RequestRules::new(rules, input, &turn.steps);
                to.ruling = rules.map(|rules| ruling(rules).at(&body.path));
                to.selected(request, &selected)
            }
            (Waits::Password(_), Found::Password(checked)) => {
                let rules = self.release.site(self.site).rules();
                to.pages = rules.and_then(SiteRules::pages);
                let mut scratch = Vec::new();
                let path = decode_path(request.target.path, &mut scratch);
                to.ruling = ruling_of(&self.release, turn, request, path);
                match checked {
                    Checked::Wrong => to.unauthorized(),
                    // A right one is not answered here.
                    Checked::Right | Checked::Failed => to.error(Status::SERVICE_UNAVAILABLE, None),
                }
            }
            (Waits::Site(..), Found::Site(Err(status))) => to.error(status, None),
            _ => to.error(Status::INTERNAL_SERVER_ERROR, None),
        }
    }

    /// Whether only some may have the path, one of whom has sent the request.
    fn is_protected(&self, (rules, path): (Option<&SiteRules>, &[u8]), steps: &Steps) -> bool {
        access::lists((&self.release, self.site), rules, path, steps).is_some()
    }

    /// Answers with the result of a lookup on disk, and caches it.
    fn answer_filled(
        &self,
        request: &Request<'_>,
        to: &mut Answering<'_>,
        fill: &DiskLookup,
        filled: Filled,
    ) -> Answered {
        match filled {
            Filled::File(cached, status, live) => {
                let selected = match &live {
                    // The file that was opened is one of these.
                    Some(file) => Selected {
                        source: Source::File(file, 0),
                        ..cached.select_stored(request, status)
                    },
                    None => cached.select(request, status),
                };
                let selected = Selected {
                    varies_by_type: fill.is_other_form(),
                    ..selected
                };
                let answered = to.selected(request, &selected);
                let may_keep = |bytes| fill.site().may_keep(bytes);
                cached.have_coded(request, to.turn.ledger, may_keep);
                let kept = Rc::clone(&cached);
                if fill.remember(cached, status) {
                    self.release.note_live();
                }
                // Unless it is cached, or being sent.
                to.out.spare = kept.into_vec().unwrap_or_default();
                answered
            }
            Filled::Redirect(location) => to.redirect(request, &location),
            Filled::Elsewhere(status, location) => to.elsewhere(status, &location),
            Filled::Listing(page) => to.listing(&page),
            Filled::Directory(_) | Filled::Undecoded(_) | Filled::Unsurveyed(_) | Filled::Short => {
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
    /// Continues the work that a request waits for; `None` if it is pending, in which case `waiter`
    /// is woken with its result.
    pub(crate) fn find_out(
        &mut self,
        waiting: &mut WaitingRequest,
        waiter: Token,
        wakeup: Option<Result<Wakeup, Errno>>,
    ) -> Option<Found> {
        let request = &waiting.request.as_request();
        let fill = match &mut waiting.waits {
            Waits::Lookup(fill) => fill,
            Waits::Password(proof) => {
                let Some(proof) = proof.take() else {
                    return Some(Found::Password(match wakeup {
                        Some(Ok(Wakeup::PasswordChecked(checked))) => checked,
                        _ => Checked::Failed,
                    }));
                };
                if self.passwords.ask(*proof, waiter) {
                    return None;
                }
                self.counters.turned_away(Awaited::Password);
                return Some(Found::Password(Checked::Failed));
            }
            Waits::Site(_, true) => {
                // It is answered like a new request, from the release that has its site.
                waiting.release = Rc::clone(&self.release);
                return Some(Found::Site(match wakeup {
                    Some(Ok(Wakeup::SiteOpened(opened))) => opened,
                    _ => Err(Status::SERVICE_UNAVAILABLE),
                }));
            }
            Waits::Site(host, is_asked) => {
                *is_asked = true;
                let worker = self.settings.number;
                // It was open, and closed for others before it could answer: the time continues.
                let waited = self.driver.now().0.saturating_sub(waiting.began.0);
                let waited = Duration::from_nanos(waited);
                if waited >= Duration::from_secs(SITE_WAIT_S) {
                    return Some(Found::Site(Err(Status::SERVICE_UNAVAILABLE)));
                }
                let ask = |host: &_| waiting.release.ask_to_open(worker, host, waited);
                let (sites, waiters) = (&mut self.sites, &mut self.waiters);
                if !sites.wait(host, (waiter, waited), waiters, ask) {
                    self.counters.turned_away(Awaited::Site);
                    return Some(Found::Site(Err(Status::SERVICE_UNAVAILABLE)));
                }
                waiting.release = Rc::new(waiting.release.without_sites());
                return None;
            }
            Waits::Load(body) => {
                if let Some(Ok(Wakeup::Fetched(Err(status)))) = wakeup {
                    return Some(Found::Body(Err(status)));
                }
                if let Some(fetched) = self.fetch_body(body, (waiter, waiting.began)) {
                    return fetched.err().map(|status| Found::Body(Err(status)));
                }
                let Some(load) = body.load.take() else {
                    return Some(Found::Body(match wakeup {
                        // It is sent from its file.
                        None | Some(Ok(Wakeup::Fetched(Ok(())))) => Ok(false),
                        Some(Ok(Wakeup::Loaded)) => Ok(true),
                        // A resource is used up. A body stored without a coding can be sent from
                        // the file.
                        Some(Err(errno)) if !body.is_coded && is_shortage(errno) => Ok(false),
                        Some(Err(errno)) if is_shortage(errno) => Err(Status::SERVICE_UNAVAILABLE),
                        _ => Err(Status::INTERNAL_SERVER_ERROR),
                    }));
                };
                if body.asks == 0 {
                    self.use_load(&load);
                }
                self.ask_for_body(load, waiter);
                return None;
            }
        };
        self.find_in_directory(
            (request, (&waiting.release, waiting.site)),
            fill,
            waiter,
            wakeup,
        )
        .map(Found::Filled)
    }

    /// Has `waiter` wait for the next part of a body that is not here, for a request that began then; fails if
    /// that has taken too long, or cannot be. `None`: all is here.
    fn fetch_body(
        &mut self,
        body: &mut KeptBody,
        (waiter, began): (Token, Nanos),
    ) -> Option<Result<(), Status>> {
        let Lacking { file, range } = body.lacking.as_ref()?;
        let partial = file.partial.as_ref()?;
        let Some(part) = partial.lacking(range) else {
            body.lacking = None;
            return None;
        };
        body.asks += 1;
        // Asked for again and again, it is not to be had by this file.
        let is_late =
            body.asks > SLICE_READS_MAX || self.driver.now() >= began.plus_ms(FETCH_WAIT_MS);
        let is_asked = !is_late && self.fetch(partial, &part, (waiter, false));
        Some(is_asked.then_some(()).ok_or(Status::SERVICE_UNAVAILABLE))
    }

    fn find_in_directory(
        &mut self,
        (request, of): (&Request<'_>, (&Release, usize)),
        fill: &mut DiskLookup,
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
        match self.ask_directory((request, of), fill, waiter, wakeup)? {
            Filled::Short => self.defer_short(fill, waiter),
            filled => {
                self.shortage.ease();
                if let Some(fault) = fill.take_fault() {
                    let object = (&**fill.site(), fault.path.as_slice());
                    self.note_unreadable(object, fault.errno, request.authority);
                }
                Some(filled)
            }
        }
    }

    /// The cached file for a deferred request, if it is in memory now.
    fn remembered(
        &mut self,
        request: &Request<'_>,
        fill: &DiskLookup,
    ) -> Option<(Rc<Cached>, Status)> {
        if fill.is_other_form() || fill.is_ruled() {
            return None;
        }
        let now = self.driver.now();
        let (cached, status) = fill.site().lookup(fill.path(), now, &self.driver)?;
        if fill.better(request, &cached, status).is_some() {
            return None;
        }
        let selected = cached.select(request, status);
        let unix = self.driver.unix_seconds();
        let is_whole = selected.is_at_hand() || needed_bytes(request, &selected, unix).is_none();
        is_whole.then_some((cached, status))
    }

    fn ask_directory(
        &mut self,
        (request, of): (&Request<'_>, (&Release, usize)),
        fill: &mut DiskLookup,
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
        let is_whole = !request.fields.has_any(FieldMask::CONDITIONS_AND_RANGE);
        let may_read = self.budget.has_left(Work::Read);
        fill.reads_ahead(request.method == Method::Get && is_whole && may_read);
        loop {
            let filled = fill.advance(&mut self.driver, waiter, wakeup.take());
            // The first one was taken before.
            let further = fill.take_asked().saturating_sub(1);
            self.budget.take_rest(Work::Lookup, further);
            let filled = filled?;
            if fill.is_other_form() && filled.is_no_content() {
                fill.turn_back();
                continue;
            }
            let (cached, status) = match filled {
                Filled::Directory(folder) => {
                    let prefix = of.0.prefix(of.1);
                    let page = self.ask_for_listing(fill, (&folder, prefix), request, waiter)?;
                    return Some(page.map_or_else(Filled::Error, Filled::Listing));
                }
                Filled::File(cached, status, None) => match fill.better(request, &cached, status) {
                    Some(path) if may_stand_for(of, fill.ruling(), [fill.path(), &path]) => {
                        if fill.remember(cached, status) {
                            of.0.note_live();
                        }
                        fill.turn_to(path);
                        continue;
                    }
                    _ => (cached, status),
                },
                Filled::Undecoded(load) => return self.ask_to_decode(load, waiter),
                Filled::Unsurveyed(max) => match self.ask_for_survey(fill, max, waiter) {
                    true => return None,
                    false => continue,
                },
                filled => return Some(filled),
            };
            let selected = cached.select(request, status);
            let needed = needed_bytes(request, &selected, self.driver.unix_seconds());
            let Some(needed) = needed.filter(|_| !selected.is_at_hand()) else {
                self.copy_long(fill, &cached);
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

    /// Starts decoding content of a live file, unless copies held by peers use up the limit.
    fn ask_to_decode(&mut self, load: Load, waiter: Token) -> Option<Filled> {
        if !self.has_room_for_body(load.len()) {
            return Some(Filled::Short);
        }
        self.ask_for_body(load, waiter);
        None
    }
}

/// The result for a request that had to wait.
pub(crate) enum Found {
    /// The result of a lookup on disk.
    Filled(Filled),
    /// A body of an archive: in memory (true), to be sent from the file (false), or failed.
    Body(Result<bool, Status>),
    /// The result for a password. If it is right, the request is answered like a new one.
    Password(Checked),
    /// The site of the request is open, and the request is answered like a new one; or it cannot be.
    Site(Result<(), Status>),
}
