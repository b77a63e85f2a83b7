//! Requests whose answer has to be looked for on the disk.

use std::rc::Rc;

use gannet_content::routing::is_navigation;
use gannet_content::rules::pattern::Scheme;
use gannet_http::semantics::coding::accept_encoding;
use gannet_http::semantics::fields::KnownField;
use gannet_http::semantics::request::Request;
use gannet_http::semantics::status::Status;
use gannet_http::semantics::target_path::decode_path;
use gannet_io::driver::{Driver, Errno, Token};

use super::Disk;
use super::answering::{Answered, Answering, Reply, needs_bytes};
use super::first_reads::FirstRead;
use super::outgoing::Outgoing;
use super::pump::Pump;
use crate::release::directory::Cached;
use crate::release::directory::fill::{Fill, Filled};
use crate::release::inflated::Inflation;
use crate::release::rules::asked;
use crate::release::sites::Sites;
use crate::release::{Site, Source};
use crate::worker::shared::Shared;

/// What a request waits for.
#[expect(clippy::large_enum_variant, reason = "it is in a box with the request")]
pub(crate) enum Waits {
    /// The answers to questions asked of the disk.
    Lookup(Fill),
    /// A body of an archive, which is to be inflated; `None` when that was asked for.
    Body(Option<Inflation>),
}

impl<D: Driver> Shared<D> {
    /// What a request waits for that memory does not answer.
    pub(crate) fn waits(&mut self, request: &Request<'_>, scheme: Scheme) -> Option<Waits> {
        let (now, unix) = (self.driver.now(), self.driver.unix_seconds());
        let number = self.sites.select(request.authority).ok()?;
        let path = decode_path(request.target.path, &mut self.scratch).ok()?;
        let asked = asked(scheme, request, path.as_bytes());
        Some(match self.sites.at(number) {
            Site::Directory(site) => {
                let asked = (&asked, is_navigation(&request.fields));
                Waits::Lookup(Fill::new((number, site), asked, now, unix))
            }
            Site::Archive(site) => Waits::Body(site.inflation(request, asked)),
        })
    }

    /// Asks on for what a request waits for; `None` if an answer has to be awaited, which `asker`
    /// will be told.
    pub(crate) fn find_out(
        &mut self,
        request: &Request<'_>,
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
        self.find_in_directory(request, fill, asker, told)
            .map(Found::Filled)
    }

    fn find_in_directory(
        &mut self,
        request: &Request<'_>,
        fill: &mut Fill,
        asker: Token,
        told: Option<Result<Disk, Errno>>,
    ) -> Option<Filled> {
        if let Some(Ok(Disk::Again)) = told
            && let Some((cached, status)) = self.remembered(request, fill)
        {
            return Some(Filled::File(cached, status));
        }
        match self.ask_directory(request, fill, asker, told)? {
            Filled::Short => self.defer_short(fill, asker),
            filled => Some(filled),
        }
    }

    /// What answers a request that was deferred, if that is in memory by now.
    fn remembered(&mut self, request: &Request<'_>, fill: &Fill) -> Option<(Rc<Cached>, Status)> {
        let Site::Directory(site) = self.sites.at(fill.site()) else {
            return None;
        };
        let is_ruled = || fill.ruling().is_some_and(|it| it.before_files().is_some());
        if !fill.is_current(site) || is_ruled() {
            return None;
        }
        let (cached, status) = site.lookup(fill.path(), self.driver.now(), &self.driver)?;
        let lines = request.fields.lines(KnownField::AcceptEncoding);
        let selected = cached.select(accept_encoding(lines), status);
        let is_unread = matches!(selected.source, Source::Unread);
        let is_whole = !is_unread || !needs_bytes(request, &selected, self.driver.unix_seconds());
        is_whole.then_some((cached, status))
    }

    fn ask_directory(
        &mut self,
        request: &Request<'_>,
        fill: &mut Fill,
        asker: Token,
        told: Option<Result<Disk, Errno>>,
    ) -> Option<Filled> {
        let mut told = match told {
            Some(Ok(Disk::Listed(page))) => {
                return Some(page.map_or_else(Filled::Error, Filled::Listing));
            }
            Some(Ok(Disk::Admitted(admission))) => {
                fill.admit(admission);
                None
            }
            Some(Ok(Disk::Again)) => None,
            told => told,
        };
        loop {
            let Site::Directory(site) = self.sites.at(fill.site()) else {
                debug_assert!(false, "a directory stays one");
                return Some(Filled::Error(Status::INTERNAL_SERVER_ERROR));
            };
            let filled = fill.advance(&mut self.driver, site, asker, told.take())?;
            let (cached, status) = match filled {
                Filled::Directory(folder) => {
                    let Some(root) = fill.root().cloned() else {
                        return Some(Filled::Error(Status::SERVICE_UNAVAILABLE));
                    };
                    let directory = (fill.site(), root, folder.as_slice());
                    let page = self.ask_for_listing(directory, request, fill.path(), asker)?;
                    return Some(page.map_or_else(Filled::Error, Filled::Listing));
                }
                Filled::File(cached, status) => (cached, status),
                filled => return Some(filled),
            };
            let lines = request.fields.lines(KnownField::AcceptEncoding);
            let selected = cached.select(accept_encoding(lines), status);
            let is_unread = matches!(selected.source, Source::Unread);
            if !is_unread || !needs_bytes(request, &selected, self.driver.unix_seconds()) {
                return Some(Filled::File(cached, status));
            }
            let coding = selected.representation.coding;
            match self.read_first(fill, (cached, coding), asker) {
                FirstRead::Ended(filled) => return Some(filled),
                FirstRead::Awaited => return None,
                FirstRead::Changed => {}
            }
        }
    }
}

/// What a request that had to wait is answered with.
pub(crate) enum Found {
    /// What the disk has said.
    Filled(Filled),
    /// A body of an archive, if it is in memory now.
    Body(bool),
}

/// Answers a request that had to wait.
pub(crate) fn answer<D: Driver>(
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
                turn: &pump.turn,
                out,
                ruling: None,
            };
            answer_filled(to, pump.sites, request, fill, filled)
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
    sites: &mut Sites,
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
            sites.remember(fill, cached, status);
            answered
        }
        Filled::Redirect(location) => to.redirect(request, &location),
        Filled::Elsewhere(status, location) => to.elsewhere(status, &location),
        Filled::Listing(page) => to.listing(&page),
        Filled::Directory(_) | Filled::Short => {
            debug_assert!(
                false,
                "a directory is listed first, and what was short is asked for again"
            );
            to.error(Status::INTERNAL_SERVER_ERROR, None)
        }
        Filled::Error(status) => to.missing(request, status),
    }
}
