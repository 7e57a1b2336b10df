//! `cargo xtask test`: everything that can be tested on this machine, but for the fuzzers' long runs.

use std::process::Command;

use anyhow::Result;

use crate::{setup, shell};

/// Everything is built and tested with the same features and profile, so that nothing is built twice.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// What `cargo test` gets behind `--`, such as the name of a test
    #[arg(last = true)]
    rest: Vec<String>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    setup::run(&setup::Arguments::default())?;
    let mut cargo = Command::new(env!("CARGO"));
    cargo
        .current_dir(shell::root())
        .args(["test", "--workspace", "--no-fail-fast"]);
    if !arguments.rest.is_empty() {
        cargo.arg("--").args(&arguments.rest);
    }
    shell::run(&mut cargo)
}
