//! What a report shows, before it is HTML, Markdown or a plot.

mod series;

use std::collections::BTreeMap;

use super::number;
use crate::throughput::{
    experiment::{Algorithm, Case, Experiment, LatencyLoad, Scenario, Size},
    record::{Figure, Metric, Record, Run, Unit},
    subject::Subject,
    targets::{self, Target},
    trial::{Trial, Validity},
};
use series::{Cell, series, swept};

/// Everything a report shows.
pub struct View {
    /// Where and of what; none if the results have no first line.
    pub run: Option<Run>,
    /// The table of targets.
    pub targets: Vec<Target>,
    /// In the order in which they ran.
    pub experiments: Vec<Shown>,
}

/// An experiment with its results.
pub struct Shown {
    /// Its name.
    pub name: String,
    /// What it is about.
    pub title: String,
    /// What the file says; none in results without it.
    pub plan: Option<Experiment>,
    /// One for each metric.
    pub charts: Vec<Chart>,
    /// What was not measured, and why.
    pub not_run: Vec<String>,
    /// Trials, and those of them that do not count by reason.
    pub trials: usize,
    /// Reasons of trials that do not count, and how many.
    pub invalid: BTreeMap<String, usize>,
}

/// Values of one metric.
pub struct Chart {
    /// `EXPERIMENT-METRIC`.
    pub name: String,
    /// What the values are.
    pub title: String,
    /// Their unit.
    pub unit: Unit,
    /// What the points lie over.
    pub axis: Axis,
    /// One line, or one bar in each group.
    pub series: Vec<Series>,
    /// Number of the series that the others are compared with.
    pub limit: Option<usize>,
    /// Whether it is worth a plot of its own, besides the table.
    pub is_plotted: bool,
}

/// What the points of a chart lie over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Axis {
    /// Packet lengths.
    Size,
    /// Offered rates, packets per second.
    Rate,
}

/// Values of one subject.
pub struct Series {
    /// Subject, and parameters that differ between the series of the chart.
    pub label: String,
    /// What was measured.
    pub subject: Subject,
    /// How many series of the same subject come before.
    pub variant: usize,
    /// In the order of the axis.
    pub points: Vec<Point>,
}

/// One value with its spread.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// Place on the axis.
    pub x: X,
    /// Median of the repeats.
    pub median: f64,
    /// Standard deviation.
    pub deviation: f64,
    /// Number of repeats.
    pub count: usize,
    /// Remarks.
    pub notes: Vec<String>,
}

/// A place on the axis.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub enum X {
    /// A length.
    Size(Size),
    /// A rate, packets per second.
    Rate(f64),
}

impl View {
    /// Sorts records by experiments and metrics.
    pub fn of(records: &[Record]) -> Self {
        let run = records.iter().find_map(|record| match record {
            Record::Run(run) => Some(run.clone()),
            _ => None,
        });
        let mut names: Vec<&str> = Vec::new();
        for record in records {
            let name = match record {
                Record::Run(_) => continue,
                Record::Trial { key, .. } => &key.experiment,
                Record::Figure(figure) => &figure.key.experiment,
                Record::NotRun { experiment, .. } => experiment,
            };
            if !names.contains(&name.as_str()) {
                names.push(name);
            }
        }
        let plan = |name: &str| {
            let plans = run.iter().flat_map(|run| &run.plan);
            plans.into_iter().find(|plan| plan.name == name).cloned()
        };
        let experiments = names
            .into_iter()
            .map(|name| Shown::of(name, plan(name), records))
            .collect();
        View {
            targets: targets::targets(records),
            experiments,
            run,
        }
    }
}

impl Shown {
    /// What was measured, and how often, in a sentence; none in results without a plan.
    pub fn how(&self) -> Option<String> {
        let mut how = describe(self.plan.as_ref()?);
        let series = self.charts.iter().flat_map(|chart| &chart.series);
        let points = series.flat_map(|series| &series.points);
        let counts = points.map(|point| point.count);
        if let (Some(least), Some(most)) = (counts.clone().min(), counts.max()) {
            how += &match (least, most) {
                (1, 1) => "; once".to_owned(),
                (least, most) if least == most => format!("; {most} repeats"),
                _ => format!("; {least} to {most} repeats"),
            };
        }
        Some(how)
    }

    fn of(name: &str, plan: Option<Experiment>, records: &[Record]) -> Self {
        let mut shown = Shown {
            name: name.to_owned(),
            title: plan
                .as_ref()
                .map_or_else(|| name.to_owned(), |plan| plan.title.clone()),
            plan,
            charts: Vec::new(),
            not_run: Vec::new(),
            trials: 0,
            invalid: BTreeMap::new(),
        };
        let mut figures: Vec<&Figure> = Vec::new();
        let mut sweeps: Vec<(Subject, &Case, &Trial)> = Vec::new();
        for record in records {
            match record {
                Record::Figure(figure) if figure.key.experiment == name => figures.push(figure),
                Record::Trial { key, trial, .. } if key.experiment == name => {
                    shown.trials += 1;
                    if let Validity::Invalid(reason) = &trial.validity {
                        *shown.invalid.entry(reason.clone()).or_default() += 1;
                    } else if key.metric == Metric::DeliveryRatio {
                        sweeps.push((key.subject, &key.case, trial));
                    }
                }
                Record::NotRun {
                    experiment,
                    subject,
                    case,
                    reason,
                    ..
                } if experiment == name => {
                    shown.not_run.push(format!("{subject}, {case}: {reason}"));
                }
                _ => {}
            }
        }
        let mut metrics: Vec<Metric> = Vec::new();
        for figure in &figures {
            let metric = figure.key.metric;
            if metric != Metric::DeliveryRatio && !metrics.contains(&metric) {
                metrics.push(metric);
            }
        }
        metrics.sort();
        for metric in metrics {
            let cells = figures.iter().filter(|figure| figure.key.metric == metric);
            let cells = cells.filter_map(|figure| {
                Some(Cell {
                    subject: figure.key.subject,
                    case: &figure.key.case,
                    point: Point {
                        x: X::Size(figure.key.case.size),
                        median: figure.median()?,
                        deviation: figure.deviation()?,
                        count: figure.values.len(),
                        notes: figure.notes.clone(),
                    },
                })
            });
            shown.chart(metric, Axis::Size, cells.collect());
        }
        if !sweeps.is_empty() {
            shown.chart(Metric::DeliveryRatio, Axis::Rate, swept(&sweeps));
        }
        shown
    }

    fn chart(&mut self, metric: Metric, axis: Axis, cells: Vec<Cell<'_>>) {
        let series = series(&cells, axis);
        if series.is_empty() {
            return;
        }
        let limit = [
            Subject::AfXdpForward,
            Subject::ChainIp,
            Subject::ChainReference,
        ]
        .into_iter()
        .find_map(|limit| {
            let place = series.iter().position(|series| series.subject == limit)?;
            let others = series.iter().filter(|series| series.subject != limit);
            (others.count() > 0).then_some(place)
        });
        self.charts.push(Chart {
            name: format!("{}-{}", self.name, metric.name().replace('_', "-")),
            title: metric.title().to_owned(),
            unit: metric.unit(),
            axis,
            series,
            limit,
            is_plotted: !matches!(
                metric,
                Metric::LatencyMin | Metric::LatencyP999 | Metric::LatencyMax
            ),
        });
    }
}

impl Chart {
    /// All places on the axis that have a value, in order.
    pub fn places(&self) -> Vec<X> {
        let mut places: Vec<X> = Vec::new();
        for point in self.series.iter().flat_map(|series| &series.points) {
            if !places.contains(&point.x) {
                places.push(point.x);
            }
        }
        places.sort_by(|a, b| a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal));
        places
    }

    /// The value of a series divided by that of the limit at the same place.
    pub fn of_limit(&self, series: usize, x: X) -> Option<f64> {
        let limit = self.limit.filter(|limit| *limit != series)?;
        let ratio = self.series.get(series)?.at(x)?.median / self.series.get(limit)?.at(x)?.median;
        ratio.is_finite().then_some(ratio)
    }
}

impl Series {
    /// The value at a place.
    pub fn at(&self, x: X) -> Option<&Point> {
        self.points.iter().find(|point| point.x == x)
    }
}

impl X {
    /// For tables and legends.
    pub fn label(self) -> String {
        match self {
            X::Size(size) => size.to_string(),
            X::Rate(rate) => format!("{}pps", super::number::si(rate)),
        }
    }

    /// On a scale; none for mixes of lengths.
    pub fn position(self) -> Option<f64> {
        match self {
            X::Size(Size::Fixed(bytes)) => Some(bytes.into()),
            X::Size(Size::Mix(_)) => None,
            X::Rate(rate) => Some(rate),
        }
    }
}

/// What an experiment measures.
fn describe(plan: &Experiment) -> String {
    let seconds = plan.seconds;
    match &plan.algorithm {
        Algorithm::Pdr { loss_percent } => format!(
            "highest rate with at most {loss_percent} % loss, to {} %, trials of {seconds} s",
            plan.resolution_percent
        ),
        Algorithm::Ndr => format!(
            "highest rate without loss, to {} %, trials of {seconds} s",
            plan.resolution_percent
        ),
        Algorithm::Mrr => format!("rate received under the highest load, {seconds} s"),
        Algorithm::Sweep { rates } => {
            format!(
                "delivery ratio at {} rates, trials of {seconds} s",
                rates.len()
            )
        }
        Algorithm::Latency(LatencyLoad::Rate(rate)) => {
            format!("latency at {}pps, {seconds} s", number::si(*rate))
        }
        Algorithm::Latency(LatencyLoad::ShareOfMrr(share)) => format!(
            "latency at {} % of the rate received under the highest load, {seconds} s",
            number::digits(100.0 * share)
        ),
        Algorithm::PerCpuSecond { rate } => {
            let load = rate.map_or("the highest load".to_owned(), |rate| {
                format!("{}pps", number::si(rate))
            });
            format!("packets per second of CPU time under {load}, {seconds} s")
        }
        Algorithm::ProgramTime => "run time of the BPF program, highest load".to_owned(),
        Algorithm::Pipeline => format!("in memory, {seconds} s of the worker's own time"),
        Algorithm::Scenario(Scenario::RttIdle { packets }) => format!("{packets} single pings"),
        Algorithm::Scenario(Scenario::FloodPing { packets }) => {
            format!("flood ping, {packets} packets, 65 outstanding")
        }
        Algorithm::Scenario(Scenario::Tcp) => {
            format!("iperf3, one TCP stream, {seconds} s each way")
        }
        Algorithm::Scenario(Scenario::Udp) => {
            format!("iperf3, UDP both ways at once, as fast as possible, {seconds} s")
        }
        Algorithm::Scenario(Scenario::Cpu { rate }) => {
            format!("CPU time at {}pps, {seconds} s", number::si(*rate))
        }
        Algorithm::Scenario(Scenario::Restart { rate }) => {
            format!(
                "one gateway is killed and started again under {}pps",
                number::si(*rate)
            )
        }
    }
}
