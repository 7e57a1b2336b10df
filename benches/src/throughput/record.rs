//! What a run leaves: one JSON line per record.

use std::{fmt, fs, path::Path};

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

    /// What ratios are made of; none without values. Of searches the mean. Of all else what the best tenth of the repeats
    /// reaches, the lowest where less is better: other users of a machine only ever take away, some tenths of a core for
    /// tenths of a second, so this varies far less from run to run.
    pub fn undisturbed(&self) -> Option<f64> {
        let share = match self.key.metric {
            // One lucky trial lifts a search, so it errs to both sides.
            Metric::Pdr | Metric::Ndr => return self.mean(),
            metric if metric.more_is_better() => 0.9,
            _ => 0.1,
        };
        quantile(&self.values, share)
    }

    /// Mean; none without values.
    pub fn mean(&self) -> Option<f64> {
        (!self.values.is_empty())
            .then(|| self.values.iter().sum::<f64>() / self.values.len() as f64)
    }

    /// Standard deviation of the sample; 0 for one value.
    pub fn deviation(&self) -> Option<f64> {
        let mean = self.mean()?;
        let squares: f64 = self.values.iter().map(|value| (value - mean).powi(2)).sum();
        Some((squares / (self.values.len().max(2) - 1) as f64).sqrt())
    }
}

/// The middle value, of an even number the mean of both; none without values.
pub fn median(values: &[f64]) -> Option<f64> {
    quantile(values, 0.5)
}

/// The value that `share` of the values are not above, between two values in proportion; none without values.
fn quantile(values: &[f64], share: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let place = share * sorted.len().saturating_sub(1) as f64;
    let lower = *sorted.get(place.floor() as usize)?;
    let upper = *sorted.get(place.ceil() as usize)?;
    Some(lower + (upper - lower) * place.fract())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_between_values_in_proportion() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[7.0]), Some(7.0));
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(quantile(&[1.0, 2.0, 3.0, 4.0, 5.0], 0.75), Some(4.0));
        assert_eq!(quantile(&[1.0, 2.0], 0.75), Some(1.75));
    }
}
