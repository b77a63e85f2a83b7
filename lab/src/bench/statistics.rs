//! Medians and spreads of a few runs, and a plausibility check of figures.

use serde::{Deserialize, Serialize};

/// A median with the minimum and maximum of the values.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
pub(crate) struct Spread {
    /// The median; the mean of the two middle values if their number is even.
    pub(crate) median: f64,
    /// Smallest value.
    pub(crate) min: f64,
    /// Largest value.
    pub(crate) max: f64,
    /// The number of values.
    pub(crate) count: usize,
}

impl Spread {
    /// The spread of `values`; `None` if there are none.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = values.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let count = sorted.len();
        let (&min, &max) = (sorted.first()?, sorted.last()?);
        let median = (sorted[(count - 1) / 2] + sorted[count / 2]) / 2.0;
        Some(Self {
            median,
            min,
            max,
            count,
        })
    }
}

/// Ratios of `values` to `base` for rounds in which both have a value.
pub(crate) fn ratios(values: &[Option<f64>], base: &[Option<f64>]) -> Option<Spread> {
    let pairs = values.iter().zip(base);
    Spread::of(pairs.filter_map(|(value, base)| {
        let (value, base) = ((*value)?, (*base)?);
        (base > 0.0).then(|| value / base)
    }))
}

/// Permitted deviation between the opened connections and those the figures account for.
const OCCUPANCY_TOLERANCE: f64 = 0.1;

/// The number of connections that the figures account for, if it differs from those opened.
///
/// In a closed loop without think time, requests per second times mean latency is the number of
/// connections in service (Little's law). A figure that does not match was achieved with fewer.
pub(crate) fn misfit(requests: u64, seconds: f64, mean_s: f64, connections: usize) -> Option<f64> {
    // A handful of long requests is inconclusive: those cut off at the ends weigh too much.
    if requests < 20 * connections as u64 || seconds <= 0.0 {
        return None;
    }
    let busy = requests as f64 / seconds * mean_s;
    let share = busy / connections as f64;
    ((share - 1.0).abs() > OCCUPANCY_TOLERANCE).then_some(busy)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(values: &[f64], expect: Option<(f64, f64, f64)>) {
        let found = Spread::of(values.iter().copied()).map(|s| (s.median, s.min, s.max));
        assert_eq!(found, expect, "{values:?}");
    }

    #[test]
    fn median_and_extremes() {
        check(&[], None);
        check(&[3.0], Some((3.0, 3.0, 3.0)));
        check(&[4.0, 1.0], Some((2.5, 1.0, 4.0)));
        check(&[9.0, 1.0, 5.0], Some((5.0, 1.0, 9.0)));
        check(&[4.0, 1.0, 3.0, 2.0], Some((2.5, 1.0, 4.0)));
    }

    #[test]
    fn ratios_are_taken_within_a_round() {
        let (a, b) = (
            [Some(1.0), None, Some(3.0)],
            [Some(2.0), Some(5.0), Some(3.0)],
        );
        let spread = ratios(&a, &b).expect("two rounds have both");
        assert_eq!(
            (spread.median, spread.min, spread.max, spread.count),
            (0.75, 0.5, 1.0, 2)
        );
        assert_eq!(ratios(&[Some(1.0)], &[None]), None);
        assert_eq!(ratios(&[Some(1.0)], &[Some(0.0)]), None);
    }

    #[test]
    fn rate_times_latency_must_fit_the_connections() {
        // 214,000/s at 9 ms are 1,926 connections, not 4,096.
        let busy = misfit(856_000, 4.0, 0.009, 4096).expect("does not fit");
        assert!((busy - 1926.0).abs() < 1.0);
        assert_eq!(misfit(856_000, 4.0, 0.0191, 4096), None);
        assert_eq!(misfit(10, 4.0, 0.1, 4), None);
    }
}
