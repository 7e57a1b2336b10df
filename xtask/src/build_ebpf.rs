//! `cargo xtask build-ebpf`: builds the XDP and TC programs.
//!
//! `cargo build` of the library does the same by itself, in the same folder. The task is for
//! looking at compiler messages, and for packagers who build the object on another machine.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, anyhow};

use crate::{
    bpf_build::{HARNESS, PRODUCT, Package, Toolchain},
    setup::provide_clippy,
    shell,
};

/// Arguments of the task.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Also copy the gateway's object to this file; a later `cargo build` takes it from there when
    /// SIG_BPF_OBJECT names it
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Runs the task.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let toolchain = Toolchain::find().map_err(|e| anyhow!(e))?;
    println!("compiler: {}", toolchain.compiler);
    println!("linker:   {}", toolchain.linker.display());
    let product = build(&toolchain, PRODUCT)?;
    println!("object:   {}", product.display());
    println!("harness:  {}", build(&toolchain, HARNESS)?.display());
    if let Some(output) = &arguments.output {
        fs::copy(&product, output).with_context(|| format!("cannot write {}", output.display()))?;
        println!("copied:   {}", output.display());
    }
    Ok(())
}

/// `cargo xtask clippy-ebpf`: lints the XDP and TC programs.
pub(crate) fn clippy() -> Result<()> {
    let toolchain = Toolchain::find().map_err(|e| anyhow!(e))?;
    provide_clippy(&toolchain.compiler)?;
    for package in [PRODUCT, HARNESS] {
        shell::run(&mut toolchain.clippy(
            package,
            Path::new(&shell::root()),
            &target_dir(),
            std::env::consts::ARCH,
        ))?;
    }
    Ok(())
}

/// Builds a package with the given toolchain and returns the path of its object.
pub(crate) fn build(toolchain: &Toolchain, package: Package) -> Result<PathBuf> {
    toolchain
        .build(
            package,
            Path::new(&shell::root()),
            &target_dir(),
            std::env::consts::ARCH,
        )
        .map_err(|e| anyhow!(e))
}

fn target_dir() -> PathBuf {
    shell::target_dir().join("bpf")
}
