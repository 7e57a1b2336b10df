//! Instruments on real devices: namespaces and veths of their own, root only. No figure is looked at
//! that depends on how busy the machine is.

use std::time::Duration;

use crate::support::{SHARED, Wires, load, root_or_skip};
use anyhow::Result;
use benches::throughput::{
    experiment::{Mix, Size},
    instrument::{
        Generator, LiveFrames, Paced, Sink,
        packet::{Expect, IpLoad, Load, Outer, ScionLoad},
        programs,
        run::{Snapshot, trial},
    },
    trial::{Rate, Trial},
};
use sig_common::{addr::HostAddr, wire::scion::address::AddressHeader};
use sig_core::scion::{Endpoints, NextHop};
use testbed::Netns;

fn outer() -> Outer {
    Outer {
        endpoints: Endpoints {
            local_isd_as: "1-ff00:0:110".parse().expect("an ISD-AS"),
            local: "192.0.2.1:30056".parse().expect("an address"),
            remote_isd_as: "1-ff00:0:111".parse().expect("an ISD-AS"),
            remote: "192.0.2.2:30056".parse().expect("an address"),
        },
        next_hop: NextHop {
            address: "192.0.2.2:30056".parse().expect("an address"),
            source_mac: [2, 0, 0, 0, 0, 1],
            destination_mac: [2, 0, 0, 0, 0, 2],
        },
        path_type: 0,
        path: Vec::new(),
        session: 1,
        stream: 8,
    }
}

/// One load of every kind.
fn loads() -> Vec<Load> {
    let with_size = |size| IpLoad { size, ..load() };
    let sig_frames = |size, per_frame| Load::SigFrames {
        inner: with_size(size),
        outer: outer(),
        per_frame,
    };
    vec![
        Load::Ip(load()),
        Load::Ip(with_size(Size::Mix(Mix::Imix))),
        Load::Ip(IpLoad {
            source: "fd00:1::1".parse().expect("an address"),
            destination: "fd00:2::1".parse().expect("an address"),
            ..load()
        }),
        sig_frames(Size::Fixed(1300), 1),
        sig_frames(Size::Fixed(100), 40),
        Load::Behind {
            inner: load(),
            headers: vec![0x60; 80],
        },
        Load::Scion(ScionLoad {
            underlay: with_size(Size::Fixed(200)),
            ports: [50_000; 2],
            addresses: AddressHeader {
                destination_isd_as: "1-ff00:0:111".parse().expect("an ISD-AS"),
                source_isd_as: "1-ff00:0:110".parse().expect("an ISD-AS"),
                destination: HostAddr::V4([10, 0, 0, 1]),
                source: HostAddr::V4([10, 0, 0, 2]),
            },
            path: PATH.to_vec(),
        }),
    ]
}

/// A path of one segment with two hops.
const PATH: [u8; 36] = {
    let mut path = [0; 36];
    (path[2], path[7]) = (0x20, 1);
    path
};

fn expect(load: &Load) -> Expect {
    match load {
        Load::Ip(_) => Expect::Ip { at: 14 },
        Load::Behind { headers, .. } => Expect::Ip {
            at: 14 + headers.len() as u16,
        },
        Load::SigFrames { inner, .. } => Expect::SigFrames {
            packet_len: match inner.size {
                Size::Fixed(len) => len,
                Size::Mix(_) => 0,
            },
        },
        Load::Scion(_) => Expect::Scion {
            at: 14 + 28 + 12 + 24 + 36,
            path_at: 14 + 28 + 12 + 24,
            path: PATH[..8].try_into().expect("eight bytes"),
        },
    }
}

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

/// A short trial at a low rate through a forwarder.
fn short_trial(wires: &Wires, generator: &mut dyn Generator, expect: &Expect) -> Result<Trial> {
    let mut sink = Sink::attach(&wires.sink, "s0", expect)?;
    let forwarder = programs::redirect(&wires.device, "d0", "d1", None)?;
    let trial = trial(
        &SHARED,
        generator,
        &mut sink,
        Rate::PacketsPerSecond(20_000.0),
        Duration::from_millis(300),
        &mut || {
            let counters = [("seen".to_owned(), forwarder.seen()?)].into();
            Ok(Snapshot {
                counters,
                ..Snapshot::default()
            })
        },
    )?;
    assert!(trial.sent > 0, "{trial:?}");
    assert_eq!(trial.received, trial.sent, "{trial:?}");
    assert_eq!((trial.duplicates, trial.reordered), (0, 0), "{trial:?}");
    Ok(trial)
}

fn check_latency(trial: &Trial) {
    let latency = trial.latency.as_ref().expect("packets have times");
    assert!(latency.p50 > 0.0 && latency.p50 <= latency.p99 && latency.p99 <= latency.max);
    assert!(
        latency.max < 60e6,
        "no packet was on its way for a minute: {latency:?}"
    );
}

#[test]
fn live_frames_arrive_at_the_sink_in_order() -> Result<()> {
    if !root_or_skip() {
        return Ok(());
    }
    let wires = Wires::new()?;
    for load in loads() {
        let mut generator = LiveFrames::new(&wires.generator, "g0", &load, Some(0))?;
        let trial = short_trial(&wires, &mut generator, &expect(&load))?;
        check_latency(&trial);
        // The kernel sends something of its own, such as multicast listener reports.
        let frames = trial.counters["seen"];
        match load {
            Load::Ip(_) | Load::Behind { .. } | Load::Scion(_) => {
                assert!(frames >= trial.sent, "{trial:?}")
            }
            Load::SigFrames { .. } => assert!(frames >= trial.sent / 14, "{trial:?}"),
        }
    }
    Ok(())
}

#[test]
fn paced_frames_arrive_at_the_sink_in_order() -> Result<()> {
    if !root_or_skip() {
        return Ok(());
    }
    let wires = Wires::new()?;
    for load in loads() {
        let mut generator = Paced::new(&wires.generator, "g0", &load, None)?;
        let trial = short_trial(&wires, &mut generator, &expect(&load))?;
        check_latency(&trial);
    }
    Ok(())
}
