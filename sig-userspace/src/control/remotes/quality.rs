//! Paths that are not good enough for a performance policy, and how they come back.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use sig_core::scion::Fingerprint;

/// A path has to be good enough for this long at least before it is used again.
const LEAST_HOLD: Duration = Duration::from_secs(1);
/// Longest time that a path has to be good enough before it is used again, unless `switch_delay` is longer.
const MAX_HOLD: Duration = Duration::from_secs(60);
/// A path that was good enough for so long, or not there, is trusted as one that always was.
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
    /// When it was measured last.
    seen: Instant,
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
                seen: now,
            });
            exclusion.seen = now;
            let held = |since| now.saturating_duration_since(since) >= exclusion.hold;
            if exclusion.good_since.take().is_some_and(held) {
                exclusion.hold = match exclusion.hold {
                    Duration::ZERO => switch_delay.max(LEAST_HOLD),
                    hold => (hold * 2).min(MAX_HOLD.max(switch_delay)),
                };
            }
            return false;
        }
        let Some(exclusion) = self.0.get_mut(&path) else {
            return true;
        };
        exclusion.seen = now;
        let since = *exclusion.good_since.get_or_insert(now);
        now.saturating_duration_since(since) >= exclusion.hold
    }

    /// Forgets paths that are forgiven. One that is missing in a list of the daemon may come back with the next.
    pub(super) fn forget(&mut self, now: Instant) {
        self.0.retain(|_, exclusion| {
            let since = exclusion.good_since.unwrap_or(exclusion.seen);
            now.saturating_duration_since(since) < FORGIVEN.max(exclusion.hold)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sig_core::scion::{Interface, Path};

    fn path() -> Fingerprint {
        let interface = Interface {
            isd_as: sig_common::addr::IsdAs(1),
            id: 1,
        };
        Path::fingerprint_of(&[interface])
    }

    #[test]
    fn a_path_that_wavers_is_out_for_longer_and_longer() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let (path, delay) = (path(), Duration::from_secs(5));
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
        let mut now = 100;
        for _ in 0..10 {
            assert!(!admit(now, false));
            assert!(!admit(now, true));
            now += 60;
            assert!(admit(now, true), "never more than a minute");
        }
        excluded.forget(at(now + 299));
        assert!(!excluded.admit(at(now + 299), path, false, delay));
        assert!(!excluded.admit(at(now + 299), path, true, delay));
        excluded.forget(at(now + 299 + 300));
        assert!(excluded.0.is_empty(), "forgiven");
    }

    #[test]
    fn without_a_delay_a_second_is_the_least() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut excluded = Excluded::default();
        let mut admit = |ms, good| excluded.admit(at(ms), path(), good, Duration::ZERO);
        assert!(!admit(0, false));
        assert!(!admit(100, true));
        assert!(admit(1100, true));
        assert!(!admit(1200, false));
        assert!(!admit(1300, true));
        assert!(!admit(3200, true), "2 s now");
    }

    #[test]
    fn who_is_not_seen_for_a_while_is_forgotten_in_the_end() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let delay = Duration::from_secs(5);
        let mut excluded = Excluded::default();
        assert!(!excluded.admit(at(0), path(), false, delay));
        // Not in the daemon's list meanwhile, which changes nothing.
        excluded.forget(at(299));
        assert!(!excluded.admit(at(299), path(), true, delay));
        excluded.forget(at(599));
        assert!(excluded.0.is_empty());
        assert!(!excluded.admit(at(600), path(), false, delay));
        excluded.forget(at(900));
        assert!(excluded.0.is_empty());
    }
}
