use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::network::selection;
use crate::{
    paths::{
        Availability, Criterion, Liveness, Margin, PathState, Ranking, Selection, Selector,
        testing::{MS, SECOND, alive, path, path_over},
    },
    scion::Fingerprint,
};

fn by(criteria: &[Criterion], count: usize) -> Selection {
    Selection {
        ranking: Ranking(criteria.to_vec()),
        ..selection(count)
    }
}

fn select(selector: &mut Selector, now: Instant, states: &[PathState]) -> Vec<Fingerprint> {
    let chosen = selector.select(now, states, |_| Some(0));
    chosen.iter().map(|state| state.fingerprint()).collect()
}

fn with_latency(mut state: PathState, latency: Duration) -> PathState {
    state.latency = Some(latency);
    state
}

/// Two paths with as many interfaces, the one with the higher fingerprint first.
fn twins(now: Instant) -> [PathState; 2] {
    let mut twins = [1, 2].map(|n| alive(path_over(1, n), now));
    twins.sort_by_key(|state| std::cmp::Reverse(state.fingerprint()));
    twins
}

#[test]
fn by_default_fewer_interfaces_win_and_then_the_higher_fingerprint() {
    let now = Instant::now();
    let [high, low] = twins(now);
    let long = alive(path_over(3, 3), now);
    let expected = [high.fingerprint(), low.fingerprint()];
    let states = [long, low, high];
    assert_eq!(
        select(&mut Selector::new(selection(1)), now, &states),
        expected[..1]
    );
    assert_eq!(
        select(&mut Selector::new(selection(2)), now, &states),
        expected
    );
}

#[test]
fn a_path_that_dies_expires_or_stops_complying_leaves_at_once() {
    let now = Instant::now();
    let [best, other] = twins(now);
    for liveness in [Liveness::Silent, Liveness::Expired] {
        let mut selector = Selector::new(selection(1));
        let mut states = [best.clone(), other.clone()];
        assert_eq!(select(&mut selector, now, &states), [best.fingerprint()]);
        states[0].liveness = liveness;
        assert_eq!(select(&mut selector, now, &states), [other.fingerprint()]);
        assert_eq!(selector.changes(), 2);
    }
    let mut selector = Selector::new(selection(1));
    let states = [best.clone(), other.clone()];
    select(&mut selector, now, &states);
    let complying =
        |path: &crate::scion::Path| (path.fingerprint == other.fingerprint()).then_some(0);
    selector.select(now, &states, complying);
    assert_eq!(selector.chosen(), [other.fingerprint()]);
    let expected = Availability {
        alive: 1,
        timeout: 0,
        rejected: 1,
    };
    assert_eq!(selector.availability(), expected);
}

#[test]
fn a_better_path_waits_for_the_delay() {
    let start = Instant::now();
    let [best, other] = twins(start);
    let mut selector = Selector::new(selection(1));
    select(&mut selector, start, std::slice::from_ref(&other));
    let states = [best.clone(), other.clone()];
    let seen = start + SECOND;
    assert_eq!(select(&mut selector, seen, &states), [other.fingerprint()]);
    assert_eq!(selector.next_deadline(), Some(seen + 5 * SECOND));
    assert_eq!(
        select(&mut selector, seen + 4999 * MS, &states),
        [other.fingerprint()]
    );
    assert_eq!(
        select(&mut selector, seen + 5 * SECOND, &states),
        [best.fingerprint()]
    );
    assert_eq!(selector.next_deadline(), None);
}

#[test]
fn better_paths_replace_the_worst_ones_one_by_one() {
    let start = Instant::now();
    let at = |n: u64, latency: u32| with_latency(alive(path_over(1, n), start), latency * MS);
    let (bad, worst) = (at(1, 50), at(2, 90));
    let (good, best) = (at(3, 30), at(4, 10));
    for states in [[&bad, &worst], [&worst, &bad]] {
        let states = states.map(Clone::clone);
        let mut selector = Selector::new(by(&[Criterion::Latency(Margin::TIME)], 2));
        select(&mut selector, start, &states);
        let all = [worst.clone(), bad.clone(), good.clone(), best.clone()];
        select(&mut selector, start, &all);
        let chosen = select(&mut selector, start + 5 * SECOND, &all);
        assert_eq!(chosen, [bad.fingerprint(), best.fingerprint()]);
        select(&mut selector, start + 6 * SECOND, &all);
        let chosen = select(&mut selector, start + 10 * SECOND, &all);
        assert_eq!(chosen, [bad.fingerprint(), best.fingerprint()]);
        let chosen = select(&mut selector, start + 11 * SECOND, &all);
        assert_eq!(chosen, [good.fingerprint(), best.fingerprint()]);
    }
}

#[test]
fn without_a_delay_better_paths_come_at_once() {
    let now = Instant::now();
    let [best, other] = twins(now);
    let long = [4, 5].map(|n| alive(path_over(3, n), now));
    let mut selector = Selector::new(Selection {
        switch_delay: Duration::ZERO,
        ..selection(2)
    });
    select(&mut selector, now, &long);
    let [one, two] = long;
    let states = [one, two, best.clone(), other.clone()];
    let mut chosen = select(&mut selector, now, &states);
    chosen.sort();
    assert_eq!(chosen, [other.fingerprint(), best.fingerprint()]);
}

#[test]
fn the_delay_begins_anew_when_the_better_path_was_worse_or_dead_meanwhile() {
    let start = Instant::now();
    let [better, used] = twins(start);
    let used = with_latency(used, 50 * MS);
    let mut selector = Selector::new(by(&[Criterion::Latency(Margin::TIME)], 1));
    select(&mut selector, start, std::slice::from_ref(&used));
    let good = [better.clone(), used.clone()];
    select(&mut selector, start, &good);
    let bad = [with_latency(better.clone(), 60 * MS), used.clone()];
    select(&mut selector, start + 3 * SECOND, &bad);
    select(&mut selector, start + 4 * SECOND, &good);
    assert_eq!(
        select(&mut selector, start + 8 * SECOND, &good),
        [used.fingerprint()]
    );
    // It died and came back between two looks.
    let back = alive(better.path.clone(), start + 8500 * MS);
    let good = [back, used.clone()];
    assert_eq!(
        select(&mut selector, start + 9 * SECOND, &good),
        [used.fingerprint()]
    );
    assert_eq!(
        select(&mut selector, start + 13_500 * MS, &good),
        [better.fingerprint()]
    );
}

#[test]
fn differences_within_the_margin_change_nothing() {
    let start = Instant::now();
    let [other, used] = twins(start);
    let used = with_latency(used, 20 * MS);
    let mut selector = Selector::new(by(&[Criterion::Latency(Margin::TIME)], 1));
    select(&mut selector, start, std::slice::from_ref(&used));
    for second in 0..60 {
        let states = [with_latency(other.clone(), 18 * MS), used.clone()];
        let chosen = select(&mut selector, start + second * SECOND, &states);
        assert_eq!(chosen, [used.fingerprint()]);
    }
    let states = [with_latency(other.clone(), 17 * MS), used];
    select(&mut selector, start + 60 * SECOND, &states);
    let chosen = select(&mut selector, start + 65 * SECOND, &states);
    assert_eq!(chosen, [other.fingerprint()]);
}

#[test]
fn the_second_criterion_decides_among_paths_about_equal_by_the_first() {
    let now = Instant::now();
    let [a, b] = twins(now);
    let mut lossy = with_latency(a, 20 * MS);
    lossy.loss_ppm = Some(30_000);
    let clean = with_latency(b, 21 * MS);
    let far = with_latency(alive(path_over(1, 3), now), 40 * MS);
    let ranking = [
        Criterion::Latency(Margin::TIME),
        Criterion::Loss(Margin::LOSS),
    ];
    let states = [far, lossy, clean.clone()];
    let chosen = select(&mut Selector::new(by(&ranking, 1)), now, &states);
    assert_eq!(chosen, [clean.fingerprint()]);
}

#[test]
fn a_later_criterion_does_not_win_at_half_the_margin_of_an_earlier_one() {
    let start = Instant::now();
    let used = with_latency(alive(path_over(2, 1), start), 20 * MS);
    let short = alive(path_over(1, 2), start);
    let ranking = [Criterion::Latency(Margin::TIME), Criterion::Hops];
    for (latency, replaced) in [(20_900, true), (21_500, false)] {
        let mut selector = Selector::new(by(&ranking, 1));
        select(&mut selector, start, std::slice::from_ref(&used));
        let latency = Duration::from_micros(latency);
        let states = [used.clone(), with_latency(short.clone(), latency)];
        select(&mut selector, start, &states);
        let chosen = select(&mut selector, start + 5 * SECOND, &states);
        assert_eq!(chosen == [short.fingerprint()], replaced);
        // Chosen from scratch, both are about equal by latency.
        let chosen = select(&mut Selector::new(by(&ranking, 1)), start, &states);
        assert_eq!(chosen, [short.fingerprint()]);
    }
}

#[test]
fn every_criterion_orders_in_its_direction() {
    let now = Instant::now();
    let [a, b] = twins(now);
    let check = |criterion, better: &PathState, worse: &PathState| {
        for states in [
            [better.clone(), worse.clone()],
            [worse.clone(), better.clone()],
        ] {
            let chosen = select(&mut Selector::new(by(&[criterion], 1)), now, &states);
            assert_eq!(chosen, [better.fingerprint()], "{criterion:?}");
        }
    };
    // The worse one has the higher fingerprint.
    let worse = |change: fn(&mut PathState)| {
        let mut worse = a.clone();
        change(&mut worse);
        worse
    };
    let margin = Margin::TIME;
    check(
        Criterion::Latency(margin),
        &b,
        &worse(|s| s.latency = Some(25 * MS)),
    );
    check(Criterion::Latency(margin), &b, &worse(|s| s.latency = None));
    check(
        Criterion::Jitter(margin),
        &b,
        &worse(|s| s.jitter = Some(3 * MS)),
    );
    check(
        Criterion::Loss(Margin::LOSS),
        &b,
        &worse(|s| s.loss_ppm = Some(10_001)),
    );
    check(Criterion::Mtu, &b, &worse(|s| s.mtu = 1400));
    check(Criterion::Hops, &b, &alive(path_over(2, 3), now));
    check(Criterion::Fingerprint, &a, &b);
}

#[test]
fn among_equal_paths_those_that_share_less_are_used_together() {
    let now = Instant::now();
    // The first two share their last link, the third is disjoint.
    let states = [(11, 91), (12, 91), (13, 92)]
        .map(|(first, last)| alive(path(&[(1, first), (2, first), (2, last), (9, last)]), now));
    let fingerprint = |n: usize| states[n].fingerprint();
    let chosen = select(&mut Selector::new(selection(2)), now, &states);
    assert!(chosen.contains(&fingerprint(2)));
    // Two that share are not kept when a disjoint one comes.
    let mut selector = Selector::new(selection(2));
    select(&mut selector, now, &states[..2]);
    select(&mut selector, now, &states);
    let chosen = select(&mut selector, now + 5 * SECOND, &states);
    assert!(chosen.contains(&fingerprint(2)));
    // But disjointness counts less than what the ranking asks for.
    let mut slow = states.clone();
    slow[2].latency = Some(90 * MS);
    let ranking = by(&[Criterion::Latency(Margin::TIME)], 2);
    let chosen = select(&mut Selector::new(ranking), now, &slow);
    assert!(!chosen.contains(&fingerprint(2)));
}

#[test]
fn a_revoked_path_is_used_only_if_there_is_no_other() {
    let now = Instant::now();
    let [mut best, other] = twins(now);
    let mut selector = Selector::new(selection(2));
    best.revoked = true;
    let only = std::slice::from_ref(&best);
    assert_eq!(select(&mut selector, now, only), [best.fingerprint()]);
    let both = [best.clone(), other.clone()];
    assert_eq!(select(&mut selector, now, &both), [other.fingerprint()]);
    best.revoked = false;
    let chosen = select(&mut selector, now, &[best.clone(), other.clone()]);
    assert_eq!(chosen, [other.fingerprint(), best.fingerprint()]);
}

#[test]
fn a_path_that_has_died_often_waits_while_another_is_usable() {
    let start = Instant::now();
    let [mut flapping, other] = twins(start);
    let settled = start + 16 * SECOND;
    flapping.liveness = Liveness::Alive {
        since: start,
        settled,
    };
    let mut selector = Selector::new(selection(2));
    let both = [flapping.clone(), other.clone()];
    assert_eq!(select(&mut selector, start, &both), [other.fingerprint()]);
    assert_eq!(selector.next_deadline(), Some(settled));
    assert_eq!(select(&mut selector, settled, &both).len(), 2);
    let mut alone = Selector::new(selection(2));
    let only = std::slice::from_ref(&flapping);
    assert_eq!(select(&mut alone, start, only), [flapping.fingerprint()]);
    // In use already, it need not make way.
    assert_eq!(select(&mut alone, start, &both).len(), 2);
}

#[test]
fn lighter_paths_are_used_only_in_the_absence_of_heavier_ones() {
    let start = Instant::now();
    let [heavy, light] = twins(start);
    let weigh =
        |path: &crate::scion::Path| Some(u32::from(path.fingerprint == heavy.fingerprint()));
    let states = [heavy.clone(), light.clone()];
    for count in [1, 2] {
        let mut selector = Selector::new(selection(count));
        let mut run = |after, states: &[PathState]| {
            selector.select(start + after, states, weigh);
            selector.chosen().to_vec()
        };
        assert_eq!(run(Duration::ZERO, &states), [heavy.fingerprint()]);
        assert_eq!(run(SECOND, &states[1..]), [light.fingerprint()]);
        assert!(run(2 * SECOND, &states).contains(&light.fingerprint()));
        assert_eq!(run(7 * SECOND, &states), [heavy.fingerprint()]);
    }
}

#[test]
fn fewer_wanted_paths_drop_the_worst() {
    let now = Instant::now();
    let [best, other] = twins(now);
    let long = alive(path_over(4, 7), now);
    let states = [long, other, best.clone()];
    let mut selector = Selector::new(selection(3));
    assert_eq!(select(&mut selector, now, &states).len(), 3);
    selector.set_selection(selection(1));
    assert_eq!(select(&mut selector, now, &states), [best.fingerprint()]);
}

#[test]
fn paths_that_stay_keep_their_order() {
    let now = Instant::now();
    let states: Vec<_> = (1..=4).map(|n| alive(path_over(1, n), now)).collect();
    let mut selector = Selector::new(selection(4));
    let mut order = select(&mut selector, now, &states);
    let gone = order.remove(1);
    let rest: Vec<_> = states
        .iter()
        .filter(|s| s.fingerprint() != gone)
        .cloned()
        .collect();
    assert_eq!(select(&mut selector, now, &rest), order);
    order.push(gone);
    assert_eq!(select(&mut selector, now, &states), order);
}

fn state() -> impl Strategy<Value = PathState> {
    let liveness = prop_oneof![
        4 => (0..30_u64).prop_map(|hold| Liveness::Alive {
            since: *START,
            settled: *START + Duration::from_secs(hold.saturating_sub(20)),
        }),
        1 => Just(Liveness::Answering),
        1 => Just(Liveness::Silent),
        1 => Just(Liveness::Expired),
    ];
    let time = || proptest::option::weighted(0.9, 0..100_u32);
    let revoked = proptest::bool::weighted(0.2);
    (
        liveness,
        time(),
        time(),
        0..100_000_u32,
        1000..1472_u16,
        revoked,
    )
        .prop_map(
            |(liveness, latency, jitter, loss, mtu, revoked)| PathState {
                liveness,
                mtu,
                revoked,
                latency: latency.map(|ms| ms * MS),
                jitter: jitter.map(|ms| ms * MS),
                loss_ppm: Some(loss),
                ..alive(path_over(0, 1), *START)
            },
        )
}

static START: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(Instant::now);

fn ranking() -> impl Strategy<Value = Vec<Criterion>> {
    proptest::sample::subsequence(
        vec![
            Criterion::Latency(Margin::TIME),
            Criterion::Jitter(Margin::TIME),
            Criterion::Loss(Margin::LOSS),
            Criterion::Hops,
            Criterion::Mtu,
            Criterion::Fingerprint,
        ],
        0..=6,
    )
    .prop_shuffle()
}

proptest! {
    #[test]
    fn a_choice_keeps_to_the_rules_and_comes_to_rest(
        criteria in ranking(),
        count in 1..4_usize,
        rounds in proptest::collection::vec(proptest::collection::vec(state(), 6), 1..8),
        weights in proptest::collection::vec(proptest::option::weighted(0.8, 0..2_u32), 6),
    ) {
        let mut selector = Selector::new(by(&criteria, count));
        let mut now = *START;
        let paths: Vec<_> = (0..6).map(|n| path_over(n % 3, n + 1)).collect();
        let weigh = |path: &crate::scion::Path| {
            let place = paths.iter().position(|other| other.fingerprint == path.fingerprint);
            place.and_then(|place| weights[place])
        };
        for mut states in rounds {
            for (state, path) in states.iter_mut().zip(&paths) {
                state.path = path.clone();
            }
            let usable: Vec<_> = states
                .iter()
                .filter(|s| weigh(&s.path).is_some())
                .filter(|s| !matches!(s.liveness, Liveness::Silent | Liveness::Expired))
                .collect();
            let good = usable.iter().any(|s| s.is_alive() && !s.revoked);
            // Rounds of one second until long after any change could come.
            let mut last = None;
            for round in 0..60 {
                now += SECOND;
                let chosen = selector.select(now, &states, weigh);
                prop_assert!(chosen.len() <= count);
                prop_assert_eq!(chosen.is_empty(), usable.is_empty());
                for state in &chosen {
                    prop_assert!(usable.contains(state));
                    prop_assert!(!(state.revoked && good));
                }
                let mut names: Vec<_> = chosen.iter().map(|s| s.fingerprint()).collect();
                names.sort();
                names.dedup();
                prop_assert_eq!(names.len(), chosen.len());
                if round >= 50 {
                    prop_assert!(last.is_none_or(|last| last == names), "it never rests");
                }
                last = Some(names);
            }
            let a = selector.availability();
            prop_assert_eq!(a.alive + a.timeout + a.rejected, 6);
        }
    }
}
