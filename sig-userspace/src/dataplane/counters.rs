//! What the workers count.

use sig_common::reason::DropReason;

use crate::counter::Counter;

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
    /// Inner packets that went straight to their next hop on a LAN port; the other received ones went
    /// through the tunnel device.
    pub straight: Counter,
    /// ICMP messages sent to hosts.
    pub icmp_sent: Counter,
    /// Dropped packets and frames, by reason.
    pub drops: [Counter; DropReason::COUNT],
    /// Frames held back for an earlier one.
    pub held: Counter,
    /// Gaps in streams that were given up.
    pub gaps: Counter,
    /// Frames that came after their gap was given up.
    pub late: Counter,
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
            straight: Counter::default(),
            icmp_sent: Counter::default(),
            drops: std::array::from_fn(|_| Counter::default()),
            held: Counter::default(),
            gaps: Counter::default(),
            late: Counter::default(),
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
