//! `bpf-linker`, built for the LLVM of the compiler.

use anyhow::{Result, anyhow};

use super::step;
use crate::{
    bpf_build::{self, Compiler, LINKER_VERSION},
    shell,
};

const LABEL: &str = "BPF linker";

/// Installs the linker into the cache folder unless it is there.
pub(super) fn provide(compiler: &Compiler) -> Result<()> {
    let root = bpf_build::linker_root(compiler.llvm).map_err(|e| anyhow!(e))?;
    let linker = root.join("bin/bpf-linker");
    if linker.exists() {
        step(LABEL, &linker.display().to_string());
        return Ok(());
    }
    step(
        LABEL,
        &format!("building bpf-linker {LINKER_VERSION} (one to two minutes)"),
    );
    shell::run(
        testbed::cargo()
            .args(["install", "--quiet", "--locked", "--root"])
            .arg(&root)
            .args(["--version", &format!("={LINKER_VERSION}")])
            .args(["--no-default-features", "--features"])
            .arg(format!("rust-llvm-{}", compiler.llvm))
            .arg("bpf-linker")
            .env_remove("CARGO_TARGET_DIR"),
    )
}
