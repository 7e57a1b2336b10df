//! Reading experiment files.

use std::{fmt::Display, ops::RangeInclusive};

use serde::Deserialize;
use toml::de::DeTable;

pub use super::place::Problem;
use super::{
    Algorithm, Cpus, Experiment, Family, LatencyLoad, Layout, Mix, Scenario, Size, place,
    plan::Name,
};
use crate::throughput::subject::Subject;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    experiment: Vec<Written>,
}

/// An experiment as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    name: String,
    title: Option<String>,
    subjects: Vec<Subject>,
    algorithm: Name,
    loss_percent: Option<f64>,
    rates: Option<Vec<f64>>,
    rate: Option<f64>,
    share_of_mrr: Option<f64>,
    packets: Option<u32>,
    sizes: Option<Vec<Size>>,
    families: Option<Vec<Family>>,
    flows: Option<Vec<u16>>,
    packed: Option<Vec<bool>>,
    workers: Option<Vec<u16>>,
    layouts: Option<Vec<Layout>>,
    cpus: Option<Cpus>,
    repeats: Option<u32>,
    rounds: Option<u32>,
    spread: Option<bool>,
    seconds: Option<f64>,
    start_rate: Option<f64>,
    max_rate: Option<f64>,
    resolution_percent: Option<f64>,
    steps: Option<u32>,
    votes: Option<u32>,
    confirmations: Option<u32>,
}

/// Reads the text of an experiment file; `file` is its name for messages.
///
/// # Errors
///
/// Everything that is wrong, in the order of the experiments: unknown and missing keys, wrong types,
/// empty lists, values out of range, keys that mean nothing to the algorithm. What does not fit the
/// shape of a file at all is reported alone.
pub fn read(file: &str, text: &str) -> Result<Vec<Experiment>, Vec<Problem>> {
    let refuse = |table: Option<&DeTable<'_>>, error: &toml::de::Error| {
        let at = error.span().map_or(0, |span| span.start);
        vec![Problem {
            file: file.to_owned(),
            line: place::line(text, at),
            key: table.map_or_else(String::new, |table| place::key_at(table, at)),
            message: error.message().trim().replace('\n', " "),
        }]
    };
    let table = DeTable::parse(text).map_err(|error| refuse(None, &error))?;
    let table = table.get_ref();
    let written: File = toml::from_str(text).map_err(|error| refuse(Some(table), &error))?;
    let mut problems = Vec::new();
    let mut experiments: Vec<Experiment> = Vec::new();
    if written.experiment.is_empty() {
        problems.push(Problem {
            file: file.to_owned(),
            line: 1,
            key: "experiment".to_owned(),
            message: "no experiment; write one [[experiment]] section each".to_owned(),
        });
    }
    for (index, written) in written.experiment.into_iter().enumerate() {
        let mut check = Check::default();
        let experiment = check.experiment(written);
        if experiments
            .iter()
            .any(|other| other.name == experiment.name)
        {
            check.refuse("name", format!("\"{}\" is taken", experiment.name));
        }
        for (key, message) in check.problems {
            problems.push(Problem {
                file: file.to_owned(),
                line: place::line(text, place::of_key(table, index, key)),
                key: format!("experiment[{index}].{key}"),
                message,
            });
        }
        experiments.push(experiment);
    }
    if problems.is_empty() {
        Ok(experiments)
    } else {
        Err(problems)
    }
}

/// Collects what is wrong with one experiment: key and message.
#[derive(Default)]
struct Check {
    problems: Vec<(&'static str, String)>,
}

impl Check {
    fn refuse(&mut self, key: &'static str, message: impl Into<String>) {
        self.problems.push((key, message.into()));
    }

    /// `value`, or `default` if it is not written; must lie in `range`.
    fn within<T: PartialOrd + Display>(
        &mut self,
        key: &'static str,
        value: Option<T>,
        default: T,
        range: RangeInclusive<T>,
    ) -> T {
        let value = value.unwrap_or(default);
        if !range.contains(&value) {
            let (low, high) = (range.start(), range.end());
            self.refuse(
                key,
                format!("{value} is out of range; write {low} to {high}"),
            );
        }
        value
    }

    /// A list that is not empty, has nothing twice and, where a range is given, lies in it.
    fn list<T: PartialEq>(
        &mut self,
        key: &'static str,
        list: Option<Vec<T>>,
        default: T,
        problem: impl Fn(&T) -> Option<String>,
    ) -> Vec<T> {
        let list = list.unwrap_or_else(|| vec![default]);
        if list.is_empty() {
            self.refuse(key, "the list is empty; remove the key or write a value");
        }
        for (n, element) in list.iter().enumerate() {
            if list[..n].contains(element) {
                self.refuse(key, format!("element {n} is there twice"));
            }
            if let Some(message) = problem(element) {
                self.refuse(key, message);
            }
        }
        list
    }

    fn experiment(&mut self, written: Written) -> Experiment {
        let algorithm = self.algorithm(&written);
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '-';
        if written.name.is_empty() || !written.name.chars().all(is_name) {
            self.refuse("name", "write letters, digits and -");
        }
        let subjects = self.list("subjects", Some(written.subjects), Subject::XdpDrop, |_| {
            None
        });
        for subject in &subjects {
            if let Some(message) = misfit(*subject, &algorithm) {
                self.refuse("subjects", message);
            }
        }
        let families = self.list("families", written.families, Family::Ipv4, |_| None);
        let shortest = if families.contains(&Family::Ipv6) {
            64
        } else {
            44
        };
        let sizes = self.list(
            "sizes",
            written.sizes,
            Size::Fixed(100),
            |size| match size {
                Size::Fixed(bytes) if !(shortest..=1500).contains(bytes) => Some(format!(
                    "{bytes} is out of range; write {shortest} to 1500, the bytes of an IP packet"
                )),
                Size::Mix(Mix::Imix) if shortest > 44 => {
                    Some("imix holds packets too short for IPv6".to_owned())
                }
                _ => None,
            },
        );
        let count = |most: u16| {
            move |value: &u16| {
                (!(1..=most).contains(value))
                    .then(|| format!("{value} is out of range; write 1 to {most}"))
            }
        };
        let start_rate = self.within("start_rate", written.start_rate, 1_000.0, 1.0..=1e8);
        if let Some(max_rate) = written.max_rate {
            self.within("max_rate", Some(max_rate), 0.0, start_rate..=1e9);
        }
        let cpus = written.cpus.unwrap_or_default();
        if cpus.tester == cpus.device && !matches!(algorithm, Algorithm::Scenario(_)) {
            self.refuse("cpus", "tester and device need CPUs of their own");
        }
        let votes = self.within("votes", written.votes, 1, 1..=9);
        if votes.is_multiple_of(2) {
            self.refuse(
                "votes",
                format!("{votes} may be a tie; write an odd number"),
            );
        }
        let spread = written.spread.unwrap_or_default();
        if spread && subjects.iter().any(|subject| subject.is_chain()) {
            self.refuse("spread", "chains do not stand beside others");
        }
        let repeats = self.within("repeats", written.repeats, 3, 1..=1000);
        let rounds = self.within("rounds", written.rounds, 1, 1..=repeats.max(1));
        if spread && written.rounds.is_some() {
            self.refuse(
                "rounds",
                "means nothing to repeats that are spread over the run",
            );
        }
        if let Some(steps) = written.steps {
            self.within("steps", Some(steps), 0, 1..=1000);
        }
        for (key, is_written) in [
            ("votes", written.votes.is_some()),
            ("confirmations", written.confirmations.is_some()),
        ] {
            if is_written && written.steps.is_some() {
                self.refuse(key, "means nothing to a search in steps");
            }
        }
        Experiment {
            title: written.title.unwrap_or_else(|| written.name.clone()),
            name: written.name,
            subjects,
            algorithm,
            sizes,
            families,
            flows: self.list("flows", written.flows, 1, count(4096)),
            packed: self.list("packed", written.packed, false, |_| None),
            workers: self.list("workers", written.workers, 1, count(64)),
            layouts: self.list("layouts", written.layouts, Layout::Split, |_| None),
            cpus,
            repeats,
            rounds,
            spread,
            seconds: self.within("seconds", written.seconds, 2.0, 0.1..=3600.0),
            start_rate,
            max_rate: written.max_rate,
            resolution_percent: self.within(
                "resolution_percent",
                written.resolution_percent,
                5.0,
                0.1..=50.0,
            ),
            steps: written.steps,
            votes,
            confirmations: self.within("confirmations", written.confirmations, 0, 0..=10),
        }
    }

    fn algorithm(&mut self, written: &Written) -> Algorithm {
        use Name::*;
        let name = written.algorithm;
        let of_others: [(&str, bool, &[Name]); 5] = [
            ("loss_percent", written.loss_percent.is_some(), &[Pdr]),
            ("rates", written.rates.is_some(), &[Sweep]),
            (
                "rate",
                written.rate.is_some(),
                &[Latency, PerCpuSecond, Cpu, Restart],
            ),
            ("share_of_mrr", written.share_of_mrr.is_some(), &[Latency]),
            ("packets", written.packets.is_some(), &[RttIdle, FloodPing]),
        ];
        for (key, is_written, algorithms) in of_others {
            if is_written && !algorithms.contains(&name) {
                self.refuse(key, "means nothing to this algorithm; remove it");
            }
        }
        match name {
            Pdr => Algorithm::Pdr {
                loss_percent: self.within("loss_percent", written.loss_percent, 0.5, 0.001..=50.0),
            },
            Ndr => Algorithm::Ndr,
            Mrr => Algorithm::Mrr,
            Sweep => Algorithm::Sweep {
                rates: self.rates(written.rates.clone()),
            },
            Latency => Algorithm::Latency(match (written.rate, written.share_of_mrr) {
                (Some(_), Some(_)) => {
                    self.refuse("rate", "write either rate or share_of_mrr");
                    LatencyLoad::Rate(1.0)
                }
                (Some(rate), None) => LatencyLoad::Rate(self.rate(Some(rate), rate)),
                (None, share) => {
                    LatencyLoad::ShareOfMrr(self.within("share_of_mrr", share, 0.5, 0.01..=1.0))
                }
            }),
            PerCpuSecond => Algorithm::PerCpuSecond {
                rate: written.rate.map(|rate| self.rate(Some(rate), rate)),
            },
            ProgramTime => Algorithm::ProgramTime,
            Pipeline => Algorithm::Pipeline,
            RttIdle => Algorithm::Scenario(Scenario::RttIdle {
                packets: self.within("packets", written.packets, 200, 10..=100_000),
            }),
            FloodPing => Algorithm::Scenario(Scenario::FloodPing {
                packets: self.within("packets", written.packets, 50_000, 100..=10_000_000),
            }),
            Tcp => Algorithm::Scenario(Scenario::Tcp),
            Udp => Algorithm::Scenario(Scenario::Udp),
            Cpu => Algorithm::Scenario(Scenario::Cpu {
                rate: self.rate(written.rate, 5_000.0),
            }),
            Restart => Algorithm::Scenario(Scenario::Restart {
                rate: self.rate(written.rate, 1_000.0),
            }),
        }
    }

    fn rate(&mut self, rate: Option<f64>, default: f64) -> f64 {
        self.within("rate", rate, default, 1.0..=1e9)
    }

    fn rates(&mut self, rates: Option<Vec<f64>>) -> Vec<f64> {
        let Some(rates) = rates else {
            self.refuse("rates", "missing; write for example [10000, 100000]");
            return Vec::new();
        };
        self.list("rates", Some(rates), 1.0, |rate| {
            (!(1.0..=1e9).contains(rate))
                .then(|| format!("{rate} is out of range; write 1 to 1000000000"))
        })
    }
}

/// Why a subject cannot be measured with an algorithm.
fn misfit(subject: Subject, algorithm: &Algorithm) -> Option<String> {
    match algorithm {
        Algorithm::Pipeline => (!subject.is_pipeline())
            .then(|| format!("{subject} has packets go over devices: write pipeline-… here")),
        Algorithm::ProgramTime if !subject.is_program() => {
            Some(format!("{subject} is no single BPF program"))
        }
        _ if subject.is_pipeline() => Some(format!(
            "{subject} is measured with the algorithm \"pipeline\" only"
        )),
        Algorithm::Scenario(_) => (!subject.is_chain())
            .then(|| format!("{subject} is no chain of two sites: write chain-… here")),
        _ => None,
    }
}
