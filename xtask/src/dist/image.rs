//! The container image: an OCI layout, made without a container engine. One layer with the program, the libraries that it loads
//! and their licences; no shell, no package manager.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::{Arch, Release, show};
use crate::shell;

/// What `docker run --cap-add` has to name for the gateway; `docs/install.md` explains them.
const CAPABILITIES: &str = "NET_ADMIN NET_RAW BPF PERFMON SYS_ADMIN IPC_LOCK SYS_NICE";

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// Makes it of the files of the package.
pub(super) fn make(release: &Release, arch: Arch, tree: &Path) -> Result<()> {
    let root = release.folder.join("image");
    for folder in [&root, &layout(release).join("blobs/sha256")] {
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    let program = tree.join("usr/bin/sig");
    let mut files: BTreeSet<PathBuf> = libraries(arch, &program)?;
    let packages = owners(&files);
    let licences = packages.iter().map(|package| {
        let package = package.split(':').next().unwrap_or_default();
        PathBuf::from(format!("/usr/share/doc/{package}/copyright"))
    });
    files.extend(licences.filter(|file| file.exists()));
    for file in &files {
        copy(file, &root, file)?;
    }
    for place in ["/usr/bin/sig", "/usr/share/doc/sig/copyright"] {
        let place = Path::new(place);
        copy(&tree.join(place.strip_prefix("/")?), &root, place)?;
    }
    for folder in ["etc/scion", "run/sig", "tmp", "proc", "sys", "dev"] {
        fs::create_dir_all(root.join(folder))?;
    }
    fs::write(
        root.join("etc/passwd"),
        "root:x:0:0:root:/:/usr/sbin/nologin\nnobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n",
    )?;
    let layer = release.folder.join("layer.tar");
    shell::run(
        release
            .tar()
            .arg("--file")
            .arg(&layer)
            .arg("--directory")
            .arg(&root)
            .arg("."),
    )?;
    fs::remove_dir_all(&root)?;
    let diff = sha256(&layer)?;
    shell::run(
        Command::new("gzip")
            .arg(format!("-{}", release.compression))
            .args(["--no-name", "--force"])
            .arg(&layer),
    )?;
    let packed = release.folder.join("layer.tar.gz");
    let layer = add(
        release,
        &packed,
        "application/vnd.oci.image.layer.v1.tar+gzip",
    )?;
    fs::remove_file(&packed)?;
    let config = json!({
        "architecture": arch.debian(),
        "os": "linux",
        "config": {
            "Entrypoint": ["/usr/bin/sig"],
            "Cmd": ["run", "--config", "/etc/scion/gateway.toml"],
            "Labels": {
                "org.opencontainers.image.title": "sig",
                "org.opencontainers.image.description": "SCION-IP gateway, border router and SRv6 node in XDP",
                "org.opencontainers.image.version": release.version,
                "org.opencontainers.image.licenses": "Apache-2.0 OR MIT",
                "sig.capabilities": CAPABILITIES,
                "sig.devices": "/dev/net/tun, if BPF or SYS_ADMIN are refused",
                "sig.network": "that of the host, or interfaces moved into the container",
            },
        },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{diff}")] },
        "history": [{ "created_by": "cargo xtask dist" }],
    });
    let config = add_document(release, &config, "application/vnd.oci.image.config.v1+json")?;
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": config,
        "layers": [layer],
    });
    let mut manifest = add_document(release, &manifest, MANIFEST)?;
    manifest["platform"] = json!({ "architecture": arch.debian(), "os": "linux" });
    manifest["annotations"] = json!({ "org.opencontainers.image.ref.name": release.version });
    let index = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [manifest],
    });
    let layout = layout(release);
    fs::write(layout.join("index.json"), index.to_string())?;
    fs::write(
        layout.join("oci-layout"),
        json!({ "imageLayoutVersion": "1.0.0" }).to_string(),
    )?;
    let file = release
        .folder
        .join(format!("sig-{}-oci.tar", release.version));
    shell::run(
        release
            .tar()
            .arg("--file")
            .arg(&file)
            .arg("--directory")
            .arg(&layout)
            .args(["blobs", "index.json", "oci-layout"]),
    )?;
    fs::remove_dir_all(&layout)?;
    show(&file)
}

fn layout(release: &Release) -> PathBuf {
    release.folder.join("oci")
}

fn copy(file: &Path, root: &Path, place: &Path) -> Result<()> {
    let place = root.join(place.strip_prefix("/")?);
    let folder = place.parent().context("a file in a folder")?;
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    fs::copy(file, &place)
        .map(drop)
        .with_context(|| file.display().to_string())
}

fn sha256(file: &Path) -> Result<String> {
    let text = shell::capture(Command::new("sha256sum").arg(file))?;
    let digest = text.split_whitespace().next();
    digest
        .map(str::to_owned)
        .with_context(|| format!("sha256sum prints no sum of {}", file.display()))
}

/// Adds a blob to the layout; returns its descriptor.
fn add(release: &Release, file: &Path, media_type: &str) -> Result<Value> {
    let digest = sha256(file)?;
    let size = fs::metadata(file)?.len();
    fs::copy(file, layout(release).join("blobs/sha256").join(&digest))?;
    Ok(json!({ "mediaType": media_type, "digest": format!("sha256:{digest}"), "size": size }))
}

fn add_document(release: &Release, document: &Value, media_type: &str) -> Result<Value> {
    let file = release.folder.join("document.json");
    fs::write(&file, document.to_string())?;
    let descriptor = add(release, &file, media_type)?;
    fs::remove_file(&file)?;
    Ok(descriptor)
}

/// The shared libraries that a program loads, and what loads them.
fn libraries(arch: Arch, program: &Path) -> Result<BTreeSet<PathBuf>> {
    let triplet = arch.triplet();
    let folders = [format!("/lib/{triplet}"), format!("/usr/lib/{triplet}")];
    let loader = match arch {
        Arch::Amd64 => "/lib64/ld-linux-x86-64.so.2",
        Arch::Arm64 => "/lib/ld-linux-aarch64.so.1",
    };
    let mut found = BTreeSet::from([PathBuf::from(loader)]);
    let mut todo = vec![program.to_owned()];
    while let Some(file) = todo.pop() {
        let text = shell::capture(
            Command::new("readelf")
                .env("LC_ALL", "C")
                .arg("--dynamic")
                .arg(&file),
        )?;
        let names = text
            .lines()
            .filter(|line| line.contains("(NEEDED)"))
            .filter_map(|line| line.split(['[', ']']).nth(1));
        for name in names.filter(|name| !name.starts_with("ld-linux")) {
            let library = folders
                .iter()
                .map(|folder| Path::new(folder).join(name))
                .find(|library| library.exists())
                .with_context(|| format!("no library {name} for {triplet}"))?;
            if found.insert(library.clone()) {
                todo.push(library);
            }
        }
    }
    Ok(found)
}

/// The packages that files belong to, as far as dpkg knows.
fn owners(files: &BTreeSet<PathBuf>) -> BTreeSet<String> {
    let owner = |file: &PathBuf| {
        // Debian's folders in `/` are links to those in `/usr`; packages know either.
        let name = file.file_name()?;
        let pattern = format!("*/{}", name.to_string_lossy());
        let text = shell::capture(Command::new("dpkg-query").arg("--search").arg(pattern)).ok()?;
        let line = text.lines().next()?;
        Some(line.split_once(": ")?.0.to_owned())
    };
    files.iter().filter_map(owner).collect()
}
