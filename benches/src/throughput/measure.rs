//! From an experiment's algorithm to values: one repeat of one device.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use aya::sys::{Stats, enable_stats};

use super::{
    experiment::{Algorithm, Experiment, LatencyLoad},
    record::Metric,
    scenario::Outcome,
    search::{self, SearchPlan, SearchResult, Walk},
    subject::Device,
    trial::{Rate, Trial},
};

/// The metric under which the trials of an algorithm are recorded.
pub fn main_metric(algorithm: &Algorithm) -> Metric {
    match algorithm {
        Algorithm::Pdr { .. } => Metric::Pdr,
        Algorithm::Ndr => Metric::Ndr,
        Algorithm::Mrr | Algorithm::Pipeline => Metric::Mrr,
        Algorithm::Sweep { .. } => Metric::DeliveryRatio,
        Algorithm::Latency(_) => Metric::LatencyP50,
        Algorithm::PerCpuSecond { .. } => Metric::PerCpuSecond,
        Algorithm::ProgramTime => Metric::ProgramTime,
        Algorithm::Scenario(_) => Metric::CpuTotal,
    }
}

/// Measures one repeat; `on_trial` sees every trial, also those that do not count. Where rates are searched, `near` is
/// what earlier repeats found, and `walk` where they ended.
///
/// # Errors
///
/// Something broke. That nothing could be found out is no error: then notes say why.
pub fn measure(
    device: &mut dyn Device,
    experiment: &Experiment,
    near: Option<f64>,
    walk: &mut Walk,
    on_trial: &mut dyn FnMut(&Trial),
) -> Result<Outcome> {
    let plan = SearchPlan {
        start_rate: experiment.start_rate,
        near,
        max_rate: experiment.max_rate,
        resolution_percent: experiment.resolution_percent,
        length: Duration::from_secs_f64(experiment.seconds),
        votes: experiment.votes,
        confirmations: experiment.confirmations,
    };
    match &experiment.algorithm {
        Algorithm::Pdr { .. } | Algorithm::Ndr => {
            let loss_percent = match experiment.algorithm {
                Algorithm::Pdr { loss_percent } => loss_percent,
                _ => 0.0,
            };
            let found = match experiment.steps {
                Some(steps) => {
                    search::up_and_down(device, &plan, loss_percent, steps, walk, on_trial)?
                }
                None => bisect(device, plan, loss_percent, on_trial)?,
            };
            Ok(outcome(main_metric(&experiment.algorithm), found))
        }
        Algorithm::Mrr | Algorithm::Pipeline => {
            let mut per_cpu_second = PerCpuSecond::default();
            let found = search::mrr(device, &plan, &mut per_cpu_second.watch(on_trial))?;
            let mut outcome = outcome(Metric::Mrr, found);
            outcome.values.extend(per_cpu_second.value());
            Ok(outcome)
        }
        Algorithm::PerCpuSecond { rate } => {
            let mut per_cpu_second = PerCpuSecond::default();
            let mut on_trial = per_cpu_second.watch(on_trial);
            match rate {
                Some(rate) => drop(search::sweep(device, &plan, &[*rate], &mut on_trial)?),
                None => drop(search::mrr(device, &plan, &mut on_trial)?),
            }
            drop(on_trial);
            let value = per_cpu_second.value();
            let notes = match value {
                Some(_) => Vec::new(),
                None => {
                    vec!["no trial that counts, or the time of its threads is not known".into()]
                }
            };
            Ok(Outcome {
                values: value.into_iter().collect(),
                notes,
            })
        }
        Algorithm::ProgramTime => program_time(device, &plan, on_trial),
        Algorithm::Sweep { rates } => {
            // The trials are the result.
            search::sweep(device, &plan, rates, on_trial)?;
            Ok(Outcome::default())
        }
        Algorithm::Latency(load) => latency(device, &plan, *load, on_trial),
        Algorithm::Scenario(_) => bail!("a scenario is no matter of trials"),
    }
}

/// Searches for a rate between two others. The first time, a coarse search in trials of a quarter of the length tells where to look.
fn bisect(
    device: &mut dyn Device,
    mut plan: SearchPlan,
    loss_percent: f64,
    on_trial: &mut dyn FnMut(&Trial),
) -> Result<SearchResult> {
    if plan.near.is_none() {
        let coarse = SearchPlan {
            resolution_percent: plan.resolution_percent.max(25.0),
            length: plan.length / 4,
            votes: 1,
            confirmations: 0,
            ..plan
        };
        let found = search::pdr(device, &coarse, loss_percent, on_trial)?;
        // A device faster than the tester has no rate to look around.
        plan.near = found.above.and(found.rate);
    }
    search::pdr(device, &plan, loss_percent, on_trial)
}

fn outcome(metric: Metric, found: SearchResult) -> Outcome {
    Outcome {
        values: found.rate.map(|rate| (metric, rate)).into_iter().collect(),
        notes: found.notes,
    }
}

/// Packets per second of the device's own CPU time, from the last trial that counts.
#[derive(Default)]
struct PerCpuSecond(Option<f64>);

impl PerCpuSecond {
    /// Looks at the trials on their way to `on_trial`.
    fn watch(&mut self, on_trial: &mut dyn FnMut(&Trial)) -> impl FnMut(&Trial) {
        |trial| {
            on_trial(trial);
            if trial.is_valid() && trial.device_cpu() > 0.0 {
                self.0 = Some(trial.received as f64 / trial.device_cpu());
            }
        }
    }

    fn value(&self) -> Option<(Metric, f64)> {
        self.0.map(|value| (Metric::PerCpuSecond, value))
    }
}

/// CPU seconds and runs of the program under test, among what a trial counts.
pub(super) const PROGRAM: &str = "program";

/// Run time of the program under test per packet, as the kernel's statistics have it.
fn program_time(
    device: &mut dyn Device,
    plan: &SearchPlan,
    on_trial: &mut dyn FnMut(&Trial),
) -> Result<Outcome> {
    // On for as long as this is open. They take time themselves, so nothing else is measured with them.
    let _statistics = enable_stats(Stats::RunTime).context("statistics of BPF programs")?;
    let mut value = None;
    let found = search::mrr(device, plan, &mut |trial| {
        on_trial(trial);
        let runs = trial.counters.get(PROGRAM).copied().unwrap_or_default();
        let seconds = trial.cpu.get(PROGRAM).copied().unwrap_or_default();
        if trial.is_valid() && runs > 0 {
            value = Some((Metric::ProgramTime, seconds * 1e6 / runs as f64));
        }
    })?;
    Ok(Outcome {
        values: value.into_iter().collect(),
        notes: found.notes,
    })
}

fn latency(
    device: &mut dyn Device,
    plan: &SearchPlan,
    load: LatencyLoad,
    on_trial: &mut dyn FnMut(&Trial),
) -> Result<Outcome> {
    let rate = match load {
        LatencyLoad::Rate(rate) => rate,
        LatencyLoad::ShareOfMrr(share) => {
            let highest = search::mrr(device, plan, on_trial)?;
            match highest.rate {
                Some(highest) => share * highest,
                None => return Ok(outcome(Metric::Mrr, highest)),
            }
        }
    };
    let Some(latency) = search::latency(device, plan, Rate::PacketsPerSecond(rate), on_trial)?
    else {
        return Ok(Outcome {
            values: Vec::new(),
            notes: vec!["no trial that counts, or no packet arrived".into()],
        });
    };
    Ok(Outcome {
        values: vec![
            (Metric::LatencyMin, latency.min),
            (Metric::LatencyP50, latency.p50),
            (Metric::LatencyP99, latency.p99),
            (Metric::LatencyP999, latency.p999),
            (Metric::LatencyMax, latency.max),
        ],
        notes: Vec::new(),
    })
}
