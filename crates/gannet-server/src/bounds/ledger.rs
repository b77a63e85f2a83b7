//! Memory that peers can cause a worker to hold, and work that they can cause in one turn.
//!
//! Each [`Account`] is one kind of memory, each `Work` one kind of work; both have a bound in
//! `limits.rs`. Memory of a single connection is not charged as it is allocated and freed: it is
//! counted from the connection's data structures on demand ([`BytesByAccount`]), so that the count costs the
//! hot path nothing and cannot drift. Listings, first reads and bodies being loaded are counted in
//! the same way from the worker's data structures. Copies of content, which connections share and
//! which outlive them, are charged when they are made and released when their last user drops them
//! (`Charge`); so are requests that wait (`waiting`), whose number decides whether more may.

use std::ops::{Index, IndexMut};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::bounds::limits;
use crate::bounds::quic::TRANSPORT_HELD_MAX;
use crate::bounds::waiting::WaitingMemory;

/// One kind of memory that peers can cause a worker to hold.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Account {
    /// Input that is not parsed yet, or that belongs to an incomplete record.
    Input,
    /// Requests that wait: for the disk, for a password's hash, or for their site.
    Waiting,
    /// Responses prepared for one connection: heads, short bodies, content read for a stream.
    Answers,
    /// Bytes of them that the engine is sending: heads, short bodies, copies and records.
    Sends,
    /// Log records of requests whose responses are in progress.
    Log,
    /// Tables and control frames of HTTP/2 connections; incomplete requests and control frames of
    /// HTTP/3 connections.
    Streams,
    /// HTTP/3: what QUIC's library holds, at most: state of connections and of what is on its way, and
    /// what was received and not read.
    Transport,
    /// Listings: cached, being sent, and being made.
    Listings,
    /// Live files being copied for their first response.
    FirstReads,
    /// Copies of live files, and bodies of archives that are not in memory: cached, and being sent.
    Copies,
    /// Stored bodies being read, or waiting to be decoded.
    Loads,
    /// What is known about the folders of live directories that were requested.
    Folders,
    /// Copies of longer live files, of all workers.
    LongCopies,
}

/// Number of accounts.
const ACCOUNTS: usize = Account::ALL.len();

impl Account {
    /// All accounts.
    pub const ALL: [Self; 13] = [
        Self::Input,
        Self::Waiting,
        Self::Answers,
        Self::Sends,
        Self::Log,
        Self::Streams,
        Self::Transport,
        Self::Listings,
        Self::FirstReads,
        Self::Copies,
        Self::Loads,
        Self::Folders,
        Self::LongCopies,
    ];

    /// Its name in the metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::Waiting => "waiting",
            Self::Answers => "answers",
            Self::Sends => "sends",
            Self::Log => "log",
            Self::Streams => "streams",
            Self::Transport => "transport",
            Self::Listings => "listings",
            Self::FirstReads => "first_reads",
            Self::Copies => "copies",
            Self::Loads => "loads",
            Self::Folders => "folders",
            Self::LongCopies => "long_copies",
        }
    }
}

/// Bytes by account.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct BytesByAccount([u64; ACCOUNTS]);

impl Index<Account> for BytesByAccount {
    type Output = u64;

    fn index(&self, account: Account) -> &u64 {
        &self.0[account as usize]
    }
}

impl IndexMut<Account> for BytesByAccount {
    fn index_mut(&mut self, account: Account) -> &mut u64 {
        &mut self.0[account as usize]
    }
}

/// The bound of an account.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum AccountBound {
    /// Bytes per connection.
    Connection(u64),
    /// Bytes for the whole worker.
    Worker(u64),
}

/// The state of an account.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Holding {
    /// The account.
    pub account: Account,
    /// Its bound.
    pub bound: AccountBound,
    /// Bytes held for all peers together.
    pub held: u64,
    /// The value that the bound limits: the highest of any connection, or the worker's total.
    pub bounded: u64,
    /// The highest value of that in any count so far; for charged memory, at any time.
    pub peak: u64,
}

impl Holding {
    /// Adds the holding of another worker.
    pub(crate) fn add(&mut self, other: &Self) {
        self.held += other.held;
        match (&mut self.bound, other.bound) {
            (AccountBound::Worker(sum), AccountBound::Worker(more)) => {
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

/// The charged copies, the requests that wait, and the bounds of all accounts.
pub(crate) struct Ledger {
    charged: Arc<Charged>,
    /// Maximum bytes of copies.
    copies_max: u64,
    /// Of that, bytes beyond those of the caches.
    spare: u64,
    /// Bytes of huge pages that no copy has, and no other can use.
    lost: u64,
    /// Live directories served.
    directories: u64,
    /// Maximum bytes of copies of longer files.
    long_max: u64,
    /// Requests that wait.
    waiting: Rc<WaitingMemory>,
}

/// Bytes of one kind, now and at most. One thread charges; another one may release the charge with
/// the last clone of a file.
#[derive(Default)]
struct Charged {
    held: AtomicU64,
    peak: AtomicU64,
}

/// Bytes of copies beyond those of the caches that slow peers of a worker may have, whose caches have
/// `cache_memory` bytes.
pub(crate) fn spare(cache_memory: u64) -> u64 {
    let part = cache_memory / limits::COPIES_SPARE_PART;
    part.clamp(limits::COPIES_SPARE_MIN, limits::COPIES_SPARE_MAX)
}

impl Ledger {
    /// An empty ledger for a worker that serves this many live directories, whose caches may hold
    /// `cache_memory` bytes together, and copies of longer files `long_max` bytes over all workers.
    pub(crate) fn new(cache_memory: u64, directories: usize, long_max: u64) -> Self {
        let (spare, waiting) = (spare(cache_memory), Rc::<WaitingMemory>::default());
        waiting.set_room(cache_memory);
        Self {
            charged: Arc::default(),
            copies_max: cache_memory.saturating_add(spare),
            spare,
            lost: 0,
            directories: directories as u64,
            long_max,
            waiting,
        }
    }

    /// Changes these bounds: another release is served.
    pub(crate) fn set_release(&mut self, cache_memory: u64, directories: usize, long_max: u64) {
        let (charged, waiting) = (Arc::clone(&self.charged), Rc::clone(&self.waiting));
        waiting.set_room(cache_memory);
        *self = Self {
            charged,
            waiting,
            ..Self::new(cache_memory, directories, long_max)
        };
    }

    /// The bound of an account, where there have been this many connections at once.
    pub(crate) fn bound(&self, account: Account, connections: u64) -> AccountBound {
        match account {
            Account::Input => AccountBound::Connection(limits::INPUT_HELD_MAX),
            Account::Waiting => AccountBound::Worker(self.waiting.most(connections)),
            Account::Answers => AccountBound::Connection(limits::ANSWERS_HELD_MAX),
            Account::Sends => AccountBound::Connection(limits::SENDS_HELD_MAX),
            Account::Log => AccountBound::Connection(limits::LOG_HELD_MAX),
            Account::Streams => AccountBound::Connection(limits::STREAMS_HELD_MAX),
            Account::Transport => AccountBound::Connection(TRANSPORT_HELD_MAX),
            Account::Listings => AccountBound::Worker(limits::LISTINGS_HELD_MAX),
            Account::FirstReads => AccountBound::Worker(limits::FIRST_READS_HELD_MAX),
            Account::Copies => AccountBound::Worker(self.copies_max),
            Account::Loads => AccountBound::Worker(limits::LOADS_HELD_MAX),
            Account::LongCopies => AccountBound::Worker(self.long_max),
            Account::Folders => AccountBound::Worker(self.directories * limits::FOLDERS_HELD_MAX),
        }
    }

    /// Bytes of all copies.
    pub(crate) fn copies(&self) -> u64 {
        self.charged.held.load(Ordering::Relaxed)
    }

    /// The highest value of [`copies`](Self::copies) so far.
    pub(crate) fn copies_peak(&self) -> u64 {
        self.charged.peak.load(Ordering::Relaxed)
    }

    /// Whether a copy of `bytes` more fits.
    pub(crate) fn has_room(&self, bytes: u64) -> bool {
        self.copies().saturating_add(bytes) <= self.copies_max.saturating_sub(self.lost)
    }

    /// So many bytes of huge pages are lost to copies.
    pub(crate) fn set_lost(&mut self, bytes: u64) {
        self.lost = bytes;
    }

    /// Whether one fits that is made to be coded.
    pub(crate) fn has_room_to_code(&self, bytes: u64) -> bool {
        self.has_room(bytes + self.spare / limits::CODER_ROOM_LEFT_PART)
    }

    /// Charges a copy of `bytes` until the charge is dropped.
    pub(crate) fn charge(&self, bytes: u64) -> Charge {
        Charge::new(&self.charged, bytes)
    }

    /// Requests that wait.
    pub(crate) fn waiting(&self) -> &Rc<WaitingMemory> {
        &self.waiting
    }
}

/// The charge for a copy, released when it is dropped.
pub(crate) struct Charge {
    charged: Arc<Charged>,
    bytes: u64,
}

impl Charge {
    fn new(charged: &Arc<Charged>, bytes: u64) -> Self {
        let before = charged.held.fetch_add(bytes, Ordering::Relaxed);
        charged.peak.fetch_max(before + bytes, Ordering::Relaxed);
        Self {
            charged: Arc::clone(charged),
            bytes,
        }
    }

    /// Reduces it to `bytes`.
    pub(crate) fn shrink_to(&mut self, bytes: u64) {
        let less = self.bytes.saturating_sub(bytes);
        self.charged.held.fetch_sub(less, Ordering::Relaxed);
        self.bytes -= less;
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.charged.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// One kind of work that peers can cause.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Work {
    /// ClientHellos answered.
    Hello,
    /// Bytes of stored bodies read or decoded.
    Load,
    /// Bytes of live files read for their first response.
    Read,
    /// Lookups that begin or resume, and what they open beyond one path.
    Lookup,
    /// Bytes of datagrams.
    Send,
    /// Bytes of long responses after their first slices.
    Long,
    /// Bytes of growing files that are read again.
    Reread,
}

/// Number of kinds of work.
const WORKS: usize = 7;

/// Work still allowed in this turn. Work beyond the budget is deferred to the next turn, in the
/// order of the requests for it.
#[derive(Debug)]
pub(crate) struct Budget([u64; WORKS]);

impl Budget {
    const WHOLE: [u64; WORKS] = [
        limits::HELLOS_PER_TURN_MAX,
        limits::LOADED_PER_TURN_MAX,
        limits::READ_PER_TURN_MAX,
        limits::LOOKUPS_PER_TURN_MAX,
        limits::SENT_PER_TURN_MAX,
        limits::LONG_PER_TURN_MAX,
        limits::REREAD_PER_TURN_MAX,
    ];

    /// The budget of a whole turn.
    pub(crate) fn whole() -> Self {
        Self(Self::WHOLE)
    }

    /// Takes `amount` if that much is left. Work that exceeds a whole turn's budget takes all of
    /// it.
    pub(crate) fn take(&mut self, work: Work, amount: u64) -> bool {
        let left = &mut self.0[work as usize];
        let is_enough = amount <= *left || *left == Self::WHOLE[work as usize];
        if is_enough {
            *left = left.saturating_sub(amount);
        }
        is_enough
    }

    /// Takes `amount`, or what is left of it: for work that is done already.
    pub(crate) fn take_rest(&mut self, work: Work, amount: u64) {
        let left = &mut self.0[work as usize];
        *left = left.saturating_sub(amount);
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
        let ledger = Ledger::new(1_000, 1, 0);
        let most = 1_000 + limits::COPIES_SPARE_MIN;
        let all = ledger.charge(most);
        assert!(!ledger.has_room(1));
        drop(all);
        assert!(ledger.has_room(most));
        assert_eq!((ledger.copies(), ledger.copies_peak()), (0, most));
    }

    /// Many workers in a small container have as much more as they have caches.
    #[test]
    fn what_slow_peers_have_is_in_proportion_to_the_caches() {
        const MIB: u64 = 1 << 20;
        for (cache_memory, most) in [(0, 2), (2, 4), (4, 6), (16, 24), (64, 96), (512, 544)] {
            let ledger = Ledger::new(cache_memory * MIB, 1, 0);
            let bound = AccountBound::Worker(most * MIB);
            assert_eq!(
                ledger.bound(Account::Copies, 1),
                bound,
                "{cache_memory} MiB"
            );
            let left = (most - cache_memory) * MIB / 2;
            assert!(ledger.has_room_to_code(most * MIB - left));
            assert!(!ledger.has_room_to_code(most * MIB - left + 1));
        }
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
