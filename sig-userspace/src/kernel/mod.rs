//! The kernel side: links, routes, neighbours, BPF programs.

pub mod bpf;
