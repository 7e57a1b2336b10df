//! Inputs of the criterion benchmarks: inner traffic, and two gateways that carry it.
//!
//! Nothing here touches the kernel: [`tunnel::Tunnel`] times `Worker::process`, the function that the
//! engine's threads call between their rings, and nothing around it.

pub mod settings;
pub mod shape;
pub mod traffic;
pub mod tunnel;
