//! Requests whose answer has to be looked for on the disk.

use gannet_content::directory::listing::{self, Entry, ListingRequest};
use gannet_content::rules::pattern::Scheme;
use gannet_http::h1::{Connection, Event};
use gannet_http::semantics::coding::accept_encoding;
use gannet_http::semantics::fields::KnownField;
use gannet_http::semantics::request::Request;
use gannet_http::semantics::status::Status;
use gannet_http::semantics::target_path::decode_path;
use gannet_io::driver::{DirectoryEntry, Driver, Errno, FileKind, Token};

use super::guard::put_guard;
use super::receiving::{pump, turn};
use super::{Disk, Kind, Worker, token};
use crate::conn::{Parked, Phase, Waits};
use crate::outgoing::Outgoing;
use crate::pump::Pump;
use crate::serve::{Answered, Answering, Reply, Turn};
use crate::site::Site;
use crate::site::directory::fill::{Fill, Filled};
use crate::site::rules::asked;

impl<D: Driver> Worker<D> {
    /// Asks the disk on behalf of a request whose head is given. `out` has the answers to the
    /// requests before it.
    pub(super) fn ask_disk(&mut self, slot: u32, head: Vec<u8>, out: Outgoing) {
        let Some(parked) = self.park(slot, head, out) else {
            return self.reset(slot);
        };
        self.ask_on(slot, parked, None);
    }

    fn park(&mut self, slot: u32, head: Vec<u8>, out: Outgoing) -> Option<Box<Parked>> {
        let scheme = self.conns.at(slot).scheme();
        let request = parse_again(&head)?;
        let waits = self.waits(&request, scheme)?;
        Some(Box::new(Parked { head, waits, out }))
    }

    /// What a request waits for that memory does not answer.
    pub(super) fn waits(&mut self, request: &Request<'_>, scheme: Scheme) -> Option<Waits> {
        let (now, unix) = (self.driver.now(), self.driver.unix_seconds());
        let number = self.sites.select(request.authority).ok()?;
        let path = decode_path(request.target.path, &mut self.scratch).ok()?;
        let asked = asked(scheme, request, path.as_bytes());
        Some(match self.sites.at(number) {
            Site::Directory(site) => Waits::Lookup(Fill::new((number, site), &asked, now, unix)),
            Site::Archive(site) => Waits::Body(site.inflation(request, asked)),
        })
    }

    /// Asks on for what a request waits for; `None` if an answer has to be awaited, which `asker`
    /// will be told.
    pub(super) fn find_out(
        &mut self,
        waits: &mut Waits,
        asker: Token,
        told: Option<Result<Disk, Errno>>,
    ) -> Option<Found> {
        let fill = match waits {
            Waits::Lookup(fill) => fill,
            Waits::Body(inflation) => {
                let Some(inflation) = inflation.take() else {
                    return Some(Found::Body(matches!(told, Some(Ok(Disk::Inflated)))));
                };
                self.ask_for_body(inflation, asker);
                return None;
            }
        };
        let Site::Directory(site) = self.sites.at(fill.site()) else {
            debug_assert!(false, "a directory stays one");
            return Some(Found::Body(false));
        };
        let filled = fill.advance(&mut self.driver, site, asker, told, put_guard);
        filled.map(Found::Filled)
    }

    /// An answer of the disk. If it was for a connection that is gone, it is dropped; with it the
    /// descriptor that it may hold.
    pub(super) fn disk(&mut self, slot: u32, generation: u32, answer: Result<Disk, Errno>) {
        let Some(conn) = self.conns.find(slot, generation) else {
            return;
        };
        match (conn.phase, answer) {
            (Phase::Waiting, answer) => {
                if let Some(parked) = conn.work().parked.take() {
                    self.ask_on(slot, parked, Some(answer));
                }
            }
            (_, Ok(Disk::Read(bytes))) => self.copy_read(slot, bytes),
            (_, _) => self.cut_short(slot),
        }
    }

    /// Asks until an answer has to be awaited, or there are answers to send.
    fn ask_on(
        &mut self,
        slot: u32,
        mut parked: Box<Parked>,
        mut answer: Option<Result<Disk, Errno>>,
    ) {
        loop {
            let asker = token(Kind::Disk, slot, self.conns.at(slot).generation);
            let Some(found) = self.find_out(&mut parked.waits, asker, answer.take()) else {
                let conn = self.conns.at(slot);
                conn.phase = Phase::Waiting;
                conn.work().parked = Some(parked);
                return self.set_deadline(slot, self.settings.limits.progress_timeout_ms);
            };
            let Parked {
                head,
                waits,
                mut out,
            } = *parked;
            self.answer_found(slot, &head, &waits, found, &mut out);
            match self.pump_held(slot, &mut out) {
                Some(head) => match self.park(slot, head, out) {
                    Some(next) => parked = next,
                    None => return self.reset(slot),
                },
                None => return self.send(slot, out),
            }
        }
    }

    /// Answers the requests behind the one that waited, as far as that goes. Returns the head of
    /// one that has to wait in turn.
    fn pump_held(&mut self, slot: u32, out: &mut Outgoing) -> Option<Vec<u8>> {
        let fields = self.settings.fields(self.conns.at(slot).is_secure());
        let turn = turn!(self, fields);
        let conn = self.conns.at(slot);
        if conn.held.is_empty() {
            return None;
        }
        let mut input = std::mem::take(&mut conn.held);
        let (used, stop) = pump!(self, turn).run(conn, &input, out);
        let head = stop.head(&input[..used]);
        input.drain(..used);
        conn.held = input;
        head
    }

    /// Answers the request that waited.
    fn answer_found(
        &mut self,
        slot: u32,
        head: &[u8],
        waits: &Waits,
        found: Found,
        out: &mut Outgoing,
    ) {
        let fields = self.settings.fields(self.conns.at(slot).is_secure());
        let turn = turn!(self, fields);
        let Some(request) = parse_again(head) else {
            return;
        };
        let conn = self.conns.at(slot);
        let is_early = conn.is_early();
        let reply = Reply::H1(&mut conn.h1);
        let mut pump = pump!(self, turn);
        let answered = answer(&mut pump, reply, &request, is_early, (waits, found), out);
        if conn.h1.is_closing() {
            conn.closing = true;
            conn.linger |= conn.h1.is_lingering();
        }
        pump!(self, turn).done(conn, &request, answered);
    }
}

/// What a request that had to wait is answered with.
pub(super) enum Found {
    /// What the disk has said.
    Filled(Filled),
    /// A body of an archive, if it is in memory now.
    Body(bool),
}

/// Answers a request that had to wait.
pub(super) fn answer<D: Driver>(
    pump: &mut Pump<'_, D>,
    reply: Reply<'_>,
    request: &Request<'_>,
    is_early: bool,
    found: (&Waits, Found),
    out: &mut Outgoing,
) -> Answered {
    match found {
        (Waits::Lookup(fill), Found::Filled(filled)) => {
            let to = Answering {
                reply,
                turn: pump.turn,
                out,
                ruling: None,
            };
            answer_filled(to, pump.sites.at(fill.site()), request, fill, filled)
        }
        (_, found) => {
            let is_there = matches!(found, Found::Body(true));
            pump.request_again(reply, request, is_early, is_there, out)
        }
    }
}

/// Answers with what the disk has said, and remembers it.
fn answer_filled(
    to: Answering<'_>,
    site: &mut Site,
    request: &Request<'_>,
    fill: &Fill,
    filled: Filled,
) -> Answered {
    let mut to = Answering {
        ruling: fill.ruling(),
        ..to
    };
    match filled {
        Filled::File(cached, status) => {
            let lines = request.fields.lines(KnownField::AcceptEncoding);
            let selected = cached.select(accept_encoding(lines), status);
            let answered = to.selected(request, &selected);
            if let Site::Directory(site) = site
                && fill.is_current(site)
            {
                site.remember(&fill.key(), cached, status, fill.began());
            }
            answered
        }
        Filled::Redirect(location) => to.redirect(request, &location),
        Filled::Elsewhere(status, location) => to.elsewhere(status, &location),
        Filled::Listing(entries) => list(&mut to, request, fill.path(), entries),
        Filled::Error(status) => to.missing(request, status),
    }
}

/// The request whose head was kept: it was parsed before, so it is there.
fn parse_again(head: &[u8]) -> Option<Request<'_>> {
    match Connection::new().receive(head).event {
        Event::Request(request) => Some(request),
        Event::NeedMore | Event::Reject(_) | Event::Closing => None,
    }
}

/// Answers with a directory's listing.
fn list(
    to: &mut Answering<'_>,
    request: &Request<'_>,
    path: &[u8],
    entries: Vec<DirectoryEntry>,
) -> Answered {
    let entries: Vec<Entry> = entries
        .into_iter()
        .filter(|entry| entry.meta.kind != FileKind::Other)
        .map(|entry| Entry {
            name: entry.name,
            is_directory: entry.meta.kind == FileKind::Directory,
            len: entry.meta.len,
            modified: i64::try_from(entry.meta.mtime_ns.div_euclid(1_000_000_000)).ok(),
        })
        .collect();
    // Whether dotfiles are among the entries was decided when they were read.
    let wanted = ListingRequest {
        dotfiles: true,
        ..ListingRequest::of(request, path)
    };
    let page = listing::render(&wanted, entries);
    to.generated(Status::OK, page.content_type, &page.content, page.further)
}
