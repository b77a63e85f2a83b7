//! What went wrong for a peer and an operator has to know of: one message for each, at a bounded
//! rate.
//!
//! Peers cause them, so each [`Kind`] has [`INCIDENT_LINES_MAX`] messages a minute; the others are
//! counted, and their number is told once the minute is over. One that is not told is neither
//! formatted nor does it take a lock.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use gannet_io::cause::printable;
use gannet_io::driver::Nanos;

use super::notices::Channel;
use crate::limits::{INCIDENT_LINES_MAX, INCIDENT_MINUTE_NS, INCIDENT_NAME_MAX};

/// Kinds of incidents, each with messages of its own.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    /// A file or folder cannot be read.
    Unreadable,
    /// A symbolic link leads out of the site, or nowhere.
    LeadsOut,
    /// Whoever connects to an address for proxies is none that is trusted.
    Untrusted,
    /// A proxy sends no header of the PROXY protocol.
    NoHeader,
    /// A client is not allowed to connect.
    Denied,
}

impl Kind {
    const ALL: [Self; 5] = [
        Self::Unreadable,
        Self::LeadsOut,
        Self::Untrusted,
        Self::NoHeader,
        Self::Denied,
    ];

    /// Those that are only counted.
    const fn others(self) -> &'static str {
        match self {
            Self::Unreadable => "requests for what cannot be read",
            Self::LeadsOut => "requests for links that lead out of the site",
            Self::Untrusted => "connections by peers that are not in --trust",
            Self::NoHeader => "connections without a header of the PROXY protocol",
            Self::Denied => "connections by clients that are not allowed",
        }
    }
}

/// The incidents of a server, shared by its workers.
#[derive(Debug)]
pub(crate) struct Incidents {
    minutes: [Minute; Kind::ALL.len()],
    /// When the first minute ends in which some were only counted; `u64::MAX` if there is none.
    due: AtomicU64,
    channel: &'static Channel,
}

/// The minute in progress of one kind.
#[derive(Debug, Default)]
struct Minute {
    /// When it ends, in nanoseconds of the workers' clock.
    ends_at: AtomicU64,
    /// Incidents in it.
    count: AtomicU64,
}

impl Incidents {
    /// Incidents that are told on this channel.
    pub(crate) fn new(channel: &'static Channel) -> Self {
        Self {
            minutes: Default::default(),
            due: AtomicU64::new(u64::MAX),
            channel,
        }
    }

    /// Tells of one, or counts it.
    pub(crate) fn tell(&self, kind: Kind, now: Nanos, message: impl FnOnce() -> String) {
        let minute = &self.minutes[kind as usize];
        let ends_at = minute.ends_at.load(Ordering::Relaxed);
        if now.0 >= ends_at {
            self.end(kind, ends_at, now.0.saturating_add(INCIDENT_MINUTE_NS));
        }
        let before = minute.count.fetch_add(1, Ordering::Relaxed);
        if before < INCIDENT_LINES_MAX {
            self.channel.tell(message());
        } else if before == INCIDENT_LINES_MAX {
            let ends_at = minute.ends_at.load(Ordering::Relaxed);
            self.due.fetch_min(ends_at, Ordering::Release);
        }
    }

    /// When [`sum_up`](Self::sum_up) has something to tell.
    pub(crate) fn due(&self) -> Option<Nanos> {
        let due = self.due.load(Ordering::Relaxed);
        (due < u64::MAX).then_some(Nanos(due))
    }

    /// Tells how many were only counted, of each kind whose minute is over at `now`.
    pub(crate) fn sum_up(&self, now: Nanos) {
        self.due.swap(u64::MAX, Ordering::Acquire);
        for kind in Kind::ALL {
            let minute = &self.minutes[kind as usize];
            let ends_at = minute.ends_at.load(Ordering::Relaxed);
            if minute.count.load(Ordering::Relaxed) <= INCIDENT_LINES_MAX {
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
    fn end(&self, kind: Kind, ended: u64, next: u64) {
        let minute = &self.minutes[kind as usize];
        let (order, failed) = (Ordering::Relaxed, Ordering::Relaxed);
        if minute
            .ends_at
            .compare_exchange(ended, next, order, failed)
            .is_err()
        {
            return;
        }
        let count = minute.count.swap(0, Ordering::Relaxed);
        if let Some(others @ 1..) = count.checked_sub(INCIDENT_LINES_MAX) {
            let what = kind.others();
            self.channel.tell(format_args!(
                "gannet: and {others} more in the last minute: {what}"
            ));
        }
    }
}

/// What a peer has chosen, such as a path, to stand between `'` and `'`: at most [`INCIDENT_NAME_MAX`]
/// bytes, which can neither end the quotation nor break a line nor steer a terminal.
pub(crate) struct Named<'a>(pub(crate) &'a [u8]);

impl fmt::Display for Named<'_> {
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

    /// A flood costs as many messages as a few; the others are counted, and told of when the minute is
    /// over, whether more come or not.
    #[test]
    fn a_flood_is_a_few_lines_and_a_number() {
        static WRITTEN: Mutex<Vec<String>> = Mutex::new(Vec::new());
        static CHANNEL: Channel = Channel::new(|bytes| {
            let text = String::from_utf8(bytes.to_vec()).expect("text");
            WRITTEN.lock().expect("nobody panics").push(text);
            Ok(())
        });
        let told = || std::mem::take(&mut *WRITTEN.lock().expect("nobody panics")).concat();
        let incidents = Incidents::new(&CHANNEL);
        let formatted = AtomicUsize::new(0);
        let flood = |now: u64, count: u64| {
            for number in 0..count {
                incidents.tell(Kind::Denied, Nanos(now), || {
                    formatted.fetch_add(1, Ordering::Relaxed);
                    format!("number {number}")
                });
            }
        };
        let lines = |count: u64| (0..count).map(|it| format!("number {it}\n"));
        let lines = |count| lines(count).collect::<String>();
        let others = |count: u64| {
            format!(
                "gannet: and {count} more in the last minute: connections by clients that are not \
                 allowed\n"
            )
        };

        // Few are all told, and there is nothing to sum up.
        flood(1, INCIDENT_LINES_MAX);
        assert_eq!(told(), lines(INCIDENT_LINES_MAX));
        assert_eq!(incidents.due(), None);
        flood(2, 100_000);
        assert_eq!(told(), "");
        let due = Nanos(1 + MINUTE);
        assert_eq!(incidents.due(), Some(due));
        // Others are not affected.
        incidents.tell(Kind::Untrusted, Nanos(3), || "another kind".into());
        assert_eq!(told(), "another kind\n");
        incidents.sum_up(Nanos(due.0 - 1));
        assert_eq!((told().as_str(), incidents.due()), ("", Some(due)));
        incidents.sum_up(due);
        assert_eq!((told(), incidents.due()), (others(100_000), None));
        incidents.sum_up(Nanos(due.0 + MINUTE));
        assert_eq!(told(), "");
        // The next minute has lines of its own; what it counts is told by the one after it, too.
        flood(5 * MINUTE, INCIDENT_LINES_MAX + 1);
        assert_eq!(told(), lines(INCIDENT_LINES_MAX));
        flood(7 * MINUTE, 1);
        assert_eq!(told(), format!("{}number 0\n", others(1)));
        let most = 3 * INCIDENT_LINES_MAX;
        assert!(formatted.into_inner() as u64 <= most);
    }

    #[test]
    fn names_are_short_and_plain() {
        let check = |name: &[u8], expect: &str| assert_eq!(Named(name).to_string(), expect);
        check(b"a\n\x1b[31m\xff", "a\\n\\u{1b}[31m\u{fffd}");
        check("é.html".as_bytes(), "é.html");
        check(b"a' (host 'b'): c\\n", r"a\' (host \'b\'): c\\n");
        let most = "a".repeat(INCIDENT_NAME_MAX);
        check(most.as_bytes(), &most);
        check(format!("{most}b").as_bytes(), &format!("{most}..."));
    }
}
