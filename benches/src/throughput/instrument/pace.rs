//! How fast generators go, and how far they got: what all have in common.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::{Sent, thread};
use crate::throughput::{
    layout::{Progress, Setup},
    trial::Rate,
};

/// How long after it was due a packet may still be sent: a generator that was kept from its CPU
/// catches up with bursts of at most this length.
const CATCH_UP: u64 = 200_000;
/// A burst of the catching up has at most this many packets, so that it does not overflow a short ring.
const BURST: u64 = 128;
/// At low rates the time does not matter as long as the burst has at most this many packets.
const SLOW_BURST: u64 = 8;

/// The setup for a rate.
pub(super) fn setup(plan: Setup, rate: Rate) -> Result<Setup> {
    let gap = match rate {
        Rate::Max => 0,
        Rate::PacketsPerSecond(rate) => {
            ensure!(
                (0.01..=1e9).contains(&rate),
                "a rate of {rate} packets per second is impossible"
            );
            (1e9 / rate * 65536.0).round() as u64
        }
    };
    let times = |packets: u64| (gap * packets) >> 16;
    let most = CATCH_UP.max(times(SLOW_BURST));
    Ok(Setup {
        gap,
        catch_up: times(BURST).max(20_000).min(most),
        stop: 0,
        ..plan
    })
}

/// A generator that has sent nothing yet.
///
/// Sequence numbers start from the clock, and rise slower than it: those of a later generator continue
/// those of an earlier one, and a gateway that remembers the streams of the earlier accepts its frames.
pub(super) fn fresh() -> Progress {
    let mut progress = Progress::default();
    let number = thread::now() >> 6;
    progress.frame = number;
    progress.packet = number;
    progress
}

/// Starts counting anew.
pub(super) fn begin(progress: &mut Progress) {
    progress.packets = 0;
    progress.first = 0;
}

/// What was sent until `now`.
pub(super) fn sent(progress: &Progress, now: u64) -> Sent {
    Sent {
        packets: progress.packets,
        time: Duration::from_nanos(now.saturating_sub(progress.first)),
    }
}
