//! What is known about a path at a moment.

use std::time::{Duration, Instant};

use crate::scion::{Fingerprint, Path};

/// A path under observation, as [`Monitor::states`](super::Monitor::states) sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathState {
    /// The path, with its newest hop fields.
    pub path: Path,
    /// Largest SCION packet in bytes: as announced or, if that is less, as found out.
    pub mtu: u16,
    /// Whether it works.
    pub liveness: Liveness,
    /// Whether something on it was reported down, which its probes have not refuted since.
    pub revoked: bool,
    /// Whether a session sends on it.
    pub in_use: bool,
    /// Mean round trip time to the border router of the destination AS.
    pub latency: Option<Duration>,
    /// The shortest one of about the last minute.
    pub latency_min: Option<Duration>,
    /// Mean deviation of the round trip time.
    pub jitter: Option<Duration>,
    /// Probes of about the last minute without an answer, parts per million.
    pub loss_ppm: Option<u32>,
}

impl PathState {
    /// Names the path.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        self.path.fingerprint
    }

    /// Whether its probes are answered reliably.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        matches!(self.liveness, Liveness::Alive { .. })
    }
}

/// Whether a path works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// Its probes are answered.
    Alive {
        /// Since when.
        since: Instant,
        /// From when on it is trusted: later than `since` if it has died in the last minutes.
        settled: Instant,
    },
    /// There were answers, but not enough yet to call it alive.
    Answering,
    /// Its probes are not answered.
    Silent,
    /// Its hop fields are no longer valid.
    Expired,
}

/// Whether the path enters its last AS through one of these interfaces. None given: there is no restriction.
/// Interface 0 stands for any, as in a path policy's sequence. A path whose interfaces are not known complies
/// only if there is no restriction.
#[must_use]
pub fn enters_through(path: &Path, interfaces: &[u64]) -> bool {
    if interfaces.is_empty() {
        return true;
    }
    path.interfaces.len().is_multiple_of(2)
        && path
            .interfaces
            .last()
            .is_some_and(|last| interfaces.iter().any(|&id| id == 0 || id == last.id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paths::testing::path;

    #[test]
    fn a_pinned_path_enters_the_last_as_through_a_listed_interface() {
        let path = path(&[(1, 11), (2, 21), (2, 22), (3, 31)]);
        assert!(enters_through(&path, &[]));
        assert!(enters_through(&path, &[30, 31]));
        assert!(enters_through(&path, &[0]));
        assert!(!enters_through(&path, &[22]), "another position");
        assert!(!enters_through(&path, &[32]));
    }

    #[test]
    fn a_path_with_odd_or_unknown_interfaces_complies_with_no_restriction_only() {
        let odd = path(&[(1, 11), (2, 21), (3, 31)]);
        assert!(enters_through(&odd, &[]));
        assert!(!enters_through(&odd, &[31]));
        let unknown = path(&[]);
        assert!(enters_through(&unknown, &[]));
        assert!(!enters_through(&unknown, &[31, 0]));
    }
}
