//! Finds a compiler and a linker for BPF and builds packages of BPF programs with them.
//!
//! This file is a module of the build script of `sig-linux` and, by `#[path]`, of that of `benches` and of
//! `xtask`. So all of them build the same objects in the same folder, whoever comes first; cargo's
//! lock of that folder makes the others wait. It therefore uses the standard library only.
//!
//! A Rust compiler for BPF needs its `core` library. There are two ways to it: a rustup toolchain
//! with the component `rust-src`, which cargo builds `core` from, or Debian's packages, which
//! bring `core` prebuilt. `cargo xtask setup` provides one of them; here it is only looked up.

use std::{
    env, fmt, fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Version of `bpf-linker` that `cargo xtask setup` installs.
///
/// It is the last one that loads the LLVM which the Rust compiler brings. Later ones need LLVM's
/// development packages.
pub(crate) const LINKER_VERSION: &str = "0.10.1";

/// LLVM versions that this `bpf-linker` can be built for. The compiler must use one of them.
pub(crate) const LINKER_LLVM: std::ops::RangeInclusive<u32> = 20..=22;

/// What the user does about every error of [`Toolchain::find`].
pub(crate) const REMEDY: &str = "run `cargo xtask setup`";

/// A Rust compiler that can compile for BPF.
#[derive(Clone, Debug)]
pub(crate) struct Compiler {
    /// The compiler's executable.
    pub(crate) rustc: PathBuf,
    /// Folder of the shared libraries of the compiler, LLVM among them.
    pub(crate) libraries: PathBuf,
    /// Major version of its LLVM.
    pub(crate) llvm: u32,
    /// `core` is compiled from the sources of the same toolchain instead of being there.
    pub(crate) build_std: bool,
}

/// A compiler and the linker that fits it.
#[derive(Clone, Debug)]
pub(crate) struct Toolchain {
    /// The compiler.
    pub(crate) compiler: Compiler,
    /// The executable of `bpf-linker`.
    pub(crate) linker: PathBuf,
}

/// A package of BPF programs, which is a workspace of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Package {
    /// Its folder below the root of the source tree.
    pub(crate) folder: &'static str,
    /// The name of the object that it makes.
    pub(crate) object: &'static str,
}

/// The programs of gateway and border router.
pub(crate) const PRODUCT: Package = Package {
    folder: "sig-ebpf",
    object: "sig-ebpf",
};

/// Generator, sink and forwarders of the throughput harness.
pub(crate) const HARNESS: Package = Package {
    folder: "benches/ebpf",
    object: "measure",
};

impl fmt::Display for Compiler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let core = if self.build_std {
            "rust-src"
        } else {
            "prebuilt core"
        };
        write!(f, "{} (LLVM {}, {core})", self.rustc.display(), self.llvm)
    }
}

/// Folder for tools that outlive a clone: `$XDG_CACHE_HOME/sig`, usually `~/.cache/sig`.
pub(crate) fn cache_dir() -> Result<PathBuf, String> {
    let base = match env::var_os("XDG_CACHE_HOME") {
        Some(dir) if !dir.is_empty() => PathBuf::from(dir),
        _ => home()?.join(".cache"),
    };
    Ok(base.join("sig"))
}

/// Folder that Debian's packages are unpacked into.
pub(crate) fn debian_dir() -> Result<PathBuf, String> {
    Ok(cache_dir()?.join("bpf-toolchain"))
}

/// Folder that `cargo install` puts the linker for this LLVM into.
pub(crate) fn linker_root(llvm: u32) -> Result<PathBuf, String> {
    Ok(cache_dir()?.join(format!("bpf-linker-{LINKER_VERSION}-llvm{llvm}")))
}

fn home() -> Result<PathBuf, String> {
    env::home_dir()
        .filter(|h| !h.as_os_str().is_empty())
        .ok_or_else(|| "HOME is not set".into())
}

impl Compiler {
    /// All usable compilers, best first, and why the others are not usable.
    pub(crate) fn candidates() -> (Vec<Self>, Vec<String>) {
        let mut found = Vec::new();
        let mut refused = Vec::new();
        let mut add = |result: Result<Option<Self>, String>| match result {
            Ok(Some(compiler)) => found.push(compiler),
            Ok(None) => {}
            Err(reason) => refused.push(reason),
        };
        let toolchains = rustup_toolchains();
        if toolchains.iter().all(|t| !has_rust_src(t)) {
            add(Err("no rustup toolchain has the component rust-src".into()));
        }
        for sysroot in toolchains {
            add(Self::from_rustup(&sysroot));
        }
        add(debian_dir().and_then(|dir| Self::from_debian(&dir)));
        (found, refused)
    }

    fn from_rustup(sysroot: &Path) -> Result<Option<Self>, String> {
        if !has_rust_src(sysroot) {
            return Ok(None);
        }
        Self::examine(sysroot.join("bin/rustc"), sysroot.join("lib"), true).map(Some)
    }

    /// The compiler of Debian's packages unpacked in `dir`.
    pub(crate) fn from_debian(dir: &Path) -> Result<Option<Self>, String> {
        let rustc = dir.join("usr/bin/rustc");
        if !rustc.exists() {
            return Err(format!("no unpacked Debian packages in {}", dir.display()));
        }
        let has_llvm = |dir: &PathBuf| {
            entries(dir)
                .iter()
                .any(|f| f.to_string_lossy().contains("/libLLVM"))
        };
        let libraries = entries(&dir.join("usr/lib"))
            .into_iter()
            .find(has_llvm)
            .ok_or_else(|| format!("no libLLVM below {}", dir.display()))?;
        let compiler = Self::examine(rustc, libraries, false)?;
        let core = dir.join(format!("usr/lib/rustlib/{}/lib", target()));
        if entries(&core).is_empty() {
            return Err(format!("no core library for BPF in {}", core.display()));
        }
        Ok(Some(compiler))
    }

    fn examine(rustc: PathBuf, libraries: PathBuf, build_std: bool) -> Result<Self, String> {
        let name = rustc.display().to_string();
        let output = Command::new(&rustc)
            .arg("-vV")
            .env("LD_LIBRARY_PATH", &libraries)
            .output()
            .map_err(|e| format!("{name} does not start: {e}"))?;
        if !output.status.success() {
            let stderr = String::from_utf8_lossy(&output.stderr);
            return Err(format!("{name} does not run: {}", stderr.trim()));
        }
        let llvm = String::from_utf8_lossy(&output.stdout)
            .lines()
            .find_map(|line| {
                line.strip_prefix("LLVM version: ")?
                    .split('.')
                    .next()?
                    .parse()
                    .ok()
            })
            .ok_or_else(|| format!("{name} does not tell its LLVM version"))?;
        if !LINKER_LLVM.contains(&llvm) {
            return Err(format!(
                "{name} uses LLVM {llvm}, bpf-linker {LINKER_VERSION} needs {} to {}",
                LINKER_LLVM.start(),
                LINKER_LLVM.end()
            ));
        }
        Ok(Self {
            rustc,
            libraries,
            llvm,
            build_std,
        })
    }
}

impl Toolchain {
    /// The toolchain to build with, or one line that says what is missing and what to do.
    pub(crate) fn find() -> Result<Self, String> {
        let (compilers, mut refused) = Compiler::candidates();
        for compiler in compilers {
            let linker = linker_root(compiler.llvm)?.join("bin/bpf-linker");
            if linker.exists() {
                return Ok(Self { compiler, linker });
            }
            refused.push(format!("no {}", linker.display()));
        }
        Err(format!(
            "no toolchain for BPF ({}): {REMEDY}",
            refused.join("; ")
        ))
    }

    /// Builds a package of the source tree `root` for the processor `arch` and returns its object.
    ///
    /// `target_dir` is the target folder for these builds alone: cargo holds a lock on the one
    /// of the build that called us.
    pub(crate) fn build(
        &self,
        package: Package,
        root: &Path,
        target_dir: &Path,
        arch: &str,
    ) -> Result<PathBuf, String> {
        let folder = root.join(package.folder);
        let output = self
            .command(
                Command::new(self.cargo()),
                "build",
                &folder,
                target_dir,
                arch,
            )
            .output()
            .map_err(|e| format!("cargo for BPF does not start: {e}"))?;
        if !output.status.success() {
            let stderr = String::from_utf8_lossy(&output.stderr);
            return Err(format!(
                "the BPF programs do not build:\n{}",
                stderr.trim_end()
            ));
        }
        let object = target_dir
            .join(target())
            .join("release")
            .join(package.object);
        match object.exists() {
            true => Ok(object),
            false => Err(format!("the BPF build left no {}", object.display())),
        }
    }

    /// The command that lints a package, with the clippy that lies beside the compiler.
    pub(crate) fn clippy(
        &self,
        package: Package,
        root: &Path,
        target_dir: &Path,
        arch: &str,
    ) -> Command {
        let clippy = Command::new(self.compiler.rustc.with_file_name("cargo-clippy"));
        let folder = root.join(package.folder);
        let mut command = self.command(clippy, "clippy", &folder, target_dir, arch);
        command
            .env("CARGO", self.cargo())
            .args(["--", "-D", "warnings"]);
        command
    }

    fn cargo(&self) -> PathBuf {
        match self.compiler.rustc.with_file_name("cargo") {
            own if own.exists() => own,
            _ => env::var_os("CARGO").map_or_else(|| "cargo".into(), PathBuf::from),
        }
    }

    fn command(
        &self,
        mut command: Command,
        task: &str,
        folder: &Path,
        target_dir: &Path,
        arch: &str,
    ) -> Command {
        for (name, _) in env::vars_os() {
            if name.to_str().is_none_or(is_of_outer_cargo) {
                command.env_remove(name);
            }
        }
        let rustflags = [
            // aya-ebpf selects the layout of registers in `pt_regs` by it.
            &format!("--cfg=bpf_target_arch=\"{arch}\""),
            // No BTF: the kernel refuses the type names of generic Rust types, and nothing here needs
            // it (programs and maps are described by the object's own sections).
            "-Cdebuginfo=0",
        ]
        .join("\x1f");
        command
            .current_dir(folder)
            .args([
                task,
                "--locked",
                "--release",
                "--target",
                target(),
                "--target-dir",
            ])
            .arg(target_dir)
            .env("RUSTC", &self.compiler.rustc)
            .env("RUSTC_BOOTSTRAP", "1")
            .env("LD_LIBRARY_PATH", &self.compiler.libraries)
            .env("CARGO_ENCODED_RUSTFLAGS", rustflags)
            .env(linker_variable(), &self.linker);
        if self.compiler.build_std {
            command.arg("-Zbuild-std=core");
        }
        command
    }
}

/// BPF target of the byte order of this machine.
fn target() -> &'static str {
    if cfg!(target_endian = "big") {
        "bpfeb-unknown-none"
    } else {
        "bpfel-unknown-none"
    }
}

fn linker_variable() -> String {
    format!(
        "CARGO_TARGET_{}_LINKER",
        target().to_uppercase().replace('-', "_")
    )
}

/// Whether a variable belongs to the cargo (or clippy, or rustdoc) that runs us and would steer
/// the cargo we run: its compiler, wrappers, flags, target and package.
fn is_of_outer_cargo(name: &str) -> bool {
    const KEPT: [&str; 5] = [
        "CARGO_HOME",
        "CARGO_NET_",
        "CARGO_HTTP_",
        "CARGO_REGISTR",
        "CARGO_SOURCE_",
    ];
    let steers = [
        "CARGO_",
        "RUSTC",
        "RUSTFLAGS",
        "RUSTDOC",
        "RUSTUP_TOOLCHAIN",
        "CLIPPY",
        "DEP_",
    ];
    steers.iter().any(|s| name.starts_with(s)) && !KEPT.iter().any(|k| name.starts_with(k))
}

/// Installed rustup toolchains: the active one, then nightlies, then the others.
fn rustup_toolchains() -> Vec<PathBuf> {
    let rustup = match env::var_os("RUSTUP_HOME") {
        Some(dir) => PathBuf::from(dir),
        None => match home() {
            Ok(home) => home.join(".rustup"),
            Err(_) => return Vec::new(),
        },
    };
    let active = env::var("RUSTUP_TOOLCHAIN").unwrap_or_default();
    let mut found = entries(&rustup.join("toolchains"));
    found.sort_by_key(|dir| {
        let name = dir
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        (name != active, !name.starts_with("nightly"), name)
    });
    found
}

fn has_rust_src(sysroot: &Path) -> bool {
    sysroot
        .join("lib/rustlib/src/rust/library/core/Cargo.toml")
        .exists()
}

/// Entries of a folder in the order of their names; none when it cannot be read.
fn entries(dir: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir(dir)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .collect();
    found.sort();
    found
}
