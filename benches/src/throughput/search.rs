//! Searching for rates.
//!
//! *PDR* (partial drop rate) is the highest rate at which no more than some share is lost, *NDR* that
//! without loss, *MRR* the rate that arrives under the highest load.

use std::time::Duration;

use anyhow::Result;

use super::{
    subject::Device,
    trial::{Rate, Trial, Validity},
};

#[cfg(test)]
mod tests;

/// What the note begins with where no trial counted.
pub const UNSTABLE: &str = "unstable";

/// How a search goes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SearchPlan {
    /// Rate at which the search begins, inner packets per second.
    pub start_rate: f64,
    /// How far apart rates are until one passed and one did not, as a factor.
    pub step: f64,
    /// Highest rate of interest, such as that of the line; none: what the generator can do.
    pub max_rate: Option<f64>,
    /// The search ends when the rate is known to this share, percent.
    pub resolution_percent: f64,
    /// Length of a trial.
    pub length: Duration,
    /// Trials at each rate, of which more than half must pass: an odd number.
    pub votes: u32,
}

impl Default for SearchPlan {
    fn default() -> Self {
        SearchPlan {
            start_rate: 10_000.0,
            step: 2.0,
            max_rate: None,
            resolution_percent: 1.0,
            length: Duration::from_secs(10),
            votes: 1,
        }
    }
}

/// What a search found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SearchResult {
    /// Inner packets per second, as really sent in a trial that passed; none if there is no such rate.
    pub rate: Option<f64>,
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
/// A generator that sends less than this share of the rate is too slow.
const TOO_SLOW: f64 = 0.98;

/// No trial counted.
#[derive(Debug)]
pub struct Failure {
    /// Why the last one did not.
    pub reason: String,
    /// The generator was too slow every time.
    too_slow: bool,
}

/// Runs trials until one counts; `on_trial` sees every one.
///
/// # Errors
///
/// The device broke.
pub fn trial(
    device: &mut dyn Device,
    rate: Rate,
    length: Duration,
    on_trial: &mut dyn FnMut(&Trial),
) -> Result<Result<Trial, Failure>> {
    let mut failure = Failure {
        reason: String::new(),
        too_slow: true,
    };
    for _ in 0..=REPEATS {
        let trial = device.trial(rate, length)?;
        on_trial(&trial);
        let Validity::Invalid(why) = &trial.validity else {
            return Ok(Ok(trial));
        };
        failure.reason = format!("{UNSTABLE}: no trial of {} counted: {why}", REPEATS + 1);
        failure.too_slow &= matches!(rate, Rate::PacketsPerSecond(target)
            if trial.offered() < TOO_SLOW * target);
    }
    Ok(Err(failure))
}

/// The highest rate at which at most `loss_percent` is lost; without loss (NDR) if that is 0. Every trial is handed to
/// `on_trial`.
///
/// From the first rate it goes up until one does not pass, or down until one passes, and bisects between the two. So
/// both ends are tried: what loses packets at the lowest rate has no result, and what passes all that the generator can
/// send is limited by the tester.
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
    let mut search = Search {
        device,
        on_trial,
        plan,
        least: 1.0 - loss_percent / 100.0,
        notes: Vec::new(),
    };
    let rate = search.run()?;
    Ok(SearchResult {
        rate,
        notes: search.notes,
    })
}

struct Search<'a> {
    device: &'a mut dyn Device,
    on_trial: &'a mut dyn FnMut(&Trial),
    plan: &'a SearchPlan,
    /// Least delivery ratio.
    least: f64,
    notes: Vec<String>,
}

/// What a rate turned out to be.
enum Verdict {
    /// Not too much was lost; the rate as it was really sent.
    Passed(f64),
    /// Too much was lost.
    Failed,
    /// The generator cannot send that much.
    OutOfReach,
    /// There is no saying.
    Unstable,
}

impl Search<'_> {
    fn run(&mut self) -> Result<Option<f64>> {
        let most = self.plan.max_rate.unwrap_or(f64::INFINITY);
        let mut rate = self.plan.start_rate.min(most);
        // The highest rate that passed, also as it was really sent, and the lowest that did not.
        let (mut passed, mut failed) = (None, None);
        loop {
            match self.at(rate)? {
                Verdict::Passed(offered) => passed = Some((rate, offered)),
                Verdict::Failed => failed = Some((rate, true)),
                Verdict::OutOfReach => failed = Some((rate, false)),
                Verdict::Unstable => return Ok(None),
            }
            rate = match (passed, failed) {
                (Some((low, offered)), None) if low >= most => {
                    self.notes.push("at the highest rate of interest".into());
                    return Ok(Some(offered));
                }
                (Some((low, _)), None) => (low * self.plan.step).min(most),
                (Some((low, offered)), Some((high, is_reached))) => {
                    if high - low <= high * self.plan.resolution_percent / 100.0 {
                        if !is_reached {
                            self.notes.push(format!(
                                "tester-limited: the generator does not reach {high:.0} packets per second"
                            ));
                        }
                        return Ok(Some(offered));
                    }
                    (low * high).sqrt()
                }
                (None, Some((high, _))) if high / self.plan.step < self.floor() => {
                    self.notes.push(format!(
                        "none: more than {:.2} % is lost even at {high:.0} packets per second",
                        (1.0 - self.least) * 100.0,
                    ));
                    return Ok(None);
                }
                (_, Some((high, _))) => high / self.plan.step,
                (None, None) => return Ok(None),
            };
        }
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

    /// The lowest rate that can be judged.
    fn floor(&self) -> f64 {
        let longest = LONGEST.max(self.plan.length);
        FLOOR.max(self.packets() / longest.as_secs_f64())
    }

    /// Tries a rate as often as the plan says, in trials that are long enough for it.
    fn at(&mut self, rate: f64) -> Result<Verdict> {
        let enough = Duration::from_secs_f64((self.packets() / rate).min(1e6));
        let length = enough.min(LONGEST).max(self.plan.length);
        let needed = self.plan.votes / 2 + 1;
        let (mut passed, mut failed) = (0, 0);
        loop {
            let target = Rate::PacketsPerSecond(rate);
            match trial(self.device, target, length, self.on_trial)? {
                Ok(trial) if trial.delivery_ratio() >= self.least => {
                    passed += 1;
                    if passed >= needed {
                        return Ok(Verdict::Passed(trial.offered()));
                    }
                }
                Ok(_) => {
                    failed += 1;
                    if failed >= needed {
                        return Ok(Verdict::Failed);
                    }
                }
                Err(failure) if failure.too_slow => return Ok(Verdict::OutOfReach),
                Err(failure) => {
                    self.notes.push(failure.reason);
                    return Ok(Verdict::Unstable);
                }
            }
        }
    }
}
