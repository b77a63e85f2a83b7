//! The main path: answers requests of any version that need only memory, and makes the others wait.

use std::rc::Rc;
use std::sync::Arc;

use gannet_content::rules::pattern::Scheme;
use gannet_content::rules::steps::Steps;
use gannet_http::semantics::request::Request;
use gannet_http::semantics::response::Status;
use gannet_http::semantics::target_path::{CanonicalPath, PathError, decode_path};

use gannet_io::driver::{Driver, Nanos};

use crate::clients::forwarded::Conflict;
use crate::clients::{self, Client, Clients, ForwardedClient};
use crate::exchange::answering::{Answering, Reply, Turn};
use crate::exchange::fetching::Fetching;
use crate::exchange::outgoing::Outgoing;
use crate::exchange::timing::Timing;
use crate::exchange::waiting::{Found, WaitingRequest, Waits};
use crate::observe::log::LogSink;
use crate::observe::metrics::Counters;
use crate::observe::record::Answered;
use crate::observe::record::{Logged, Record};
use crate::passwords::PasswordCache;
use crate::passwords::checker::Checked;
use crate::release::access;
use crate::release::error_pages::ErrorPages;
use crate::release::rules::{RequestRules, rule_input};
use crate::release::{NO_SITE, NoSite, Release, RequestView};

/// What answers of a turn are made with, besides the connection.
pub(crate) struct Workbench<'a, D> {
    pub(crate) release: &'a Rc<Release>,
    pub(crate) driver: &'a D,
    pub(crate) turn: Turn<'a>,
    pub(crate) counters: &'a mut Counters,
    /// Buffer for decoded paths.
    pub(crate) scratch: &'a mut Vec<u8>,
    /// Buffer for the fields of HTTP/2 and HTTP/3 requests.
    pub(crate) stream_fields: &'a mut Vec<u8>,
    pub(crate) log: &'a mut LogSink,
    /// Responses have records until they end.
    pub(crate) is_recording: bool,
    /// The number of the site that answers the request in progress.
    pub(crate) site: usize,
    /// Rules about clients.
    pub(crate) clients: Option<&'a Clients>,
    /// Parts of releases on demand.
    pub(crate) fetching: &'a mut Fetching,
    /// Passwords that were right.
    pub(crate) passwords: &'a PasswordCache,
    /// What a trusted proxy has sent about the request in progress.
    pub(crate) forwarded: Option<ForwardedClient>,
}

impl<D: Driver> Workbench<'_, D> {
    /// Answers one request, and makes its record if it needs one.
    ///
    /// # Errors
    /// It has to wait, and may: so many `others` of its connection do.
    #[inline]
    pub(crate) fn answer(
        &mut self,
        reply: &mut dyn Reply,
        request: &Request<'_>,
        (arrival, others): (Arrival<'_>, usize),
        out: &mut Outgoing,
    ) -> Result<Option<Record>, Box<WaitingRequest>> {
        match self.admit(reply, request, arrival, out) {
            Ok(answered) => Ok(self.done(request, answered, self.turn.now)),
            Err(waiting) if waiting.may_wait(others) => Err(waiting),
            Err(refused) => Ok(self.turn_away(reply, &refused, out)),
        }
    }

    /// Counts a response, and makes its record if it needs one. Its request's head was complete at
    /// `began`.
    #[inline]
    fn done(&mut self, request: &Request<'_>, answered: Answered, began: Nanos) -> Option<Record> {
        self.counters.response(answered.status.0);
        self.counters.rule_steps += u64::from(self.turn.steps.taken());
        match self.forwarded.is_some() || self.is_recording {
            true => self.recorded(request, answered, began),
            false => None,
        }
    }

    #[inline(never)]
    fn recorded(
        &mut self,
        request: &Request<'_>,
        answered: Answered,
        began: Nanos,
    ) -> Option<Record> {
        let forwarded = self.forwarded.take();
        if let (Some(clients), Some(forwarded)) = (self.clients, &forwarded) {
            clients.charge_response(forwarded.place, answered.body_len, self.turn.now);
        }
        if !self.is_recording {
            return None;
        }
        let is_logged = self.log.takes(answered.status);
        let asked = Request {
            authority: forwarded
                .as_ref()
                .and_then(|it| it.authority.as_deref())
                .or(request.authority),
            ..*request
        };
        let scheme = forwarded.as_ref().map_or(self.turn.scheme, |it| it.scheme);
        let needed = self.log.needed();
        let mut logged = is_logged.then(|| Box::new(Logged::new(&asked, scheme, needed)));
        if let (Some(logged), Some(forwarded)) = (&mut logged, forwarded) {
            logged.client = forwarded.name;
            logged.request_len = request.head_len();
        }
        let site = self.release.label(self.site);
        Some(Record::new(request, answered, began, site, logged))
    }

    /// Answers a request that had to wait, and returns its record if it needs one.
    ///
    /// # Errors
    /// It waited for its password, which is right, or for its site, which is open, and has to wait for
    /// something else.
    pub(crate) fn answer_waiting(
        &mut self,
        reply: &mut dyn Reply,
        waiting: &WaitingRequest,
        found: Found,
        out: &mut Outgoing,
    ) -> Result<Option<Record>, Box<WaitingRequest>> {
        self.forwarded = waiting.forwarded().cloned();
        self.site = waiting.site();
        self.turn.steps.resume(waiting.steps_left());
        let request = waiting.request();
        self.over_scheme(waiting.forwarded().map(|it| it.scheme), |bench| {
            let answered = match found {
                Found::Password(Checked::Right) | Found::Site(Ok(())) => {
                    // Whatever matters of the connection was considered before the request waited.
                    let arrival = Arrival {
                        redirects: false,
                        is_early: false,
                        client: None,
                    };
                    let answered = bench.request(reply, &request, arrival, out);
                    answered.map_err(|mut next| {
                        next.keep(bench.forwarded.take());
                        next.began_with(waiting);
                        next
                    })?
                }
                found => {
                    if let Some(timing) = &mut bench.turn.timing
                        && !matches!(found, Found::Password(_))
                    {
                        *timing = Timing::Waited(bench.turn.now.0 - waiting.began().0);
                    }
                    let answered = waiting.answer(&request, reply, &bench.turn, found, out);
                    // A lookup has counted its steps by itself.
                    let left = bench.turn.steps.left().min(waiting.steps_left());
                    bench.turn.steps.resume(left);
                    answered
                }
            };
            Ok(bench.done(&request, answered, waiting.began()))
        })
    }

    /// Answers a request that would have to wait, while too many others do.
    #[cold]
    fn turn_away(
        &mut self,
        reply: &mut dyn Reply,
        kept: &WaitingRequest,
        out: &mut Outgoing,
    ) -> Option<Record> {
        self.counters.turned_away(kept.awaited());
        self.forwarded = kept.forwarded().cloned();
        let request = &kept.request();
        let answered = self.over_scheme(kept.forwarded().map(|it| it.scheme), |bench| {
            bench
                .refusing(reply, request, out)
                .error(Status::SERVICE_UNAVAILABLE, None)
        });
        self.done(request, answered, self.turn.now)
    }

    /// Answers as over the scheme that a trusted proxy has named.
    fn over_scheme<T>(&mut self, scheme: Option<Scheme>, answer: impl FnOnce(&mut Self) -> T) -> T {
        let release = self.release;
        let scheme = scheme.unwrap_or(self.turn.scheme);
        let before = self.turn.sent_by(scheme, &release.policy);
        let result = answer(self);
        if let Some((scheme, fields)) = before {
            (self.turn.scheme, self.turn.fields) = (scheme, fields);
        }
        result
    }

    /// To answer a request with an error before its site is asked: with that site's pages, and the security
    /// policies that its rules have for the path.
    #[cold]
    fn refusing<'o>(
        &'o mut self,
        reply: &'o mut dyn Reply,
        request: &Request<'o>,
        out: &'o mut Outgoing,
    ) -> Answering<'o> {
        let path = decode_path(request.target.path, self.scratch);
        let mut to = Answering::new(reply, &self.turn, out);
        to.pages = pages_of(self.release, request, path);
        let ruling = ruling_of(self.release, &self.turn, request, path);
        to.ruling = ruling.map(RequestRules::for_stranger);
        to
    }

    /// Answers a request that is none, with the same result; `why` is for the log.
    pub(crate) fn reject(
        &mut self,
        reply: &mut dyn Reply,
        (status, why): (Status, &'static str),
        out: &mut Outgoing,
    ) -> Option<Record> {
        let version = reply.version();
        let mut to = Answering::new(reply, &self.turn, out);
        let answered = to.error(status, None);
        self.counters.rejection(answered.status.0);
        let logged = self.log.takes(answered.status).then_some(why);
        let logged = (self.turn.scheme, logged);
        self.is_recording
            .then(|| Record::rejected(version, answered, self.turn.now, logged))
    }

    /// Answers one request of a client, or returns it if it has to wait.
    #[inline]
    fn admit(
        &mut self,
        reply: &mut dyn Reply,
        request: &Request<'_>,
        arrival: Arrival<'_>,
        out: &mut Outgoing,
    ) -> Result<Answered, Box<WaitingRequest>> {
        self.site = NO_SITE;
        self.turn.steps = Steps::default();
        match arrival.client {
            Some(client) if client.is_checked => {
                self.admit_checked(reply, request, client, arrival, out)
            }
            _ => self.request(reply, request, arrival, out),
        }
    }

    /// The same for a client with limits, or for a trusted proxy: as the proxy's client has sent the
    /// request.
    #[cold]
    fn admit_checked(
        &mut self,
        reply: &mut dyn Reply,
        request: &Request<'_>,
        client: &Client,
        arrival: Arrival<'_>,
        out: &mut Outgoing,
    ) -> Result<Answered, Box<WaitingRequest>> {
        let forwarded = client.forwarded(&request.fields);
        let (verdict, place) = match &forwarded {
            Ok(forwarded) => client.judge(forwarded, self.turn.now, &mut self.counters.clients),
            Err(Conflict) => {
                self.counters.clients.conflicting += 1;
                (clients::Verdict::Conflict, None)
            }
        };
        let forwarded = forwarded.unwrap_or_default();
        if client.is_trusted {
            let logged = Some(&forwarded).filter(|_| self.log.is_on());
            self.forwarded = Some(ForwardedClient {
                name: logged.and_then(|it| Some(it.client?.to_string().into())),
                authority: logged.and_then(|it| Some(it.authority?.into())),
                scheme: forwarded.scheme.unwrap_or(self.turn.scheme),
                place,
            });
        }
        let request = &Request {
            authority: forwarded.authority.or(request.authority),
            ..*request
        };
        self.over_scheme(forwarded.scheme, |bench| {
            if verdict == clients::Verdict::Answer {
                let arrival = Arrival {
                    redirects: arrival.redirects && forwarded.scheme != Some(Scheme::Https),
                    ..arrival
                };
                let result = bench.request(reply, request, arrival, out);
                return result.map_err(|mut waiting| {
                    waiting.keep(bench.forwarded.take());
                    waiting
                });
            }
            let mut to = bench.refusing(reply, request, out);
            Ok(match verdict {
                clients::Verdict::Answer | clients::Verdict::Conflict => {
                    to.error(Status::BAD_REQUEST, None)
                }
                clients::Verdict::TooEarly => to.error(Status::TOO_EARLY, None),
                clients::Verdict::Denied => to.error(Status::FORBIDDEN, None),
                clients::Verdict::TooManyRequests(ns) | clients::Verdict::TooManyBytes(ns) => {
                    to.too_many(ns)
                }
            })
        })
    }

    /// Answers one request, or returns it if it has to wait.
    fn request(
        &mut self,
        reply: &mut dyn Reply,
        request: &Request<'_>,
        arrival: Arrival<'_>,
        out: &mut Outgoing,
    ) -> Result<Answered, Box<WaitingRequest>> {
        let release = self.release;
        let path = decode_path(request.target.path, self.scratch);
        let mut to = Answering::new(reply, &self.turn, out);
        let is_usual =
            self.turn.defaults.first.is_none() && !arrival.redirects && request.is_for_content();
        let path = match path {
            Ok(path) if is_usual => path.as_bytes(),
            path => match to.before_sites(release, request, path, arrival) {
                Ok(path) => path.as_bytes(),
                Err(answered) => return Ok(answered),
            },
        };
        let view = |site| RequestView {
            request,
            path: &path[release.prefix(site).len()..],
            scheme: self.turn.scheme,
            fields: &self.turn.fields,
            release,
            steps: &self.turn.steps,
            site,
        };
        match release.number(request.authority, path) {
            Ok(number) => {
                self.site = number;
                release.note_use(number);
                let with = (self.passwords, &mut *self.counters, &mut *self.fetching);
                view(number).find(&mut to, self.driver, with)
            }
            Err(NoSite::Unknown(status)) => Ok(to.error(status, None)),
            Err(NoSite::Unopened(host)) => {
                view(NO_SITE).wait(Waits::Site(Arc::clone(host), false), &self.turn)
            }
        }
    }
}

/// What decoding the path of a request has given.
pub(super) type Decoded<'a> = Result<CanonicalPath<'a>, PathError>;

/// How a request has arrived, as far as its answer depends on that.
#[derive(Clone, Copy)]
pub(crate) struct Arrival<'a> {
    /// All are redirected to the same URL under `https`.
    pub(crate) redirects: bool,
    /// They arrived in TLS early data, so they may be replays.
    pub(crate) is_early: bool,
    /// Who has sent them, if that matters.
    pub(crate) client: Option<&'a Client>,
}

/// The error pages of the site that a request is for.
#[cold]
pub(super) fn pages_of<'r>(
    release: &'r Release,
    request: &Request<'_>,
    path: Decoded<'_>,
) -> Option<&'r ErrorPages> {
    let path = path.unwrap_or(CanonicalPath::ROOT).as_bytes();
    let number = release.number(request.authority, path).ok()?;
    release.site(number).rules()?.pages()
}

/// The rules of the site that a request is for, at the requested path, for a client that has proved nothing.
#[cold]
pub(super) fn ruling_of<'r>(
    release: &'r Release,
    turn: &'r Turn<'_>,
    request: &Request<'r>,
    path: Decoded<'r>,
) -> Option<RequestRules<'r>> {
    let path = path.ok()?.as_bytes();
    let number = release.number(request.authority, path).ok()?;
    let prefix = release.prefix(number);
    let path = &path[prefix.len()..];
    let rules = release.site(number).rules()?;
    let input = rule_input(turn.scheme, request, (prefix, path));
    let ruling = RequestRules::new(rules, input, &turn.steps);
    Some(
        match access::lists((release, number), Some(rules), path, &turn.steps) {
            Some(_) => ruling.for_stranger(),
            None => ruling,
        },
    )
}
