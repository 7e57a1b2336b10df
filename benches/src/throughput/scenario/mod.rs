//! What the scenarios of the thesis measure over a [`Chain`]: round trips, iperf3, CPU time, and the outage when a
//! gateway is restarted. Each function measures once; repeats are the caller's.

mod cpu;
mod iperf;
mod ping;
mod restart;
mod stream;

use anyhow::anyhow;

use super::{
    chain::Chain,
    experiment::{Algorithm, Case, Experiment, Size},
    instrument::{
        processor::Usage,
        run::{self, Limits},
        thread::Pinned,
    },
    record::Metric,
    search::UNSTABLE,
    subject::Refusal,
};

/// What one measurement yields.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Values, each in its metric's unit.
    pub values: Vec<(Metric, f64)>,
    /// Remarks for the reader.
    pub notes: Vec<String>,
}

/// Measures the scenario of an experiment once.
///
/// # Errors
///
/// [`Refusal::NotHere`]: the chain, the size or the family does not go with the scenario, or a tool is missing.
/// [`Refusal::Failed`]: it should have worked.
pub fn measure(
    experiment: &Experiment,
    chain: &mut dyn Chain,
    case: &Case,
) -> Result<Outcome, Refusal> {
    let Size::Fixed(size) = case.size else {
        return Err(Refusal::NotHere(
            "scenarios send packets of one length, not a mix".into(),
        ));
    };
    let (family, seconds) = (case.family, experiment.seconds);
    let (rate, packets) = (experiment.rate(), experiment.packets());
    // Where the scheduler puts a client decides whom it wakes and whom it keeps waiting: flood pings over the same chain
    // take 150 or 400 µs. iperf3 needs more than one CPU.
    let _pinned = match experiment.algorithm {
        Algorithm::RttIdle | Algorithm::FloodPing | Algorithm::Cpu => {
            Some(Pinned::to(case.cpus.tester.into())?)
        }
        _ => None,
    };
    match experiment.algorithm {
        Algorithm::RttIdle => ping::idle(chain, family, size, packets),
        Algorithm::FloodPing => ping::flood(chain, family, size, packets),
        Algorithm::Tcp => iperf::tcp(chain, family, size, seconds),
        Algorithm::Udp => iperf::udp(chain, family, size, seconds),
        Algorithm::Cpu => cpu::measure(chain, family, size, rate, seconds),
        Algorithm::Restart => restart::measure(chain, family, size, rate),
        _ => Err(anyhow!("{} is no scenario", experiment.name).into()),
    }
}

/// The same, without values if the machine was kept from its work meanwhile.
///
/// # Errors
///
/// As [`measure`].
pub fn measure_undisturbed(
    experiment: &Experiment,
    chain: &mut dyn Chain,
    case: &Case,
) -> Result<Outcome, Refusal> {
    let before = Usage::now()?;
    let outcome = measure(experiment, chain, case)?;
    // At low rates the hypervisor's part in waking a CPU that sleeps counts as taken as well.
    let is_full_load = matches!(
        experiment.algorithm,
        Algorithm::FloodPing | Algorithm::Tcp | Algorithm::Udp
    );
    let usage = Usage::now()?.since(&before);
    match run::disturbance(&Limits::default(), &usage) {
        Some(reason) if is_full_load => Ok(Outcome {
            values: Vec::new(),
            notes: vec![format!("{UNSTABLE}: {reason}")],
        }),
        _ => Ok(outcome),
    }
}
