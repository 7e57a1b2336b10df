//! The fast path as the engine sees it: memory shared with the XDP programs, which send and deliver simple packets by
//! themselves as the engine decided about the ones before.
//!
//! Layouts are those of [`sig_common::fast_path`]. Workers teach the programs; each worker thread [tells](order) them how far
//! it has come with the packets it was handed.

pub mod order;
mod shared;
pub(crate) mod teacher;

pub use shared::{Shared, StreamIndex, Words};
