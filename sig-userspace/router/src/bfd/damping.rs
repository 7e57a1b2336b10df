//! Keeps a link that flaps down for a while, so that paths over it do not come and go with it (RFC 5882, section 3.2).

use std::time::{Duration, Instant};

/// So often a session may go down within [`MEMORY`] and be used again at once.
const FREE: u32 = 3;
/// How long it must be up before it is used again the next time; twice as long each time after that.
const FIRST_HOLD: Duration = Duration::from_secs(1);
/// At most so long.
const LONGEST_HOLD: Duration = Duration::from_secs(32);
/// After so long without going down, a session starts anew.
const MEMORY: Duration = Duration::from_secs(120);

/// Whether a session may be used, by what it says itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct Damping {
    usable: bool,
    /// How often it went down lately.
    flaps: u32,
    last_flap: Option<Instant>,
    /// It is up, and may be used from then on.
    release: Option<Instant>,
}

impl Damping {
    /// Whether the session may be used.
    #[must_use]
    pub const fn is_usable(&self) -> bool {
        self.usable
    }

    /// Takes note of what the session says. Returns whether it may be used, if that has changed.
    pub fn follow(&mut self, is_up: bool, now: Instant) -> Option<bool> {
        if !is_up {
            self.release = None;
            if !self.usable {
                return None;
            }
            self.usable = false;
            let forgotten = |last: Instant| now.saturating_duration_since(last) > MEMORY;
            if self.last_flap.is_some_and(forgotten) {
                self.flaps = 0;
            }
            self.flaps = self.flaps.saturating_add(1);
            self.last_flap = Some(now);
            return Some(false);
        }
        if self.usable {
            return None;
        }
        let release = *self.release.get_or_insert(now + self.hold());
        if now < release {
            return None;
        }
        self.release = None;
        self.usable = true;
        Some(true)
    }

    /// When to call [`Self::follow`] again, if the session stays up.
    #[must_use]
    pub const fn deadline(&self) -> Option<Instant> {
        self.release
    }

    /// How long the session must be up before it is used again.
    #[must_use]
    pub fn hold(&self) -> Duration {
        match self.flaps.checked_sub(FREE + 1) {
            None => Duration::ZERO,
            Some(doublings) => FIRST_HOLD
                .saturating_mul(1 << doublings.min(10))
                .min(LONGEST_HOLD),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_link_that_fails_now_and_then_is_used_again_at_once() {
        let mut now = Instant::now();
        let mut damping = Damping::default();
        assert_eq!(damping.follow(true, now), Some(true));
        for _ in 0..10 {
            for _ in 0..3 {
                now += MS;
                assert_eq!(damping.follow(false, now), Some(false));
                now += MS;
                assert_eq!(damping.follow(true, now), Some(true));
            }
            now += MEMORY + MS;
        }
    }

    #[test]
    fn a_link_that_flaps_stays_down_until_it_has_been_up_for_a_while() {
        let mut now = Instant::now();
        let mut damping = Damping::default();
        let mut changes = 0;
        // 1000 flaps per second, for a minute.
        for _ in 0..60_000 {
            changes += u32::from(damping.follow(true, now).is_some());
            now += MS / 2;
            changes += u32::from(damping.follow(false, now).is_some());
            now += MS / 2;
        }
        assert_eq!(changes, 8);
        assert!(!damping.is_usable());
        assert_eq!(damping.follow(true, now), None);
        let release = damping.deadline().unwrap();
        assert_eq!(release, now + FIRST_HOLD);
        assert_eq!(damping.follow(true, release - MS), None);
        assert_eq!(damping.follow(true, release), Some(true));
        assert_eq!(damping.deadline(), None);

        // The next time it takes longer, but not for ever.
        let mut holds = Vec::new();
        for _ in 0..8 {
            now += FIRST_HOLD;
            damping.follow(false, now);
            holds.push(damping.hold().as_secs());
            damping.follow(true, now);
            now += damping.hold();
            assert_eq!(damping.follow(true, now), Some(true));
        }
        assert_eq!(holds, [2, 4, 8, 16, 32, 32, 32, 32]);
    }
}
