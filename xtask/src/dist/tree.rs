//! The files of a package, where they are installed.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};

use super::Release;
use crate::shell;

const UNITS: [&str; 2] = ["sig.service", "sig-router@.service"];

/// Samples of files, by what prints them.
const SAMPLES: [(&str, &[&str]); 7] = [
    ("gateway.toml", &["config", "sample"]),
    ("traffic.policy", &["config", "sample", "traffic-policy"]),
    ("ip-routing.policy", &["config", "sample", "routing-policy"]),
    ("rules.toml", &["config", "sample", "rules"]),
    ("br-1.toml", &["router", "sample"]),
    ("topology.json", &["router", "sample", "--topology"]),
    ("srv6.toml", &["srv6", "sample"]),
];

/// What monitoring takes, in the folder `deploy`.
const MONITORING: [&str; 3] = [
    "grafana/gateway.json",
    "grafana/router.json",
    "prometheus/alerts.yml",
];

/// Where each shell looks for completions.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "usr/share/bash-completion/completions/sig"),
    ("zsh", "usr/share/zsh/vendor-completions/_sig"),
    ("fish", "usr/share/fish/vendor_completions.d/sig.fish"),
];

const COPYRIGHT: &str = "\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: sig

Files: *
Copyright: 2026 The sig authors
License: Apache-2.0 or MIT
 On Debian systems, the Apache License 2.0 is in /usr/share/common-licenses/Apache-2.0; that of MIT is
 .
";

/// Makes the tree around the program; returns its folder.
pub(super) fn make(release: &Release, program: &Path) -> Result<PathBuf> {
    let tree = Tree(release.folder.join("tree"));
    if tree.0.exists() {
        fs::remove_dir_all(&tree.0)?;
    }
    let source = shell::root();
    let read = |path: &Path| fs::read(path).with_context(|| path.display().to_string());
    tree.write("usr/bin/sig", &read(program)?)?;
    fs::set_permissions(
        tree.0.join("usr/bin/sig"),
        fs::Permissions::from_mode(0o755),
    )?;
    for unit in UNITS {
        let text = read(&source.join("sig-userspace/systemd").join(unit))?;
        tree.write(&format!("usr/lib/systemd/system/{unit}"), &text)?;
    }
    let print = |arguments: &[&str]| shell::capture(Command::new(program).args(arguments));
    for (shell, place) in COMPLETIONS {
        tree.write(place, print(&["completions", shell])?.as_bytes())?;
    }
    let manual = tree.0.join("usr/share/man/man1");
    fs::create_dir_all(&manual)?;
    shell::run(Command::new(program).arg("manual").arg(&manual))?;
    let doc = "usr/share/doc/sig";
    for (name, arguments) in SAMPLES {
        let text = print(arguments)?;
        tree.write(&format!("{doc}/examples/{name}"), text.as_bytes())?;
    }
    for file in MONITORING {
        let text = read(&source.join("deploy").join(file))?;
        tree.write(&format!("{doc}/{file}"), &text)?;
    }
    for file in fs::read_dir(source.join("docs"))?.flatten() {
        let path = file.path();
        if path.extension().is_some_and(|end| end == "md") {
            let name = file.file_name();
            tree.write(&format!("{doc}/{}", name.to_string_lossy()), &read(&path)?)?;
        }
    }
    tree.write(&format!("{doc}/copyright"), copyright(&source)?.as_bytes())?;
    tree.write(
        &format!("{doc}/changelog"),
        &read(&source.join("CHANGELOG.md"))?,
    )?;
    tree.write(
        &format!("{doc}/changelog.Debian"),
        changelog(release)?.as_bytes(),
    )?;
    for folder in [&manual, &tree.0.join(doc)] {
        for file in fs::read_dir(folder)?.flatten() {
            let name = file.file_name();
            if folder == &manual || name.to_string_lossy().starts_with("changelog") {
                shell::run(
                    Command::new("gzip")
                        .args(["-9", "--no-name"])
                        .arg(file.path()),
                )?;
            }
        }
    }
    Ok(tree.0)
}

struct Tree(PathBuf);

impl Tree {
    /// Writes a file that everybody may read.
    fn write(&self, place: &str, bytes: &[u8]) -> Result<()> {
        let file = self.0.join(place);
        let folder = file.parent().context("a file in a folder")?;
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        fs::write(&file, bytes).with_context(|| file.display().to_string())
    }
}

fn copyright(source: &Path) -> Result<String> {
    let licence = fs::read_to_string(source.join("LICENSE-MIT"))?;
    let lines = licence.trim().lines().map(|line| match line {
        "" => " .\n".to_owned(),
        line => format!(" {line}\n"),
    });
    Ok(COPYRIGHT.to_owned() + &lines.collect::<String>())
}

fn changelog(release: &Release) -> Result<String> {
    let date = shell::capture(
        Command::new("date")
            .env("LC_ALL", "C")
            .args(["--utc", "--rfc-email", "--date"])
            .arg(format!("@{}", release.epoch)),
    )?;
    Ok(format!(
        "sig ({}) unstable; urgency=medium\n\n  * See changelog.gz.\n\n -- {}  {}",
        release.version,
        super::deb::MAINTAINER,
        date
    ))
}
