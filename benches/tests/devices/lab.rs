//! The subjects of the lab carry packets, on real devices: namespaces and veths of their own, root only.

use std::time::Duration;

use crate::support::root_or_skip;
use anyhow::{Context as _, Result};
use aya::sys::{Stats, enable_stats};
use benches::throughput::{
    binary,
    experiment::{Behavior, Case, Family, Layout, Mix, Size},
    lab,
    subject::{Refusal, Subject},
    trial::{Rate, Trial, Validity},
};

/// Whether this test can run; says so if not.
fn can_run() -> bool {
    let cpus = std::thread::available_parallelism().map_or(1, |cpus| cpus.get());
    if cpus < 2 {
        eprintln!("left out: needs two CPUs");
    }
    root_or_skip() && cpus >= 2
}

fn case() -> Case {
    Case {
        flows: 4,
        ..Case::of(100)
    }
}

/// A counter of each subject's own that grows with the packets, and whether there is one for each packet.
fn own_counter(subject: Subject) -> (&'static str, bool) {
    match subject {
        Subject::XdpDrop
        | Subject::XdpRedirect
        | Subject::XdpRedirectSplit
        | Subject::TcRedirect => ("program seen", true),
        Subject::AfXdpDrop => ("af_xdp received", true),
        Subject::AfXdpForward => ("af_xdp sent", true),
        Subject::Encapsulate => ("gateway packets_sent", true),
        Subject::Decapsulate | Subject::DecapsulateHelper => ("gateway packets_received", true),
        _ => ("", false),
    }
}

/// What holds for every trial, however busy the machine is.
fn examine(subject: Subject, case: &Case) -> Result<Trial> {
    let mut device = lab::open(subject, case).with_context(|| format!("{subject}: set-up"))?;
    // Low even for a busy machine.
    let rate = Rate::PacketsPerSecond(20_000.0);
    let trial = device
        .trial(rate, Duration::from_millis(300))
        .with_context(|| format!("{subject}: trial"))?;
    assert!(trial.sent > 0, "{subject}: nothing was sent");
    assert!(trial.received > 0, "{subject}: nothing arrived: {trial:?}");
    assert_eq!(trial.duplicates, 0, "{subject}: {trial:?}");
    let (counter, each) = own_counter(subject);
    if each {
        let count = trial.counters.get(counter).copied().unwrap_or_default();
        assert!(
            count >= trial.received,
            "{subject}: {counter} is {count}: {trial:?}"
        );
    }
    // The machine may be too busy for the generator; a device that did something else is another matter.
    if let Validity::Invalid(reason) = &trial.validity {
        assert!(!reason.contains("helper"), "{subject}: {reason}");
    }
    Ok(trial)
}

#[test]
fn every_subject_carries_packets_in_both_layouts() -> Result<()> {
    use Subject::*;
    if !can_run() {
        return Ok(());
    }
    let _alone = testbed::exclusive()?;
    binary::use_unoptimised()?;
    for layout in [Layout::Split, Layout::SingleCore] {
        for subject in [
            XdpDrop,
            XdpRedirect,
            AfXdpDrop,
            AfXdpForward,
            TcRedirect,
            KernelForward,
            KernelVxlan,
            Encapsulate,
            Decapsulate,
            DecapsulateHelper,
        ] {
            examine(subject, &Case { layout, ..case() })?;
        }
    }
    Ok(())
}

#[test]
fn the_fast_path_carries_packets_and_tells_its_run_time() -> Result<()> {
    if !can_run() {
        return Ok(());
    }
    let _alone = testbed::exclusive()?;
    binary::use_unoptimised()?;
    let _statistics = enable_stats(Stats::RunTime)?;
    for (subject, counter) in [
        (Subject::XdpRedirectSplit, "program seen"),
        (Subject::EncapsulateFast, "gateway fast_path packets_sent"),
        (
            Subject::DecapsulateFast,
            "gateway fast_path packets_delivered",
        ),
    ] {
        for size in [100, 1300] {
            let trial = examine(subject, &Case::of(size))?;
            assert!(trial.counters[counter] > 0, "{trial:?}");
            assert!(trial.counters["program"] >= trial.received, "{trial:?}");
            assert!(trial.cpu["program"] > 0.0, "{trial:?}");
        }
    }
    Ok(())
}

#[test]
fn routers_forward_what_they_should() -> Result<()> {
    if !can_run() {
        return Ok(());
    }
    let _alone = testbed::exclusive()?;
    // With statistics, so that programs tell their run time.
    let _statistics = enable_stats(Stats::RunTime)?;
    for (family, size, workers) in [
        (Family::Ipv4, 124, 1),
        (Family::Ipv6, 1300, 1),
        (Family::Ipv4, 1300, 2),
    ] {
        let case = Case {
            size: Size::Fixed(size),
            family,
            workers,
            ..case()
        };
        for subject in [
            Subject::Router,
            Subject::RouterUnverified,
            Subject::RouterReference,
        ] {
            if workers > 1 && !subject.has_workers() {
                continue;
            }
            if subject == Subject::RouterReference && std::env::var_os("REF_BIN").is_none() {
                eprintln!("{subject} left out: REF_BIN is not set");
                continue;
            }
            // The sink takes only packets whose path is as it should be behind the router.
            let trial = examine(subject, &case)?;
            if subject.is_program() {
                assert!(trial.counters["program"] >= trial.received, "{trial:?}");
                assert!(trial.cpu["program"] > 0.0, "{trial:?}");
            }
        }
    }
    Ok(())
}

#[test]
fn sr_nodes_do_what_they_should() -> Result<()> {
    if !can_run() {
        return Ok(());
    }
    let _alone = testbed::exclusive()?;
    let _statistics = enable_stats(Stats::RunTime)?;
    let behaviors = [
        "H.Encaps",
        "H.Encaps.L2",
        "H.Insert",
        "End",
        "End.X",
        "End.T",
        "End.DX2",
        "End.DX4",
        "End.DX6",
        "End.DT4",
        "End.DT6",
        "End.DT46",
        "End.AS",
        "End.AD4",
        "End.AD6",
        "End.AD6 per flow",
        "End.AM",
    ];
    for name in behaviors {
        let behavior = Behavior::try_from(name.to_owned()).map_err(anyhow::Error::msg)?;
        let either = [Family::Ipv4, Family::Ipv6];
        for family in behavior.family().map_or(either.to_vec(), |one| vec![one]) {
            let case = Case {
                family,
                behavior: Some(behavior),
                ..case()
            };
            // The sink takes packets only behind as many headers as there should be, and only the node has a way there.
            let trial = examine(Subject::Srv6, &case).context(name)?;
            let of = |counter: &str| trial.counters[counter];
            assert!(of("srv6 packets") >= trial.received, "{name}: {trial:?}");
            assert!(trial.cpu["program"] > 0.0, "{name}: {trial:?}");
            // None but a few of the kernel's own.
            assert!(of("srv6 to_kernel") <= 10, "{name}: {trial:?}");
            let returned = of("srv6 returned");
            assert_eq!(
                behavior.is_proxy(),
                returned >= trial.received,
                "{name}: {trial:?}"
            );
            match lab::open(Subject::Srv6Kernel, &case) {
                Err(Refusal::NotHere(reason)) => eprintln!("{name} of the kernel: {reason}"),
                _ => drop(examine(Subject::Srv6Kernel, &case).context(name)?),
            }
        }
    }
    Ok(())
}

#[test]
fn mixes_of_lengths_ipv6_and_several_packets_per_frame_are_carried() -> Result<()> {
    use Subject::*;
    if !can_run() {
        return Ok(());
    }
    let _alone = testbed::exclusive()?;
    binary::use_unoptimised()?;
    let mix = Case {
        size: Size::Mix(Mix::Imix),
        ..case()
    };
    let ipv6 = Case {
        family: Family::Ipv6,
        packed: true,
        ..case()
    };
    for subject in [
        AfXdpForward,
        KernelVxlan,
        Encapsulate,
        Decapsulate,
        DecapsulateHelper,
    ] {
        let trial = examine(subject, &mix)?;
        // Each twelfth packet has 1500 bytes: without these, no more than eleven of twelve arrive.
        assert!(
            trial.received * 24 > trial.sent * 23,
            "{subject}: {trial:?}"
        );
        examine(subject, &ipv6)?;
    }
    Ok(())
}

#[test]
fn what_makes_no_sense_is_refused_with_a_reason() {
    if !can_run() {
        return;
    }
    for (subject, case) in [(Subject::Router, case()), (Subject::ChainSig, case())] {
        match lab::open(subject, &case) {
            Err(Refusal::NotHere(reason)) => assert!(!reason.is_empty()),
            Err(Refusal::Failed(error)) => panic!("{subject}: {error:#}"),
            Ok(_) => panic!("{subject} is set up"),
        }
    }
}
