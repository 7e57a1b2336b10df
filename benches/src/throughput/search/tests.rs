use proptest::prelude::*;

use super::*;

/// A device and a tester with known limits.
#[derive(Clone, Debug)]
struct Simulated {
    /// Packets per second that get through.
    capacity: f64,
    /// Share that is lost at any rate.
    loss: f64,
    /// Packets per second that the generator can send.
    generator: f64,
    /// No trial with a number below this counts.
    invalid: u32,
    trials: u32,
    rates: Vec<f64>,
}

const GOOD: Simulated = Simulated {
    capacity: 1e6,
    loss: 0.0,
    generator: 5e6,
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
        let offered = target.unwrap_or(f64::INFINITY).min(self.generator);
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
    assert!(
        result
            .rate
            .is_some_and(|rate| (4.9e6..=5e6).contains(&rate))
    );
    assert!(has_note(&result, "tester-limited"), "{result:?}");
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
    assert_eq!(find(&mut lossy.clone(), &plan(), 0.0).rate, None);
    let found = find(&mut GOOD.clone(), &plan(), 0.0).rate;
    assert!(found.is_some_and(|rate| rate <= 1e6), "{found:?}");
}

#[test]
fn the_search_goes_down_if_the_start_is_too_high() {
    let mut slow = Simulated {
        capacity: 900.0,
        ..GOOD
    };
    let rate = find(&mut slow, &plan(), 0.5).rate;
    assert!(rate.is_some_and(|rate| (800.0..=905.0).contains(&rate)));
}

#[test]
fn a_search_near_an_earlier_result_needs_few_trials_and_finds_what_is_far_from_it_too() {
    for (start_rate, capacity, trials) in [(1e6, 1e6, 6), (2e4, 1e6, 50), (4e6, 1e6, 50)] {
        let mut device = Simulated { capacity, ..GOOD };
        let plan = SearchPlan {
            start_rate,
            step: 1.2,
            resolution_percent: 5.0,
            ..plan()
        };
        let rate = find(&mut device, &plan, 0.5).rate.expect("a rate");
        assert!((9.4e5..1.01e6).contains(&rate), "{rate}");
        assert!(device.trials <= trials, "{} trials", device.trials);
    }
}

#[test]
fn a_highest_rate_of_interest_is_not_exceeded() {
    let limited = SearchPlan {
        max_rate: Some(3e5),
        ..plan()
    };
    let mut device = GOOD;
    let result = find(&mut device, &limited, 0.5);
    assert_eq!(result.rate, Some(3e5));
    assert!(has_note(&result, "highest rate of interest"));
    assert!(device.rates.iter().all(|rate| *rate <= 3e5));
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
}

/// Fails every third trial, whatever the rate.
struct Moody(Simulated);

impl Device for Moody {
    fn trial(&mut self, rate: Rate, length: Duration) -> Result<Trial> {
        let fails = self.0.trials % 3 == 2;
        self.0.loss = if fails { 0.02 } else { 0.0 };
        self.0.trial(rate, length)
    }
}

#[test]
fn votes_outweigh_failures_by_chance() {
    let plan = SearchPlan { votes: 3, ..plan() };
    let result = pdr(&mut Moody(GOOD), &plan, 0.5, &mut |_| {}).expect("not broken");
    let rate = result.rate.expect("a rate");
    assert!((9.8e5..1.01e6).contains(&rate), "{rate}");
}

proptest! {
    #[test]
    fn the_rate_found_passed_and_is_near_the_capacity(
        capacity in 2_000.0..4e6f64,
        loss in 0.0..0.004f64,
        start_rate in 1e3..4e6f64,
    ) {
        let mut device = Simulated { capacity, loss, ..GOOD };
        let plan = SearchPlan { start_rate, ..plan() };
        let rate = find(&mut device, &plan, 0.5).rate.expect("a rate");
        let limit = capacity * (1.0 - loss) / 0.995;
        prop_assert!(rate <= limit * 1.001 && rate >= limit * 0.98, "{} for {}", rate, limit);
    }
}
