//! `cargo xtask setup`: makes a machine ready; does only what is missing.

mod compiler;
mod linker;
mod packages;

use anyhow::Result;

pub(crate) use compiler::provide_clippy;
pub(crate) use packages::{apt_get, has, install, provide_tools, update_lists};

use crate::{
    bpf_build::{Compiler, PRODUCT, Toolchain},
    build_ebpf,
};

/// Arguments of the task.
#[derive(Default, clap::Args)]
pub(crate) struct Arguments {
    /// Only say what is missing, change nothing; fails when something is missing
    #[arg(long)]
    check: bool,
}

/// Runs the task.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    if arguments.check {
        return check();
    }
    packages::provide()?;
    let compiler = compiler::provide()?;
    linker::provide(&compiler)?;
    verify()
}

fn check() -> Result<()> {
    let missing = packages::missing()?;
    if !missing.is_empty() {
        anyhow::bail!("missing Debian packages: {}", missing.join(" "));
    }
    verify()
}

fn verify() -> Result<()> {
    step("BPF programs", "building");
    let toolchain = Toolchain::find().map_err(|e| anyhow::anyhow!(e))?;
    let object = build_ebpf::build(&toolchain, PRODUCT)?;
    step("BPF programs", &object.display().to_string());
    Ok(())
}

/// Tells the user about one thing that setup takes care of.
fn step(what: &str, state: &str) {
    println!("{what:<15} {state}");
}

/// The compiler that setup goes on with, when one is there.
fn usable_compiler() -> Option<Compiler> {
    Compiler::candidates().0.into_iter().next()
}
