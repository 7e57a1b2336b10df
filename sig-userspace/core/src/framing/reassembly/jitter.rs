//! How long a stream waits for frames that were overtaken.

/// A wait doubles from one class to the next.
pub(super) const CLASSES: usize = 11;
/// The wait of class 0, nanoseconds.
const SHORTEST_NS: u64 = 1_000_000;
/// A wait that nothing asked for within this time is halved, nanoseconds.
const MEMORY_NS: u64 = 10_000_000_000;

/// The waits of all classes, nanoseconds: from 1 ms on, none longer than `longest`.
pub(super) fn waits(longest: u64) -> [u64; CLASSES] {
    core::array::from_fn(|class| (SHORTEST_NS << class).min(longest))
}

/// What is known of the jitter of one stream: its wait grows with the first late frames and
/// shrinks slowly.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Jitter {
    class: u8,
    /// The class that frames since `since` asked for.
    peak: u8,
    since: u64,
    /// When the wait grew last.
    raised: u64,
}

impl Jitter {
    pub(super) fn class(&self) -> u8 {
        self.class
    }

    /// A frame is missing at the moment.
    pub(super) fn missing(&mut self, now: u64) {
        let periods = now.saturating_sub(self.since) / MEMORY_NS;
        if periods > 0 {
            let class = u64::from(self.class).saturating_sub(periods);
            self.class = self.peak.max(class as u8);
            self.peak = 0;
            self.since = now;
        }
    }

    /// A missing frame came in time, `late` nanoseconds after one behind it.
    pub(super) fn came(&mut self, late: u64, waits: &[u64; CLASSES]) {
        let with_room = late.saturating_add(late / 4);
        let fits = waits.iter().position(|&wait| with_room <= wait);
        let class = fits.unwrap_or(longest(waits)) as u8;
        self.peak = self.peak.max(class);
        self.class = self.class.max(class);
    }

    /// A frame came that was given up. One that was given up before the wait grew is no reason
    /// for more.
    pub(super) fn came_late(&mut self, now: u64, waits: &[u64; CLASSES]) {
        let class = usize::from(self.class);
        if class < longest(waits) && now.saturating_sub(self.raised) >= waits[class] {
            self.class += 1;
            self.raised = now;
        }
        self.peak = self.peak.max(self.class);
    }
}

/// The lowest class with the longest wait.
fn longest(waits: &[u64; CLASSES]) -> usize {
    waits.partition_point(|&wait| wait < waits[CLASSES - 1])
}
