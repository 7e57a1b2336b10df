//! SCION-IP gateway over AF_XDP.

pub mod control;
pub mod counter;
#[cfg(feature = "control")]
pub mod daemon;
pub mod dataplane;
pub mod document;
pub mod engine;
pub mod framing;
pub mod network;
mod notation;
pub mod paths;
pub mod peer;
pub mod policy;
pub mod port;
pub mod problem;
pub mod router;
pub mod scion;
#[cfg(feature = "control")]
pub mod sockets;
#[cfg(feature = "control")]
mod task;

#[cfg(feature = "xdp")]
pub mod cli;
#[cfg(feature = "xdp")]
pub mod kernel;
pub mod observe;
#[cfg(feature = "control")]
pub mod rpc;
