//! The command line of the harness.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::ExitCode,
    time::SystemTime,
};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Parser;

use super::{
    experiment::{Experiment, read},
    machine,
    progress::Progress,
    record::{self, Record, Run},
    report,
    run::{self, Workbench},
    targets::{self, Table},
};

/// Files of a full run, in this order.
const FULL: [&str; 10] = [
    "quick",
    "limits",
    "gateway",
    "router",
    "chain",
    "fast-path",
    "accelerate",
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
    /// Repeats, whatever the files say
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeats: Option<u32>,
    /// Also write the targets to this file, as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Folder for results and report [default: target/bench/TIME]
    #[arg(long, value_name = "FOLDER")]
    pub output: Option<PathBuf>,
    /// Measure nothing: report the results.jsonl of an earlier run again
    #[arg(long, value_name = "RESULTS", conflicts_with_all = ["quick", "experiment", "only", "repeats"])]
    pub render: Option<PathBuf>,
    /// Given by cargo bench
    #[arg(long, hide = true)]
    pub bench: bool,
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
/// A file is wrong or cannot be written; something that should work could not be measured. The report is
/// written before failures are reported.
pub fn run<W: Workbench>(
    arguments: &Arguments,
    workbench: impl FnOnce() -> Result<W>,
) -> Result<()> {
    let (records, folder, failures) = match &arguments.render {
        Some(results) => {
            let results = rooted(results);
            let beside = results.parent().map(Path::to_owned).unwrap_or_default();
            let folder = arguments.output.as_deref().map_or(beside, rooted);
            (record::read(&results)?, folder, Vec::new())
        }
        None => {
            let (records, folder) = measure(arguments, workbench)?;
            let failures = run::failures(&records);
            (records, folder, failures)
        }
    };
    let report = report::write(&folder, &records)?;
    let targets = targets::targets(&records);
    if let Some(file) = &arguments.json {
        let text = serde_json::to_string_pretty(&serde_json::json!({ "targets": targets }))? + "\n";
        write(&rooted(file), &text)?;
    }
    if !targets.is_empty() {
        println!("\n{}", Table(&targets));
    }
    println!("{}", report.display());
    for failure in &failures {
        eprintln!("FAILED: {failure}");
    }
    ensure!(failures.is_empty(), "{} failures", failures.len());
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
        ..machine::describe(&experiments, files)?
    };
    for note in &description.notes {
        eprintln!("note: {note}");
    }
    eprintln!("results: {}", results.display());
    let progress = Progress::of(run::estimate(&experiments));
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
        for experiment in read::read(&shown, &text)? {
            let name = &experiment.name;
            ensure!(
                experiments.iter().all(|other| other.name != *name),
                "{shown}: another file has an experiment \"{name}\" too"
            );
            experiments.push(experiment);
        }
        names.push(shown);
    }
    for name in &arguments.only {
        let mut known = experiments.iter().map(|e| e.name.as_str());
        ensure!(
            known.clone().any(|known| known == name),
            "--only {name}: there is no such experiment; there are {}",
            known.by_ref().collect::<Vec<_>>().join(", ")
        );
    }
    if !arguments.only.is_empty() {
        experiments.retain(|experiment| arguments.only.contains(&experiment.name));
        names.push(format!("only {}", arguments.only.join(", ")));
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

/// Writes a file.
pub(super) fn write(path: &Path, text: &str) -> Result<()> {
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
