//! The command line of the harness.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::ExitCode,
    time::SystemTime,
};

use anyhow::{Context as _, Result, bail};
use clap::Parser;

use super::{
    experiment::{Experiment, read},
    machine,
    progress::Progress,
    record::{self, Record, Run},
    report::{self, compare},
    run::{self, Workbench},
    targets::{self, Table, Target},
};

/// Files of a full run, in this order.
const FULL: [&str; 7] = [
    "quick",
    "limits",
    "gateway",
    "chain",
    "scenarios",
    "latency",
    "pipeline",
];

/// Measures sig against the limits of the machine and against what people use.
///
/// Relative paths are relative to the top of the source tree.
#[derive(Clone, Debug, Default, Parser)]
#[command(
    name = "throughput",
    bin_name = "cargo bench -p benches --bench throughput --"
)]
pub struct Arguments {
    /// Only what the table of targets needs, within 5 minutes
    #[arg(long, conflicts_with = "experiment")]
    pub quick: bool,
    /// An experiment file, or the name of one in benches/experiments; may be repeated. Default: all
    /// that are shipped
    #[arg(long, value_name = "FILE")]
    pub experiment: Vec<PathBuf>,
    /// Only experiments of this name from the files; may be repeated
    #[arg(long, value_name = "NAME")]
    pub only: Vec<String>,
    /// As many repeats as there is time for, in the proportion of the files; --quick without --repeats is as --minutes 4.7
    #[arg(long, value_name = "M", conflicts_with = "repeats", value_parser = minutes)]
    pub minutes: Option<f64>,
    /// Repeats, whatever the files say
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeats: Option<u32>,
    /// Compare with the results.jsonl of an older run; fails if a ratio is below --at-least
    #[arg(long, value_name = "OLD")]
    pub compare: Option<PathBuf>,
    /// Smallest ratio of new to old, inverted where less is better, that is no failure
    #[arg(long, value_name = "RATIO", default_value_t = 0.8)]
    pub at_least: f64,
    /// Also write the targets to this file, as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Folder for results and reports [default: target/bench/TIME]
    #[arg(long, value_name = "FOLDER")]
    pub output: Option<PathBuf>,
    /// Measure nothing: report the results.jsonl of an earlier run again
    #[arg(long, value_name = "RESULTS", conflicts_with_all = ["quick", "experiment", "only", "repeats", "minutes"])]
    pub render: Option<PathBuf>,
    /// Also write every plot to this folder, as SVG files
    #[arg(long, value_name = "FOLDER")]
    pub plots: Option<PathBuf>,
    /// Given by cargo bench
    #[arg(long, hide = true)]
    pub bench: bool,
}

/// Of a quick run: its end, and a slow machine, may take the rest of the five minutes.
const QUICK_MINUTES: f64 = 4.7;

fn minutes(text: &str) -> Result<f64, String> {
    let minutes = text.parse().map_err(|_| "write a number".to_owned())?;
    if (0.01..=10_000.0).contains(&minutes) {
        Ok(minutes)
    } else {
        Err("write 0.01 to 10000".to_owned())
    }
}

impl Arguments {
    /// Seconds that the run is given; none: as long as it takes.
    fn length(&self) -> Option<f64> {
        let quick = (self.quick && self.repeats.is_none()).then_some(QUICK_MINUTES);
        self.minutes.or(quick).map(|minutes| 60.0 * minutes)
    }
}

/// Runs the harness with the arguments of the process. `workbench` is made when something is measured.
///
/// Without `--bench`, which `cargo bench` gives, nothing is done: then it is `cargo test` that wants to
/// know whether this starts.
pub fn main<W: Workbench>(workbench: impl FnOnce() -> Result<W>) -> ExitCode {
    if !std::env::args().any(|argument| argument == "--bench") {
        println!("measures only when run by cargo bench");
        return ExitCode::SUCCESS;
    }
    match run(&Arguments::parse(), workbench) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the harness.
///
/// # Errors
///
/// A file is wrong or cannot be written; something that should work could not be measured; the
/// comparison fails. Reports are written before failures are reported.
pub fn run<W: Workbench>(
    arguments: &Arguments,
    workbench: impl FnOnce() -> Result<W>,
) -> Result<()> {
    if !arguments.at_least.is_finite() || arguments.at_least < 0.0 {
        bail!(
            "--at-least {}: write a ratio, such as 0.8",
            arguments.at_least
        );
    }
    // Read before anything is measured: a wrong name should not be found out an hour later.
    let old = arguments
        .compare
        .as_ref()
        .map(|path| record::read(&rooted(path)));
    let old = old.transpose()?;
    let (records, folder) = match &arguments.render {
        Some(results) => {
            let results = rooted(results);
            let beside = results.parent().map(Path::to_owned).unwrap_or_default();
            let folder = arguments
                .output
                .as_ref()
                .map_or(beside, |folder| rooted(folder));
            (record::read(&results)?, folder)
        }
        None => measure(arguments, workbench)?,
    };
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let files = report::write(&folder, &records)?;
    if let Some(plots) = &arguments.plots {
        let plots = rooted(plots);
        let count = report::write_plots(&plots, &records)?;
        println!("{count} plots in {}", plots.display());
    }
    let targets = targets::targets(&records);
    if let Some(file) = &arguments.json {
        write_targets(&rooted(file), &targets)?;
    }
    if !targets.is_empty() {
        println!("\n{}", Table(&targets));
    }
    for file in files {
        println!("{}", file.display());
    }
    let mut failures = Vec::new();
    if let Some(old) = old {
        let comparison = compare::compare(&old, &records)?;
        print!("\n{comparison}");
        for row in comparison.worse_than(arguments.at_least) {
            failures.push(format!(
                "{} is {} times the old",
                row.key,
                targets::show(row.ratio)
            ));
        }
    }
    if arguments.render.is_none() {
        failures.extend(run::failures(&records));
    }
    for failure in &failures {
        eprintln!("FAILED: {failure}");
    }
    if !failures.is_empty() {
        bail!("{} failures", failures.len());
    }
    Ok(())
}

/// Measures, and returns the records and the folder where they are.
fn measure<W: Workbench>(
    arguments: &Arguments,
    workbench: impl FnOnce() -> Result<W>,
) -> Result<(Vec<Record>, PathBuf)> {
    let (experiments, files) = experiments(arguments)?;
    let folder = match &arguments.output {
        Some(folder) => rooted(folder),
        None => {
            let now = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
            target().join("bench").join(now.replace(':', ""))
        }
    };
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let results = folder.join("results.jsonl");
    let mut out =
        File::create(&results).with_context(|| format!("cannot write {}", results.display()))?;
    let mut workbench = workbench()?;
    let description = Run {
        quick: arguments.quick,
        seconds: arguments.length(),
        ..machine::describe(&experiments, files)
    };
    for note in &description.notes {
        eprintln!("note: {note}");
    }
    eprintln!("results: {}", results.display());
    let progress = match description.length() {
        Some(length) => Progress::of_length(length),
        None => Progress::of_work(run::estimate(&experiments)),
    };
    let records = run::run(
        description,
        &experiments,
        &mut workbench,
        &mut out,
        progress,
    )?;
    Ok((records, folder))
}

/// The experiments that are asked for, and the names of their files with what was overridden.
fn experiments(arguments: &Arguments) -> Result<(Vec<Experiment>, Vec<String>)> {
    let files: Vec<PathBuf> = if arguments.quick {
        vec!["quick".into()]
    } else if arguments.experiment.is_empty() {
        FULL.iter().map(PathBuf::from).collect()
    } else {
        arguments.experiment.clone()
    };
    let mut experiments: Vec<Experiment> = Vec::new();
    let mut names = Vec::new();
    for file in files {
        let path = find(&file)?;
        let text =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let shown = file.display().to_string();
        let read = read::read(&shown, &text).map_err(|problems| {
            let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
            anyhow::anyhow!("{}", lines.join("\n"))
        })?;
        for experiment in read {
            if experiments
                .iter()
                .any(|other| other.name == experiment.name)
            {
                bail!(
                    "{shown}: another file has an experiment \"{}\" too",
                    experiment.name
                );
            }
            experiments.push(experiment);
        }
        names.push(shown);
    }
    for name in &arguments.only {
        if !experiments
            .iter()
            .any(|experiment| experiment.name == *name)
        {
            let known: Vec<_> = experiments.iter().map(|e| e.name.as_str()).collect();
            bail!(
                "--only {name}: there is no such experiment; there are {}",
                known.join(", ")
            );
        }
    }
    if !arguments.only.is_empty() {
        experiments.retain(|experiment| arguments.only.contains(&experiment.name));
        names.push(format!("only {}", arguments.only.join(", ")));
    }
    if let Some(minutes) = arguments.minutes {
        names.push(format!("{minutes} minutes"));
    }
    if let Some(repeats) = arguments.repeats {
        for experiment in &mut experiments {
            experiment.repeats = repeats;
        }
        names.push(format!("{repeats} repeats"));
    }
    Ok((experiments, names))
}

/// The file itself, or the one of that name that is shipped.
fn find(file: &Path) -> Result<PathBuf> {
    let own = rooted(file);
    let shipped = root().join("benches/experiments").join(file);
    let candidates = [own.clone(), shipped.with_extension("toml")];
    match candidates.into_iter().find(|path| path.is_file()) {
        Some(path) => Ok(path),
        None => bail!(
            "{}: there is no such file, and none of that name in benches/experiments",
            own.display()
        ),
    }
}

fn write_targets(path: &Path, targets: &[Target]) -> Result<()> {
    let json = serde_json::json!({ "targets": targets });
    let text = serde_json::to_string_pretty(&json)? + "\n";
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// Cargo starts benchmarks in their package's folder, which is nowhere a user would write a path from.
fn rooted(path: &Path) -> PathBuf {
    root().join(path)
}

fn root() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().unwrap_or(package).to_owned()
}

fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| root().join("target"), |path| rooted(Path::new(&path)))
}
