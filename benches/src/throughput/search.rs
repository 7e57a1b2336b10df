//! Searching for rates.
//!
//! *PDR* (partial drop rate) is the highest rate at which no more than some share is lost, *NDR* that
//! without loss, *MRR* the rate that arrives under the highest load.

use std::time::Duration;

use anyhow::Result;

use super::{
    subject::Device,
    trial::{Latency, Rate, Trial},
};

#[cfg(test)]
mod tests;
mod walk;

pub use walk::{Walk, up_and_down};

/// What the note begins with where no trial counted.
pub const UNSTABLE: &str = "unstable";

/// How a search goes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SearchPlan {
    /// Rate that should be easy, inner packets per second. If it is not, the search goes lower.
    pub start_rate: f64,
    /// Rate that was found before: the search begins there instead of at both ends, which were tried then.
    pub near: Option<f64>,
    /// Highest rate of interest, such as that of the line; none: what the generator can do.
    pub max_rate: Option<f64>,
    /// The search ends when the rate is known to this share, percent.
    pub resolution_percent: f64,
    /// Length of a trial.
    pub length: Duration,
    /// Trials at each rate, of which more than half must pass: an odd number.
    pub votes: u32,
    /// How often the result must pass again, in trials of three times the length.
    pub confirmations: u32,
}

impl Default for SearchPlan {
    fn default() -> Self {
        SearchPlan {
            start_rate: 10_000.0,
            near: None,
            max_rate: None,
            resolution_percent: 1.0,
            length: Duration::from_secs(10),
            votes: 1,
            confirmations: 0,
        }
    }
}

/// What a search found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SearchResult {
    /// Inner packets per second, as really sent in a trial that passed; none if there is no such rate.
    pub rate: Option<f64>,
    /// The lowest rate known to be too high.
    pub above: Option<f64>,
    /// Remarks, such as `tester-limited`, or why there is no rate.
    pub notes: Vec<String>,
}

/// Repeats of a trial that did not count.
const REPEATS: u32 = 2;
/// Rates below this are not looked for, packets per second.
const FLOOR: f64 = 100.0;
/// The allowed loss must be this many packets of a trial, or chance decides. Trials at low rates last
/// longer for it, but not longer than [`LONGEST`] or what was planned.
const LOST_PACKETS: f64 = 5.0;
/// Without an allowed loss, packets of a trial.
const PACKETS_WITHOUT_LOSS: f64 = 1000.0;
/// Longest trial, if longer ones are not planned.
const LONGEST: Duration = Duration::from_secs(1);
/// How far apart the rates are that are tried near one that was found before.
const STEP: f64 = 1.2;
/// A generator that sends less than this share of the rate is too slow.
const TOO_SLOW: f64 = 0.98;
/// It is not so far off, on the way to where trials count, if it sends at least this share.
const NEARLY: f64 = 0.9;

/// The highest rate at which at most `loss_percent` is lost; without loss (NDR) if that is 0. Every trial is handed to `on_trial`.
///
/// # Errors
///
/// The device broke. That there is no result is none: see [`SearchResult::notes`].
pub fn pdr(
    device: &mut dyn Device,
    plan: &SearchPlan,
    loss_percent: f64,
    on_trial: &mut dyn FnMut(&Trial),
) -> Result<SearchResult> {
    let mut search = Search::new(device, plan, loss_percent, on_trial);
    let outcome = search.run()?;
    Ok(search.result(outcome))
}

/// The rate that arrives when as much as possible is sent.
///
/// # Errors
///
/// As for [`pdr`].
pub fn mrr(
    device: &mut dyn Device,
    plan: &SearchPlan,
    on_trial: &mut dyn FnMut(&Trial),
) -> Result<SearchResult> {
    let mut tester = Tester { device, on_trial };
    Ok(match tester.trial(Rate::Max, plan.length)? {
        Ok(trial) => SearchResult {
            rate: Some(trial.throughput()),
            ..SearchResult::default()
        },
        Err(failure) => SearchResult {
            notes: vec![failure.reason],
            ..SearchResult::default()
        },
    })
}

/// The delivery ratio at each of `rates`; none where no trial counted.
///
/// # Errors
///
/// As for [`pdr`].
pub fn sweep(
    device: &mut dyn Device,
    plan: &SearchPlan,
    rates: &[f64],
    on_trial: &mut dyn FnMut(&Trial),
) -> Result<Vec<(f64, Option<f64>)>> {
    let mut tester = Tester { device, on_trial };
    rates
        .iter()
        .map(|&rate| {
            let trial = tester.trial(Rate::PacketsPerSecond(rate), plan.length)?;
            Ok((rate, trial.ok().map(|trial| trial.delivery_ratio())))
        })
        .collect()
}

/// The latency at `rate`; none if no trial counted or nothing arrived.
///
/// # Errors
///
/// As for [`pdr`].
pub fn latency(
    device: &mut dyn Device,
    plan: &SearchPlan,
    rate: Rate,
    on_trial: &mut dyn FnMut(&Trial),
) -> Result<Option<Latency>> {
    let mut tester = Tester { device, on_trial };
    let trial = tester.trial(rate, plan.length)?;
    Ok(trial.ok().and_then(|trial| trial.latency))
}

/// Runs trials until one counts.
struct Tester<'a> {
    device: &'a mut dyn Device,
    on_trial: &'a mut dyn FnMut(&Trial),
}

/// No trial counted.
struct Failure {
    reason: String,
    /// The generator was too slow every time.
    too_slow: bool,
}

impl Tester<'_> {
    fn trial(&mut self, rate: Rate, length: Duration) -> Result<Result<Trial, Failure>> {
        self.trial_or(rate, length, |_| false)
    }

    /// Runs trials until one counts, or tells `enough` although it does not.
    fn trial_or(
        &mut self,
        rate: Rate,
        length: Duration,
        enough: impl Fn(&Trial) -> bool,
    ) -> Result<Result<Trial, Failure>> {
        let mut too_slow = true;
        let mut reason = String::new();
        for _ in 0..=REPEATS {
            let trial = self.device.trial(rate, length)?;
            (self.on_trial)(&trial);
            match &trial.validity {
                super::trial::Validity::Valid => return Ok(Ok(trial)),
                super::trial::Validity::Invalid(why) => reason.clone_from(why),
            }
            if enough(&trial) {
                return Ok(Ok(trial));
            }
            too_slow &= matches!(rate, Rate::PacketsPerSecond(target)
                if trial.offered() < TOO_SLOW * target);
        }
        let reason = format!("{UNSTABLE}: no trial of {} counted: {reason}", REPEATS + 1);
        Ok(Err(Failure { reason, too_slow }))
    }
}

struct Search<'a> {
    tester: Tester<'a>,
    plan: &'a SearchPlan,
    /// Least delivery ratio.
    least: f64,
    notes: Vec<String>,
}

enum Outcome {
    Found { rate: f64, above: Option<f64> },
    Nothing,
}

/// What a rate turned out to be.
enum Verdict {
    /// Not too much was lost; the rate as it was really sent.
    Passed(f64),
    /// Too much was lost.
    Failed(f64),
    /// The generator cannot send that much.
    OutOfReach,
    /// There is no saying.
    Unstable,
}

/// The result is in here.
struct Bracket {
    /// Passed.
    low: f64,
    /// The same, as it was really sent.
    offered: f64,
    /// Did not pass.
    high: f64,
    /// Whether the generator can send `high`.
    reachable: bool,
}

impl<'a> Search<'a> {
    fn new(
        device: &'a mut dyn Device,
        plan: &'a SearchPlan,
        loss_percent: f64,
        on_trial: &'a mut dyn FnMut(&Trial),
    ) -> Self {
        Search {
            tester: Tester { device, on_trial },
            plan,
            least: 1.0 - loss_percent / 100.0,
            notes: Vec::new(),
        }
    }

    fn result(self, outcome: Outcome) -> SearchResult {
        let (rate, above) = match outcome {
            Outcome::Found { rate, above } => (Some(rate), above),
            Outcome::Nothing => (None, None),
        };
        SearchResult {
            rate,
            above,
            notes: self.notes,
        }
    }

    fn run(&mut self) -> Result<Outcome> {
        let bracket = match self.plan.near {
            Some(near) => self.around(near)?,
            None => self.between_the_ends()?,
        };
        match bracket {
            Ok(bracket) => self.narrow(bracket),
            Err(outcome) => Ok(outcome),
        }
    }

    /// Tries both ends.
    fn between_the_ends(&mut self) -> Result<Result<Bracket, Outcome>> {
        // The upper end first: a search that never looked there could not tell the device's limit from
        // the tester's.
        let mut high = match self.probe(Rate::Max, 1)? {
            Verdict::Passed(offered) if self.plan.max_rate.is_none_or(|most| offered <= most) => {
                return Ok(Err(self.limited_by_tester(offered)));
            }
            Verdict::Passed(offered) | Verdict::Failed(offered) => offered,
            Verdict::OutOfReach | Verdict::Unstable => return Ok(Err(Outcome::Nothing)),
        };
        if let Some(most) = self.plan.max_rate.filter(|most| *most < high) {
            match self.at(most, 1)? {
                Verdict::Passed(offered) => return Ok(Err(self.at_highest_of_interest(offered))),
                Verdict::Unstable => return Ok(Err(Outcome::Nothing)),
                Verdict::Failed(_) | Verdict::OutOfReach => high = most,
            }
        }

        // The lower end: a device that fails everywhere must not look like one that passes there.
        let mut low = self.plan.start_rate.min(high / 2.0);
        loop {
            if low < self.floor() {
                return Ok(Err(self.nothing_passes(high)));
            }
            match self.at(low, 1)? {
                Verdict::Passed(offered) => {
                    return Ok(Ok(Bracket {
                        low,
                        offered,
                        high,
                        reachable: true,
                    }));
                }
                Verdict::Failed(_) | Verdict::OutOfReach => high = low,
                Verdict::Unstable => return Ok(Err(Outcome::Nothing)),
            }
            low /= 2.0;
        }
    }

    /// Goes up or down from a rate until one passes and the next does not.
    fn around(&mut self, near: f64) -> Result<Result<Bracket, Outcome>> {
        let most = self.plan.max_rate.unwrap_or(f64::INFINITY);
        let mut rate = near.min(most);
        let (mut passed, mut failed) = (None, None);
        loop {
            match self.at(rate, 1)? {
                Verdict::Passed(offered) => passed = Some((rate, offered)),
                Verdict::Failed(_) => failed = Some((rate, true)),
                Verdict::OutOfReach => failed = Some((rate, false)),
                Verdict::Unstable => return Ok(Err(Outcome::Nothing)),
            }
            match (passed, failed) {
                (Some((low, offered)), Some((high, reachable))) => {
                    return Ok(Ok(Bracket {
                        low,
                        offered,
                        high,
                        reachable,
                    }));
                }
                (Some((low, offered)), None) if low >= most => {
                    return Ok(Err(self.at_highest_of_interest(offered)));
                }
                (_, None) => rate = (rate * STEP).min(most),
                (None, Some((high, _))) => {
                    rate = high / STEP;
                    if rate < self.floor() {
                        return Ok(Err(self.nothing_passes(high)));
                    }
                }
            }
        }
    }

    /// Bisects.
    fn narrow(&mut self, bracket: Bracket) -> Result<Outcome> {
        let Bracket {
            mut low,
            offered: mut best,
            mut high,
            mut reachable,
        } = bracket;
        loop {
            while high - low > self.resolution(high) {
                // Far apart, halfway in proportion: fewer trials.
                let middle = if high > 4.0 * low {
                    (low * high).sqrt()
                } else {
                    (low + high) / 2.0
                };
                match self.at(middle, 1)? {
                    Verdict::Passed(offered) => (low, best) = (middle, offered),
                    Verdict::Failed(_) => (high, reachable) = (middle, true),
                    Verdict::OutOfReach => (high, reachable) = (middle, false),
                    Verdict::Unstable => return Ok(Outcome::Nothing),
                }
            }
            match self.confirm(low)? {
                Verdict::Passed(offered) => {
                    best = offered.min(best);
                    break;
                }
                Verdict::Unstable => return Ok(Outcome::Nothing),
                Verdict::Failed(_) | Verdict::OutOfReach => {
                    high = low;
                    low -= self.resolution(high);
                    if low < self.floor() {
                        self.notes.push("none: no rate passed again".into());
                        return Ok(Outcome::Nothing);
                    }
                    // What is just below need not be tried twice: it must be confirmed as well.
                    best = low;
                }
            }
        }
        if !reachable {
            self.notes.push(format!(
                "tester-limited: the generator does not reach {high:.0} packets per second"
            ));
        }
        Ok(Outcome::Found {
            rate: best,
            above: Some(high),
        })
    }

    fn at_highest_of_interest(&mut self, offered: f64) -> Outcome {
        self.notes.push("at the highest rate of interest".into());
        Outcome::Found {
            rate: offered,
            above: None,
        }
    }

    fn nothing_passes(&mut self, rate: f64) -> Outcome {
        self.notes.push(format!(
            "none: more than {:.2} % is lost even at {rate:.0} packets per second",
            (1.0 - self.least) * 100.0,
        ));
        Outcome::Nothing
    }

    fn limited_by_tester(&mut self, offered: f64) -> Outcome {
        self.notes.push("tester-limited".into());
        Outcome::Found {
            rate: offered,
            above: None,
        }
    }

    /// How near two rates must be, packets per second.
    fn resolution(&self, high: f64) -> f64 {
        (high * self.plan.resolution_percent / 100.0).max(1.0)
    }

    /// Packets that a trial needs.
    fn packets(&self) -> f64 {
        let loss = 1.0 - self.least;
        if loss > 0.0 {
            LOST_PACKETS / loss
        } else {
            PACKETS_WITHOUT_LOSS
        }
    }

    /// The length of a trial at `rate`, which is `planned` unless that is too short.
    fn length(&self, rate: Rate, planned: Duration) -> Duration {
        match rate {
            Rate::Max => planned,
            Rate::PacketsPerSecond(rate) => {
                let enough = Duration::from_secs_f64((self.packets() / rate).min(1e6));
                enough.min(LONGEST).max(planned)
            }
        }
    }

    /// The lowest rate that can be judged.
    fn floor(&self) -> f64 {
        let longest = LONGEST.max(self.plan.length);
        FLOOR.max(self.packets() / longest.as_secs_f64())
    }

    /// Tests again what was found, if the plan wants it.
    fn confirm(&mut self, rate: f64) -> Result<Verdict> {
        let mut verdict = Verdict::Passed(f64::INFINITY);
        for _ in 0..self.plan.confirmations {
            verdict = self.at(rate, 3)?;
            if !matches!(verdict, Verdict::Passed(_)) {
                break;
            }
        }
        Ok(verdict)
    }

    fn at(&mut self, rate: f64, times: u32) -> Result<Verdict> {
        self.probe(Rate::PacketsPerSecond(rate), times)
    }

    /// Tries a rate as often as the plan says, in trials of `times` its length.
    fn probe(&mut self, rate: Rate, times: u32) -> Result<Verdict> {
        let needed = self.plan.votes.max(1) / 2 + 1;
        let (mut passed, mut failed) = (0, 0);
        loop {
            let verdict = self.trial(rate, self.length(rate, self.plan.length) * times)?;
            match verdict {
                Verdict::Passed(_) => passed += 1,
                Verdict::Failed(_) => failed += 1,
                Verdict::OutOfReach | Verdict::Unstable => return Ok(verdict),
            }
            if passed >= needed || failed >= needed {
                return Ok(verdict);
            }
        }
    }

    /// Tries a rate once.
    fn trial(&mut self, rate: Rate, length: Duration) -> Result<Verdict> {
        let found = self.tester.trial(rate, length)?;
        Ok(self.verdict(found))
    }

    /// The same on the way to where trials count. Others are enough there if the disturbance can only have made them worse
    /// than they are: a rate fails if too much is lost of less than that, and passes if, about at that rate, it is not,
    /// whatever kept the machine busy.
    fn trial_on_the_way(&mut self, rate: f64, length: Duration) -> Result<Verdict> {
        let least = self.least;
        let enough = |trial: &Trial| {
            let share = trial.offered() / rate;
            if trial.delivery_ratio() < least {
                share < TOO_SLOW
            } else {
                (NEARLY..1.0 / NEARLY).contains(&share) && trial.received <= trial.sent
            }
        };
        let target = Rate::PacketsPerSecond(rate);
        let found = self.tester.trial_or(target, length, enough)?;
        Ok(self.verdict(found))
    }

    fn verdict(&mut self, found: Result<Trial, Failure>) -> Verdict {
        match found {
            Ok(trial) if trial.delivery_ratio() >= self.least => Verdict::Passed(trial.offered()),
            Ok(trial) => Verdict::Failed(trial.offered()),
            Err(failure) if failure.too_slow => Verdict::OutOfReach,
            Err(failure) => {
                self.notes.push(failure.reason);
                Verdict::Unstable
            }
        }
    }
}
