//! What a run leaves: one JSON line per record.

use std::{fs, path::Path};

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};

use super::{
    experiment::{Case, Experiment},
    subject::Subject,
    trial::Trial,
};

/// A line of the results file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub enum Record {
    /// The first line: where and of what.
    Run(Run),
    /// One trial.
    Trial {
        /// What was measured.
        key: Key,
        /// Number of the repeat, from 0.
        repeat: u32,
        /// What came of it.
        trial: Trial,
    },
    /// A result.
    Figure(Figure),
    /// Something that was not measured, and why.
    NotRun {
        /// Experiment.
        experiment: String,
        /// What was not measured.
        subject: Subject,
        /// In which case.
        case: Case,
        /// Why.
        reason: String,
        /// Whether it should have worked; if not, the machine lacks something, or it makes no sense.
        failed: bool,
    },
}

/// Reads a results file. A last line that was not written to its end, as an interrupted run may leave
/// it, is passed over.
///
/// # Errors
///
/// The file cannot be read, or another line is no record.
pub fn read(path: &Path) -> Result<Vec<Record>> {
    let text =
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut records = Vec::new();
    let mut lines = text.split_inclusive('\n').enumerate().peekable();
    while let Some((number, line)) = lines.next() {
        match serde_json::from_str(line) {
            Ok(record) => records.push(record),
            Err(_) if lines.peek().is_none() && !line.ends_with('\n') => {}
            Err(_) if line.trim().is_empty() => {}
            Err(error) => bail!("{}:{}: {error}", path.display(), number + 1),
        }
    }
    Ok(records)
}

/// Machine, program and configuration of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Start, RFC 3339, UTC.
    pub started: String,
    /// Version of sig.
    pub version: String,
    /// Commit of the source tree; with `+` if it had changes.
    pub commit: String,
    /// Kernel release.
    pub kernel: String,
    /// Processor model.
    pub cpu: String,
    /// Number of CPUs.
    pub cpus: u32,
    /// Quick or full.
    pub quick: bool,
    /// Experiment files and what was overridden on the command line.
    pub experiments: Vec<String>,
    /// What was to be measured.
    pub plan: Vec<Experiment>,
    /// Facts worth knowing: drivers, offloads, other load on the machine.
    pub notes: Vec<String>,
}

/// What a figure is of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Key {
    /// Experiment.
    pub experiment: String,
    /// What was measured.
    pub subject: Subject,
    /// The cell.
    pub case: Case,
    /// What was found out.
    pub metric: Metric,
}

/// What can be found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Highest rate at which no more than the experiment's share is lost, packets per second.
    Pdr,
    /// Highest rate without loss, packets per second.
    Ndr,
    /// Rate received under the highest load, packets per second.
    Mrr,
    /// Packets per second of the device's CPU time.
    PerCpuSecond,
    /// Run time of a BPF program per packet, microseconds.
    ProgramTime,
    /// Latency under load, microseconds, of half the packets.
    LatencyP50,
    /// … of 99 %.
    LatencyP99,
    /// Longest latency under load, microseconds.
    LatencyMax,
    /// Round trip of single pings, microseconds, mean.
    RttIdle,
    /// Flood ping, 65 outstanding: mean round trip, microseconds.
    FloodRttAvg,
    /// Flood ping: share of lost packets, percent.
    FloodLoss,
    /// iperf3 TCP, one stream, client A to B, bits per second.
    TcpForward,
    /// … B to A.
    TcpReverse,
    /// iperf3 UDP, both ways at once as fast as possible: received A to B, bits per second.
    UdpForward,
    /// … B to A.
    UdpReverse,
    /// Share of UDP datagrams lost, both directions, percent.
    UdpLoss,
    /// CPU seconds of the gateway processes per million packets.
    CpuProcess,
    /// CPU seconds of clients and gateways per million packets, with all soft interrupts.
    CpuAll,
    /// Time without delivery when one gateway is killed and started again under traffic, seconds.
    Outage,
}

/// What a metric counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Packets per second.
    PacketsPerSecond,
    /// Packets per second of CPU time.
    PacketsPerCpuSecond,
    /// Percent.
    Percent,
    /// Microseconds.
    Microseconds,
    /// Seconds.
    Seconds,
    /// CPU seconds per million packets.
    CpuSecondsPerMillion,
    /// Bits per second.
    BitsPerSecond,
}

impl Metric {
    /// What it is, its unit, and whether more is better.
    fn facts(self) -> (&'static str, Unit, bool) {
        use Metric::*;
        use Unit::*;
        match self {
            Pdr => ("highest rate with tolerated loss", PacketsPerSecond, true),
            Ndr => ("highest rate without loss", PacketsPerSecond, true),
            Mrr => (
                "rate received under the highest load",
                PacketsPerSecond,
                true,
            ),
            PerCpuSecond => ("packets per second of CPU time", PacketsPerCpuSecond, true),
            ProgramTime => ("run time of the program per packet", Microseconds, false),
            LatencyP50 => ("latency, median", Microseconds, false),
            LatencyP99 => ("latency, 99 %", Microseconds, false),
            LatencyMax => ("latency, longest", Microseconds, false),
            RttIdle => ("round trip of single pings", Microseconds, false),
            FloodRttAvg => ("flood ping, average round trip", Microseconds, false),
            FloodLoss => ("flood ping, loss", Percent, false),
            TcpForward => ("TCP, A to B", BitsPerSecond, true),
            TcpReverse => ("TCP, B to A", BitsPerSecond, true),
            UdpForward => ("UDP received, A to B", BitsPerSecond, true),
            UdpReverse => ("UDP received, B to A", BitsPerSecond, true),
            UdpLoss => ("UDP, loss", Percent, false),
            CpuProcess => (
                "CPU time of the gateway processes",
                CpuSecondsPerMillion,
                false,
            ),
            CpuAll => (
                "CPU time of clients and gateways",
                CpuSecondsPerMillion,
                false,
            ),
            Outage => ("time without delivery", Seconds, false),
        }
    }

    /// What it is, for the reader of a report.
    pub fn title(self) -> &'static str {
        self.facts().0
    }

    /// Its unit.
    pub fn unit(self) -> Unit {
        self.facts().1
    }

    /// Whether more is better; if not, less is.
    pub fn more_is_better(self) -> bool {
        self.facts().2
    }

    /// The name in records, such as `flood_rtt_avg`.
    pub fn name(self) -> String {
        serde_json::to_value(self)
            .ok()
            .and_then(|name| name.as_str().map(str::to_owned))
            .unwrap_or_default()
    }
}

/// A result: one value per repeat.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// What it is of.
    pub key: Key,
    /// In the metric's unit, in the order of the repeats. Repeats without a result are missing.
    pub values: Vec<f64>,
    /// Remarks, such as `tester-limited`, or why there are fewer values than repeats.
    pub notes: Vec<String>,
}

impl Figure {
    /// The middle value; none without values.
    pub fn median(&self) -> Option<f64> {
        median(&self.values)
    }

    /// The best value; none without values. What a fixed value is compared with: other users of a machine's host only ever take something
    /// away, and there is no other side from which they take the same.
    pub fn best(&self) -> Option<f64> {
        let values = self.values.iter().copied();
        if self.key.metric.more_is_better() {
            values.reduce(f64::max)
        } else {
            values.reduce(f64::min)
        }
    }

    /// Standard deviation of the sample; 0 for one value.
    pub fn deviation(&self) -> Option<f64> {
        let mean = mean(&self.values)?;
        let squares: f64 = self.values.iter().map(|value| (value - mean).powi(2)).sum();
        Some((squares / (self.values.len().max(2) - 1) as f64).sqrt())
    }
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// The middle value, of an even number the mean of both; none without values.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    if sorted.len() % 2 == 1 {
        return Some(upper);
    }
    Some((sorted[middle - 1] + upper) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[7.0]), Some(7.0));
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn the_best_is_the_most_or_the_least_and_the_deviation_that_of_a_sample() {
        let figure = |metric| Figure {
            key: Key {
                experiment: "one".into(),
                subject: Subject::Router,
                case: Case::of(124),
                metric,
            },
            values: vec![1.0, 3.0, 2.0],
            notes: Vec::new(),
        };
        assert_eq!(figure(Metric::Mrr).best(), Some(3.0));
        assert_eq!(figure(Metric::ProgramTime).best(), Some(1.0));
        assert_eq!(figure(Metric::Mrr).deviation(), Some(1.0));
    }
}
