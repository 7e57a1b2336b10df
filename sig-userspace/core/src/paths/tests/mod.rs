//! The machines of this room over a simulated network and clock.

mod flows;
mod monitor;
mod network;
mod probing;
mod selector;
