use std::time::Instant;

use proptest::prelude::*;

use crate::paths::{
    flows::{BUCKETS, Buckets},
    testing::{MS, SECOND},
};

const NONE: [bool; BUCKETS] = [false; BUCKETS];
const ALL: [bool; BUCKETS] = [true; BUCKETS];

fn shares(places: &[u8; BUCKETS], paths: usize) -> Vec<usize> {
    let count = |path: usize| {
        places
            .iter()
            .filter(|&&place| usize::from(place) == path)
            .count()
    };
    (0..paths).map(count).collect()
}

#[test]
fn the_first_paths_share_the_buckets_evenly() {
    let places = Buckets::default().rebalance(Instant::now(), &['a', 'b', 'c'], &ALL);
    assert_eq!(shares(&places, 3), [86, 85, 85]);
}

#[test]
fn without_a_path_every_bucket_says_zero_and_a_later_path_gets_all() {
    let mut buckets = Buckets::default();
    let now = Instant::now();
    assert_eq!(buckets.rebalance(now, &[], &ALL), [0; BUCKETS]);
    assert_eq!(
        shares(&buckets.rebalance(now, &['a', 'b'], &ALL), 2),
        [128, 128]
    );
}

#[test]
fn buckets_of_a_path_that_goes_spread_over_the_others_which_keep_theirs() {
    let mut buckets = Buckets::default();
    let now = Instant::now();
    let before = buckets.rebalance(now, &['a', 'b', 'c', 'd'], &ALL);
    let after = buckets.rebalance(now, &['d', 'a', 'c'], &ALL);
    for (before, after) in before.iter().zip(after) {
        match before {
            0 => assert_eq!(after, 1),
            2 => assert_eq!(after, 2),
            3 => assert_eq!(after, 0),
            _ => {}
        }
    }
    let shares = shares(&after, 3);
    assert!(
        shares.iter().all(|&share| share == 85 || share == 86),
        "{shares:?}"
    );
}

#[test]
fn a_new_path_gets_buckets_when_they_have_been_idle_for_two_seconds() {
    let mut buckets = Buckets::default();
    let start = Instant::now();
    let mut busy = NONE;
    busy[..200].fill(true);
    buckets.rebalance(start, &['a'], &ALL);
    let places = buckets.rebalance(start + SECOND, &['a', 'b'], &busy);
    assert_eq!(shares(&places, 2), [256, 0]);
    let places = buckets.rebalance(start + 2 * SECOND, &['a', 'b'], &NONE);
    assert_eq!(shares(&places, 2), [200, 56]);
    let places = buckets.rebalance(start + 2999 * MS, &['a', 'b'], &NONE);
    assert_eq!(shares(&places, 2), [200, 56]);
    let places = buckets.rebalance(start + 3 * SECOND, &['a', 'b'], &NONE);
    assert_eq!(shares(&places, 2), [128, 128]);
}

#[test]
fn paths_beyond_the_number_of_buckets_get_none() {
    let paths: Vec<u32> = (0..300).collect();
    let places = Buckets::default().rebalance(Instant::now(), &paths, &NONE);
    assert_eq!(shares(&places, 256), [1; 256]);
}

fn change() -> impl Strategy<Value = (Vec<u8>, Vec<bool>, u64)> {
    (
        proptest::sample::subsequence((0..9_u8).collect::<Vec<_>>(), 0..=9).prop_shuffle(),
        proptest::collection::vec(any::<bool>(), BUCKETS),
        0..3000_u64,
    )
}

proptest! {
    #[test]
    fn a_bucket_in_use_never_moves_while_its_path_exists(
        changes in proptest::collection::vec(change(), 1..20),
    ) {
        let mut buckets = Buckets::default();
        let mut now = Instant::now();
        let mut last_used = [None; BUCKETS];
        let mut before: Option<(Vec<u8>, [u8; BUCKETS])> = None;
        let name = |paths: &[u8], place: u8| paths.get(usize::from(place)).copied();
        for (paths, used, passed) in changes {
            now += u32::try_from(passed).expect("small") * MS;
            let used: [bool; BUCKETS] = used.try_into().expect("one per bucket");
            let places = buckets.rebalance(now, &paths, &used);
            for bucket in 0..BUCKETS {
                if used[bucket] {
                    last_used[bucket] = Some(now);
                }
                let place = places[bucket];
                prop_assert!(usize::from(place) < paths.len().max(1));
                let old = before.as_ref().and_then(|(paths, places)| name(paths, places[bucket]));
                let busy = last_used[bucket].is_some_and(|at| now - at < 2 * SECOND);
                if let Some(old) = old && busy && paths.contains(&old) {
                    prop_assert_eq!(name(&paths, place), Some(old));
                }
            }
            prop_assert_eq!(places, buckets.rebalance(now, &paths, &used), "settled");
            before = Some((paths, places));
        }
        // After everything has been idle the shares differ by at most one.
        if let Some((paths, _)) = before.filter(|(paths, _)| !paths.is_empty()) {
            let places = buckets.rebalance(now + 2 * SECOND, &paths, &NONE);
            let shares = shares(&places, paths.len());
            let (least, most) = (shares.iter().min(), shares.iter().max());
            prop_assert!(most.zip(least).is_some_and(|(most, least)| most - least <= 1), "{:?}", shares);
        }
    }
}
