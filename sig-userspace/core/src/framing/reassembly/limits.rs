//! What the reassembly may use.

/// The limits of one [`Reassembler`](super::Reassembler): all memory is allocated by them, at
/// construction.
///
/// A remote has its own share of everything. What the shares promise together may exceed the
/// totals; a total that is at least `remotes in use * share` makes every share a guarantee.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest packet to be put together or delivered, bytes. Longer ones are skipped.
    pub max_packet: usize,
    /// Longest frame payload that can be held for reordering, bytes. Longer ones are processed,
    /// but never held.
    pub max_frame_payload: usize,
    /// How many sequence numbers a frame may be ahead and still be held, 0 to 2048. 0: nothing is
    /// held, a gap is given up at once.
    pub reorder_frames: usize,
    /// How long a frame is held at most, nanoseconds. Each stream begins with 1 ms, or less if this
    /// is less, and follows its jitter.
    pub reorder_wait_ns: u64,
    /// Remotes are numbered below this.
    pub remotes: usize,
    /// Streams known at the same time.
    pub streams_total: usize,
    /// Streams of one remote known at the same time; beyond, the least recently used of those that
    /// have delivered for the shortest time gives way, or of the others, if those are few.
    pub streams_per_remote: usize,
    /// Packets being put together at the same time (each stream has at most one).
    pub packets_total: usize,
    /// Packets of one remote being put together at the same time; beyond, the oldest of the
    /// streams that have delivered least gives way.
    pub packets_per_remote: usize,
    /// Frames held at the same time.
    pub held_total: usize,
    /// Frames of one remote held at the same time.
    pub held_per_remote: usize,
    /// How long the rest of a packet is waited for, nanoseconds; at most 100 ms in a stream that
    /// has not delivered anything yet.
    pub pending_timeout_ns: u64,
    /// How long a silent stream is remembered, nanoseconds; it is forgotten at most 1/64 later.
    pub idle_timeout_ns: u64,
}

impl Default for Limits {
    /// For one worker of a gateway: about 24 MiB, most of which is never touched without jitter.
    fn default() -> Self {
        Self {
            max_packet: 9_216,
            max_frame_payload: 4_096,
            reorder_frames: 1_024,
            reorder_wait_ns: 50_000_000,
            remotes: 1_024,
            streams_total: 4_096,
            streams_per_remote: 256,
            packets_total: 512,
            packets_per_remote: 64,
            held_total: 4_096,
            held_per_remote: 1_024,
            pending_timeout_ns: 1_000_000_000,
            idle_timeout_ns: 60_000_000_000,
        }
    }
}

/// A limit that cannot work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("reassembly limit {name} is {value}: must be {min} to {max}")]
pub struct LimitsError {
    /// The field of [`Limits`].
    pub name: &'static str,
    /// Its value.
    pub value: usize,
    /// Smallest allowed value.
    pub min: usize,
    /// Largest allowed value.
    pub max: usize,
}

impl Limits {
    /// Checks every limit against the range in which the reassembly works.
    ///
    /// # Errors
    /// Names the first limit outside its range.
    pub fn check(&self) -> Result<(), LimitsError> {
        const MANY: usize = 1 << 24;
        let ranges = [
            ("max_packet", self.max_packet, 20, 65_575),
            ("max_frame_payload", self.max_frame_payload, 40, 65_535),
            (
                "reorder_frames",
                self.reorder_frames,
                0,
                super::line::AHEAD as usize,
            ),
            ("remotes", self.remotes, 1, 65_536),
            ("streams_total", self.streams_total, 1, MANY),
            ("streams_per_remote", self.streams_per_remote, 1, MANY),
            ("packets_total", self.packets_total, 0, MANY),
            ("packets_per_remote", self.packets_per_remote, 0, MANY),
            ("held_total", self.held_total, 0, MANY),
            ("held_per_remote", self.held_per_remote, 0, MANY),
        ];
        match ranges
            .into_iter()
            .find(|&(_, value, min, max)| !(min..=max).contains(&value))
        {
            Some((name, value, min, max)) => Err(LimitsError {
                name,
                value,
                min,
                max,
            }),
            None => Ok(()),
        }
    }

    /// Memory that a [`Reassembler`](super::Reassembler) of these limits allocates, bytes.
    #[must_use]
    pub fn memory(&self) -> usize {
        use super::{HeldFrame, line::Pending, pool::Pool, streams::Streams};
        Pool::<Pending>::memory(self.packets_total, self.max_packet, self.remotes)
            + Pool::<HeldFrame>::memory(self.held_total, self.max_frame_payload, self.remotes)
            + Streams::memory(self)
            + self.remotes * size_of::<super::Opened>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_valid_and_takes_about_24_mib() {
        let limits = Limits::default();
        assert_eq!(limits.check(), Ok(()));
        let mib = limits.memory() / (1 << 20);
        assert!((22..=26).contains(&mib), "{mib} MiB");
    }

    #[test]
    fn an_impossible_limit_is_named() {
        let limits = Limits {
            reorder_frames: 2_049,
            ..Limits::default()
        };
        assert_eq!(
            limits.check().unwrap_err().to_string(),
            "reassembly limit reorder_frames is 2049: must be 0 to 2048"
        );
    }
}
