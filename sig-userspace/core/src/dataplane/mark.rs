//! A mark that workers set and the control plane takes.

use std::sync::atomic::{AtomicBool, Ordering};

/// Whether something was used since the control plane looked last.
#[derive(Debug, Default)]
pub(super) struct Mark(AtomicBool);

impl Mark {
    /// Sets the mark.
    #[inline]
    pub(super) fn set(&self) {
        // Mostly it is set already, and reading does not take the cache line from other workers.
        if !self.0.load(Ordering::Relaxed) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the mark was set since the last call. One that is set at the same time is seen by this call or by the next.
    ///
    /// The order of other memory does not matter; and an exchange takes the last value that was stored, so that whoever finds
    /// the mark set, and does not set it, is counted by the exchange that clears it.
    pub(super) fn take(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}
