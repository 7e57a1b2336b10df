//! The archive that a machine starts from.

use std::{
    collections::BTreeSet,
    env, fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};

use super::packages::Kernel;
use crate::shell;

/// Drivers, and what `sig` and the network need; with all that they depend on. Built-in ones have no file.
const MODULES: [&str; 16] = [
    "virtio_pci",
    "virtio_net",
    "igb",
    "e1000e",
    "vmxnet3",
    "ipv6",
    "af_packet",
    "veth",
    "tun",
    "8021q",
    "bonding",
    "bridge",
    "sch_ingress",
    "cls_bpf",
    "act_bpf",
    "xfrm_user",
];

/// Programs of the host that are used there.
const PROGRAMS: [&str; 5] = ["ip", "ethtool", "ping", "iperf3", "taskset"];

/// Builds the archive, as a file in `folder`. `dataplane` are lines for the gateways' section of that name.
pub(super) fn build(
    kernel: &Kernel,
    sig: &Path,
    dataplane: &[String],
    folder: &Path,
) -> Result<PathBuf> {
    let root = folder.join(&kernel.version);
    for name in ["bin", "modules", "proc", "sys", "dev", "run", "tmp", "etc"] {
        fs::create_dir_all(root.join(name))?;
    }
    let mut files = BTreeSet::new();
    for program in PROGRAMS {
        let output =
            shell::capture(Command::new("sh").args(["-c", &format!("command -v {program}")]))?;
        files.insert((PathBuf::from(output.trim()), program));
    }
    files.insert((env::current_exe()?, "xtask"));
    files.insert((sig.to_owned(), "sig"));
    for (file, name) in &files {
        let there = root.join("bin").join(name);
        shell::capture(Command::new("strip").arg("-o").arg(&there).arg(file))?;
        for library in libraries(file)? {
            let there = root.join(library.strip_prefix("/")?);
            fs::create_dir_all(there.parent().context("a library without folder")?)?;
            fs::copy(&library, &there).with_context(|| library.display().to_string())?;
        }
    }
    let busybox = shell::capture(Command::new("sh").args(["-c", "command -v busybox"]))?;
    fs::copy(busybox.trim(), root.join("bin/busybox"))?;
    add_modules(kernel, &root)?;
    fs::write(root.join("dataplane"), dataplane.join("\n"))?;
    let init = root.join("init");
    fs::write(&init, include_str!("init.sh"))?;
    fs::set_permissions(&init, fs::Permissions::from_mode(0o755))?;
    let archive = folder.join(format!("{}.cpio.gz", kernel.version));
    shell::capture(
        Command::new("sh")
            .current_dir(&root)
            .args(["-c", "find . | cpio --quiet -o -H newc | gzip -1 > \"$0\""])
            .arg(&archive),
    )?;
    fs::remove_dir_all(&root)?;
    Ok(archive)
}

/// The shared libraries that a program loads.
fn libraries(program: &Path) -> Result<Vec<PathBuf>> {
    let list = shell::capture(Command::new("ldd").arg(program))?;
    let paths = list.split_whitespace().filter(|word| word.starts_with('/'));
    Ok(paths.map(PathBuf::from).collect())
}

/// Adds modules, and a file `order` that lists them in the order of their dependencies.
fn add_modules(kernel: &Kernel, root: &Path) -> Result<()> {
    let base = kernel
        .modules
        .ancestors()
        .nth(3)
        .context("a folder lib/modules/VERSION")?;
    shell::capture(
        Command::new("depmod")
            .arg("--basedir")
            .arg(base)
            .arg(&kernel.version),
    )?;
    let list = fs::read_to_string(kernel.modules.join("modules.dep"))?;
    let mut order = Vec::new();
    for module in MODULES {
        let name = format!("/{module}.ko");
        let Some((file, needed)) = list
            .lines()
            .filter_map(|line| line.split_once(':'))
            .find(|(file, _)| file.contains(&name))
        else {
            continue;
        };
        let mut files: Vec<_> = needed.split_whitespace().collect();
        files.reverse();
        files.push(file);
        for file in files {
            let name = Path::new(file).file_name().context("a module's name")?;
            let name = name.to_string_lossy();
            let name = format!("{}.ko", name.split(".ko").next().unwrap_or_default());
            if order.contains(&name) {
                continue;
            }
            let unpack = match Path::new(file).extension().and_then(|e| e.to_str()) {
                Some("xz") => "xz -dc \"$0\" > \"$1\"",
                Some("zst") => "zstd -dcq \"$0\" > \"$1\"",
                _ => "cat \"$0\" > \"$1\"",
            };
            shell::capture(
                Command::new("sh")
                    .args(["-c", unpack])
                    .arg(kernel.modules.join(file))
                    .arg(root.join("modules").join(&name)),
            )?;
            order.push(name);
        }
    }
    fs::write(root.join("modules/order"), order.join("\n") + "\n")?;
    Ok(())
}
