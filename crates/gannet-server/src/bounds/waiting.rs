//! Memory of requests that wait: for the disk, for a password's hash, or for their site.
//!
//! Each of these has a part of it, so that a flood that waits for one leaves the others theirs: half is for
//! the disk, a quarter for passwords, a quarter for sites. Beyond its part a connection may still have one
//! request wait, or a few short ones.

use std::cell::Cell;
use std::rc::Rc;

use crate::bounds::limits::{
    WAITING_MAX, WAITING_MIN, WAITING_ONE_MAX, WAITING_PART, WAITING_USUAL,
};

/// What a request waits for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Awaited {
    /// A lookup on disk, or the body of an archive.
    Disk,
    /// The comparison of a password with a hash.
    Password,
    /// The site of its host, which has to be opened.
    Site,
}

/// Number of kinds.
pub(crate) const AWAITED: usize = Awaited::ALL.len();

impl Awaited {
    /// All of them.
    pub(crate) const ALL: [Self; 3] = [Self::Disk, Self::Password, Self::Site];

    /// Its name in the metrics.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Disk => "disk",
            Self::Password => "password",
            Self::Site => "site",
        }
    }

    /// Its part of the memory: the whole divided by this.
    fn part(self) -> u64 {
        match self {
            Self::Disk => 2,
            Self::Password | Self::Site => 4,
        }
    }
}

/// The requests of a worker that wait.
#[derive(Default)]
pub(crate) struct WaitingMemory {
    /// Bytes for all of them.
    max: Cell<u64>,
    /// Bytes by what they wait for.
    held: [Cell<u64>; AWAITED],
    /// The most bytes of all of them so far.
    peak: Cell<u64>,
}

impl WaitingMemory {
    /// Has room in proportion to the memory of the caches from now on.
    pub(crate) fn set_room(&self, cache_memory: u64) {
        self.max
            .set((cache_memory / WAITING_PART).clamp(WAITING_MIN, WAITING_MAX));
    }

    /// Bytes of all of them.
    pub(crate) fn held(&self) -> u64 {
        self.held.iter().map(Cell::get).sum()
    }

    /// The highest value of [`held`](Self::held) so far.
    pub(crate) fn peak(&self) -> u64 {
        self.peak.get()
    }

    /// The most that [`held`](Self::held) may be, with so many connections: one request and a few short ones
    /// of each may wait without room. (Two more are about to be answered, or to wait for something else.)
    pub(crate) fn most(&self, connections: u64) -> u64 {
        self.max.get() + 2 * (connections + 2) * WAITING_ONE_MAX
    }

    /// Whether there is room for what waits for this, all of which is charged.
    ///
    /// A request whose password is right, or whose site is open, may wait for the disk next. So these wait only
    /// while all together have room as well: otherwise they could take their parts again and again.
    fn has_room_for(&self, awaited: Awaited) -> bool {
        let max = self.max.get();
        self.held[awaited as usize].get() <= max / awaited.part()
            && (awaited == Awaited::Disk || self.held() <= max)
    }
}

/// The charge for one request, released when it is dropped.
pub(crate) struct WaitingCharge {
    waiting: Rc<WaitingMemory>,
    awaited: Awaited,
    bytes: u64,
}

impl WaitingCharge {
    /// Charges a request of `bytes`.
    pub(crate) fn new(waiting: &Rc<WaitingMemory>, awaited: Awaited, bytes: u64) -> Self {
        let held = &waiting.held[awaited as usize];
        held.set(held.get() + bytes);
        waiting.peak.set(waiting.peak.get().max(waiting.held()));
        Self {
            waiting: Rc::clone(waiting),
            awaited,
            bytes,
        }
    }

    /// What it waits for.
    pub(crate) fn awaited(&self) -> Awaited {
        self.awaited
    }

    /// Whether it may wait, if this many others of its connection do: always one, and a few short ones, so
    /// that each connection is served.
    #[inline]
    pub(crate) fn may_wait(&self, others: usize) -> bool {
        let is_usual = self.bytes <= WAITING_ONE_MAX / WAITING_USUAL;
        let is_own = others == 0 || (is_usual && others < WAITING_USUAL as usize);
        is_own || self.waiting.has_room_for(self.awaited)
    }
}

impl Drop for WaitingCharge {
    fn drop(&mut self) {
        let held = &self.waiting.held[self.awaited as usize];
        held.set(held.get() - self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting() -> Rc<WaitingMemory> {
        let waiting = Rc::new(WaitingMemory::default());
        waiting.set_room(u64::MAX);
        waiting
    }

    /// Further requests of connections that have many already.
    fn may_wait(waiting: &Rc<WaitingMemory>) -> [bool; AWAITED] {
        Awaited::ALL.map(|it| WaitingCharge::new(waiting, it, 1).may_wait(100))
    }

    #[test]
    fn what_waits_for_one_thing_leaves_the_others_their_parts() {
        for (awaited, part) in [
            (Awaited::Disk, 2),
            (Awaited::Password, 4),
            (Awaited::Site, 4),
        ] {
            let waiting = waiting();
            let _full = WaitingCharge::new(&waiting, awaited, WAITING_MAX / part);
            assert_eq!(may_wait(&waiting), Awaited::ALL.map(|it| it != awaited));
            let long = WaitingCharge::new(&waiting, awaited, WAITING_ONE_MAX);
            assert!(long.may_wait(0) && !long.may_wait(1));
            let short = WaitingCharge::new(&waiting, awaited, WAITING_ONE_MAX / WAITING_USUAL);
            assert!(short.may_wait(7) && !short.may_wait(8));
        }
    }

    /// However many connections have one each.
    #[test]
    fn the_disk_has_its_part_whatever_the_others_have() {
        let waiting = waiting();
        let _full = [Awaited::Password, Awaited::Site]
            .map(|it| WaitingCharge::new(&waiting, it, WAITING_MAX));
        assert_eq!(may_wait(&waiting), [true, false, false]);
    }

    /// Sites that are open one after the other, on a disk that hangs.
    #[test]
    fn what_waits_for_the_disk_next_does_not_make_room() {
        let waiting = waiting();
        let _moved = WaitingCharge::new(&waiting, Awaited::Disk, WAITING_MAX);
        assert_eq!(may_wait(&waiting), [false; AWAITED]);
    }

    #[test]
    fn a_charge_is_held_until_it_is_dropped() {
        let waiting = waiting();
        drop(Awaited::ALL.map(|it| WaitingCharge::new(&waiting, it, 5)));
        assert_eq!((waiting.held(), waiting.peak()), (0, 15));
        for (cache_memory, max) in [(0, WAITING_MIN), (8 << 20, 2 << 20), (1 << 40, WAITING_MAX)] {
            waiting.set_room(cache_memory);
            assert_eq!(waiting.most(0), max + 4 * WAITING_ONE_MAX);
        }
    }
}
