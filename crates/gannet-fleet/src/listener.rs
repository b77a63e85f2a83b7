//! Takes connections of publishers for a [receiver](Receiver), each on a thread of its own.
//!
//! ```text
//! accept ─▶ a place of PUBLISHERS_MAX ─▶ TLS ─▶ request ─▶ pointer │ ─▶ conversation
//!              the oldest before the line gives way                │   a refusal while another uploads
//! ```
//!
//! It makes no connections. What a client without the key can have it do ends at the line.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::error::FleetError;
use crate::identity::Identity;
use crate::limits::{ACCEPT_PAUSE, PUBLISHER_STACK, PUBLISHERS_MAX, REFUSALS_REPORTED};
use crate::opening;
use crate::paced::{Bounds, Paced};
use crate::receiver::{Received, Receiver, is_of_connection};

/// A receiver, and how it is reached.
#[derive(Debug)]
pub struct Listener {
    /// What it does with a publisher.
    pub receiver: Receiver,
    /// Its certificates; without any, connections are in clear text.
    pub identity: Identity,
    /// How long publishers are waited for.
    pub bounds: Bounds,
    /// Publishers at the same time.
    pub most: usize,
    /// The time, in Unix seconds.
    pub now: fn() -> u64,
}

/// What has happened, for the log.
#[derive(Debug)]
pub enum Report {
    /// A conversation has ended.
    Received(Received),
    /// A publisher with the key was refused, or left.
    Refused(FleetError),
    /// A client without a good pointer was refused, or the certificate cannot be used. Each cause is
    /// reported once until a release is received.
    Unknown(FleetError),
}

impl Listener {
    /// A listener with the usual bounds.
    #[must_use]
    pub fn new(receiver: Receiver, identity: Identity, now: fn() -> u64) -> Self {
        Self {
            receiver,
            identity,
            bounds: Bounds::default(),
            most: PUBLISHERS_MAX,
            now,
        }
    }

    /// Takes connections until the process ends.
    pub fn run(&self, socket: &TcpListener, report: &(dyn Fn(Report) + Sync)) -> ! {
        let places = Places::default();
        let reports = Reports {
            report,
            known: Mutex::default(),
        };
        let (places, reports) = (&places, &reports);
        thread::scope(|scope| {
            loop {
                let Ok((connection, _)) = socket.accept() else {
                    thread::sleep(ACCEPT_PAUSE);
                    continue;
                };
                let Some(place) = places.take(&connection, self.most) else {
                    continue;
                };
                let builder = thread::Builder::new().stack_size(PUBLISHER_STACK);
                let attend = move || self.attend(connection, &place, reports);
                // Without a thread the connection ends.
                let _ = builder.spawn_scoped(scope, attend);
            }
        })
    }

    fn attend(&self, connection: TcpStream, place: &Place<'_>, reports: &Reports<'_>) {
        // It only makes lines later.
        let _ = connection.set_nodelay(true);
        let Ok(local) = connection.local_addr() else {
            return;
        };
        let mut paced = Paced::new(connection, self.bounds);
        if self.identity.is_empty() {
            return self.talk(&mut paced, Paced::know, place, reports);
        }
        match self.identity.accept(paced, local.ip()) {
            Ok(mut stream) => self.talk(&mut stream, |it| it.sock.know(), place, reports),
            Err(Some(error)) => reports.unknown(error),
            Err(None) => {}
        }
    }

    fn talk<S: Read + Write>(
        &self,
        stream: &mut S,
        know: impl FnOnce(&mut S),
        place: &Place<'_>,
        reports: &Reports<'_>,
    ) {
        if opening::accept(stream).is_err() {
            return;
        }
        let offer = match self.receiver.greet(stream) {
            Ok(offer) => offer,
            Err(error) if is_of_connection(&error) => return,
            Err(error) => return reports.unknown(error),
        };
        know(stream);
        place.know();
        let received = self.receiver.receive(offer, stream, (self.now)());
        reports.known(received);
    }
}

/// What was reported.
struct Reports<'r> {
    report: &'r (dyn Fn(Report) + Sync),
    /// Of clients without a good pointer.
    known: Mutex<Vec<String>>,
}

impl Reports<'_> {
    fn known(&self, received: Result<Received, FleetError>) {
        locked(&self.known).clear();
        (self.report)(match received {
            Ok(received) => Report::Received(received),
            Err(error) => Report::Refused(error),
        });
    }

    fn unknown(&self, error: FleetError) {
        let mut known = locked(&self.known);
        let text = error.to_string();
        if known.len() < REFUSALS_REPORTED && !known.contains(&text) {
            known.push(text);
            (self.report)(Report::Unknown(error));
        }
    }
}

/// The connections that have a thread, the oldest first.
#[derive(Default)]
struct Places {
    taken: Mutex<Vec<Taken>>,
    ended: Condvar,
}

struct Taken {
    connection: TcpStream,
    number: u64,
    state: State,
}

#[derive(Clone, Copy, Eq, PartialEq)]
enum State {
    /// It has shown nothing yet.
    Unknown,
    /// It has shown a good pointer.
    Known,
    /// It has to make room for another one.
    Ending,
}

impl Places {
    /// Takes a place for a connection; `None` if all have shown a good pointer.
    fn take(&self, connection: &TcpStream, most: usize) -> Option<Place<'_>> {
        let mut clone = connection.try_clone().ok();
        let mut taken = locked(&self.taken);
        while taken.len() >= most {
            if taken.iter().all(|it| it.state != State::Ending) {
                let oldest = taken.iter_mut().find(|it| it.state == State::Unknown)?;
                oldest.state = State::Ending;
                // Its thread learns of it by this.
                let _ = oldest.connection.shutdown(Shutdown::Both);
            }
            let ended = self.ended.wait(taken);
            taken = ended.unwrap_or_else(PoisonError::into_inner);
        }
        let number = taken.last().map_or(0, |it| it.number + 1);
        taken.push(Taken {
            connection: clone.take()?,
            number,
            state: State::Unknown,
        });
        Some(Place {
            places: self,
            number,
        })
    }
}

/// A place, which is free again when this is dropped.
struct Place<'p> {
    places: &'p Places,
    number: u64,
}

impl Place<'_> {
    fn know(&self) {
        let mut taken = locked(&self.places.taken);
        let own = taken.iter_mut().find(|it| it.number == self.number);
        if let Some(own) = own.filter(|it| it.state == State::Unknown) {
            own.state = State::Known;
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        locked(&self.places.taken).retain(|it| it.number != self.number);
        self.places.ended.notify_all();
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
