//! Counters with one writer each, readable by anybody at any time.

use std::sync::atomic::{AtomicU64, Ordering};

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

    /// Replaces the value. Only the owning thread calls it.
    #[inline]
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// The value now.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
