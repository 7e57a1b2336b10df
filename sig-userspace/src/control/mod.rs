//! Everything that decides: configuration, remotes, the running gateway.
//!
//! `host::Host` runs an [`Engine`](crate::engine::Engine) over ports on this machine's interfaces and keeps it in step with
//! the kernel's links, routes and neighbours. What the library shows of all this is in `config`, `engine` and `gateway`.

pub(crate) mod config;
pub(crate) mod configured;
#[cfg(feature = "xdp")]
pub(crate) mod discovery;
#[cfg(feature = "xdp")]
pub(crate) use discovery::identity;
#[cfg(feature = "control")]
pub(crate) mod endhost;
#[cfg(feature = "xdp")]
pub mod host;
mod log_limit;
#[cfg(feature = "xdp")]
pub(crate) mod operator;
pub mod plan;
pub(crate) mod planner;
pub(crate) mod remotes;
#[cfg(feature = "xdp")]
pub(crate) mod rules;

#[cfg(feature = "xdp")]
pub(crate) use planner::PlannedPath;
pub use planner::{Environment, Neighbour, Planner};
