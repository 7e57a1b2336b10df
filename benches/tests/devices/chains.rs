//! The chains of two sites carry packets, and the scenarios measure them. Without root the tests are left out.

use std::{fs::File, time::Duration};

use crate::support::root_or_skip;
use benches::throughput::{
    binary,
    chain::{self, Chain, Chains, Clients},
    experiment::{Case, Experiment, Family, Size, read::read},
    record::Metric,
    scenario::{self, Outcome},
    subject::{Refusal, Subject},
    trial::Rate,
};
use testbed::TimeLimit;

/// How long one test may take.
const LIMIT: Duration = Duration::from_secs(180);

/// A chain alone on the machine.
struct Bed {
    // Dropped in this order.
    chain: Box<dyn Chain>,
    _lock: File,
    _limit: TimeLimit,
}

fn bed(subject: Subject) -> Bed {
    // Not within the limit: it may have to be built.
    binary::use_unoptimised().unwrap_or_else(|e| panic!("{e:#}"));
    let _lock = testbed::exclusive().expect("a lock file in the folder for temporary files");
    let _limit = testbed::time_limit(&format!("the test of {subject}"), LIMIT);
    testbed::sweep();
    Bed {
        chain: chain::build(subject, &Case::of(100), Clients::Programs)
            .unwrap_or_else(|e| panic!("{e:#}")),
        _lock,
        _limit,
    }
}

/// A scenario with few pings, or of a second at a low rate.
fn scenario(algorithm: &str) -> Experiment {
    let packets = if algorithm == "flood-ping" { 1000 } else { 10 };
    let text = format!(
        "[[experiment]]\nname = \"one\"\nsubjects = [\"chain-ip\"]\nalgorithm = \"{algorithm}\"\n\
         packets = {packets}\nrate = 500\nseconds = 1.0\n"
    );
    read("scenario", &text).expect("accepted").remove(0)
}

fn measure(bed: &mut Bed, algorithm: &str, case: &Case) -> Outcome {
    scenario::measure(&scenario(algorithm), &mut *bed.chain, case)
        .unwrap_or_else(|e| panic!("{algorithm}: {e:#}"))
}

fn value(outcome: &Outcome, metric: Metric) -> f64 {
    let found = outcome.values.iter().find(|(of, _)| *of == metric);
    let (_, value) = found.unwrap_or_else(|| panic!("{metric:?} is missing in {outcome:?}"));
    assert!(value.is_finite() && *value >= 0.0, "{metric:?}: {value}");
    *value
}

fn why_not(result: Result<Outcome, Refusal>) -> String {
    match result {
        Err(Refusal::NotHere(reason)) => reason,
        other => panic!("not refused: {other:?}"),
    }
}

/// What all chains of IP hosts have in common.
fn all_but_restart(bed: &mut Bed) {
    for family in [Family::Ipv4, Family::Ipv6] {
        let case = Case {
            family,
            ..Case::of(100)
        };
        let idle = measure(bed, "rtt-idle", &case);
        assert!(value(&idle, Metric::RttIdle) > 0.0);
        let flood = measure(bed, "flood-ping", &case);
        assert!(value(&flood, Metric::FloodRttAvg) > 0.0);
        assert!(value(&flood, Metric::FloodLoss) < 100.0);
    }
    let large = Case::of(1300);
    let tcp = measure(bed, "tcp", &large);
    assert!(value(&tcp, Metric::TcpForward) > 0.0 && value(&tcp, Metric::TcpReverse) > 0.0);
    let udp = measure(bed, "udp", &large);
    assert!(value(&udp, Metric::UdpForward) > 0.0 && value(&udp, Metric::UdpReverse) > 0.0);
    assert!(value(&udp, Metric::UdpLoss) < 100.0);
    let cpu = measure(bed, "cpu", &Case::of(100));
    // A gateway that carries packets uses the processor; without gateways there is no process to charge.
    assert!(value(&cpu, Metric::CpuAll) > value(&cpu, Metric::CpuProcess));
    assert_eq!(
        value(&cpu, Metric::CpuProcess) > 0.0,
        !bed.chain.gateways().is_empty()
    );
}

#[test]
fn sig_carries_everything_and_comes_back_after_a_restart() {
    if !root_or_skip() {
        return;
    }
    let mut bed = bed(Subject::ChainSig);
    all_but_restart(&mut bed);
    let before = bed.chain.gateways();
    let restart = measure(&mut bed, "restart", &Case::of(100));
    // At 500 packets a second even an outage of no packet at all takes a millisecond or two.
    assert!(value(&restart, Metric::Outage) > 0.001);
    let after = bed.chain.gateways();
    assert_eq!(after.len(), 2);
    assert_eq!(before[0], after[0], "the gateway of A goes on");
    assert_ne!(before[1], after[1], "that of B is another one");
    let idle = measure(&mut bed, "rtt-idle", &Case::of(1300));
    assert!(value(&idle, Metric::RttIdle) > 0.0);
}

#[test]
fn sig_carries_everything_without_its_fast_path() {
    if !root_or_skip() {
        return;
    }
    all_but_restart(&mut bed(Subject::ChainSigEngine));
}

#[test]
fn sig_carries_everything_by_sockets() {
    if !root_or_skip() {
        return;
    }
    all_but_restart(&mut bed(Subject::ChainSigSocket));
}

#[test]
fn the_kernel_forwards_on_the_same_links() {
    if !root_or_skip() {
        return;
    }
    let mut bed = bed(Subject::ChainIp);
    all_but_restart(&mut bed);
    let restart = scenario("restart");
    let restart = scenario::measure(&restart, &mut *bed.chain, &Case::of(100));
    assert!(why_not(restart).contains("no gateway"));
}

#[test]
fn generator_and_sink_measure_chains_that_stand() {
    if !root_or_skip() {
        return;
    }
    // Not within the limit: it may have to be built.
    binary::use_unoptimised().unwrap_or_else(|e| panic!("{e:#}"));
    let _lock = testbed::exclusive().expect("a lock file in the folder for temporary files");
    let _limit = testbed::time_limit("the test of chains as devices", LIMIT);
    testbed::sweep();
    let mut chains = Chains::default();
    for subject in [Subject::ChainIp, Subject::ChainSig, Subject::ChainSigEngine] {
        for family in [Family::Ipv4, Family::Ipv6] {
            let case = Case {
                family,
                ..Case::of(1300)
            };
            let mut device = chains
                .open(subject, &case)
                .unwrap_or_else(|e| panic!("{subject}: {e:#}"));
            let rate = Rate::PacketsPerSecond(1000.0);
            let trial = device.trial(rate, Duration::from_millis(500)).unwrap();
            assert!(trial.sent > 0 && trial.received > 0, "{subject}: {trial:?}");
            assert!(trial.received <= trial.sent, "{subject}: {trial:?}");
            assert_eq!(trial.duplicates, 0, "{subject}: {trial:?}");
        }
        // What was on the clients' devices has gone: the same chain carries ordinary traffic.
        let outcome = chains.play(subject, &Case::of(100), &scenario("rtt-idle"));
        assert!(value(&outcome.unwrap(), Metric::RttIdle) > 0.0);
    }
    let names = testbed::left_by(std::process::id()).unwrap();
    // Of sig, with and without fast path, one under the generator, whose gateways share a CPU, and one under programs.
    assert_eq!(names.len(), 5 * 6, "one chain of each kind: {names:?}");
    chains.keep(|_| false);
    assert_eq!(
        testbed::left_by(std::process::id()).unwrap(),
        Vec::<String>::new()
    );
}

#[test]
fn the_reference_is_measured_if_it_is_there() {
    if !root_or_skip() {
        return;
    }
    if std::env::var_os("REF_BIN").is_none() {
        for subject in [
            Subject::ChainReference,
            Subject::ChainReferenceTuned,
            Subject::ChainReferenceOverSigRouters,
            Subject::ChainAcceleratedOne,
            Subject::ChainAccelerated,
            Subject::ChainMixed,
            Subject::ChainScion,
        ] {
            match chain::build(subject, &Case::of(100), Clients::Programs) {
                Err(Refusal::NotHere(reason)) => assert!(reason.contains("REF_BIN"), "{reason}"),
                Err(error) => panic!("{error:#}"),
                Ok(_) => panic!("{subject} is there without programs"),
            }
        }
        return;
    }
    let mut bed = bed(Subject::ChainReference);
    all_but_restart(&mut bed);
    let restart = measure(&mut bed, "restart", &Case::of(100));
    assert!(value(&restart, Metric::Outage) > 0.001);
    drop(bed);
    for subject in [Subject::ChainReferenceOverSigRouters, Subject::ChainMixed] {
        all_but_restart(&mut self::bed(subject));
    }
    let mut bed = self::bed(Subject::ChainScion);
    let idle = measure(&mut bed, "rtt-idle", &Case::of(100));
    assert!(value(&idle, Metric::RttIdle) > 0.0);
    let udp = scenario::measure(&scenario("udp"), &mut *bed.chain, &Case::of(100));
    assert!(why_not(udp).contains("do not speak IP"));
}

#[test]
fn what_makes_no_sense_is_refused() {
    if !root_or_skip() {
        return;
    }
    let mut bed = bed(Subject::ChainIp);
    let mut refused = |algorithm, case: &Case| {
        why_not(scenario::measure(
            &scenario(algorithm),
            &mut *bed.chain,
            case,
        ))
    };
    assert!(refused("tcp", &Case::of(100)).contains("128 bytes"));
    let mix = Case {
        size: Size::Mix(benches::throughput::experiment::Mix::Imix),
        ..Case::of(100)
    };
    assert!(refused("udp", &mix).contains("mix"));
}
