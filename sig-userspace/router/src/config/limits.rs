//! How much the fast path leaves to the slow path.

use std::time::Duration;

use sig_common::router::{Reason, maps::Limit, reason::Disposition};

use sig_core::document::{
    common::time,
    toml::{Section, or},
};

/// Key of [`RateLimits::burst`].
const BURST: &str = "burst";

/// How many reasons have a rate.
const RATES: usize = {
    let mut count = 0;
    let mut at = 0;
    while at < Reason::COUNT {
        if matches!(Reason::ALL[at].disposition(), Disposition::Slow) {
            count += 1;
        }
        at += 1;
    }
    count
};

/// The keys of the section: reasons by name, and the burst.
pub(super) const KEYS: [&str; RATES + 1] = {
    let mut keys = [BURST; RATES + 1];
    let (mut next, mut at) = (0, 0);
    while at < Reason::COUNT {
        if matches!(Reason::ALL[at].disposition(), Disposition::Slow) {
            keys[next] = Reason::ALL[at].name();
            next += 1;
        }
        at += 1;
    }
    keys
};

/// How many packets pass to the slow path for each reason; the others are dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateLimits {
    /// Packets per second by number of the reason; 0: no limit.
    per_second: [u32; Reason::COUNT],
    /// For so long the packets of a silent reason may come at once.
    pub burst: Duration,
}

impl RateLimits {
    /// Packets per second of one link, or of the inside, that may pass for a reason; `None`: as many as come.
    #[must_use]
    pub const fn per_second(&self, reason: Reason) -> Option<u32> {
        match (reason.disposition(), self.per_second[reason as usize]) {
            (Disposition::Slow, 1..) => Some(self.per_second[reason as usize]),
            _ => None,
        }
    }

    /// The limit of a reason, as the programs and the sockets take it.
    #[must_use]
    pub fn limit(&self, reason: Reason) -> Limit {
        let Some(rate) = self.per_second(reason) else {
            return Limit {
                interval: 0,
                burst: 0,
            };
        };
        let interval = 1_000_000_000 / u64::from(rate);
        Limit {
            interval: interval.max(1),
            // One packet passes at any rate.
            burst: u64::try_from(self.burst.as_nanos())
                .unwrap_or(u64::MAX)
                .max(interval),
        }
    }
}

impl Default for RateLimits {
    fn default() -> Self {
        Self {
            per_second: Reason::ALL.map(default_rate),
            burst: Duration::from_millis(100),
        }
    }
}

/// Forwarding that only the slow path can do has a limit that leaves room for everything else on one CPU; control traffic,
/// and forwarding and answers that the slow path may have to do, have a high one; errors that anybody can provoke have a low
/// one, and so has BFD, of which each neighbour and sibling sends some packets per second.
const fn default_rate(reason: Reason) -> u32 {
    match reason {
        Reason::NoFastWay | Reason::FamilyChange => 50_000,
        Reason::OneHop
        | Reason::EmptyPath
        | Reason::Epic
        | Reason::IngressAlert
        | Reason::EgressAlert
        | Reason::Service
        | Reason::Local
        | Reason::NoNeighbour
        | Reason::OpenChecksum
        | Reason::TooBig
        | Reason::Stun => 10_000,
        _ => 1_000,
    }
}

/// `[xdp.rate_limits]`.
pub(super) fn read(section: &Section<'_>) -> Option<RateLimits> {
    let mut limits = RateLimits::default();
    let mut right = true;
    for reason in Reason::ALL {
        if reason.disposition() != Disposition::Slow {
            continue;
        }
        let rate = &mut limits.per_second[reason as usize];
        match or(section, reason.name(), *rate, |item| {
            item.number(0..=100_000_000)
        }) {
            Some(read) => *rate = read,
            None => right = false,
        }
    }
    let burst = or(section, BURST, limits.burst, |item| {
        time(item, Duration::from_millis(1), Duration::from_secs(10))
    });
    limits.burst = burst?;
    right.then_some(limits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_packet_passes_at_any_rate() {
        let mut limits = RateLimits::default();
        limits.per_second[Reason::Expired as usize] = 1_000;
        let limit = limits.limit(Reason::Expired);
        assert_eq!((limit.interval, limit.burst), (1_000_000, 100_000_000));
        limits.per_second[Reason::Expired as usize] = 1;
        let limit = limits.limit(Reason::Expired);
        assert_eq!(
            (limit.interval, limit.burst),
            (1_000_000_000, 1_000_000_000)
        );
        limits.per_second[Reason::Expired as usize] = 0;
        assert_eq!(limits.limit(Reason::Expired).interval, 0);
    }

    #[test]
    fn everything_that_passes_is_limited_by_default() {
        let limits = RateLimits::default();
        for reason in Reason::ALL {
            let passes = reason.disposition() == Disposition::Slow;
            assert_eq!(limits.per_second(reason).is_some(), passes, "{reason:?}");
            assert_eq!(KEYS.contains(&reason.name()), passes, "{reason:?}");
        }
    }
}
