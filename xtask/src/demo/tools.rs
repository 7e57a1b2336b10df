//! Programs that one demo alone needs.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail};

use crate::{setup, shell};

/// How long package lists, and then packages, may take to arrive.
const PATIENCE_SECONDS: &str = "60";

/// A program and where its libraries are.
pub(super) struct Tool {
    program: PathBuf,
    libraries: PathBuf,
}

impl Tool {
    /// Finds a program, or downloads its Debian package with what that needs. It is unpacked below Cargo's target folder and not
    /// installed: some packages start services on the machine's interfaces.
    ///
    /// # Errors
    /// There is no such package, or it does not arrive in time.
    pub(super) fn provide(program: &str, package: &str) -> Result<Self> {
        if setup::has(program) {
            return Ok(Self {
                program: program.into(),
                libraries: PathBuf::new(),
            });
        }
        let folder = shell::target_dir().join("demo").join(package);
        if !folder.exists() {
            println!("downloading {package} and what it needs");
            fetch(package, &folder)?;
        }
        let find = |name: String| {
            let places = ["usr/bin", "usr/sbin", "bin", "sbin", "usr/lib", "lib"];
            let mut found = places.iter().map(|place| folder.join(place).join(&name));
            found.find(|path| path.exists())
        };
        Ok(Self {
            program: find(program.to_owned())
                .with_context(|| format!("no {program} in {}", folder.display()))?,
            libraries: find(format!("{}-linux-gnu", std::env::consts::ARCH)).unwrap_or_default(),
        })
    }

    /// A command that runs it in `netns`.
    pub(super) fn command(&self, netns: &testbed::Netns) -> Command {
        let mut command = netns.command(&self.program);
        if !self.libraries.as_os_str().is_empty() {
            command.env("LD_LIBRARY_PATH", &self.libraries);
        }
        command
    }
}

/// Downloads and unpacks, with package lists that may be old, and again with new ones.
fn fetch(package: &str, folder: &Path) -> Result<()> {
    let partial = folder.with_extension(format!("partial-{}", std::process::id()));
    let archives = partial.join("archives");
    fs::create_dir_all(archives.join("partial"))?;
    let download = || {
        let cache = format!("Dir::Cache::Archives={}", archives.display());
        // The unprivileged user of apt cannot write into our folder.
        apt_get(&[
            "install",
            "--download-only",
            "--yes",
            "--no-install-recommends",
            "-o",
            "APT::Sandbox::User=root",
            "-o",
            &cache,
            package,
        ])
    };
    let complete = download()
        .or_else(|_| apt_get(&["update"]).and_then(|()| download()))
        .and_then(|()| unpack(&archives, &partial))
        .and_then(|()| Ok(fs::rename(&partial, folder)?));
    if complete.is_err() {
        let _ = fs::remove_dir_all(&partial);
    }
    complete
}

/// Fails with the last that it says.
fn apt_get(arguments: &[&str]) -> Result<()> {
    let output = Command::new("timeout")
        .args([PATIENCE_SECONDS, "apt-get", "--quiet"])
        .args(arguments)
        .env("LC_ALL", "C")
        .output()
        .context("`timeout` does not start")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let why = said
            .lines()
            .last()
            .unwrap_or("it takes too long")
            .to_owned();
        bail!("apt-get: {why}");
    }
    Ok(())
}

fn unpack(archives: &Path, to: &Path) -> Result<()> {
    let files: io::Result<Vec<_>> = fs::read_dir(archives)?
        .map(|entry| Ok(entry?.path()))
        .collect();
    for file in files? {
        if file.extension().is_some_and(|of| of == "deb") {
            shell::capture(Command::new("dpkg").arg("-x").arg(&file).arg(to))?;
        }
    }
    Ok(fs::remove_dir_all(archives)?)
}
