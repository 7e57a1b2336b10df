//! Builds the BPF programs and puts the object where `bpf` embeds it from.

// The same code as in `cargo xtask build-ebpf`, not a crate of its own: a build dependency would
// have to be built before anything could be said about what is missing. It is here, and not in xtask, to be part of the package.
#[allow(dead_code, reason = "xtask uses the rest of it")]
mod bpf_build;
mod bpf_embed;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // The variable is for packagers, who build the object on another machine. The package has a ready one.
    bpf_embed::embed(bpf_build::PRODUCT, "SIG_BPF_OBJECT");
}
