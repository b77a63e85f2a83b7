//! Runs work on all cores with results in order, and bounds the work in progress.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::{Condvar, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use super::limits::{BATCH_COUNT, BATCH_LEN};

/// The items, and the limits.
pub(super) struct Work<'i, I> {
    /// The items; each has one result.
    pub(super) items: &'i [I],
    /// Threads; 0 means one per core that this process may use.
    pub(super) threads: usize,
    /// The maximum total cost of items in progress; a single item may always run.
    pub(super) cost_max: u64,
}

/// Calls `work` for every item on several threads, and `take` on this thread with each result, in
/// the order of the items. An item is in progress until its result was taken, so that results
/// waiting for an earlier one count, too.
///
/// This thread also calls `tick` several times a second, to report what the others do.
///
/// Items begin in order, so that the one that `take` waits for is always in progress: this cannot
/// deadlock.
///
/// # Errors
///
/// The first error of `take`; items not yet begun are skipped.
pub(super) fn in_order<I: Sync, O: Send, E>(
    work: &Work<'_, I>,
    cost: impl Fn(&I) -> u64 + Sync,
    run: impl Fn(&I) -> O + Sync,
    mut take: impl FnMut(&I, O) -> Result<(), E>,
    mut tick: impl FnMut(),
) -> Result<(), E> {
    let gate = Gate::new(work.items.len(), work.cost_max);
    let cost = |number: usize| cost(&work.items[number]).min(work.cost_max);
    let (results, inbox) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..thread_count(work.threads).min(work.items.len()) {
            let (gate, run, cost, results) = (&gate, &run, &cost, results.clone());
            scope.spawn(move || {
                while let Some(number) = gate.begin(cost) {
                    if results.send((number, run(&work.items[number]))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(results);
        let mut waiting = BTreeMap::new();
        let mut next = 0;
        loop {
            let (number, result) = match inbox.recv_timeout(TICK) {
                Ok(result) => result,
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    tick();
                    continue;
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
            };
            tick();
            waiting.insert(number, result);
            while let Some(result) = waiting.remove(&next) {
                if let Err(error) = take(&work.items[next], result) {
                    gate.stop();
                    return Err(error);
                }
                gate.end(cost(next));
                next += 1;
            }
        }
        Ok(())
    })
}

/// Groups consecutive items into batches if they are small, by their lengths in bytes: passing small ones
/// between threads one by one would take longer than the work. Of few items, each thread has some.
pub(super) fn batches<I>(items: &[I], threads: usize, len_of: impl Fn(&I) -> u64) -> Vec<&[I]> {
    let count_max = items.len().div_ceil(thread_count(threads)).min(BATCH_COUNT);
    let mut batches = Vec::new();
    let mut rest = items;
    while !rest.is_empty() {
        let mut len = 0u64;
        let fits = |item: &&I| {
            len = len.saturating_add(len_of(item));
            len <= BATCH_LEN
        };
        let count = rest.iter().take(count_max).take_while(fits).count();
        let (batch, others) = rest.split_at(count.max(1));
        batches.push(batch);
        rest = others;
    }
    batches
}

/// The longest time between two ticks.
const TICK: Duration = Duration::from_millis(100);

fn thread_count(wanted: usize) -> usize {
    if wanted > 0 {
        return wanted;
    }
    thread::available_parallelism().map_or(1, NonZeroUsize::get)
}

/// Admits items in order while their total cost is within the limit.
struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
    cost_max: u64,
    count: usize,
}

struct GateState {
    next: usize,
    cost: u64,
    is_stopped: bool,
}

impl Gate {
    fn new(count: usize, cost_max: u64) -> Self {
        let state = GateState {
            next: 0,
            cost: 0,
            is_stopped: false,
        };
        Self {
            state: Mutex::new(state),
            changed: Condvar::new(),
            cost_max,
            count,
        }
    }

    /// Waits for room and returns the next item; `None` if there are no more.
    fn begin(&self, cost: impl Fn(usize) -> u64) -> Option<usize> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if state.is_stopped || state.next == self.count {
                return None;
            }
            let sum = state.cost.saturating_add(cost(state.next));
            if sum <= self.cost_max || state.cost == 0 {
                state.cost = sum;
                state.next += 1;
                return Some(state.next - 1);
            }
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn end(&self, cost: u64) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.cost -= cost;
        self.changed.notify_all();
    }

    fn stop(&self) {
        self.state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .is_stopped = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn results_come_in_order_and_within_the_bound() {
        let items: Vec<u64> = (0..500).map(|n| n * 7919 % 50).collect();
        let under_way = AtomicU64::new(0);
        for (threads, cost_max) in [(1, 1), (3, 60), (8, 10_000)] {
            let mut taken = Vec::new();
            let work = Work {
                items: &items,
                threads,
                cost_max,
            };
            let run = |item: &u64| {
                let item_cost = (*item).min(cost_max);
                let sum = under_way.fetch_add(item_cost, Ordering::SeqCst) + item_cost;
                assert!(sum <= cost_max, "{sum} of {cost_max}");
                item * 2
            };
            let outcome: Result<(), ()> = in_order(
                &work,
                |item| *item,
                run,
                |item, result| {
                    under_way.fetch_sub((*item).min(cost_max), Ordering::SeqCst);
                    taken.push(result);
                    Ok(())
                },
                || {},
            );
            assert_eq!(outcome, Ok(()));
            assert_eq!(taken, items.iter().map(|item| item * 2).collect::<Vec<_>>());
        }
    }

    #[test]
    fn an_error_ends_the_work() {
        let items: Vec<u64> = (0..1000).collect();
        let begun = AtomicU64::new(0);
        let work = Work {
            items: &items,
            threads: 4,
            cost_max: 10,
        };
        let run = |_: &u64| begun.fetch_add(1, Ordering::SeqCst);
        let outcome = in_order(
            &work,
            |_| 1,
            run,
            |item, _| if *item == 3 { Err(*item) } else { Ok(()) },
            || {},
        );
        assert_eq!(outcome, Err(3));
        assert!(begun.into_inner() <= 14, "what is not begun is left");
    }

    #[test]
    fn small_items_are_passed_together() {
        let lens = [&[BATCH_LEN + 1, 1][..], &[0; 3 * BATCH_COUNT], &[BATCH_LEN]].concat();
        let batches = batches(&lens, 2, |len| *len);
        assert_eq!(batches.concat(), lens);
        let counts: Vec<usize> = batches.iter().map(|batch| batch.len()).collect();
        assert_eq!(counts, [1, BATCH_COUNT, BATCH_COUNT, BATCH_COUNT, 2]);
        let long = batches
            .iter()
            .filter(|it| it.iter().sum::<u64>() > BATCH_LEN);
        assert!(long.eq([&[BATCH_LEN + 1]]));
    }

    #[test]
    fn of_few_small_items_each_thread_has_some() {
        let lens = [1; BATCH_COUNT];
        for threads in [1, 2, 3, 4] {
            assert_eq!(batches(&lens, threads, |len| *len).len(), threads);
        }
        assert_eq!(batches(&lens[..1], 4, |len| *len).len(), 1);
        assert_eq!(batches(&lens[..0], 4, |len| *len).len(), 0);
    }

    #[test]
    fn nothing_to_do_is_done() {
        let work = Work {
            items: &[0u8; 0],
            threads: 0,
            cost_max: 1,
        };
        let outcome = in_order(&work, |_| 1, |_| (), |_, ()| Err(()), || {});
        assert_eq!(outcome, Ok(()));
    }
}
