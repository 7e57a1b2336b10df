//! The program `sig` that is measured.

use std::{
    path::{Path, PathBuf},
    sync::{Mutex, OnceLock, PoisonError},
};

use anyhow::{Context as _, Result, bail};

/// Names a program to be measured instead of one built from this source tree.
pub const VARIABLE: &str = "SIG_BINARY";

static BINARY: OnceLock<PathBuf> = OnceLock::new();

/// The gateway that is measured: `$SIG_BINARY`, or else built from this source tree, optimised, once per
/// process.
///
/// # Errors
///
/// It does not build; cargo has said why.
pub fn gateway_binary() -> Result<&'static Path> {
    static BUILDING: Mutex<()> = Mutex::new(());
    let _guard = BUILDING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(binary) = BINARY.get() {
        return Ok(binary);
    }
    let binary = match std::env::var_os(VARIABLE) {
        Some(binary) => {
            let path = PathBuf::from(&binary);
            path.canonicalize().with_context(|| {
                format!("{VARIABLE}={}: there is no such program", path.display())
            })?
        }
        None => build(&["--release"])?,
    };
    Ok(BINARY.get_or_init(|| binary))
}

/// Makes [`gateway_binary`] build without optimisation, which tests of function do not need, unless it
/// has built already.
///
/// # Errors
///
/// As [`gateway_binary`].
pub fn use_unoptimised() -> Result<&'static Path> {
    if std::env::var_os(VARIABLE).is_none() {
        let binary = build(&[])?;
        BINARY.get_or_init(|| binary);
    }
    gateway_binary()
}

/// Builds the program and returns where cargo put it.
fn build(options: &[&str]) -> Result<PathBuf> {
    let output = testbed::cargo()
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["build", "--quiet", "--package", "sig-userspace"])
        .args([
            "--bin",
            "sig",
            "--message-format",
            "json-render-diagnostics",
        ])
        .args(options)
        .stderr(std::process::Stdio::inherit())
        .output()
        .context("cargo does not start")?;
    if !output.status.success() {
        bail!("the gateway does not build ({})", output.status);
    }
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .find_map(|message| {
            let is_ours =
                message["target"]["name"] == "sig" && message["target"]["kind"][0] == "bin";
            is_ours.then(|| message["executable"].as_str().map(PathBuf::from))?
        })
        .context("cargo does not say where it put the gateway")
}
