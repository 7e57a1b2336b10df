//! The heart of sig, free of any I/O: wire formats, framing, tables, decisions about paths and policies.
//!
//! Nothing here opens a socket or a device, reads a clock, or logs per packet. Packets enter and leave through
//! [`port::Port`], which other crates implement; time is an argument.
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

pub mod counter;
pub mod dataplane;
pub mod document;
pub mod engine;
pub mod fast_path;
pub mod framing;
#[cfg(test)]
mod modelled;
pub mod network;
pub mod notation;
pub mod paths;
pub mod peer;
pub mod policy;
pub mod port;
pub mod problem;
pub mod protection;
pub mod remedy;
pub mod scion;
pub mod status;
pub mod tap;
#[cfg(feature = "tokio")]
pub mod task;
pub mod topology;
pub mod trace;
