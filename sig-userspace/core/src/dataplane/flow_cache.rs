//! A memory of recent decisions about pairs of inner addresses, in front of the prefix tables.

use std::net::IpAddr;

/// Entries; a power of two.
const ENTRIES: usize = 4096;

/// Direct-mapped, because packets of a flow come one after the other and a prefix lookup costs more
/// than this. Forgets everything when the tables change.
pub struct FlowCache<T> {
    generation: u64,
    entries: Box<[Option<Entry<T>>]>,
}

#[derive(Clone, Copy)]
struct Entry<T> {
    source: IpAddr,
    destination: IpAddr,
    decision: T,
}

impl<T: Copy> Default for FlowCache<T> {
    fn default() -> Self {
        FlowCache {
            generation: 0,
            entries: vec![None; ENTRIES].into_boxed_slice(),
        }
    }
}

impl<T: Copy> FlowCache<T> {
    /// What was decided about packets from `source` to `destination` under the tables of this
    /// `generation`, if that is remembered and `holds`; otherwise what `decide` says, remembered
    /// from now on.
    #[inline]
    pub fn get_or_decide(
        &mut self,
        generation: u64,
        source: IpAddr,
        destination: IpAddr,
        holds: impl FnOnce(&T) -> bool,
        decide: impl FnOnce() -> T,
    ) -> T {
        if self.generation != generation {
            self.entries.fill(None);
            self.generation = generation;
        }
        let entry = &mut self.entries[slot(source, destination)];
        if let Some(entry) = entry
            && entry.source == source
            && entry.destination == destination
            && holds(&entry.decision)
        {
            return entry.decision;
        }
        let decision = decide();
        *entry = Some(Entry {
            source,
            destination,
            decision,
        });
        decision
    }
}

/// Where the decision about a pair of addresses is kept.
#[inline]
fn slot(source: IpAddr, destination: IpAddr) -> usize {
    let word = |address| match address {
        IpAddr::V4(v4) => u64::from(u32::from(v4)),
        IpAddr::V6(v6) => {
            let v6 = u128::from(v6);
            (v6 as u64) ^ ((v6 >> 64) as u64).rotate_left(23)
        }
    };
    let mixed =
        (word(source).rotate_left(32) ^ word(destination)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> (64 - ENTRIES.trailing_zeros())) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v4(n: u32) -> IpAddr {
        IpAddr::V4(n.into())
    }

    #[test]
    fn a_decision_is_remembered_until_the_tables_change_or_it_does_not_hold() {
        let mut cache = FlowCache::default();
        let mut get = |generation, holds, fresh| {
            cache.get_or_decide(generation, v4(1), v4(2), |_| holds, || fresh)
        };
        assert_eq!(get(1, true, 'a'), 'a');
        assert_eq!(get(1, true, 'b'), 'a');
        assert_eq!(get(1, false, 'c'), 'c');
        assert_eq!(get(2, true, 'd'), 'd');
    }

    #[test]
    fn pairs_in_the_same_slot_do_not_share_a_decision() {
        let mut cache = FlowCache::default();
        for round in 0..2 {
            for n in 0..3 * ENTRIES as u32 {
                let decision = cache.get_or_decide(1, v4(n), v4(7), |_| true, || n);
                assert_eq!(decision, n, "round {round}");
            }
        }
    }

    #[test]
    fn neighbouring_pairs_spread_over_the_cache() {
        let slots: std::collections::HashSet<usize> = (0..ENTRIES as u32)
            .map(|n| {
                slot(
                    v4(0x0a01_0000 + n),
                    v4(0x0a02_0000 + n % 256 * 256 + n / 256),
                )
            })
            .collect();
        assert!(slots.len() > ENTRIES / 2, "{} slots", slots.len());
    }
}
