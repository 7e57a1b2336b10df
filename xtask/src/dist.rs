//! `cargo xtask dist`: what is given to those who do not build it themselves.
//!
//! | file in `target/dist` | |
//! |---|---|
//! | `sig_VERSION_ARCH.deb` | package for Debian 12 and later |
//! | `sig-VERSION-ARCH.tar.xz` | the files of the package |
//! | `sig-VERSION-oci.tar` | container image |
//! | `sig`, `sig.debug` | the program as packed, and what a debugger wants to know about it |
//! | `SHA256SUMS`, `SHA256SUMS.asc` | checksums of all, and a signature if `SIG_SIGNING_KEY` names a key of GnuPG |
//!
//! Debian's own tools pack them, so nothing has to be built first that packs.

mod binary;
mod check;
mod crates;
mod deb;
mod image;
mod tree;

pub(crate) use binary::build;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail};

use crate::{setup, shell};

/// Arguments of the task.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Pack this program, instead of building it
    #[arg(long, value_name = "FILE")]
    sig: Option<PathBuf>,
    /// Compress little: for tests
    #[arg(long)]
    fast: bool,
    /// Pack the crates of the library for crates.io instead, and build them as they are there
    #[arg(long, conflicts_with_all = ["sig", "check"])]
    crates: bool,
    /// Also try the package: install, run, upgrade, roll back and remove it in fresh Debian systems. As root
    #[arg(long)]
    check: bool,
}

/// What the program is built for: this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arch {
    Amd64,
    Arm64,
}

impl Arch {
    fn native() -> Result<Self> {
        match std::env::consts::ARCH {
            "x86_64" => Ok(Self::Amd64),
            "aarch64" => Ok(Self::Arm64),
            other => bail!("no packages for {other}: only for x86_64 and aarch64"),
        }
    }

    /// As Debian and container images have it.
    const fn debian(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }

    /// As Rust and tarballs have it.
    const fn rust(self) -> &'static str {
        match self {
            Self::Amd64 => "x86_64",
            Self::Arm64 => "aarch64",
        }
    }

    /// As the folders of Debian's libraries have it.
    fn triplet(self) -> String {
        format!("{}-linux-gnu", self.rust())
    }
}

/// What all files of a release have in common.
struct Release {
    version: String,
    /// Of the newest file in it, in seconds since 1970, so that the same sources make the same packages.
    epoch: String,
    folder: PathBuf,
    /// From 1 to 9.
    compression: u8,
}

/// Debian packages of the tools, by a program of each.
const TOOLS: [(&str, &str); 4] = [
    ("dpkg-deb", "dpkg"),
    ("dpkg-shlibdeps", "dpkg-dev"),
    ("objcopy", "binutils"),
    ("xz", "xz-utils"),
];

/// Runs the task.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    if arguments.check && !shell::is_root() {
        bail!("run `--check` as root: it makes systems to install the package in");
    }
    if arguments.crates {
        return crates::pack();
    }
    setup::provide_tools(&TOOLS)?;
    let arch = Arch::native()?;
    let release = Release::new(arguments.fast)?;
    let program = match &arguments.sig {
        Some(file) => binary::strip(file)?,
        None => build()?,
    };
    release.clear()?;
    let tree = tree::make(&release, &program)?;
    let package = deb::pack(&release, arch, &tree)?;
    deb::inspect(&package)?;
    tarball(&release, arch, &tree)?;
    image::make(&release, arch, &tree)?;
    sums(&release)?;
    if arguments.check {
        check::run(&release, &package)?;
    }
    Ok(())
}

impl Release {
    fn new(is_fast: bool) -> Result<Self> {
        let epoch = match std::env::var("SOURCE_DATE_EPOCH") {
            Ok(epoch) => epoch,
            Err(_) => shell::capture(Command::new("git").current_dir(shell::root()).args([
                "log",
                "-1",
                "--format=%ct",
            ]))
            // A source archive has no history.
            .unwrap_or_else(|_| "0".to_owned()),
        };
        Ok(Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            epoch: epoch.trim().to_owned(),
            folder: shell::target_dir().join("dist"),
            compression: if is_fast { 1 } else { 9 },
        })
    }

    /// Removes what an earlier run made, so that checksums are those of one release.
    fn clear(&self) -> Result<()> {
        for file in fs::read_dir(&self.folder)
            .with_context(|| self.folder.display().to_string())?
            .flatten()
        {
            let name = file.file_name();
            let name = name.to_string_lossy();
            let is_ours = [".deb", ".tar", ".tar.xz"]
                .iter()
                .any(|end| name.ends_with(end));
            if is_ours || name.starts_with("SHA256SUMS") {
                fs::remove_file(file.path())?;
            }
        }
        Ok(())
    }

    /// `tar` that makes the same archive of the same files.
    fn tar(&self) -> Command {
        let mut command = Command::new("tar");
        command.args([
            "--create",
            "--sort=name",
            "--owner=0",
            "--group=0",
            "--numeric-owner",
            "--format=gnu",
        ]);
        command.arg(format!("--mtime=@{}", self.epoch));
        command
    }
}

fn tarball(release: &Release, arch: Arch, tree: &Path) -> Result<()> {
    let file = release
        .folder
        .join(format!("sig-{}-{}.tar.xz", release.version, arch.rust()));
    shell::run(
        release
            .tar()
            .arg("--use-compress-program")
            .arg(format!("xz -{} --threads=0", release.compression))
            .arg("--file")
            .arg(&file)
            .arg("--transform")
            .arg(format!("s,^\\.,sig-{},", release.version))
            .arg("--directory")
            .arg(tree)
            .arg("."),
    )?;
    show(&file)
}

/// Says what has been made.
fn show(file: &Path) -> Result<()> {
    let size = fs::metadata(file)
        .with_context(|| file.display().to_string())?
        .len();
    println!("{} ({:.1} MB)", file.display(), size as f64 / 1e6);
    Ok(())
}

/// Checksums of all files, signed if there is a key.
fn sums(release: &Release) -> Result<()> {
    let mut names: Vec<_> = fs::read_dir(&release.folder)?
        .flatten()
        .filter(|entry| entry.path().is_file())
        .map(|entry| entry.file_name())
        .collect();
    names.sort();
    let sums = shell::capture(
        Command::new("sha256sum")
            .current_dir(&release.folder)
            .args(&names),
    )?;
    let file = release.folder.join("SHA256SUMS");
    fs::write(&file, sums).with_context(|| file.display().to_string())?;
    show(&file)?;
    let Some(key) = std::env::var_os("SIG_SIGNING_KEY") else {
        return Ok(());
    };
    shell::run(
        Command::new("gpg")
            .args(["--batch", "--yes", "--armor", "--detach-sign"])
            .arg("--local-user")
            .arg(key)
            .arg(&file),
    )?;
    show(&release.folder.join("SHA256SUMS.asc"))
}
