//! Everything that decides: configuration, remotes, the running gateway.
//!
//! [`Gateway`] is a gateway over whatever ports it is given; `host::Host` gives it those of this
//! machine and keeps it in step with the kernel's links, routes and neighbours.

pub mod config;
pub mod configured;
#[cfg(feature = "xdp")]
pub mod discovery;
#[cfg(feature = "control")]
pub mod endhost;
mod gateway;
#[cfg(feature = "xdp")]
pub mod host;
mod log_limit;
#[cfg(feature = "xdp")]
pub mod operator;
pub mod plan;
mod planner;
pub mod remotes;

pub use gateway::{Builder, Gateway, StartError};
pub use planner::{Environment, Neighbour, PlannedPath, PlannedRemote, PlannedSession, Planner};
