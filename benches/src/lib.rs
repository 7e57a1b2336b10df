//! Measuring sig: the pipeline in memory ([`pipeline`], with criterion), and gateways, the machine's
//! limits and the alternatives on real devices ([`throughput`], with generators and a sink of its own).

pub mod pipeline;
pub mod throughput;
