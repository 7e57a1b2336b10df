//! Runs experiments: opens subjects, interleaves repeats, records everything at once.

use std::{
    collections::BTreeMap,
    io::Write,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};

use super::{
    budget::Budget,
    experiment::{Algorithm, Case, Experiment, Scenario},
    instrument::thread::Awake,
    measure,
    progress::Progress,
    record::{Figure, Key, Metric, Record, Run, median},
    report::number,
    scenario::Outcome,
    search::Walk,
    subject::{Device, Refusal, Subject},
};

/// How long to wait before the second try of a repeat that other load on the machine spoilt.
const LULL: Duration = Duration::from_secs(1);

/// Where subjects come from.
pub trait Workbench {
    /// What is measured next, and what has begun and goes on later: whatever stands and is not needed for any of it may go.
    fn prepare(&mut self, _next: &Experiment, _begun: &[&Experiment]) {}

    /// Sets a subject up, with generator and sink.
    ///
    /// # Errors
    ///
    /// See [`Refusal`].
    fn open(&mut self, subject: Subject, case: &Case) -> Result<Box<dyn Device>, Refusal>;

    /// Plays a scenario over a chain of two sites, `seconds` long where that is not given by something
    /// else.
    ///
    /// # Errors
    ///
    /// See [`Refusal`].
    fn play(
        &mut self,
        subject: Subject,
        case: &Case,
        scenario: Scenario,
        seconds: f64,
    ) -> Result<Outcome, Refusal>;
}

/// One subject in one case.
struct Column {
    subject: Subject,
    case: Case,
    device: Option<Box<dyn Device>>,
    /// Repeats come to an end when something breaks.
    alive: bool,
    values: BTreeMap<Metric, Vec<f64>>,
    distances: BTreeMap<Metric, Vec<Option<f64>>>,
    /// Of its last trial that counts.
    distance: Option<f64>,
    /// Where a search in steps goes on.
    walk: Walk,
    /// In a run of a given length: number of the next repeat.
    repeat: u32,
    /// Seconds that the last one took.
    took: f64,
    /// Seconds that it has left.
    credit: f64,
    /// Of the seconds that it was planned to take those of parts that are still to come.
    ahead: f64,
    notes: Vec<String>,
}

impl Column {
    /// Repeats with a result.
    fn repeats(&self) -> u32 {
        self.values.values().map(Vec::len).max().unwrap_or_default() as u32
    }
}

/// What is measured in turns.
struct Group<'a> {
    experiment: &'a Experiment,
    columns: Vec<Column>,
}

/// A run.
pub struct Runner<'a> {
    workbench: &'a mut dyn Workbench,
    out: &'a mut dyn Write,
    progress: Progress,
    /// None: there is time for all repeats.
    budget: Option<Budget>,
    started: Instant,
    records: Vec<Record>,
}

/// Estimated seconds of experiments.
pub fn estimate(experiments: &[Experiment]) -> f64 {
    let columns = experiments.iter().flat_map(groups);
    let columns = columns.flat_map(|group| group.columns);
    columns.map(|column| column.ahead).sum()
}

/// Seconds that the repeats of one subject in one case are estimated to take.
fn planned(experiment: &Experiment) -> f64 {
    f64::from(experiment.repeats) * experiment.estimate()
}

/// Runs experiments and writes every record to `out` as soon as it is there. Returns all records.
///
/// A run whose description gives it a length divides its time: the repeats of an experiment tell its share, and there are as
/// many as there is time for, one of each at least.
///
/// What cannot be measured is recorded as not run, with its reason, and the rest goes on.
///
/// # Errors
///
/// `out` cannot be written.
pub fn run(
    description: Run,
    experiments: &[Experiment],
    workbench: &mut dyn Workbench,
    out: &mut dyn Write,
    progress: Progress,
) -> Result<Vec<Record>> {
    let budget = description.length();
    let budget = budget.map(|length| Budget::new(length, estimate(experiments)));
    let mut runner = Runner {
        workbench,
        out,
        progress,
        budget,
        started: Instant::now(),
        records: Vec::new(),
    };
    runner.record(Record::Run(description))?;
    let (spread, others): (Vec<_>, Vec<_>) = experiments.iter().partition(|e| e.spread);
    let parts = parts(&others);
    let mut between = Vec::new();
    for experiment in spread {
        runner.announce(experiment);
        runner.workbench.prepare(experiment, &[]);
        for mut group in groups(experiment) {
            runner.open(&mut group)?;
            between.push(group);
        }
    }
    let mut in_parts: Vec<_> = others.iter().map(|experiment| groups(experiment)).collect();
    let slots = parts.len().max(1);
    for slot in 0..slots {
        for group in &mut between {
            runner.turns(group, slot as u32, slots as u32)?;
        }
        let Some(&(index, round)) = parts.get(slot) else {
            continue;
        };
        let experiment = others[index];
        if round == 0 {
            runner.announce(experiment);
        }
        let (before, later) = parts.split_at(slot);
        let begun = later.iter().map(|(index, _)| *index);
        let begun = begun.filter(|index| before.iter().any(|(other, _)| other == index));
        let begun: Vec<_> = begun.map(|index| others[index]).collect();
        runner.workbench.prepare(experiment, &begun);
        // What waking a CPU costs is up to the hypervisor, and changes by the second.
        let is_cpu_time = matches!(
            experiment.algorithm,
            Algorithm::Scenario(Scenario::Cpu { .. })
        );
        let _awake = is_cpu_time.then(Awake::now);
        for group in &mut in_parts[index] {
            runner.open(group)?;
            runner.turns(group, round, experiment.rounds)?;
            let columns = group.columns.iter_mut();
            columns.for_each(|column| column.device = None);
            if round + 1 == experiment.rounds {
                runner.close(group)?;
            }
        }
    }
    for mut group in between {
        runner.close(&mut group)?;
    }
    runner.progress.finish();
    Ok(runner.records)
}

/// The parts of all experiments in the order in which they are measured, as number of the experiment and of the part. Those of neighbours
/// that have several are spread evenly over the time that all of these take.
fn parts(experiments: &[&Experiment]) -> Vec<(usize, u32)> {
    let mut all = Vec::new();
    let mut numbers = 0..;
    for neighbours in experiments.chunk_by(|a, b| a.rounds > 1 && b.rounds > 1) {
        let mut parts = Vec::new();
        for (experiment, number) in neighbours.iter().zip(&mut numbers) {
            let rounds = experiment.rounds;
            let place = |round| (f64::from(round) + 0.5) / f64::from(rounds);
            parts.extend((0..rounds).map(|round| (place(round), (number, round))));
        }
        // Those at the same place stay in the order of the experiments.
        parts.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        all.extend(parts.into_iter().map(|(_, part)| part));
    }
    all
}

/// What is measured in turns, by groups.
fn groups(experiment: &Experiment) -> Vec<Group<'_>> {
    let column = |(subject, case)| Column {
        subject,
        case,
        device: None,
        alive: true,
        values: BTreeMap::new(),
        distances: BTreeMap::new(),
        distance: None,
        walk: Walk::from(experiment.start_rate),
        repeat: 0,
        took: 0.0,
        credit: 0.0,
        ahead: planned(experiment),
        notes: Vec::new(),
    };
    let groups = experiment.groups().into_iter();
    groups
        .map(|group| Group {
            experiment,
            columns: group.into_iter().map(column).collect(),
        })
        .collect()
}

impl Runner<'_> {
    fn record(&mut self, record: Record) -> Result<()> {
        let mut line = serde_json::to_string(&record)?;
        line.push('\n');
        self.out
            .write_all(line.as_bytes())
            .and_then(|()| self.out.flush())
            .context("cannot write the results")?;
        self.records.push(record);
        Ok(())
    }

    fn announce(&mut self, experiment: &Experiment) {
        self.progress
            .line(&format!("{}: {}", experiment.name, experiment.title));
    }

    /// Sets up what belongs together.
    fn open(&mut self, group: &mut Group<'_>) -> Result<()> {
        let experiment = group.experiment;
        if matches!(experiment.algorithm, Algorithm::Scenario(_)) {
            return Ok(());
        }
        for column in group.columns.iter_mut().filter(|column| column.alive) {
            let (name, subject) = (&experiment.name, column.subject);
            self.progress
                .step(format!("{name}: setting up {subject}, {}", column.case));
            match self.workbench.open(subject, &column.case) {
                Ok(device) => column.device = Some(device),
                Err(refusal) => self.refused(experiment, column, refusal)?,
            }
        }
        Ok(())
    }

    /// Measures in turns: one of several parts of the repeats.
    fn turns(&mut self, group: &mut Group<'_>, part: u32, parts: u32) -> Result<()> {
        let experiment = group.experiment;
        if let Some(budget) = &mut self.budget {
            let pace = budget.pace(Instant::now());
            let part = planned(experiment) / f64::from(parts);
            for column in group.columns.iter_mut().filter(|column| column.alive) {
                budget.take(part);
                column.ahead -= part;
                column.credit += part * pace;
            }
            return self.turns_on_credit(group);
        }
        let from = if experiment.spread {
            // From where the one with the fewest is: a host may have spoilt the last ones.
            let alive = group.columns.iter().filter(|column| column.alive);
            alive.map(Column::repeats).min().unwrap_or_default()
        } else {
            part * experiment.repeats / parts
        };
        for repeat in from..(part + 1) * experiment.repeats / parts {
            for column in &mut group.columns {
                let is_done = experiment.spread && column.repeats() > repeat;
                if column.alive && !is_done {
                    self.repeat(experiment, column, repeat)?;
                }
                self.progress.done(experiment.estimate());
            }
        }
        Ok(())
    }

    /// Measures in turns for as long as each has time left, and once at least.
    fn turns_on_credit(&mut self, group: &mut Group<'_>) -> Result<()> {
        loop {
            let mut is_done = true;
            for column in &mut group.columns {
                // Half a repeat too long is as likely as half a repeat too short.
                let has_time = column.repeat == 0 || column.credit > column.took / 2.0;
                if column.alive && has_time {
                    let start = Instant::now();
                    self.repeat(group.experiment, column, column.repeat)?;
                    column.repeat += 1;
                    column.took = start.elapsed().as_secs_f64();
                    column.credit -= column.took;
                    is_done = false;
                }
            }
            if is_done {
                return Ok(());
            }
        }
    }

    /// Records what was found.
    fn close(&mut self, group: &mut Group<'_>) -> Result<()> {
        let experiment = group.experiment;
        for column in group.columns.drain(..) {
            let is_sweep = matches!(experiment.algorithm, Algorithm::Sweep { .. });
            if column.alive && column.values.is_empty() && !is_sweep {
                let reason = column.notes.join("; ");
                self.not_run(experiment, &column, reason, false)?;
            }
            let mut is_first = true;
            for (metric, values) in column.values {
                let key = Key {
                    experiment: experiment.name.clone(),
                    subject: column.subject,
                    case: column.case.clone(),
                    metric,
                };
                let mut notes = column.notes.clone();
                if self.budget.is_none() && values.len() < experiment.repeats as usize {
                    notes.push(format!(
                        "{} of {} repeats",
                        values.len(),
                        experiment.repeats
                    ));
                }
                let distances = column.distances.get(&metric).cloned();
                let figure = Figure {
                    key,
                    values,
                    distances: distances
                        .filter(|all| all.iter().any(Option::is_some))
                        .unwrap_or_default(),
                    notes,
                };
                self.show(&figure, is_first);
                is_first = false;
                self.record(Record::Figure(figure))?;
            }
        }
        Ok(())
    }

    fn refused(
        &mut self,
        experiment: &Experiment,
        column: &mut Column,
        refusal: Refusal,
    ) -> Result<()> {
        let (failed, reason) = match refusal {
            Refusal::NotHere(reason) => (false, reason),
            Refusal::Failed(error) => (true, format!("{error:#}")),
        };
        column.alive = false;
        column.device = None;
        if let Some(budget) = &mut self.budget {
            budget.take(column.ahead);
        }
        column.notes.push(reason.clone());
        self.not_run(experiment, column, reason, failed)
    }

    fn not_run(
        &mut self,
        experiment: &Experiment,
        column: &Column,
        reason: String,
        failed: bool,
    ) -> Result<()> {
        let word = if failed { "FAILED" } else { "not run" };
        self.progress.line(&format!(
            "  {} {}: {word}: {reason}",
            column.subject, column.case
        ));
        self.record(Record::NotRun {
            experiment: experiment.name.clone(),
            subject: column.subject,
            case: column.case.clone(),
            reason,
            failed,
        })
    }

    fn repeat(&mut self, experiment: &Experiment, column: &mut Column, repeat: u32) -> Result<()> {
        let of = match self.budget {
            Some(_) => String::new(),
            None => format!(" of {}", experiment.repeats),
        };
        self.progress.step(format!(
            "{}: {}, {}, repeat {}{of}",
            experiment.name,
            column.subject,
            column.case,
            repeat + 1
        ));
        let mut found = self.attempt(experiment, column, repeat)?;
        // What is spread over the run gets another try later on.
        if matches!(&found, Ok(nothing) if nothing.is_disturbed()) && !experiment.spread {
            std::thread::sleep(LULL);
            found = self.attempt(experiment, column, repeat)?;
        }
        match found {
            Ok(found) => {
                for (metric, value) in found.values {
                    column.values.entry(metric).or_default().push(value);
                    let distances = column.distances.entry(metric).or_default();
                    distances.push(column.distance);
                }
                for note in found.notes {
                    if !column.notes.contains(&note) {
                        column.notes.push(note);
                    }
                }
                Ok(())
            }
            Err(refusal) => self.refused(experiment, column, refusal),
        }
    }

    /// The outer error is that of writing records.
    fn attempt(
        &mut self,
        experiment: &Experiment,
        column: &mut Column,
        repeat: u32,
    ) -> Result<Result<Outcome, Refusal>> {
        if let Algorithm::Scenario(scenario) = &experiment.algorithm {
            let (subject, case) = (column.subject, &column.case);
            let seconds = experiment.seconds;
            return Ok(self.workbench.play(subject, case, *scenario, seconds));
        }
        let Some(mut device) = column.device.take() else {
            return Ok(Ok(Outcome::default()));
        };
        let found = self.measure(experiment, column, device.as_mut(), repeat)?;
        column.device = Some(device);
        Ok(found.map_err(Refusal::Failed))
    }

    /// The outer error is that of writing records.
    fn measure(
        &mut self,
        experiment: &Experiment,
        column: &mut Column,
        device: &mut dyn Device,
        repeat: u32,
    ) -> Result<Result<Outcome>> {
        let key = Key {
            experiment: experiment.name.clone(),
            subject: column.subject,
            case: column.case.clone(),
            metric: measure::main_metric(&experiment.algorithm),
        };
        let found_before = column.values.get(&key.metric);
        let near = found_before.and_then(|values| median(values));
        let mut written = Ok(());
        let mut number = 0;
        let found = measure::measure(device, experiment, near, &mut column.walk, &mut |trial| {
            number += 1;
            if trial.is_valid() {
                column.distance = trial.distance;
            }
            self.progress.trial(number, trial);
            let record = Record::Trial {
                key: key.clone(),
                repeat,
                at: self.started.elapsed().as_secs_f64(),
                trial: trial.clone(),
            };
            if written.is_ok() {
                written = self.record(record);
            }
        });
        written.map(|()| found)
    }

    /// Notes are those of the column, and so shown only once.
    fn show(&self, figure: &Figure, with_notes: bool) {
        let Some(median) = figure.median() else {
            return;
        };
        let unit = figure.key.metric.unit();
        let deviation = figure.deviation().unwrap_or_default();
        let notes = if figure.notes.is_empty() || !with_notes {
            String::new()
        } else {
            format!(" ({})", figure.notes.join("; "))
        };
        self.progress.line(&format!(
            "  {} {}: {} {} ± {}{notes}",
            figure.key.subject,
            figure.key.case,
            figure.key.metric.name(),
            number::with_unit(median, unit),
            number::with_unit(deviation, unit),
        ));
    }
}

/// What failed that should have worked.
pub fn failures(records: &[Record]) -> Vec<String> {
    let failed = |record: &Record| match record {
        Record::NotRun {
            experiment,
            subject,
            case,
            reason,
            failed: true,
        } => Some(format!("{experiment}: {subject} {case}: {reason}")),
        _ => None,
    };
    records.iter().filter_map(failed).collect()
}
