//! Certificates that are ordered when a client requests their name.
//!
//! ```text
//!  handshake ── ask ──▶ names asked for ── Announcer, once a second ──▶ a pipe ──▶ 'gannet acme'
//!      └── is held until certificates are read again, or refused
//! ```
//!
//! A server orders nothing itself: it writes names to another process, which decides. They are those of
//! its own sites alone, so that a peer can choose among what the operator serves, and add nothing. The
//! other process also learns of hosts that have a certificate: it renews those, and no others.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::folder::CertificateFolder;
use crate::bounds::tls::{ANNOUNCE_AGAIN_S, ASK_AGAIN_S, ASKED_MAX, COMING_S, NEWS_MAX};

/// Whether there is a site for a host (lower case).
pub type HasSite = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// Whether the authority that is asked issues for a host (lower case).
pub type Issues = fn(&str) -> bool;

/// What handshakes ask, shared by all threads; equal only to itself.
#[derive(Clone)]
pub struct OnDemand(Arc<Desk>);

struct Desk {
    state: Mutex<NameState>,
    /// Read by the process that orders.
    pipe: File,
    issues: Issues,
}

struct NameState {
    sites: HasSite,
    /// Hosts of sites that have no certificate.
    asked: HashMap<Box<str>, NameRequest>,
    /// Those to announce.
    new: Vec<Box<str>>,
}

/// When a name was requested.
#[derive(Clone, Copy)]
struct NameRequest {
    first: Instant,
    /// Announced the last time.
    sent: Instant,
}

/// The answer to a handshake that asks for a name without a certificate.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum NameAnswer {
    /// No site has this name, or it is none that a certificate is issued for.
    Unknown,
    /// It was asked for some time ago, or too many are.
    Awaited,
    /// It was asked for just now.
    Coming,
}

impl OnDemand {
    /// Names are written to `pipe`, a line each, which must not block: `NAME` if it is to have a
    /// certificate, `-NAME` if it need not any more. `issues` says for which hosts that has any use.
    #[must_use]
    pub fn new(pipe: File, issues: Issues) -> Self {
        let nothing: HasSite = Arc::new(|_| false);
        Self(Arc::new(Desk {
            state: Mutex::new(NameState {
                sites: nothing,
                asked: HashMap::new(),
                new: Vec::new(),
            }),
            pipe,
            issues,
        }))
    }

    fn state(&self) -> MutexGuard<'_, NameState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces what is known of sites.
    pub fn know(&self, sites: HasSite) {
        self.state().sites = sites;
    }

    /// A handshake asks for a name (lower case) that has no certificate. Takes a lock for a moment, and
    /// makes no system call.
    pub(super) fn ask(&self, name: &str) -> NameAnswer {
        if !is_public(name) {
            return NameAnswer::Unknown;
        }
        let mut state = self.state();
        if !(state.sites)(name) || !(self.0.issues)(name) {
            return NameAnswer::Unknown;
        }
        let now = Instant::now();
        let NameState { asked, new, .. } = &mut *state;
        let has_room = new.len() < ASKED_MAX;
        match asked.get_mut(name) {
            None if !has_room => NameAnswer::Awaited,
            None => {
                let ask = NameRequest {
                    first: now,
                    sent: now,
                };
                asked.insert(name.into(), ask);
                new.push(name.into());
                NameAnswer::Coming
            }
            Some(ask) => {
                let since = |then| now.duration_since(then);
                if since(ask.sent) >= Duration::from_secs(ASK_AGAIN_S) && has_room {
                    ask.sent = now;
                    new.push(name.into());
                }
                match since(ask.first) < Duration::from_secs(COMING_S) {
                    true => NameAnswer::Coming,
                    false => NameAnswer::Awaited,
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

/// Announces names to the other process. Belongs to the thread that watches certificates.
pub(super) struct Announcer {
    on_demand: OnDemand,
    /// Names that the other process knows, as far as it has read, or is to know.
    sent: HashSet<Box<str>>,
    /// Names with news for which the pipe had no room. What that is, `sent` says
    /// when there is room: of a name that has come and gone meanwhile, the last counts.
    news: VecDeque<Box<str>>,
    /// The same, of names for which clients wait: these come first.
    awaited: VecDeque<Box<str>>,
    /// What sites were known when hosts with certificates were announced the last time, and when that was
    /// begun anew.
    last: Option<(HasSite, Instant)>,
    /// There was no room for all of these.
    is_behind: bool,
}

impl Announcer {
    pub(super) fn new(on_demand: OnDemand) -> Self {
        Self {
            on_demand,
            sent: HashSet::new(),
            news: VecDeque::new(),
            awaited: VecDeque::new(),
            last: None,
            is_behind: false,
        }
    }

    /// Announces what is new since the last time. `is_changed`: the folder has other certificates now.
    pub(super) fn announce(&mut self, folder: &CertificateFolder, is_changed: bool) {
        let now = Instant::now();
        let (sites, new, is_same) = {
            let mut state = self.on_demand.state();
            let sites = Arc::clone(&state.sites);
            let last = self.last.as_ref();
            let is_same = last.is_some_and(|(last, _)| Arc::ptr_eq(last, &sites));
            let kept = Duration::from_secs(ANNOUNCE_AGAIN_S);
            let is_recent = |ask: &NameRequest| now.duration_since(ask.sent) < kept;
            let is_kept =
                |name: &str, ask: &NameRequest| is_recent(ask) && (is_same || sites(name));
            state.asked.retain(|name, ask| is_kept(name, ask));
            (sites, mem::take(&mut state.new), is_same)
        };
        let begun = self.last.as_ref().map(|(_, begun)| *begun);
        // The other process may have been started again, and knows nothing then.
        let is_anew = begun.is_none_or(|it| now.duration_since(it).as_secs() >= ANNOUNCE_AGAIN_S);
        if is_anew || is_changed || self.is_behind || !is_same {
            self.announce_known(folder, &sites, is_anew);
            let begun = begun.filter(|_| !is_anew).unwrap_or(now);
            self.last = Some((Arc::clone(&sites), begun));
        }
        for name in new {
            // Its site may be gone since.
            if self.has_room() && sites(&name) {
                self.sent.insert(name.clone());
                self.awaited.push_back(name);
            }
        }
        self.write();
    }

    /// Announces which hosts have certificates, and which names have no site any more.
    fn announce_known(&mut self, folder: &CertificateFolder, sites: &HasSite, is_anew: bool) {
        if is_anew {
            // All of these are announced once more.
            self.news.retain(|name| !self.sent.contains(name));
        }
        let mut room = NEWS_MAX.saturating_sub(self.news.len() + self.awaited.len());
        self.is_behind = false;
        let mut has_room = || {
            self.is_behind |= room == 0;
            room = room.saturating_sub(1);
            !self.is_behind
        };
        let gone = self.sent.extract_if(|name| !sites(name) && has_room());
        self.news.extend(gone);
        let issues = self.on_demand.0.issues;
        let is_wanted = |name: &&str| is_public(name) && sites(name) && issues(name);
        for name in folder.hosts().filter(is_wanted) {
            if (is_anew || !self.sent.contains(name)) && has_room() {
                self.sent.insert(name.into());
                self.news.push_back(name.into());
            }
        }
    }

    fn has_room(&self) -> bool {
        self.news.len() + self.awaited.len() < NEWS_MAX
    }

    /// Writes lines while the pipe has room.
    fn write(&mut self) {
        loop {
            let mut chunk = String::new();
            let mut count = 0;
            for name in self.awaited.iter().chain(&self.news) {
                let sign = if self.sent.contains(name) { "" } else { "-" };
                if chunk.len() + sign.len() + name.len() + 1 > ATOMIC_LEN {
                    break;
                }
                chunk.extend([sign, &**name, "\n"]);
                count += 1;
            }
            if count == 0 {
                return;
            }
            match (&self.on_demand.0.pipe).write(chunk.as_bytes()) {
                Ok(_) => {
                    let first = count.min(self.awaited.len());
                    self.awaited.drain(..first);
                    self.news.drain(..count - first);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => {
                    // They will not be read, which is reported elsewhere.
                    self.awaited.clear();
                    return self.news.clear();
                }
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
    use crate::bounds::tls::FOLDER_PAIRS_MAX;

    fn known(names: &[&str]) -> HasSite {
        let names: HashSet<String> = names.iter().map(|it| (*it).to_owned()).collect();
        Arc::new(move |name| names.contains(name))
    }

    fn on_demand(names: &[&str]) -> (OnDemand, File) {
        let (read, write) = input().expect("descriptors");
        let on_demand = OnDemand::new(write, |name| !name.ends_with(".internal"));
        on_demand.know(known(names));
        (on_demand, File::from(read))
    }

    fn next_lines(pipe: &mut File) -> String {
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
    fn names_of_sites_are_announced_once() {
        let (on_demand, mut pipe) = on_demand(&[
            "a.test",
            "b.test",
            "db.internal",
            "local",
            "10.0.0.1",
            "x_y.test",
        ]);
        let mut announcer = Announcer::new(on_demand.clone());
        let folder = CertificateFolder::new("nowhere".into());
        let others = ["c.test", "db.internal", "local", "10.0.0.1", "x_y.test"];
        for name in others.into_iter().chain(["", ".", "a..test"]) {
            assert_eq!(on_demand.ask(name), NameAnswer::Unknown, "{name}");
        }
        for _ in 0..3 {
            assert_eq!(on_demand.ask("a.test"), NameAnswer::Coming);
        }
        announcer.announce(&folder, false);
        assert_eq!(next_lines(&mut pipe), "a.test\n");
        assert_eq!(on_demand.ask("b.test"), NameAnswer::Coming);
        assert_eq!(on_demand.ask("a.test"), NameAnswer::Coming);
        announcer.announce(&folder, false);
        assert_eq!(next_lines(&mut pipe), "b.test\n");
        // A site that is gone is not renewed.
        on_demand.know(known(&["b.test"]));
        assert_eq!(on_demand.ask("a.test"), NameAnswer::Unknown);
        announcer.announce(&folder, false);
        assert_eq!(next_lines(&mut pipe), "-a.test\n");
        drop(pipe);
        assert_eq!(on_demand.ask("b.test"), NameAnswer::Coming);
        announcer.announce(&folder, false);
    }

    #[test]
    fn hosts_with_certificates_are_announced_at_the_start() {
        let files = gannet_testkit::Folder::new();
        for host in ["a.test", "b.test", "gone.test"] {
            files.write(format!("{host}.pem"), "whatever");
        }
        let mut folder = CertificateFolder::new(files.path().to_owned());
        let options = super::super::certificates::LoadOptions::now();
        folder.look(true, &options, &mut Vec::new());
        let (on_demand, mut pipe) = on_demand(&["a.test", "b.test"]);
        let mut announcer = Announcer::new(on_demand.clone());
        announcer.announce(&folder, false);
        assert_eq!(next_lines(&mut pipe), "a.test\nb.test\n");
        announcer.announce(&folder, true);
        assert_eq!(next_lines(&mut pipe), "");
        on_demand.know(known(&["a.test", "b.test", "gone.test"]));
        announcer.announce(&folder, false);
        assert_eq!(next_lines(&mut pipe), "gone.test\n");
    }

    #[test]
    fn who_asks_for_every_name_is_bounded() {
        let names: Vec<String> = (0..3 * ASKED_MAX)
            .map(|it| format!("host-{it}.test"))
            .collect();
        let all: Vec<&str> = names.iter().map(String::as_str).collect();
        let (on_demand, mut pipe) = on_demand(&all);
        let folder = CertificateFolder::new("nowhere".into());
        let mut announcer = Announcer::new(on_demand.clone());
        let answers: Vec<NameAnswer> = names.iter().map(|name| on_demand.ask(name)).collect();
        let coming = answers
            .iter()
            .filter(|it| **it == NameAnswer::Coming)
            .count();
        assert_eq!(coming, ASKED_MAX);
        assert!(!answers.contains(&NameAnswer::Unknown));
        assert_eq!(on_demand.state().asked.len(), ASKED_MAX);
        for number in 0..3 * ASKED_MAX {
            let name = format!("unknown-{number}.test");
            assert_eq!(on_demand.ask(&name), NameAnswer::Unknown);
        }
        assert_eq!(on_demand.state().asked.len(), ASKED_MAX);
        let ask_all = || {
            for name in &names {
                on_demand.ask(name);
            }
        };
        // Without a reader the pipe fills, and what it has no room for waits up to a bound.
        let mut rounds = 0;
        while announcer.has_room() {
            rounds += 1;
            assert!(rounds < 100, "it never fills: {}", announcer.awaited.len());
            on_demand.state().asked.clear();
            ask_all();
            announcer.announce(&folder, false);
        }
        on_demand.state().asked.clear();
        ask_all();
        announcer.announce(&folder, false);
        assert_eq!(announcer.awaited.len(), NEWS_MAX);
        // Whole lines.
        let text = next_lines(&mut pipe);
        assert!(text.ends_with(".test\n") && text.lines().all(|it| it.ends_with(".test")));
    }

    /// Reads all that there is to announce, in as many turns as it takes; returns how many that were.
    fn lines_in_turns(
        announcer: &mut Announcer,
        folder: &CertificateFolder,
        pipe: &mut File,
    ) -> (String, usize) {
        let mut all = String::new();
        for turns in 0.. {
            announcer.announce(folder, false);
            match next_lines(pipe) {
                text if text.is_empty() => return (all, turns),
                text => all.push_str(&text),
            }
        }
        unreachable!("it ends")
    }

    /// What a process knows that has read these lines.
    fn known_after(lines: &str) -> HashSet<&str> {
        let mut known = HashSet::new();
        for line in lines.lines() {
            match line.strip_prefix('-') {
                Some(name) => known.remove(name),
                None => known.insert(line),
            };
        }
        known
    }

    /// A pipe that is full for a while: those for which clients wait come first, in their order, and of a
    /// name that comes and goes meanwhile the last counts.
    #[test]
    fn what_a_full_pipe_holds_up_is_announced_in_order() {
        let files = gannet_testkit::Folder::new();
        // More than a pipe holds.
        let hosts: Vec<String> = (0..FOLDER_PAIRS_MAX)
            .map(|it| format!("host-{it}.test"))
            .collect();
        for host in &hosts {
            files.write(format!("{host}.pem"), "whatever");
        }
        let mut folder = CertificateFolder::new(files.path().to_owned());
        let options = super::super::certificates::LoadOptions::now();
        folder.look(true, &options, &mut Vec::new());
        let with = |more: &[&str]| {
            known(&[&hosts.iter().map(|it| &**it).collect::<Vec<_>>(), more].concat())
        };
        let (on_demand, mut pipe) = on_demand(&[]);
        let mut announcer = Announcer::new(on_demand.clone());
        on_demand.know(with(&["a.test", "b.test", "c.test", "d.test"]));
        assert_eq!(on_demand.ask("a.test"), NameAnswer::Coming);
        announcer.announce(&folder, false);
        assert!(!announcer.news.is_empty(), "the pipe is full");
        for name in ["b.test", "c.test", "d.test"] {
            assert_eq!(on_demand.ask(name), NameAnswer::Coming);
            announcer.announce(&folder, false);
        }
        // Sites go, one comes back, and a client requests it.
        on_demand.know(with(&["b.test", "d.test"]));
        announcer.announce(&folder, false);
        on_demand.know(with(&["a.test", "b.test", "d.test"]));
        assert_eq!(on_demand.ask("a.test"), NameAnswer::Coming);
        let (lines, _) = lines_in_turns(&mut announcer, &folder, &mut pipe);
        let place = |line: &str| lines.lines().position(|it| it == line);
        assert!(place("a.test") < place(&hosts[0]), "it was asked for first");
        assert!(
            place("b.test") < place("d.test"),
            "and this one before that"
        );
        let mut expected: HashSet<&str> = hosts.iter().map(|it| &**it).collect();
        expected.extend(["a.test", "b.test", "d.test"]);
        assert_eq!(known_after(&lines), expected);
    }

    /// There is more to announce than may wait: it follows once there is room, and nothing in vain.
    #[test]
    fn what_has_no_room_is_announced_later() {
        let names: Vec<String> = (0..NEWS_MAX + 100)
            .map(|it| format!("host-{it}.test"))
            .collect();
        let all: Vec<&str> = names.iter().map(String::as_str).collect();
        let (on_demand, mut pipe) = on_demand(&all);
        let folder = CertificateFolder::new("nowhere".into());
        let mut announcer = Announcer::new(on_demand.clone());
        announcer.sent.extend(all.iter().map(|it| (*it).into()));
        // All sites go at once, but one, whose name comes between asking and announcing.
        assert_eq!(on_demand.ask(all[0]), NameAnswer::Coming);
        on_demand.know(known(&[]));
        announcer.announce(&folder, false);
        assert!(announcer.is_behind && announcer.news.len() <= NEWS_MAX);
        let (lines, turns) = lines_in_turns(&mut announcer, &folder, &mut pipe);
        assert!(turns > 1 && !announcer.is_behind);
        assert_eq!(lines.lines().count(), all.len());
        assert!(lines.lines().all(|line| line.starts_with('-')));
        // After an hour all is announced anew, and what has gone until then is not forgotten.
        on_demand.know(known(&all[..2]));
        assert_eq!(on_demand.ask(all[1]), NameAnswer::Coming);
        announcer.announce(&folder, false);
        assert_eq!(next_lines(&mut pipe), format!("{}\n", all[1]));
        let hour = Duration::from_secs(ANNOUNCE_AGAIN_S);
        let before = announcer.last.as_mut().map(|(_, begun)| *begun -= hour);
        assert!(before.is_some());
        on_demand.know(known(&[]));
        announcer.announce(&folder, false);
        assert_eq!(next_lines(&mut pipe), format!("-{}\n", all[1]));
    }
}
