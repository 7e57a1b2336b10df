//! Counters with one writer each, readable by anybody at any time.

use std::sync::atomic::{AtomicU64, Ordering};

use sig_common::reason::DropReason;

/// A counter that one thread advances and any thread reads.
///
/// Advancing is a plain load, add and store: no other thread writes it.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `n`. Only the owning thread calls it.
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.store(
            self.0.load(Ordering::Relaxed).wrapping_add(n),
            Ordering::Relaxed,
        );
    }

    /// The value now.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Packets and their bytes.
#[derive(Debug, Default)]
pub struct Traffic {
    /// SIG frames.
    pub frames: Counter,
    /// Bytes of these frames from the SIG frame header on.
    pub frame_bytes: Counter,
    /// Inner IP packets.
    pub packets: Counter,
    /// Bytes of the inner IP packets.
    pub packet_bytes: Counter,
}

/// What one worker counts.
#[derive(Debug)]
pub struct WorkerCounters {
    /// Sent towards the SCION side.
    pub sent: Traffic,
    /// Received from the SCION side.
    pub received: Traffic,
    /// ICMP messages sent to hosts.
    pub icmp_sent: Counter,
    /// Dropped packets and frames, by reason.
    pub drops: [Counter; DropReason::COUNT],
    /// Times that the worker had nothing to do and slept.
    pub sleeps: Counter,
    /// Failed wake-ups of the kernel.
    pub port_errors: Counter,
}

impl Default for WorkerCounters {
    fn default() -> Self {
        WorkerCounters {
            sent: Traffic::default(),
            received: Traffic::default(),
            icmp_sent: Counter::default(),
            drops: std::array::from_fn(|_| Counter::default()),
            sleeps: Counter::default(),
            port_errors: Counter::default(),
        }
    }
}

impl WorkerCounters {
    /// Counts a dropped packet or frame.
    #[inline]
    pub fn drop(&self, reason: DropReason) {
        self.drops[reason as usize].add(1);
    }
}
