//! A hashed timer wheel: one pending entry per connection, checked lazily.
//!
//! A connection keeps its own deadline; the wheel only knows when to check it next. Moving a
//! deadline later costs nothing (the entry fires, finds the later deadline and is inserted again);
//! moving it earlier inserts a second entry, and the older one finds nothing to do.

use gannet_io::driver::Nanos;

use crate::ground::token::ConnId;

/// A time in ticks of [`TICK_NS`].
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Tick(pub(crate) u32);

impl Tick {
    /// No deadline.
    pub(crate) const NEVER: Self = Self(u32::MAX);

    /// The first tick at or after `at`, so that a timer never fires early.
    pub(crate) fn at_or_after(at: Nanos) -> Self {
        Self(u32::try_from(at.0.div_ceil(TICK_NS)).unwrap_or(u32::MAX - 1))
    }

    /// When this tick begins.
    pub(crate) fn start(self) -> Nanos {
        Nanos(u64::from(self.0) * TICK_NS)
    }
}

/// Length of a tick: 2^27 ns, about 134 ms. Timeouts are seconds; a finer tick would only wake
/// idle workers more often.
const TICK_NS: u64 = 1 << 27;

/// Slots of the wheel: about 137 s. Later deadlines wait in the last slot and are inserted again.
const SLOTS: u32 = 1024;

/// The wheel. See the module documentation.
pub(crate) struct Wheel {
    slots: Vec<Vec<ConnId>>,
    /// Everything before this tick has fired.
    next: Tick,
    /// No entry is in an earlier slot; kept so that a turn need not search the wheel.
    earliest: Tick,
}

impl Wheel {
    /// An empty wheel whose time begins at `now`.
    pub(crate) fn new(now: Nanos) -> Self {
        let mut slots = Vec::new();
        slots.resize_with(SLOTS as usize, Vec::new);
        Self {
            slots,
            next: Tick::at_or_after(now),
            earliest: Tick::NEVER,
        }
    }

    /// Schedules a check of a connection in `tick`, or earlier if that is beyond the wheel's
    /// horizon. Returns the tick of the entry.
    pub(crate) fn insert(&mut self, tick: Tick, id: ConnId) -> Tick {
        let last = Tick(self.next.0.saturating_add(SLOTS - 1));
        let tick = tick.clamp(self.next, last);
        self.slots[(tick.0 % SLOTS) as usize].push(id);
        self.earliest = self.earliest.min(tick);
        tick
    }

    /// When the next entry fires, if any.
    pub(crate) fn next_deadline(&self) -> Option<Nanos> {
        (self.earliest != Tick::NEVER).then(|| self.earliest.start())
    }

    /// Moves every entry that is due at `now` into `due`.
    pub(crate) fn fire(&mut self, now: Nanos, due: &mut Vec<ConnId>) {
        let now = Tick(u32::try_from(now.0 / TICK_NS).unwrap_or(u32::MAX - 1));
        // A jump over the whole wheel visits each slot once.
        let turns = (now.0 + 1).saturating_sub(self.next.0).min(SLOTS);
        for ahead in 0..turns {
            due.append(&mut self.slots[((self.next.0 + ahead) % SLOTS) as usize]);
        }
        self.next = self.next.max(Tick(now.0 + 1));
        if self.earliest < self.next {
            self.earliest = self.search();
        }
    }

    fn search(&self) -> Tick {
        (0..SLOTS)
            .map(|ahead| Tick(self.next.0.saturating_add(ahead)))
            .find(|tick| !self.slots[(tick.0 % SLOTS) as usize].is_empty())
            .unwrap_or(Tick::NEVER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timed(slot: u32) -> ConnId {
        ConnId {
            slot,
            generation: 0,
        }
    }

    fn fired(wheel: &mut Wheel, at: Nanos) -> Vec<u32> {
        let mut due = Vec::new();
        wheel.fire(at, &mut due);
        due.iter().map(|t| t.slot).collect()
    }

    #[test]
    fn fires_in_the_tick_and_never_before() {
        let mut wheel = Wheel::new(Nanos(0));
        let tick = Tick::at_or_after(Nanos(10 * TICK_NS + 1));
        assert_eq!(tick, Tick(11));
        wheel.insert(tick, timed(7));
        assert_eq!(wheel.next_deadline(), Some(Nanos(11 * TICK_NS)));
        assert_eq!(fired(&mut wheel, Nanos(11 * TICK_NS - 1)), []);
        assert_eq!(fired(&mut wheel, Nanos(11 * TICK_NS)), [7]);
        assert_eq!(wheel.next_deadline(), None);
    }

    #[test]
    fn a_deadline_beyond_the_horizon_is_looked_at_early() {
        let mut wheel = Wheel::new(Nanos(0));
        let tick = wheel.insert(Tick(5 * SLOTS), timed(1));
        assert_eq!(tick, Tick(SLOTS - 1));
    }

    #[test]
    fn a_jump_of_the_clock_fires_everything_once() {
        let mut wheel = Wheel::new(Nanos(0));
        for slot in 0..100 {
            wheel.insert(Tick(slot * 10), timed(slot));
        }
        let mut all = fired(&mut wheel, Nanos(u64::MAX / 2));
        all.sort_unstable();
        assert_eq!(all, (0..100).collect::<Vec<_>>());
        assert_eq!(fired(&mut wheel, Nanos(u64::MAX / 2)), []);
    }
}
