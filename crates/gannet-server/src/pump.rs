//! The heart: bytes in, requests answered, until something has to be waited for.

use gannet_content::answer;
use gannet_http::h1::{self, Event};
use gannet_http::semantics::coding::accept_encoding;
use gannet_http::semantics::fields::KnownField;
use gannet_http::semantics::request::{Method, Request, TargetForm};
use gannet_http::semantics::response::Status;
use gannet_http::semantics::target_path::{PathError, decode_path};

use gannet_io::driver::{Driver, Root};

use crate::conn::Conn;
use crate::log::Record;
use crate::metrics::Counters;
use crate::outgoing::Outgoing;
use crate::serve::{Answered, Answering, Turn};
use crate::site::{Resolved, Site, Wanted};

/// Why the pump stopped.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Stop {
    /// All input is used up, or what is left is not a whole request.
    NeedInput,
    /// The answers gathered have to be sent first.
    Full,
    /// The disk has to be asked on behalf of the last request, whose head is this many bytes and
    /// ends where the consumed input ends.
    AskDisk(usize),
}

/// What the pump works with besides the connection.
pub(crate) struct Pump<'a, D> {
    pub(crate) site: &'a mut Site,
    pub(crate) driver: &'a D,
    pub(crate) turn: &'a Turn<'a>,
    pub(crate) counters: &'a mut Counters,
    /// Where decoded paths are put together.
    pub(crate) scratch: &'a mut Vec<u8>,
    pub(crate) is_logging: bool,
}

impl<D: Driver> Pump<'_, D> {
    /// Answers the requests in `input`. Returns how many bytes were used, and why it stopped.
    pub(crate) fn run(
        &mut self,
        conn: &mut Conn,
        input: &[u8],
        out: &mut Outgoing,
    ) -> (usize, Stop) {
        let mut used = 0;
        loop {
            if out.is_full() || conn.closing {
                return (used, Stop::Full);
            }
            let step = conn.h1.receive(&input[used..]);
            used += step.consumed;
            match step.event {
                Event::NeedMore => return (used, Stop::NeedInput),
                Event::Request(request) => {
                    let answered = self.request(&mut conn.h1, &request, out);
                    match answered {
                        Some(answered) => self.done(conn, &request, answered),
                        None => return (used, Stop::AskDisk(step.consumed)),
                    }
                }
                Event::Reject(rejection) => {
                    self.counters.rejected += 1;
                    let mut to = Answering {
                        h1: &mut conn.h1,
                        turn: self.turn,
                        out,
                    };
                    let answered = to.error(rejection.status, None);
                    self.counters.response(answered.status.0);
                    if self.is_logging {
                        conn.work()
                            .records
                            .push(Record::rejected(answered, self.turn.now));
                    }
                }
                Event::Closing => conn.closing = true,
            }
            if conn.h1.is_closing() {
                conn.closing = true;
                conn.linger |= conn.h1.is_lingering();
            }
        }
    }

    /// Counts and notes an answer.
    pub(crate) fn done(&mut self, conn: &mut Conn, request: &Request<'_>, answered: Answered) {
        self.counters.response(answered.status.0);
        if self.is_logging {
            conn.work()
                .records
                .push(Record::new(request, answered, self.turn.now));
        }
    }

    /// Answers one request, or returns `None` if the disk has to be asked.
    fn request(
        &mut self,
        h1: &mut h1::Connection,
        request: &Request<'_>,
        out: &mut Outgoing,
    ) -> Option<Answered> {
        let mut to = Answering {
            h1,
            turn: self.turn,
            out,
        };
        match request.method {
            Method::Get | Method::Head => {}
            Method::Options => return Some(to.empty(Status::NO_CONTENT, None, Some(ALLOW))),
            Method::Other => return Some(to.error(Status::METHOD_NOT_ALLOWED, Some(ALLOW))),
        }
        if !matches!(
            request.target.form,
            TargetForm::Origin | TargetForm::Absolute
        ) {
            return Some(to.error(Status::BAD_REQUEST, None));
        }
        let path = match decode_path(request.target.path, self.scratch) {
            Ok(path) => path.as_bytes(),
            Err(PathError::TooLong) => return Some(to.error(Status::URI_TOO_LONG, None)),
            Err(_) => return Some(to.error(Status::BAD_REQUEST, None)),
        };
        let codings = accept_encoding(request.fields.lines(KnownField::AcceptEncoding));
        match self.site {
            Site::Archive(archive) => {
                let resolved = archive.resolve(Wanted { path, codings });
                Some(match resolved {
                    Resolved::Selected(selected) => to.selected(request, &selected),
                    Resolved::Redirect(location) => to.redirect(request, location),
                    Resolved::Error(status) => to.error(status, None),
                })
            }
            Site::Directory(directory) => {
                let peek = |root: &Root, path: &[u8]| self.driver.peek(root, path);
                let found = directory.lookup(path, self.turn.now, peek);
                let Some((cached, status)) = found else {
                    self.counters.cache_misses += 1;
                    return None;
                };
                self.counters.cache_hits += 1;
                Some(to.selected(request, &cached.select(codings, status)))
            }
        }
    }
}

/// The methods that every resource has.
const ALLOW: (&str, &[u8]) = ("allow", answer::ALLOW);
