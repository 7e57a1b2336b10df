#![no_std]
//! Wire formats and BPF map layouts shared by the XDP programs and the engine.
//!
//! Part of the implementation of the library `sig` (package `sig-userspace`), which is what other programs use; here, things
//! change without notice.

#![warn(
    clippy::expect_used,
    clippy::missing_panics_doc,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

pub mod accelerate;
pub mod addr;
pub mod fast_path;
pub mod maps;
pub mod mark;
pub mod reason;
pub mod router;
pub mod scope;
pub mod srv6;
pub mod wire;
