//! Flows over the paths of a session.

use std::time::{Duration, Instant};

/// Buckets of a session. The data plane finds the bucket of a packet by the hash of its flow.
pub const BUCKETS: usize = 256;
/// A bucket without packets for this long can move: what it carried last has arrived.
const IDLE: Duration = Duration::from_secs(2);

/// Which path each bucket of flows takes. `K` names a path across changes.
///
/// A flow moves only when its path goes. A new path therefore begins with the buckets that are idle, and gets
/// its whole share as others become idle; new flows that fall into a bucket in use go with it.
#[derive(Clone, Debug)]
pub struct Buckets<K> {
    paths: [Option<K>; BUCKETS],
    used: [Option<Instant>; BUCKETS],
}

impl<K: Copy + Eq> Default for Buckets<K> {
    fn default() -> Self {
        Buckets {
            paths: [None; BUCKETS],
            used: [None; BUCKETS],
        }
    }
}

impl<K: Copy + Eq> Buckets<K> {
    /// Assigns the buckets to these paths (no duplicates; those beyond the 256th get none): per bucket, the
    /// path's place in `paths`; 0 where there is no path. `used` are the buckets in which there were packets
    /// since the last call.
    ///
    /// To be called when the paths change and about every second: a bucket counts as used at the time of the
    /// call that reports it, and it takes two seconds without a report until it is idle.
    pub fn rebalance(
        &mut self,
        now: Instant,
        paths: &[K],
        used: &[bool; BUCKETS],
    ) -> [u8; BUCKETS] {
        for (last, _) in self.used.iter_mut().zip(used).filter(|(_, used)| **used) {
            *last = Some(now);
        }
        let paths = &paths[..paths.len().min(BUCKETS)];
        let place = |path: K| paths.iter().position(|&other| other == path);
        let mut places = self.paths.map(|path| path.and_then(place));
        let mut share = vec![0_usize; paths.len()];
        places.iter().flatten().for_each(|&place| share[place] += 1);
        for place in places.iter_mut().filter(|place| place.is_none()) {
            *place = least(&share);
            place.iter().for_each(|&place| share[place] += 1);
        }
        for (bucket, place) in places.iter_mut().enumerate() {
            if let (Some(from), Some(to)) = (*place, least(&share))
                && share[from] > share[to] + 1
                && self.is_idle(bucket, now)
            {
                share[from] -= 1;
                share[to] += 1;
                *place = Some(to);
            }
        }
        self.paths = places.map(|place| place.and_then(|place| paths.get(place).copied()));
        places.map(|place| {
            place
                .and_then(|place| u8::try_from(place).ok())
                .unwrap_or(0)
        })
    }

    fn is_idle(&self, bucket: usize, now: Instant) -> bool {
        self.used[bucket].is_none_or(|last| now.saturating_duration_since(last) >= IDLE)
    }
}

/// The path with the fewest buckets.
fn least(share: &[usize]) -> Option<usize> {
    (0..share.len()).min_by_key(|&path| share[path])
}
