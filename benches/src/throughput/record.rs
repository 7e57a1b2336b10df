//! What a run leaves: one JSON line per record.

use std::{fmt, fs, iter, path::Path, time::Duration};

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
        /// Seconds since the run started.
        at: f64,
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
    /// Seconds that the run was given; none: as many repeats as planned, however long they take.
    #[serde(default)]
    pub seconds: Option<f64>,
    /// Experiment files and what was overridden on the command line.
    pub experiments: Vec<String>,
    /// What was to be measured.
    #[serde(default)]
    pub plan: Vec<Experiment>,
    /// Hash of the configuration (all experiments).
    pub configuration: String,
    /// Facts worth knowing: drivers, offloads, other load on the machine.
    pub notes: Vec<String>,
}

impl Run {
    /// How long it may take; none: as long as it takes.
    pub fn length(&self) -> Option<Duration> {
        let seconds = self.seconds?;
        Duration::try_from_secs_f64(seconds).ok()
    }
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

impl fmt::Display for Key {
    /// `EXPERIMENT SUBJECT SIZE … METRIC`, with what differs from the usual.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.experiment, self.subject, self.case)?;
        write!(f, " {}", self.metric.name())
    }
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
    /// Delivery ratio at the rate of a sweep.
    DeliveryRatio,
    /// Packets per second of the device's CPU time.
    PerCpuSecond,
    /// Run time of a BPF program per packet, microseconds.
    ProgramTime,
    /// Latency under load, microseconds, of half the packets.
    LatencyP50,
    /// … of 99 %.
    LatencyP99,
    /// … of 99.9 %.
    LatencyP999,
    /// Shortest latency under load, microseconds.
    LatencyMin,
    /// Longest latency under load, microseconds.
    LatencyMax,
    /// Round trip of single pings, microseconds, mean.
    RttIdle,
    /// Flood ping, 65 outstanding: shortest round trip, microseconds.
    FloodRttMin,
    /// Mean.
    FloodRttAvg,
    /// Longest.
    FloodRttMax,
    /// Flood ping: share of lost packets, percent.
    FloodLoss,
    /// Flood ping: replies per second.
    FloodRate,
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
    /// CPU seconds of softirqs per million packets.
    CpuSoftirq,
    /// CPU seconds of the gateway processes and the softirqs together per million packets.
    CpuTotal,
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
    /// Share of one.
    Ratio,
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
    /// What it is, for the reader of a report.
    pub fn title(self) -> &'static str {
        use Metric::*;
        match self {
            Pdr => "highest rate with tolerated loss",
            Ndr => "highest rate without loss",
            Mrr => "rate received under the highest load",
            DeliveryRatio => "delivery ratio",
            PerCpuSecond => "packets per second of CPU time",
            ProgramTime => "run time of the program per packet",
            LatencyP50 => "latency, median",
            LatencyP99 => "latency, 99 %",
            LatencyP999 => "latency, 99.9 %",
            LatencyMin => "latency, shortest",
            LatencyMax => "latency, longest",
            RttIdle => "round trip of single pings",
            FloodRttMin => "flood ping, shortest round trip",
            FloodRttAvg => "flood ping, average round trip",
            FloodRttMax => "flood ping, longest round trip",
            FloodLoss => "flood ping, loss",
            FloodRate => "flood ping, replies",
            TcpForward => "TCP, A to B",
            TcpReverse => "TCP, B to A",
            UdpForward => "UDP received, A to B",
            UdpReverse => "UDP received, B to A",
            UdpLoss => "UDP, loss",
            CpuProcess => "CPU time of the gateway processes",
            CpuSoftirq => "CPU time of softirqs",
            CpuTotal => "CPU time of processes and softirqs",
            Outage => "time without delivery",
        }
    }

    /// Its unit.
    pub fn unit(self) -> Unit {
        use Metric::*;
        match self {
            Pdr | Ndr | Mrr | FloodRate => Unit::PacketsPerSecond,
            PerCpuSecond => Unit::PacketsPerCpuSecond,
            DeliveryRatio => Unit::Ratio,
            FloodLoss | UdpLoss => Unit::Percent,
            ProgramTime | LatencyP50 | LatencyP99 | LatencyP999 | LatencyMin | LatencyMax
            | RttIdle | FloodRttMin | FloodRttAvg | FloodRttMax => Unit::Microseconds,
            TcpForward | TcpReverse | UdpForward | UdpReverse => Unit::BitsPerSecond,
            CpuProcess | CpuSoftirq | CpuTotal => Unit::CpuSecondsPerMillion,
            Outage => Unit::Seconds,
        }
    }

    /// The name in records, such as `flood_rtt_avg`.
    pub fn name(self) -> String {
        serde_json::to_value(self)
            .ok()
            .and_then(|name| name.as_str().map(str::to_owned))
            .unwrap_or_default()
    }

    /// Whether more is better; if not, less is.
    pub fn more_is_better(self) -> bool {
        use Metric::*;
        matches!(
            self,
            Pdr | Ndr
                | Mrr
                | DeliveryRatio
                | PerCpuSecond
                | FloodRate
                | TcpForward
                | TcpReverse
                | UdpForward
                | UdpReverse
        )
    }

    /// What is typical of values: the geometric mean, the mean of values that are not all positive; none without values. Of TCP streams it is
    /// the median: one that waits for a retransmission by the clock is several times slower, and says nothing of what carries it.
    fn typical(self, values: &[f64]) -> Option<f64> {
        if matches!(self, Metric::TcpForward | Metric::TcpReverse) {
            median(values)
        } else if values.iter().all(|value| *value > 0.0) {
            let logarithms: Vec<f64> = values.iter().map(|value| value.ln()).collect();
            mean(&logarithms).map(f64::exp)
        } else {
            mean(values)
        }
    }
}

/// CPUs that a cache line takes less time between, in nanoseconds, share a cache.
const SHARED_CACHE: f64 = 80.0;

/// A result: one value per repeat.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// What it is of.
    pub key: Key,
    /// In the metric's unit, in the order of the repeats. Repeats without a result are missing.
    pub values: Vec<f64>,
    /// How far the CPUs were apart in each repeat, as in [`Trial::distance`]; empty where nobody looked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub distances: Vec<Option<f64>>,
    /// Remarks, such as `tester-limited`, or why there are fewer values than repeats.
    pub notes: Vec<String>,
}

impl Figure {
    /// The middle value; none without values.
    pub fn median(&self) -> Option<f64> {
        median(&self.values)
    }

    /// What comparisons are made of: the geometric mean, of TCP streams the median; none without values.
    pub fn typical(&self) -> Option<f64> {
        self.key.metric.typical(&self.values)
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

    /// How many times another figure this one is; none without values.
    ///
    /// It is the ratio of what is typical of both, in repeats that had the CPUs near each other, in those that had not and in
    /// those where nobody knows, averaged by how much each tells. What only one side had is left out.
    pub fn over(&self, other: &Self) -> Option<f64> {
        let typical = |values: &[f64]| self.key.metric.typical(values);
        let (mut sum, mut weights) = (0.0, 0.0);
        for is_near in [Some(true), Some(false), None] {
            let (above, below) = (self.at(is_near), other.at(is_near));
            if let (Some(a), Some(b)) = (typical(&above), typical(&below)) {
                let (n, m) = (above.len() as f64, below.len() as f64);
                let weight = n * m / (n + m);
                sum += weight * (a / b).ln();
                weights += weight;
            }
        }
        if weights > 0.0 && f64::is_finite(sum) {
            Some((sum / weights).exp())
        } else {
            Some(self.typical()? / other.typical()?)
        }
    }

    /// Values of the repeats that had the CPUs near each other, or not, or where nobody knows.
    fn at(&self, is_near: Option<bool>) -> Vec<f64> {
        let distances = self.distances.iter().copied().chain(iter::repeat(None));
        let repeats = self.values.iter().zip(distances);
        let chosen =
            repeats.filter(|(_, distance)| distance.map(|ns| ns < SHARED_CACHE) == is_near);
        chosen.map(|(value, _)| *value).collect()
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

    fn figure(values: &[f64], distances: &[f64]) -> Figure {
        Figure {
            key: Key {
                experiment: "one".into(),
                subject: Subject::XdpDrop,
                case: Case::of(100),
                metric: Metric::Mrr,
            },
            values: values.to_vec(),
            distances: distances.iter().copied().map(Some).collect(),
            notes: Vec::new(),
        }
    }

    fn near(value: Option<f64>, expected: f64) -> bool {
        value.is_some_and(|value| (value / expected - 1.0).abs() < 1e-9)
    }

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[7.0]), Some(7.0));
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn typical_is_the_geometric_mean_where_there_is_one_and_of_streams_the_median() {
        assert_eq!(figure(&[], &[]).typical(), None);
        assert!(near(figure(&[1.0, 4.0], &[]).typical(), 2.0));
        assert!(near(figure(&[0.0, 4.0], &[]).typical(), 2.0));
        let mut streams = figure(&[1.7, 0.2, 1.8], &[]);
        streams.key.metric = Metric::TcpForward;
        assert!(near(streams.typical(), 1.7));
        assert!(near(streams.over(&figure(&[3.4], &[])), 0.5));
    }

    #[test]
    fn best_is_the_most_or_the_least() {
        let mut figure = figure(&[2.0, 3.0, 1.0], &[]);
        assert_eq!(figure.best(), Some(3.0));
        figure.key.metric = Metric::ProgramTime;
        assert_eq!(figure.best(), Some(1.0));
        figure.values.clear();
        assert_eq!(figure.best(), None);
    }

    #[test]
    fn a_ratio_is_between_repeats_at_the_same_distance() {
        let (near_cpus, far) = (33.0, 150.0);
        // Twice as much at both distances, though one side was far most times and the other near.
        let slow = figure(&[10.0, 10.0, 4.0], &[near_cpus, near_cpus, far]);
        let fast = figure(&[20.0, 8.0, 8.0, 8.0], &[near_cpus, far, far, far]);
        assert!(near(fast.over(&slow), 2.0));
        assert!(near(slow.over(&fast), 0.5));
        // What has no counterpart says nothing.
        let only_near = figure(&[5.0], &[near_cpus]);
        assert!(near(fast.over(&only_near), 4.0));
        // Without a common distance, or any, everything is taken.
        let only_far = figure(&[8.0], &[far]);
        assert!(near(only_far.over(&only_near), 1.6));
        assert!(near(
            figure(&[8.0, 2.0], &[]).over(&figure(&[2.0], &[])),
            2.0
        ));
        assert_eq!(figure(&[], &[]).over(&only_near), None);
    }
}
