//! The package for Debian.
//!
//! One for everything, as there is one program: what runs is chosen by the unit. It installs beside the reference's packages,
//! so that a change-over and the way back are a stop and a start, and `sig accelerate` and a second router have something to
//! stand beside. What excludes each other at run time says so in its unit. Nothing of it is in `/etc`: what is there belongs to the operator, and to the
//! reference's packages.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail};

use super::{Arch, Release, show};
use crate::shell;

pub(super) const MAINTAINER: &str = "The sig authors <sig@packages.invalid>";

/// Largest package, in bytes.
const LARGEST: u64 = 20_000_000;

/// What is run when the package comes and goes.
const SCRIPTS: [(&str, &str); 3] = [
    ("postinst", include_str!("deb/postinst")),
    ("prerm", include_str!("deb/prerm")),
    ("postrm", include_str!("deb/postrm")),
];

/// What every package has.
const FILES: [&str; 11] = [
    "./usr/bin/sig",
    "./usr/lib/systemd/system/sig.service",
    "./usr/lib/systemd/system/sig-router@.service",
    "./usr/share/bash-completion/completions/sig",
    "./usr/share/zsh/vendor-completions/_sig",
    "./usr/share/fish/vendor_completions.d/sig.fish",
    "./usr/share/man/man1/sig.1.gz",
    "./usr/share/doc/sig/copyright",
    "./usr/share/doc/sig/examples/gateway.toml",
    "./usr/share/doc/sig/grafana/gateway.json",
    "./usr/share/doc/sig/prometheus/alerts.yml",
];

/// Packs the tree; returns the file.
pub(super) fn pack(release: &Release, arch: Arch, tree: &Path) -> Result<PathBuf> {
    pack_as(release, &release.version, arch, tree)
}

/// The same, as another version.
pub(super) fn pack_as(
    release: &Release,
    version: &str,
    arch: Arch,
    tree: &Path,
) -> Result<PathBuf> {
    let arch_name = arch.debian();
    let folder = tree.join("DEBIAN");
    fs::create_dir_all(&folder)?;
    let size = shell::capture(
        Command::new("du")
            .args(["--summarize", "--apparent-size", "--block-size=1024"])
            .arg(tree),
    )?;
    let size = size.split_whitespace().next().unwrap_or_default();
    let depends = dependencies(release, tree)?;
    let control = format!(
        "Package: sig\nVersion: {version}\nArchitecture: {arch_name}\nMaintainer: {MAINTAINER}\nInstalled-Size: {size}\n\
         Depends: {depends}, adduser\nSuggests: scion-daemon\nSection: net\nPriority: optional\n\
         Description: SCION-IP gateway, border router and SRv6 node in XDP\n \
         Connects IP networks over SCION. A drop-in replacement for the SCION-IP\n \
         gateway and the border router of scionproto: it reads their files, and\n \
         bypasses the kernel's network stack with XDP and AF_XDP.\n"
    );
    fs::write(folder.join("control"), control)?;
    for (name, text) in SCRIPTS {
        fs::write(folder.join(name), text)?;
        fs::set_permissions(folder.join(name), fs::Permissions::from_mode(0o755))?;
    }
    let sums = "find usr -type f -print0 | LC_ALL=C sort --zero-terminated | xargs --null md5sum > DEBIAN/md5sums";
    shell::run(Command::new("sh").current_dir(tree).args(["-c", sums]))?;
    let package = release
        .folder
        .join(format!("sig_{version}_{arch_name}.deb"));
    shell::capture(
        Command::new("dpkg-deb")
            .env("SOURCE_DATE_EPOCH", &release.epoch)
            .args(["--root-owner-group", "-Zxz"])
            .arg(format!("-z{}", release.compression))
            .arg("--build")
            .arg(tree)
            .arg(&package),
    )?;
    fs::remove_dir_all(&folder)?;
    show(&package)?;
    Ok(package)
}

/// The packages whose libraries the program loads.
fn dependencies(release: &Release, tree: &Path) -> Result<String> {
    let folder = release.folder.join("shlibdeps");
    fs::create_dir_all(folder.join("debian"))?;
    fs::write(
        folder.join("debian/control"),
        "Source: sig\n\nPackage: sig\nArchitecture: any\n",
    )?;
    let output = shell::capture(
        Command::new("dpkg-shlibdeps")
            .current_dir(&folder)
            .args(["-O", "-e"])
            .arg(tree.join("usr/bin/sig")),
    )?;
    fs::remove_dir_all(&folder)?;
    let depends = output
        .lines()
        .find_map(|line| line.strip_prefix("shlibs:Depends="))
        .with_context(|| format!("dpkg-shlibdeps names no packages: {output}"))?;
    Ok(on_all_releases(depends))
}

/// Debian 13 calls libelf1 libelf1t64, which there also provides the old name, in its version; Debian 12 does not know the new
/// one.
fn on_all_releases(depends: &str) -> String {
    let each = depends
        .split(", ")
        .map(|package| match package.split_once("t64") {
            Some((name, version)) => format!("{name}{version} | {package}"),
            None => package.to_owned(),
        });
    each.collect::<Vec<_>>().join(", ")
}

/// Looks whether a package is as it shall be.
pub(super) fn inspect(package: &Path) -> Result<()> {
    let size = fs::metadata(package)?.len();
    if size > LARGEST {
        bail!(
            "{} has {size} bytes, more than {LARGEST}",
            package.display()
        );
    }
    let list = shell::capture(Command::new("dpkg-deb").arg("--contents").arg(package))?;
    let mut found = Vec::new();
    for line in list.lines() {
        let words: Vec<_> = line.split_whitespace().collect();
        let [mode, owner, .., file] = words[..] else {
            bail!("dpkg-deb lists a file without a name: {line}");
        };
        if owner != "root/root" {
            bail!("{file} belongs to {owner}");
        }
        if mode.contains(['s', 't']) || mode[5..].contains('w') {
            bail!("{file} has the mode {mode}");
        }
        if !file.starts_with("./usr/") && file != "./" {
            bail!("{file} is not below /usr");
        }
        found.push(file);
    }
    for file in FILES {
        if !found.contains(&file) {
            bail!("{file} is not in {}", package.display());
        }
    }
    let field = |name| {
        let mut command = Command::new("dpkg-deb");
        shell::capture(command.arg("--field").arg(package).arg(name))
    };
    let depends = field("Depends")?;
    for library in ["libc6 (>= ", "libelf1", "zlib1g"] {
        if !depends.contains(library) {
            bail!(
                "the package does not depend on {library}: {}",
                depends.trim()
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_hold_on_all_releases() {
        let of_12 = "libc6 (>= 2.34), libelf1 (>= 0.142), zlib1g (>= 1:1.1.4)";
        assert_eq!(on_all_releases(of_12), of_12);
        assert_eq!(
            on_all_releases("libelf1t64 (>= 0.142), zlib1g"),
            "libelf1 (>= 0.142) | libelf1t64 (>= 0.142), zlib1g"
        );
    }
}
