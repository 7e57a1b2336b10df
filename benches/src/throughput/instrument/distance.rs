//! How far two CPUs are from each other.
//!
//! A virtual machine's CPUs are threads of its host, which moves them about: from second to second they share a core, a
//! cache, or nothing. What crosses from one to the other takes up to five times as long then, and so do packets between a
//! generator and a device under test.

use std::{
    hint::spin_loop,
    sync::{
        Barrier,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use super::thread::{make_realtime, now, pin};

/// Batches of a measurement, which takes 15 to 60 µs. The fastest counts: others may be interrupted.
const BATCHES: u64 = 10;
/// Round trips of a batch.
const BATCH: u64 = 20;
/// Longest time for a round trip, nanoseconds. One of the CPUs may have been taken away.
const PATIENCE: u64 = 1_000_000;

/// Looks at the ball before looking at the clock.
const LOOKS: u32 = 100;
/// Tries. In the midst of a trial a thread may wait for its turn for longer than [`PATIENCE`].
const TRIES: u32 = 3;

/// On a cache line of its own.
#[repr(align(128))]
struct Ball(AtomicU64);

/// Nanoseconds that a cache line takes from one CPU to another; none if they are the same, or cannot be used.
pub(super) fn between(one: usize, other: usize) -> Option<f64> {
    if one == other {
        return None;
    }
    (0..TRIES).find_map(|_| measure(one, other))
}

fn measure(one: usize, other: usize) -> Option<f64> {
    let ball = &Ball(AtomicU64::new(0));
    let is_there = &Barrier::new(2);
    thread::scope(|scope| {
        scope.spawn(move || {
            let there = go_to(other);
            is_there.wait();
            there?;
            (1..=BATCHES * BATCH).try_for_each(|round| ball.back(round))
        });
        let time = scope.spawn(move || {
            let there = go_to(one);
            is_there.wait();
            there?;
            let mut shortest = u64::MAX;
            for batch in 0..BATCHES {
                let start = now();
                (1..=BATCH).try_for_each(|round| ball.forth(batch * BATCH + round))?;
                shortest = shortest.min(now() - start);
            }
            Some(shortest as f64 / (2 * BATCH) as f64)
        });
        time.join().ok().flatten()
    })
}

/// Moves the calling thread to a CPU, before whatever else runs there.
fn go_to(cpu: usize) -> Option<()> {
    pin(0, cpu).and_then(|()| make_realtime(0, 10)).ok()
}

impl Ball {
    fn forth(&self, round: u64) -> Option<()> {
        self.0.store(2 * round - 1, Ordering::Release);
        self.wait_for(2 * round)
    }

    fn back(&self, round: u64) -> Option<()> {
        self.wait_for(2 * round - 1)?;
        self.0.store(2 * round, Ordering::Release);
        Some(())
    }

    fn wait_for(&self, value: u64) -> Option<()> {
        let start = now();
        while now() - start < PATIENCE {
            // Asking for the time takes as long as the ball.
            for _ in 0..LOOKS {
                if self.0.load(Ordering::Acquire) == value {
                    return Some(());
                }
                spin_loop();
            }
        }
        None
    }
}
