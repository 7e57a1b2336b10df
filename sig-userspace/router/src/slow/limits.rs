//! Rate limits of the slow path, for packets that no XDP program has limited.

use std::time::{Duration, Instant};

use sig_common::router::{Reason, maps::Limit};

use crate::config::RateLimits;

/// One limit per reason, so that a flood of one kind does not starve another.
#[derive(Clone, Debug)]
pub(super) struct Limits {
    limits: [Limit; Reason::COUNT],
    /// When the next packet is due (GCRA), by reason.
    due: [Instant; Reason::COUNT],
}

impl Limits {
    pub(super) fn new(limits: &RateLimits, now: Instant) -> Self {
        Self {
            limits: Reason::ALL.map(|reason| limits.limit(reason)),
            due: [now; Reason::COUNT],
        }
    }

    /// Whether one more packet for this reason may be worked on now.
    pub(super) fn admit(&mut self, reason: Reason, now: Instant) -> bool {
        let limit = self.limits[reason as usize];
        let due = &mut self.due[reason as usize];
        let next = (*due).max(now);
        if limit.interval != 0 && next - now > Duration::from_nanos(limit.burst) {
            return false;
        }
        *due = next + Duration::from_nanos(limit.interval);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_admitted_and_then_the_rate() {
        let start = Instant::now();
        let configured = RateLimits::default();
        let rate = configured.per_second(Reason::InvalidMac).unwrap();
        let burst = rate * configured.burst.as_millis() as u32 / 1000 + 1;
        let mut limits = Limits::new(&configured, start);
        let mut admitted = |after| {
            let now = start + Duration::from_millis(after);
            (0..2 * rate)
                .filter(|_| limits.admit(Reason::InvalidMac, now))
                .count() as u32
        };
        assert_eq!(admitted(0), burst);
        assert_eq!(admitted(0), 0);
        assert_eq!(admitted(10), rate / 100);
        assert_eq!(admitted(60_000), burst);
    }

    #[test]
    fn reasons_do_not_share() {
        let start = Instant::now();
        let mut limits = Limits::new(&RateLimits::default(), start);
        while limits.admit(Reason::InvalidMac, start) {}
        assert!(limits.admit(Reason::Expired, start));
        assert!(limits.admit(Reason::Bfd, start));
    }
}
