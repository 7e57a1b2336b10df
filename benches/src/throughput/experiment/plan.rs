//! What an experiment file says.

use serde::{Deserialize, Serialize};

use super::{Case, Cpus, Family, Layout, Size};
use crate::throughput::subject::Subject;

/// One experiment: subjects that are measured side by side, in every combination of the lists.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Experiment {
    /// Short, unique within a run: letters, digits, `-`.
    pub name: String,
    /// For the reader of the report.
    pub title: String,
    /// What is measured.
    pub subjects: Vec<Subject>,
    /// How.
    pub algorithm: Algorithm,
    /// Lengths of inner packets.
    pub sizes: Vec<Size>,
    /// Families of inner packets.
    pub families: Vec<Family>,
    /// Numbers of flows.
    pub flows: Vec<u16>,
    /// Several inner packets in a frame, or one.
    pub packed: Vec<bool>,
    /// Workers; subjects without are measured once.
    pub workers: Vec<u16>,
    /// Where the device under test runs.
    pub layouts: Vec<Layout>,
    /// On which CPUs.
    pub cpus: Cpus,
    /// How often everything is measured; in a run of a given length, for which share of it.
    pub repeats: u32,
    /// Parts that the repeats are measured in, each over all groups. Those of neighbouring experiments that have several take turns.
    #[serde(default = "one")]
    pub rounds: u32,
    /// The repeats are spread over the run, between other experiments.
    #[serde(default)]
    pub spread: bool,
    /// Measured time of a trial; a fifth of it is spent under load before.
    pub seconds: f64,
    /// Where searches start, packets per second: the least that anything is expected to do.
    pub start_rate: f64,
    /// Highest rate of searches, packets per second; none: what the generator can.
    pub max_rate: Option<f64>,
    /// Searches end when the interval is this share of the rate, percent.
    pub resolution_percent: f64,
    /// Trials of a repeat that walks up and down around the result; none: searches bisect.
    pub steps: Option<u32>,
    /// Trials at each rate of a search, of which more than half must pass.
    pub votes: u32,
    /// How often the result of a search must pass again, in trials three times as long.
    pub confirmations: u32,
}

/// How something is measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Algorithm {
    /// Highest rate with at most this loss.
    Pdr {
        /// Percent.
        loss_percent: f64,
    },
    /// Highest rate without loss.
    Ndr,
    /// Rate received under the highest load.
    Mrr,
    /// Delivery ratio at each of these rates, packets per second.
    Sweep {
        /// In the order of the file.
        rates: Vec<f64>,
    },
    /// Latency under load.
    Latency(LatencyLoad),
    /// Packets per second of the device's CPU time.
    PerCpuSecond {
        /// Load, packets per second; none: as much as possible.
        rate: Option<f64>,
    },
    /// Run time of a BPF program per packet under the highest load.
    ProgramTime,
    /// The worker alone, in memory.
    Pipeline,
    /// Over the chain of two sites.
    Scenario(Scenario),
}

/// The load under which latency is measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LatencyLoad {
    /// Packets per second.
    Rate(f64),
    /// Share of what the subject receives under the highest load, 0 to 1.
    ShareOfMrr(f64),
}

/// Scenarios over the chain of two sites.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scenario {
    /// Single pings.
    RttIdle {
        /// How many.
        packets: u32,
    },
    /// Flood ping, 65 outstanding.
    FloodPing {
        /// How many.
        packets: u32,
    },
    /// iperf3, one TCP stream, either way.
    Tcp,
    /// iperf3, UDP as fast as possible, both ways at once.
    Udp,
    /// CPU time under a load that everything can carry.
    Cpu {
        /// Packets per second.
        rate: f64,
    },
    /// One gateway is killed and started again under traffic.
    Restart {
        /// Packets per second of the traffic.
        rate: f64,
    },
}

/// Names of algorithms in files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Name {
    Pdr,
    Ndr,
    Mrr,
    Sweep,
    Latency,
    PerCpuSecond,
    ProgramTime,
    Pipeline,
    RttIdle,
    FloodPing,
    Tcp,
    Udp,
    Cpu,
    Restart,
}

impl Experiment {
    /// Groups of subjects and cases that are measured in turns, so that what changes on the machine
    /// over time hits all of them alike.
    pub fn groups(&self) -> Vec<Vec<(Subject, Case)>> {
        let mut groups = Vec::new();
        for &layout in &self.layouts {
            for &packed in &self.packed {
                for &flows in &self.flows {
                    for &family in &self.families {
                        for &size in &self.sizes {
                            let case = |&workers: &u16| Case {
                                size,
                                family,
                                flows,
                                packed,
                                workers,
                                layout,
                                cpus: self.cpus,
                            };
                            groups.push(self.columns(case));
                        }
                    }
                }
            }
        }
        groups
    }

    fn columns(&self, case: impl Fn(&u16) -> Case) -> Vec<(Subject, Case)> {
        let columns = self.subjects.iter().flat_map(|&subject| {
            let count = if subject.has_workers() {
                self.workers.len()
            } else {
                1
            };
            let workers = self.workers.iter().take(count);
            workers
                .map(|workers| (subject, workers))
                .collect::<Vec<_>>()
        });
        columns
            .map(|(subject, workers)| (subject, case(workers)))
            .collect()
    }

    /// Roughly how long one repeat of one subject and case takes, seconds.
    pub fn estimate(&self) -> f64 {
        let trial = 1.2 * self.seconds + 0.12;
        match &self.algorithm {
            Algorithm::Pdr { .. } | Algorithm::Ndr => match self.steps {
                Some(steps) => f64::from(steps) * trial,
                None => (4.0 * f64::from(self.votes) + 3.0 * f64::from(self.confirmations)) * trial,
            },
            Algorithm::Mrr | Algorithm::PerCpuSecond { .. } | Algorithm::ProgramTime => trial,
            Algorithm::Sweep { rates } => rates.len() as f64 * trial,
            Algorithm::Latency(LatencyLoad::Rate(_)) => trial,
            Algorithm::Latency(LatencyLoad::ShareOfMrr(_)) => 2.0 * trial,
            Algorithm::Pipeline => 3.0 * self.seconds,
            Algorithm::Scenario(scenario) => match scenario {
                // Three for sig, eleven for the reference.
                Scenario::Restart { .. } => 5.0,
                // iperf3 takes whole seconds, one each way.
                Scenario::Tcp => 2.0 * trial.ceil(),
                Scenario::Udp | Scenario::Cpu { .. } => trial,
                Scenario::RttIdle { packets } => f64::from(*packets) / 100.0 + 0.15,
                // The slowest gateway, sig takes a fifth.
                Scenario::FloodPing { packets } => f64::from(*packets) * 50e-6 + 0.15,
            },
        }
    }
}

/// As before there were several.
fn one() -> u32 {
    1
}
