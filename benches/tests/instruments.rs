//! Instruments on real devices: namespaces and veths of their own, root only. No figure is looked at
//! that depends on how busy the machine is.

use std::{net::Ipv4Addr, time::Duration};

use anyhow::Result;
use benches::throughput::{
    experiment::Size,
    instrument::{
        LiveFrames, Sink,
        packet::{Expect, IpLoad, Load},
        programs,
        run::{Limits, Snapshot, trial_within},
    },
    trial::Rate,
};
use testbed::Netns;

/// Whether this test can run; says so if not.
fn root_or_skip() -> bool {
    // SAFETY: no arguments, cannot fail.
    let root = unsafe { libc::geteuid() } == 0;
    if !root {
        eprintln!("left out: needs root for network namespaces");
    }
    root
}

/// Generator, device under test and sink: g0 – d0 | d1 – s0.
struct Wires {
    generator: Netns,
    device: Netns,
    sink: Netns,
}

impl Wires {
    fn new() -> Result<Self> {
        let wires = Wires {
            generator: Netns::new("gen")?,
            device: Netns::new("dut")?,
            sink: Netns::new("sink")?,
        };
        wires.device.ip(&format!(
            "link add d0 type veth peer name g0 netns {}\n\
             link add d1 type veth peer name s0 netns {}\n\
             link set d0 up\nlink set d1 up",
            wires.generator.name(),
            wires.sink.name()
        ))?;
        wires.generator.ip("link set g0 up")?;
        wires.sink.ip("link set s0 up")?;
        Ok(wires)
    }
}

fn load() -> IpLoad {
    IpLoad {
        source_mac: [2, 0, 0, 0, 0, 1],
        destination_mac: [2, 0, 0, 0, 0, 2],
        source: Ipv4Addr::new(10, 1, 0, 1).into(),
        destination: Ipv4Addr::new(10, 2, 0, 1).into(),
        size: Size::Fixed(100),
        flows: 4,
        alternate_class: true,
    }
}

/// A machine that others use too.
const SHARED: Limits = Limits {
    rate: 0.02,
    surplus: 0.001,
    steal: f64::INFINITY,
    other: f64::INFINITY,
};

#[test]
fn every_forwarder_is_accepted_by_the_verifier_and_attaches() -> Result<()> {
    if !root_or_skip() {
        return Ok(());
    }
    let netns = Netns::new("forward")?;
    netns.ip("link add v0 type veth peer name v1\nlink set v0 up\nlink set v1 up")?;
    assert!(
        programs::drop(&netns, "v2").is_err(),
        "there is no device v2"
    );
    for attached in [
        programs::drop(&netns, "v0")?,
        programs::redirect(&netns, "v1", "v0", Some(100))?,
        programs::tc_redirect(&netns, "v0", "v1")?,
    ] {
        attached.seen()?;
    }
    programs::to_socket(&netns, "v0")?.seen()?;
    Ok(())
}

#[test]
fn live_frames_arrive_at_the_sink_in_order() -> Result<()> {
    if !root_or_skip() {
        return Ok(());
    }
    let wires = Wires::new()?;
    let mut sink = Sink::attach(&wires.sink, "s0", &Expect::Ip { at: 14 }, None)?;
    let forwarder = programs::redirect(&wires.device, "d0", "d1", None)?;
    let mut generator = LiveFrames::new(&wires.generator, "g0", &Load::Ip(load()), Some(0))?;
    let trial = trial_within(
        &SHARED,
        &mut generator,
        &mut sink,
        Rate::PacketsPerSecond(20_000.0),
        Duration::from_millis(500),
        &mut || {
            let counters = [("seen".to_owned(), forwarder.seen()?)].into();
            Ok(Snapshot {
                counters,
                ..Snapshot::default()
            })
        },
    )?;
    assert_eq!(trial.received, trial.sent, "{trial:?}");
    // The kernel sends something of its own, such as multicast listener reports.
    assert!(trial.counters["seen"] >= trial.sent, "{trial:?}");
    assert_eq!((trial.duplicates, trial.reordered), (0, 0), "{trial:?}");
    let latency = trial.latency.as_ref().expect("packets have times");
    assert_eq!(latency.samples, trial.received);
    assert!(latency.min > 0.0 && latency.min <= latency.p50 && latency.p50 <= latency.max);
    assert!(
        latency.max < 60e6,
        "no packet was on its way for a minute: {latency:?}"
    );
    Ok(())
}
