//! From an experiment's algorithm to values: one repeat of one device.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use aya::sys::{Stats, enable_stats};

use super::{
    experiment::{Algorithm, Experiment},
    record::Metric,
    scenario::Outcome,
    search::{self, SearchPlan},
    subject::Device,
    trial::{Rate, Trial},
};

/// How far apart rates are at first: if nothing is known yet, and around what earlier repeats found.
const STEPS: [f64; 2] = [2.0, 1.2];

/// The metric under which the trials of an algorithm are recorded.
pub fn main_metric(algorithm: Algorithm) -> Metric {
    match algorithm {
        Algorithm::Pdr => Metric::Pdr,
        Algorithm::Ndr => Metric::Ndr,
        Algorithm::Latency => Metric::LatencyP50,
        Algorithm::ProgramTime => Metric::ProgramTime,
        _ => Metric::Mrr,
    }
}

/// Measures one repeat; `on_trial` sees every trial, also those that do not count. `near` is the rate that earlier
/// repeats found.
///
/// # Errors
///
/// Something broke. That nothing could be found out is no error: then notes say why.
pub fn measure(
    device: &mut dyn Device,
    experiment: &Experiment,
    near: Option<f64>,
    on_trial: &mut dyn FnMut(&Trial),
) -> Result<Outcome> {
    let length = Duration::from_secs_f64(experiment.seconds);
    let metric = main_metric(experiment.algorithm);
    let rate = match experiment.algorithm {
        Algorithm::Pdr | Algorithm::Ndr => {
            let plan = SearchPlan {
                start_rate: near.unwrap_or(experiment.start_rate),
                step: STEPS[usize::from(near.is_some())],
                max_rate: experiment.max_rate,
                resolution_percent: experiment.resolution_percent,
                length,
                votes: experiment.votes,
            };
            let loss_percent = match experiment.algorithm {
                Algorithm::Pdr => experiment.loss_percent,
                _ => 0.0,
            };
            let found = search::pdr(device, &plan, loss_percent, on_trial)?;
            return Ok(Outcome {
                values: found.rate.map(|rate| (metric, rate)).into_iter().collect(),
                notes: found.notes,
            });
        }
        Algorithm::Mrr | Algorithm::Pipeline | Algorithm::ProgramTime => Rate::Max,
        Algorithm::Latency => Rate::PacketsPerSecond(experiment.rate()),
        _ => bail!("a scenario is no matter of trials"),
    };
    // On for as long as this is open. They take time themselves, so nothing else is measured with them.
    let _statistics = match experiment.algorithm {
        Algorithm::ProgramTime => {
            Some(enable_stats(Stats::RunTime).context("statistics of BPF programs")?)
        }
        _ => None,
    };
    let trial = match search::trial(device, rate, length, on_trial)? {
        Ok(trial) => trial,
        Err(failure) => {
            return Ok(Outcome {
                values: Vec::new(),
                notes: vec![failure.reason],
            });
        }
    };
    let values = match experiment.algorithm {
        Algorithm::ProgramTime => program_time(&trial).into_iter().collect(),
        Algorithm::Latency => trial.latency.as_ref().map_or_else(Vec::new, |latency| {
            vec![
                (Metric::LatencyP50, latency.p50),
                (Metric::LatencyP99, latency.p99),
                (Metric::LatencyMax, latency.max),
            ]
        }),
        _ => {
            let cpu = trial.device_cpu();
            let per_cpu_second =
                (cpu > 0.0).then(|| (Metric::PerCpuSecond, trial.received as f64 / cpu));
            let mut values = vec![(Metric::Mrr, trial.throughput())];
            values.extend(per_cpu_second);
            values
        }
    };
    Ok(Outcome {
        values,
        notes: Vec::new(),
    })
}

/// CPU seconds and runs of the program under test, among what a trial counts.
pub(super) const PROGRAM: &str = "program";

/// Run time of the program under test per packet, as the kernel's statistics have it.
fn program_time(trial: &Trial) -> Option<(Metric, f64)> {
    let runs = trial.counters.get(PROGRAM).filter(|runs| **runs > 0)?;
    let seconds = trial.cpu.get(PROGRAM)?;
    Some((Metric::ProgramTime, seconds * 1e6 / *runs as f64))
}
