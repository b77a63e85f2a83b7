//! In which order a client asks for its targets.

use super::{Order, Plan};

/// Chooses what is asked for next.
pub(super) struct Choice {
    order: Order,
    /// How many targets there are.
    count: u64,
    next: u64,
    /// How far apart two that follow each other are, where they are scattered.
    step: u64,
    random: u64,
}

impl Choice {
    pub(super) fn new(plan: &Plan<'_>) -> Self {
        let count = plan.targets.len() as u64;
        Self {
            order: plan.order,
            count,
            next: 0,
            step: scattering_step(count),
            random: 0x9e37_79b9_7f4a_7c15,
        }
    }

    /// The index of the next target.
    pub(super) fn next(&mut self) -> u32 {
        let index = match self.order {
            Order::RoundRobin => {
                let index = self.next;
                self.next = if index + 1 == self.count {
                    0
                } else {
                    index + 1
                };
                index
            }
            Order::Once => {
                let index = self.next;
                self.next = (index + self.step) % self.count;
                index
            }
            Order::Random => {
                // xorshift64: quick, and the same in every run.
                self.random ^= self.random << 13;
                self.random ^= self.random >> 7;
                self.random ^= self.random << 17;
                ((u128::from(self.random) * u128::from(self.count)) >> 64) as u64
            }
        };
        index as u32
    }
}

/// Steps of this length visit each of `count` places once, neighbours far apart in time.
fn scattering_step(count: u64) -> u64 {
    let gcd = |mut a: u64, mut b: u64| {
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    let golden = (count as f64 * 0.618_034) as u64;
    let steps = golden.max(1)..=count.max(1);
    steps
        .into_iter()
        .find(|&step| gcd(step, count) == 1)
        .unwrap_or(1)
}
