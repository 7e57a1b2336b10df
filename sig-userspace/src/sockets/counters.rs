//! What happened at the sockets.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counters of all SCION sockets of a gateway together.
#[derive(Debug, Default)]
pub struct Counters {
    /// Sockets opened.
    pub listens: AtomicU64,
    /// Sockets closed.
    pub closes: AtomicU64,
    /// QUIC connections opened. Whoever opens one counts it.
    pub dials: AtomicU64,
    /// Packets received.
    pub read_packets: AtomicU64,
    /// Their bytes.
    pub read_bytes: AtomicU64,
    /// Packets sent.
    pub written_packets: AtomicU64,
    /// Their bytes.
    pub written_bytes: AtomicU64,
    /// Failures of the operating system's sockets.
    pub underlay_errors: AtomicU64,
    /// Packets that are no valid SCION packets, or have a wrong checksum.
    pub parse_errors: AtomicU64,
    /// SCMP error messages received.
    pub scmp_errors: AtomicU64,
    /// Packets for somebody else, and packets to which there is no way back.
    pub strays: AtomicU64,
    /// Packets from underlay addresses that such packets do not come from: from other ASes, they come from a border
    /// router; from this AS, from the host that is their source.
    pub forged: AtomicU64,
    /// Packets that came to the end host port while the queue of their socket was full.
    pub overflows: AtomicU64,
}

/// Adds `n` to a counter.
pub(super) fn add(counter: &AtomicU64, n: usize) {
    counter.fetch_add(n as u64, Relaxed);
}
