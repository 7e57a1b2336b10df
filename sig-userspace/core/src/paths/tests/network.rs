//! A network with a clock of its own: paths with a round trip time, which can be cut.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant, SystemTime},
};

use crate::{
    paths::{
        Failure, Monitor, PathState, Revocations, Selection, Selector, Settings,
        testing::{MS, isd_as},
    },
    scion::{Fingerprint, Path},
};

pub(super) struct Network {
    pub(super) now: Instant,
    pub(super) wall: SystemTime,
    pub(super) monitor: Monitor,
    pub(super) revocations: Revocations,
    /// Round trip time of each path.
    pub(super) round_trip: BTreeMap<Fingerprint, Duration>,
    /// Paths on which everything is lost.
    pub(super) cut: BTreeSet<Fingerprint>,
    /// Every so many probes one is lost.
    pub(super) lose_every: BTreeMap<Fingerprint, u64>,
    /// When each probe was sent, and on which path.
    pub(super) probes: Vec<(Instant, Fingerprint)>,
    sent: BTreeMap<Fingerprint, u64>,
    /// Answers on their way: time of arrival, sequence, path.
    answers: BTreeSet<(Instant, u16, Fingerprint)>,
}

impl Network {
    pub(super) fn new(paths: &[Path]) -> Self {
        let now = Instant::now();
        let wall = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        let mut monitor = Monitor::new(isd_as(9), Settings::default(), 65_530);
        monitor.update(now, wall, paths.to_vec());
        Network {
            now,
            wall,
            monitor,
            revocations: Revocations::default(),
            round_trip: BTreeMap::new(),
            cut: BTreeSet::new(),
            lose_every: BTreeMap::new(),
            probes: Vec::new(),
            sent: BTreeMap::new(),
            answers: BTreeSet::new(),
        }
    }

    /// One event: the next deadline or answer, but not later than `until`.
    pub(super) fn step(&mut self, until: Instant) {
        let answer = self.answers.first().map(|answer| answer.0);
        let deadline = self.monitor.next_deadline(self.now, self.wall);
        let next = deadline.into_iter().chain(answer).chain([until]).min();
        let next = next.expect("at least the end").max(self.now);
        self.wall += next - self.now;
        self.now = next;
        while let Some(&(at, sequence, path)) = self.answers.first() {
            if at > self.now {
                break;
            }
            self.answers.pop_first();
            if !self.cut.contains(&path) {
                self.monitor.handle_reply(self.now, sequence, isd_as(9));
            }
        }
        for probe in self.monitor.poll_probes(self.now, self.wall) {
            self.probes.push((self.now, probe.fingerprint));
            let sent = self.sent.entry(probe.fingerprint).or_default();
            *sent += 1;
            let lose = self.lose_every.get(&probe.fingerprint);
            let lost = lose.is_some_and(|every| sent.is_multiple_of(*every));
            if !lost && !self.cut.contains(&probe.fingerprint) {
                let round_trip = self.round_trip.get(&probe.fingerprint);
                let at = self.now + round_trip.copied().unwrap_or(20 * MS);
                self.answers.insert((at, probe.sequence, probe.fingerprint));
            }
        }
    }

    pub(super) fn run(&mut self, time: Duration) {
        self.run_until(time, |_| false);
    }

    /// Runs until `done` after an event, or as long as that. How long it took.
    pub(super) fn run_until(
        &mut self,
        time: Duration,
        mut done: impl FnMut(&mut Self) -> bool,
    ) -> Duration {
        let start = self.now;
        while self.now < start + time {
            self.step(start + time);
            if done(self) {
                break;
            }
        }
        self.now - start
    }

    pub(super) fn states(&mut self) -> Vec<PathState> {
        self.monitor.states(self.now, self.wall, &self.revocations)
    }

    pub(super) fn state(&mut self, path: &Path) -> PathState {
        let mut states = self.states().into_iter();
        states
            .find(|state| state.fingerprint() == path.fingerprint)
            .expect("a path that is watched")
    }

    pub(super) fn is_alive(&mut self, path: &Path) -> bool {
        self.state(path).is_alive()
    }

    pub(super) fn report(&mut self, failure: Failure) -> bool {
        self.revocations.report(self.now, failure, [&self.monitor])
    }

    /// Lets the selector choose among all paths and tells the monitor.
    pub(super) fn select(&mut self, selector: &mut Selector) -> Vec<Fingerprint> {
        let states = self.states();
        let chosen = selector.select(self.now, &states, |_| Some(0));
        let chosen: Vec<_> = chosen.iter().map(|state| state.fingerprint()).collect();
        self.monitor.set_in_use(self.now, chosen.iter().copied());
        chosen
    }
}

pub(super) fn selection(count: usize) -> Selection {
    Selection {
        count,
        ..Selection::default()
    }
}
