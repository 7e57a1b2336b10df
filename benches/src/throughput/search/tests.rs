use std::ops::Range;

use proptest::prelude::*;

use super::*;
use crate::throughput::trial::Validity;

/// A device and a tester with known limits.
#[derive(Clone, Debug)]
struct Simulated {
    /// Packets per second that get through.
    capacity: f64,
    /// Share that is lost at any rate.
    loss: f64,
    /// Packets per second that the generator can send.
    generator: f64,
    /// The rate sent deviates by at most this share; deviations follow each other in turn.
    jitter: f64,
    /// No trial with a number below this counts.
    invalid: u32,
    trials: u32,
    rates: Vec<f64>,
}

const GOOD: Simulated = Simulated {
    capacity: 1e6,
    loss: 0.0,
    generator: 5e6,
    jitter: 0.0,
    invalid: 0,
    trials: 0,
    rates: Vec::new(),
};

impl Device for Simulated {
    fn trial(&mut self, rate: Rate, length: Duration) -> Result<Trial> {
        self.trials += 1;
        let target = match rate {
            Rate::Max => None,
            Rate::PacketsPerSecond(rate) => Some(rate),
        };
        self.rates.extend(target);
        let jitter = self.jitter * (f64::from(self.trials % 3) - 1.0);
        let offered = target.unwrap_or(f64::INFINITY).min(self.generator) * (1.0 + jitter);
        let sent = offered * length.as_secs_f64();
        let received = sent.min(self.capacity * length.as_secs_f64()) * (1.0 - self.loss);
        let missed = target.is_some_and(|target| (offered / target - 1.0).abs() > 0.02);
        let validity = if missed {
            Validity::Invalid("the generator was too slow".into())
        } else if self.trials <= self.invalid {
            Validity::Invalid("other processes took the CPU".into())
        } else {
            Validity::Valid
        };
        Ok(Trial {
            target,
            seconds: length.as_secs_f64(),
            sent: sent as u64,
            received: received as u64,
            validity,
            ..Trial::default()
        })
    }
}

fn plan() -> SearchPlan {
    SearchPlan {
        length: Duration::from_secs(2),
        ..SearchPlan::default()
    }
}

fn find(device: &mut Simulated, plan: &SearchPlan, loss_percent: f64) -> SearchResult {
    pdr(device, plan, loss_percent, &mut |_| {}).expect("a simulated device does not break")
}

fn has_note(result: &SearchResult, part: &str) -> bool {
    result.notes.iter().any(|note| note.contains(part))
}

#[test]
fn a_device_as_fast_as_the_generator_is_limited_by_the_tester() {
    let mut device = Simulated {
        capacity: 1e7,
        ..GOOD
    };
    let result = find(&mut device, &plan(), 0.5);
    assert_eq!(result.rate, Some(5e6));
    assert!(has_note(&result, "tester-limited"), "{result:?}");
    assert_eq!(device.trials, 1);
}

#[test]
fn a_device_that_fails_everywhere_has_no_rate() {
    for mut broken in [
        Simulated { loss: 0.01, ..GOOD },
        Simulated { loss: 1.0, ..GOOD },
        Simulated {
            capacity: 0.0,
            ..GOOD
        },
    ] {
        let result = find(&mut broken, &plan(), 0.5);
        assert_eq!(result.rate, None, "{broken:?}");
        assert!(has_note(&result, "none:"), "{result:?}");
        assert!((2..20).contains(&broken.trials), "{broken:?}");
    }
}

#[test]
fn a_loss_below_the_limit_is_allowed_and_without_a_limit_it_is_not() {
    let lossy = Simulated {
        loss: 0.004,
        ..GOOD
    };
    assert!(find(&mut lossy.clone(), &plan(), 0.5).rate.is_some());
    let result = pdr(&mut lossy.clone(), &plan(), 0.0, &mut |_| {}).expect("not broken");
    assert_eq!(result.rate, None);
    let result = pdr(&mut GOOD.clone(), &plan(), 0.0, &mut |_| {}).expect("not broken");
    assert!(result.rate.is_some_and(|rate| rate <= 1e6), "{result:?}");
}

#[test]
fn the_search_starts_lower_if_the_start_is_too_high() {
    let mut slow = Simulated {
        capacity: 900.0,
        ..GOOD
    };
    let result = find(&mut slow, &plan(), 0.5);
    assert!(
        result
            .rate
            .is_some_and(|rate| (800.0..=905.0).contains(&rate))
    );
}

#[test]
fn a_search_near_an_earlier_result_needs_fewer_trials() {
    let whole = find(&mut GOOD.clone(), &plan(), 0.5).rate.expect("a rate");
    let mut device = GOOD;
    let near = SearchPlan {
        near: Some(whole),
        resolution_percent: 5.0,
        ..plan()
    };
    let rate = find(&mut device, &near, 0.5).rate.expect("a rate");
    assert!((9.5e5..1.01e6).contains(&rate), "{rate}");
    assert!(device.trials <= 5, "{} trials", device.trials);
}

#[test]
fn a_search_near_an_earlier_result_finds_what_is_far_from_it_or_nothing() {
    for (near, capacity) in [(2e4, 1e6), (4e6, 1e6), (1e5, 0.0)] {
        let mut device = Simulated { capacity, ..GOOD };
        let plan = SearchPlan {
            near: Some(near),
            ..plan()
        };
        let result = find(&mut device, &plan, 0.5);
        match result.rate {
            Some(rate) => assert!((9.8e5..1.01e6).contains(&rate), "{rate}"),
            None => assert!(capacity == 0.0 && has_note(&result, "none:"), "{result:?}"),
        }
    }
}

#[test]
fn a_highest_rate_of_interest_is_not_exceeded() {
    let limited = SearchPlan {
        max_rate: Some(3e5),
        ..plan()
    };
    for near in [None, Some(2.9e5), Some(4e5)] {
        let limited = SearchPlan { near, ..limited };
        let mut device = GOOD;
        let result = find(&mut device, &limited, 0.5);
        assert_eq!(result.rate, Some(3e5));
        assert!(has_note(&result, "highest rate of interest"));
        assert!(device.rates.iter().all(|rate| *rate <= 3e5));
    }
}

#[test]
fn an_invalid_trial_is_repeated_and_never_a_result() {
    // The first two trials do not count, the third does.
    let mut shaky = Simulated { invalid: 2, ..GOOD };
    assert!(find(&mut shaky, &plan(), 0.5).rate.is_some());
    let mut unstable = Simulated { invalid: 3, ..GOOD };
    let result = find(&mut unstable, &plan(), 0.5);
    assert_eq!(result.rate, None);
    assert!(has_note(&result, "unstable"), "{result:?}");
    assert!(has_note(&result, "other processes"), "{result:?}");
    assert_eq!(unstable.trials, 3);

    let mut unstable = Simulated { invalid: 3, ..GOOD };
    let result = mrr(&mut unstable, &plan(), &mut |_| {}).expect("not broken");
    assert_eq!(result.rate, None);
    assert!(has_note(&result, "unstable"), "{result:?}");
}

/// Sends as fast as it can only if told so: a paced rate above some limit is out of reach.
struct SlowPacer(Simulated);

impl Device for SlowPacer {
    fn trial(&mut self, rate: Rate, length: Duration) -> Result<Trial> {
        let limit = match rate {
            Rate::Max => 5e6,
            Rate::PacketsPerSecond(_) => 4e5,
        };
        self.0.generator = limit;
        self.0.trial(rate, length)
    }
}

#[test]
fn a_generator_too_slow_for_a_rate_yields_only_a_bound_that_was_reached() {
    let mut device = SlowPacer(GOOD);
    let mut passed = Vec::new();
    let result = pdr(&mut device, &plan(), 0.5, &mut |trial| {
        if trial.is_valid() && trial.delivery_ratio() >= 0.995 {
            passed.push(trial.offered());
        }
    })
    .expect("not broken");
    let rate = result.rate.expect("a lower bound");
    assert!(passed.contains(&rate), "{rate} of {passed:?}");
    assert!(rate <= 4.1e5);
    assert!(has_note(&result, "tester-limited"), "{result:?}");
}

/// Passes any rate once; long trials show what it can really do.
struct Flattering(Simulated);

impl Device for Flattering {
    fn trial(&mut self, rate: Rate, length: Duration) -> Result<Trial> {
        self.0.capacity = if length > plan().length { 9.9e5 } else { 1e6 };
        self.0.trial(rate, length)
    }
}

#[test]
fn a_result_is_confirmed_if_wanted() {
    let confirmed = SearchPlan {
        confirmations: 2,
        ..plan()
    };
    let result = pdr(&mut Flattering(GOOD), &confirmed, 0.0, &mut |_| {}).expect("not broken");
    let rate = result.rate.expect("a rate");
    assert!((9.6e5..=9.9e5).contains(&rate), "{rate}");
}

#[test]
fn the_highest_received_rate_is_that_of_the_device() {
    let result = mrr(&mut GOOD.clone(), &plan(), &mut |_| {}).expect("not broken");
    assert_eq!(result.rate, Some(1e6));
}

#[test]
fn a_sweep_has_every_rate_and_says_where_no_trial_counted() {
    let mut device = GOOD;
    let points = sweep(&mut device, &plan(), &[5e5, 2e6, 1e7], &mut |_| {}).expect("not broken");
    assert_eq!(points, [(5e5, Some(1.0)), (2e6, Some(0.5)), (1e7, None)]);
}

/// Repeats of a search in steps of 10 %; the median of those that found something.
fn walk(
    device: &mut dyn Device,
    plan: &SearchPlan,
    repeats: u32,
) -> (Option<f64>, Vec<SearchResult>) {
    let plan = SearchPlan {
        resolution_percent: 10.0,
        ..*plan
    };
    let mut walk = Walk::from(plan.start_rate);
    let results: Vec<_> = (0..repeats)
        .map(|_| up_and_down(device, &plan, 0.5, 4, &mut walk, &mut |_| {}).expect("not broken"))
        .collect();
    let rates: Vec<_> = results.iter().filter_map(|result| result.rate).collect();
    (crate::throughput::record::median(&rates), results)
}

/// Fails every third trial, whatever the rate.
struct Moody {
    device: Simulated,
    trials: u32,
}

impl Device for Moody {
    fn trial(&mut self, rate: Rate, length: Duration) -> Result<Trial> {
        self.trials += 1;
        self.device.loss = if self.trials.is_multiple_of(3) {
            0.02
        } else {
            0.0
        };
        self.device.trial(rate, length)
    }
}

#[test]
fn a_walk_comes_back_from_failures_by_chance_where_a_bisection_does_not() {
    let moody = || Moody {
        device: Simulated {
            capacity: 1e6,
            ..GOOD
        },
        trials: 0,
    };
    let (rate, _) = walk(&mut moody(), &plan(), 10);
    let rate = rate.expect("a rate");
    assert!((7e5..1.1e6).contains(&rate), "{rate}");
    let bisected = pdr(&mut moody(), &plan(), 0.5, &mut |_| {}).expect("not broken");
    assert!(bisected.rate.is_none_or(|rate| rate < 6e5), "{bisected:?}");
}

/// Fails some of its first trials, whatever the rate.
struct Unlucky {
    device: Simulated,
    fails: Range<u32>,
    trials: u32,
}

impl Unlucky {
    fn in_trials(fails: Range<u32>) -> Self {
        Self {
            device: Simulated {
                capacity: 1e6,
                ..GOOD
            },
            fails,
            trials: 0,
        }
    }
}

impl Device for Unlucky {
    fn trial(&mut self, rate: Rate, length: Duration) -> Result<Trial> {
        self.trials += 1;
        let fails = self.fails.contains(&self.trials);
        self.device.loss = if fails { 0.02 } else { 0.0 };
        self.device.trial(rate, length)
    }
}

#[test]
fn a_walk_climbs_again_if_its_climb_ended_far_too_low() {
    let (_, results) = walk(&mut Unlucky::in_trials(4..20), &plan(), 7);
    let rates: Vec<_> = results.iter().filter_map(|result| result.rate).collect();
    assert!(rates[0] < 1e5, "{rates:?}");
    assert!(
        rates.last().is_some_and(|last| (7e5..1.1e6).contains(last)),
        "{rates:?}"
    );
}

#[test]
fn trials_on_the_way_back_from_a_climb_that_ended_too_low_do_not_count() {
    let (_, results) = walk(&mut Unlucky::in_trials(4..6), &plan(), 3);
    for result in results {
        let rate = result.rate.expect("a rate");
        assert!((7e5..1.1e6).contains(&rate), "{rate}");
    }
}

#[test]
fn a_walk_has_no_rate_where_everything_fails() {
    for mut broken in [
        Simulated { loss: 0.01, ..GOOD },
        Simulated {
            capacity: 0.0,
            ..GOOD
        },
    ] {
        let (rate, results) = walk(&mut broken, &plan(), 2);
        assert_eq!(rate, None, "{broken:?}");
        assert!(results.iter().all(|result| has_note(result, "none:")));
        assert!(broken.trials < 20, "{broken:?}");
    }
    let mut unstable = Simulated {
        invalid: 1000,
        ..GOOD
    };
    let (rate, results) = walk(&mut unstable, &plan(), 1);
    assert_eq!(rate, None);
    assert!(has_note(&results[0], "unstable"), "{results:?}");
}

/// Loses the CPU for some trials, in which the generator is far too slow.
struct Robbed {
    device: Simulated,
    trials: u32,
}

impl Device for Robbed {
    fn trial(&mut self, rate: Rate, length: Duration) -> Result<Trial> {
        self.trials += 1;
        self.device.generator = match rate {
            Rate::PacketsPerSecond(rate) if (4..40).contains(&self.trials) => 0.8 * rate,
            _ => 5e6,
        };
        self.device.trial(rate, length)
    }
}

#[test]
fn a_walk_does_not_take_a_disturbed_generator_for_a_limit() {
    let mut robbed = Robbed {
        device: GOOD,
        trials: 0,
    };
    let (rate, results) = walk(&mut robbed, &plan(), 20);
    assert!(has_note(&results[0], "unstable"), "{results:?}");
    assert!(
        results
            .iter()
            .all(|result| result.rate.is_none_or(|rate| rate > 8e5)),
        "{results:?}"
    );
    assert!(rate.is_some());
}

/// Keeps a CPU that sleeps in between from its work, so that no trial at a low rate counts.
struct Sleepy(Simulated);

impl Device for Sleepy {
    fn trial(&mut self, rate: Rate, length: Duration) -> Result<Trial> {
        let mut trial = self.0.trial(rate, length)?;
        if matches!(rate, Rate::PacketsPerSecond(rate) if rate < 5e5) {
            trial.validity = Validity::Invalid("the hypervisor took a CPU".into());
        }
        Ok(trial)
    }
}

#[test]
fn a_walk_gets_past_rates_at_which_no_trial_counts() {
    let (rate, results) = walk(&mut Sleepy(GOOD), &plan(), 3);
    let rate = rate.expect("a rate");
    assert!((0.9..1.1).contains(&(rate / GOOD.capacity)), "{results:?}");
    let slow = Simulated {
        capacity: 1e5,
        ..GOOD
    };
    let (rate, results) = walk(&mut Sleepy(slow), &plan(), 1);
    assert_eq!(rate, None, "what does not count is no result: {results:?}");
}

#[test]
fn a_walk_ends_at_the_testers_limit_or_the_highest_rate_of_interest() {
    let fast = Simulated {
        capacity: 1e7,
        ..GOOD
    };
    let (rate, results) = walk(&mut fast.clone(), &plan(), 1);
    assert_eq!(rate, Some(5e6));
    assert!(has_note(&results[0], "tester-limited"), "{results:?}");
    let limited = SearchPlan {
        max_rate: Some(3e5),
        ..plan()
    };
    let mut device = GOOD;
    let (rate, results) = walk(&mut device, &limited, 1);
    assert_eq!(rate, Some(3e5));
    assert!(has_note(&results[0], "highest rate of interest"));
    assert!(device.rates.iter().all(|rate| *rate <= 3e5));
}

proptest! {
    #[test]
    fn a_walk_stays_around_the_capacity(
        // Far from the floor: a walk that comes from far above may step over what is left between the two.
        capacity in 10_000.0..3e6f64,
        loss in 0.0..0.004f64,
        start_rate in 1e3..4e6f64,
    ) {
        let mut device = Simulated { capacity, loss, ..GOOD };
        let plan = SearchPlan { start_rate, ..plan() };
        let (rate, _) = walk(&mut device, &plan, 6);
        let limit = capacity * (1.0 - loss) / 0.995;
        let share = rate.unwrap() / limit;
        prop_assert!((0.85..1.1).contains(&share), "{share} of {limit}");
        prop_assert!(device.trials <= 80, "{} trials", device.trials);
    }

    #[test]
    fn the_result_brackets_the_capacity(
        capacity in 600.0..4e6f64,
        loss in 0.0..0.004f64,
        jitter in 0.0..0.003f64,
        start_rate in 1e3..1e6f64,
        near in prop::option::of(1e3..4e6f64),
        resolution_percent in 0.5..5.0f64,
        votes in prop::sample::select(vec![1u32, 3]),
    ) {
        let mut device = Simulated { capacity, loss, jitter, ..GOOD };
        let plan = SearchPlan { start_rate, near, resolution_percent, votes, ..plan() };
        let mut passed = Vec::new();
        let result = pdr(&mut device, &plan, 0.5, &mut |trial| {
            if trial.is_valid() && trial.delivery_ratio() >= 0.995 {
                passed.push(trial.offered());
            }
        }).unwrap();
        let (rate, above) = (result.rate.unwrap(), result.above.unwrap());
        prop_assert!(passed.contains(&rate), "{rate} was not measured");
        // Passing means: at most 0.5 % lost, of which the device loses some anyway.
        let limit = capacity * (1.0 - loss) / 0.995;
        prop_assert!(rate <= limit * 1.001 + 1.0, "{rate} above {limit}");
        prop_assert!(above * (1.0 + jitter) >= limit * 0.999 - 1.0, "{above} below {limit}");
        prop_assert!(above - rate <= above * (resolution_percent / 100.0 + 0.01) + 2.0);
        prop_assert!(device.trials <= 60 * votes, "{} trials", device.trials);
    }

    #[test]
    fn a_rate_that_loses_too_much_is_never_a_result(
        capacity in 0.0..4e6f64,
        loss in 0.006..1.0f64,
        generator in 1e3..5e6f64,
    ) {
        let mut device = Simulated { capacity, loss, generator, ..GOOD };
        prop_assert_eq!(find(&mut device, &plan(), 0.5).rate, None);
    }
}
