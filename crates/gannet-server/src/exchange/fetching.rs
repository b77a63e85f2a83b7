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

use crate::bounds::limits::{FETCH_HINTS_MS, FETCH_WAIT_MS};
use crate::config::supply::ReleasePart;

/// The parts that a worker has asked for.
#[derive(Default)]
pub(crate) struct Fetching {
    /// By their numbers, which ascend with time.
    pub(super) asked: BTreeMap<u64, FetchedPart>,
    pub(super) numbers: HashMap<ReleasePart, u64>,
    pub(super) next: u64,
    /// Those that were sent, of which nothing was said yet.
    pub(super) used: Vec<ReleasePart>,
    /// When those without waiters were last forgotten.
    looked_at: Nanos,
}

pub(super) struct FetchedPart {
    pub(super) part: ReleasePart,
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

/// How often parts without waiters are looked for, milliseconds.
const FORGET_EVERY_MS: u64 = 50;

impl Fetching {
    /// When the part that was asked for first is given up.
    pub(crate) fn due(&self) -> Option<Nanos> {
        let first = self.asked.first_key_value()?.1;
        Some(first.since.plus_ms(FETCH_WAIT_MS))
    }

    /// Whether what needs no answer may be said now: while none comes, the pipe has room for questions alone.
    pub(super) fn takes_hints(&self, now: Nanos) -> bool {
        let first = self.asked.first_key_value();
        first.is_none_or(|(_, it)| now < it.since.plus_ms(FETCH_HINTS_MS))
    }

    /// The worker that has asked the question with this number.
    pub(crate) fn worker_of(number: u64) -> usize {
        (number >> COUNTED) as usize
    }

    /// Forgets what no waiter needs any more: whoever asked is gone.
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
