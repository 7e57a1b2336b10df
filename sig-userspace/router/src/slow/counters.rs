//! What the slow path counts: the same places as the XDP programs, for packets that these have not forwarded.

use std::sync::atomic::{AtomicU64, Ordering};

use sig_common::router::{
    Reason,
    maps::{Count, SIZE_CLASSES, Traffic, size_class},
};

/// Counters of the inside or of a link.
#[derive(Debug)]
pub(super) struct Counters {
    /// Packets and bytes, by [`Traffic`] and size class.
    traffic: [[[AtomicU64; 2]; SIZE_CLASSES as usize]; Traffic::ALL.len()],
    /// Packets that came in here, by [`Reason`].
    reasons: [AtomicU64; Reason::COUNT],
    /// Those of them that went nowhere and were not answered.
    drops: [AtomicU64; Reason::COUNT],
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            traffic: Default::default(),
            reasons: std::array::from_fn(|_| AtomicU64::default()),
            drops: std::array::from_fn(|_| AtomicU64::default()),
        }
    }
}

impl Counters {
    pub(super) fn count(&self, traffic: Traffic, len: usize) {
        let class = size_class(u32::try_from(len).unwrap_or(u32::MAX)) as usize;
        if let Some([packets, bytes]) = self
            .traffic
            .get(traffic as usize)
            .and_then(|classes| classes.get(class))
        {
            packets.fetch_add(1, Ordering::Relaxed);
            bytes.fetch_add(len as u64, Ordering::Relaxed);
        }
    }

    pub(super) fn reason(&self, reason: Reason) {
        if let Some(packets) = self.reasons.get(reason as usize) {
            packets.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn dropped(&self, reason: Reason) {
        if let Some(packets) = self.drops.get(reason as usize) {
            packets.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Packets and bytes, by [`Traffic`] and size class.
    pub(super) fn traffic(&self) -> [[Count; SIZE_CLASSES as usize]; Traffic::ALL.len()] {
        let count = |[packets, bytes]: &[AtomicU64; 2]| Count {
            packets: packets.load(Ordering::Relaxed),
            bytes: bytes.load(Ordering::Relaxed),
        };
        self.traffic
            .each_ref()
            .map(|classes| classes.each_ref().map(count))
    }

    /// Packets that went nowhere and were not answered, by [`Reason`].
    pub(super) fn drops(&self) -> [u64; Reason::COUNT] {
        self.drops
            .each_ref()
            .map(|packets| packets.load(Ordering::Relaxed))
    }

    /// Packets by [`Reason`].
    pub(super) fn reasons(&self) -> [u64; Reason::COUNT] {
        self.reasons
            .each_ref()
            .map(|packets| packets.load(Ordering::Relaxed))
    }
}
