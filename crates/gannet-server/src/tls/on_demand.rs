//! Certificates that are ordered when somebody asks for their name.
//!
//! ```text
//!  handshake ── ask ──▶ names asked for ── Teller, once a second ──▶ a pipe ──▶ 'gannet acme'
//!      └── is held until certificates are read again, or refused
//! ```
//!
//! A server orders nothing itself: it writes names to another process, which decides. They are those of
//! its own sites alone, so that a peer can choose among what the operator serves, and add nothing. Of
//! hosts that have a certificate, the other process is told as well: it renews those, and no others.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::folder::Folder;
use super::limits::{ASK_AGAIN_S, ASKED_MAX, COMING_S, TELL_AGAIN_S, UNTOLD_MAX};

/// Tells whether there is a site for a host (lower case).
pub type Sites = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// Tells whether the authority that is asked issues for a host (lower case).
pub type Issues = fn(&str) -> bool;

/// What handshakes ask, shared by all threads; equal only to itself.
#[derive(Clone)]
pub struct OnDemand(Arc<Desk>);

struct Desk {
    state: Mutex<State>,
    /// Read by the process that orders.
    pipe: File,
    issues: Issues,
}

struct State {
    sites: Sites,
    /// Hosts of sites that have no certificate.
    asked: HashMap<Box<str>, Ask>,
    /// Those that are to be told.
    new: Vec<Box<str>>,
}

/// When a name was asked for.
#[derive(Clone, Copy)]
struct Ask {
    first: Instant,
    /// Told the last time.
    told: Instant,
}

/// The answer to a handshake that asks for a name without a certificate.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Asked {
    /// No site has this name, or it is none that a certificate is issued for.
    Unknown,
    /// It was asked for some time ago, or too many are.
    Awaited,
    /// It was asked for just now.
    Coming,
}

impl OnDemand {
    /// Names are written to `pipe`, a line each, which must not block: `NAME` if it is to have a
    /// certificate, `-NAME` if it need not any more. `issues` tells for which hosts that has any use.
    #[must_use]
    pub fn new(pipe: File, issues: Issues) -> Self {
        let nothing: Sites = Arc::new(|_| false);
        Self(Arc::new(Desk {
            state: Mutex::new(State {
                sites: nothing,
                asked: HashMap::new(),
                new: Vec::new(),
            }),
            pipe,
            issues,
        }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces what is known of sites.
    pub fn know(&self, sites: Sites) {
        self.state().sites = sites;
    }

    /// A handshake asks for a name (lower case) that has no certificate. Takes a lock for a moment, and
    /// makes no system call.
    pub(super) fn ask(&self, name: &str) -> Asked {
        if !is_public(name) {
            return Asked::Unknown;
        }
        let mut state = self.state();
        if !(state.sites)(name) || !(self.0.issues)(name) {
            return Asked::Unknown;
        }
        let now = Instant::now();
        let State { asked, new, .. } = &mut *state;
        let has_room = new.len() < ASKED_MAX;
        match asked.get_mut(name) {
            None if !has_room => Asked::Awaited,
            None => {
                let ask = Ask {
                    first: now,
                    told: now,
                };
                asked.insert(name.into(), ask);
                new.push(name.into());
                Asked::Coming
            }
            Some(ask) => {
                let since = |then| now.duration_since(then);
                if since(ask.told) >= Duration::from_secs(ASK_AGAIN_S) && has_room {
                    ask.told = now;
                    new.push(name.into());
                }
                match since(ask.first) < Duration::from_secs(COMING_S) {
                    true => Asked::Coming,
                    false => Asked::Awaited,
                }
            }
        }
    }
}

impl fmt::Debug for OnDemand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnDemand")
    }
}

impl PartialEq for OnDemand {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for OnDemand {}

/// Tells the other process of names. Belongs to the thread that watches certificates.
pub(super) struct Teller {
    on_demand: OnDemand,
    /// Names that the other process knows, as far as it has read.
    told: HashSet<Box<str>>,
    /// Lines that the pipe had no room for.
    untold: VecDeque<String>,
    /// What sites were known when hosts with certificates were told the last time, and when that was
    /// begun anew.
    last: Option<(Sites, Instant)>,
}

impl Teller {
    pub(super) fn new(on_demand: OnDemand) -> Self {
        Self {
            on_demand,
            told: HashSet::new(),
            untold: VecDeque::new(),
            last: None,
        }
    }

    /// Tells what is new since the last time. `is_changed`: the folder has other certificates now.
    pub(super) fn tell(&mut self, folder: &Folder, is_changed: bool) {
        let now = Instant::now();
        let (sites, new) = {
            let mut state = self.on_demand.state();
            let kept = Duration::from_secs(TELL_AGAIN_S);
            let is_recent = |ask: &Ask| now.duration_since(ask.told) < kept;
            state.asked.retain(|_, ask| is_recent(ask));
            (Arc::clone(&state.sites), mem::take(&mut state.new))
        };
        let begun = self.last.as_ref().map(|(_, begun)| *begun);
        // The other process may have been started again, and knows nothing then.
        let is_anew = begun.is_none_or(|it| now.duration_since(it).as_secs() >= TELL_AGAIN_S);
        let is_same = |last: &(Sites, Instant)| Arc::ptr_eq(&last.0, &sites);
        if is_anew || is_changed || !self.last.as_ref().is_some_and(is_same) {
            if is_anew {
                self.told.clear();
                self.untold.clear();
            }
            let gone = self.told.extract_if(|name| !sites(name));
            let gone: Vec<String> = gone.map(|name| format!("-{name}\n")).collect();
            self.untold.extend(gone);
            let issues = self.on_demand.0.issues;
            let is_wanted = |name: &&str| is_public(name) && sites(name) && issues(name);
            for name in folder.hosts().filter(is_wanted) {
                if self.told.insert(name.into()) {
                    self.untold.push_back(format!("{name}\n"));
                }
            }
            let begun = begun.filter(|_| !is_anew).unwrap_or(now);
            self.last = Some((sites, begun));
        }
        // Somebody waits for these.
        for name in new.into_iter().rev() {
            if self.untold.len() < UNTOLD_MAX {
                self.untold.push_front(format!("{name}\n"));
                self.told.insert(name);
            }
        }
        self.write();
    }

    /// Writes lines while the pipe has room.
    fn write(&mut self) {
        while !self.untold.is_empty() {
            let mut chunk = String::new();
            let mut count = 0;
            for line in &self.untold {
                if count > 0 && chunk.len() + line.len() > ATOMIC_LEN {
                    break;
                }
                chunk.push_str(line);
                count += 1;
            }
            match (&self.on_demand.0.pipe).write(chunk.as_bytes()) {
                Ok(_) => drop(self.untold.drain(..count)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // Nobody will read them, which is said elsewhere.
                Err(_) => return self.untold.clear(),
            }
        }
    }
}

/// Bytes that a pipe takes as a whole or not at all (`PIPE_BUF`).
const ATOMIC_LEN: usize = 4096;

/// Whether an authority may issue a certificate for a name (lower case): a host name of several labels
/// (RFC 5890 section 2.3.1), and no address.
fn is_public(name: &str) -> bool {
    let is_label = |label: &str| {
        let is_of_it =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let is_edged = label.starts_with('-') || label.ends_with('-');
        (1..=63).contains(&label.len()) && label.bytes().all(is_of_it) && !is_edged
    };
    let last = name.rsplit('.').next().unwrap_or_default();
    let is_number = last.bytes().all(|byte| byte.is_ascii_digit());
    name.len() <= 253 && name.contains('.') && name.split('.').all(is_label) && !is_number
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::AsFd;

    use gannet_io::companion::input;
    use gannet_io::readiness::{Interest, wait};

    use super::*;

    fn known(names: &[&str]) -> Sites {
        let names: HashSet<String> = names.iter().map(|it| (*it).to_owned()).collect();
        Arc::new(move |name| names.contains(name))
    }

    fn on_demand(names: &[&str]) -> (OnDemand, File) {
        let (read, write) = input().expect("descriptors");
        let on_demand = OnDemand::new(write, |name| !name.ends_with(".internal"));
        on_demand.know(known(names));
        (on_demand, File::from(read))
    }

    fn told(pipe: &mut File) -> String {
        let watched = [(pipe.as_fd(), Interest::Input)];
        let ready = wait(&watched, Some(Duration::ZERO)).expect("a pipe");
        if ready == [false] {
            return String::new();
        }
        let mut text = vec![0; 1 << 20];
        let len = pipe.read(&mut text).expect("it is readable");
        text.truncate(len);
        String::from_utf8(text).expect("names")
    }

    #[test]
    fn names_of_sites_are_told_once() {
        let (on_demand, mut pipe) = on_demand(&[
            "a.test",
            "b.test",
            "db.internal",
            "local",
            "10.0.0.1",
            "x_y.test",
        ]);
        let mut teller = Teller::new(on_demand.clone());
        let folder = Folder::new("nowhere".into());
        let others = ["c.test", "db.internal", "local", "10.0.0.1", "x_y.test"];
        for name in others.into_iter().chain(["", ".", "a..test"]) {
            assert_eq!(on_demand.ask(name), Asked::Unknown, "{name}");
        }
        for _ in 0..3 {
            assert_eq!(on_demand.ask("a.test"), Asked::Coming);
        }
        teller.tell(&folder, false);
        assert_eq!(told(&mut pipe), "a.test\n");
        assert_eq!(on_demand.ask("b.test"), Asked::Coming);
        assert_eq!(on_demand.ask("a.test"), Asked::Coming);
        teller.tell(&folder, false);
        assert_eq!(told(&mut pipe), "b.test\n");
        // A site that is gone is not renewed.
        on_demand.know(known(&["b.test"]));
        assert_eq!(on_demand.ask("a.test"), Asked::Unknown);
        teller.tell(&folder, false);
        assert_eq!(told(&mut pipe), "-a.test\n");
        drop(pipe);
        assert_eq!(on_demand.ask("b.test"), Asked::Coming);
        teller.tell(&folder, false);
    }

    #[test]
    fn hosts_with_certificates_are_told_at_the_start() {
        let files = gannet_testkit::Folder::new();
        for host in ["a.test", "b.test", "gone.test"] {
            files.write(format!("{host}.pem"), "whatever");
        }
        let mut folder = Folder::new(files.path().to_owned());
        let options = super::super::certificates::LoadOptions::now();
        folder.look(true, &options, &mut Vec::new());
        let (on_demand, mut pipe) = on_demand(&["a.test", "b.test"]);
        let mut teller = Teller::new(on_demand.clone());
        teller.tell(&folder, false);
        assert_eq!(told(&mut pipe), "a.test\nb.test\n");
        teller.tell(&folder, true);
        assert_eq!(told(&mut pipe), "");
        on_demand.know(known(&["a.test", "b.test", "gone.test"]));
        teller.tell(&folder, false);
        assert_eq!(told(&mut pipe), "gone.test\n");
    }

    #[test]
    fn who_asks_for_every_name_is_bounded() {
        let names: Vec<String> = (0..3 * ASKED_MAX)
            .map(|it| format!("host-{it}.test"))
            .collect();
        let all: Vec<&str> = names.iter().map(String::as_str).collect();
        let (on_demand, mut pipe) = on_demand(&all);
        let folder = Folder::new("nowhere".into());
        let mut teller = Teller::new(on_demand.clone());
        let answers: Vec<Asked> = names.iter().map(|name| on_demand.ask(name)).collect();
        let coming = answers.iter().filter(|it| **it == Asked::Coming).count();
        assert_eq!(coming, ASKED_MAX);
        assert!(!answers.contains(&Asked::Unknown));
        assert_eq!(on_demand.state().asked.len(), ASKED_MAX);
        for number in 0..3 * ASKED_MAX {
            let name = format!("unknown-{number}.test");
            assert_eq!(on_demand.ask(&name), Asked::Unknown);
        }
        assert_eq!(on_demand.state().asked.len(), ASKED_MAX);
        let ask_all = || {
            for name in &names {
                on_demand.ask(name);
            }
        };
        // Nobody reads: the pipe fills, and what it has no room for waits up to a bound.
        let mut rounds = 0;
        while teller.untold.len() < UNTOLD_MAX {
            rounds += 1;
            assert!(rounds < 100, "it never fills: {}", teller.untold.len());
            on_demand.state().asked.clear();
            ask_all();
            teller.tell(&folder, false);
        }
        on_demand.state().asked.clear();
        ask_all();
        teller.tell(&folder, false);
        assert_eq!(teller.untold.len(), UNTOLD_MAX);
        // Whole lines.
        let text = told(&mut pipe);
        assert!(text.ends_with(".test\n") && text.lines().all(|it| it.ends_with(".test")));
    }
}
