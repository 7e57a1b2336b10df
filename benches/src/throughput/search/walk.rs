//! The up-and-down search: a walk that stays around the rate where trials begin to fail.
//!
//! On a machine with other users the same rate passes and fails by chance. A bisection never comes back from a step in the
//! wrong direction, a walk does, and every one of its trials tells something: one that passes takes it up, one that fails
//! down, so that it is around the rate at which half of the trials pass (H. Levitt, Transformed up-down methods in
//! psychoacoustics, 1971). What it tells counts from its first turn on.

use std::time::Duration;

use anyhow::Result;

use super::{Outcome, Search, SearchPlan, SearchResult, UNSTABLE, Verdict};
use crate::throughput::{
    subject::Device,
    trial::{Rate, Trial},
};

/// How far apart the first rates are.
const FIRST: f64 = 2.0;
/// Trials that must fail in a row to end a climb: ended by chance, it would leave a long way to go in small steps.
const FAILURES: u32 = 2;
/// Steps up in a row after which it climbs again: it is far below where it belongs.
const UPS: u32 = 4;
/// Trials of a climb have a quarter of the length, but not less than this.
const SHORTEST: Duration = Duration::from_millis(100);

/// Where a walk is. The next repeat goes on there.
#[derive(Clone, Debug, PartialEq)]
pub struct Walk {
    rate: f64,
    /// How far apart rates are. Down to the resolution it only climbs.
    factor: f64,
    /// The last step was one up; none before the first.
    went_up: Option<bool>,
    /// It went up and down in steps that count: it is where it belongs. Nothing before that counts.
    has_arrived: bool,
    /// Whether any trial passed.
    has_passed: bool,
    /// Whether it went down after that: then it looks between two rates.
    has_turned: bool,
    /// Steps up in a row since the climb.
    ups: u32,
    /// Trials in a row that failed at this rate.
    failed: u32,
    /// What the generator sent under the highest load, if that is known.
    most_sent: Option<f64>,
}

impl Walk {
    /// A walk that begins at `rate`.
    pub fn from(rate: f64) -> Self {
        Self {
            rate,
            factor: FIRST,
            went_up: None,
            has_arrived: false,
            has_passed: false,
            has_turned: false,
            ups: 0,
            failed: 0,
            most_sent: None,
        }
    }

    fn climbs(&self, plan: &SearchPlan) -> bool {
        self.factor > step(plan)
    }

    /// Whether a trial counts that passed, or failed.
    fn counts(&mut self, passed: bool, plan: &SearchPlan) -> bool {
        if !self.climbs(plan) && self.went_up == Some(!passed) {
            self.has_arrived = true;
        }
        self.has_arrived
    }

    fn pass(&mut self, plan: &SearchPlan) {
        self.has_passed = true;
        if self.climbs(plan) {
            if self.has_turned {
                self.narrow(plan);
            }
            self.go_to(self.rate * self.factor);
        } else {
            self.ups += 1;
            if self.ups >= UPS {
                self.ups = 0;
                self.factor = step(plan).powi(2);
                self.has_turned = false;
                self.has_arrived = false;
            }
            self.go_to(self.rate * self.factor);
        }
    }

    fn fail(&mut self, plan: &SearchPlan) {
        self.failed += 1;
        if self.climbs(plan) {
            if self.failed < FAILURES {
                return;
            }
            // From where nothing passed yet it goes down as fast as up.
            if self.has_passed {
                self.has_turned = true;
                self.narrow(plan);
            }
        }
        self.ups = 0;
        self.go_to(self.rate / self.factor);
    }

    fn narrow(&mut self, plan: &SearchPlan) {
        self.factor = self.factor.sqrt().max(step(plan));
    }

    fn go_to(&mut self, rate: f64) {
        self.went_up = Some(rate > self.rate);
        self.rate = rate;
        self.failed = 0;
    }
}

/// How far apart the rates are that count.
fn step(plan: &SearchPlan) -> f64 {
    1.0 + plan.resolution_percent / 100.0
}

/// Goes `steps` trials further on a walk around the highest rate at which at most `loss_percent` is lost. The result is the
/// geometric mean of the rates that it was at. Votes, confirmations and what was found before mean nothing to it.
///
/// # Errors
///
/// As for [`super::pdr`].
pub fn up_and_down(
    device: &mut dyn Device,
    plan: &SearchPlan,
    loss_percent: f64,
    steps: u32,
    walk: &mut Walk,
    on_trial: &mut dyn FnMut(&Trial),
) -> Result<SearchResult> {
    let mut search = Search::new(device, plan, loss_percent, on_trial);
    let outcome = search.walk(walk, steps)?;
    Ok(search.result(outcome))
}

impl Search<'_> {
    fn walk(&mut self, walk: &mut Walk, steps: u32) -> Result<Outcome> {
        let most = self.plan.max_rate.unwrap_or(f64::INFINITY);
        let (mut counted, mut logarithms) = (0, 0.0);
        while counted < steps {
            walk.rate = walk.rate.min(most);
            let (rate, climbs) = (walk.rate, walk.climbs(self.plan));
            if rate < self.floor() {
                return Ok(self.nothing_passes(rate * walk.factor));
            }
            let target = Rate::PacketsPerSecond(rate);
            let planned = if climbs {
                (self.plan.length / 4).max(SHORTEST)
            } else {
                self.plan.length
            };
            let mut count = |counts: bool, offered: f64| {
                if counts {
                    counted += 1;
                    logarithms += offered.ln();
                }
            };
            let length = self.length(target, planned);
            let verdict = if climbs {
                self.trial_on_the_way(rate, length)?
            } else {
                self.trial(target, length)?
            };
            match verdict {
                Verdict::Passed(offered) if climbs && rate >= most => {
                    return Ok(self.at_highest_of_interest(offered));
                }
                Verdict::Passed(offered) => {
                    count(walk.counts(true, self.plan), offered);
                    walk.pass(self.plan);
                }
                Verdict::Failed(offered) => {
                    count(walk.counts(false, self.plan), offered);
                    walk.fail(self.plan);
                }
                Verdict::OutOfReach => {
                    let most_sent = match walk.most_sent {
                        Some(known) => known,
                        None => match self.trial(Rate::Max, self.plan.length)? {
                            Verdict::Passed(offered) if climbs => {
                                return Ok(self.limited_by_tester(offered));
                            }
                            Verdict::Passed(offered) | Verdict::Failed(offered) => offered,
                            Verdict::OutOfReach | Verdict::Unstable => return Ok(Outcome::Nothing),
                        },
                    };
                    walk.most_sent = Some(most_sent);
                    if rate < most_sent / 2.0 {
                        self.notes.push(format!(
                            "{UNSTABLE}: the generator did not reach {rate:.0} packets per second, of which it can send more"
                        ));
                        return Ok(Outcome::Nothing);
                    }
                    if climbs {
                        // It would not be reached the next time either.
                        walk.failed = FAILURES;
                    } else {
                        self.notes.push("tester-limited at times".into());
                    }
                    count(walk.counts(false, self.plan), rate);
                    walk.fail(self.plan);
                }
                Verdict::Unstable => return Ok(Outcome::Nothing),
            }
        }
        Ok(Outcome::Found {
            rate: (logarithms / f64::from(counted)).exp(),
            above: None,
        })
    }
}
