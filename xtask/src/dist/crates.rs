//! The crates of the library, as `cargo publish --workspace` gives them to crates.io.

use std::fs;

use anyhow::{Context as _, Result, anyhow};

use crate::{
    bpf_build::{PRODUCT, Toolchain},
    build_ebpf, setup, shell,
};

/// In the order of their dependencies.
const CRATES: [&str; 7] = [
    "sig-common",
    "sig-core",
    "sig-linux",
    "sig-rpc",
    "sig-observe",
    "sig-router",
    "sig-userspace",
];

/// Packs and builds them, in `target/package`.
pub(super) fn pack() -> Result<()> {
    setup::run(&setup::Arguments::default())?;
    // Whoever uses the crate need not have a compiler for BPF; the object is the same for all processors of a byte order.
    let toolchain = Toolchain::find().map_err(|e| anyhow!(e))?;
    let object = build_ebpf::build(&toolchain, PRODUCT)?;
    let folder = shell::root().join("sig-userspace/linux/prebuilt");
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    fs::copy(&object, folder.join(PRODUCT.object)).with_context(|| object.display().to_string())?;
    let mut cargo = testbed::cargo();
    cargo.current_dir(shell::root()).arg("package");
    for name in CRATES {
        cargo.args(["--package", name]);
    }
    shell::run(&mut cargo)
}
