//! What went wrong for a peer and an operator has to know of: one message for each, at a bounded
//! rate.
//!
//! Peers cause them, so each [`IncidentKind`] has a bounded number of messages a minute, and one of each object;
//! the others are counted, and their number is logged once the minute is over. One that is not logged is
//! neither formatted nor does it take a lock.

use std::borrow::Cow;
use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use gannet_io::cause::printable;
use gannet_io::driver::Nanos;

use crate::bounds::limits::{INCIDENT_LINES_MAX, INCIDENT_MINUTE_NS, INCIDENT_NAME_MAX};
use crate::watch::notices::Channel;

/// Kinds of incidents, each with messages of its own.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum IncidentKind {
    /// A file or folder cannot be read.
    Unreadable,
    /// A symbolic link leads out of the site, or nowhere.
    LeadsOut,
    /// A peer that connects to an address for proxies is none that is trusted.
    Untrusted,
    /// A proxy sends no header of the PROXY protocol.
    NoHeader,
    /// A client is not allowed to connect.
    Denied,
    /// A client has too many connections.
    TooMany,
}

impl IncidentKind {
    const ALL: [Self; 6] = [
        Self::Unreadable,
        Self::LeadsOut,
        Self::Untrusted,
        Self::NoHeader,
        Self::Denied,
        Self::TooMany,
    ];

    /// Messages a minute. That clients are denied is what `--deny` is for: one says that it happens.
    const fn lines_max(self) -> u64 {
        match self {
            Self::Denied => 1,
            Self::Unreadable
            | Self::LeadsOut
            | Self::Untrusted
            | Self::NoHeader
            | Self::TooMany => INCIDENT_LINES_MAX,
        }
    }

    /// Those that are only counted.
    const fn others(self) -> &'static str {
        match self {
            Self::Unreadable => "requests for what cannot be read",
            Self::LeadsOut => "requests for links that lead out of the site",
            Self::Untrusted => "connections by peers that are not in --trust",
            Self::NoHeader => "connections without a header of the PROXY protocol",
            Self::Denied => "connections and packets of clients that are not allowed",
            Self::TooMany => "connections by clients that have too many",
        }
    }
}

/// The message about an incident.
pub(crate) struct IncidentText {
    /// The first line.
    pub(crate) line: String,
    /// The next step; left out where the message before it had the same.
    pub(crate) help: Cow<'static, str>,
}

/// The incidents of a server, shared by its workers.
#[derive(Debug)]
pub(crate) struct Incidents {
    /// With a key of its own, so that no peer can choose what has the hash of something else.
    hasher: RandomState,
    minutes: [Minute; IncidentKind::ALL.len()],
    /// When the first minute ends in which some were only counted; `u64::MAX` if there is none.
    due: AtomicU64,
    channel: &'static Channel,
}

/// The minute in progress of one kind.
#[derive(Debug, Default)]
struct Minute {
    /// When it ends, in nanoseconds of the workers' clock.
    ends_at: AtomicU64,
    /// Messages in it.
    logged: AtomicU64,
    /// Incidents that were only counted.
    others: AtomicU64,
    /// The hash of what each message is about; 0 if there is none.
    about: [AtomicU64; INCIDENT_LINES_MAX as usize],
    /// The hash of the next step that was logged last; 0 if there is none.
    help: AtomicU64,
}

impl Minute {
    fn is_logged(&self, about: u64) -> bool {
        self.about
            .iter()
            .any(|it| it.load(Ordering::Relaxed) == about)
    }
}

impl Incidents {
    /// Incidents that are logged on this channel.
    pub(crate) fn new(channel: &'static Channel) -> Self {
        Self {
            hasher: RandomState::new(),
            minutes: Default::default(),
            due: AtomicU64::new(u64::MAX),
            channel,
        }
    }

    /// Reports one with `object`, or counts it.
    pub(crate) fn report(
        &self,
        kind: IncidentKind,
        now: Nanos,
        object: impl Hash,
        message: impl FnOnce() -> IncidentText,
    ) {
        let minute = &self.minutes[kind as usize];
        let ends_at = minute.ends_at.load(Ordering::Relaxed);
        if now.0 >= ends_at {
            self.end(kind, ends_at, now.0.saturating_add(INCIDENT_MINUTE_NS));
        }
        let lines_max = kind.lines_max();
        if minute.logged.load(Ordering::Relaxed) >= lines_max {
            return self.count(minute);
        }
        let about = self.hash(object);
        if minute.is_logged(about) {
            return self.count(minute);
        }
        let place = minute.logged.fetch_add(1, Ordering::Relaxed);
        // Another worker may have logged the last one meanwhile.
        if place >= lines_max {
            return self.count(minute);
        }
        minute.about[place as usize].store(about, Ordering::Relaxed);
        let IncidentText { line, help } = message();
        let next_step = self.hash(&help);
        match minute.help.swap(next_step, Ordering::Relaxed) == next_step {
            true => self.channel.log(line),
            false => self.channel.log(format_args!("{line}\nhelp: {help}")),
        }
    }

    /// One that is not logged.
    fn count(&self, minute: &Minute) {
        if minute.others.fetch_add(1, Ordering::Relaxed) == 0 {
            let ends_at = minute.ends_at.load(Ordering::Relaxed);
            self.due.fetch_min(ends_at, Ordering::Release);
        }
    }

    /// Never 0.
    fn hash(&self, it: impl Hash) -> u64 {
        self.hasher.hash_one(it) | 1
    }

    /// When [`sum_up`](Self::sum_up) has something to report.
    pub(crate) fn due(&self) -> Option<Nanos> {
        let due = self.due.load(Ordering::Relaxed);
        (due < u64::MAX).then_some(Nanos(due))
    }

    /// Logs how many were only counted, of each kind whose minute is over at `now`.
    pub(crate) fn sum_up(&self, now: Nanos) {
        self.due.swap(u64::MAX, Ordering::Acquire);
        for kind in IncidentKind::ALL {
            let minute = &self.minutes[kind as usize];
            let ends_at = minute.ends_at.load(Ordering::Relaxed);
            if minute.others.load(Ordering::Relaxed) == 0 {
                continue;
            }
            match ends_at <= now.0 {
                true => self.end(kind, ends_at, 0),
                false => {
                    self.due.fetch_min(ends_at, Ordering::Release);
                }
            }
        }
    }

    /// Ends the minute that ends at `ended`, unless another worker has just done that; the one in
    /// progress then ends at `next`.
    fn end(&self, kind: IncidentKind, ended: u64, next: u64) {
        let minute = &self.minutes[kind as usize];
        let (order, failed) = (Ordering::Relaxed, Ordering::Relaxed);
        if minute
            .ends_at
            .compare_exchange(ended, next, order, failed)
            .is_err()
        {
            return;
        }
        for hash in minute.about.iter().chain([&minute.help]) {
            hash.store(0, Ordering::Relaxed);
        }
        minute.logged.store(0, Ordering::Relaxed);
        let others = minute.others.swap(0, Ordering::Relaxed);
        if others > 0 {
            let what = kind.others();
            self.channel.log(format_args!(
                "gannet: and {others} more in the last minute: {what}"
            ));
        }
    }
}

/// What a peer has chosen, such as a path, to stand between `'` and `'`: at most [`INCIDENT_NAME_MAX`]
/// bytes, which can neither end the quotation nor break a line nor steer a terminal.
pub(crate) struct PeerText<'a>(pub(crate) &'a [u8]);

impl fmt::Display for PeerText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (shown, rest) = match self.0.split_at_checked(INCIDENT_NAME_MAX) {
            Some((shown, rest @ [_, ..])) => (shown, rest),
            _ => (self.0, [].as_slice()),
        };
        let quoted = String::from_utf8_lossy(shown)
            .replace('\\', r"\\")
            .replace('\'', r"\'");
        f.write_str(&printable(&quoted))?;
        f.write_str(if rest.is_empty() { "" } else { "..." })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::AtomicUsize;

    use super::*;

    const MINUTE: u64 = INCIDENT_MINUTE_NS;

    fn message(line: String, help: &'static str) -> IncidentText {
        let help = help.into();
        IncidentText { line, help }
    }

    /// A flood costs as many messages as a few; the others are counted, and logged when the minute is
    /// over, whether more come or not.
    #[test]
    fn a_flood_is_a_few_lines_and_a_number() {
        static WRITTEN: Mutex<Vec<String>> = Mutex::new(Vec::new());
        static CHANNEL: Channel = Channel::new(|bytes| {
            let text = String::from_utf8(bytes.to_vec()).expect("text");
            WRITTEN.lock().expect("no holder panics").push(text);
            Ok(())
        });
        let written = || std::mem::take(&mut *WRITTEN.lock().expect("no holder panics")).concat();
        let incidents = Incidents::new(&CHANNEL);
        let formatted = AtomicUsize::new(0);
        let flood = |now: u64, count: u64| {
            for number in 0..count {
                incidents.report(IncidentKind::Unreadable, Nanos(now), number, || {
                    formatted.fetch_add(1, Ordering::Relaxed);
                    message(format!("number {number}"), "see")
                });
            }
        };
        // The next step is logged once.
        let line = |number: u64| match number {
            0 => "number 0\nhelp: see\n".into(),
            _ => format!("number {number}\n"),
        };
        let lines = |count| (0..count).map(line).collect::<String>();
        let others = |count: u64| {
            format!(
                "gannet: and {count} more in the last minute: requests for what cannot be read\n"
            )
        };

        // Few are all logged, and there is nothing to sum up.
        flood(1, INCIDENT_LINES_MAX);
        assert_eq!(written(), lines(INCIDENT_LINES_MAX));
        assert_eq!(incidents.due(), None);
        flood(2, 100_000);
        assert_eq!(written(), "");
        let due = Nanos(1 + MINUTE);
        assert_eq!(incidents.due(), Some(due));
        // Others are not affected.
        incidents.report(IncidentKind::Untrusted, Nanos(3), 0, || {
            message("another kind".into(), "see")
        });
        assert_eq!(written(), "another kind\nhelp: see\n");
        incidents.sum_up(Nanos(due.0 - 1));
        assert_eq!((written().as_str(), incidents.due()), ("", Some(due)));
        incidents.sum_up(due);
        assert_eq!((written(), incidents.due()), (others(100_000), None));
        incidents.sum_up(Nanos(due.0 + MINUTE));
        assert_eq!(written(), "");
        // The next minute has lines of its own; the one after it logs what it counts, too.
        flood(5 * MINUTE, INCIDENT_LINES_MAX + 1);
        assert_eq!(written(), lines(INCIDENT_LINES_MAX));
        flood(7 * MINUTE, 1);
        assert_eq!(written(), format!("{}{}", others(1), lines(1)));
        let most = 3 * INCIDENT_LINES_MAX;
        assert!(formatted.into_inner() as u64 <= most);
    }

    /// The same object is logged once a minute, and all clients of `--deny` are one line.
    #[test]
    fn what_was_logged_is_counted_for_the_rest_of_the_minute() {
        static WRITTEN: Mutex<Vec<u8>> = Mutex::new(Vec::new());
        static CHANNEL: Channel = Channel::new(|bytes| {
            WRITTEN.lock().expect("no holder panics").extend(bytes);
            Ok(())
        });
        let written = || {
            let bytes = std::mem::take(&mut *WRITTEN.lock().expect("no holder panics"));
            String::from_utf8(bytes).expect("text")
        };
        let incidents = Incidents::new(&CHANNEL);
        let report = |kind, now: u64, object: &str, help| {
            incidents.report(kind, Nanos(now), object, || message(object.into(), help));
        };
        for round in 0..5 {
            for (object, help) in [("a", "see"), ("b", "see"), ("c", "dmesg")] {
                report(IncidentKind::Unreadable, round, object, help);
            }
        }
        assert_eq!(written(), "a\nhelp: see\nb\nc\nhelp: dmesg\n");
        for client in ["192.0.2.1", "192.0.2.2", "192.0.2.1"] {
            report(IncidentKind::Denied, 1, client, "see");
        }
        assert_eq!(written(), "192.0.2.1\nhelp: see\n");
        incidents.sum_up(Nanos(1 + MINUTE));
        let expect = "gannet: and 12 more in the last minute: requests for what cannot be read\n\
                      gannet: and 2 more in the last minute: connections and packets of clients that are not allowed\n";
        assert_eq!(written(), expect);
        report(IncidentKind::Unreadable, 1 + MINUTE, "a", "see");
        assert_eq!(written(), "a\nhelp: see\n");
    }

    #[test]
    fn names_are_short_and_plain() {
        let check = |name: &[u8], expect: &str| assert_eq!(PeerText(name).to_string(), expect);
        check(b"a\n\x1b[31m\xff", "a\\n\\u{1b}[31m\u{fffd}");
        check("é.html".as_bytes(), "é.html");
        check(b"a' (host 'b'): c\\n", r"a\' (host \'b\'): c\\n");
        let most = "a".repeat(INCIDENT_NAME_MAX);
        check(most.as_bytes(), &most);
        check(format!("{most}b").as_bytes(), &format!("{most}..."));
    }
}
