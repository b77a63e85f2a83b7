//! Has parts of releases fetched that are not here: see [`release/partial`](crate::release::partial).
//!
//! ```text
//!   a request, or a slice of a response ──▶ a question, by a pipe ──▶ the process that fetches
//!        └── waits, as for a slow disk ◀── the inbox ◀── a thread ◀── its answer, by another pipe
//! ```
//! A worker asks once for a part, however many wait for it. Those that wait are woken with the answer, or after
//! [`FETCH_WAIT_MS`].

use std::collections::{BTreeMap, HashMap, VecDeque};

use gannet_http::semantics::status::Status;
use gannet_io::driver::{Nanos, Token};

use crate::bounds::clients::FETCHES_OF_CLIENT_MAX;
use crate::bounds::limits::{FETCH_HINTS_MS, FETCH_WAIT_MS, FETCHES_MAX, USED_PARTS_MAX};
use crate::clients::ClientKey;
use crate::config::supply::{AHEAD, ReleasePart, Supply};
use crate::ground::token::ConnId;

/// The parts that a worker has asked for.
#[derive(Default)]
pub(crate) struct Fetching {
    /// `None` without releases on demand.
    supply: Option<Supply>,
    /// Whom the questions of a connection count for; a trusted proxy's count for nobody.
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
const USES_SAMPLED: u32 = 16;

/// How often parts without waiters are looked for, milliseconds.
const FORGET_EVERY_MS: u64 = 50;

impl Fetching {
    pub(crate) fn new(supply: Option<Supply>) -> Self {
        Self {
            supply,
            ..Self::default()
        }
    }

    /// Whether clients have to be known.
    pub(crate) fn is_used(&self) -> bool {
        self.supply.is_some()
    }

    /// Whether a client may have one part more fetched. A response that `has_begun` has some room more: a flood of
    /// requests does not cut it short.
    pub(super) fn has_room(&self, client: Option<ClientKey>, has_begun: bool) -> bool {
        let most = |most: usize| if has_begun { most / 4 * 5 } else { most };
        let asked = self.asked.values();
        let of_client = || asked.filter(|it| it.client == client).count();
        self.asked.len() < most(FETCHES_MAX)
            && (client.is_none() || of_client() < most(FETCHES_OF_CLIENT_MAX))
    }

    /// Asks for a part; false if that is not possible now.
    pub(super) fn ask(&self, part: &ReleasePart, number: u64) -> bool {
        self.supply.as_ref().is_some_and(|it| it.say(part, number))
    }

    /// Says that a part will be needed, if there is any.
    pub(super) fn ask_ahead(&self, now: Nanos, part: impl FnOnce() -> Option<ReleasePart>) {
        if self.takes_hints(now)
            && let Some(part) = part()
        {
            self.ask(&part, AHEAD);
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
