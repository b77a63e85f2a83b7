//! Takes connections of publishers for a [receiver](Receiver), each on a thread of its own.
//!
//! ```text
//! accept ─▶ a place of PUBLISHERS_MAX ─▶ TLS ─▶ request ─▶ pointer │ ─▶ conversation
//!         of the client that has most, the oldest                  │   a refusal if another uploads and one waits
//!         before the line gives way
//! ```
//!
//! It makes no connections. What a client without the key can have it do ends at the line.

use std::cmp::Reverse;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, TcpListener, TcpStream};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::error::FleetError;
use crate::identity::Identity;
use crate::limits::{ACCEPT_PAUSE, PUBLISHER_STACK, PUBLISHERS_MAX, REFUSALS_REPORTED};
use crate::opening;
use crate::paced::{Bounds, Paced};
use crate::receiver::{Outcome, Received, Receiver, is_of_connection, is_of_store};

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
    /// A publisher with a good pointer was refused, or left; it may be one that has only seen that pointer. Each
    /// cause is reported once until a release comes into force, and so below.
    Refused(FleetError),
    /// A client without a good pointer was refused, or the certificate cannot be used.
    Unknown(FleetError),
}

/// What has happened, each time, for counters.
#[derive(Debug)]
pub enum Counted<'e> {
    /// A connection has come.
    Connection,
    /// There was no place for it.
    Crowded,
    /// The handshake of TLS has failed.
    Handshake,
    /// The certificate cannot be used.
    Certificate,
    /// It has asked for something else, or for nothing.
    Protocol,
    /// So many bytes came from a publisher with a good pointer.
    Bytes(u64),
    /// A conversation has ended.
    Received(&'e Received),
    /// A publisher was refused.
    Refused(&'e FleetError),
    /// It has left, or was too slow.
    Left,
}

/// Takes what is counted.
type Count<'c> = &'c (dyn Fn(Counted<'_>) + Sync);

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
    pub fn run(
        &self,
        socket: &TcpListener,
        report: &(dyn Fn(Report) + Sync),
        count: Count<'_>,
    ) -> ! {
        let places = Places::default();
        let reports = Reports {
            report,
            count,
            of_known: Mutex::default(),
            of_unknown: Mutex::default(),
        };
        let (places, reports) = (&places, &reports);
        thread::scope(|scope| {
            loop {
                let Ok((connection, _)) = socket.accept() else {
                    thread::sleep(ACCEPT_PAUSE);
                    continue;
                };
                count(Counted::Connection);
                let Some(place) = places.take(&connection, self.most) else {
                    count(Counted::Crowded);
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
            Err(error) => {
                (reports.count)(match error {
                    Some(_) => Counted::Certificate,
                    None => Counted::Handshake,
                });
                error.into_iter().for_each(|it| reports.unknown(it));
            }
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
            return (reports.count)(Counted::Protocol);
        }
        let offer = match self.receiver.greet(stream) {
            Ok(offer) => offer,
            Err(error) => {
                reports.refused(&error);
                if !is_of_connection(&error) {
                    reports.unknown(error);
                }
                return;
            }
        };
        know(stream);
        place.know(offer.serial());
        let count = reports.count;
        let mut metered = Metered { stream, count };
        let waiting = &place.places.waiting;
        let received = (self.receiver).receive(offer, &mut metered, (self.now)(), waiting);
        reports.known(received);
    }
}

/// A connection whose bytes are counted.
struct Metered<'m, S> {
    stream: &'m mut S,
    count: Count<'m>,
}

impl<S: Read> Read for Metered<'_, S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = self.stream.read(buffer)?;
        if len > 0 {
            (self.count)(Counted::Bytes(len as u64));
        }
        Ok(len)
    }
}

impl<S: Write> Write for Metered<'_, S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// What was reported.
struct Reports<'r> {
    report: &'r (dyn Fn(Report) + Sync),
    count: Count<'r>,
    /// Refusals of those with a good pointer.
    of_known: Mutex<Vec<String>>,
    /// Those of others.
    of_unknown: Mutex<Vec<String>>,
}

impl Reports<'_> {
    fn known(&self, received: Result<Received, FleetError>) {
        match received {
            Ok(received) => {
                (self.count)(Counted::Received(&received));
                // A client that has seen a pointer can show it, and bring its release, again and again.
                if received.outcome == Outcome::Activated {
                    locked(&self.of_known).clear();
                    locked(&self.of_unknown).clear();
                }
                (self.report)(Report::Received(received));
            }
            Err(error) => {
                self.refused(&error);
                self.once(&self.of_known, error, Report::Refused);
            }
        }
    }

    fn refused(&self, error: &FleetError) {
        (self.count)(match is_of_connection(error) {
            true => Counted::Left,
            false => Counted::Refused(error),
        });
    }

    fn unknown(&self, error: FleetError) {
        self.once(&self.of_unknown, error, Report::Unknown);
    }

    fn once(
        &self,
        reported: &Mutex<Vec<String>>,
        error: FleetError,
        refusal: fn(FleetError) -> Report,
    ) {
        let mut reported = locked(reported);
        let text = error.to_string();
        // Others leave room for them: by a report of one the process learns that its folder is another.
        let most = REFUSALS_REPORTED * (1 + usize::from(is_of_store(&error)));
        if reported.len() < most && !reported.contains(&text) {
            reported.push(text);
            (self.report)(refusal(error));
        }
    }
}

/// The connections that have a thread, the oldest first.
#[derive(Default)]
struct Places {
    taken: Mutex<Vec<Slot>>,
    ended: Condvar,
    /// Who waits for the store.
    waiting: Mutex<()>,
}

/// The place of one connection.
struct Slot {
    connection: TcpStream,
    client: Option<u128>,
    number: u64,
    state: State,
}

#[derive(Clone, Copy, Eq, PartialEq)]
enum State {
    /// It has shown nothing yet.
    Unknown,
    /// It has shown a good pointer, with this serial.
    Known(u64),
    /// It has to make room for another one.
    Ending,
    /// The same, for one with a higher serial than this one.
    Overtaken(u64),
}

impl Places {
    /// Takes a place for a connection; `None` if all have shown a good pointer.
    fn take(&self, connection: &TcpStream, most: usize) -> Option<Place<'_>> {
        let mut clone = connection.try_clone().ok();
        let mut taken = locked(&self.taken);
        while taken.len() >= most {
            if taken.iter().all(|it| it.state != State::Ending) {
                let one = leaving(&taken)?;
                taken[one].state = State::Ending;
                // Its thread learns of it by this.
                let _ = taken[one].connection.shutdown(Shutdown::Both);
            }
            let ended = self.ended.wait(taken);
            taken = ended.unwrap_or_else(PoisonError::into_inner);
        }
        let number = taken.last().map_or(0, |it| it.number + 1);
        taken.push(Slot {
            connection: clone.take()?,
            client: client(connection),
            number,
            state: State::Unknown,
        });
        Some(Place {
            places: self,
            number,
        })
    }
}

/// Which one makes room for another: of the client that has most, the oldest that has shown nothing. So one
/// address that opens connections without an end ends its own.
fn leaving(taken: &[Slot]) -> Option<usize> {
    let places = |client: Option<u128>| taken.iter().filter(|it| it.client == client).count();
    let unknown = taken.iter().enumerate();
    let unknown = unknown.filter(|(_, it)| it.state == State::Unknown);
    let leaving = unknown.max_by_key(|(at, it)| (places(it.client), Reverse(*at)));
    leaving.map(|(at, _)| at)
}

/// A client as bounds count it: an IPv4 address, or the /64 network of an IPv6 address.
fn client(connection: &TcpStream) -> Option<u128> {
    Some(match connection.peer_addr().ok()?.ip().to_canonical() {
        IpAddr::V4(address) => u32::from(address).into(),
        IpAddr::V6(address) => u128::from(address) >> 64 << 64,
    })
}

/// A place, which is free again when this is dropped.
struct Place<'p> {
    places: &'p Places,
    number: u64,
}

impl Place<'_> {
    /// From here on it has shown a pointer. Conversations about older ones end, which others may have seen: a
    /// higher serial is from who has the key.
    fn know(&self, serial: u64) {
        let mut taken = locked(&self.places.taken);
        for it in taken.iter_mut() {
            match it.state {
                State::Unknown if it.number == self.number => it.state = State::Known(serial),
                State::Known(older) if older < serial => {
                    it.state = State::Overtaken(older);
                    let _ = it.connection.shutdown(Shutdown::Both);
                }
                _ => {}
            }
        }
        let is_left = |it: &Slot| matches!(it.state, State::Overtaken(older) if older < serial);
        while taken.iter().any(is_left) {
            let ended = self.places.ended.wait(taken);
            taken = ended.unwrap_or_else(PoisonError::into_inner);
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
