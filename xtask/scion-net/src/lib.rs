//! A simulated SCION network: what two gateways need around them to find each other and to exchange packets, without
//! the programs of the SCION project.
//!
//! A [`Topology`] says which ASes there are and how they are connected. Per AS there is a border [`Router`] that
//! forwards by hop fields (and checks them), a [`ControlService`] that tells which gateways the AS has, and a
//! [`Daemon`] that tells paths. All are threads of this process, each inside a network namespace if it is given one;
//! they end when dropped. Links can be cut, delayed, made lossy or narrow while packets flow.
//!
//! [`SimNetwork`] puts everything together for two gateways.

mod control_service;
mod daemon;
mod link;
mod network;
mod paths;
mod place;
mod router;
mod topology;

pub use control_service::{Calls, ControlService};
pub use daemon::{Asked, Daemon};
pub use link::{Cut, End, Link};
pub use network::{
    CONTROL_PORT, DAEMON, PROBE_PORT, Services, SimNetwork, SimOptions, gateway_entry,
};
pub use paths::{Lifetime, PathInfo};
pub use router::{Counters, Router, enlarge_buffers};
pub use topology::{As, Topology};
