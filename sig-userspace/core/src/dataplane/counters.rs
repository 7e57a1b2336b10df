//! What the workers count.

use std::ops::Deref;

use sig_common::reason::DropReason;

use crate::counter::{Counter, counters};

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

counters! {
    /// What one worker counts.
    pub struct WorkerCounters: Counter {
        /// Sent towards the SCION side.
        sent: Traffic,
        /// Received from the SCION side.
        received: Traffic,
        /// Dropped packets and frames, by reason.
        drops: Drops,
        /// Looks at all ports. A worker that lives looks at least every tenth of a second.
        rounds: Counter,
    }
    /// What workers counted, beside traffic and drops.
    pub struct WorkerCounts;

    packets_straight "gateway_ippkts_local_sent_by_way_total" [way = "straight"]
        "IP packets delivered to the local network, directly or through the kernel.";
    packets_via_helper "gateway_ippkts_local_sent_by_way_total" [way = "kernel"]
        "IP packets delivered to the local network, directly or through the kernel.";
    icmp_sent "gateway_icmp_sent_total" []
        "ICMP errors sent to hosts of the local network.";
    mss_clamped "gateway_mss_clamped_total" []
        "TCP SYNs whose maximum segment size was lowered to fit a SIG frame.";
    mirror_lost "gateway_mirror_lost_total" []
        "Copies of packets that rules asked for and that were not made, as no buffer was free.";
    frames_held "gateway_frames_held_total" []
        "SIG frames buffered while waiting for an earlier one.";
    gaps "gateway_frame_gaps_total" []
        "Stream gaps abandoned because frames were lost or late.";
    frames_late "gateway_frames_late_total" []
        "SIG frames that arrived after their gap was abandoned, delivered out of order.";
    frames_protected "gateway_frames_protected_total" [direction = "sent"]
        "SIG frames that were encrypted and authenticated, or found authentic.";
    frames_opened "gateway_frames_protected_total" [direction = "received"]
        "SIG frames that were encrypted and authenticated, or found authentic.";
    sleeps "gateway_worker_sleeps_total" [worker]
        "Times a worker slept while idle.";
    port_errors "gateway_port_errors_total" []
        "Times the kernel refused to transmit, for example because an interface was down.";
}

impl WorkerCounters {
    /// Counts a dropped packet or frame.
    #[inline]
    pub fn drop(&self, reason: DropReason) {
        self.drops[reason as usize].add(1);
    }
}

/// A counter per reason.
#[derive(Debug)]
pub struct Drops([Counter; DropReason::COUNT]);

impl Default for Drops {
    fn default() -> Self {
        Drops(std::array::from_fn(|_| Counter::default()))
    }
}

impl Deref for Drops {
    type Target = [Counter; DropReason::COUNT];

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}
