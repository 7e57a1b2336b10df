//! `cargo xtask test`: everything that can be tested on this machine, but for the fuzzers' long runs.

use std::{env, thread};

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
    let test = || {
        let mut cargo = testbed::cargo();
        cargo
            .current_dir(shell::root())
            .args(["test", "--workspace", "--no-fail-fast"]);
        cargo
    };
    shell::run(test().arg("--no-run"))?;
    let mut cargo = test();
    // The tests of the harness would build it with the features that its package alone asks for: everything again,
    // within the time that a test has.
    cargo.env("SIG_BINARY", shell::target_dir().join("debug/sig"));
    // Tests mostly wait, for timers and for the grace periods of the kernel. Those that may not share the processors take a
    // lock, `testbed::exclusive`.
    if env::var_os("RUST_TEST_THREADS").is_none() {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        cargo.env("RUST_TEST_THREADS", (4 * processors).to_string());
    }
    if !arguments.rest.is_empty() {
        cargo.arg("--").args(&arguments.rest);
    }
    shell::run(&mut cargo)
}
