//! What an operator sees: counters and status, and the pages made of them.

#[cfg(test)]
pub(crate) mod example;
#[cfg(feature = "control")]
pub mod http;
#[cfg(feature = "xdp")]
pub mod log;
pub mod metrics;
pub mod operator;
pub mod pages;
pub mod process;
#[cfg(feature = "xdp")]
pub mod socket;
pub mod status;
