//! Builds the BPF programs of the throughput harness and puts their object where it is embedded from.

#[path = "../sig-userspace/linux/bpf_build.rs"]
#[allow(dead_code, reason = "xtask uses the rest of it")]
mod bpf_build;
#[path = "../sig-userspace/linux/bpf_embed.rs"]
mod bpf_embed;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    bpf_embed::embed(bpf_build::HARNESS, "SIG_BPF_MEASURE_OBJECT");
}
