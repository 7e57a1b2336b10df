//! The time of a run that is to end on time.

use std::time::{Duration, Instant};

/// Divides what is left of the time among what is still to be measured.
pub(super) struct Budget {
    ends: Instant,
    /// Of everything that is still to be measured.
    weight: f64,
}

impl Budget {
    /// The time from now on, for everything, which has this weight together.
    pub(super) fn new(length: Duration, weight: f64) -> Self {
        Self {
            ends: Instant::now() + length,
            weight,
        }
    }

    /// Time of the next part, which was planned with a weight of `planned`. Without what could not be set up it has `weight`, and
    /// what comes later gets the rest.
    pub(super) fn share(&mut self, now: Instant, planned: f64, weight: f64) -> Duration {
        let left = self.ends.saturating_duration_since(now);
        let share = (weight / self.weight).clamp(0.0, 1.0);
        self.weight -= planned;
        // Not a number where nothing has a weight.
        left.mul_f64(if share.is_finite() { share } else { 0.0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_divided_by_weight() {
        let length = Duration::from_secs(100);
        let mut budget = Budget::new(length, 10.0);
        let start = budget.ends - length;
        let after = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(budget.share(start, 2.0, 2.0), Duration::from_secs(20));
        // It took ten seconds too long: of the 70 left, 8 parts are 8.75 s each. Half of it could not be set up.
        let half = Duration::from_millis(17_500);
        assert_eq!(budget.share(after(30), 4.0, 2.0), half);
        let rest = Duration::from_secs(52);
        assert_eq!(budget.share(after(48), 4.0, 4.0), rest);
        // Too late, and more than was planned.
        assert_eq!(budget.share(after(101), 1.0, 1.0), Duration::ZERO);
        assert_eq!(budget.share(after(50), 0.0, 0.0), Duration::ZERO);
    }
}
