//! Runs experiments: opens subjects, interleaves repeats, records everything at once.

use std::{collections::BTreeMap, io::Write};

use anyhow::{Context as _, Result};

use super::{
    experiment::{Algorithm, Case, Experiment},
    instrument::thread::Awake,
    measure,
    progress::Progress,
    record::{Figure, Key, Metric, Record, Run, median},
    report::number,
    scenario::Outcome,
    subject::{Device, Refusal, Subject},
};

/// Where subjects come from.
pub trait Workbench {
    /// What is measured next: whatever stands and is not needed for it may go.
    fn prepare(&mut self, _next: &Experiment) {}

    /// Sets a subject up, with generator and sink.
    ///
    /// # Errors
    ///
    /// See [`Refusal`].
    fn open(&mut self, subject: Subject, case: &Case) -> Result<Box<dyn Device>, Refusal>;

    /// Plays the scenario of an experiment over a chain of two sites.
    ///
    /// # Errors
    ///
    /// See [`Refusal`].
    fn play(
        &mut self,
        subject: Subject,
        case: &Case,
        experiment: &Experiment,
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
    notes: Vec<String>,
}

/// A run.
struct Runner<'a> {
    workbench: &'a mut dyn Workbench,
    out: &'a mut dyn Write,
    progress: Progress,
    records: Vec<Record>,
}

/// Estimated seconds of experiments.
pub fn estimate(experiments: &[Experiment]) -> f64 {
    let of = |experiment: &Experiment| {
        let columns: usize = experiment.groups().iter().map(Vec::len).sum();
        columns as f64 * f64::from(experiment.repeats) * experiment.estimate()
    };
    experiments.iter().map(of).sum()
}

/// Runs experiments and writes every record to `out` as soon as it is there. Returns all records.
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
    let mut runner = Runner {
        workbench,
        out,
        progress,
        records: Vec::new(),
    };
    runner.record(Record::Run(description))?;
    for experiment in experiments {
        let title = format!("{}: {}", experiment.name, experiment.title);
        runner.progress.line(&title);
        runner.workbench.prepare(experiment);
        // What waking a CPU costs is up to the hypervisor, and changes by the second.
        let _awake = (experiment.algorithm == Algorithm::Cpu).then(Awake::now);
        for group in experiment.groups() {
            runner.measure_group(experiment, group)?;
        }
    }
    Ok(runner.records)
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

    /// Measures in turns what belongs together.
    fn measure_group(
        &mut self,
        experiment: &Experiment,
        group: Vec<(Subject, Case)>,
    ) -> Result<()> {
        let mut columns = Vec::new();
        for (subject, case) in group {
            let mut column = Column {
                subject,
                case,
                device: None,
                alive: true,
                values: BTreeMap::new(),
                notes: Vec::new(),
            };
            if !experiment.algorithm.is_scenario() {
                match self.workbench.open(subject, &column.case) {
                    Ok(device) => column.device = Some(device),
                    Err(refusal) => self.refused(experiment, &mut column, refusal)?,
                }
            }
            columns.push(column);
        }
        for repeat in 0..experiment.repeats {
            for column in &mut columns {
                if column.alive {
                    self.repeat(experiment, column, repeat)?;
                }
                self.progress.done(experiment.estimate());
            }
        }
        for column in columns {
            self.close(experiment, column)?;
        }
        Ok(())
    }

    /// Records what was found.
    fn close(&mut self, experiment: &Experiment, column: Column) -> Result<()> {
        if column.alive && column.values.is_empty() {
            self.not_run(experiment, &column, column.notes.join("; "), false)?;
        }
        for (metric, values) in column.values {
            let mut notes = column.notes.clone();
            if values.len() < experiment.repeats as usize {
                let (found, planned) = (values.len(), experiment.repeats);
                notes.push(format!("{found} of {planned} repeats"));
            }
            let figure = Figure {
                key: Key {
                    experiment: experiment.name.clone(),
                    subject: column.subject,
                    case: column.case.clone(),
                    metric,
                },
                values,
                notes,
            };
            if let (Some(median), Some(deviation)) = (figure.median(), figure.deviation()) {
                let value = |value| number::with_unit(value, metric.unit());
                let (median, deviation) = (value(median), value(deviation));
                self.progress.line(&format!(
                    "  {} {}: {} {median} ± {deviation}",
                    column.subject,
                    column.case,
                    metric.name(),
                ));
            }
            self.record(Record::Figure(figure))?;
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
        let (subject, case) = (column.subject, &column.case);
        self.progress
            .line(&format!("  {subject} {case}: {word}: {reason}"));
        self.record(Record::NotRun {
            experiment: experiment.name.clone(),
            subject,
            case: case.clone(),
            reason,
            failed,
        })
    }

    fn repeat(&mut self, experiment: &Experiment, column: &mut Column, repeat: u32) -> Result<()> {
        self.progress.step(&format!(
            "{}: {}, {}, repeat {} of {}",
            experiment.name,
            column.subject,
            column.case,
            repeat + 1,
            experiment.repeats
        ));
        match self.attempt(experiment, column, repeat)? {
            Ok(found) => {
                for (metric, value) in found.values {
                    column.values.entry(metric).or_default().push(value);
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
        let Some(device) = &mut column.device else {
            let (subject, case) = (column.subject, &column.case);
            return Ok(self.workbench.play(subject, case, experiment));
        };
        let key = Key {
            experiment: experiment.name.clone(),
            subject: column.subject,
            case: column.case.clone(),
            metric: measure::main_metric(experiment.algorithm),
        };
        let near = column.values.get(&key.metric);
        let near = near.and_then(|values| median(values));
        let mut written = Ok(());
        let found = measure::measure(device.as_mut(), experiment, near, &mut |trial| {
            let record = Record::Trial {
                key: key.clone(),
                repeat,
                trial: trial.clone(),
            };
            if written.is_ok() {
                written = self.record(record);
            }
        });
        written.map(|()| found.map_err(Refusal::Failed))
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
