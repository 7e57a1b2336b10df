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
        None => build("sig-userspace", "sig", &["--release"])?,
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
        let binary = build("sig-userspace", "sig", &[])?;
        BINARY.get_or_init(|| binary);
    }
    gateway_binary()
}

/// The same gateway with keys that both ends know beforehand, optimised.
///
/// # Errors
///
/// As [`gateway_binary`].
pub fn binary_with_key() -> Result<PathBuf> {
    build("benches", "sig-with-key", &["--release"])
}

/// Builds a program and returns where cargo put it.
fn build(package: &str, name: &str, options: &[&str]) -> Result<PathBuf> {
    let output = testbed::cargo()
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["build", "--quiet", "--package", package])
        .args(["--bin", name, "--message-format", "json-render-diagnostics"])
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
                message["target"]["name"] == name && message["target"]["kind"][0] == "bin";
            is_ours.then(|| message["executable"].as_str().map(PathBuf::from))?
        })
        .context("cargo does not say where it put the gateway")
}
