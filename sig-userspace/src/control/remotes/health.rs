//! Whether a remote gateway answers the probes of a session, as the reference decides it.

use std::time::{Duration, Instant};

/// How often a session is probed.
pub(super) const INTERVAL: Duration = Duration::from_millis(500);
/// Without an answer for so long, a session is down.
const EXPIRY: Duration = Duration::from_secs(2);

/// The state of one session.
#[derive(Debug)]
pub(super) struct Health {
    due: Instant,
    /// Of the last answer, while it holds.
    answered: Option<Instant>,
    /// Since when it is up.
    up_since: Option<Instant>,
    pub(super) probes: u64,
    pub(super) replies: u64,
    pub(super) changes: u64,
}

impl Health {
    /// Down, and to be probed at once.
    pub(super) fn new(now: Instant) -> Self {
        Health {
            due: now,
            answered: None,
            up_since: None,
            probes: 0,
            replies: 0,
            changes: 0,
        }
    }

    /// Whether a probe is to be sent now. With no path it is put off, without counting it.
    pub(super) fn probe(&mut self, now: Instant, has_path: bool) -> bool {
        if self.due > now {
            return false;
        }
        self.due = now + INTERVAL;
        self.probes += u64::from(has_path);
        has_path
    }

    /// A path has come, or another one: asks at once.
    pub(super) fn hurry(&mut self, now: Instant) {
        self.due = now;
    }

    /// Takes note of an answer. Whether the session has come up by it.
    pub(super) fn reply(&mut self, now: Instant) -> bool {
        self.replies += 1;
        self.answered = Some(now);
        let up = self.up_since.is_none();
        if up {
            self.up_since = Some(now);
            self.changes += 1;
        }
        up
    }

    /// Whether the session goes down now, because answers have stopped.
    pub(super) fn expire(&mut self, now: Instant) -> bool {
        let down = self.answered.is_some_and(|at| now >= at + EXPIRY);
        if down {
            self.answered = None;
            self.up_since = None;
            self.changes += 1;
        }
        down
    }

    pub(super) fn is_up(&self) -> bool {
        self.up_since.is_some()
    }

    /// Since when it is up.
    pub(super) fn up_since(&self) -> Option<Instant> {
        self.up_since
    }

    /// Whether it has been up for `delay`.
    pub(super) fn is_settled(&self, now: Instant, delay: Duration) -> bool {
        self.up_since.is_some_and(|since| now >= since + delay)
    }

    /// When [`Health::probe`] or [`Health::expire`] has something to do.
    pub(super) fn deadline(&self) -> Instant {
        match self.answered {
            Some(at) => self.due.min(at + EXPIRY),
            None => self.due,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_up_from_the_first_answer_until_two_seconds_after_the_last() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut health = Health::new(start);
        assert!(health.probe(at(0), true));
        assert!(!health.probe(at(499), true));
        assert!(health.reply(at(20)), "up");
        assert!(!health.reply(at(30)), "one change only");
        assert!(!health.expire(at(2029)));
        assert_eq!(health.deadline(), at(500));
        assert!(health.expire(at(2030)));
        assert!(!health.expire(at(2031)), "one change only");
        assert!(!health.is_up());
        assert!(health.reply(at(3000)), "up again");
        assert_eq!((health.replies, health.changes), (3, 3));
    }

    #[test]
    fn without_a_path_nothing_is_counted_and_a_new_path_is_probed_at_once() {
        let start = Instant::now();
        let mut health = Health::new(start);
        assert!(!health.probe(start, false));
        assert_eq!(health.probes, 0);
        assert!(!health.probe(start, true), "not before its time");
        health.hurry(start);
        assert!(health.probe(start, true));
    }
}
