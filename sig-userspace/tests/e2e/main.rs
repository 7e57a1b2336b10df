//! Two whole gateways with paths in the file, one test after the other. Needs root.

mod bed;

mod lan;
mod network;
mod ping;
mod plan;
mod police;
mod reload;
mod restart;
mod traffic;
