//! Running a trial.

use std::{collections::BTreeMap, ops::Sub, thread, time::Duration};

use anyhow::{Result, ensure};

use super::{
    Generator, Sent, Sink,
    processor::{self, Usage},
};
use crate::throughput::trial::{Rate, Trial, Validity};

/// What a device under test counts, ever rising.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// Packets, by what became of them.
    pub counters: BTreeMap<String, u64>,
    /// CPU seconds by what used them, such as a process or `softirq`.
    pub cpu: BTreeMap<String, f64>,
}

/// When a trial does not count.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Deviation of the rate sent from the rate asked for, as a share of it.
    pub rate: f64,
    /// Share of the sent packets that may arrive on top of them.
    pub surplus: f64,
    /// CPUs taken away by the hypervisor.
    pub steal: f64,
    /// CPUs used by other processes. Kernel threads do not count.
    pub other: f64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            rate: 0.02,
            surplus: 0.001,
            steal: 0.1,
            other: 0.3,
        }
    }
}

/// Packets that may arrive on top of those sent in any trial: stragglers.
const STRAGGLERS: u64 = 10;
/// With no packet for so long, what is on its way has arrived.
const QUIET: Duration = Duration::from_millis(30);
/// The longest time packets are on their way.
const SETTLE: Duration = Duration::from_secs(1);

/// Offers load at `rate` for `length` and counts what arrives.
///
/// It drains what is on its way, warms up for a fifth of the time (at most a second) without counting,
/// then measures, and waits for what is still on its way. `device` reads what the device under test
/// counts, before and after.
///
/// # Errors
///
/// Something broke. A trial that merely does not count says so in [`Trial::validity`].
pub fn trial(
    limits: &Limits,
    generator: &mut dyn Generator,
    sink: &mut Sink,
    rate: Rate,
    length: Duration,
    device: &mut dyn FnMut() -> Result<Snapshot>,
) -> Result<Trial> {
    ensure!(!length.is_zero(), "a trial needs time");
    generator.start(rate)?;
    thread::sleep((length / 5).min(Duration::from_secs(1)));
    generator.stop()?;
    sink.settle(u64::MAX, QUIET, SETTLE)?;

    sink.begin()?;
    let (before, usage) = (device()?, Usage::now()?);
    generator.start(rate)?;
    thread::sleep(length);
    let sent = generator.stop()?;
    sink.settle(sent.packets, QUIET, SETTLE)?;
    let (usage, after) = (Usage::now()?.since(&usage), device()?);
    let arrived = sink.arrived()?;

    let target = match rate {
        Rate::Max => None,
        Rate::PacketsPerSecond(rate) => Some(rate),
    };
    let mut cpu = changes(&after.cpu, &before.cpu);
    cpu.insert("steal".into(), usage.steal);
    cpu.insert("other".into(), usage.other);
    Ok(Trial {
        target,
        seconds: sent.time.as_secs_f64(),
        sent: sent.packets,
        received: arrived.packets,
        duplicates: arrived.duplicates,
        reordered: arrived.reordered,
        counters: changes(&after.counters, &before.counters),
        cpu,
        latency: sink.latency()?,
        validity: judge(limits, target, &sent, arrived.packets, &usage),
    })
}

fn judge(
    limits: &Limits,
    target: Option<f64>,
    sent: &Sent,
    received: u64,
    usage: &Usage,
) -> Validity {
    let offered = sent.packets as f64 / sent.time.as_secs_f64().max(1e-9);
    // Over a short time the last packet matters.
    let one = 1.0 / sent.packets.max(1) as f64;
    if sent.packets == 0 {
        return Validity::Invalid("the generator sent nothing".into());
    }
    if let Some(target) = target
        && (offered / target - 1.0).abs() > limits.rate + one
    {
        let how = if offered < target { "slow" } else { "fast" };
        return Validity::Invalid(format!(
            "the generator was too {how}: {offered:.0} instead of {target:.0} packets per second"
        ));
    }
    let most = sent.packets + (sent.packets as f64 * limits.surplus) as u64 + STRAGGLERS;
    if received > most {
        return Validity::Invalid(format!(
            "more arrived than was sent: {received} of {}",
            sent.packets
        ));
    }
    disturbance(limits, usage).map_or(Validity::Valid, Validity::Invalid)
}

/// Who took too much of the machine, if anybody did.
pub(in crate::throughput) fn disturbance(limits: &Limits, usage: &Usage) -> Option<String> {
    [
        ("the hypervisor", usage.steal, limits.steal),
        ("other processes", usage.other, limits.other),
    ]
    .into_iter()
    // What the kernel counts may be one tick more than there was, which is much of a short time.
    .find(|(_, seconds, limit)| *seconds > limit * usage.seconds + processor::tick())
    .map(|(who, seconds, limit)| {
        format!(
            "{who} took {:.0} % of a CPU, more than {:.0} %",
            seconds / usage.seconds.max(1e-9) * 100.0,
            limit * 100.0
        )
    })
}

/// What changed, by name. A counter that was not there before started from zero.
fn changes<T: Copy + Default + PartialOrd + Sub<Output = T>>(
    after: &BTreeMap<String, T>,
    before: &BTreeMap<String, T>,
) -> BTreeMap<String, T> {
    let change = |(name, &after): (&String, &T)| {
        let before = before.get(name).copied().unwrap_or_default();
        // A counter that started anew counts from zero.
        let change = if after < before {
            after
        } else {
            after - before
        };
        (name.clone(), change)
    };
    after.iter().map(change).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Usage = Usage {
        seconds: 1.0,
        steal: 0.0,
        other: 0.0,
    };

    fn judged(target: f64, packets: u64, received: u64, usage: &Usage) -> Validity {
        let sent = Sent {
            packets,
            time: Duration::from_secs(1),
        };
        judge(&Limits::default(), Some(target), &sent, received, usage)
    }

    fn reason(validity: Validity) -> String {
        match validity {
            Validity::Valid => "valid".into(),
            Validity::Invalid(reason) => reason,
        }
    }

    #[test]
    fn a_trial_counts_whatever_is_lost() {
        assert_eq!(judged(1e5, 100_500, 0, &IDLE), Validity::Valid);
    }

    #[test]
    fn a_trial_does_not_count_if_its_rate_was_missed_by_more_than_two_percent() {
        assert!(reason(judged(1e5, 97_000, 97_000, &IDLE)).contains("too slow"));
        assert!(reason(judged(1e5, 103_000, 103_000, &IDLE)).contains("too fast"));
        assert!(reason(judged(1e5, 0, 0, &IDLE)).contains("sent nothing"));
    }

    #[test]
    fn a_trial_does_not_count_if_more_arrived_than_was_sent() {
        assert_eq!(judged(1e5, 100_000, 100_050, &IDLE), Validity::Valid);
        assert!(reason(judged(1e5, 100_000, 101_000, &IDLE)).contains("more arrived"));
    }

    #[test]
    fn a_trial_does_not_count_on_a_busy_machine() {
        let (stolen, shared) = (Usage { steal: 0.2, ..IDLE }, Usage { other: 0.4, ..IDLE });
        assert!(reason(judged(1e5, 100_000, 100_000, &stolen)).contains("hypervisor"));
        assert!(reason(judged(1e5, 100_000, 100_000, &shared)).contains("other processes"));
    }

    #[test]
    fn one_tick_more_does_not_decide_over_a_short_time() {
        let limits = Limits::default();
        let taken = |seconds, ticks: f64| {
            let steal = ticks * processor::tick();
            disturbance(
                &limits,
                &Usage {
                    seconds,
                    steal,
                    ..IDLE
                },
            )
        };
        let ticks_allowed = limits.steal / processor::tick();
        assert_eq!(taken(1.0, ticks_allowed), None);
        assert_eq!(taken(0.1, ticks_allowed / 10.0 + 0.9), None);
        assert!(taken(0.1, ticks_allowed / 10.0 + 1.1).is_some());
        assert!(taken(1.0, ticks_allowed + 1.1).is_some());
    }

    #[test]
    fn a_counter_that_started_anew_counts_from_zero() {
        let counters = |pairs: &[(&str, u64)]| {
            pairs
                .iter()
                .map(|(name, value)| ((*name).to_owned(), *value))
                .collect::<BTreeMap<_, _>>()
        };
        let (before, after) = (
            counters(&[("a", 5), ("b", 100)]),
            counters(&[("a", 7), ("b", 3), ("c", 1)]),
        );
        assert_eq!(
            changes(&after, &before),
            counters(&[("a", 2), ("b", 3), ("c", 1)])
        );
    }
}
