//! What the scenarios of the thesis measure over a [`Chain`]: round trips, iperf3, CPU time, and the outage when a
//! gateway is restarted. Each function measures once; repeats are the caller's.

mod cpu;
mod iperf;
mod ping;
mod restart;
mod stream;

use super::{
    chain::Chain,
    experiment::{Case, Scenario, Size},
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

impl Outcome {
    /// Whether nothing was found out because trials did not count, which is mostly other load on the machine.
    pub fn is_disturbed(&self) -> bool {
        self.values.is_empty() && self.notes.iter().any(|note| note.starts_with(UNSTABLE))
    }
}

/// Measures a scenario once. `seconds` is the length of what is measured by time.
///
/// # Errors
///
/// [`Refusal::NotHere`]: the chain, the size or the family does not go with the scenario, or a tool is missing.
/// [`Refusal::Failed`]: it should have worked.
pub fn measure(
    scenario: Scenario,
    chain: &mut dyn Chain,
    case: &Case,
    seconds: f64,
) -> Result<Outcome, Refusal> {
    let Size::Fixed(size) = case.size else {
        return Err(Refusal::NotHere(
            "scenarios send packets of one length, not a mix".into(),
        ));
    };
    // Where the scheduler puts a client decides whom it wakes and whom it keeps waiting: flood pings over the same chain
    // take 150 or 400 µs. iperf3 needs more than one CPU.
    let _pinned = match scenario {
        Scenario::RttIdle { .. } | Scenario::FloodPing { .. } | Scenario::Cpu { .. } => {
            Some(Pinned::to(case.cpus.tester.into())?)
        }
        Scenario::Tcp | Scenario::Udp | Scenario::Restart { .. } => None,
    };
    match scenario {
        Scenario::RttIdle { packets } => ping::idle(chain, case.family, size, packets),
        Scenario::FloodPing { packets } => ping::flood(chain, case.family, size, packets),
        Scenario::Tcp => iperf::tcp(chain, case.family, size, seconds),
        Scenario::Udp => iperf::udp(chain, case.family, size, seconds),
        Scenario::Cpu { rate } => cpu::measure(chain, case.family, size, rate, seconds),
        Scenario::Restart { rate } => restart::measure(chain, case.family, size, rate),
    }
}

/// The same, without values if the machine was kept from its work meanwhile.
///
/// # Errors
///
/// As [`measure`].
pub fn measure_undisturbed(
    scenario: Scenario,
    chain: &mut dyn Chain,
    case: &Case,
    seconds: f64,
) -> Result<Outcome, Refusal> {
    let before = Usage::now()?;
    let outcome = measure(scenario, chain, case, seconds)?;
    // At low rates the hypervisor's part in waking a CPU that sleeps counts as taken as well.
    let is_full_load = matches!(
        scenario,
        Scenario::FloodPing { .. } | Scenario::Tcp | Scenario::Udp
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
