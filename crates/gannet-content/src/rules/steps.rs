//! What evaluating the rules of a site costs, counted and bounded.
//!
//! Rules are written by authors, who need not be those who run the server, and a request makes the
//! server evaluate them. So everything that does is counted: a step is a lookup, a rule compared, a
//! field set, or [`LEN_OF_STEP`] bytes, words or entries gone through; at most about a hundred
//! nanoseconds each. Seconds would depend on the machine.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::limits::{EVALUATION_STEPS_MAX, STEPS_MAX};

/// The most bytes, words or entries that are gone through in one step.
pub const LEN_OF_STEP: usize = 64;

/// The steps that a request, or one evaluation for it, has taken, of those that it may take.
#[derive(Clone, Debug)]
pub struct Steps {
    left: Cell<u32>,
    max: u32,
    /// The rule that was compared last, from 1.
    rule: Cell<u32>,
}

/// There were not enough steps: the evaluation ends without a result.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct OutOfSteps;

impl Default for Steps {
    fn default() -> Self {
        Self::new(STEPS_MAX)
    }
}

impl Steps {
    /// At most so many.
    #[must_use]
    pub const fn new(max: u32) -> Self {
        Self {
            left: Cell::new(max),
            max,
            rule: Cell::new(0),
        }
    }

    /// One evaluation for a request of which these are the steps. It may take
    /// [`EVALUATION_STEPS_MAX`] of those that are left, so that the first ones leave some for others.
    ///
    /// # Errors
    /// There were not enough.
    pub fn evaluate<T>(
        &self,
        within: impl FnOnce(&Self) -> Result<T, OutOfSteps>,
    ) -> Result<T, OutOfSteps> {
        let left = self.left.get();
        let own = Self::new(left.min(EVALUATION_STEPS_MAX));
        let result = within(&own);
        self.left.set(left - own.taken());
        self.rule.set(own.rule.get());
        result
    }

    /// So many are left, as after other evaluations for the same request.
    pub fn resume(&self, left: u32) {
        self.left.set(left.min(self.max));
    }

    /// How many are left.
    #[must_use]
    pub fn left(&self) -> u32 {
        self.left.get()
    }

    /// Takes note of the rule that is compared next.
    #[inline]
    pub fn at(&self, rule: u32) {
        self.rule.set(rule.saturating_add(1));
    }

    /// Takes one step.
    ///
    /// # Errors
    /// None is left.
    #[inline]
    pub fn one(&self) -> Result<(), OutOfSteps> {
        self.take(1)
    }

    /// Takes the steps for so many bytes, words or entries, at least one.
    ///
    /// # Errors
    /// Not so many are left; then none is.
    #[inline]
    pub fn through(&self, len: usize) -> Result<(), OutOfSteps> {
        self.take(1 + len / LEN_OF_STEP)
    }

    /// Takes so many steps.
    ///
    /// # Errors
    /// Not so many are left; then none is.
    #[inline]
    pub fn take(&self, count: usize) -> Result<(), OutOfSteps> {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        let left = self.left.get().checked_sub(count);
        self.left.set(left.unwrap_or(0));
        left.map(|_| ()).ok_or(OutOfSteps)
    }

    /// How many were taken.
    #[must_use]
    pub fn taken(&self) -> u32 {
        self.max - self.left.get()
    }
}

/// How often evaluations of a table were out of steps. Shared by all that evaluate it.
#[derive(Debug, Default)]
pub struct Overruns {
    count: AtomicU64,
    /// The rule that the last of them had come to, from 1; 0 if none.
    rule: AtomicU32,
}

impl Clone for Overruns {
    /// None yet: the copy is another table.
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl Overruns {
    /// Counts an evaluation that was out of steps.
    #[cold]
    pub(crate) fn note(&self, steps: &Steps) {
        self.rule.store(steps.rule.get(), Ordering::Relaxed);
        self.count.fetch_add(1, Ordering::Release);
    }

    /// How many there were, and the position of the rule that the last one had come to, if it had
    /// come to any.
    #[must_use]
    pub fn seen(&self) -> (u64, Option<u32>) {
        let count = self.count.load(Ordering::Acquire);
        (count, self.rule.load(Ordering::Relaxed).checked_sub(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Evaluations for one request take from the same steps, and each leaves some for the next.
    #[test]
    fn evaluations_share_the_steps_of_a_request() {
        let request = Steps::default();
        let all = |steps: &Steps| steps.take(usize::MAX);
        for count in 1..=STEPS_MAX / EVALUATION_STEPS_MAX {
            assert_eq!(request.evaluate(all), Err(OutOfSteps));
            assert_eq!(request.taken(), count * EVALUATION_STEPS_MAX);
        }
        assert_eq!(request.evaluate(Steps::one), Err(OutOfSteps));
        request.resume(1);
        assert_eq!(request.evaluate(Steps::one), Ok(()));
        assert_eq!(
            (request.left(), request.evaluate(Steps::one)),
            (0, Err(OutOfSteps))
        );
    }

    #[test]
    fn steps_end() {
        let steps = Steps::new(10);
        assert_eq!((steps.one(), steps.taken()), (Ok(()), 1));
        assert_eq!((steps.through(0), steps.taken()), (Ok(()), 2));
        assert_eq!((steps.through(64), steps.taken()), (Ok(()), 4));
        assert_eq!((steps.take(6), steps.taken()), (Ok(()), 10));
        assert_eq!(steps.one(), Err(OutOfSteps));
        // What is too much at once leaves none for less.
        let steps = Steps::new(10);
        assert_eq!(steps.take(usize::MAX), Err(OutOfSteps));
        assert_eq!((steps.one(), steps.taken()), (Err(OutOfSteps), 10));
    }
}
