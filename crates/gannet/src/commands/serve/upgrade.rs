//! Upgrades: a new process of the program takes this one's place, without a lost connection.
//!
//! ```text
//!  old                                   new
//!   │ SIGUSR2; the starter runs the program
//!   │──── generation, sockets, elders ───▶│ prepares itself
//!   │◀──────────── ready ─────────────────│
//!   │────────────── go ──────────────────▶│ serves
//!   ▼ finishes its connections
//! ```
//!
//! Until it says `go`, the old process serves as if nothing had happened: if the new one fails, or is
//! not ready in time, it continues.

use std::ffi::OsString;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use gannet_io::inherited::{self, SocketKind};
use gannet_io::parcels::{DESCRIPTORS_MAX, Parcels};
use gannet_io::starter::{NOT_STARTED, PREDECESSOR, Starter};
use gannet_server::config::ListenAddress;
use gannet_server::{Inheritance, Item, Running};

use crate::commands::serve::process_limits;
use crate::commands::serve::signals::SignalCommand;
use crate::commands::serve::sockets::{METRICS, SocketGroup, SocketOrigin, Sockets};
use crate::messages::{Exit, Failure, cause};

/// How long the new process may take until it is ready: as long as service managers grant a start by
/// default.
const READY_MAX: Duration = Duration::from_secs(90);

/// How long the new process waits for all that the old one has sent before it started it, and for its
/// turn, which is a message away.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// Messages until all is handed over: several times what fits into the socket's buffer, into which all are written
/// before this process runs. A start does not read one after the other for ever.
const MESSAGES_MAX: u32 = 4_096;

/// The form of the messages. A process that does not know it refuses.
const FORM: u8 = 1;

/// The first byte of a message, from the old process to the new one.
mod to_new {
    /// The form, the generation, and the secrets of HTTP/3 if there are any.
    pub(super) const BEGIN: u8 = b'B';
    /// Each has the number of the item, and its descriptors; an item may take several messages. A Unix
    /// socket's path follows.
    pub(super) const LISTENERS: u8 = b'L';
    pub(super) const DATAGRAMS: u8 = b'D';
    pub(super) const METRICS: u8 = b'M';
    /// The item of this number is a socket of the service manager's, of this name.
    pub(super) const MANAGED: u8 = b'S';
    /// The generation of an earlier process, with the link to it.
    pub(super) const ELDER: u8 = b'E';
    /// That was all.
    pub(super) const END: u8 = b'.';
    /// Serve.
    pub(super) const GO: u8 = b'G';
}

/// The new process's answer: its process ID, and for each item whether it takes it.
const READY: u8 = b'R';

/// The old process, seen from the new one.
///
/// The link to it stays open until it lets this one serve, or this process ends: the end of the link means
/// that, and a start that fails has its reason to tell before.
pub(super) struct Predecessor(ManuallyDrop<Parcels>);

impl Predecessor {
    /// The process whose place this one is to take, with what it hands over; `None` for an ordinary
    /// start.
    ///
    /// # Errors
    /// It has ended, or speaks another form.
    pub(super) fn find() -> Result<Option<(Self, Sockets, Inheritance)>, Failure> {
        let Some(number) = std::env::var_os(PREDECESSOR) else {
            return Ok(None);
        };
        let failed = |error: io::Error| Failure {
            exit: Exit::Failed,
            ..Failure::usage(format!(
                "cannot take over from the running server: {}",
                cause(&error)
            ))
            .help("the running server continues; stop it and start the new one instead")
        };
        // It may pass more sockets than the usual limit lets a process open.
        process_limits::raise_descriptors();
        let link = inherited::from_predecessor(&number)
            .map(|link| ManuallyDrop::new(Parcels::from(link)))
            .map_err(failed)?;
        let (sockets, inheritance) = receive_all(&link).map_err(failed)?;
        Ok(Some((Self(link), sockets, inheritance)))
    }

    /// Tells it that this process is ready, and which items it takes; waits until it may serve.
    ///
    /// # Errors
    /// The old process continues, or has ended.
    pub(super) fn ask_to_begin(self, taken: &[bool]) -> io::Result<()> {
        let taken: Vec<u8> = taken.iter().map(|is_taken| u8::from(*is_taken)).collect();
        let pid = std::process::id().to_be_bytes();
        self.0.send(&[&[READY], &pid, &taken], &[])?;
        self.0.set_patience(ANSWER_MAX)?;
        let mut answer = Vec::new();
        self.0.receive(&mut answer)?;
        match *answer {
            [to_new::GO] => {
                drop(ManuallyDrop::into_inner(self.0));
                Ok(())
            }
            _ => Err(io::Error::other("it continues, or has ended")),
        }
    }
}

fn receive_all(link: &Parcels) -> io::Result<(Sockets, Inheritance)> {
    let invalid = |why| io::Error::new(io::ErrorKind::InvalidData, why);
    let deadline = Instant::now() + ANSWER_MAX;
    let mut inheritance = Inheritance::default();
    let mut groups: Vec<SocketGroup> = Vec::new();
    let mut message = Vec::new();
    let mut has_begun = false;
    for _ in 0..MESSAGES_MAX {
        // None left is the shortest time, since a socket takes none for no limit.
        let left = deadline.saturating_duration_since(Instant::now());
        link.set_patience(left.max(Duration::from_millis(1)))?;
        let descriptors = link.receive(&mut message)?;
        match *message {
            [to_new::BEGIN, FORM, generation, ref secrets @ ..] => {
                has_begun = true;
                inheritance.generation = generation;
                inheritance.secrets = secrets.try_into().ok();
            }
            [] => return Err(invalid("it has ended")),
            _ if !has_begun => return Err(invalid("it is too old or too new")),
            [to_new::ELDER, generation] => {
                let links = descriptors.into_iter().map(Parcels::from);
                inheritance
                    .elders
                    .extend(links.map(|link| (generation, link)));
            }
            [
                what @ (to_new::LISTENERS | to_new::DATAGRAMS | to_new::METRICS),
                high,
                low,
                ref path @ ..,
            ] => {
                let number = usize::from(u16::from_be_bytes([high, low]));
                if let Some(group) = groups.get_mut(number) {
                    group.sockets.extend(descriptors);
                    continue;
                }
                let first = descriptors
                    .first()
                    .ok_or_else(|| invalid("a socket is missing"))?;
                groups.push(SocketGroup {
                    kind: match (SocketKind::of(first)?, path) {
                        // It knows the name that it was made under only.
                        (SocketKind::Unix(_), path) => {
                            SocketKind::Unix(OsString::from_vec(path.to_vec()).into())
                        }
                        (kind, _) => kind,
                    },
                    name: match what {
                        to_new::METRICS => METRICS.to_owned(),
                        _ => String::new(),
                    },
                    sockets: descriptors,
                    origin: SocketOrigin::Predecessor,
                });
            }
            [to_new::MANAGED, high, low, ref name @ ..] => {
                let number = usize::from(u16::from_be_bytes([high, low]));
                let group = groups.get_mut(number);
                let group = group.ok_or_else(|| invalid("a socket is missing"))?;
                group.origin = SocketOrigin::ServiceManager;
                group.name = String::from_utf8_lossy(name).into_owned();
            }
            [to_new::END] => return Ok((Sockets::of(groups), inheritance)),
            _ => return Err(invalid("it is too old or too new")),
        }
    }
    Err(invalid("it has no end"))
}

/// What the new process answered.
#[derive(Debug)]
pub(crate) enum SuccessorAnswer {
    /// It is ready: its process ID, and for each item whether it takes it.
    Ready(u32, Vec<bool>),
    /// Why it is not.
    Failed(String),
}

/// The new process, seen from the old one.
pub(super) struct Upgrades {
    /// Or why there is none.
    starter: Result<Arc<Starter>, String>,
    /// What of this server's sockets the service manager has passed, and its name for each.
    managed: Vec<(SocketKind, String)>,
    current: Option<Attempt>,
}

struct Attempt {
    link: Parcels,
    /// Takes datagrams of HTTP/3 from the new process.
    passed: Parcels,
}

impl Upgrades {
    /// Upgrades by this starter; or the reason why there are none. `managed`: see
    /// [`Sockets::of_manager`].
    pub(super) fn new(
        starter: Result<Starter, String>,
        managed: Vec<(SocketKind, String)>,
    ) -> Self {
        Self {
            starter: starter.map(Arc::new),
            managed,
            current: None,
        }
    }

    /// Starts the new process, of which there is none yet; its answer comes as a command.
    ///
    /// # Errors
    /// The reason why that is not possible now.
    pub(super) fn begin(
        &mut self,
        running: &Running,
        answers: &Sender<SignalCommand>,
    ) -> Result<(), String> {
        let starter = self.starter.as_ref().map_err(Clone::clone)?;
        self.current = Some(attempt(running, &self.managed, starter, answers.clone())?);
        Ok(())
    }

    /// The new process is ready: has it serve.
    ///
    /// # Errors
    /// It has ended: this server continues.
    pub(super) fn finish(&mut self, running: &mut Running, taken: &[bool]) -> Result<(), String> {
        let Some(Attempt { link, passed }) = self.current.take() else {
            return Ok(());
        };
        // Before it may serve: from then on it must not end with this process.
        if let Ok(starter) = &self.starter {
            starter.leave();
        }
        if link.send(&[&[to_new::GO]], &[]).is_err() {
            self.end();
            return Err(ended(None));
        }
        // Without the thread for datagrams, HTTP/3 clients connect again after their timeouts.
        let _ = running.hand_over(taken, passed);
        self.starter = Err("this process has been replaced".into());
        Ok(())
    }

    /// Ends an attempt, and refuses all others for this reason.
    pub(super) fn forbid(&mut self, why: &str) {
        self.end();
        self.starter = Err(why.into());
    }

    /// Whether a new process gets ready.
    pub(super) fn is_under_way(&self) -> bool {
        self.current.is_some()
    }

    /// Ends the new process, which has failed or is not wanted any more.
    pub(super) fn end(&mut self) {
        self.interrupt();
        self.current = None;
    }

    /// Ends the new process, whose answer still comes: that it has ended, unless it was ready before.
    pub(super) fn interrupt(&self) {
        if let Some(attempt) = &self.current {
            attempt.link.shut_down();
        }
        if let Ok(starter) = &self.starter {
            starter.end();
        }
    }
}

fn attempt(
    running: &Running,
    managed: &[(SocketKind, String)],
    starter: &Arc<Starter>,
    answers: Sender<SignalCommand>,
) -> Result<Attempt, String> {
    let failed = |error: io::Error| cause(&error);
    let (link, theirs) = Parcels::pair().map_err(failed)?;
    let passed = send_all(&link, running, managed).map_err(failed)?;
    starter.start(&theirs).map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => {
            "the process 'gannet-starter', which would start the new one, was killed: restart this \
             server"
                .into()
        }
        _ => cause(&error),
    })?;
    let listening = link.try_clone().map_err(failed)?;
    let starter = Arc::clone(starter);
    std::thread::Builder::new()
        .name("gannet-upgrade".into())
        .spawn(move || {
            let answer = answer(&listening, READY_MAX, || starter.how_it_ended());
            // The server ends before it listens.
            let _ = answers.send(SignalCommand::Successor(answer));
        })
        .map_err(failed)?;
    Ok(Attempt { link, passed })
}

/// Sends all that the new process takes over, before it runs.
fn send_all(
    link: &Parcels,
    running: &Running,
    managed: &[(SocketKind, String)],
) -> io::Result<Parcels> {
    let Inheritance {
        generation,
        secrets,
        elders,
        ..
    } = running.inheritance()?;
    let secrets = secrets.as_ref().map_or(&[][..], |secrets| secrets);
    let next = generation.wrapping_add(1);
    link.send(&[&[to_new::BEGIN, FORM, next], secrets], &[])?;
    for (generation, elder) in &elders {
        link.send(&[&[to_new::ELDER, *generation]], &[elder.as_fd()])?;
    }
    let (passed, theirs) = Parcels::pair()?;
    link.send(&[&[to_new::ELDER, generation]], &[theirs.as_fd()])?;
    for (number, item) in (0u16..).zip(running.items()) {
        let none = Path::new("");
        let (what, path, sockets) = match &item {
            Item::Listeners(ListenAddress::Unix(unix), sockets) => {
                (to_new::LISTENERS, &*unix.path, borrowed(sockets))
            }
            Item::Listeners(_, sockets) => (to_new::LISTENERS, none, borrowed(sockets)),
            Item::Datagrams(_, sockets) => (to_new::DATAGRAMS, none, borrowed(sockets)),
            Item::Metrics(listener) => (to_new::METRICS, none, vec![*listener]),
        };
        let [high, low] = number.to_be_bytes();
        for some in sockets.chunks(DESCRIPTORS_MAX) {
            link.send(&[&[what, high, low], path.as_os_str().as_bytes()], some)?;
        }
        let kind = match item {
            Item::Listeners(ListenAddress::Tcp(address), _) => SocketKind::Tcp(*address),
            Item::Listeners(ListenAddress::Unix(unix), _) => SocketKind::Unix(unix.path.clone()),
            Item::Datagrams(address, _) => SocketKind::Udp(address),
            Item::Metrics(listener) => SocketKind::of(listener)?,
        };
        if let Some((_, name)) = managed.iter().find(|(managed, _)| *managed == kind) {
            link.send(&[&[to_new::MANAGED, high, low], name.as_bytes()], &[])?;
        }
    }
    link.send(&[&[to_new::END]], &[])?;
    Ok(passed)
}

fn borrowed(sockets: &[OwnedFd]) -> Vec<BorrowedFd<'_>> {
    sockets.iter().map(AsFd::as_fd).collect()
}

/// Waits for the new process. `how_it_ended` tells that, once it has closed its end.
fn answer(
    link: &Parcels,
    patience: Duration,
    how_it_ended: impl FnOnce() -> Option<String>,
) -> SuccessorAnswer {
    let mut message = Vec::new();
    let received = link
        .set_patience(patience)
        .and_then(|()| link.receive(&mut message));
    match (received, &*message) {
        (Err(error), _) if error.kind() == io::ErrorKind::WouldBlock => {
            let patience = patience.as_secs_f32();
            SuccessorAnswer::Failed(format!("the new process was not ready after {patience} s"))
        }
        (Err(error), _) => SuccessorAnswer::Failed(cause(&error)),
        (Ok(_), [READY, a, b, c, d, taken @ ..]) => {
            let pid = u32::from_be_bytes([*a, *b, *c, *d]);
            SuccessorAnswer::Ready(pid, taken.iter().map(|byte| *byte == 1).collect())
        }
        (Ok(_), [NOT_STARTED, cause @ ..]) => {
            SuccessorAnswer::Failed(String::from_utf8_lossy(cause).into_owned())
        }
        (Ok(_), _) => SuccessorAnswer::Failed(ended(how_it_ended())),
    }
}

/// The new process has ended before it served. With a status of its own it has said why.
fn ended(how: Option<String>) -> String {
    let has_said = |how: &str| matches!(how, "exit status: 1" | "exit status: 2");
    let help = match how.as_deref().is_some_and(has_said) {
        true => "",
        false => {
            "\nhelp: if there is no message from it above, run the new program with --version: it may be damaged"
        }
    };
    let how = how.map_or(String::new(), |how| format!(" ({how})"));
    format!("the new process has ended{how}{help}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_process_is_ready_or_the_reason_is_told() {
        let check = |says: Option<&[u8]>, has_ended: bool, expect: &str| {
            let (link, theirs) = Parcels::pair().expect("a pair");
            if let Some(message) = says {
                theirs.send(&[message], &[]).expect("room");
            }
            let theirs = Some(theirs).filter(|_| !has_ended);
            let how = || Some("exit status: 3".to_owned());
            let got = answer(&link, Duration::from_millis(1), how);
            drop(theirs);
            assert_eq!(format!("{got:?}"), expect);
        };
        let ready = [READY, 0, 0, 1, 2, 1, 0];
        check(Some(&ready), false, "Ready(258, [true, false])");
        let late = "Failed(\"the new process was not ready after 0.001 s\")";
        check(None, false, late);
        let damaged = ended(Some("exit status: 3".to_owned()));
        assert!(damaged.starts_with("the new process has ended (exit status: 3)\nhelp: "));
        check(None, true, &format!("Failed({damaged:?})"));
        let wrong = ended(Some("exit status: 2".to_owned()));
        assert_eq!(wrong, "the new process has ended (exit status: 2)");
        let not_started = [&[NOT_STARTED], &b"cannot start"[..]].concat();
        check(Some(&not_started), true, "Failed(\"cannot start\")");
    }

    /// What does not belong to the conversation is refused, and needs no patience.
    #[test]
    fn a_predecessor_that_says_something_else_is_refused() {
        let check = |messages: &[&[u8]], expect: &str| {
            let (link, theirs) = Parcels::pair().expect("a pair");
            for message in messages {
                theirs.send(&[message], &[]).expect("room");
            }
            drop(theirs);
            let got = receive_all(&link).err().map(|error| error.to_string());
            assert_eq!(got.as_deref(), Some(expect));
        };
        let begin = [to_new::BEGIN, FORM, 1];
        check(&[], "it has ended");
        check(&[&begin], "it has ended");
        check(&[&[to_new::BEGIN, FORM + 1, 1]], "it is too old or too new");
        check(&[&[to_new::END]], "it is too old or too new");
        check(&[&begin, b"?"], "it is too old or too new");
        let no_socket = [to_new::LISTENERS, 0, 0];
        check(&[&begin, &no_socket], "a socket is missing");
    }

    /// Messages without an end are refused, although each is sound.
    #[test]
    fn a_predecessor_that_never_ends_is_refused() {
        let (link, theirs) = Parcels::pair().expect("a pair");
        let flood = std::thread::spawn(move || {
            let mut count = 0;
            loop {
                match theirs.send(&[&[to_new::BEGIN, FORM, 1]], &[]) {
                    Ok(()) => count += 1,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        std::thread::yield_now();
                    }
                    Err(_) => return count,
                }
            }
        });
        let got = receive_all(&link).err().map(|error| error.to_string());
        assert_eq!(got.as_deref(), Some("it has no end"));
        drop(link);
        assert!(flood.join().expect("it ends") >= MESSAGES_MAX);
    }
}
