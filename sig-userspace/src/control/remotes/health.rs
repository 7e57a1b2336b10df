//! Whether a remote gateway answers the probes of a session: up and down as the reference decides it, and a doubt that comes sooner.

use std::time::{Duration, Instant};

/// How often a session is probed.
pub(super) const INTERVAL: Duration = Duration::from_millis(500);
/// Without an answer for so long, a session is down.
const EXPIRY: Duration = Duration::from_secs(2);
/// How often a session is probed that is up and has not answered the last probe.
const CHASE: Duration = Duration::from_millis(100);
/// A session is silent if it has answered none of so many probes, the first of them for so long.
const SILENT_PROBES: u32 = 4;
const SILENCE: Duration = Duration::from_millis(400);

/// The state of one session.
#[derive(Debug)]
pub(super) struct Health {
    due: Instant,
    /// Of the last answer, while it holds.
    answered: Option<Instant>,
    /// Since when it is up, and has not been silent.
    steady_since: Option<Instant>,
    /// What was asked since the last answer.
    unanswered: Option<Unanswered>,
    is_silent: bool,
    /// How long answers take, at most.
    round_trip: Duration,
    pub(super) probes: u64,
    pub(super) replies: u64,
    pub(super) changes: u64,
}

#[derive(Debug)]
struct Unanswered {
    since: Instant,
    probes: u32,
}

impl Health {
    /// Down, and to be probed at once.
    pub(super) fn new(now: Instant) -> Self {
        Health {
            due: now,
            answered: None,
            steady_since: None,
            unanswered: None,
            is_silent: false,
            round_trip: Duration::ZERO,
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
        if !has_path {
            self.unanswered = None;
            return false;
        }
        self.probes += 1;
        if self.is_up() {
            let unanswered = self.unanswered.get_or_insert(Unanswered {
                since: now,
                probes: 0,
            });
            unanswered.probes += 1;
            self.due = match unanswered.probes {
                1 => now + CHASE.max(self.round_trip * 3 / 2),
                _ => now + CHASE,
            };
        }
        true
    }

    /// A path has come, or another one: asks at once.
    pub(super) fn hurry(&mut self, now: Instant) {
        self.due = now;
        self.unanswered = None;
    }

    /// Takes note of an answer. Whether the session has come up by it, or is not silent any more.
    pub(super) fn reply(&mut self, now: Instant) -> bool {
        self.replies += 1;
        self.answered = Some(now);
        if let Some(Unanswered { since, .. }) = self.unanswered.take() {
            // Of several probes, it may have answered the first.
            let longest = now.saturating_duration_since(since);
            self.round_trip = longest.max(self.round_trip * 7 / 8).min(EXPIRY / 4);
            self.due = since + INTERVAL;
        }
        let up = !self.is_up();
        self.changes += u64::from(up);
        let changed = up || self.is_silent;
        if changed {
            self.steady_since = Some(now);
            self.is_silent = false;
        }
        changed
    }

    /// Whether the session goes down now, because answers have stopped.
    pub(super) fn expire(&mut self, now: Instant) -> bool {
        let down = self.answered.is_some_and(|at| now >= at + EXPIRY);
        if down {
            self.answered = None;
            self.steady_since = None;
            self.unanswered = None;
            self.is_silent = false;
            self.changes += 1;
        }
        down
    }

    /// Whether the session falls silent now: another one had better be used, if there is one.
    pub(super) fn falls_silent(&mut self, now: Instant) -> bool {
        let patience = SILENCE.max(self.round_trip * 2 + 2 * CHASE);
        let is_silent = self.unanswered.as_ref().is_some_and(|unanswered| {
            unanswered.probes >= SILENT_PROBES && now >= unanswered.since + patience
        });
        let falls = is_silent && !self.is_silent;
        self.is_silent |= is_silent;
        falls
    }

    pub(super) fn is_up(&self) -> bool {
        self.steady_since.is_some()
    }

    pub(super) fn is_silent(&self) -> bool {
        self.is_silent
    }

    /// Since when it is up, and has not been silent.
    pub(super) fn steady_since(&self) -> Option<Instant> {
        self.steady_since
    }

    /// Whether it has been up for `delay`, and not silent.
    pub(super) fn is_settled(&self, now: Instant, delay: Duration) -> bool {
        self.steady_since.is_some_and(|since| now >= since + delay)
    }

    /// When [`Health::probe`], [`Health::expire`] or [`Health::falls_silent`] has something to do.
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
        assert_eq!(health.deadline(), at(500), "nothing else");
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

    #[test]
    fn an_unanswered_session_is_silent_before_it_is_down() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut health = Health::new(start);
        health.probe(at(0), true);
        health.reply(at(10));
        // It answers no more. Probes follow each other faster.
        let mut events = Vec::new();
        for ms in 11..3000 {
            if health.probe(at(ms), true) {
                events.push((ms, "probe"));
            }
            if health.falls_silent(at(ms)) {
                events.push((ms, "silent"));
            }
            if health.expire(at(ms)) {
                events.push((ms, "down"));
            }
        }
        let probes = [500, 600, 700, 800, 900].map(|ms| (ms, "probe"));
        assert_eq!(events[..5], probes);
        assert_eq!(events[5], (900, "silent"));
        assert_eq!(events[16..18], [(2000, "probe"), (2010, "down")]);
        assert_eq!(events[18..], [(2100, "probe"), (2600, "probe")]);
    }

    #[test]
    fn long_round_trips_are_no_silence_and_a_silent_session_has_to_settle_again() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut health = Health::new(start);
        let mut answers = std::collections::VecDeque::new();
        let mut sent = 0;
        for ms in 0..10_000 {
            // Half a second without answers at the eighth second.
            if health.probe(at(ms), true) && !(8_000..9_000).contains(&ms) {
                answers.push_back(ms + 300);
                sent += 1;
            }
            if answers.front() == Some(&ms) {
                answers.pop_front();
                health.reply(at(ms));
            }
            health.falls_silent(at(ms));
            let silent = health.is_silent();
            assert!(!silent || (8_500..9_600).contains(&ms), "{ms}");
            if ms == 8_950 {
                assert!(silent);
            }
        }
        assert!(sent < 45, "{sent}");
        assert!(!health.is_settled(at(10_000), Duration::from_secs(5)));
        assert_eq!(health.changes, 1);
    }
}
