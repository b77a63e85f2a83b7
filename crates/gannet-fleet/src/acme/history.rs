//! The failures and orders at a server that are remembered over a restart, so that an orderer that is
//! started again and again does not order again and again.
//!
//! The file is replaced as a whole before each order, and after it. It has a first line, one for orders of
//! the last hour for hosts that clients request, and one for each name of which there is something to
//! remember:
//!
//! ```text
//! gannet acme history 1
//! + ORDERED
//! NAME FAILURES DUE ASKED ATTEMPTS ISSUED
//! ```
//!
//! Times are Unix seconds; `ORDERED` and the last two are lists of them, with commas, or `-`. A file without
//! the line `+` is one in which there were none.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::error::AcmeError;
use super::folder;
use super::schedule::{Orders, asked_wait, back_off};
use crate::limits::{
    ACCOUNT_KEPT_S, CERTIFICATES_PER_WEEK, HISTORY_LEN_MAX, HISTORY_NAMES_MAX,
    ON_DEMAND_HOSTS_ORDERS_PER_HOUR, STARTS_PER_DAY, STARTS_PER_HOUR,
};

/// In place of a name: the account itself. Its certificates are its replacements.
pub(super) const ACCOUNT: &str = "*";

/// See the module documentation.
#[derive(Debug)]
pub(super) struct History {
    path: PathBuf,
    /// Orders for hosts that clients request.
    on_demand: Orders,
    names: BTreeMap<String, Record>,
}

#[derive(Clone, Debug, Default, Eq, PartialEq)]
struct Record {
    /// In a row.
    failures: u32,
    /// When to try again.
    due: i64,
    /// The server wants nothing before.
    asked: i64,
    /// When it was tried in vain, at most [`STARTS_PER_DAY`] times.
    attempts: Vec<i64>,
    /// When something was issued, at most [`CERTIFICATES_PER_WEEK`] times.
    issued: Vec<i64>,
}

impl History {
    /// Reads the file. If it is damaged, there is none, and the error says so.
    pub(super) fn read(path: PathBuf) -> (Self, Option<AcmeError>) {
        let read = folder::read(&path, HISTORY_LEN_MAX).and_then(|content| match content {
            Some(content) => parse(&content)
                .ok_or_else(|| AcmeError::Damaged(path.clone(), "not a history of orders".into())),
            None => Ok(Content::default()),
        });
        let (content, damage) = match read {
            Ok(content) => (content, None),
            Err(error) => (Content::default(), Some(error)),
        };
        let history = Self {
            path,
            on_demand: Orders::of_on_demand(content.on_demand),
            names: content.names,
        };
        (history, damage)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// When a new process may try for the first time: at once, unless the last one has tried too often,
    /// or the server wants to be left alone.
    pub(super) fn first_due(&self, name: &str, now: i64) -> i64 {
        let Some(record) = self.names.get(name) else {
            return now;
        };
        let attempts = within(&record.attempts, now, DAY_S);
        let after = |most: usize, period: i64| {
            let first = attempts.len().checked_sub(most).map(|at| attempts[at]);
            first.map_or(now, |first| first + period)
        };
        let often = after(STARTS_PER_HOUR, 3600).max(after(STARTS_PER_DAY, DAY_S));
        // A clock that was ahead has no say.
        let longest = back_off(u32::MAX).as_secs().cast_signed();
        let due = match attempts.last() {
            // The last process has ended before it knew.
            Some(last) if record.due <= *last => often,
            _ => record.due.min(now + longest),
        };
        let most = asked_wait(Some(Duration::MAX)).as_secs().cast_signed();
        often.min(due).max(record.asked.min(now + most)).max(now)
    }

    /// Failures in a row.
    pub(super) fn failures(&self, name: &str) -> u32 {
        self.names.get(name).map_or(0, |record| record.failures)
    }

    /// Whether this name has had its certificates for this week.
    pub(super) fn is_full(&self, name: &str, now: i64) -> bool {
        let issued = self.names.get(name).map(|record| &record.issued);
        issued.is_some_and(|issued| within(issued, now, WEEK_S).len() >= CERTIFICATES_PER_WEEK)
    }

    /// Whether the account was replaced not long ago.
    pub(super) fn is_replaced(&self, now: i64) -> bool {
        let issued = self.names.get(ACCOUNT).map(|record| &record.issued);
        issued.is_some_and(|issued| !within(issued, now, ACCOUNT_KEPT_S).is_empty())
    }

    /// How many seconds to wait before another order for a host that a client requests; none if it may be
    /// made now.
    pub(super) fn on_demand_wait(&mut self, now: i64) -> Option<u64> {
        self.on_demand.wait(now)
    }

    /// A request to the server is next. It counts as failed until it has succeeded.
    ///
    /// # Errors
    /// That cannot be kept: then nothing may be asked.
    pub(super) fn begin(&mut self, name: &str, now: i64) -> Result<(), AcmeError> {
        let record = self.record(name);
        let before = record.attempts.clone();
        record.attempts.push(now);
        keep(&mut record.attempts, STARTS_PER_DAY);
        let begun = self.save(now);
        if begun.is_err() {
            self.record(name).attempts = before;
        }
        begun
    }

    /// The same for an order for a host that a client requests, of which an hour has
    /// [`ON_DEMAND_HOSTS_ORDERS_PER_HOUR`].
    ///
    /// # Errors
    /// As of [`begin`](Self::begin): then it is not counted.
    pub(super) fn begin_on_demand(&mut self, name: &str, now: i64) -> Result<(), AcmeError> {
        self.on_demand.count(now);
        let begun = self.begin(name, now);
        if begun.is_err() {
            self.on_demand.uncount();
        }
        begun
    }

    /// It has failed; returns when to try again, and what became of keeping that.
    pub(super) fn failed(
        &mut self,
        name: &str,
        now: i64,
        asked: Option<Duration>,
    ) -> (Duration, Result<(), AcmeError>) {
        let record = self.record(name);
        record.failures = record.failures.saturating_add(1);
        let asked = asked_wait(asked);
        let wait = back_off(record.failures).max(asked);
        record.due = now + wait.as_secs().cast_signed();
        record.asked = now + asked.as_secs().cast_signed();
        (wait, self.save(now))
    }

    /// It has succeeded, and something was issued.
    pub(super) fn issued(&mut self, name: &str, now: i64) -> Result<(), AcmeError> {
        let record = self.record(name);
        record.issued.push(now);
        keep(&mut record.issued, CERTIFICATES_PER_WEEK);
        record.attempts.clear();
        self.save(now)
    }

    /// There is no failure any more.
    pub(super) fn succeeded(&mut self, name: &str, now: i64) -> Result<(), AcmeError> {
        let Some(record) = self.names.get_mut(name) else {
            return Ok(());
        };
        if record.failures == 0 && record.attempts.is_empty() {
            return Ok(());
        }
        *record = Record {
            issued: std::mem::take(&mut record.issued),
            ..Record::default()
        };
        self.save(now)
    }

    fn record(&mut self, name: &str) -> &mut Record {
        if self.names.len() >= HISTORY_NAMES_MAX && !self.names.contains_key(name) {
            let oldest = self.names.iter().min_by_key(|(_, record)| record.last());
            let oldest = oldest.map(|(name, _)| name.clone());
            oldest.and_then(|name| self.names.remove(&name));
        }
        self.names.entry(name.to_owned()).or_default()
    }

    fn save(&mut self, now: i64) -> Result<(), AcmeError> {
        self.names.retain(|_, record| {
            record.attempts = within(&record.attempts, now, DAY_S);
            record.issued = within(&record.issued, now, WEEK_S);
            // Failures of names without further orders are forgotten after a week.
            let is_old = record.due < now - WEEK_S;
            let is_idle = record.attempts.is_empty() && record.issued.is_empty();
            !(is_idle && (record.failures == 0 || is_old))
        });
        let mut text = format!("{FIRST}\n");
        if !self.on_demand.made().is_empty() {
            text += &format!("{ON_DEMAND}{}\n", list(self.on_demand.made()));
        }
        for (name, it) in &self.names {
            let (attempts, issued) = (list(&it.attempts), list(&it.issued));
            let (failures, due, asked) = (it.failures, it.due, it.asked);
            text += &format!("{name} {failures} {due} {asked} {attempts} {issued}\n");
        }
        folder::replace(&self.path, text.as_bytes())
    }
}

impl Record {
    /// When something was noted here.
    fn last(&self) -> i64 {
        let all = self.attempts.iter().chain(&self.issued).copied();
        all.fold(self.due, i64::max)
    }
}

const FIRST: &str = "gannet acme history 1";

/// Before the times of orders for hosts that clients request.
const ON_DEMAND: &str = "+ ";

/// What a file says.
#[derive(Default)]
struct Content {
    on_demand: Vec<i64>,
    names: BTreeMap<String, Record>,
}

fn parse(content: &[u8]) -> Option<Content> {
    let text = std::str::from_utf8(content).ok()?;
    let mut lines = text.lines().peekable();
    if lines.next() != Some(FIRST) {
        return None;
    }
    let on_demand = match lines.next_if(|line| line.starts_with(ON_DEMAND)) {
        Some(line) => times(&line[ON_DEMAND.len()..], ON_DEMAND_HOSTS_ORDERS_PER_HOUR)?,
        None => Vec::new(),
    };
    let names: Option<BTreeMap<_, _>> = lines.map(record).collect();
    let names = names.filter(|it| it.len() <= HISTORY_NAMES_MAX && text.ends_with('\n'))?;
    Some(Content { on_demand, names })
}

fn record(line: &str) -> Option<(String, Record)> {
    let mut parts = line.split(' ');
    let mut next = || parts.next().filter(|part| !part.is_empty());
    let name = next()?.to_owned();
    let record = Record {
        failures: next()?.parse().ok()?,
        due: time(next()?)?,
        asked: time(next()?)?,
        attempts: times(next()?, STARTS_PER_DAY)?,
        issued: times(next()?, CERTIFICATES_PER_WEEK)?,
    };
    parts.next().is_none().then_some((name, record))
}

/// A time with which one can reckon.
fn time(text: &str) -> Option<i64> {
    text.parse().ok().filter(|time| (0..1 << 40).contains(time))
}

fn times(text: &str, most: usize) -> Option<Vec<i64>> {
    if text == "-" {
        return Some(Vec::new());
    }
    let times: Option<Vec<i64>> = text.split(',').map(time).collect();
    times.filter(|times| times.len() <= most)
}

fn list(times: &[i64]) -> String {
    let texts: Vec<String> = times.iter().map(i64::to_string).collect();
    match texts.is_empty() {
        true => "-".into(),
        false => texts.join(","),
    }
}

/// Those of the last so many seconds. A clock that was ahead has no say.
fn within(times: &[i64], now: i64, seconds: i64) -> Vec<i64> {
    let times = times.iter().copied();
    times
        .filter(|it| (now - seconds..=now).contains(it))
        .collect()
}

/// The last ones.
fn keep(times: &mut Vec<i64>, most: usize) {
    times.drain(..times.len().saturating_sub(most));
}

const DAY_S: i64 = 86_400;

const WEEK_S: i64 = 7 * DAY_S;

#[cfg(test)]
mod tests {
    use std::fs;

    use gannet_testkit::Folder;

    use super::*;
    use crate::limits::ORDER_BACK_OFF_LEAST;

    const NOW: i64 = 1_800_000_000;

    fn read(folder: &Folder) -> History {
        let (history, damage) = History::read(folder.join("history"));
        assert!(damage.is_none(), "{damage:?}");
        history
    }

    #[test]
    fn a_process_that_is_started_again_and_again_tries_only_so_often() {
        let folder = Folder::new();
        let (mut now, mut attempts) = (NOW, Vec::new());
        while now < NOW + DAY_S {
            // Each process tries as soon as it may, and is killed in the midst of it.
            let mut history = read(&folder);
            if history.first_due("a.test", now) <= now {
                history.begin("a.test", now).expect("kept");
                attempts.push(now);
            }
            now += 60;
        }
        assert_eq!(attempts.len(), STARTS_PER_DAY);
        for start in &attempts {
            let hour = attempts
                .iter()
                .filter(|at| (start..&(start + 3600)).contains(at));
            assert!(hour.count() <= STARTS_PER_HOUR);
        }
        assert_eq!(read(&folder).first_due("b.test", now), now);
    }

    #[test]
    fn failures_and_what_a_server_asks_for_outlast_a_restart() {
        let folder = Folder::new();
        let mut history = read(&folder);
        history.begin("a.test", NOW).expect("kept");
        let (first, kept) = history.failed("a.test", NOW, None);
        kept.expect("kept");
        let mut history = read(&folder);
        // Once does not delay the next start, but pauses go on growing.
        assert_eq!(history.first_due("a.test", NOW + 1), NOW + 1);
        history.begin("a.test", NOW + 1).expect("kept");
        let (second, _) = history.failed("a.test", NOW + 1, None);
        assert!(first < ORDER_BACK_OFF_LEAST * 2 && second >= ORDER_BACK_OFF_LEAST * 2);
        let day = Duration::from_secs(DAY_S.unsigned_abs());
        let (wait, _) = history.failed("a.test", NOW + 2, Some(day));
        assert_eq!(wait, day);
        let mut history = read(&folder);
        assert_eq!(history.failures("a.test"), 3);
        assert_eq!(history.first_due("a.test", NOW + 3), NOW + 2 + DAY_S);
        // A clock that is set back by years does not stop it for years.
        let back = NOW - 1000 * DAY_S;
        assert!(history.first_due("a.test", back) <= back + DAY_S);
        history.succeeded("a.test", NOW + 4).expect("kept");
        assert_eq!(read(&folder).first_due("a.test", NOW + 4), NOW + 4);
        assert_eq!(read(&folder).failures("a.test"), 0);
    }

    #[test]
    fn orders_of_a_week_are_counted_over_restarts() {
        let folder = Folder::new();
        for number in 0..CERTIFICATES_PER_WEEK as i64 {
            let mut history = read(&folder);
            assert!(!history.is_full("a.test", NOW + number));
            history.issued("a.test", NOW + number).expect("kept");
        }
        let history = read(&folder);
        assert!(history.is_full("a.test", NOW + 10) && !history.is_full("b.test", NOW + 10));
        assert!(!history.is_full("a.test", NOW + 1 + WEEK_S));
        assert!(!history.is_replaced(NOW));
    }

    #[test]
    fn orders_that_somebody_asks_for_are_counted_over_restarts() {
        let folder = Folder::new();
        let mut orders = 0;
        for at in 0..3600 {
            // Each process makes one, if it may.
            let mut history = read(&folder);
            if history.on_demand_wait(NOW + at).is_none() {
                history.begin_on_demand("a.test", NOW + at).expect("kept");
                orders += 1;
            }
        }
        assert_eq!(orders, ON_DEMAND_HOSTS_ORDERS_PER_HOUR);
        let mut history = read(&folder);
        assert_eq!(history.on_demand_wait(NOW + 3599), Some(1));
        assert_eq!(history.on_demand_wait(NOW + 3600), None);
        let many = vec!["1"; ON_DEMAND_HOSTS_ORDERS_PER_HOUR + 1].join(",");
        folder.write("history", format!("{FIRST}\n{ON_DEMAND}{many}\n"));
        let (_, damage) = History::read(folder.join("history"));
        assert!(damage.is_some(), "more than are ever kept");
    }

    #[test]
    fn what_could_not_be_kept_is_not_asked_and_not_counted() {
        let folder = Folder::new();
        let mut history = read(&folder);
        history.begin("b.test", NOW).expect("kept");
        // A folder in its way.
        folder.write(".history.new/x", "");
        for _ in 0..ON_DEMAND_HOSTS_ORDERS_PER_HOUR {
            history.begin_on_demand("a.test", NOW).expect_err("refused");
        }
        assert_eq!(history.on_demand_wait(NOW), None);
        fs::remove_dir_all(folder.join(".history.new")).expect("there");
        history.begin("b.test", NOW).expect("kept");
        let mut history = read(&folder);
        assert_eq!(history.on_demand_wait(NOW), None);
        assert_eq!(history.first_due("a.test", NOW), NOW);
    }

    /// Nor is one that was kept before forgotten, of a name that has as many as are kept.
    #[test]
    fn what_could_not_be_kept_takes_the_place_of_nothing() {
        let folder = Folder::new();
        let mut history = read(&folder);
        for number in 0..STARTS_PER_DAY as i64 {
            history.begin("a.test", NOW + number).expect("kept");
        }
        let due = history.first_due("a.test", NOW + 3600);
        folder.write(".history.new/x", "");
        for _ in 0..STARTS_PER_DAY {
            history.begin("a.test", NOW + 3600).expect_err("refused");
        }
        assert_eq!(history.first_due("a.test", NOW + 3600), due);
        fs::remove_dir_all(folder.join(".history.new")).expect("there");
        history.begin("b.test", NOW + 3600).expect("kept");
        assert_eq!(read(&folder).first_due("a.test", NOW + 3600), due);
    }

    #[test]
    fn what_is_damaged_or_too_long_is_said_and_ignored() {
        let folder = Folder::new();
        for text in [
            "",
            "gannet acme history 2\n",
            "gannet acme history 1\na.test 1 2 3 -",
            "gannet acme history 1\na.test 1 2 3 - -\nb.te",
            "gannet acme history 1\na.test 1 2 3 - - -\n",
            "gannet acme history 1\na.test 1 99999999999999999 3 - -\n",
            "gannet acme history 1\na.test 1 -2 3 - -\n",
            "gannet acme history 1\na.test 1 2 3 - 1,2,3,4,5\n",
            "gannet acme history 1\n\u{0}\n",
            "gannet acme history 1\n+ 1,-2\n",
            "gannet acme history 1\n+ 1\n+ 2\n",
            "gannet acme history 1\n+ 1",
        ] {
            folder.write("history", text);
            let (history, damage) = History::read(folder.join("history"));
            let damage = damage.expect("said").to_string();
            assert!(
                damage.contains("not a history of orders"),
                "{text}: {damage}"
            );
            assert_eq!(history.first_due("a.test", NOW), NOW);
        }
        folder.write("history", vec![b'a'; HISTORY_LEN_MAX as usize + 1]);
        let (mut history, damage) = History::read(folder.join("history"));
        assert!(damage.is_some_and(|it| it.to_string().contains("longer than")));
        // The next order makes it good.
        history.begin("a.test", NOW).expect("kept");
        assert_eq!(read(&folder).names.len(), 1);
    }

    #[test]
    fn names_are_bounded_and_the_oldest_forgotten() {
        let folder = Folder::new();
        let lines: String = (0..HISTORY_NAMES_MAX as i64)
            .map(|number| format!("{number}.test 1 {} 0 - -\n", NOW + number))
            .collect();
        folder.write("history", format!("{FIRST}\n{lines}"));
        let mut history = read(&folder);
        history.begin("another.test", NOW).expect("kept");
        let history = read(&folder);
        assert_eq!(history.names.len(), HISTORY_NAMES_MAX);
        assert_eq!(
            (history.failures("0.test"), history.failures("1.test")),
            (0, 1)
        );
        let len = fs::metadata(history.path()).expect("there").len();
        assert!(len <= HISTORY_LEN_MAX);
        // After a week, nothing is left of them.
        let mut history = history;
        history
            .begin("another.test", NOW + 2 * WEEK_S)
            .expect("kept");
        assert_eq!(read(&folder).names.len(), 1);
    }

    #[test]
    fn nothing_is_asked_that_cannot_be_kept() {
        let folder = Folder::new();
        let mut history = read(&folder);
        fs::create_dir_all(folder.join("history/x")).expect("made");
        let error = history.begin("a.test", NOW).expect_err("refused");
        assert!(error.to_string().starts_with("cannot write"), "{error}");
    }
}
