//! Two whole gateways with paths in the file, one test after the other. Needs root.

mod asking;
mod bed;
mod foreign;
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/tcx.rs"]
mod tcx;

mod accelerate;
mod chains;
mod jumbo;
mod lan;
mod lans;
mod network;
mod one_host;
mod order;
mod ping;
mod plan;
mod police;
mod quick;
mod reload;
mod restart;
mod rights;
mod see;
mod sockets;
mod traffic;
