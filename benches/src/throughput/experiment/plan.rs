//! What an experiment file says.

use serde::{Deserialize, Serialize};

use super::{Behavior, Case, Cpus, Family, Layout, Size};
use crate::throughput::subject::Subject;

/// One experiment: subjects that are measured side by side, in every combination of the lists.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// Short, unique within a run: letters, digits, `-`.
    pub name: String,
    /// For the reader of the report.
    #[serde(default)]
    pub title: String,
    /// What is measured.
    pub subjects: Vec<Subject>,
    /// How.
    pub algorithm: Algorithm,
    /// Lengths of inner packets.
    #[serde(default = "list::<Size>")]
    pub sizes: Vec<Size>,
    /// Families of inner packets.
    #[serde(default = "list::<Family>")]
    pub families: Vec<Family>,
    /// Numbers of flows.
    #[serde(default = "ones")]
    pub flows: Vec<u16>,
    /// Several inner packets in a frame, or one.
    #[serde(default = "list::<bool>")]
    pub packed: Vec<bool>,
    /// Workers; subjects without are measured once.
    #[serde(default = "ones")]
    pub workers: Vec<u16>,
    /// What SR nodes do; other subjects are measured once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub behaviors: Vec<Behavior>,
    /// Where the device under test runs.
    #[serde(default = "list::<Layout>")]
    pub layouts: Vec<Layout>,
    /// On which CPUs.
    #[serde(default)]
    pub cpus: Cpus,
    /// How often everything is measured.
    #[serde(default = "three")]
    pub repeats: u32,
    /// Measured time of a trial; a fifth of it is spent under load before.
    #[serde(default = "two_seconds")]
    pub seconds: f64,
    /// [`Algorithm::Pdr`]: tolerated loss, percent.
    #[serde(default = "half_a_percent")]
    pub loss_percent: f64,
    /// Where searches start, packets per second.
    #[serde(default = "thousand")]
    pub start_rate: f64,
    /// Highest rate of searches, packets per second; none: what the generator can.
    pub max_rate: Option<f64>,
    /// Searches end when the interval is this share of the rate, percent.
    #[serde(default = "five_percent")]
    pub resolution_percent: f64,
    /// Trials at each rate of a search, of which more than half must pass.
    #[serde(default = "one")]
    pub votes: u32,
    /// See [`Experiment::rate`].
    pub rate: Option<f64>,
    /// See [`Experiment::packets`].
    pub packets: Option<u32>,
}

fn list<T: Default>() -> Vec<T> {
    vec![T::default()]
}

fn ones() -> Vec<u16> {
    vec![1]
}

fn one() -> u32 {
    1
}

fn three() -> u32 {
    3
}

fn two_seconds() -> f64 {
    2.0
}

fn half_a_percent() -> f64 {
    0.5
}

fn thousand() -> f64 {
    1000.0
}

fn five_percent() -> f64 {
    5.0
}

/// How something is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Algorithm {
    /// Highest rate with tolerated loss.
    Pdr,
    /// Highest rate without loss.
    Ndr,
    /// Rate received under the highest load.
    Mrr,
    /// Latency under load.
    Latency,
    /// Run time of a BPF program per packet under the highest load.
    ProgramTime,
    /// The worker alone, in memory.
    Pipeline,
    /// Scenario: single pings.
    RttIdle,
    /// Scenario: flood ping, 65 outstanding.
    FloodPing,
    /// Scenario: iperf3, one TCP stream, either way.
    Tcp,
    /// Scenario: iperf3, UDP as fast as possible, both ways at once.
    Udp,
    /// Scenario: CPU time under a load that everything can carry.
    Cpu,
    /// Scenario: one gateway is killed and started again under traffic.
    Restart,
}

impl Algorithm {
    /// Whether it is measured over the chain of two sites, without generator and sink.
    pub fn is_scenario(self) -> bool {
        use Algorithm::*;
        matches!(self, RttIdle | FloodPing | Tcp | Udp | Cpu | Restart)
    }
}

impl Experiment {
    /// Load of algorithms with one rate, packets per second.
    pub fn rate(&self) -> f64 {
        self.rate.unwrap_or(match self.algorithm {
            Algorithm::Restart => 1000.0,
            Algorithm::Cpu => 5000.0,
            _ => 10_000.0,
        })
    }

    /// Number of pings.
    pub fn packets(&self) -> u32 {
        self.packets.unwrap_or(match self.algorithm {
            Algorithm::FloodPing => 50_000,
            _ => 200,
        })
    }

    /// Groups of subjects and cases that are measured in turns, so that what changes on the machine
    /// over time hits all of them alike.
    pub fn groups(&self) -> Vec<Vec<(Subject, Case)>> {
        let mut groups = Vec::new();
        for &layout in &self.layouts {
            for &packed in &self.packed {
                for &flows in &self.flows {
                    for &family in &self.families {
                        for &size in &self.sizes {
                            let case = |workers, behavior| Case {
                                size,
                                family,
                                flows,
                                packed,
                                workers,
                                layout,
                                cpus: self.cpus,
                                behavior,
                            };
                            groups.push(self.columns(case));
                        }
                    }
                }
            }
        }
        groups
    }

    fn columns(&self, case: impl Fn(u16, Option<Behavior>) -> Case) -> Vec<(Subject, Case)> {
        let mut columns = Vec::new();
        for &subject in &self.subjects {
            let count = if subject.has_workers() {
                self.workers.len()
            } else {
                1
            };
            let behaviors: Vec<_> = match subject.has_behaviors() {
                true => self.behaviors.iter().copied().map(Some).collect(),
                false => vec![None],
            };
            for &workers in self.workers.iter().take(count) {
                let cases = behaviors.iter().map(|behavior| case(workers, *behavior));
                columns.extend(cases.map(|case| (subject, case)));
            }
        }
        columns
    }

    /// Roughly how long one repeat of one subject and case takes, seconds.
    pub fn estimate(&self) -> f64 {
        let trial = 1.2 * self.seconds + 0.12;
        match self.algorithm {
            Algorithm::Pdr | Algorithm::Ndr => 5.0 * f64::from(self.votes) * trial,
            Algorithm::Pipeline => 3.0 * self.seconds,
            // Three for sig, eleven for the reference.
            Algorithm::Restart => 5.0,
            // iperf3 takes whole seconds, one each way.
            Algorithm::Tcp => 2.0 * trial.ceil(),
            Algorithm::RttIdle => f64::from(self.packets()) / 100.0 + 0.15,
            // The slowest gateway, sig takes a fifth.
            Algorithm::FloodPing => f64::from(self.packets()) * 50e-6 + 0.15,
            _ => trial,
        }
    }
}
