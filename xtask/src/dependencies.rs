//! `cargo xtask dependencies`: what the packages depend on keeps to `deny.toml`, and is used.
//!
//! The rules are those of cargo-deny and cargo-machete, which read the same settings: installing them takes longer than all
//! else that is checked here. Advisories are left to `cargo deny check advisories`: their database is not reachable from
//! everywhere.

mod policy;
mod unused;

use std::{collections::BTreeSet, fs, path::PathBuf};

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

use crate::shell;
use policy::Policy;

/// Each has a lock file of its own.
const WORKSPACES: [&str; 4] = [
    "Cargo.toml",
    "sig-ebpf/Cargo.toml",
    "benches/ebpf/Cargo.toml",
    "sig-userspace/fuzz/Cargo.toml",
];

/// Runs the task.
pub(crate) fn run() -> Result<()> {
    let policy = Policy::parse(&read("deny.toml")?).context("deny.toml")?;
    let mut packages = BTreeSet::new();
    let mut wrong = Vec::new();
    for workspace in WORKSPACES {
        let metadata = metadata(workspace, policy.targets())?;
        wrong.extend(policy.violations(&metadata.packages));
        for package in metadata.packages.iter().filter(|p| p.is_ours()) {
            wrong.extend(unused::of_package(package, &metadata.packages)?);
        }
        wrong.extend(unused::of_workspace(&read(workspace)?, &metadata.packages)?);
        packages.extend(metadata.packages);
    }
    for warning in policy.duplicates(&packages) {
        println!("warning: {warning}");
    }
    if !wrong.is_empty() {
        wrong.sort();
        wrong.dedup();
        bail!("dependencies:\n  {}", wrong.join("\n  "));
    }
    println!(
        "{} packages keep to deny.toml, and all dependencies are used",
        packages.len()
    );
    Ok(())
}

fn read(file: &str) -> Result<String> {
    let path = shell::root().join(file);
    fs::read_to_string(&path).with_context(|| path.display().to_string())
}

fn metadata(manifest: &str, targets: &[String]) -> Result<Metadata> {
    let mut cargo = testbed::cargo();
    cargo
        .current_dir(shell::root())
        .args(["metadata", "--locked", "--format-version", "1"])
        .args(["--manifest-path", manifest]);
    for target in targets {
        cargo.args(["--filter-platform", target]);
    }
    serde_json::from_str(&shell::capture(&mut cargo)?).context("cargo metadata")
}

/// What `cargo metadata` tells, as far as it is wanted here.
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
struct Package {
    name: String,
    version: String,
    license: Option<String>,
    source: Option<String>,
    manifest_path: PathBuf,
    dependencies: Vec<Dependency>,
    #[serde(default)]
    targets: Vec<Target>,
}

impl Package {
    /// Packages of this repository come from a path.
    fn is_ours(&self) -> bool {
        self.source.is_none()
    }

    /// Name of the library, where the package has one.
    fn library(&self) -> Option<&str> {
        let kinds = ["lib", "rlib", "proc-macro"];
        let is_library = |one: &&Target| one.kind.iter().any(|kind| kinds.contains(&&**kind));
        self.targets.iter().find(is_library).map(|one| &*one.name)
    }
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
struct Dependency {
    name: String,
    rename: Option<String>,
    req: String,
    /// `dev`, `build`, or nothing for what the library and the programs use.
    kind: Option<String>,
    path: Option<PathBuf>,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
    src_path: PathBuf,
}
