//! SCION-IP gateway over AF_XDP.

pub use sig_core::{engine, framing, port};

pub mod control;

#[cfg(feature = "xdp")]
pub mod cli;
