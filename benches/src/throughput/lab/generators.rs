//! Sources of load: one per queue of the device under test.

use anyhow::Result;

use super::{load, network::Network};
use crate::throughput::{
    experiment::Case,
    instrument::{Generator, LiveFrames, Sent},
    subject::Subject,
    trial::Rate,
};

/// Generators that share a rate.
///
/// They are live frames at every rate: what an AF_XDP socket sends would reach a device without XDP program past
/// NAPI, and the kernel would forward on the generator's CPU instead of the device's.
#[derive(Default)]
pub(super) struct Generators(Vec<Box<dyn Generator>>);

impl Generators {
    /// Makes them, without load yet. What a generator sends from CPU n arrives in queue n, modulo the number of
    /// queues: for two queues there are two, on the CPUs of tester and device.
    ///
    /// # Errors
    ///
    /// The kernel refuses them.
    pub(super) fn new(subject: Subject, case: &Case, network: &Network) -> Result<Self> {
        let cpus = [case.cpus.tester, case.cpus.device];
        let mut all = Generators::default();
        for (number, cpu) in (0..network.queues).zip(cpus) {
            let load = load::load(subject, network, case, number)?;
            let (netns, device) = (&network.generator, &network.left.tester);
            all.add(LiveFrames::new(netns, device, &load, Some(cpu.into()))?);
        }
        Ok(all)
    }

    fn add(&mut self, generator: impl Generator + 'static) {
        self.0.push(Box::new(generator));
    }
}

impl Generator for Generators {
    fn start(&mut self, rate: Rate) -> Result<()> {
        let share = match rate {
            Rate::Max => Rate::Max,
            Rate::PacketsPerSecond(all) => Rate::PacketsPerSecond(all / self.0.len().max(1) as f64),
        };
        self.0
            .iter_mut()
            .try_for_each(|generator| generator.start(share))
    }

    fn stop(&mut self) -> Result<Sent> {
        // All are stopped, also if one fails.
        let stopped: Vec<Result<Sent>> = self.0.iter_mut().map(|each| each.stop()).collect();
        let mut all = Sent::default();
        for sent in stopped {
            let sent = sent?;
            all.packets += sent.packets;
            all.time = all.time.max(sent.time);
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Sends what it is told to in a second.
    struct Told(f64);

    impl Generator for Told {
        fn start(&mut self, rate: Rate) -> Result<()> {
            self.0 = match rate {
                Rate::Max => 1000.0,
                Rate::PacketsPerSecond(rate) => rate,
            };
            Ok(())
        }

        fn stop(&mut self) -> Result<Sent> {
            Ok(Sent {
                packets: self.0 as u64,
                time: Duration::from_secs(1),
            })
        }
    }

    #[test]
    fn two_generators_share_a_rate_and_add_up() {
        let mut both = Generators::default();
        both.add(Told(0.0));
        both.add(Told(0.0));
        for (rate, sum) in [(Rate::PacketsPerSecond(300.0), 300), (Rate::Max, 2000)] {
            both.start(rate).unwrap();
            let sent = both.stop().unwrap();
            assert_eq!((sent.packets, sent.time), (sum, Duration::from_secs(1)));
        }
    }
}
