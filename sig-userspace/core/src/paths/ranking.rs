//! Which of two paths is better.

use std::time::Duration;

use super::state::PathState;

/// A property by which paths are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Criterion {
    /// Short mean round trip time.
    Latency(Margin),
    /// Small deviation of the round trip time.
    Jitter(Margin),
    /// Few lost probes, in parts per million.
    Loss(Margin),
    /// Few interfaces.
    Hops,
    /// Large packets, as found out.
    Mtu,
    /// The higher fingerprint, byte by byte: says nothing about quality, but two gateways with the same paths
    /// choose the same.
    Fingerprint,
}

/// Differences up to the larger of both parts mean nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Margin {
    /// In percent of the worse value.
    pub percent: u32,
    /// In the unit of the criterion: microseconds or parts per million.
    pub absolute: u32,
}

impl Margin {
    /// Of latency and jitter unless something else is said: 10 % and 1 ms.
    pub const TIME: Margin = Margin {
        percent: 10,
        absolute: 1_000,
    };
    /// Of loss unless something else is said: one percentage point.
    pub const LOSS: Margin = Margin {
        percent: 0,
        absolute: 10_000,
    };

    fn of(self, worse: u64) -> u64 {
        let relative = u128::from(worse) * u128::from(self.percent) / 100;
        u64::try_from(relative)
            .unwrap_or(u64::MAX)
            .max(self.absolute.into())
    }
}

impl Criterion {
    /// What is to be small, unless it is the fingerprint. What is not known is largest.
    fn cost(self, path: &PathState) -> u64 {
        let micros = |time: Option<Duration>| {
            time.and_then(|time| u64::try_from(time.as_micros()).ok())
                .unwrap_or(u64::MAX)
        };
        match self {
            Criterion::Latency(_) => micros(path.latency),
            Criterion::Jitter(_) => micros(path.jitter),
            Criterion::Loss(_) => path.loss_ppm.map_or(u64::MAX, u64::from),
            Criterion::Hops => path.path.interfaces.len() as u64,
            Criterion::Mtu => u64::from(u16::MAX - path.mtu),
            Criterion::Fingerprint => 0,
        }
    }

    fn margin(self, worse: u64) -> u64 {
        match self {
            Criterion::Latency(margin) | Criterion::Jitter(margin) | Criterion::Loss(margin) => {
                margin.of(worse)
            }
            Criterion::Hops | Criterion::Mtu | Criterion::Fingerprint => 0,
        }
    }
}

/// Criteria by which the best paths are found, the most important one first. Among paths that are equal by
/// them, those are better that share fewer interfaces with the ones chosen already; then those with the higher
/// fingerprint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ranking(pub Vec<Criterion>);

impl Default for Ranking {
    /// That of the reference: fewer interfaces, then the higher fingerprint.
    fn default() -> Self {
        Ranking(vec![Criterion::Hops, Criterion::Fingerprint])
    }
}

impl Ranking {
    /// The criteria that say something about quality.
    fn measured(&self) -> impl Iterator<Item = Criterion> {
        let criteria = self.0.iter().copied();
        criteria.take_while(|&criterion| criterion != Criterion::Fingerprint)
    }

    /// The best of the paths, to be used beside others; `None` only if there is none.
    ///
    /// Criterion by criterion, only what is as good as the best of the rest stays. Comparing in pairs would not
    /// do: "better by more than the margin" is not transitive.
    pub(super) fn best<'a>(
        &self,
        mut paths: Vec<&'a PathState>,
        beside: &[&PathState],
    ) -> Option<&'a PathState> {
        for criterion in self.measured() {
            let best = paths.iter().map(|path| criterion.cost(path)).min()?;
            paths.retain(|path| {
                let cost = criterion.cost(path);
                cost - best <= criterion.margin(cost)
            });
        }
        let least = paths.iter().map(|path| shared(path, beside)).min()?;
        paths.retain(|path| shared(path, beside) == least);
        paths.into_iter().max_by_key(|path| path.fingerprint())
    }

    /// Whether it is worth to replace `incumbent` by `challenger` beside the others in use.
    ///
    /// What a later criterion gains must not cost half the margin of an earlier one: otherwise two paths that
    /// are about a margin apart would replace each other in turns.
    pub(super) fn prefers(
        &self,
        challenger: &PathState,
        incumbent: &PathState,
        beside: &[&PathState],
    ) -> bool {
        for criterion in self.measured() {
            let (new, old) = (criterion.cost(challenger), criterion.cost(incumbent));
            if old.saturating_sub(new) > criterion.margin(old) {
                return true;
            }
            if new.saturating_sub(old) > criterion.margin(new) / 2 {
                return false;
            }
        }
        let (new, old) = (shared(challenger, beside), shared(incumbent, beside));
        if new != old {
            return new < old;
        }
        self.0.contains(&Criterion::Fingerprint)
            && challenger.fingerprint() > incumbent.fingerprint()
    }
}

/// Interfaces of the path that others go through as well.
fn shared(path: &PathState, others: &[&PathState]) -> usize {
    let interfaces = path.path.interfaces.iter();
    interfaces
        .filter(|&&interface| others.iter().any(|other| other.path.crosses(interface)))
        .count()
}
