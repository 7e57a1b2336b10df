//! Puts a BPF object where a package embeds it from. Part of build scripts only.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use super::bpf_build::{Package, Toolchain};

/// Builds a package of BPF programs, or takes the ready object that the environment variable `variable`
/// names, and leaves the object in `OUT_DIR`. Errors become cargo's.
pub(crate) fn embed(package: Package, variable: &str) {
    if let Err(error) = try_embed(package, variable) {
        // Several lines come only from a compiler; cargo takes one line per instruction.
        for line in error.lines() {
            println!("cargo::error={line}");
        }
    }
}

fn try_embed(package: Package, variable: &str) -> Result<(), String> {
    let out_dir = PathBuf::from(env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    println!("cargo::rerun-if-env-changed={variable}");
    let object = match env::var_os(variable) {
        Some(object) => {
            let object = PathBuf::from(object);
            println!("cargo::rerun-if-changed={}", object.display());
            object
        }
        None => build(package, &out_dir)?,
    };
    fs::copy(&object, out_dir.join(package.object))
        .map(|_| ())
        .map_err(|e| format!("cannot copy the BPF object {}: {e}", object.display()))
}

fn build(package: Package, out_dir: &Path) -> Result<PathBuf, String> {
    let folder = package.folder;
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = own
        .ancestors()
        .find(|root| root.join(folder).join("Cargo.toml").is_file());
    let Some(root) = root else {
        // Out of its source tree, as crates.io has it.
        let ready = own.join("prebuilt").join(package.object);
        return match ready.is_file() {
            true => Ok(ready),
            false => Err(format!("no folder above this package holds {folder}")),
        };
    };
    for path in [
        &format!("{folder}/src"),
        &format!("{folder}/Cargo.toml"),
        &format!("{folder}/Cargo.lock"),
        "sig-common/src",
        "sig-common/Cargo.toml",
        "sig-userspace/linux/bpf_build.rs",
        "sig-userspace/linux/bpf_embed.rs",
    ] {
        println!("cargo::rerun-if-changed={}", root.join(path).display());
    }
    for variable in ["HOME", "XDG_CACHE_HOME", "RUSTUP_HOME"] {
        println!("cargo::rerun-if-env-changed={variable}");
    }
    let toolchain = Toolchain::find()?;
    println!("cargo::rerun-if-changed={}", toolchain.linker.display());
    println!(
        "cargo::rerun-if-changed={}",
        toolchain.compiler.rustc.display()
    );
    let arch = env::var("CARGO_CFG_TARGET_ARCH").map_err(|e| e.to_string())?;
    toolchain.build(package, root, &target_dir(out_dir).join("bpf"), &arch)
}

/// The target folder of the build that runs us: cargo marks it as a cache.
fn target_dir(out_dir: &Path) -> &Path {
    out_dir
        .ancestors()
        .find(|dir| dir.join("CACHEDIR.TAG").exists())
        .unwrap_or(out_dir)
}
