//! Builds the BPF programs and puts the object where `kernel::bpf` embeds it from.
//!
//! Only with the feature `xdp`; without it the library needs no BPF toolchain.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

// The same code as in `cargo xtask build-ebpf`, not a crate of its own: a build dependency would
// have to be built before anything could be said about what is missing.
#[path = "../xtask/src/bpf_build.rs"]
#[allow(dead_code, reason = "xtask uses the rest of it")]
mod bpf_build;

/// A ready object, for packagers who build it on another machine.
const OBJECT_VARIABLE: &str = "SIG_BPF_OBJECT";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if env::var_os("CARGO_FEATURE_XDP").is_none() {
        return;
    }
    if let Err(error) = embed() {
        // Several lines come only from a compiler; cargo takes one line per instruction.
        for line in error.lines() {
            println!("cargo::error={line}");
        }
    }
}

fn embed() -> Result<(), String> {
    let out_dir = PathBuf::from(env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    println!("cargo::rerun-if-env-changed={OBJECT_VARIABLE}");
    let object = match env::var_os(OBJECT_VARIABLE) {
        Some(object) => {
            let object = PathBuf::from(object);
            println!("cargo::rerun-if-changed={}", object.display());
            object
        }
        None => build(&out_dir)?,
    };
    fs::copy(&object, out_dir.join("sig-ebpf"))
        .map(|_| ())
        .map_err(|e| format!("cannot copy the BPF object {}: {e}", object.display()))
}

fn build(out_dir: &Path) -> Result<PathBuf, String> {
    let package = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let root = package.parent().ok_or("the package has no parent folder")?;
    for path in [
        "sig-ebpf/src",
        "sig-ebpf/Cargo.toml",
        "sig-ebpf/Cargo.lock",
        "sig-common/src",
        "sig-common/Cargo.toml",
        "xtask/src/bpf_build.rs",
    ] {
        println!("cargo::rerun-if-changed={}", root.join(path).display());
    }
    for variable in ["HOME", "XDG_CACHE_HOME", "RUSTUP_HOME"] {
        println!("cargo::rerun-if-env-changed={variable}");
    }
    let toolchain = bpf_build::Toolchain::find()?;
    println!("cargo::rerun-if-changed={}", toolchain.linker.display());
    println!(
        "cargo::rerun-if-changed={}",
        toolchain.compiler.rustc.display()
    );
    let arch = env::var("CARGO_CFG_TARGET_ARCH").map_err(|e| e.to_string())?;
    toolchain.build(root, &target_dir(out_dir).join("bpf"), &arch)
}

/// The target folder of the build that runs us: cargo marks it as a cache.
fn target_dir(out_dir: &Path) -> &Path {
    out_dir
        .ancestors()
        .find(|dir| dir.join("CACHEDIR.TAG").exists())
        .unwrap_or(out_dir)
}
