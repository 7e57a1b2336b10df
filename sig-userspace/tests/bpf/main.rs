//! The real BPF programs, run by the kernel. Needs root.

#[path = "../../../sig-common/tests/support/mod.rs"]
mod packets;
#[path = "../router_support/mod.rs"]
mod router_support;
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/tcx.rs"]
mod tcx;

mod fast_path;
mod frames;
mod router_bed;

mod attach;
mod inject;
mod lan;
mod router;
mod router_cpus;
mod router_model;
mod router_reasons;
mod router_underlay;
mod srv6;
mod trunk;
mod underlay;
