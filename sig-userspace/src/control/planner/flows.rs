//! Which flows of a session take which of its paths.

use std::{sync::Arc, time::Instant};

use sig_core::{
    dataplane::{BUCKETS, Spread, Used},
    paths::flows::Buckets,
};

/// Most paths among which flows are spread.
pub(super) const MAX_PATHS: usize = BUCKETS;

/// The buckets of a session, by the names of the paths.
#[derive(Debug)]
pub(super) struct Flows {
    buckets: Buckets<u64>,
    /// Whether there was a single path, so that nobody marked the buckets in use.
    unmarked: bool,
    used: Arc<Used>,
    table: Arc<[u8; BUCKETS]>,
}

impl Default for Flows {
    fn default() -> Self {
        Flows {
            buckets: Buckets::default(),
            unmarked: false,
            used: Arc::default(),
            table: Arc::new([0; BUCKETS]),
        }
    }
}

impl Flows {
    /// Spreads the flows over the paths with these names, of which there is at least one. A flow moves only
    /// when its path is gone.
    pub(super) fn spread(&mut self, now: Instant, paths: &[u64]) -> Spread {
        let mut used = self.used.take();
        if self.unmarked {
            used = [true; BUCKETS];
        }
        self.unmarked = paths.len() == 1;
        let table = self.buckets.rebalance(now, paths, &used);
        if *self.table != table {
            self.table = Arc::new(table);
        }
        Spread {
            buckets: self.table.clone(),
            used: self.used.clone(),
        }
    }

    /// The same; whether any flow to come will take another path.
    pub(super) fn even_out(&mut self, now: Instant, paths: &[u64]) -> bool {
        let before = self.table.clone();
        !Arc::ptr_eq(&self.spread(now, paths).buckets, &before)
    }
}
