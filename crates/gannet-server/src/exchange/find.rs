//! What a site has for a path: answers with it, or says what the request has to wait for.

use std::rc::Rc;

use gannet_content::routing::is_navigation;
use gannet_content::rules::table::Ruled;
use gannet_http::semantics::request::Version;
use gannet_http::semantics::status::Status;
use gannet_io::driver::Driver;

use super::answering::{Answering, Turn, needed_bytes};
use super::waiting::{WaitingRequest, Waits};
use crate::exchange::fetching::Fetching;
use crate::observe::metrics::Counters;
use crate::observe::record::Answered;
use crate::passwords::{PasswordCache, PasswordVerdict};
use crate::release::directory::fill::DiskLookup;
use crate::release::directory::{Cached, DirectorySite};
use crate::release::rules::{RequestRules, may_stand_for};
use crate::release::{Archived, RequestView, Resolved, Selected, Site, Source, access};

/// The result for a request: its response, or the request if it has to wait.
pub(super) type Attempt = Result<Answered, Box<WaitingRequest>>;

impl<'r> RequestView<'r> {
    /// Answers with what the site has, if the client may have it.
    #[inline]
    pub(super) fn find<D: Driver>(
        &self,
        to: &mut Answering<'r>,
        driver: &D,
        (passwords, counters, fetching): (&PasswordCache, &mut Counters, &mut Fetching),
    ) -> Attempt {
        let site = self.release.site(self.site);
        to.prefix = self.release.prefix(self.site);
        if self.path.is_empty() {
            // What the site has is below its prefix: links of its first page are relative to that.
            return Ok(to.redirect(self.request, b"/"));
        }
        let ruling = |rules| RequestRules::new(rules, self.input(), self.steps);
        to.ruling = site.rules().map(ruling);
        if access::are_used(self.release, site.rules())
            && let Some(refused) = self.protected(site, to, passwords)
        {
            return refused;
        }
        match site {
            Site::Archive(archive) => self.in_archive(archive, to, (driver, fetching)),
            Site::Directory(directory) => self.in_directory(directory, to, (driver, counters)),
        }
    }

    /// Has the request wait.
    #[cold]
    pub(super) fn wait(&self, waits: Waits, turn: &Turn<'_>) -> Attempt {
        Err(WaitingRequest::new(self, waits, turn))
    }

    /// Refuses a client that may not have a protected path, or has it wait until its password was
    /// checked. `None`: it may have the path.
    #[cold]
    fn protected(
        &self,
        site: &'r Site,
        to: &mut Answering<'r>,
        passwords: &PasswordCache,
    ) -> Option<Attempt> {
        let rules = site.rules();
        let lists = access::lists((self.release, self.site), rules, self.path, self.steps)?;
        match passwords.judge(self.request, &lists) {
            PasswordVerdict::Granted => {
                to.is_protected = true;
                None
            }
            PasswordVerdict::Denied => {
                to.pages = rules.and_then(|rules| rules.pages());
                to.ruling = to.ruling.map(RequestRules::for_stranger);
                Some(Ok(to.unauthorized()))
            }
            PasswordVerdict::Unproven(proof) => {
                Some(self.wait(Waits::Password(Some(proof)), to.turn))
            }
        }
    }

    fn in_archive<D: Driver>(
        &self,
        archive: &'r Archived,
        to: &mut Answering<'r>,
        (driver, fetching): (&D, &mut Fetching),
    ) -> Attempt {
        let request = self.request;
        let (site, resolved) = archive.resolve(self, &mut to.ruling);
        Ok(match resolved {
            Resolved::Selected(mut selected) => {
                if let Some((body, bytes)) = to.missing_body(request, &selected) {
                    // Frames, and records that are encrypted here, would read it anew for each response.
                    let takes_pages = to.turn.is_clear && to.reply.version() == Version::Http11;
                    let pages = takes_pages && body.file.cannot_change(driver);
                    let from_file = body.taken_from_file(bytes, pages);
                    let lacking = body.file.partial.as_ref().and_then(|_| {
                        body.lacking(from_file.map(|_| to.first_sent(request, &selected)))
                    });
                    let (Some(source), None) = (from_file, &lacking) else {
                        // That of another form, if that is sent.
                        let sent = to.ruling.map_or(self.path, |ruling| ruling.input.path);
                        let body = (&body, lacking, from_file.is_none());
                        let body = Waits::body(site, [self.path, sent], &selected, body);
                        return self.wait(body, to.turn);
                    };
                    selected.source = source;
                } else if let Source::Unloaded(body) = &selected.source
                    && body.file.partial.is_some()
                    // HEAD and 304 use none of its bytes.
                    && needed_bytes(request, &selected, to.turn.unix).is_some()
                {
                    let part = || {
                        let load = body.load()?;
                        let (partial, range) = load.part()?;
                        Some(partial.part(&range))
                    };
                    fetching.note_use_of_memory(part, to.turn.now);
                }
                match selected.is_lost(driver) {
                    true => to.error(Status::SERVICE_UNAVAILABLE, None),
                    false => to.selected(request, &selected),
                }
            }
            Resolved::Redirect(location) => to.redirect(request, &location),
            Resolved::Elsewhere(status, location) => to.elsewhere(status, &location),
            Resolved::Error(status) => to.missing(request, status),
        })
    }

    fn in_directory<D: Driver>(
        &self,
        directory: &'r Rc<DirectorySite>,
        to: &mut Answering<'r>,
        (driver, counters): (&D, &mut Counters),
    ) -> Attempt {
        match to.ruling.and_then(|ruling| ruling.before_files()) {
            Some(Ruled::Elsewhere {
                status, location, ..
            }) => return Ok(to.elsewhere(status, &location)),
            Some(Ruled::Unknown) => return Ok(to.error(Status::INTERNAL_SERVER_ERROR, None)),
            ruled @ Some(Ruled::Content { .. }) => {
                return self.look_up(directory, ruled, to.turn);
            }
            None => {}
        }
        let found = directory.lookup(self.path, to.turn.now, driver);
        let Some((cached, status)) = found else {
            counters.cache_misses += 1;
            return self.look_up(directory, None, to.turn);
        };
        if let Some(other) = cached.better(self.request, status)
            && may_stand_for((self.release, self.site), to.ruling, [self.path, &other])
        {
            return self.in_other_form(directory, other, to, (driver, counters));
        }
        let selected = cached.select(self.request, status);
        if to.is_unread(self.request, &selected) {
            counters.cache_misses += 1;
            return self.look_up(directory, None, to.turn);
        }
        counters.cache_hits += 1;
        let answered = to.selected(self.request, &selected);
        directory.have_coded(self.path, &cached, self.request, to.turn.ledger);
        Ok(answered)
    }

    /// Answers with another form of what is at the path, which the client prefers.
    #[cold]
    fn in_other_form<D: Driver>(
        &self,
        directory: &Rc<DirectorySite>,
        other: Vec<u8>,
        to: &mut Answering<'r>,
        (driver, counters): (&D, &mut Counters),
    ) -> Attempt {
        let found = directory.lookup(&other, to.turn.now, driver);
        let is_ready = |(cached, status): &(Rc<Cached>, Status)| {
            cached.is_content(*status)
                && !to.is_unread(self.request, &cached.select(self.request, *status))
        };
        let Some((cached, status)) = found.filter(is_ready) else {
            counters.cache_misses += 1;
            let fill = self.fill(directory, None, to.turn).turned_to(other);
            return self.wait(Waits::Lookup(fill), to.turn);
        };
        counters.cache_hits += 1;
        let path = other.as_slice();
        let mut to = Answering {
            ruling: to.ruling.map(|ruling| ruling.at(path)),
            ..to.again()
        };
        let selected = Selected {
            varies_by_type: true,
            ..cached.select(self.request, status)
        };
        let answered = to.selected(self.request, &selected);
        directory.have_coded(path, &cached, self.request, to.turn.ledger);
        Ok(answered)
    }

    /// Has the request wait for a lookup of the path on disk.
    #[cold]
    fn look_up(
        &self,
        directory: &Rc<DirectorySite>,
        ruled: Option<Ruled>,
        turn: &Turn<'_>,
    ) -> Attempt {
        self.wait(Waits::Lookup(self.fill(directory, ruled, turn)), turn)
    }

    fn fill(
        &self,
        directory: &Rc<DirectorySite>,
        ruled: Option<Ruled>,
        turn: &Turn<'_>,
    ) -> DiskLookup {
        let asked = (&self.input(), is_navigation(&self.request.fields));
        DiskLookup::new(directory, asked, ruled, (turn.now, turn.unix), &turn.steps)
    }
}
