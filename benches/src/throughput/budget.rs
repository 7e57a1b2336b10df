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

    /// Seconds that there are for each unit of weight.
    pub(super) fn pace(&self, now: Instant) -> f64 {
        let left = self.ends.saturating_duration_since(now).as_secs_f64();
        if self.weight > 0.0 {
            left / self.weight
        } else {
            0.0
        }
    }

    /// What has this weight has got its time, or will not be measured.
    pub(super) fn take(&mut self, weight: f64) {
        self.weight -= weight;
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
        assert_eq!(budget.pace(start), 10.0);
        // It took longer than that.
        budget.take(2.0);
        assert_eq!(budget.pace(after(60)), 5.0);
        budget.take(4.0);
        assert_eq!(budget.pace(after(60)), 10.0);
        assert_eq!(budget.pace(after(101)), 0.0);
        budget.take(4.0);
        assert_eq!(budget.pace(after(60)), 0.0);
    }
}
