//! HTTP/1: takes requests from received bytes, one after the other, and answers each until one has to
//! wait.

use std::ops::Range;

use gannet_http::h1::{self, Event};
use gannet_http::semantics::date::DATE_LINE_LEN;
use gannet_http::semantics::request::Version;
use gannet_http::semantics::response::ResponseHead;
use gannet_io::driver::{Driver, Nanos};

use super::Conn;
use crate::bounds::limits::ENCRYPTED_GATHERED_MAX;
use crate::exchange::answering::Reply;
use crate::exchange::outgoing::Outgoing;
use crate::exchange::waiting::WaitingRequest;
use crate::exchange::workbench::{Arrival, Workbench};
use crate::release::Source;

/// Why a connection takes no further request.
pub(crate) enum Stop {
    /// All input is used up, or the rest is not a complete request.
    NeedInput,
    /// The gathered responses have to be sent first.
    Full,
    /// This request has to wait for the disk, or for a body to be loaded.
    Wait(Box<WaitingRequest>),
    /// The last response was written. All remaining input was discarded.
    Closing,
}

/// The next response of the connection.
impl Reply for h1::Connection {
    fn version(&self) -> Version {
        Version::Http11
    }

    fn head(
        &mut self,
        head: &ResponseHead<'_>,
        date_line: &[u8; DATE_LINE_LEN],
        _len: u64,
        out: &mut Outgoing,
    ) -> bool {
        self.respond(head, date_line, out.wire())
    }

    fn content(&mut self, source: Source<'_>, range: Range<u64>, _now: Nanos, out: &mut Outgoing) {
        out.content(source, range);
    }
}

impl Conn {
    /// Answers the requests in `input`. Returns the number of bytes used, and why it stopped.
    pub(super) fn run_requests<D: Driver>(
        &mut self,
        bench: &mut Workbench<'_, D>,
        input: &[u8],
        out: &mut Outgoing,
    ) -> (usize, Stop) {
        let (is_secure, is_early) = (self.is_secure(), self.is_early());
        let mut used = 0;
        loop {
            let Some(http1) = self.protocol.http1() else {
                debug_assert!(false, "it speaks another version");
                return (input.len(), Stop::Closing);
            };
            if self.intake.is_closed() {
                // A plain close would reset a peer that is still sending.
                self.linger |= used < input.len();
                return (input.len(), Stop::Closing);
            }
            // Encrypted responses are copied, and held until the peer accepts them.
            let is_copied = is_secure && out.len() >= ENCRYPTED_GATHERED_MAX;
            if out.is_full() || is_copied {
                return (used, Stop::Full);
            }
            let step = http1.machine.receive(&input[used..]);
            used += step.consumed;
            match step.event {
                Event::NeedMore => return (used, Stop::NeedInput),
                Event::Dropped => {}
                Event::Request(request) => {
                    let arrival = Arrival {
                        redirects: http1.redirects,
                        is_early,
                        client: self.client.as_deref(),
                    };
                    match bench.answer(&mut http1.machine, &request, (arrival, 0), out) {
                        Ok(record) => self.note(record),
                        Err(waiting) => return (used, Stop::Wait(waiting)),
                    }
                }
                Event::Reject(rejection) => {
                    let why = (rejection.status, rejection.why.name());
                    let record = bench.reject(&mut http1.machine, why, out);
                    self.note(record);
                }
                Event::Closing => self.close_intake(),
            }
            self.close_with_machine();
        }
    }
}
