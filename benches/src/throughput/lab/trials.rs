//! Generator and sink around a device under test.

use std::time::Duration;

use anyhow::Result;

use super::{device::UnderTest, load, napi, network::Network};
use crate::throughput::{
    experiment::Case,
    instrument::{
        LiveFrames, Sink,
        run::{self, Limits, Snapshot},
    },
    subject::{Device, Subject},
    trial::{Rate, Trial, Validity},
};

/// Load before a trial where what is under test needs calm first; such loads are repeated while it does not do what it is to do.
const CALM: Rate = Rate::PacketsPerSecond(2000.0);
const CALM_TIME: Duration = Duration::from_millis(20);
const CALM_ATTEMPTS: usize = 10;
/// Nothing is measured then.
const ANYTHING: Limits = Limits {
    rate: f64::INFINITY,
    surplus: 1.0,
    steal: f64::INFINITY,
    other: f64::INFINITY,
};

/// A subject between generator and sink. The fields are dropped in this order: what uses the namespaces goes
/// before them.
///
/// The generator is live frames at every rate: what an AF_XDP socket sends would reach a device without XDP program past
/// NAPI, and the kernel would forward on the generator's CPU instead of the device's.
pub(super) struct Bench {
    generator: LiveFrames,
    sink: Sink,
    under_test: Box<dyn UnderTest>,
    _network: Network,
}

impl Bench {
    /// Puts generator and sink next to what is under test.
    pub(super) fn new(
        subject: Subject,
        case: &Case,
        network: Network,
        under_test: Box<dyn UnderTest>,
    ) -> Result<Self> {
        let load = load::load(subject, &network, case)?;
        let expect = load::expect(subject, &network, case)?;
        let (left, right) = (&network.left.tester, &network.right.tester);
        let sink = Sink::attach(&network.sink, right, &expect)?;
        napi::run_sink_in_threads(&network.sink, right, case.cpus.tester)?;
        let cpu = Some(case.cpus.tester.into());
        Ok(Bench {
            generator: LiveFrames::new(&network.generator, left, &load, cpu)?,
            sink,
            under_test,
            _network: network,
        })
    }
}

impl Bench {
    fn run(&mut self, limits: &Limits, rate: Rate, length: Duration) -> Result<Trial> {
        let Bench {
            generator,
            sink,
            under_test,
            ..
        } = self;
        let mut read = || {
            let mut snapshot = Snapshot::default();
            under_test.read(&mut snapshot)?;
            Ok(snapshot)
        };
        let mut trial = run::trial(limits, generator, sink, rate, length, &mut read)?;
        if let Some(counter) = under_test.own_sink() {
            arrived_there(&mut trial, counter);
        }
        under_test.judge(&mut trial);
        Ok(trial)
    }
}

impl Device for Bench {
    fn trial(&mut self, rate: Rate, length: Duration) -> Result<Trial> {
        if self.under_test.starts_slowly() {
            for _ in 0..CALM_ATTEMPTS {
                if self.run(&ANYTHING, CALM, CALM_TIME)?.is_valid() {
                    break;
                }
            }
        }
        self.run(&Limits::default(), rate, length)
    }
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
