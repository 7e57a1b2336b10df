//! Performance policies: which of the paths that comply are better, and which are not good enough.

mod print;
pub(super) mod read;

use std::time::Duration;

pub use crate::paths::{Criterion, Margin};

/// By what paths are compared, and what they have to offer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PerformancePolicy {
    /// What is compared, the most important first. Empty: as without a policy.
    pub order: Vec<Criterion>,
    /// What a path has to offer to be used at all.
    pub limits: Limits,
}

/// What a path has to offer; `None` where nothing is asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Longest round trip time.
    pub max_latency: Option<Duration>,
    /// Largest deviation of the round trip time.
    pub max_jitter: Option<Duration>,
    /// Most lost probes, in parts per million.
    pub max_loss_ppm: Option<u32>,
    /// Smallest MTU in bytes: SCION header and payload.
    pub min_mtu: Option<u16>,
}

/// What is known about a path; `None` where nothing is known yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quality {
    /// Round trip time.
    pub latency: Option<Duration>,
    /// Deviation of the round trip time.
    pub jitter: Option<Duration>,
    /// Lost probes, in parts per million.
    pub loss_ppm: Option<u32>,
    /// MTU in bytes: SCION header and payload.
    pub mtu: Option<u16>,
}

impl Limits {
    /// Whether a path keeps all limits, as far as is known.
    #[must_use]
    pub fn admit(&self, quality: &Quality) -> bool {
        fn within<T: PartialOrd>(value: Option<T>, max: Option<T>) -> bool {
            value.zip(max).is_none_or(|(value, max)| value <= max)
        }
        within(quality.latency, self.max_latency)
            && within(quality.jitter, self.max_jitter)
            && within(quality.loss_ppm, self.max_loss_ppm)
            && within(self.min_mtu, quality.mtu)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_refuse_what_is_known_to_be_too_bad() {
        let milliseconds = |ms| Some(Duration::from_millis(ms));
        let limits = Limits {
            max_latency: milliseconds(100),
            max_jitter: milliseconds(10),
            max_loss_ppm: Some(5_000),
            min_mtu: Some(1400),
        };
        let good = Quality {
            latency: milliseconds(100),
            jitter: milliseconds(10),
            loss_ppm: Some(5_000),
            mtu: Some(1400),
        };
        assert!(limits.admit(&good));
        assert!(limits.admit(&Quality::default()), "nothing is known");
        assert!(Limits::default().admit(&good), "nothing is asked");
        for bad in [
            Quality {
                latency: milliseconds(101),
                ..good
            },
            Quality {
                jitter: milliseconds(11),
                ..good
            },
            Quality {
                loss_ppm: Some(5_001),
                ..good
            },
            Quality {
                mtu: Some(1399),
                ..good
            },
        ] {
            assert!(!limits.admit(&bad), "{bad:?}");
        }
    }
}
