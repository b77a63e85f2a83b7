//! What peers make a worker hold, and what they make it do in one turn.
//!
//! Each [`Account`] is memory of one kind, each [`Work`] is labour of one kind; both have a bound
//! in `limits.rs`. What belongs to one connection is not charged as it comes and goes: it is counted
//! from what the connection holds when somebody asks ([`Held`]), so that the count can neither cost
//! the hot path anything nor be wrong. Listings, first reads and
//! bodies being loaded are counted in the same way from what the worker has. Copies of content, which
//! several connections share and which outlive them, are charged when they are made and let go when
//! the last of them has done with one ([`Charge`]).

use std::ops::{Index, IndexMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::limits;

/// Memory of one kind that peers can make a worker hold.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Account {
    /// Input that is not parsed yet, or belongs to a record that is not whole.
    Input,
    /// Requests that wait for the disk.
    Waiting,
    /// Answers made for one connection: heads, short bodies, content read for a stream.
    Answers,
    /// Bytes of those that the engine is sending: heads, short bodies, copies and records.
    Sends,
    /// What is to be logged of requests whose answers are under way.
    Log,
    /// Tables and control frames of HTTP/2 connections.
    Streams,
    /// Listings: kept, on their way, and being made.
    Listings,
    /// Live files being copied for their first answer.
    FirstReads,
    /// Copies of live files, and bodies of archives that are not in memory: cached, and on their way.
    Copies,
    /// Stored bodies that are being read, or are to be decoded.
    Loads,
}

/// How many there are.
const ACCOUNTS: usize = Account::ALL.len();

impl Account {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Input,
        Self::Waiting,
        Self::Answers,
        Self::Sends,
        Self::Log,
        Self::Streams,
        Self::Listings,
        Self::FirstReads,
        Self::Copies,
        Self::Loads,
    ];

    /// Its name among the metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::Waiting => "waiting",
            Self::Answers => "answers",
            Self::Sends => "sends",
            Self::Log => "log",
            Self::Streams => "streams",
            Self::Listings => "listings",
            Self::FirstReads => "first_reads",
            Self::Copies => "copies",
            Self::Loads => "loads",
        }
    }
}

/// Bytes by account.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Held([u64; ACCOUNTS]);

impl Index<Account> for Held {
    type Output = u64;

    fn index(&self, account: Account) -> &u64 {
        &self.0[account as usize]
    }
}

impl IndexMut<Account> for Held {
    fn index_mut(&mut self, account: Account) -> &mut u64 {
        &mut self.0[account as usize]
    }
}

/// The bound of an account.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Bound {
    /// So many bytes for each connection.
    Connection(u64),
    /// So many bytes for the worker.
    Worker(u64),
}

/// An account at some moment.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Holding {
    /// Which one.
    pub account: Account,
    /// Its bound.
    pub bound: Bound,
    /// Bytes held for all peers together.
    pub held: u64,
    /// What the bound is about: what one connection holds, the most of any, or the worker.
    pub bounded: u64,
    /// The most of that at any count so far; of what is charged, at any time.
    pub peak: u64,
}

impl Holding {
    /// Adds what another worker holds.
    pub(crate) fn add(&mut self, other: &Self) {
        self.held += other.held;
        match (&mut self.bound, other.bound) {
            (Bound::Worker(sum), Bound::Worker(more)) => {
                *sum = sum.saturating_add(more);
                self.bounded += other.bounded;
                self.peak += other.peak;
            }
            _ => {
                self.bounded = self.bounded.max(other.bounded);
                self.peak = self.peak.max(other.peak);
            }
        }
    }
}

/// The copies that are charged, with the bounds of all accounts.
pub(crate) struct Ledger {
    charged: Arc<Charged>,
    /// Bytes of copies that there may be.
    copies_max: u64,
}

/// Bytes of copies, now and at most. One thread charges; what it charged may be let go by another one,
/// with the last clone of a file.
#[derive(Default)]
struct Charged {
    held: AtomicU64,
    peak: AtomicU64,
}

impl Ledger {
    /// An empty one, for a worker that may remember so many bytes of live files.
    pub(crate) fn new(cache_memory: u64) -> Self {
        Self {
            charged: Arc::default(),
            copies_max: cache_memory.saturating_add(limits::COPIES_SPARE),
        }
    }

    /// The worker may remember so many bytes of live files from now on.
    pub(crate) fn set_cache_memory(&mut self, cache_memory: u64) {
        self.copies_max = cache_memory.saturating_add(limits::COPIES_SPARE);
    }

    /// The bound of an account.
    pub(crate) fn bound(&self, account: Account) -> Bound {
        match account {
            Account::Input => Bound::Connection(limits::INPUT_HELD_MAX),
            Account::Waiting => Bound::Connection(limits::WAITING_HELD_MAX),
            Account::Answers => Bound::Connection(limits::ANSWERS_HELD_MAX),
            Account::Sends => Bound::Connection(limits::SENDS_HELD_MAX),
            Account::Log => Bound::Connection(limits::LOG_HELD_MAX),
            Account::Streams => Bound::Connection(gannet_http::h2::limits::MEMORY_MAX as u64),
            Account::Listings => Bound::Worker(limits::LISTINGS_HELD_MAX),
            Account::FirstReads => Bound::Worker(limits::FIRST_READS_HELD_MAX),
            Account::Copies => Bound::Worker(self.copies_max),
            Account::Loads => Bound::Worker(limits::LOADS_HELD_MAX),
        }
    }

    /// Bytes of all copies.
    pub(crate) fn copies(&self) -> u64 {
        self.charged.held.load(Ordering::Relaxed)
    }

    /// The most that there have been.
    pub(crate) fn copies_peak(&self) -> u64 {
        self.charged.peak.load(Ordering::Relaxed)
    }

    /// Whether there may be a copy of so many bytes more.
    pub(crate) fn has_room(&self, bytes: u64) -> bool {
        self.copies().saturating_add(bytes) <= self.copies_max
    }

    /// Charges a copy of so many bytes until the charge is dropped.
    pub(crate) fn charge(&self, bytes: u64) -> Charge {
        let before = self.charged.held.fetch_add(bytes, Ordering::Relaxed);
        let peak = &self.charged.peak;
        peak.fetch_max(before + bytes, Ordering::Relaxed);
        Charge {
            charged: Arc::clone(&self.charged),
            bytes,
        }
    }
}

/// A copy that is held, until it is dropped.
pub(crate) struct Charge {
    charged: Arc<Charged>,
    bytes: u64,
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.charged.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Labour of one kind that peers can cause.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Work {
    /// ClientHellos answered.
    Hello,
    /// Bytes of stored bodies read or decoded.
    Load,
    /// Bytes read of live files for their first answer.
    Read,
    /// Lookups begun, or begun again.
    Lookup,
    /// Bytes copied or encrypted for the further sends of long answers.
    Send,
}

/// How many kinds there are.
const WORKS: usize = 5;

/// What may still be done in this turn. What finds nothing left is deferred to the next one, in
/// the order in which it was asked for.
#[derive(Debug)]
pub(crate) struct Budget([u64; WORKS]);

impl Budget {
    const WHOLE: [u64; WORKS] = [
        limits::HELLOS_PER_TURN_MAX,
        limits::LOADED_PER_TURN_MAX,
        limits::READ_PER_TURN_MAX,
        limits::LOOKUPS_PER_TURN_MAX,
        limits::SENT_PER_TURN_MAX,
    ];

    /// That of a whole turn.
    pub(crate) fn whole() -> Self {
        Self(Self::WHOLE)
    }

    /// Takes a part of it, if that much is left. What alone is more than a turn's budget takes all
    /// of it.
    pub(crate) fn take(&mut self, work: Work, amount: u64) -> bool {
        let left = &mut self.0[work as usize];
        let is_enough = amount <= *left || *left == Self::WHOLE[work as usize];
        if is_enough {
            *left = left.saturating_sub(amount);
        }
        is_enough
    }

    /// Whether anything is left.
    pub(crate) fn has_left(&self, work: Work) -> bool {
        self.0[work as usize] > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_charge_is_held_until_it_is_dropped() {
        let ledger = Ledger::new(1_000);
        let most = 1_000 + limits::COPIES_SPARE;
        let all = ledger.charge(most);
        assert!(!ledger.has_room(1));
        drop(all);
        assert!(ledger.has_room(most));
        assert_eq!((ledger.copies(), ledger.copies_peak()), (0, most));
    }

    #[test]
    fn a_budget_is_spent_and_large_work_is_done_alone() {
        let mut budget = Budget::whole();
        for _ in 0..limits::HELLOS_PER_TURN_MAX {
            assert!(budget.has_left(Work::Hello) && budget.take(Work::Hello, 1));
        }
        assert!(!budget.has_left(Work::Hello) && !budget.take(Work::Hello, 1));
        assert!(budget.take(Work::Read, u64::MAX), "alone");
        assert!(!budget.take(Work::Read, 1));
        assert!(budget.take(Work::Load, 1));
        assert!(!budget.take(Work::Load, limits::LOADED_PER_TURN_MAX));
    }
}
