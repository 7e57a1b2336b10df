//! What an operator sees: counters and status.

#[cfg(feature = "xdp")]
pub mod socket;
pub mod status;
