//! `cargo xtask chaos`: three ASes in which something goes wrong all the time.

use std::path::PathBuf;

use anyhow::{Result, bail};

use crate::{demo, setup, shell};

/// Arguments of the task.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// How long
    #[arg(long, value_name = "N", default_value_t = 10.0)]
    minutes: f64,
    /// What the faults follow from, to repeat a run; the default follows from the clock
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
    /// Another program `sig` than one that is built now, such as an earlier version
    #[arg(long, value_name = "FILE")]
    sig: Option<PathBuf>,
    /// More arguments: --round N, --only KIND, --keep-going, --output FOLDER
    #[arg(last = true)]
    rest: Vec<String>,
}

/// Runs the task.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    if !shell::is_root() {
        bail!(
            "network namespaces need root: run it as root, for example with `sudo -E env PATH=$PATH cargo xtask chaos`"
        );
    }
    setup::run(&setup::Arguments::default())?;
    let sig = match &arguments.sig {
        Some(file) => file.clone(),
        None => demo::build()?,
    };
    let mut cargo = testbed::cargo();
    cargo
        .current_dir(shell::root())
        .args([
            "run",
            "--quiet",
            "--release",
            "--package",
            "chaos",
            "--",
            "--sig",
        ])
        .arg(std::path::absolute(sig)?)
        .args(["--minutes", &arguments.minutes.to_string()]);
    if let Some(seed) = arguments.seed {
        cargo.args(["--seed", &seed.to_string()]);
    }
    cargo.args(&arguments.rest);
    shell::run(&mut cargo)
}
