//! Requests whose answer has to be looked for on the disk.

use gannet_content::directory::listing::{self, Entry, ListingRequest};
use gannet_http::h1::{Connection, Event};
use gannet_http::semantics::coding::accept_encoding;
use gannet_http::semantics::fields::KnownField;
use gannet_http::semantics::request::Request;
use gannet_http::semantics::status::Status;
use gannet_http::semantics::target_path::decode_path;
use gannet_io::driver::{DirectoryEntry, Driver, Errno, FileKind};

use super::guard::put_guard;
use super::receiving::{pump, turn};
use super::{Disk, Kind, Worker, token};
use crate::conn::{Parked, Phase};
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
        let (now, unix) = (self.driver.now(), self.driver.unix_seconds());
        let scheme = self.conns.at(slot).scheme();
        let request = parse_again(&head)?;
        let number = self.sites.select(request.authority).ok()?;
        let Site::Directory(site) = self.sites.at(number) else {
            return None;
        };
        let path = decode_path(request.target.path, &mut self.scratch).ok()?;
        let asked = asked(scheme, &request, path.as_bytes());
        let fill = Fill::new((number, site), &asked, now, unix);
        Some(Box::new(Parked { head, fill, out }))
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
            let Site::Directory(site) = self.sites.at(parked.fill.site()) else {
                return self.reset(slot);
            };
            let filled =
                parked
                    .fill
                    .advance(&mut self.driver, site, asker, answer.take(), put_guard);
            let Some(filled) = filled else {
                let conn = self.conns.at(slot);
                conn.phase = Phase::Waiting;
                conn.work().parked = Some(parked);
                return self.set_deadline(slot, self.settings.limits.progress_timeout_ms);
            };
            let Parked {
                head,
                fill,
                mut out,
            } = *parked;
            self.answer_filled(slot, &head, &fill, filled, &mut out);
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
    fn answer_filled(
        &mut self,
        slot: u32,
        head: &[u8],
        fill: &Fill,
        filled: Filled,
        out: &mut Outgoing,
    ) {
        let fields = self.settings.fields(self.conns.at(slot).is_secure());
        let turn = turn!(self, fields);
        let Some(request) = parse_again(head) else {
            return;
        };
        let conn = self.conns.at(slot);
        let to = Answering {
            reply: Reply::H1(&mut conn.h1),
            turn: &turn,
            out,
            ruling: None,
        };
        let answered = answer(to, self.sites.at(fill.site()), &request, fill, filled);
        if conn.h1.is_closing() {
            conn.closing = true;
            conn.linger |= conn.h1.is_lingering();
        }
        pump!(self, turn).done(conn, &request, answered);
    }
}

/// Answers with what the disk has said, and remembers it.
pub(super) fn answer(
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
