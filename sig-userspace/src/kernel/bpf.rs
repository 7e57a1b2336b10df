//! Loading and attaching the XDP and TC programs.

/// The object with all programs, built by the build script.
static _OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/sig-ebpf"));
