//! The news for windows: that something changed, and what is wrong.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::TcpStream;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use super::limits::{CHANGES_MAX, STREAMS_MAX};
use crate::json;

/// What a change asks of a window.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Change {
    /// Only style sheets changed: they are loaded again.
    Styles,
    /// The page is loaded again.
    Page,
}

/// Something that the author has to fix.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Problem {
    /// What it is, in a few words.
    pub(crate) title: String,
    /// The message, several lines.
    pub(crate) text: String,
}

/// The state of a run, shared by all connections.
pub(super) struct State {
    /// Tells this run from others.
    run: u64,
    inner: Mutex<Inner>,
    news: Condvar,
}

#[derive(Default)]
struct Inner {
    /// The number of changes so far.
    number: u64,
    /// The last ones, up to `number`.
    changes: VecDeque<Change>,
    problems: Vec<Problem>,
    /// How often the problems changed.
    problems_number: u64,
    /// The connections with streams of events, by number.
    streams: BTreeMap<u64, TcpStream>,
    /// The number of the next one.
    next_stream: u64,
    is_over: bool,
}

/// What a window has been told.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct WindowState {
    /// `None` if its page is of another run.
    number: Option<u64>,
    problems: Option<u64>,
}

/// The place of a stream of events, given back on drop.
pub(super) struct Stream<'a>(&'a State, u64);

impl Drop for Stream<'_> {
    fn drop(&mut self) {
        self.0.lock().streams.remove(&self.1);
    }
}

impl State {
    pub(super) fn new(run: u64) -> Self {
        Self {
            run,
            inner: Mutex::default(),
            news: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The mark of pages that are made now.
    pub(super) fn mark(&self) -> String {
        self.mark_of(self.lock().number)
    }

    fn mark_of(&self, number: u64) -> String {
        format!("{:x}-{number}", self.run)
    }

    /// The news that the page with this mark has.
    pub(super) fn seen_by(&self, mark: &str) -> WindowState {
        let (run, number) = mark.split_once('-').unwrap_or_default();
        let is_this = u64::from_str_radix(run, 16) == Ok(self.run);
        WindowState {
            number: number.parse().ok().filter(|_| is_this),
            problems: None,
        }
    }

    /// A place for a stream of events, if one is free.
    pub(super) fn stream(&self, connection: &TcpStream) -> io::Result<Option<Stream<'_>>> {
        let connection = connection.try_clone()?;
        let mut inner = self.lock();
        if inner.windows() >= STREAMS_MAX {
            return Ok(None);
        }
        let number = inner.next_stream;
        inner.next_stream += 1;
        inner.streams.insert(number, connection);
        Ok(Some(Stream(self, number)))
    }

    /// The number of windows that hear about changes.
    pub(super) fn windows(&self) -> usize {
        self.lock().windows()
    }

    pub(super) fn change(&self, change: Change) {
        let mut inner = self.lock();
        inner.number += 1;
        inner.changes.push_back(change);
        if inner.changes.len() > CHANGES_MAX {
            inner.changes.pop_front();
        }
        self.news.notify_all();
    }

    pub(super) fn set_problems(&self, problems: Vec<Problem>) {
        let mut inner = self.lock();
        if inner.problems != problems {
            inner.problems = problems;
            inner.problems_number += 1;
            self.news.notify_all();
        }
    }

    /// Ends all streams.
    pub(super) fn end(&self) {
        self.lock().is_over = true;
        self.news.notify_all();
    }

    /// Waits for something to tell, and returns it as JSON: an empty text if there is nothing within
    /// `patience`, `None` at the end.
    pub(super) fn next(&self, seen: &mut WindowState, patience: Duration) -> Option<String> {
        let until = Instant::now() + patience;
        let mut inner = self.lock();
        loop {
            if inner.is_over {
                return None;
            }
            let now = WindowState {
                number: Some(inner.number),
                problems: Some(inner.problems_number),
            };
            if *seen != now {
                let text = self.text(&inner, *seen);
                *seen = now;
                return Some(text);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Some(String::new());
            }
            let waited = self.news.wait_timeout(inner, left);
            inner = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn text(&self, inner: &Inner, seen: WindowState) -> String {
        let missed = seen.number.and_then(|it| inner.number.checked_sub(it));
        let missed = missed.and_then(|it| usize::try_from(it).ok());
        let change = match missed.filter(|it| *it <= inner.changes.len()) {
            None => Some(Change::Page),
            Some(missed) => inner.changes.iter().rev().take(missed).max().copied(),
        };
        let change = match change {
            None => "nothing",
            Some(Change::Styles) => "styles",
            Some(Change::Page) => "page",
        };
        let problems: Vec<_> = inner
            .problems
            .iter()
            .map(|it| {
                let (title, text) = (json::string(&it.title), json::string(&it.text));
                format!("{{\"title\":{title},\"text\":{text}}}")
            })
            .collect();
        format!(
            "{{\"at\":\"{}\",\"change\":\"{change}\",\"problems\":[{}]}}",
            self.mark_of(inner.number),
            problems.join(",")
        )
    }
}

impl Inner {
    /// Streams notice at their next event that their window has gone; this asks the connections.
    fn windows(&self) -> usize {
        self.streams.values().filter(|it| is_open(it)).count()
    }
}

/// Whether the client has not closed its connection, on which it sends nothing more.
fn is_open(connection: &TcpStream) -> bool {
    match recv(
        connection,
        &mut [0; 1],
        RecvFlags::PEEK | RecvFlags::DONTWAIT,
    ) {
        Ok((count, _)) => count > 0,
        Err(error) => matches!(error, Errno::AGAIN | Errno::INTR),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use gannet_testkit::process::until;

    use super::*;

    #[test]
    fn a_window_gets_what_it_missed() {
        let state = State::new(255);
        let check = |seen: &mut WindowState, expect: Option<&str>| {
            let text = state.next(seen, Duration::ZERO);
            assert_eq!(text.as_deref(), expect);
        };
        let mut seen = state.seen_by(&state.mark());
        let first = r#"{"at":"ff-0","change":"nothing","problems":[]}"#;
        check(&mut seen, Some(first));
        check(&mut seen, Some(""));
        state.change(Change::Styles);
        check(
            &mut seen,
            Some(r#"{"at":"ff-1","change":"styles","problems":[]}"#),
        );
        state.change(Change::Page);
        state.change(Change::Styles);
        check(
            &mut seen,
            Some(r#"{"at":"ff-3","change":"page","problems":[]}"#),
        );
        check(
            &mut state.seen_by("ff-2"),
            Some(r#"{"at":"ff-3","change":"styles","problems":[]}"#),
        );
        for mark in ["fe-3", "ff-4", "", "ff-"] {
            check(
                &mut state.seen_by(mark),
                Some(r#"{"at":"ff-3","change":"page","problems":[]}"#),
            );
        }
        let problem = Problem {
            title: "a".into(),
            text: "\"b\"\n".into(),
        };
        state.set_problems(vec![problem.clone()]);
        let text =
            r#"{"at":"ff-3","change":"nothing","problems":[{"title":"a","text":"\"b\"\u000a"}]}"#;
        check(&mut seen, Some(text));
        state.set_problems(vec![problem]);
        check(&mut seen, Some(""));
        for _ in 0..CHANGES_MAX {
            state.change(Change::Styles);
        }
        let text = state.next(&mut state.seen_by("ff-2"), Duration::ZERO);
        assert!(text.is_some_and(|it| it.contains("page")), "forgotten");
        state.end();
        check(&mut seen, None);
    }

    #[test]
    fn streams_are_bounded() {
        let state = State::new(1);
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let connect = || {
            let client = TcpStream::connect(address).expect("it listens");
            (client, listener.accept().expect("a client").0)
        };
        let stream = |(_, server): &(_, TcpStream)| state.stream(server).expect("a descriptor");
        let mut pairs: Vec<_> = (0..STREAMS_MAX).map(|_| connect()).collect();
        let streams: Vec<_> = pairs.iter().map(stream).collect();
        let one_more = connect();
        assert!(streams.iter().all(Option::is_some) && stream(&one_more).is_none());
        // A window that was closed does not count, although its stream has not noticed yet.
        let (closed, _server) = pairs.pop().expect("there are some");
        drop(closed);
        until("it is noticed", || state.windows() == STREAMS_MAX - 1);
        assert!(stream(&one_more).is_some());
        drop(streams);
        assert_eq!((state.windows(), stream(&one_more).is_some()), (0, true));
    }
}
