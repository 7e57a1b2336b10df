//! A Rust compiler for BPF: Debian's packages with a prebuilt `core`, else rustup's `rust-src`.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, anyhow, bail};

use super::{packages, step, usable_compiler};
use crate::{
    bpf_build::{self, Compiler},
    shell,
};

const LABEL: &str = "BPF compiler";

/// A compiler package, the package with `core` for BPF that fits it, and the one with clippy. The first
/// are in the security suite of stable releases, which build browsers with them; the others in later ones.
const FAMILIES: [(&str, &str, &str); 2] = [
    ("rustc-web", "libstd-rust-web-dev-bpf", "rust-web-clippy"),
    ("rustc", "libstd-rust-dev-bpf", "rust-clippy"),
];

/// Finds a compiler, or makes one available.
pub(super) fn provide() -> Result<Compiler> {
    if let Some(compiler) = usable_compiler() {
        step(LABEL, &compiler.to_string());
        return Ok(compiler);
    }
    let mut tried = Vec::new();
    for attempt in [from_debian, from_rustup] {
        match attempt() {
            Ok(compiler) => {
                step(LABEL, &compiler.to_string());
                return Ok(compiler);
            }
            Err(error) => tried.push(format!("  {error:#}")),
        }
    }
    let (_, refused) = Compiler::candidates();
    bail!(
        "no Rust compiler for BPF.\nInstalled: {}\nTried:\n{}\nProvide one of both: \
         `rustup component add rust-src` for the toolchain in rust-toolchain.toml, or package \
         sources of Debian (with its security suite) that have {} and {}.",
        refused.join("; "),
        tried.join("\n"),
        FAMILIES[0].0,
        FAMILIES[0].1,
    )
}

/// Adds the sources of the standard library to the toolchain that runs us.
fn from_rustup() -> Result<Compiler> {
    if !packages::has("rustup") {
        bail!("rustup: not found");
    }
    step(LABEL, "adding rust-src to the rustup toolchain");
    shell::capture(Command::new("rustup").args(["component", "add", "rust-src"]))?;
    usable_compiler().ok_or_else(|| anyhow!("rustup: added rust-src, still not usable"))
}

/// Makes the clippy that belongs to `compiler` available beside it.
pub(crate) fn provide_clippy(compiler: &Compiler) -> Result<()> {
    let clippy = |name| compiler.rustc.with_file_name(name);
    if clippy("clippy-driver").exists() && clippy("cargo-clippy").exists() {
        return Ok(());
    }
    if compiler.build_std {
        bail!(
            "no clippy beside {}: `rustup component add clippy` for its toolchain",
            compiler.rustc.display()
        );
    }
    let wanted = with_fresh_lists(resolve_clippy)?;
    let dir = bpf_build::debian_dir().map_err(|e| anyhow!(e))?;
    download(&[wanted], &dir, |partial| {
        for name in ["clippy-driver", "cargo-clippy"] {
            fs::rename(partial.join("usr/bin").join(name), clippy(name))?;
        }
        Ok(())
    })
}

/// Unpacks Debian's packages into the cache folder. They are not installed: they would replace a
/// compiler the user has.
fn from_debian() -> Result<Compiler> {
    if !packages::has("apt-get") || !packages::has("dpkg") {
        bail!("Debian packages: not a Debian system");
    }
    let wanted = with_fresh_lists(resolve)?;
    let dir = bpf_build::debian_dir().map_err(|e| anyhow!(e))?;
    download(&wanted, &dir, |partial| replace(partial, &dir))?;
    Compiler::from_debian(&dir)
        .and_then(|found| found.ok_or_else(|| format!("no compiler in {}", dir.display())))
        .map_err(|e| anyhow!("Debian packages {}: {e}", wanted.join(" ")))
}

/// Asks apt's package lists, and once more after fetching them anew.
fn with_fresh_lists<T>(resolve: impl Fn() -> Result<T>) -> Result<T> {
    match resolve() {
        Err(_) if shell::is_root() => {
            packages::update_lists()?;
            resolve()
        }
        result => result.context("the package lists may be old: sudo apt-get update"),
    }
}

/// Downloads packages, unpacks them beside `dir` and has `place` put them where they belong.
fn download(wanted: &[String], dir: &Path, place: impl Fn(&Path) -> Result<()>) -> Result<()> {
    step(LABEL, &format!("downloading {}", wanted.join(" ")));
    let parent = dir.parent().context("no cache folder")?;
    let partial = parent.join(format!("bpf-toolchain.{}", std::process::id()));
    let placed = fs::create_dir_all(&partial)
        .with_context(|| format!("cannot create {}", partial.display()))
        .and_then(|()| unpack(wanted, &partial))
        .and_then(|()| place(&partial));
    // What is left after success is of no use.
    let _ = fs::remove_dir_all(&partial);
    placed
}

fn unpack(wanted: &[String], partial: &Path) -> Result<()> {
    let mut download = packages::apt_get();
    download.current_dir(partial).args(["download", "--quiet"]);
    if shell::is_root() {
        // The unprivileged user of apt cannot write into our folder.
        download.args(["-o", "APT::Sandbox::User=root"]);
    }
    shell::capture(download.args(wanted))?;
    let files: Vec<PathBuf> = fs::read_dir(partial)?
        .flatten()
        .map(|entry| entry.path())
        .collect();
    for file in files
        .iter()
        .filter(|f| f.extension().is_some_and(|e| e == "deb"))
    {
        shell::capture(Command::new("dpkg").arg("-x").arg(file).arg(partial))?;
        fs::remove_file(file)?;
    }
    Ok(())
}

/// Puts the complete folder in place, so that an interrupted setup never leaves half of one.
fn replace(partial: &Path, dir: &Path) -> Result<()> {
    if dir.exists() {
        fs::remove_dir_all(dir).with_context(|| format!("cannot remove {}", dir.display()))?;
    }
    fs::rename(partial, dir).with_context(|| format!("cannot create {}", dir.display()))
}

/// Names and versions of the packages to fetch, as `apt-get download` takes them.
fn resolve() -> Result<Vec<String>> {
    for (compiler, core, _) in FAMILIES {
        let (Some(compiler), Some(core)) = (Package::newest(compiler), Package::newest(core))
        else {
            continue;
        };
        if compiler.version == core.version {
            return Ok(closure(vec![compiler, core]));
        }
    }
    let names: Vec<_> = FAMILIES
        .iter()
        .map(|(rustc, core, _)| format!("{rustc} with {core}"))
        .collect();
    bail!(
        "Debian packages: looked for {} of the same version, found none",
        names.join(" or ")
    )
}

/// Name and version of the package with the clippy of the compiler that [`resolve`] chooses.
fn resolve_clippy() -> Result<String> {
    let compilers = resolve()?;
    FAMILIES
        .iter()
        .filter_map(|(_, _, clippy)| Package::newest(clippy))
        .find(|clippy| {
            let version = format!("={}", clippy.version);
            compilers.first().is_some_and(|one| one.ends_with(&version))
        })
        .map(|clippy| format!("{}={}", clippy.name, clippy.version))
        .context("Debian packages: no clippy of the compiler's version")
}

/// Adds the libraries that the packages depend on and that only come with a compiler: the standard
/// library for proc macros, and LLVM.
fn closure(mut packages: Vec<Package>) -> Vec<String> {
    let mut next = 0;
    while let Some(package) = packages.get(next) {
        let needed: Vec<_> = package
            .depends
            .iter()
            .filter(|name| name.starts_with("libstd-rust") || name.starts_with("libllvm"))
            .filter(|name| packages.iter().all(|have| have.name != **name))
            .cloned()
            .collect();
        packages.extend(needed.iter().filter_map(|name| Package::newest(name)));
        next += 1;
    }
    packages
        .iter()
        .map(|p| format!("{}={}", p.name, p.version))
        .collect()
}

/// A package that apt could install.
#[derive(Debug, PartialEq)]
struct Package {
    name: String,
    version: String,
    depends: Vec<String>,
}

impl Package {
    fn newest(name: &str) -> Option<Self> {
        let text = shell::capture(
            Command::new("apt-cache")
                .args(["show", "--no-all-versions", name])
                .env("LC_ALL", "C"),
        )
        .ok()?;
        Self::parse(&text)
    }

    /// Reads one entry of a package list. Alternatives of a dependency are all taken as names.
    fn parse(text: &str) -> Option<Self> {
        let field = |key: &str| {
            text.lines()
                .find_map(|line| line.strip_prefix(key))
                .map(str::trim)
        };
        let depends = field("Depends:").unwrap_or_default();
        Some(Self {
            name: field("Package:")?.to_owned(),
            version: field("Version:")?.to_owned(),
            depends: depends
                .split([',', '|'])
                .filter_map(|one| one.split_whitespace().next())
                .map(|name| name.split(':').next().unwrap_or(name).to_owned())
                .collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Package;

    #[test]
    fn a_package_entry_is_read_without_version_conditions() {
        let text = "Package: rustc-web\nVersion: 1.96.0-1\nDepends: libc6 (>= 2.36), \
                    libstd-rust-web-dev (= 1.96.0-1), gcc:any, libc6-dev | libc-dev\n";
        let package = Package::parse(text).unwrap();
        assert_eq!(
            (&*package.name, &*package.version),
            ("rustc-web", "1.96.0-1")
        );
        assert_eq!(
            package.depends,
            [
                "libc6",
                "libstd-rust-web-dev",
                "gcc",
                "libc6-dev",
                "libc-dev"
            ]
        );
    }

    #[test]
    fn an_unknown_package_is_none() {
        assert_eq!(Package::parse(""), None);
    }
}
