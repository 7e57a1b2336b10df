//! Debian's packages: tools for the machines, and kernels of several suites, which are unpacked and not installed.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail};

use crate::{setup, shell};

/// What the machines and their archives are made with.
const TOOLS: [(&str, &str); 4] = [
    ("busybox", "busybox-static"),
    ("cpio", "cpio"),
    ("depmod", "kmod"),
    ("zstd", "zstd"),
];

/// The first version of QEMU with the card `igb`.
const QEMU: u32 = 8;

/// An unpacked kernel.
pub(super) struct Kernel {
    /// As `uname -r` has it.
    pub(super) version: String,
    /// What is started.
    pub(super) image: PathBuf,
    /// Folder of its modules.
    pub(super) modules: PathBuf,
}

/// Installs QEMU and what archives are made with, unless they are there.
pub(super) fn provide_tools() -> Result<()> {
    setup::provide_tools(&TOOLS)?;
    if qemu_version().is_some_and(|version| version >= QEMU) {
        return Ok(());
    }
    println!("installing qemu-system-x86");
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    if release.contains("VERSION_CODENAME=bookworm") {
        let apt = Apt::new("bookworm-backports", true)?;
        setup::install(
            apt.command("apt-get").args(["-t", "bookworm-backports"]),
            &["qemu-system-x86"],
        )?;
    } else {
        setup::update_lists()?;
        setup::install(&mut setup::apt_get(), &["qemu-system-x86"])?;
    }
    match qemu_version() {
        Some(version) if version >= QEMU => Ok(()),
        _ => bail!("qemu-system-x86_64 {QEMU} or newer is needed: install it"),
    }
}

fn qemu_version() -> Option<u32> {
    let output = shell::capture(Command::new("qemu-system-x86_64").arg("--version")).ok()?;
    let version = output.split("version ").nth(1)?;
    version.split('.').next()?.parse().ok()
}

/// Unpacks the kernel that a suite recommends, unless that is there already.
pub(super) fn provide_kernel(suite: &str) -> Result<Kernel> {
    let apt = Apt::new(suite, false)?;
    let meta = shell::capture(apt.command("apt-cache").args(["show", "linux-image-amd64"]))?;
    let package = meta
        .split([' ', ',', '(', '\n'])
        .find(|word| {
            let version = word.strip_prefix("linux-image-");
            version.is_some_and(|version| version.starts_with(|c: char| c.is_ascii_digit()))
        })
        .with_context(|| format!("{suite} has no kernel for amd64"))?;
    let version = package.trim_start_matches("linux-image-").to_owned();
    let tree = cache().join("kernels").join(&version);
    if !tree.join("complete").exists() {
        println!("kernel {version}: fetching");
        fs::create_dir_all(&tree).with_context(|| tree.display().to_string())?;
        // Newer ones are in two parts, and `linux-image` is empty.
        let parts = [
            format!("linux-binary-{version}"),
            format!("linux-modules-{version}"),
        ];
        let split = apt
            .command("apt-cache")
            .arg("show")
            .args(&parts)
            .output()
            .is_ok_and(|output| output.status.success());
        let wanted = if split {
            &parts[..]
        } else {
            &[package.to_owned()][..]
        };
        for part in wanted {
            unpack(&apt, part, &tree)?;
        }
        fs::write(tree.join("complete"), "")?;
    }
    let modules = [tree.join("usr/lib/modules"), tree.join("lib/modules")]
        .into_iter()
        .map(|folder| folder.join(&version))
        .find(|folder| folder.exists())
        .with_context(|| format!("no modules in {}", tree.display()))?;
    let image = [
        tree.join(format!("boot/vmlinuz-{version}")),
        modules.join("vmlinuz"),
    ]
    .into_iter()
    .find(|file| file.exists())
    .with_context(|| format!("no kernel in {}", tree.display()))?;
    Ok(Kernel {
        version,
        image,
        modules,
    })
}

fn unpack(apt: &Apt, package: &str, tree: &Path) -> Result<()> {
    let folder = tree.join("package");
    fs::create_dir_all(&folder)?;
    shell::capture(
        apt.command("apt-get")
            .current_dir(&folder)
            // As root: the user that apt has for this cannot write here.
            .args(["-o", "APT::Sandbox::User=root", "download", package]),
    )?;
    for file in fs::read_dir(&folder)?.flatten() {
        shell::capture(
            Command::new("dpkg-deb")
                .arg("--extract")
                .arg(file.path())
                .arg(tree),
        )?;
    }
    fs::remove_dir_all(&folder)?;
    Ok(())
}

fn cache() -> PathBuf {
    let home = env::var_os("HOME").unwrap_or_else(|| "/root".into());
    Path::new(&home).join(".cache/sig/vm")
}

/// `apt` with lists of its own, so that the machine's stay as they are.
struct Apt {
    options: Vec<String>,
}

impl Apt {
    /// Reads the lists of a suite, from where the machine gets its own packages; `beside`: those of the machine too.
    fn new(suite: &str, beside: bool) -> Result<Self> {
        let folder = cache().join("apt").join(suite);
        let lists = folder.join("lists");
        fs::create_dir_all(lists.join("partial")).with_context(|| lists.display().to_string())?;
        let sources = folder.join("suite.sources");
        fs::write(
            &sources,
            format!(
                "Types: deb\nURIs: {}\nSuites: {suite}\nComponents: main\n\
                 Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg\n",
                archive()?
            ),
        )?;
        let mut options = vec![
            format!("Dir::Etc::sourcelist={}", sources.display()),
            format!("Dir::State::lists={}", lists.display()),
            "Dir::Cache::pkgcache=".to_owned(),
            "Dir::Cache::srcpkgcache=".to_owned(),
        ];
        if !beside {
            options.push("Dir::Etc::sourceparts=-".to_owned());
        }
        let apt = Self { options };
        shell::capture(apt.command("apt-get").args(["update", "--quiet"]))?;
        Ok(apt)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("DEBIAN_FRONTEND", "noninteractive");
        for option in &self.options {
            command.args(["-o", option]);
        }
        command
    }
}

/// Where the machine gets Debian's packages.
pub(crate) fn archive() -> Result<String> {
    let mut texts: Vec<String> = ["/etc/apt/sources.list"]
        .iter()
        .filter_map(|file| fs::read_to_string(file).ok())
        .collect();
    if let Ok(parts) = fs::read_dir("/etc/apt/sources.list.d") {
        texts.extend(
            parts
                .flatten()
                .filter_map(|part| fs::read_to_string(part.path()).ok()),
        );
    }
    texts
        .iter()
        .flat_map(|text| text.lines())
        .filter(|line| line.starts_with("URIs:") || line.starts_with("deb "))
        .flat_map(str::split_whitespace)
        .map(|word| word.trim_end_matches('/'))
        .find(|word| word.contains("://") && word.ends_with("/debian"))
        .map(str::to_owned)
        .context("no archive of Debian in /etc/apt: this needs a Debian system")
}
