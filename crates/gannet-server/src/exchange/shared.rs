//! State that all connections of a worker use in their turns.

use std::collections::VecDeque;
use std::rc::Rc;

use gannet_content::rules::pattern::Scheme;
use gannet_content::rules::steps::Steps;
use gannet_http::semantics::date::DateLine;
use gannet_io::driver::{Driver, Listener, Nanos};

use crate::bounds::ledger::{Budget, Ledger};
use crate::clients::Client;
use crate::exchange::answering::Turn;
use crate::exchange::fetching::Fetching;
use crate::exchange::first_reads::FirstReads;
use crate::exchange::listing::Listing;
use crate::exchange::loading::Loading;
use crate::exchange::outgoing::Outgoing;
use crate::exchange::shortage::Shortage;
use crate::exchange::surveying::Surveying;
use crate::exchange::timing::Timing;
use crate::exchange::unopened::Unopened;
use crate::exchange::waiters::{Line, Waiters};
use crate::exchange::workbench::Workbench;
use crate::ground::delay::Delays;
use crate::ground::held_hellos::HeldHellos;
use crate::ground::settings::WorkerSettings;
use crate::ground::tails::Tails;
use crate::ground::timers::Wheel;
use crate::ground::token::ConnId;
use crate::ground::token::{Kind, token};
use crate::ground::turns::Turns;
use crate::observe::log::{ClientName, LogSink};
use crate::observe::metrics::Counters;
use crate::observe::record::{End, Record};
use crate::passwords::PasswordCache;
use crate::release::opened::Opened;
use crate::release::own_fields::ALT_SVC;
use crate::release::{NO_SITE, Release, Site};
use crate::tls::alert::Alert;
use crate::tls::certificates::Adopted;

/// See the module documentation. Nothing here belongs to a single connection.
pub(crate) struct Shared<D: Driver> {
    pub(crate) driver: D,
    pub(crate) settings: WorkerSettings,
    /// Connections and streams that may wait for a result.
    pub(crate) waiters: Waiters,
    pub(crate) wheel: Wheel,
    /// The release served now.
    pub(crate) release: Rc<Release>,
    pub(crate) counters: Counters,
    pub(crate) log: LogSink,
    pub(crate) date: DateLine,
    /// Buffer for decoded paths.
    pub(crate) scratch: Vec<u8>,
    /// Buffer for the fields of HTTP/2 and HTTP/3 requests.
    pub(crate) stream_fields: Vec<u8>,
    /// A buffer left over from the last workbench.
    pub(crate) spare: Vec<u8>,
    /// Buffer for decrypted records.
    pub(crate) plain: Vec<u8>,
    /// The certificates in use.
    pub(crate) certificates: Option<Adopted>,
    /// Connections whose ClientHello is deferred: the turn's handshake budget was used up.
    pub(crate) hellos: VecDeque<ConnId>,
    /// Connections whose handshakes wait for a certificate that is coming.
    pub(crate) held_hellos: HeldHellos,
    /// Work still allowed in this turn.
    pub(crate) budget: Budget,
    /// Memory held on behalf of several connections.
    pub(crate) ledger: Ledger,
    /// Content waiting for its first read.
    pub(crate) first_reads: FirstReads,
    /// Responses that read again what they have sent.
    pub(crate) rereads: Line,
    /// Responses from files that are being written and not longer yet, and when they are looked at again.
    pub(crate) lengths: Line,
    pub(crate) look_at: Nanos,
    /// Long responses that wait for their turn.
    pub(crate) turns: Turns,
    /// Requests whose lookup found a resource exhausted.
    pub(crate) shortage: Shortage,
    /// Connections that have ended since their queued disk operations were last dropped.
    pub(crate) ended: u32,
    /// Parts of releases on demand that are being fetched.
    pub(crate) fetching: Fetching,
    /// Bodies being loaded into memory.
    pub(crate) loading: Loading,
    /// Listings of directories.
    pub(crate) listing: Listing,
    /// Names of folders being read.
    pub(crate) surveying: Surveying,
    /// Passwords that were right, and those being checked.
    pub(crate) passwords: PasswordCache,
    /// Requests that wait for their site to be opened.
    pub(crate) sites: Unopened,
    /// Listeners that stopped accepting for lack of descriptors; they resume when one is free.
    pub(crate) starved: Vec<Listener>,
    /// When accepting is retried at the latest.
    pub(crate) accept_at: Option<Nanos>,
    /// Tails of long live files that wait for acknowledgements.
    pub(crate) tails: Tails,
    /// End of the grace period, set by a stop.
    pub(crate) stop_at: Option<Nanos>,
    /// It stops because another process has taken its place, so that clients can be given time.
    pub(crate) is_handed_over: bool,
    /// Received input that is processed later.
    pub(crate) delays: Delays,
}

impl<D: Driver> Shared<D> {
    /// Whether there is work that no completion will announce.
    pub(crate) fn has_deferred_work(&self) -> bool {
        !self.hellos.is_empty()
            || self.loading.is_due()
            || self.listing.is_due()
            || self.first_reads.is_due()
            || !self.rereads.0.is_empty()
            || !self.turns.waiting.is_empty()
            || self.release.is_ageing()
    }

    /// An empty send, with a recycled buffer if there is one.
    pub(crate) fn outgoing(&mut self) -> Outgoing {
        let spare = std::mem::take(&mut self.spare);
        Outgoing::new(if spare.capacity() == 0 {
            self.driver.output()
        } else {
            spare
        })
    }

    /// Keeps a buffer for the next workbench.
    pub(crate) fn keep_spare(&mut self, mut used: Vec<u8>) {
        if self.spare.capacity() == 0 {
            used.clear();
            self.spare = used;
        }
    }

    /// The workbench for a connection's requests in this turn, on the current release; a request that
    /// has waited passes its own.
    pub(crate) fn workbench<'a>(
        &'a mut self,
        is_secure: bool,
        own: Option<&'a Rc<Release>>,
    ) -> Workbench<'a, D> {
        match is_secure {
            true => self.workbench_of(Scheme::Https, true, own),
            false => self.workbench_of(Scheme::Http, false, own),
        }
    }

    /// The same for HTTP/3, without `alt-svc`.
    pub(crate) fn workbench_h3<'a>(&'a mut self, own: Option<&'a Rc<Release>>) -> Workbench<'a, D> {
        self.workbench_of(Scheme::Https, false, own)
    }

    #[inline]
    fn workbench_of<'a>(
        &'a mut self,
        scheme: Scheme,
        has_alt_svc: bool,
        own: Option<&'a Rc<Release>>,
    ) -> Workbench<'a, D> {
        let is_recording = self.is_recording();
        let release = own.unwrap_or(&self.release);
        let policy = &*release.policy;
        let mut fields = policy.fields_of(scheme);
        if let Some(value) = &policy.alt_svc
            && has_alt_svc
        {
            fields.push((ALT_SVC, value.as_bytes()));
        }
        Workbench {
            release,
            turn: Turn {
                date_line: self.date.as_bytes(),
                unix: self.driver.unix_seconds(),
                now: self.driver.now(),
                secret: &self.settings.secret,
                fields,
                scheme,
                is_clear: scheme == Scheme::Http,
                redirect: self.settings.redirect,
                defaults: &policy.own,
                ledger: &self.ledger,
                timing: policy.server_timing.then_some(Timing::AtOnce),
                steps: Steps::default(),
            },
            driver: &self.driver,
            scratch: &mut self.scratch,
            stream_fields: &mut self.stream_fields,
            is_recording,
            log: &mut self.log,
            counters: &mut self.counters,
            site: NO_SITE,
            clients: self.settings.clients.as_deref(),
            fetching: &mut self.fetching,
            passwords: &self.passwords,
            forwarded: None,
        }
    }

    /// Serves this release from now on. Waiting requests continue with the release that they began
    /// with.
    pub(crate) fn serve(&mut self, opened: &Opened) {
        let measures = self.counters.measures.as_deref_mut();
        let next = Release::new(opened, self.settings.number, Some(&self.release), measures);
        for site in self.release.gone(&next) {
            match site {
                Site::Archive(archive) => archive.current.bodies.retire(),
                Site::Directory(directory) => {
                    directory.retire();
                    self.listing.forget_site(directory);
                }
            }
        }
        if self.settings.number == 0 {
            self.counters.archive_copied = opened.copied_len();
        }
        let directories = next.directory_count();
        let long_max = next.long_max();
        self.ledger
            .set_release(next.cache_memory, directories, long_max);
        let is_less = next.cache_memory < self.release.cache_memory;
        self.release = Rc::new(next);
        // With less room they make it before anything else takes it; otherwise in the next turns.
        while is_less && self.release.is_ageing() {
            self.release.fit_caches(&mut self.driver);
        }
    }

    /// Whether responses have records until they end: for the log, or to be measured.
    pub(crate) fn is_recording(&self) -> bool {
        self.log.is_on() || self.counters.measures.is_some()
    }

    /// Whether it matters who the client of a connection is.
    pub(crate) fn knows_clients(&self) -> bool {
        self.log.is_on() || self.settings.clients.is_some() || self.fetching.is_on()
    }

    /// Notes whom a connection counts for.
    pub(crate) fn note_client(&mut self, id: ConnId, client: &Client) {
        if self.fetching.is_on() {
            match client.key_validated() {
                Some(key) => self.fetching.clients.insert(id, key),
                None => self.fetching.clients.remove(&id),
            };
        }
    }

    /// Logs and measures a response that ends now.
    pub(crate) fn record_ended(&mut self, record: &Record, client: ClientName<'_>, end: End) {
        let now = self.driver.now();
        if let Some(measures) = &mut self.counters.measures {
            measures.response(&record.measured(), now);
        }
        self.log
            .add(record, client, end, now, self.driver.unix_ms());
    }

    /// Whether clients are asked for certificates.
    pub(crate) fn asks_clients(&self) -> bool {
        let certificates = self.certificates.as_ref();
        certificates.is_some_and(Adopted::asks_clients)
    }

    /// Counts the certificate (DER) of a client whose handshake has completed, or that there is none
    /// although it was asked for one; and notes for the log who the client is.
    pub(crate) fn note_certificate(
        &mut self,
        certificate: Option<&[u8]>,
        client: Option<&mut Client>,
    ) {
        if !self.asks_clients() {
            return;
        }
        let Some(certificate) = certificate else {
            self.counters.tls.clients_missing += 1;
            return;
        };
        self.counters.tls.clients_accepted += 1;
        if let Some(client) = client
            && let Some(identity) = self.log.identity(certificate)
        {
            client.identify(identity);
        }
    }

    /// Counts a handshake that was ended with this alert, if the client's certificate is the reason.
    pub(crate) fn count_refused_client(&mut self, alert: Alert) {
        if !self.asks_clients() {
            return;
        }
        if alert == Alert::CERTIFICATE_REQUIRED {
            self.counters.tls.clients_missing += 1;
        } else if alert.is_about_certificate() {
            self.counters.tls.clients_refused += 1;
        }
    }

    /// Retries accepting on the listeners where it failed.
    pub(crate) fn accept_again(&mut self) {
        self.accept_at = None;
        for listener in std::mem::take(&mut self.starved) {
            self.accept(listener);
        }
    }

    /// Makes a listener accept connections.
    pub(crate) fn accept(&mut self, listener: Listener) {
        let token = token(Kind::Accept, listener.0);
        self.driver.accept(listener, token);
    }
}
