//! What the programs share with the harness in user space, which compiles this folder too.
//!
//! A generated inner packet is UDP with a *marker* at the start of its payload:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 2 | [`MAGIC`] |
//! | 2 | 2 | flow |
//! | 4 | 4 | sequence number within the flow |
//! | 8 | 8 | time of sending, nanoseconds of `CLOCK_MONOTONIC` |
//!
//! All in network byte order. What follows is zero, so that packets of any length share one payload.

pub mod histogram;
mod maps;
mod template;

pub use maps::{Expected, Forwarding, Next, Seen, Totals, kind};
pub use template::{Inner, Progress, Setup, Template, patch, write};

/// Starts a marker.
pub const MAGIC: u16 = 0x5349;
/// Bytes of a marker.
pub const MARKER_LEN: usize = 16;
/// Longest generated frame, bytes of Ethernet.
pub const MAX_FRAME: usize = 2048;
/// Most inner packets in a generated frame.
pub const MAX_INNER: usize = 40;
/// Most templates that take turns.
pub const MAX_TEMPLATES: u32 = 16;
/// UDP source port of flow 0; flow *n* has this port plus *n*.
pub const FIRST_PORT: u16 = 10_000;
/// UDP destination port of generated packets.
pub const DESTINATION_PORT: u16 = 5001;
/// Most flows.
pub const MAX_FLOWS: u32 = 50_000;
/// Most SIG streams that a sink keeps apart.
pub const MAX_SEEN_STREAMS: u32 = 1024;
/// Sequence numbers that a sink remembers, over all flows; a power of two.
pub const SEEN: u32 = 1 << 16;
