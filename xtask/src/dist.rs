//! `cargo xtask dist`: the program `sig` as it is installed, and what a debugger wants to know beside it.

use std::{fs, process::Command};

use anyhow::{Context as _, Result};

use crate::{setup, shell};

/// Runs the task.
///
/// Cargo has no way to this: with `split-debuginfo` the line tables, which are nearly all that there is, stay in the
/// program.
pub(crate) fn run() -> Result<()> {
    setup::run(&setup::Arguments::default())?;
    shell::run(testbed::cargo().current_dir(shell::root()).args([
        "build",
        "--release",
        "-p",
        "sig-userspace",
    ]))?;
    let built = shell::target_dir().join("release/sig");
    let dist = shell::target_dir().join("dist");
    fs::create_dir_all(&dist).with_context(|| dist.display().to_string())?;
    // In this folder, as the program names the other file, for debuggers and its own backtraces, without one.
    let objcopy = || {
        let mut command = Command::new("objcopy");
        command.current_dir(&dist);
        command
    };
    shell::run(
        objcopy()
            .args(["--only-keep-debug", "--compress-debug-sections=zlib"])
            .arg(&built)
            .arg("sig.debug"),
    )?;
    shell::run(
        objcopy()
            .args(["--strip-all", "--add-gnu-debuglink=sig.debug"])
            .arg(&built)
            .arg("sig"),
    )?;
    for name in ["sig", "sig.debug"] {
        let file = dist.join(name);
        let size = fs::metadata(&file)
            .with_context(|| file.display().to_string())?
            .len();
        println!("{} ({} MB)", file.display(), size / 1_000_000);
    }
    Ok(())
}
