//! What all connections of a worker use in their turns.

use std::collections::VecDeque;
use std::rc::Rc;

use gannet_content::rules::pattern::Scheme;
use gannet_http::semantics::date::DateLine;
use gannet_io::driver::{Driver, Listener, Nanos};

use super::delay::Delays;
use super::settings::WorkerSettings;
use super::timers::Wheel;
use super::token::{Kind, token};
use super::waiters::Waiters;
use crate::connection::ConnId;
use crate::connection::tails::Tails;
use crate::exchange::answering::Turn;
use crate::exchange::first_reads::FirstReads;
use crate::exchange::listing::Listing;
use crate::exchange::loading::Loading;
use crate::exchange::outgoing::Outgoing;
use crate::exchange::pump::Pump;
use crate::exchange::shortage::Shortage;
use crate::observe::log::LogSink;
use crate::observe::metrics::Counters;
use crate::release::opened::Opened;
use crate::release::{Release, Site};
use crate::start::ALT_SVC;
use crate::tls::certificates::Adopted;
use crate::worker::ledger::{Budget, Ledger};

/// See the module's description. Nothing in here belongs to one connection.
pub(crate) struct Shared<D: Driver> {
    pub(crate) driver: D,
    pub(crate) settings: WorkerSettings,
    /// Who may wait for something.
    pub(crate) waiters: Waiters,
    pub(crate) wheel: Wheel,
    /// What is served now.
    pub(crate) release: Rc<Release>,
    pub(crate) counters: Counters,
    pub(crate) log: LogSink,
    pub(crate) date: DateLine,
    /// Where decoded paths are put together.
    pub(crate) scratch: Vec<u8>,
    /// Where the fields of HTTP/2's requests are put together.
    pub(crate) stream_fields: Vec<u8>,
    /// A buffer that the last pump did not need.
    pub(crate) spare: Vec<u8>,
    /// Where received records are opened.
    pub(crate) plain: Vec<u8>,
    /// The certificates in use.
    pub(crate) certificates: Option<Adopted>,
    /// Connections whose ClientHello is deferred: the budget of a turn was used up.
    pub(crate) hellos: VecDeque<ConnId>,
    /// What may still be done in this turn.
    pub(crate) budget: Budget,
    /// What several connections make this worker hold.
    pub(crate) ledger: Ledger,
    /// Content that is to be read for the first time.
    pub(crate) first_reads: FirstReads,
    /// Requests for whose lookup something was short.
    pub(crate) shortage: Shortage,
    /// Connections that have ended since the disk's threads were last told whom nobody waits for.
    pub(crate) ended: u32,
    /// Bodies on their way into memory.
    pub(crate) loading: Loading,
    /// Listings of directories.
    pub(crate) listing: Listing,
    /// Accepting ended for lack of descriptors; these listeners start again when one is free.
    pub(crate) starved: Vec<Listener>,
    /// When that is tried again at the latest.
    pub(crate) accept_at: Option<Nanos>,
    /// The ends of long live files that wait for their peers.
    pub(crate) tails: Tails,
    /// Set by a stop: when the grace period is over.
    pub(crate) stop_at: Option<Nanos>,
    /// What has arrived and is looked at later.
    pub(crate) delays: Delays,
}

impl<D: Driver> Shared<D> {
    /// Whether there is something to do that no completion will announce.
    pub(crate) fn has_deferred_work(&self) -> bool {
        !self.hellos.is_empty()
            || self.loading.is_due()
            || self.listing.is_due()
            || self.first_reads.is_due()
    }

    /// An empty send, with a buffer that was used before.
    pub(crate) fn outgoing(&mut self) -> Outgoing {
        let spare = std::mem::take(&mut self.spare);
        Outgoing::new(if spare.capacity() == 0 {
            self.driver.output()
        } else {
            spare
        })
    }

    /// Keeps a buffer for the next pump.
    pub(crate) fn keep_spare(&mut self, mut used: Vec<u8>) {
        if self.spare.capacity() == 0 {
            used.clear();
            self.spare = used;
        }
    }

    /// What answers the requests of a connection in this turn, from the release that is served now;
    /// one that has waited, from its own.
    pub(crate) fn pump<'a>(
        &'a mut self,
        is_secure: bool,
        own: Option<&'a Rc<Release>>,
    ) -> Pump<'a, D> {
        let mut pump = match is_secure {
            true => self.pump_of(Scheme::Https, own),
            false => self.pump_of(Scheme::Http, own),
        };
        if let Some(value) = &pump.release.policy.alt_svc
            && is_secure
        {
            pump.turn.fields.push((ALT_SVC, value.as_bytes()));
        }
        pump
    }

    /// The same for HTTP/3, which needs not be told where it is.
    pub(crate) fn pump_h3<'a>(&'a mut self, own: Option<&'a Rc<Release>>) -> Pump<'a, D> {
        self.pump_of(Scheme::Https, own)
    }

    fn pump_of<'a>(&'a mut self, scheme: Scheme, own: Option<&'a Rc<Release>>) -> Pump<'a, D> {
        let release = own.unwrap_or(&self.release);
        let policy = &*release.policy;
        let fields = match scheme {
            Scheme::Https => &policy.secure_fields,
            Scheme::Http => &policy.fields,
        };
        let fields = fields.iter();
        let fields = fields.map(|(name, value)| (name.as_str(), value.as_bytes()));
        Pump {
            release,
            turn: Turn {
                date_line: self.date.as_bytes(),
                unix: self.driver.unix_seconds(),
                now: self.driver.now(),
                secret: &self.settings.secret,
                fields: fields.collect(),
                scheme,
                redirect: self.settings.redirect,
                defaults: &policy.own,
            },
            driver: &self.driver,
            counters: &mut self.counters,
            scratch: &mut self.scratch,
            stream_fields: &mut self.stream_fields,
            is_logging: self.log.is_on(),
        }
    }

    /// Serves this from now on. Requests that wait go on with the release that they began with.
    pub(crate) fn serve(&mut self, opened: &Opened) {
        let next = Release::new(opened, self.settings.number, Some(&self.release));
        for site in self.release.gone(&next) {
            match site {
                Site::Archive(archive) => archive.bodies.retire(),
                Site::Directory(directory) => {
                    directory.retire();
                    self.listing.forget_site(directory);
                }
            }
        }
        self.ledger.set_cache_memory(next.cache_memory);
        self.release = Rc::new(next);
    }

    /// Tries again to accept where that failed before.
    pub(crate) fn accept_again(&mut self) {
        self.accept_at = None;
        for listener in std::mem::take(&mut self.starved) {
            self.accept(listener);
        }
    }

    /// Has a listener accept connections.
    pub(crate) fn accept(&mut self, listener: Listener) {
        let token = token(Kind::Accept, listener.0);
        self.driver.accept(listener, token);
    }
}
