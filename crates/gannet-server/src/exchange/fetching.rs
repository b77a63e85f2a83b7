//! Has parts of releases fetched that are not here: see [`release/partial`](crate::release::partial).
//!
//! ```text
//!   a request, or a slice of a response ──▶ a question, by a pipe ──▶ the process that fetches
//!        └── waits, as for a slow disk ◀── the inbox ◀── a thread ◀── its answer, by another pipe
//! ```
//! A worker asks once for a part, however many wait for it. Those that wait are woken with the answer, or after
//! [`FETCH_WAIT_MS`].

use std::collections::{BTreeMap, HashMap, VecDeque};

use gannet_http::h2::limits::STREAMS_MAX;
use gannet_http::semantics::status::Status;
use gannet_io::driver::{Nanos, Token};

use crate::bounds::clients::{FETCHES_LEFT, FETCHES_OF_CLIENT_MAX};
use crate::bounds::limits::{FETCH_HINTS_MS, FETCH_WAIT_MS, FETCHES_MAX, USED_PARTS_MAX};
use crate::clients::ClientKey;
use crate::config::supply::{AHEAD, ReleasePart, Supply};
use crate::ground::token::ConnId;

/// The parts that a worker has asked for.
#[derive(Default)]
pub(crate) struct Fetching {
    /// `None` without releases on demand.
    supply: Option<Supply>,
    /// Questions of this worker, and those of one client: its part of what all workers ask one process.
    most: usize,
    most_of_client: usize,
    /// Whom the questions of a connection count for; those of a trusted proxy and of a Unix socket for no client.
    pub(crate) clients: HashMap<ConnId, ClientKey>,
    /// By their numbers, which ascend with time.
    pub(super) asked: BTreeMap<u64, FetchedPart>,
    pub(super) numbers: HashMap<ReleasePart, u64>,
    pub(super) next: u64,
    /// Those that were used, of which nothing was said yet.
    used: Vec<ReleasePart>,
    /// Uses that memory has served.
    in_memory: u32,
    /// When those without waiters were last forgotten.
    looked_at: Nanos,
}

pub(super) struct FetchedPart {
    pub(super) part: ReleasePart,
    /// Whom it counts for: who has asked first.
    pub(super) client: Option<ClientKey>,
    pub(super) since: Nanos,
    pub(super) waiters: VecDeque<Token>,
}

/// Those that waited for a part, and the result.
pub(crate) struct Fetched {
    pub(crate) waiters: VecDeque<Token>,
    pub(crate) result: Result<(), Status>,
}

/// The bits of a number that the worker counts; the others have its own number.
pub(super) const COUNTED: u32 = 48;

/// Of uses that memory has served, one in so many is reported: what is used most stays on the disk as well.
///
/// No power of two: the files of a page that is read again and again would be reported always the same ones.
const USES_SAMPLED: u32 = 17;

/// How often parts without waiters are looked for, milliseconds.
const FORGET_EVERY_MS: u64 = 50;

impl Fetching {
    /// Of one worker of so many.
    pub(crate) fn new(supply: Option<Supply>, workers: usize) -> Self {
        let most = (FETCHES_MAX / workers).max(FETCHES_LEFT);
        // The streams of a connection are served by one worker, however many there are.
        let of_streams = (STREAMS_MAX as usize).min(most / 2);
        Self {
            supply,
            most,
            most_of_client: (FETCHES_OF_CLIENT_MAX / workers).max(of_streams),
            ..Self::default()
        }
    }

    /// Whether releases are on demand.
    pub(crate) fn is_on(&self) -> bool {
        self.supply.is_some()
    }

    /// Whether a client may have one part more fetched. A response that `has_begun` has some room more: a flood of
    /// requests does not cut it short.
    pub(super) fn has_room(&self, client: Option<ClientKey>, has_begun: bool) -> bool {
        let most = with_begun(self.most_of_client, has_begun);
        let asked = self.asked.values();
        let of_client = || asked.filter(|it| it.client == client).count();
        // No client has more than there are.
        let has_share = || client.is_none() || self.asked.len() < most || of_client() < most;
        !self.is_full(has_begun) && has_share()
    }

    /// Whether the places of all clients are taken.
    pub(super) fn is_full(&self, has_begun: bool) -> bool {
        self.asked.len() >= with_begun(self.most, has_begun)
    }

    /// Asks for a part; false if that is not possible now.
    pub(super) fn ask(&self, part: &ReleasePart, number: u64, client: Option<ClientKey>) -> bool {
        let client = ClientKey::number_of(client);
        let supply = self.supply.as_ref();
        supply.is_some_and(|it| it.say(part, number, client))
    }

    /// Says that a part will be needed for a connection, if there is any.
    pub(super) fn ask_ahead(
        &self,
        (now, conn): (Nanos, ConnId),
        part: impl FnOnce() -> Option<ReleasePart>,
    ) {
        if self.takes_hints(now)
            && let Some(part) = part()
        {
            self.ask(&part, AHEAD, self.clients.get(&conn).copied());
        }
    }

    /// Says that a part was used, together with others: what is requested often stays.
    pub(super) fn note_use(&mut self, part: ReleasePart, now: Nanos) {
        self.used.push(part);
        if self.used.len() >= USED_PARTS_MAX {
            let used = std::mem::take(&mut self.used);
            if let Some(supply) = &self.supply
                && self.takes_hints(now)
            {
                supply.say_used(&used);
            }
        }
    }

    /// The same of some of the parts that memory has served.
    pub(super) fn note_use_of_memory(
        &mut self,
        part: impl FnOnce() -> Option<ReleasePart>,
        now: Nanos,
    ) {
        self.in_memory = self.in_memory.wrapping_add(1);
        if self.in_memory.is_multiple_of(USES_SAMPLED)
            && let Some(part) = part()
        {
            self.note_use(part, now);
        }
    }

    /// When the part that was asked for first is given up.
    pub(crate) fn due(&self) -> Option<Nanos> {
        let first = self.asked.first_key_value()?.1;
        Some(first.since.plus_ms(FETCH_WAIT_MS))
    }

    /// Whether what needs no answer may be said now: while none comes, the pipe has room for questions alone.
    fn takes_hints(&self, now: Nanos) -> bool {
        let first = self.asked.first_key_value();
        first.is_none_or(|(_, it)| now < it.since.plus_ms(FETCH_HINTS_MS))
    }

    /// The worker that has asked the question with this number.
    pub(crate) fn worker_of(number: u64) -> usize {
        (number >> COUNTED) as usize
    }

    /// Forgets what no waiter needs any more.
    pub(super) fn forget_unawaited(&mut self, now: Nanos, mut is_gone: impl FnMut(Token) -> bool) {
        // Looking at all of them for each request would be another burden.
        if now < self.looked_at.plus_ms(FORGET_EVERY_MS) {
            return;
        }
        self.looked_at = now;
        let Self { asked, numbers, .. } = self;
        asked.retain(|_, it| {
            it.waiters.retain(|waiter| !is_gone(*waiter));
            let is_awaited = !it.waiters.is_empty();
            if !is_awaited {
                numbers.remove(&it.part);
            }
            is_awaited
        });
    }

    pub(super) fn take(&mut self, number: u64) -> Option<FetchedPart> {
        let asked = self.asked.remove(&number)?;
        self.numbers.remove(&asked.part);
        Some(asked)
    }
}

/// A bound, and for a response that has begun a quarter more.
fn with_begun(most: usize, has_begun: bool) -> usize {
    match has_begun {
        true => most / 4 * 5,
        false => most,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The process has 3,072 places (`QUESTIONS_MAX`), also for what is asked ahead.
    const FETCHES_OF_ALL_MAX: usize = 2_560;

    /// However many workers one process answers, it has room for what all of them ask, and one client leaves half
    /// of that to others.
    #[test]
    fn workers_share_what_one_process_answers() {
        for workers in 1..=32 {
            let fetching = Fetching::new(None, workers);
            let all = with_begun(fetching.most, true) * workers;
            let of_client = fetching.most_of_client * workers;
            assert!(all <= FETCHES_OF_ALL_MAX, "{workers}: {all}");
            assert!(
                2 * of_client <= fetching.most * workers,
                "{workers}: {of_client}"
            );
        }
        let of_client = |workers| Fetching::new(None, workers).most_of_client;
        assert_eq!(of_client(1), FETCHES_OF_CLIENT_MAX);
        // All streams of a connection.
        assert_eq!(of_client(4), STREAMS_MAX as usize);
    }
}
