//! The paths that one session uses.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use super::{
    ranking::Ranking,
    state::{Liveness, PathState},
};
use crate::scion::{Fingerprint, Path};

/// What a session wants of its paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    /// Which paths are better.
    pub ranking: Ranking,
    /// How many are used at the same time; 0 counts as 1.
    pub count: usize,
    /// How long a path must have been better before it replaces one in use.
    pub switch_delay: Duration,
}

impl Default for Selection {
    /// One path, chosen as the reference does, with a delay of 5 s.
    fn default() -> Self {
        Selection {
            ranking: Ranking::default(),
            count: 1,
            switch_delay: Duration::from_secs(5),
        }
    }
}

/// Paths by what a session can do with them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Availability {
    /// They comply and live.
    pub alive: u64,
    /// They comply, but do not answer or have expired.
    pub timeout: u64,
    /// The policy excludes them.
    pub rejected: u64,
}

/// Chooses the paths of one session.
///
/// Paths that die, expire or stop complying leave at once, and their places are filled at once. Beyond that a
/// path in use is replaced, one at a time, only by one that has been better for the delay. Only paths of the
/// same standing are used together: trusted ones; if there are none, those that have come back from the dead
/// recently; then those that a report says to be down; then those that have just begun to answer.
#[derive(Debug)]
pub struct Selector {
    selection: Selection,
    chosen: Vec<Fingerprint>,
    /// Since when a path has been worth a replacement. For a path in use: worth to be given up.
    pending: HashMap<Fingerprint, Instant>,
    changes: u64,
    availability: Availability,
    deadline: Option<Instant>,
}

#[derive(Clone, Copy)]
struct Candidate<'a> {
    state: &'a PathState,
    weight: u32,
    standing: Standing,
}

/// From the best to the worst.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Standing {
    Trusted,
    Unsettled,
    Revoked,
    Answering,
    AnsweringRevoked,
}

impl Standing {
    /// A path in use need not prove itself again. `None`: the path is of no use.
    fn of(state: &PathState, in_use: bool, now: Instant) -> Option<Self> {
        match state.liveness {
            Liveness::Silent | Liveness::Expired => None,
            Liveness::Answering if !in_use => Some(if state.revoked {
                Self::AnsweringRevoked
            } else {
                Self::Answering
            }),
            _ if state.revoked => Some(Self::Revoked),
            Liveness::Alive { settled, .. } if settled > now && !in_use => Some(Self::Unsettled),
            Liveness::Alive { .. } | Liveness::Answering => Some(Self::Trusted),
        }
    }
}

impl Selector {
    /// Nothing is chosen yet.
    #[must_use]
    pub fn new(selection: Selection) -> Self {
        Selector {
            selection,
            chosen: Vec::new(),
            pending: HashMap::new(),
            changes: 0,
            availability: Availability::default(),
            deadline: None,
        }
    }

    /// The session wants something else from now on.
    pub fn set_selection(&mut self, selection: Selection) {
        if self.selection != selection {
            self.selection = selection;
            self.pending.clear();
        }
    }

    /// Chooses from all paths to the remote AS. `admits` is the policy: `None` excludes a path, and paths with
    /// the highest weight that occurs among the usable ones are used, the others only in their absence.
    ///
    /// A path that stays keeps its place in the result relative to the others; one that replaces another gets
    /// its place.
    pub fn select<'a>(
        &mut self,
        now: Instant,
        states: &'a [PathState],
        admits: impl Fn(&Path) -> Option<u32>,
    ) -> Vec<&'a PathState> {
        let before = self.chosen.clone();
        let candidates = self.candidates(now, states, admits);
        self.chosen
            .retain(|&path| candidates.iter().any(|c| c.state.fingerprint() == path));
        let ideal = self.ideal(&candidates);
        self.fill(&candidates, &ideal);
        while self.replace(now, &candidates, &ideal) && self.selection.switch_delay.is_zero() {}
        self.find_deadline(now, states);
        if self.chosen != before {
            self.changes += 1;
        }
        self.chosen
            .iter()
            .filter_map(|&path| states.iter().find(|state| state.fingerprint() == path))
            .collect()
    }

    /// The paths chosen last.
    #[must_use]
    pub fn chosen(&self) -> &[Fingerprint] {
        &self.chosen
    }

    /// How often the choice has changed, the first one included.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// What there was to choose from.
    #[must_use]
    pub fn availability(&self) -> Availability {
        self.availability
    }

    /// When the choice may change though no path changes.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        self.deadline
    }

    fn count(&self) -> usize {
        self.selection.count.max(1)
    }

    /// The paths of the best standing that occurs.
    fn candidates<'a>(
        &mut self,
        now: Instant,
        states: &'a [PathState],
        admits: impl Fn(&Path) -> Option<u32>,
    ) -> Vec<Candidate<'a>> {
        self.availability = Availability::default();
        let mut candidates = Vec::new();
        for state in states {
            let Some(weight) = admits(&state.path) else {
                self.availability.rejected += 1;
                continue;
            };
            if state.is_alive() {
                self.availability.alive += 1;
            } else {
                self.availability.timeout += 1;
            }
            let in_use = self.chosen.contains(&state.fingerprint());
            if let Some(standing) = Standing::of(state, in_use, now) {
                candidates.push(Candidate {
                    state,
                    weight,
                    standing,
                });
            }
        }
        let best = candidates.iter().map(|c| c.standing).min();
        candidates.retain(|candidate| Some(candidate.standing) == best);
        candidates
    }

    /// What would be chosen if nothing were in use, the best first.
    fn ideal<'a>(&self, candidates: &[Candidate<'a>]) -> Vec<Candidate<'a>> {
        let weight = candidates.iter().map(|c| c.weight).max();
        let mut rest: Vec<_> = candidates
            .iter()
            .copied()
            .filter(|candidate| Some(candidate.weight) == weight)
            .collect();
        let mut ideal = Vec::new();
        while ideal.len() < self.count() {
            let Some(best) = self.best(&rest, &ideal) else {
                break;
            };
            rest.retain(|c| c.state.fingerprint() != best.state.fingerprint());
            ideal.push(best);
        }
        ideal
    }

    fn best<'a>(&self, from: &[Candidate<'a>], beside: &[Candidate<'_>]) -> Option<Candidate<'a>> {
        let beside: Vec<_> = beside.iter().map(|c| c.state).collect();
        let states = from.iter().map(|c| c.state).collect();
        let best = self.selection.ranking.best(states, &beside)?;
        from.iter()
            .find(|c| c.state.fingerprint() == best.fingerprint())
            .copied()
    }

    /// Fills free places; or gives some up, if there are more than wanted.
    fn fill(&mut self, candidates: &[Candidate<'_>], ideal: &[Candidate<'_>]) {
        for _ in self.count()..self.chosen.len() {
            if let Some(worst) = self.worst_first(candidates, ideal).first() {
                let worst = worst.state.fingerprint();
                self.chosen.retain(|&path| path != worst);
            } else {
                self.chosen.truncate(self.count());
            }
        }
        for candidate in ideal {
            let path = candidate.state.fingerprint();
            if self.chosen.len() < self.count() && !self.chosen.contains(&path) {
                self.chosen.push(path);
            }
        }
    }

    /// Replaces one path, or gives one up whose weight does not count any more. Whether it did.
    fn replace(
        &mut self,
        now: Instant,
        candidates: &[Candidate<'_>],
        ideal: &[Candidate<'_>],
    ) -> bool {
        let leaving = self.worst_first(candidates, ideal);
        let coming = ideal
            .iter()
            .filter(|c| !self.chosen.contains(&c.state.fingerprint()));
        // Who may come, for whom; nobody for one that should just go.
        let mut moves: Vec<(Option<Candidate<'_>>, Candidate<'_>)> = Vec::new();
        for &comer in coming {
            let mut worse = leaving.iter().copied();
            if let Some(leaver) = worse.find(|&leaver| self.prefers(candidates, comer, leaver)) {
                moves.push((Some(comer), leaver));
            }
        }
        if moves.is_empty() {
            let outweighed = leaving.iter().filter(|leaver| {
                ideal
                    .first()
                    .is_some_and(|best| best.weight > leaver.weight)
            });
            moves.extend(outweighed.map(|&leaver| (None, leaver)));
        }
        let key = |&(comer, leaver): &(Option<Candidate<'_>>, Candidate<'_>)| {
            comer.unwrap_or(leaver).state.fingerprint()
        };
        self.pending
            .retain(|path, _| moves.iter().any(|step| key(step) == *path));
        for step in &moves {
            let better_since = self.pending.entry(key(step)).or_insert(now);
            if let Some(Liveness::Alive { since, .. }) = step.0.map(|comer| comer.state.liveness) {
                *better_since = (*better_since).max(since);
            }
        }
        let delay = self.selection.switch_delay;
        let due = moves.iter().find(|step| {
            self.pending
                .get(&key(step))
                .is_some_and(|&since| now.saturating_duration_since(since) >= delay)
        });
        let Some(&(comer, leaver)) = due else {
            return false;
        };
        let leaver = leaver.state.fingerprint();
        match comer {
            Some(comer) => {
                for path in self.chosen.iter_mut().filter(|path| **path == leaver) {
                    *path = comer.state.fingerprint();
                }
            }
            None => self.chosen.retain(|&path| path != leaver),
        }
        self.pending.clear();
        true
    }

    /// The paths in use that are not ideal, the worst one first.
    fn worst_first<'a>(
        &self,
        candidates: &[Candidate<'a>],
        ideal: &[Candidate<'_>],
    ) -> Vec<Candidate<'a>> {
        let is_ideal = |path: Fingerprint| ideal.iter().any(|c| c.state.fingerprint() == path);
        let mut rest: Vec<_> = candidates
            .iter()
            .copied()
            .filter(|c| self.chosen.contains(&c.state.fingerprint()))
            .filter(|c| !is_ideal(c.state.fingerprint()))
            .collect();
        let mut order = Vec::new();
        while let Some(weight) = rest.iter().map(|c| c.weight).max() {
            let heaviest: Vec<_> = rest
                .iter()
                .copied()
                .filter(|c| c.weight == weight)
                .collect();
            let Some(best) = self.best(&heaviest, &[]) else {
                break;
            };
            rest.retain(|c| c.state.fingerprint() != best.state.fingerprint());
            order.push(best);
        }
        order.reverse();
        order
    }

    fn prefers(
        &self,
        candidates: &[Candidate<'_>],
        comer: Candidate<'_>,
        leaver: Candidate<'_>,
    ) -> bool {
        if comer.weight != leaver.weight {
            return comer.weight > leaver.weight;
        }
        let beside: Vec<_> = candidates
            .iter()
            .map(|c| c.state)
            .filter(|state| self.chosen.contains(&state.fingerprint()))
            .filter(|state| state.fingerprint() != leaver.state.fingerprint())
            .collect();
        let ranking = &self.selection.ranking;
        ranking.prefers(comer.state, leaver.state, &beside)
    }

    fn find_deadline(&mut self, now: Instant, states: &[PathState]) {
        let delay = self.selection.switch_delay;
        let pending = self.pending.values();
        let replacements = pending.filter_map(|since| since.checked_add(delay));
        let settling = states.iter().filter_map(|state| match state.liveness {
            Liveness::Alive { settled, .. } if settled > now => Some(settled),
            _ => None,
        });
        self.deadline = replacements.chain(settling).min();
    }
}
