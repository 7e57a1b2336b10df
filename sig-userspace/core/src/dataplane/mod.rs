//! Tables, sessions and the worker: a batch in, a batch out, free of I/O.
//!
//! [`Worker::process`] takes received frames and leaves frames to transmit. On the way out a packet
//! goes through `encap` (classify, route, path, frame), on the way in through `decap` (admit,
//! reassemble, police). Both look things up in [`Tables`], an immutable snapshot that the control
//! plane replaces as a whole.

mod context;
pub mod counters;
mod decap;
mod encap;
pub mod filter;
pub mod flow_cache;
pub mod icmp;
mod inner;
pub mod lan;
pub mod lpm;
mod mark;
mod police;
mod sources;
mod tables;
#[cfg(test)]
mod tests;
pub mod trace;
mod worker;

pub use decap::max_packet;
pub use sources::Sources;
pub use tables::{
    Action, BUCKETS, Path, PathCounters, PathError, PathSpec, Remote, RemoteCounters, Routing,
    Rule, Session, Spread, Tables, Used,
};
pub use worker::{Input, Output, Worker, WorkerConfig};
