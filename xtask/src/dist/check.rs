//! Tries the package in fresh Debian systems: installs, runs, upgrades, rolls back and removes it.

use std::{
    collections::BTreeSet,
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail};
use testbed::{Family, Folder, Network, Options};

use super::{Arch, Release, deb};
use crate::{setup, shell, vm};

const SUITES: [&str; 2] = ["bookworm", "trixie"];
/// Older than any release.
const OLDER: &str = "0.0.1";

const TOOLS: [(&str, &str); 3] = [
    ("mmdebstrap", "mmdebstrap"),
    ("setpriv", "util-linux"),
    ("ip", "iproute2"),
];

/// Folders whose contents differ after every use of the package manager.
const VOLATILE: [&str; 8] = [
    "./proc",
    "./dev",
    // In memory on a machine that runs.
    "./run",
    "./tmp",
    "./var/cache",
    "./var/lib/apt",
    "./var/lib/dpkg",
    "./var/log",
];

/// Prepares a root folder, `$0`, and runs a command there. What is mounted goes with the process.
const ENTER: &str =
    "mount -t proc proc \"$0/proc\"; mount --rbind /dev \"$0/dev\"; exec chroot \"$0\" \"$@\"";

/// Runs the tests of a package for this machine.
pub(super) fn run(release: &Release, package: &Path) -> Result<()> {
    setup::provide_tools(&TOOLS)?;
    let folder = Folder::new("dist")?;
    let tree = release.folder.join("tree");
    let older = deb::pack_as(release, OLDER, Arch::native()?, &tree)?;
    let result = SUITES
        .iter()
        .try_for_each(|suite| try_in(suite, folder.path(), package, &older, release));
    fs::remove_file(&older)?;
    result
}

fn try_in(
    suite: &str,
    folder: &Path,
    package: &Path,
    older: &Path,
    release: &Release,
) -> Result<()> {
    let system = System::new(suite, folder)?;
    let name = |file: &Path| file.file_name().map(|name| Path::new("/tmp").join(name));
    for file in [package, older] {
        let place = name(file).context("a package has a name")?;
        fs::copy(file, system.0.join(place.strip_prefix("/")?))?;
    }
    let (package, older) = (name(package), name(older));
    let install = |file: &Option<PathBuf>| {
        let file = file.as_ref().context("a package has a name")?;
        let file = file.to_string_lossy();
        system.run(&[
            "apt-get",
            "install",
            "--yes",
            "--quiet",
            "--no-install-recommends",
            "--allow-downgrades",
            &file,
        ])
    };
    system.run(&["apt-get", "update", "--quiet"])?;
    let before = system.files()?;

    install(&older)?;
    system.has_version(OLDER)?;
    println!("{suite}: installed");
    if system.run(&["sig", "version"])? != format!("sig {}\n", release.version) {
        bail!("`sig version` tells another version");
    }
    // The packages of scionproto do this too.
    system.run(&[
        "adduser",
        "--system",
        "--home",
        "/var/lib/scion",
        "--group",
        "scion",
    ])?;
    // The operator's files.
    for sample in ["gateway.toml", "traffic.policy", "ip-routing.policy"] {
        let sample = format!("/usr/share/doc/sig/examples/{sample}");
        system.run(&["cp", &sample, "/etc/scion/"])?;
    }
    let config = "/etc/scion/gateway.toml";
    system.run(&["sed", "-i", "s/^#id = .*/id = \"edited\"/", config])?;
    let checked = system.run(&["sig", "config", "check", config])?;
    if !checked.contains("ok") {
        bail!("the samples are not valid: {checked}");
    }

    install(&package)?;
    system.has_version(&release.version)?;
    if !system.run(&["cat", config])?.contains("id = \"edited\"") {
        bail!("the upgrade changed {config}");
    }
    println!("{suite}: upgraded");
    system.carry(&release.folder.join("sig"))?;
    println!("{suite}: carried pings as the user scion, with the unit's capabilities");

    install(&older)?;
    system.has_version(OLDER)?;
    println!("{suite}: rolled back");
    system.run(&["apt-get", "remove", "--yes", "--quiet", "sig"])?;
    if !system.0.join("etc/scion/gateway.toml").exists() {
        bail!("the removal took {config} with it");
    }
    system.run(&["rm", "-r", "/etc/scion"])?;
    system.run(&["apt-get", "purge", "--yes", "--quiet", "sig"])?;
    system.run(&["apt-get", "autoremove", "--purge", "--yes", "--quiet"])?;
    let after = system.files()?;
    let left: Vec<_> = after.difference(&before).cloned().collect();
    if !left.is_empty() {
        bail!("{suite}: the purge leaves {}", left.join(" "));
    }
    if fs::read_to_string(system.0.join("etc/passwd"))?.contains("scion") {
        bail!("{suite}: the purge leaves the user scion");
    }
    println!("{suite}: purged, nothing is left");
    Ok(())
}

/// The folder of a system.
struct System(PathBuf);

impl System {
    /// A fresh one, from the cache if there is one of the suite.
    fn new(suite: &str, folder: &Path) -> Result<Self> {
        let home = env::var_os("HOME").unwrap_or_else(|| "/root".into());
        let cache = Path::new(&home).join(".cache/sig/systems");
        let made = cache.join(format!("{suite}.tar"));
        if !made.exists() {
            println!("{suite}: making a system (a minute)");
            fs::create_dir_all(&cache)?;
            let partial = cache.join(format!("{suite}.partial.tar"));
            shell::run(
                Command::new("mmdebstrap")
                    // Debian installs adduser by default, and does not remove it by itself.
                    .args(["--quiet", "--variant=minbase", "--include=adduser", suite])
                    .arg(&partial)
                    .arg(vm::archive()?),
            )?;
            fs::rename(&partial, &made)?;
        }
        let root = folder.join(suite);
        fs::create_dir_all(&root)?;
        shell::run(
            Command::new("tar")
                .args(["--extract", "--numeric-owner", "--xattrs"])
                .arg("--file")
                .arg(&made)
                .arg("--directory")
                .arg(&root)
                // Nodes of devices: those of the machine are used.
                .arg("--exclude=./dev/*"),
        )?;
        fs::copy("/etc/resolv.conf", root.join("etc/resolv.conf"))?;
        Ok(Self(root))
    }

    /// Runs a command in the system, in the network of the machine; returns what it printed.
    fn run(&self, words: &[&str]) -> Result<String> {
        shell::capture(
            Command::new("unshare")
                .args([
                    "--mount",
                    "--pid",
                    "--fork",
                    "--kill-child",
                    "sh",
                    "-ec",
                    ENTER,
                ])
                .arg(&self.0)
                .args(words)
                .env("DEBIAN_FRONTEND", "noninteractive")
                .env("LC_ALL", "C.UTF-8"),
        )
    }

    fn has_version(&self, wanted: &str) -> Result<()> {
        let format = "--showformat=${db:Status-Status} ${Version}";
        let version = self.run(&["dpkg-query", "--show", format, "sig"])?;
        if version != format!("installed {wanted}") {
            bail!("instead of {wanted}, dpkg has: {version}");
        }
        Ok(())
    }

    /// All files, but for those that every use of the package manager changes.
    fn files(&self) -> Result<BTreeSet<String>> {
        let mut find = Command::new("find");
        find.current_dir(&self.0).args([".", "-xdev"]);
        for folder in VOLATILE {
            find.args(["-path", folder, "-prune", "-o"]);
        }
        // Backups of the files of users and groups, and the cache of the linker.
        let is_of_package_manager = |line: &&str| {
            (line.starts_with("./etc/") && line.ends_with('-')) || *line == "./etc/ld.so.cache"
        };
        let list = shell::capture(find.arg("-print"))?;
        let lines = list.lines().filter(|line| !is_of_package_manager(line));
        Ok(lines.map(str::to_owned).collect())
    }

    /// Has the installed gateways carry packets between two sites, as their unit starts them. `sig` is the same program on this
    /// machine, for the routers.
    fn carry(&self, sig: &Path) -> Result<()> {
        let unit = self.0.join("usr/lib/systemd/system/sig.service");
        let unit = fs::read_to_string(&unit).with_context(|| unit.display().to_string())?;
        let options = Options {
            gateways_by: self.as_in(&unit)?,
            ..Options::default()
        };
        let mut network = Network::build(sig, &options)?;
        network.a.spawn_gateway()?;
        network.b.start_gateway()?;
        network.a.wait_ready()?;
        for family in Family::ALL {
            let to = network.b.client_ip(family);
            network
                .a
                .client
                .exec(&format!("ping -c 5 -i 0.2 -W 2 {to}"))?;
        }
        network.a.stop_gateway()?;
        network.b.stop_gateway()
    }

    /// What starts the program of the system, as the unit does: the words before the program's path, which it ignores.
    fn as_in(&self, unit: &str) -> Result<Vec<String>> {
        let value = |key: &str| {
            let value = unit.lines().find_map(|line| line.strip_prefix(key));
            value.with_context(|| format!("the unit has no {key}"))
        };
        let user = value("User=")?;
        let sets: String = value("AmbientCapabilities=")?
            .split_whitespace()
            .map(|name| name.replace("CAP_", ",+").to_lowercase())
            .collect();
        let script = format!(
            "shift; for file; do :; done; folder=$(dirname \"$file\"); mkdir -p \"$0$folder\"; \
             mount -t proc proc \"$0/proc\"; mount -t sysfs sysfs \"$0/sys\"; mount --rbind /dev \"$0/dev\"; mount --bind \"$folder\" \"$0$folder\"; \
             exec chroot \"$0\" setpriv --reuid={user} --regid={user} --clear-groups --no-new-privs \
             --inh-caps=-all{sets} --ambient-caps=-all{sets} --bounding-set=-all{sets} /usr/bin/sig \"$@\""
        );
        let words = ["unshare", "--mount", "sh", "-ec"].map(str::to_owned);
        let rest = [script, self.0.display().to_string()];
        Ok(words.into_iter().chain(rest).collect())
    }
}
