//! Two whole gateways with paths in the file, one test after the other. Needs root.

mod bed;
#[path = "../support/mod.rs"]
mod support;

mod lan;
mod network;
mod order;
mod ping;
mod plan;
mod police;
mod reload;
mod restart;
mod traffic;
