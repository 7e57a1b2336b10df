//! Paths that are not good enough for a performance policy, and how they come back.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use crate::scion::Fingerprint;

/// Longest time that a path has to be good enough before it is used again, unless `switch_delay` is longer.
const MAX_HOLD: Duration = Duration::from_secs(60);
/// A path that was good enough for so long is trusted as one that always was.
const FORGIVEN: Duration = Duration::from_secs(300);

/// The paths of a session that were beyond a limit of its policy lately.
///
/// A path leaves when it is measured to be beyond a limit. It comes back after it has kept all of them for
/// `switch_delay`, and for twice as long with every time that it leaves soon again: a path that wavers around a
/// limit must not take session, routes and streams up and down with it.
#[derive(Debug, Default)]
pub(super) struct Excluded(HashMap<Fingerprint, Exclusion>);

#[derive(Debug)]
struct Exclusion {
    /// Since when it has been good enough again.
    good_since: Option<Instant>,
    hold: Duration,
}

impl Excluded {
    /// Whether the path may be used, if it is `good` enough at this moment.
    pub(super) fn admit(
        &mut self,
        now: Instant,
        path: Fingerprint,
        good: bool,
        switch_delay: Duration,
    ) -> bool {
        if !good {
            let exclusion = self.0.entry(path).or_insert(Exclusion {
                good_since: Some(now),
                hold: Duration::ZERO,
            });
            let held = |since| now.saturating_duration_since(since) >= exclusion.hold;
            if exclusion.good_since.take().is_some_and(held) {
                exclusion.hold = match exclusion.hold {
                    Duration::ZERO => switch_delay,
                    hold => (hold * 2).min(MAX_HOLD.max(switch_delay)),
                };
            }
            return false;
        }
        let Some(exclusion) = self.0.get_mut(&path) else {
            return true;
        };
        let since = *exclusion.good_since.get_or_insert(now);
        now.saturating_duration_since(since) >= exclusion.hold
    }

    /// Forgets paths that are not among these, or are forgiven.
    pub(super) fn retain(&mut self, now: Instant, is_known: impl Fn(Fingerprint) -> bool) {
        self.0.retain(|path, exclusion| {
            let is_forgiven = exclusion.good_since.is_some_and(|since| {
                now.saturating_duration_since(since) >= FORGIVEN.max(exclusion.hold)
            });
            is_known(*path) && !is_forgiven
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scion::{Interface, Path};

    #[test]
    fn a_path_that_wavers_is_out_for_longer_and_longer() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let interface = Interface {
            isd_as: sig_common::addr::IsdAs(1),
            id: 1,
        };
        let path = Path::fingerprint_of(&[interface]);
        let delay = Duration::from_secs(5);
        let mut excluded = Excluded::default();
        let mut admit = |seconds, good| excluded.admit(at(seconds), path, good, delay);
        assert!(admit(0, true));
        assert!(!admit(1, false));
        assert!(!admit(2, true));
        assert!(!admit(6, false), "not for long enough");
        assert!(!admit(7, true));
        assert!(!admit(11, true));
        assert!(admit(12, true));
        assert!(!admit(20, false));
        assert!(!admit(21, true));
        assert!(!admit(30, true), "10 s now");
        assert!(admit(31, true));
        for _ in 0..10 {
            assert!(!admit(100, false));
            assert!(!admit(100, true));
            assert!(admit(160, true), "never more than a minute");
            assert!(!admit(160, false));
            assert!(!admit(160, true));
            assert!(admit(220, true));
        }
        excluded.retain(at(219), |_| true);
        assert!(!excluded.admit(at(220), path, false, delay));
        excluded.admit(at(220), path, true, delay);
        excluded.retain(at(520), |_| true);
        assert!(excluded.0.is_empty(), "forgiven");
    }
}
