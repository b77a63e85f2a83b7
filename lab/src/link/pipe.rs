//! One direction of a link: a queue of bounded length, a rate, a delay, and loss. Pure: time is an
//! argument, and loss comes from a seed.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use xtask::random::SplitMix;

/// The properties of one direction of a link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Shape {
    /// Time from a packet's last bit on the wire until it is delivered, in nanoseconds.
    pub(crate) delay: u64,
    /// Bits per second.
    pub(crate) rate: u64,
    /// Bytes that may wait for the wire; a packet that does not fit is dropped.
    pub(crate) queue_max: u64,
    /// Packets lost on the wire, per million.
    pub(crate) loss: u32,
}

/// Counts of packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
pub(crate) struct Counts {
    /// Delivered.
    pub(crate) delivered: u64,
    /// Bytes of these.
    pub(crate) bytes: u64,
    /// Dropped because the queue was full.
    pub(crate) dropped: u64,
    /// Lost on the wire.
    pub(crate) lost: u64,
    /// Maximum delay of a delivery after its due time, in nanoseconds.
    pub(crate) latest: u64,
}

/// One direction with the packets in flight.
pub(crate) struct Pipe {
    shape: Shape,
    /// Which datagrams are lost.
    random: SplitMix,
    /// When the wire is free again.
    free_at: u64,
    /// Packets in flight with their delivery times, in order.
    under_way: VecDeque<(u64, Vec<u8>)>,
    counts: Counts,
}

impl Pipe {
    /// Creates an empty pipe.
    pub(crate) fn new(shape: Shape, seed: u64) -> Self {
        Self {
            shape,
            random: SplitMix(seed),
            free_at: 0,
            under_way: VecDeque::new(),
            counts: Counts::default(),
        }
    }

    /// Accepts, drops or loses a packet sent at `now`.
    pub(crate) fn offer(&mut self, now: u64, packet: &[u8]) {
        let len = packet.len() as u64;
        if self.waiting(now) + len > self.shape.queue_max {
            self.counts.dropped += 1;
            return;
        }
        self.free_at = now.max(self.free_at) + len * 8_000_000_000 / self.shape.rate;
        // A lost packet still occupies the wire.
        if self.is_lost() {
            self.counts.lost += 1;
            return;
        }
        let due = self.free_at + self.shape.delay;
        self.under_way.push_back((due, packet.to_vec()));
    }

    /// Takes the next packet that is due.
    pub(crate) fn take(&mut self, now: u64) -> Option<Vec<u8>> {
        if self.next()? > now {
            return None;
        }
        let (due, packet) = self.under_way.pop_front()?;
        self.counts.delivered += 1;
        self.counts.bytes += packet.len() as u64;
        self.counts.latest = self.counts.latest.max(now - due);
        Some(packet)
    }

    /// When the next packet is due.
    pub(crate) fn next(&self) -> Option<u64> {
        self.under_way.front().map(|(due, _)| *due)
    }

    /// The counts so far.
    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    /// Bytes waiting for the wire.
    fn waiting(&self, now: u64) -> u64 {
        let time = u128::from(self.free_at.saturating_sub(now));
        (time * u128::from(self.shape.rate) / 8_000_000_000) as u64
    }

    fn is_lost(&mut self) -> bool {
        self.random.next() % 1_000_000 < u64::from(self.shape.loss)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// A byte takes a millisecond, and then 50 more.
    const SLOW: Shape = Shape {
        delay: 50 * MS,
        rate: 8_000,
        queue_max: 300,
        loss: 0,
    };

    #[test]
    fn a_packet_takes_its_time_on_the_wire_and_the_delay() {
        let mut pipe = Pipe::new(SLOW, 1);
        pipe.offer(7 * MS, &[1; 100]);
        assert_eq!(pipe.next(), Some(157 * MS));
        assert_eq!(pipe.take(157 * MS - 1), None);
        assert_eq!(pipe.take(157 * MS), Some(vec![1; 100]));
        assert_eq!((pipe.next(), pipe.take(u64::MAX)), (None, None));
    }

    #[test]
    fn packets_leave_one_after_the_other_and_an_idle_wire_saves_nothing_up() {
        let mut pipe = Pipe::new(SLOW, 1);
        pipe.offer(0, &[1; 100]);
        pipe.offer(0, &[2; 50]);
        pipe.offer(1_000 * MS, &[3; 10]);
        let mut due = Vec::new();
        while let Some(at) = pipe.next() {
            let packet = pipe.take(at).expect("its time has come");
            due.push((at / MS, packet[0]));
        }
        assert_eq!(due, [(150, 1), (200, 2), (1_060, 3)]);
        let counts = pipe.counts();
        assert_eq!((counts.delivered, counts.bytes, counts.latest), (3, 160, 0));
    }

    #[test]
    fn what_does_not_fit_the_queue_is_dropped_and_the_queue_drains() {
        let mut pipe = Pipe::new(SLOW, 1);
        for _ in 0..4 {
            pipe.offer(0, &[0; 100]);
        }
        assert_eq!(pipe.counts().dropped, 1);
        // After 99 ms there is not room for 100 bytes, after 100 there is.
        pipe.offer(99 * MS, &[0; 100]);
        assert_eq!(pipe.counts().dropped, 2);
        pipe.offer(100 * MS, &[0; 100]);
        assert_eq!(pipe.counts().dropped, 2);
        assert_eq!(pipe.under_way.back().map(|(due, _)| *due), Some(450 * MS));
    }

    #[test]
    fn loss_is_what_was_set_and_the_same_again_from_the_same_seed() {
        let shape = Shape {
            loss: 30_000,
            queue_max: u64::MAX,
            ..SLOW
        };
        let lost = |seed| {
            let mut pipe = Pipe::new(shape, seed);
            for at in 0..100_000 {
                pipe.offer(at, &[0]);
            }
            let left: Vec<u64> = pipe.under_way.iter().map(|(due, _)| *due).collect();
            (pipe.counts().lost, left)
        };
        let first = lost(5);
        assert!((2_800..3_200).contains(&first.0), "{} lost", first.0);
        assert_eq!(first, lost(5));
        assert_ne!(first.1, lost(6).1);
    }

    #[test]
    fn lateness_is_the_worst() {
        let mut pipe = Pipe::new(SLOW, 1);
        pipe.offer(0, &[0; 10]);
        pipe.offer(0, &[0; 10]);
        assert!(pipe.take(63 * MS).is_some() && pipe.take(71 * MS).is_some());
        assert_eq!(pipe.counts().latest, 3 * MS);
    }
}
