//! `cargo xtask bench`: the throughput harness on a machine that may not be set up yet.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::{setup, shell};

/// Runs `cargo bench -p benches --bench throughput` after setup.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Only what the table of targets needs, within 5 minutes
    #[arg(long, conflicts_with = "experiment")]
    quick: bool,
    /// An experiment file, or the name of one in benches/experiments; may be repeated. Default: all that are shipped
    #[arg(long, value_name = "FILE")]
    experiment: Vec<PathBuf>,
    /// Also write the targets to this file, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Folder for results and report [default: target/bench/TIME]
    #[arg(long, value_name = "FOLDER")]
    output: Option<PathBuf>,
    /// Measure nothing: report the results.jsonl of an earlier run again
    #[arg(long, value_name = "RESULTS", conflicts_with_all = ["quick", "experiment"])]
    render: Option<PathBuf>,
    /// More arguments of the harness: --only NAME, --repeats N
    #[arg(last = true)]
    rest: Vec<String>,
}

/// Runs the task.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    setup::run(&setup::Arguments::default())?;
    let mut cargo = testbed::cargo();
    cargo.current_dir(shell::root()).args([
        "bench",
        "--quiet",
        "--package",
        "benches",
        "--bench",
        "throughput",
        "--",
    ]);
    if arguments.quick {
        cargo.arg("--quick");
    }
    for file in &arguments.experiment {
        // What is no file here may be the name of one that is shipped.
        let path = if file.is_file() {
            absolute(file)?
        } else {
            file.clone()
        };
        cargo.arg("--experiment").arg(path);
    }
    let paths = [
        ("--json", &arguments.json),
        ("--output", &arguments.output),
        ("--render", &arguments.render),
    ];
    for (option, path) in paths {
        if let Some(path) = path {
            cargo.arg(option).arg(absolute(path)?);
        }
    }
    cargo.args(&arguments.rest);
    shell::run(&mut cargo)
}

/// Cargo starts benchmarks in another folder.
fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).with_context(|| path.display().to_string())
}
