//! What a report shows, before it is text or a plot.

use std::collections::BTreeMap;

use crate::throughput::{
    experiment::{Case, Family, Layout, Size},
    record::{Figure, Metric, Record, Run, Unit},
    subject::Subject,
    targets::{self, Target},
    trial::Validity,
};

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
#[derive(Default)]
pub struct Shown {
    /// Its name.
    pub name: String,
    /// What it is about.
    pub title: String,
    /// One for each metric.
    pub charts: Vec<Chart>,
    /// Remarks about single values.
    pub notes: Vec<String>,
    /// What was not measured, and why.
    pub not_run: Vec<String>,
    /// Trials, also those that do not count.
    pub trials: usize,
    /// Reasons of trials that do not count, and how many.
    pub invalid: BTreeMap<String, usize>,
}

/// Values of one metric over packet lengths.
pub struct Chart {
    /// `EXPERIMENT-METRIC`.
    pub name: String,
    /// What the values are.
    pub title: &'static str,
    /// Their unit.
    pub unit: Unit,
    /// One line, or one bar in each group.
    pub series: Vec<Series>,
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
    pub size: Size,
    /// Median of the repeats.
    pub median: f64,
    /// Standard deviation.
    pub deviation: f64,
    /// Number of repeats.
    pub count: usize,
}

impl View {
    /// Sorts records by experiments and metrics.
    pub fn of(records: &[Record]) -> Self {
        let run = records.iter().find_map(|record| match record {
            Record::Run(run) => Some(run.clone()),
            _ => None,
        });
        let mut experiments: Vec<Shown> = Vec::new();
        let mut figures: Vec<&Figure> = Vec::new();
        for record in records {
            let name = match record {
                Record::Run(_) => continue,
                Record::Trial { key, .. } => &key.experiment,
                Record::Figure(figure) => &figure.key.experiment,
                Record::NotRun { experiment, .. } => experiment,
            };
            let place = experiments.iter().position(|shown| shown.name == *name);
            let place = place.unwrap_or_else(|| {
                let mut plans = run.iter().flat_map(|run| &run.plan);
                let plan = plans.find(|plan| plan.name == *name);
                experiments.push(Shown {
                    name: name.clone(),
                    title: plan.map_or(name, |plan| &plan.title).clone(),
                    ..Shown::default()
                });
                experiments.len() - 1
            });
            let shown = &mut experiments[place];
            match record {
                Record::Run(_) => {}
                Record::Figure(figure) => {
                    figures.push(figure);
                    for note in &figure.notes {
                        let (subject, case) = (figure.key.subject, &figure.key.case);
                        let note = format!("{subject}, {case}: {note}");
                        if !shown.notes.contains(&note) {
                            shown.notes.push(note);
                        }
                    }
                }
                Record::Trial { trial, .. } => {
                    shown.trials += 1;
                    if let Validity::Invalid(reason) = &trial.validity {
                        *shown.invalid.entry(reason.clone()).or_default() += 1;
                    }
                }
                Record::NotRun {
                    subject,
                    case,
                    reason,
                    ..
                } => shown.not_run.push(format!("{subject}, {case}: {reason}")),
            }
        }
        for shown in &mut experiments {
            let own = figures.iter().copied();
            let own = own.filter(|figure| figure.key.experiment == shown.name);
            let mut by_metric: BTreeMap<Metric, Vec<&Figure>> = BTreeMap::new();
            for figure in own.filter(|figure| !figure.values.is_empty()) {
                by_metric.entry(figure.key.metric).or_default().push(figure);
            }
            let charts = by_metric.into_iter().map(|(metric, figures)| Chart {
                name: format!("{}-{}", shown.name, metric.name().replace('_', "-")),
                title: metric.title(),
                unit: metric.unit(),
                series: series(&figures),
            });
            shown.charts = charts.collect();
        }
        View {
            targets: targets::targets(records),
            experiments,
            run,
        }
    }
}

impl Chart {
    /// All places on the axis that have a value, in order.
    pub fn places(&self) -> Vec<Size> {
        let points = self.series.iter().flat_map(|series| &series.points);
        let mut places: Vec<Size> = points.map(|point| point.size).collect();
        places.sort();
        places.dedup();
        places
    }
}

impl Series {
    /// The value at a place.
    pub fn at(&self, size: Size) -> Option<&Point> {
        self.points.iter().find(|point| point.size == size)
    }
}

impl Point {
    /// The place on a scale; none for mixes of lengths.
    pub fn position(&self) -> Option<f64> {
        position(self.size)
    }
}

/// The place of packet lengths on a scale; none for mixes.
pub fn position(size: Size) -> Option<f64> {
    match size {
        Size::Fixed(bytes) => Some(bytes.into()),
        Size::Mix(_) => None,
    }
}

/// Figures by subject and by what else differs but the length.
fn series(figures: &[&Figure]) -> Vec<Series> {
    let mut all: Vec<(Case, Series)> = Vec::new();
    for figure in figures {
        let (subject, case) = (figure.key.subject, &figure.key.case);
        let rest = Case {
            size: Size::default(),
            ..case.clone()
        };
        let own = |(other, series): &(Case, Series)| *other == rest && series.subject == subject;
        let place = all.iter().position(own).unwrap_or_else(|| {
            let same = all.iter().filter(|(_, series)| series.subject == subject);
            let series = Series {
                label: subject.title().to_owned(),
                subject,
                variant: same.count(),
                points: Vec::new(),
            };
            all.push((rest, series));
            all.len() - 1
        });
        all[place].1.points.push(Point {
            size: case.size,
            median: figure.median().unwrap_or_default(),
            deviation: figure.deviation().unwrap_or_default(),
            count: figure.values.len(),
        });
    }
    let parameters: Vec<_> = all
        .iter()
        .map(|(case, series)| (series.subject, parameters(case)))
        .collect();
    for ((_, series), (subject, own)) in all.iter_mut().zip(&parameters) {
        series.points.sort_by_key(|point| point.size);
        for (n, parameter) in own.iter().enumerate() {
            let differs = |(other, theirs): &(Subject, [String; 6])| {
                other == subject && theirs[n] != *parameter
            };
            if parameters.iter().any(differs) {
                series.label += &format!(", {parameter}");
            }
        }
    }
    all.into_iter().map(|(_, series)| series).collect()
}

/// What may tell series of one subject apart.
fn parameters(case: &Case) -> [String; 6] {
    let choose = |first: bool, a: &str, b: &str| if first { a } else { b }.to_owned();
    let count = |n: u16, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
    [
        case.behavior.map_or_else(String::new, String::from),
        choose(case.family == Family::Ipv4, "IPv4", "IPv6"),
        count(case.flows, "flow"),
        choose(case.packed, "packed", "one per frame"),
        count(case.workers, "worker"),
        choose(case.layout == Layout::Split, "split", "single core"),
    ]
}
