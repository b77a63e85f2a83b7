//! What windows are told: that something changed, and what is wrong.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

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

/// Something that the author has to mend.
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
    streams: usize,
    is_over: bool,
}

/// What a window has been told.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Told {
    /// `None` if its page is of another run.
    number: Option<u64>,
    problems: Option<u64>,
}

/// The place of a stream of events, given back on drop.
pub(super) struct Stream<'a>(&'a State);

impl Drop for Stream<'_> {
    fn drop(&mut self) {
        self.0.lock().streams -= 1;
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

    /// What the page with this mark has been told.
    pub(super) fn told(&self, mark: &str) -> Told {
        let (run, number) = mark.split_once('-').unwrap_or_default();
        let is_this = u64::from_str_radix(run, 16) == Ok(self.run);
        Told {
            number: number.parse().ok().filter(|_| is_this),
            problems: None,
        }
    }

    pub(super) fn stream(&self) -> Option<Stream<'_>> {
        let mut inner = self.lock();
        if inner.streams >= STREAMS_MAX {
            return None;
        }
        inner.streams += 1;
        Some(Stream(self))
    }

    /// The number of windows that hear about changes.
    pub(super) fn windows(&self) -> usize {
        self.lock().streams
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

    /// Waits for something to tell, and returns it as JSON: an empty text if there is nothing for
    /// so long, `None` at the end.
    pub(super) fn next(&self, told: &mut Told, patience: Duration) -> Option<String> {
        let until = Instant::now() + patience;
        let mut inner = self.lock();
        loop {
            if inner.is_over {
                return None;
            }
            let now = Told {
                number: Some(inner.number),
                problems: Some(inner.problems_number),
            };
            if *told != now {
                let text = self.text(&inner, *told);
                *told = now;
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

    fn text(&self, inner: &Inner, told: Told) -> String {
        let missed = told.number.and_then(|it| inner.number.checked_sub(it));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_told_what_it_missed() {
        let state = State::new(255);
        let check = |told: &mut Told, expect: Option<&str>| {
            let text = state.next(told, Duration::ZERO);
            assert_eq!(text.as_deref(), expect);
        };
        let mut told = state.told(&state.mark());
        let first = r#"{"at":"ff-0","change":"nothing","problems":[]}"#;
        check(&mut told, Some(first));
        check(&mut told, Some(""));
        state.change(Change::Styles);
        check(
            &mut told,
            Some(r#"{"at":"ff-1","change":"styles","problems":[]}"#),
        );
        state.change(Change::Page);
        state.change(Change::Styles);
        check(
            &mut told,
            Some(r#"{"at":"ff-3","change":"page","problems":[]}"#),
        );
        check(
            &mut state.told("ff-2"),
            Some(r#"{"at":"ff-3","change":"styles","problems":[]}"#),
        );
        for mark in ["fe-3", "ff-4", "", "ff-"] {
            check(
                &mut state.told(mark),
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
        check(&mut told, Some(text));
        state.set_problems(vec![problem]);
        check(&mut told, Some(""));
        for _ in 0..CHANGES_MAX {
            state.change(Change::Styles);
        }
        let text = state.next(&mut state.told("ff-2"), Duration::ZERO);
        assert!(text.is_some_and(|it| it.contains("page")), "forgotten");
        state.end();
        check(&mut told, None);
    }

    #[test]
    fn streams_are_bounded() {
        let state = State::new(1);
        let streams: Vec<_> = (0..STREAMS_MAX).map(|_| state.stream()).collect();
        assert!(streams.iter().all(Option::is_some) && state.stream().is_none());
        drop(streams);
        assert_eq!((state.windows(), state.stream().is_some()), (0, true));
    }
}
