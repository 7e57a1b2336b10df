//! Which flows of a session take which of its paths.

use std::sync::Arc;

use crate::dataplane::{BUCKETS, Spread, Used};

/// A bucket without packets for this long holds no flow, nanoseconds.
const IDLE_NS: u64 = 2_000_000_000;

/// Most paths among which flows are spread: their numbers are bytes.
pub(super) const MAX_PATHS: usize = 256;

/// The buckets of a session.
#[derive(Debug)]
pub(super) struct Flows {
    /// The path of each bucket, by [`PlannedPath::name`](super::PlannedPath::name).
    paths: [u64; BUCKETS],
    /// When packets were last seen in each, nanoseconds.
    used_at: [u64; BUCKETS],
    /// Whether the workers mark the buckets that they use.
    marked: bool,
    used: Arc<Used>,
    table: Arc<[u8; BUCKETS]>,
}

impl Default for Flows {
    fn default() -> Self {
        Flows {
            paths: [0; BUCKETS],
            used_at: [0; BUCKETS],
            marked: false,
            used: Arc::default(),
            table: Arc::new([0; BUCKETS]),
        }
    }
}

impl Flows {
    /// Spreads the flows over the paths with these names, at most [`MAX_PATHS`]. A bucket in use keeps its
    /// path for as long as that is there; one whose path is gone gets another; idle ones even out the
    /// shares.
    pub(super) fn spread(&mut self, now: u64, paths: &[u64]) -> Spread {
        let several = paths.len() > 1;
        // With one path nobody marks them, so all may be in use.
        let all = several && !self.marked;
        self.marked = several;
        for (used, used_at) in self.used.take().into_iter().zip(&mut self.used_at) {
            if used || all {
                *used_at = now;
            }
        }
        let mut shares = vec![0usize; paths.len()];
        let mut table = [None; BUCKETS];
        for (place, path) in table.iter_mut().zip(&self.paths) {
            *place = paths.iter().position(|known| known == path);
            if let Some(place) = *place {
                shares[place] += 1;
            }
        }
        for (bucket, place) in table.iter_mut().enumerate() {
            let Some(least) = (0..paths.len()).min_by_key(|path| shares[*path]) else {
                break;
            };
            match *place {
                None => {}
                Some(old)
                    if now.saturating_sub(self.used_at[bucket]) >= IDLE_NS
                        && shares[old] > shares[least] + 1 =>
                {
                    shares[old] -= 1;
                }
                Some(_) => continue,
            }
            *place = Some(least);
            self.paths[bucket] = paths[least];
            shares[least] += 1;
        }
        let table = table.map(|place| place.unwrap_or(0) as u8);
        if *self.table != table {
            self.table = Arc::new(table);
        }
        Spread {
            buckets: self.table.clone(),
            used: self.used.clone(),
        }
    }

    /// The same; whether any flow to come will take another path.
    pub(super) fn even_out(&mut self, now: u64, paths: &[u64]) -> bool {
        let before = self.table.clone();
        !Arc::ptr_eq(&self.spread(now, paths).buckets, &before)
    }
}
