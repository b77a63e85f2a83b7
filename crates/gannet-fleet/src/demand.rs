//! What the fetcher's thread does: questions, flights to the store, and what has landed.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use gannet_archive::Unit;
use gannet_store::{ReleaseId, SparseFile, Store};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::cache::Cache;
use crate::error::{Cause, FleetError};
use crate::fetcher::{Answer, Answered, Effort, Message, Reason, Want};
use crate::flight::{Flight, Landed, reason_of};
use crate::limits::{
    AHEAD_MAX, ANSWERS_MAX, BEGIN_TIMEOUT, DAMAGED_FOR, FAILED_MAX, FETCH_LEN_MAX, FETCH_TIMEOUT,
    FLIGHTS_MAX, FLIGHTS_OF_CLIENT, JOIN_GAP_MAX, QUESTIONS_MAX, REPORTED_MAX, TURN,
    UNREACHABLE_FOR, WARMED_SHARE, WARMING_FLIGHTS, WRITTEN_MAX,
};
use crate::remote::Remote;
use crate::warming::{self, Warm};

/// Is called with failures.
pub(crate) type Reporter = Box<dyn FnMut(FleetError) + Send>;

/// See the module.
pub(crate) struct Demand {
    remote: Arc<Remote>,
    cache: Cache,
    questions: Vec<Question>,
    /// Some came or went, so that turns are others.
    are_others: bool,
    /// Askers of all questions.
    waiting: usize,
    flights: FuturesUnordered<LocalBoxFuture<'static, Landed>>,
    /// Units that were written and are not synced yet.
    written: Vec<(ReleaseId, u64)>,
    syncing: Option<JoinHandle<Synced>>,
    /// Blobs of a release to be fetched while no server waits, and how often they were used in the one before.
    warm: (ReleaseId, VecDeque<(u32, u8)>),
    /// Bytes that these may still have.
    warm_left: u64,
    finding: Option<JoinHandle<io::Result<Warm>>>,
    /// Units that could not be fetched, why, and until when that counts.
    failed: HashMap<(ReleaseId, u64), (Reason, Instant)>,
    /// Some were added to these.
    has_failed: bool,
    timer: Option<Pin<Box<Sleep>>>,
    report: Reporter,
    /// What was reported since a fetch succeeded.
    reported: Vec<String>,
}

/// Units that are requested, and who waits for them.
struct Question {
    release: ReleaseId,
    needed: Range<u64>,
    /// The same, with what is read ahead.
    ahead: Range<u64>,
    /// In the order of time.
    askers: Vec<Asker>,
    /// The least that any of them has: see [`Turns`].
    turn: usize,
    /// None of them waits for it yet.
    is_ahead: bool,
    effort: Effort,
    /// Whether other releases have what it lacks.
    is_known: bool,
    /// Whether what it lacks is on its way.
    has_begun: bool,
}

/// Who waits for an answer.
struct Asker {
    client: Option<u128>,
    since: Instant,
    answered: Answered,
}

impl Question {
    /// How long one of its askers waits at most.
    fn patience(&self) -> Duration {
        match self.has_begun {
            true => FETCH_TIMEOUT,
            false => BEGIN_TIMEOUT,
        }
    }

    /// Whether so few questions of its client come before it that it may begin. Who asks for nobody in particular asks
    /// for many, and may have all flights.
    fn may_begin(&self) -> bool {
        let is_of_many = !self.is_ahead && self.askers.iter().any(|it| it.client.is_none());
        is_of_many || self.turn <= FLIGHTS_OF_CLIENT
    }

    /// When the first of them is answered in any case.
    fn late_at(&self) -> Option<Instant> {
        Some(self.askers.first()?.since + self.patience())
    }
}

/// Counts the questions of clients, in the order in which they are to be answered.
#[derive(Default)]
struct Turns {
    /// Of each, and the question that was counted last; of nobody also those that are asked ahead.
    counted: HashMap<(Option<u128>, bool), (usize, usize)>,
}

impl Turns {
    /// How many of a client come before the question at this place, with it. Who asks for nobody in particular asks
    /// for many, each of whom has a share; what these may need later comes after what any client waits for.
    fn of(&mut self, client: Option<u128>, at: usize, is_ahead: bool) -> usize {
        let key = (client, client.is_none() && is_ahead);
        let (turn, last) = self.counted.entry(key).or_insert((0, usize::MAX));
        if *last != at {
            (*turn, *last) = (*turn + 1, at);
        }
        match client {
            Some(_) => *turn,
            None if is_ahead => FLIGHTS_OF_CLIENT.max(*turn),
            None => turn.div_ceil(FLIGHTS_OF_CLIENT / TURN),
        }
    }
}

/// Units that are on the disk, unless that has failed.
struct Synced {
    units: Vec<(ReleaseId, u64)>,
    result: io::Result<()>,
}

impl Demand {
    pub(crate) fn new(remote: Arc<Remote>, store: Store, room: u64, report: Reporter) -> Self {
        Self {
            remote,
            cache: Cache::new(store, room),
            questions: Vec::new(),
            are_others: false,
            waiting: 0,
            flights: FuturesUnordered::new(),
            written: Vec::new(),
            syncing: None,
            warm: (ReleaseId::of_build_id(&[0; 32]), VecDeque::new()),
            warm_left: 0,
            finding: None,
            failed: HashMap::new(),
            has_failed: false,
            timer: None,
            report,
            reported: Vec::new(),
        }
    }

    pub(crate) fn take(&mut self, message: Message) {
        match message {
            Message::Ask(want, answered) => {
                if let Err((answered, answer)) = self.ask(&want, answered) {
                    answered(answer);
                }
            }
            Message::Used(want) => self.cache.used(&want),
            Message::InForce(release) => {
                // This comes after each round of the follower.
                if !self.cache.is_in_force(release) {
                    let before = self.cache.in_force(release);
                    self.plan_warming(before, release);
                }
                // Its metadata may have taken more than there was.
                if let Err(error) = self.cache.make_room(0) {
                    self.report_disk(error);
                }
            }
        }
    }

    /// Notes a question, unless it can be answered at once.
    fn ask(&mut self, want: &Want, answered: Answered) -> Result<(), (Answered, Answer)> {
        let failed = |reason| Answer::Failed(reason, Effort::default());
        let cached = match self.cache.current(want.release) {
            Ok(cached) => cached,
            Err(error) => return Err((answered, failed(Reason::from(&error)))),
        };
        let start = want.range.start;
        let most = start.saturating_add(FETCH_LEN_MAX);
        let units = cached.writer.units();
        let needed = units.in_blob(want.blob, start..want.range.end.min(most));
        let ahead = units.in_blob(want.blob, start..most);
        if needed.is_empty() {
            return Err((answered, failed(Reason::Unknown)));
        }
        if needed.clone().all(|unit| cached.writer.has(unit)) {
            cached.use_units(needed);
            return Err((answered, Answer::Present(Effort::default())));
        }
        if self.waiting >= ANSWERS_MAX {
            return Err((answered, failed(Reason::Busy)));
        }
        let is_same = |it: &Question| it.release == want.release && it.needed == needed;
        let is_ahead = want.is_ahead;
        let at = self.questions.iter().position(is_same);
        match at {
            Some(at) if !is_ahead => self.questions[at].is_ahead = false,
            None if self.has_room(want.client, is_ahead) => self.questions.push(Question {
                release: want.release,
                needed,
                ahead,
                askers: Vec::new(),
                turn: 0,
                is_ahead,
                effort: Effort::default(),
                is_known: false,
                has_begun: false,
            }),
            _ => return Err((answered, failed(Reason::Busy))),
        }
        let at = at.unwrap_or(self.questions.len() - 1);
        if let Ok(cached) = self.cache.get(want.release) {
            cached.use_units(self.questions[at].needed.clone());
        }
        self.questions[at].askers.push(Asker {
            client: want.client,
            since: Instant::now(),
            answered,
        });
        self.waiting += 1;
        self.are_others = true;
        Ok(())
    }

    /// Whether there may be one question more of a client. What is asked ahead takes no place of what is waited for.
    fn has_room(&self, client: Option<u128>, is_ahead: bool) -> bool {
        if !is_ahead {
            return self.questions.len() < QUESTIONS_MAX;
        }
        let is_of = |it: &&Question| it.askers.iter().any(|asker| asker.client == client);
        let of_client = || self.questions.iter().filter(is_of).count();
        self.questions.len() < QUESTIONS_MAX / 2 && (client.is_none() || of_client() < AHEAD_MAX)
    }

    /// Answers what can be answered, and begins what can begin.
    pub(crate) fn advance(&mut self) {
        loop {
            self.has_failed = false;
            self.answer();
            self.begin_all();
            if !self.has_failed {
                break;
            }
        }
        self.sync();
    }

    fn answer(&mut self) {
        let now = Instant::now();
        self.failed.retain(|_, (_, until)| *until > now);
        for mut question in std::mem::take(&mut self.questions) {
            let outcome = self.outcome(&question);
            let patience = question.patience();
            let askers = question.askers.iter();
            let left = match outcome {
                Some(_) => question.askers.len(),
                // At a store that hangs, or behind others: these clients do not wait any more.
                None => askers.take_while(|it| it.since + patience <= now).count(),
            };
            self.waiting -= left;
            self.are_others |= left > 0;
            for asker in question.askers.drain(..left) {
                let effort = std::mem::take(&mut question.effort);
                (asker.answered)(match outcome.unwrap_or(Err(Reason::Unreachable)) {
                    Ok(()) => Answer::Present(effort),
                    Err(reason) => Answer::Failed(reason, effort),
                });
            }
            if !question.askers.is_empty() {
                self.questions.push(question);
            }
        }
    }

    fn begin_all(&mut self) {
        self.take_turns();
        for at in 0..self.questions.len() {
            let lacking = self.lacking(at);
            let lacking = match std::mem::replace(&mut self.questions[at].is_known, true) {
                true => lacking,
                false => self.copy(self.questions[at].release, lacking),
            };
            if !lacking.is_empty() {
                if self.flights.len() >= FLIGHTS_MAX || !self.questions[at].may_begin() {
                    continue;
                }
                let question = &self.questions[at];
                self.begin((question.release, question.needed.clone()), &lacking);
            }
            self.questions[at].has_begun = true;
        }
        let behind = self.questions.iter().filter(|it| !it.has_begun);
        let at = behind.filter_map(Question::late_at).min();
        self.timer = at.map(|at| Box::pin(sleep_until(at)));
        self.warm();
    }

    /// Puts first what comes first for any client that waits for it: who asks for little does not wait for who asks
    /// for much.
    fn take_turns(&mut self) {
        if !std::mem::take(&mut self.are_others) {
            return;
        }
        let mut turns = Turns::default();
        for (at, question) in self.questions.iter_mut().enumerate() {
            let is_ahead = question.is_ahead;
            let askers = question.askers.iter();
            let all = askers.map(|it| turns.of(it.client, at, is_ahead));
            question.turn = all.min().unwrap_or_default();
        }
        let order = |it: &Question| (it.turn.div_ceil(TURN), it.is_ahead);
        self.questions.sort_by_key(order);
    }

    /// Finds out what to fetch of a release before it is requested.
    fn plan_warming(&mut self, before: Option<ReleaseId>, next: ReleaseId) {
        self.warm = (next, VecDeque::new());
        self.warm_left = self.cache.room() / WARMED_SHARE;
        // It has the numbers of another release's blobs.
        self.finding = None;
        let glimpse =
            |it: Option<ReleaseId>, cache: &mut Cache| Some(cache.get(it?).ok()?.glimpse());
        let before = glimpse(before, &mut self.cache);
        let next = glimpse(Some(next), &mut self.cache);
        if let Some(((before, used), (next, _))) = before.zip(next)
            && used.iter().any(|used| *used > 0)
        {
            let find = move || warming::most_used((&before, &used), &next);
            self.finding = Some(spawn_blocking(find));
        }
    }

    /// Fetches what may be asked for next, while nothing is.
    fn warm(&mut self) {
        while self.questions.is_empty()
            && self.flights.len() < WARMING_FLIGHTS
            && self.written.len() < WRITTEN_MAX
        {
            let Some((blob, used)) = self.warm.1.pop_front() else {
                return;
            };
            let release = self.warm.0;
            let Ok(cached) = self.cache.get(release) else {
                self.warm.1.clear();
                return;
            };
            let cold = cached.cold_units(blob, used);
            let units = cold
                .iter()
                .filter_map(|unit| cached.writer.unit(*unit).ok());
            let len = units.map(|unit| unit.len).sum::<u64>();
            let Some(left) = self.warm_left.checked_sub(len) else {
                // What comes first is used most; more of it would take the place of that.
                self.warm.1.clear();
                return;
            };
            self.warm_left = left;
            let cold = self.copy(release, cold);
            self.begin((release, 0..0), &cold);
        }
    }

    /// How a question is to be answered, if that is known.
    fn outcome(&mut self, question: &Question) -> Option<Result<(), Reason>> {
        let Ok(cached) = self.cache.get(question.release) else {
            return Some(Err(Reason::Unknown));
        };
        let mut lacking = question
            .needed
            .clone()
            .filter(|unit| !cached.writer.has(*unit));
        let Some(first) = lacking.next() else {
            return Some(Ok(()));
        };
        let failed = |unit| self.failed.get(&(question.release, unit));
        let mut lacking = std::iter::once(first).chain(lacking);
        lacking.find_map(failed).map(|(reason, _)| Err(*reason))
    }

    /// The units that a question lacks, with those read ahead; none if what it needs is on its way.
    fn lacking(&mut self, at: usize) -> Vec<u64> {
        let question = &self.questions[at];
        let Ok(cached) = self.cache.get(question.release) else {
            return Vec::new();
        };
        let is_lacking = |unit: &u64| !cached.writer.has(*unit) && !cached.coming.contains(unit);
        match question.needed.clone().any(|unit| is_lacking(&unit)) {
            true => question.ahead.clone().filter(is_lacking).collect(),
            false => Vec::new(),
        }
    }

    /// Copies units from another release, as far as that has them; returns the others.
    fn copy(&mut self, release: ReleaseId, units: Vec<u64>) -> Vec<u64> {
        let mut left = Vec::new();
        for number in units {
            let unit = self.cache.unit(release, number).ok();
            let copied = unit.and_then(|unit| {
                let bytes = self.cache.copy_of(release, &unit)?;
                Some(self.add(release, (number, &unit), &bytes))
            });
            if copied.is_none_or(|added| added == Added::Unverified) {
                left.push(number);
            }
        }
        left
    }

    /// Begins to fetch units for a question: the first, and those that are near.
    fn begin(&mut self, (release, needed): (ReleaseId, Range<u64>), lacking: &[u64]) {
        if lacking.is_empty() {
            return;
        }
        let mut units: Vec<(u64, Unit)> = Vec::new();
        for number in lacking {
            let unit = match self.cache.unit(release, *number) {
                Ok(unit) => unit,
                Err(error) => return self.fail(release, [*number], Reason::from(&error)),
            };
            let end = units.last().map(|(_, last)| last.offset + last.len);
            if end.is_some_and(|end| unit.offset - end > JOIN_GAP_MAX) {
                break;
            }
            units.push((*number, unit));
        }
        let Ok(size) = self.cache.get(release).map(|it| it.writer.file_len()) else {
            return;
        };
        self.fly(Flight {
            release,
            size,
            units,
            needed,
            is_second: false,
        });
    }

    fn fly(&mut self, flight: Flight) {
        if let Ok(cached) = self.cache.get(flight.release) {
            cached
                .coming
                .extend(flight.units.iter().map(|(number, _)| *number));
        }
        let remote = Arc::clone(&self.remote);
        self.flights.push(flight.until_landed(remote).boxed_local());
    }

    /// Waits for what is on its way, and takes it.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if let Some(timer) = &mut self.timer
            && timer.as_mut().poll(context).is_ready()
        {
            self.timer = None;
            return Poll::Ready(());
        }
        if let Some(syncing) = &mut self.syncing
            && let Poll::Ready(synced) = syncing.poll_unpin(context)
        {
            self.syncing = None;
            if let Ok(synced) = synced {
                self.synced(synced);
            }
            return Poll::Ready(());
        }
        if let Some(finding) = &mut self.finding
            && let Poll::Ready(found) = finding.poll_unpin(context)
        {
            self.finding = None;
            // Without it, servers ask.
            self.warm.1.extend(found.into_iter().flatten().flatten());
            return Poll::Ready(());
        }
        match self.flights.poll_next_unpin(context) {
            Poll::Ready(Some(landed)) => {
                self.landed(landed);
                Poll::Ready(())
            }
            // Of none there is nothing to wait for.
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    }

    /// Verifies and writes what has come; what is not what it should be is fetched once more.
    fn landed(&mut self, landed: Landed) {
        let Landed {
            flight,
            bytes,
            mut effort,
        } = landed;
        let release = flight.release;
        let numbers = || flight.units.iter().map(|(number, _)| *number);
        if let Ok(cached) = self.cache.get(release) {
            numbers().for_each(|number| {
                cached.coming.remove(&number);
            });
        }
        let bytes = match bytes {
            Ok(bytes) => bytes,
            Err(error) => {
                self.fail(release, numbers(), reason_of(&error));
                // No more than servers ask for.
                self.warm.1.clear();
                self.note_effort(&flight, effort);
                return self.report(error);
            }
        };
        let start = flight.range().start;
        let mut unverified = Vec::new();
        for (number, unit) in &flight.units {
            let at = (unit.offset - start) as usize;
            let bytes = bytes.get(at..at + unit.len as usize).unwrap_or_default();
            if self.add(release, (*number, unit), bytes) == Added::Unverified {
                unverified.push((*number, *unit));
            }
        }
        effort.unverified = unverified.len() as u32;
        self.note_effort(&flight, effort);
        let Some((_, first)) = unverified.first() else {
            self.reported.clear();
            return;
        };
        let cause = Cause::Unverified {
            offset: first.offset,
            len: first.len,
        };
        let error = self.remote.refuse_release(release, cause);
        self.report(error);
        match flight.is_second {
            true => self.fail(
                release,
                unverified.iter().map(|(number, _)| *number),
                Reason::Damaged,
            ),
            false => self.fly(Flight {
                units: unverified,
                is_second: true,
                ..flight
            }),
        }
    }

    fn note_effort(&mut self, flight: &Flight, effort: Effort) {
        let mut questions = self.questions.iter_mut();
        let is_of = |it: &&mut Question| it.release == flight.release && it.needed == flight.needed;
        if let Some(question) = questions.find(is_of) {
            question.effort.fetched += effort.fetched;
            question.effort.took += effort.took;
            question.effort.unverified += effort.unverified;
        }
    }

    /// Writes a unit if these are its bytes.
    fn add(&mut self, release: ReleaseId, (number, unit): (u64, &Unit), bytes: &[u8]) -> Added {
        let added = self.try_add(release, (number, unit), bytes);
        added.unwrap_or_else(|error| {
            self.fail(release, [number], Reason::NoRoom);
            self.warm.1.clear();
            self.report_disk(error);
            Added::Failed
        })
    }

    fn try_add(
        &mut self,
        release: ReleaseId,
        (number, unit): (u64, &Unit),
        bytes: &[u8],
    ) -> io::Result<Added> {
        if !self.cache.get(release)?.writer.verify(unit, bytes)? {
            return Ok(Added::Unverified);
        }
        if !self.cache.make_room(unit.len)? {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.cache.write(release, (number, unit), bytes)?;
        self.written.push((release, number));
        Ok(Added::Written)
    }

    /// Syncs what was written, while more is fetched.
    fn sync(&mut self) {
        if self.syncing.is_some() || self.written.is_empty() {
            return;
        }
        let units = std::mem::take(&mut self.written);
        let mut files: Vec<(ReleaseId, Arc<_>)> = Vec::new();
        for (release, _) in &units {
            if files.iter().all(|(it, _)| it != release)
                && let Ok(cached) = self.cache.get(*release)
            {
                files.push((*release, Arc::clone(cached.writer.data())));
            }
        }
        self.syncing = Some(spawn_blocking(move || Synced {
            result: files.iter().try_for_each(|(_, file)| file.sync()),
            units,
        }));
    }

    fn synced(&mut self, Synced { mut units, result }: Synced) {
        let mut result = result;
        if result.is_err() {
            // The system reports a lost write once. What was written meanwhile may be lost, too, and its own sync
            // would not say so.
            units.append(&mut self.written);
        }
        for (release, unit) in &units {
            let Ok(cached) = self.cache.get(*release) else {
                continue;
            };
            cached.coming.remove(unit);
            let set = match &result {
                Ok(()) => cached.writer.set([*unit]),
                Err(error) => Err(error.kind().into()),
            };
            if let Err(error) = set {
                self.fail(*release, [*unit], Reason::NoRoom);
                result = result.and(Err(error));
            }
        }
        if let Err(error) = result {
            self.report_disk(error);
        }
    }

    fn report_disk(&mut self, error: io::Error) {
        let [_, folder] = self.cache.folders();
        self.report(FleetError::io("write to", &folder)(error));
    }

    /// Remembers for a moment that units cannot be fetched.
    fn fail(&mut self, release: ReleaseId, units: impl IntoIterator<Item = u64>, reason: Reason) {
        let span = match reason {
            Reason::Damaged => DAMAGED_FOR,
            _ => UNREACHABLE_FOR,
        };
        if self.failed.len() >= FAILED_MAX {
            self.failed.clear();
        }
        let until = Instant::now() + span;
        let units = units
            .into_iter()
            .map(|unit| ((release, unit), (reason, until)));
        self.failed.extend(units);
        self.has_failed = true;
    }

    /// Reports a failure, unless it was since the last success.
    fn report(&mut self, error: FleetError) {
        let text = error.to_string();
        if self.reported.len() < REPORTED_MAX && !self.reported.contains(&text) {
            self.reported.push(text);
            (self.report)(error);
        }
    }
}

/// What became of the bytes of a unit.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Added {
    Written,
    Unverified,
    Failed,
}

#[cfg(test)]
pub(crate) mod tests;
