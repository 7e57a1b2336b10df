//! The program as it is installed, and what a debugger wants to know beside it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};

use super::show;
use crate::{setup, shell};

/// Builds the program; returns it.
pub(crate) fn build() -> Result<PathBuf> {
    setup::run(&setup::Arguments::default())?;
    shell::run(testbed::cargo().current_dir(shell::root()).args([
        "build",
        "--release",
        "-p",
        "sig-userspace",
    ]))?;
    strip(&shell::target_dir().join("release/sig"))
}

/// Puts the program into the folder of the release, without what only debuggers need; that in a file beside it.
///
/// Cargo has no way to this: with `split-debuginfo` the line tables, which are nearly all that there is, stay in the
/// program.
pub(super) fn strip(built: &Path) -> Result<PathBuf> {
    let dist = shell::target_dir().join("dist");
    fs::create_dir_all(&dist).with_context(|| dist.display().to_string())?;
    let built = built
        .canonicalize()
        .with_context(|| built.display().to_string())?;
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
        show(&dist.join(name))?;
    }
    Ok(dist.join("sig"))
}
