//! The probes of one path: what is unanswered, and whether the path lives.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use super::{
    estimate::{RoundTrip, Window},
    state::Liveness,
};

/// Answers that make a path alive.
const ANSWERS: u8 = 3;
/// Longest time that an answer is waited for, unless the configured time-out is longer.
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// Unanswered probes remembered.
const UNANSWERED: usize = 128;
/// How long a death is held against a path.
const DEATH_MEMORY: Duration = Duration::from_secs(300);
/// Deaths remembered.
const DEATHS: usize = 6;
/// How long a path must have been alive again before it is trusted after its first death; doubled for each
/// further one.
const FIRST_HOLD: Duration = Duration::from_secs(2);
/// The longest of these times.
const LONGEST_HOLD: Duration = Duration::from_secs(60);

/// A probe without an answer so far.
#[derive(Clone, Copy, Debug)]
struct Sent {
    sequence: u16,
    /// Number among the probes of this path.
    number: u64,
    at: Instant,
    /// Time between two probes when it was sent.
    interval: Duration,
    /// Time during which nobody looked for its answer.
    grace: Duration,
}

#[derive(Debug)]
pub(super) struct Prober {
    /// In the order of sending.
    unanswered: VecDeque<Sent>,
    /// Number of the next probe.
    next: u64,
    /// The youngest probe that was answered: number and time of sending.
    answered: Option<(u64, Instant)>,
    /// Two probes in a row, sent at this time or later, were answered.
    proven_since: Option<Instant>,
    /// Answers that speak for the path, up to [`ANSWERS`].
    answers: u8,
    alive_since: Option<Instant>,
    /// Answers to earlier probes do not bring the path back.
    counted_from: u64,
    /// When it died, oldest first.
    deaths: VecDeque<Instant>,
    round_trip: RoundTrip,
    window: Window,
}

impl Prober {
    pub(super) fn new(now: Instant) -> Self {
        Prober {
            unanswered: VecDeque::new(),
            next: 0,
            answered: None,
            proven_since: None,
            answers: 0,
            alive_since: None,
            counted_from: 0,
            deaths: VecDeque::new(),
            round_trip: RoundTrip::default(),
            window: Window::new(now),
        }
    }

    /// A probe leaves; the next one will follow after `interval`.
    pub(super) fn sent(&mut self, now: Instant, sequence: u16, interval: Duration) {
        if self.unanswered.len() == UNANSWERED {
            self.unanswered.pop_front();
        }
        self.unanswered.push_back(Sent {
            sequence,
            number: self.next,
            at: now,
            interval,
            grace: Duration::ZERO,
        });
        self.next += 1;
        self.window.sent(now);
    }

    /// Whether the answer was awaited.
    pub(super) fn answer(&mut self, now: Instant, sequence: u16) -> bool {
        let probe = self
            .unanswered
            .iter()
            .position(|probe| probe.sequence == sequence)
            .and_then(|place| self.unanswered.remove(place));
        let Some(probe) = probe else {
            return false;
        };
        let round_trip = now.saturating_duration_since(probe.at);
        self.round_trip.add(round_trip);
        self.window.answered(probe.at, round_trip);
        if self
            .answered
            .is_none_or(|(number, _)| number < probe.number)
        {
            self.proven_since = self
                .answered
                .filter(|&(number, _)| number + 1 == probe.number)
                .map(|(_, at)| at);
            self.answered = Some((probe.number, probe.at));
        }
        if probe.number >= self.counted_from {
            self.answers = (self.answers + 1).min(ANSWERS);
            if self.answers == ANSWERS {
                self.alive_since.get_or_insert(now);
            }
        }
        true
    }

    /// Time has passed: the path may have died, or lost the answers it had. Whether it has.
    pub(super) fn advance(&mut self, now: Instant, timeout: Duration) -> bool {
        let overdue = self.is_overdue(now, timeout);
        if overdue {
            self.answers = 0;
            if self.alive_since.take().is_some() {
                self.counted_from = self.next;
                self.deaths.push_back(now);
                if self.deaths.len() > DEATHS {
                    self.deaths.pop_front();
                }
            }
        }
        let longest = LONGEST_WAIT.max(timeout);
        self.unanswered
            .retain(|probe| now.saturating_duration_since(probe.at) < longest + probe.grace);
        self.deaths
            .retain(|&death| now.saturating_duration_since(death) < DEATH_MEMORY);
        overdue
    }

    /// The path cannot be probed any more: it starts anew when it can. That is no death.
    pub(super) fn suspend(&mut self) {
        self.answers = 0;
        self.alive_since = None;
        self.counted_from = self.next;
    }

    /// For so long nobody looked for answers.
    pub(super) fn grant(&mut self, time: Duration) {
        for probe in &mut self.unanswered {
            probe.grace += time;
        }
    }

    /// When the path dies, or loses the answers it has so far, unless an answer comes.
    pub(super) fn deadline(&self, timeout: Duration) -> Option<Instant> {
        if self.answers == 0 {
            return None;
        }
        self.unanswered
            .iter()
            .filter(|probe| {
                self.answered
                    .is_none_or(|(number, _)| number < probe.number)
            })
            .map(|probe| probe.at + self.patience(probe, timeout))
            .min()
    }

    pub(super) fn liveness(&self, now: Instant, timeout: Duration) -> Liveness {
        if self.answers == 0 || self.is_overdue(now, timeout) {
            return Liveness::Silent;
        }
        self.alive_since
            .map_or(Liveness::Answering, |since| Liveness::Alive {
                since,
                settled: since + self.hold(),
            })
    }

    /// How far its answers have brought it: none, some, enough.
    pub(super) fn standing(&self) -> (bool, bool) {
        (self.answers > 0, self.alive_since.is_some())
    }

    /// Whether it is on the way to be alive: worth asking more often.
    pub(super) fn is_coming(&self) -> bool {
        self.answers > 0 && self.alive_since.is_none()
    }

    /// Whether two probes in a row, sent after `when`, were answered.
    pub(super) fn proven_after(&self, when: Instant) -> bool {
        self.proven_since.is_some_and(|since| since > when)
    }

    pub(super) fn round_trip(&self) -> &RoundTrip {
        &self.round_trip
    }

    pub(super) fn fastest(&self, now: Instant) -> Option<Duration> {
        self.window.fastest(now)
    }

    pub(super) fn loss_ppm(&self, now: Instant, timeout: Duration) -> Option<u32> {
        let pending = self
            .unanswered
            .iter()
            .filter(|probe| now < probe.at + self.patience(probe, timeout));
        self.window.loss_ppm(now, pending.count() as u64)
    }

    fn is_overdue(&self, now: Instant, timeout: Duration) -> bool {
        self.deadline(timeout)
            .is_some_and(|deadline| deadline <= now)
    }

    /// The interval counts twice, so that one lost probe alone is never a death.
    fn patience(&self, probe: &Sent, timeout: Duration) -> Duration {
        let needed = (self.round_trip.upper() + probe.interval * 2).min(LONGEST_WAIT);
        timeout.max(needed) + probe.grace
    }

    fn hold(&self) -> Duration {
        let Some(more) = self.deaths.len().checked_sub(1) else {
            return Duration::ZERO;
        };
        (FIRST_HOLD * (1 << more.min(DEATHS))).min(LONGEST_HOLD)
    }
}
