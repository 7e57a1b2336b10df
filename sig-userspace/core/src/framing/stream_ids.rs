//! Random stream ids that no receiver remembers any more.

use std::collections::VecDeque;

use rand::{Rng, RngCore};

/// How many ids there are: 19 bits. The top one of the 20 bits on the wire stays 0 for senders
/// outside the engine.
const IDS: u32 = 1 << 19;
/// How long an id is kept after its release, nanoseconds: longer than receivers remember a stream.
const MEMORY_NS: u64 = 300 * 1_000_000_000;
/// How many released ids are kept; beyond, the oldest is forgotten early.
const MEMORY: usize = 8_192;

/// Hands out stream ids that are neither in use nor were during the last five minutes.
///
/// The low bits of an id are the sender's worker: a receiver steers a frame to its own worker
/// number *id mod its number of workers*, so the streams of our workers spread over its workers.
#[derive(Debug)]
pub struct StreamIds<R> {
    rng: R,
    /// One bit per id: in use or remembered.
    taken: Box<[u64]>,
    /// Released ids with the time of release, oldest first.
    released: VecDeque<(u64, u32)>,
}

impl<R: RngCore> StreamIds<R> {
    /// No id is in use yet.
    #[must_use]
    pub fn new(rng: R) -> Self {
        Self {
            rng,
            taken: vec![0; IDS as usize / 64].into_boxed_slice(),
            released: VecDeque::with_capacity(MEMORY + 1),
        }
    }

    /// A random id for a new stream of worker `worker` of `workers` (0 counts as 1), so that
    /// `id % workers == worker % workers`. In use until [`release`](Self::release)d.
    ///
    /// If all ids of that worker are in use or remembered, the one released longest ago returns
    /// early; `None` if all are in use.
    pub fn allocate(&mut self, now: u64, worker: u8, workers: u8) -> Option<u32> {
        self.forget(now);
        let workers = u32::from(workers.max(1));
        let worker = u32::from(worker) % workers;
        let ids = (IDS - worker).div_ceil(workers);
        // Random tries first: a walk from one random start would favour the ids behind clusters.
        for _ in 0..16 {
            let id = self.rng.random_range(0..ids) * workers + worker;
            if !self.is_taken(id) {
                self.take(id);
                return Some(id);
            }
        }
        let start = self.rng.random_range(0..ids);
        let free = (start..ids)
            .chain(0..start)
            .map(|n| n * workers + worker)
            .find(|&id| !self.is_taken(id));
        if let Some(id) = free {
            self.take(id);
            return Some(id);
        }
        let oldest = self
            .released
            .iter()
            .position(|&(_, id)| id % workers == worker)?;
        self.released.remove(oldest).map(|(_, id)| id)
    }

    /// The stream has ended: its id is kept out of use for five minutes more.
    /// An id that is not in use is ignored.
    pub fn release(&mut self, now: u64, id: u32) {
        if id >= IDS || !self.is_taken(id) || self.released.iter().any(|&(_, known)| known == id) {
            return;
        }
        self.released.push_back((now, id));
        if self.released.len() > MEMORY {
            self.drop_oldest();
        }
    }

    fn forget(&mut self, now: u64) {
        while let Some(&(released, _)) = self.released.front() {
            if now.saturating_sub(released) < MEMORY_NS {
                break;
            }
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        if let Some((_, id)) = self.released.pop_front() {
            self.taken[id as usize / 64] &= !(1 << (id % 64));
        }
    }

    fn take(&mut self, id: u32) {
        self.taken[id as usize / 64] |= 1 << (id % 64);
    }

    fn is_taken(&self, id: u32) -> bool {
        self.taken[id as usize / 64] >> (id % 64) & 1 == 1
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn ids() -> StreamIds<StdRng> {
        StreamIds::new(StdRng::seed_from_u64(7))
    }

    #[test]
    fn ids_have_19_bits_and_carry_the_worker() {
        let mut ids = ids();
        let mut all = HashSet::new();
        for n in 0..2_000u32 {
            let (worker, workers) = ((n % 7) as u8, 1 + (n % 5) as u8);
            let id = ids.allocate(0, worker, workers).expect("plenty are free");
            assert!(id < 1 << 19);
            assert_eq!(id % u32::from(workers), u32::from(worker % workers));
            assert!(all.insert(id), "used twice");
        }
        assert!(
            all.iter().any(|id| id >> 18 == 1),
            "the whole range is used"
        );
    }

    #[test]
    fn zero_workers_count_as_one() {
        assert!(ids().allocate(0, 3, 0).is_some());
    }

    #[test]
    fn a_released_id_returns_after_five_minutes_only() {
        let mut ids = ids();
        // Worker 254 of 255: 2056 ids.
        let all: Vec<u32> = (0..2_056)
            .map(|_| ids.allocate(0, 254, 255).expect("free"))
            .collect();
        assert_eq!(ids.allocate(0, 254, 255), None, "all are in use");
        assert!(ids.allocate(0, 0, 255).is_some(), "others are not touched");
        ids.release(10 * SECOND, all[3]);
        ids.release(20 * SECOND, all[4]);
        ids.release(20 * SECOND, all[4]);
        assert_eq!(
            ids.allocate(20 * SECOND, 254, 255),
            Some(all[3]),
            "early, for want"
        );
        ids.release(30 * SECOND, all[3]);
        assert_eq!(ids.released.len(), 2);
        assert!(ids.allocate(319 * SECOND, 0, 255).is_some());
        assert!(ids.is_taken(all[4]));
        assert!(ids.allocate(320 * SECOND, 0, 255).is_some());
        assert!(!ids.is_taken(all[4]));
        assert_eq!(
            ids.allocate(330 * SECOND, 254, 255).map(|id| id % 255),
            Some(254)
        );
    }

    #[test]
    fn the_memory_of_released_ids_is_bounded() {
        let mut ids = ids();
        for _ in 0..20_000 {
            let id = ids.allocate(0, 0, 1).expect("free");
            ids.release(0, id);
        }
        assert_eq!(ids.released.len(), MEMORY);
        let taken: u32 = ids.taken.iter().map(|word| word.count_ones()).sum();
        assert_eq!(taken as usize, MEMORY);
    }

    #[test]
    fn unknown_ids_cannot_be_released() {
        let mut ids = ids();
        ids.release(0, 5);
        ids.release(0, u32::MAX);
        assert!(ids.released.is_empty());
    }
}
