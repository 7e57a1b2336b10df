//! Generator and sink around a device under test.

use std::time::Duration;

use anyhow::Result;

use super::{counters, device::UnderTest, generators::Generators, load, network::Network};
use crate::throughput::{
    experiment::{Case, Cpus},
    instrument::{
        Sink,
        run::{self, Snapshot},
    },
    subject::{Device, Subject},
    trial::{Rate, Trial, Validity},
};

/// A subject between generator and sink. The fields are dropped in this order: what uses the namespaces goes
/// before them.
pub(super) struct Bench {
    generators: Generators,
    sink: Sink,
    under_test: Box<dyn UnderTest>,
    network: Network,
    cpus: Cpus,
}

impl Bench {
    /// Puts generators and sink next to what is under test.
    ///
    /// # Errors
    ///
    /// The kernel refuses their programs.
    pub(super) fn new(
        subject: Subject,
        case: &Case,
        network: Network,
        under_test: Box<dyn UnderTest>,
    ) -> Result<Self> {
        let expect = load::expect(subject, &network, case)?;
        let tester = Some(usize::from(case.cpus.tester));
        let sink = Sink::attach(&network.sink, &network.right.tester, &expect, tester)?;
        let generators = Generators::new(subject, case, &network)?;
        Ok(Bench {
            generators,
            sink,
            under_test,
            network,
            cpus: case.cpus,
        })
    }
}

impl Device for Bench {
    fn trial(&mut self, rate: Rate, length: Duration) -> Result<Trial> {
        let Bench {
            generators,
            sink,
            under_test,
            network,
            cpus,
        } = self;
        let mut read = || read(&mut **under_test, network);
        let mut trial = run::trial(generators, sink, rate, length, Some(*cpus), &mut read)?;
        if let Some(counter) = self.under_test.own_sink() {
            arrived_there(&mut trial, counter);
        }
        self.under_test.judge(&mut trial);
        Ok(trial)
    }
}

/// Everything that is counted around the device under test.
fn read(under_test: &mut dyn UnderTest, network: &Network) -> Result<Snapshot> {
    let mut snapshot = Snapshot::default();
    under_test.read(&mut snapshot)?;
    let Snapshot { counters, cpu } = &mut snapshot;
    for (netns, device, label) in [
        (&network.device, &network.left.device, "d0"),
        (&network.device, &network.right.device, "d1"),
        (&network.sink, &network.right.tester, "s0"),
    ] {
        counters::add_drops(counters, netns, device, label)?;
    }
    counters::add_softirq(cpu)?;
    Ok(snapshot)
}

/// The device itself was the sink, and counted this much.
fn arrived_there(trial: &mut Trial, counter: &str) {
    trial.received = trial.counters.get(counter).copied().unwrap_or_default();
    trial.latency = None;
    // A few are the kernel's own.
    let most = trial.sent + trial.sent / 1000 + 10;
    if trial.received > most && trial.is_valid() {
        trial.validity = Validity::Invalid(format!(
            "{} packets arrived although {} were sent",
            trial.received, trial.sent
        ));
    }
}
