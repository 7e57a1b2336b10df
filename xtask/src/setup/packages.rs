//! Debian packages that building, the demo and the tests need.

use std::process::Command;

use anyhow::{Result, bail};

use super::step;
use crate::shell;

const LABEL: &str = "packages";

/// For xsk-rs, which compiles libxdp and libbpf from C.
const BUILD: [&str; 8] = [
    "clang",
    "m4",
    "pkg-config",
    "libelf-dev",
    "zlib1g-dev",
    "gcc",
    "make",
    "libc6-dev",
];

/// For the demo and the tests.
const RUN: [&str; 7] = [
    "iproute2",
    "ethtool",
    "iputils-ping",
    "curl",
    "iperf3",
    "tcpdump",
    "procps",
];

/// Packages that are not installed; empty on a system without dpkg.
pub(super) fn missing() -> Result<Vec<&'static str>> {
    let wanted = BUILD.into_iter().chain(RUN);
    let Ok(output) = Command::new("dpkg-query")
        .args(["--show", "--showformat=${Package} ${db:Status-Status}\\n"])
        .args(BUILD.iter().chain(&RUN))
        .output()
    else {
        return Ok(Vec::new());
    };
    let known = String::from_utf8_lossy(&output.stdout).into_owned();
    let installed = |name: &&str| {
        known
            .lines()
            .any(|line| line == format!("{name} installed"))
    };
    Ok(wanted.filter(|name| !installed(name)).collect())
}

/// Installs what is missing.
pub(super) fn provide() -> Result<()> {
    if !has("dpkg-query") || !has("apt-get") {
        let wanted: Vec<_> = BUILD.into_iter().chain(RUN).collect();
        step(
            LABEL,
            &format!(
                "not a Debian system: install what Debian calls {}",
                wanted.join(" ")
            ),
        );
        return Ok(());
    }
    let missing = missing()?;
    if missing.is_empty() {
        step(LABEL, "all installed");
        return Ok(());
    }
    let list = missing.join(" ");
    if !shell::is_root() {
        bail!(
            "packages are missing; install them with `sudo apt-get install \
             --no-install-recommends {list}` and run `cargo xtask setup` again"
        );
    }
    step(LABEL, &format!("installing {list} (a minute or two)"));
    update_lists()?;
    install(&mut apt_get(), &missing)?;
    step(LABEL, "installed");
    Ok(())
}

/// Installs the packages of programs that are not there: pairs of a program and its Debian package.
pub(crate) fn provide_tools(tools: &[(&str, &str)]) -> Result<()> {
    let missing: Vec<_> = tools
        .iter()
        .filter(|(program, _)| !has(program))
        .map(|(_, package)| *package)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let list = missing.join(" ");
    if !shell::is_root() {
        bail!("programs are missing: `sudo apt-get install --no-install-recommends {list}`");
    }
    println!("installing {list}");
    update_lists()?;
    install(&mut apt_get(), &missing)
}

/// Installs packages with the given `apt-get`.
pub(crate) fn install(apt_get: &mut Command, packages: &[&str]) -> Result<()> {
    shell::capture(
        apt_get
            .args(["install", "--yes", "--quiet", "--no-install-recommends"])
            .args(packages),
    )
    .map(drop)
}

/// Fetches the package lists.
pub(crate) fn update_lists() -> Result<()> {
    shell::capture(apt_get().args(["update", "--quiet"])).map(drop)
}

/// `apt-get` that asks no questions.
pub(crate) fn apt_get() -> Command {
    let mut command = Command::new("apt-get");
    command.env("DEBIAN_FRONTEND", "noninteractive");
    command
}

/// Whether a program is in the search path.
pub(crate) fn has(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).exists())
}
