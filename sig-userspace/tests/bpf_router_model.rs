//! The border router's fast path against `router::forward`, which does the same plainly: over random packets, every
//! verdict and every byte of what is sent must be that of the model.
#![cfg(feature = "xdp")]

mod support;

use std::net::SocketAddr;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};
use sig::router::forward::{Ingress, Verdict};
use sig_common::addr::HostAddr;
use sig_common::router::Reason;
use sig_common::router::reason::Disposition;
use support::bpf::{XDP_DROP, XDP_PASS, XDP_REDIRECT};
use support::netns::root_or_skip;
use support::router::{
    Bed, FAR, LOCAL, NOW, OTHER, Packet, Path, Segment, Sent, T, from_host, from_link,
    from_sibling, host, local_of, remote_of, sibling,
};

const INTERFACES: [u16; 16] = [1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 14, 15, 21, 22, 0, 99];

/// A path of one to three segments with the current hop anywhere, mostly one that the router would take.
fn path(random: &mut StdRng, from_outside: bool) -> Path {
    let count = random.random_range(1..=3);
    let peering = count == 2 && random.random_bool(0.3);
    let segments: Vec<Segment> = (0..count)
        .map(|at| {
            let least = if peering || random.random_bool(0.05) {
                1
            } else {
                2
            };
            let hops: Vec<_> = (0..random.random_range(least..=3))
                .map(|_| {
                    let mut side = || *INTERFACES.choose(random).unwrap();
                    (side(), side())
                })
                .collect();
            let forward = if peering { at == 1 } else { random.random() };
            Segment {
                peering: peering || random.random_bool(0.02),
                timestamp: if random.random_bool(0.05) {
                    T - 100_000
                } else {
                    T
                },
                expiry: random.random(),
                beta: random.random(),
                ..Segment::new(forward, &hops)
            }
        })
        .collect();
    let hops: usize = segments.iter().map(|segment| segment.hops.len()).sum();
    let hop = random.random_range(0..hops) as u8;
    Path::new(&segments, hop, from_outside)
}

/// The interface by which a packet with this path comes in, if any does.
fn way_in(path: &Path) -> u16 {
    let mut at = usize::from(path.hop);
    for segment in &path.segments {
        if at < segment.hops.len() {
            let (ingress, egress) = segment.hops[at];
            return if segment.forward { ingress } else { egress };
        }
        at -= segment.hops.len();
    }
    0
}

fn payload(random: &mut StdRng) -> (u8, Vec<u8>) {
    let mut bytes: Vec<u8> = (0..random.random_range(0..80))
        .map(|_| random.random())
        .collect();
    let next = *[17, 17, 17, 6, 202, 202, 200, 201, 203, 99]
        .choose(random)
        .unwrap();
    if next == 202 && !bytes.is_empty() {
        bytes[0] = *[1, 2, 4, 5, 6, 128, 129, 130, 131, 9]
            .choose(random)
            .unwrap();
    }
    if (next == 200 || next == 201) && bytes.len() > 2 {
        bytes[0] = *[17, 201, 202, 200].choose(random).unwrap();
        bytes[1] = random.random_range(0..4);
    }
    (next, bytes)
}

fn any_host(random: &mut StdRng) -> HostAddr {
    let hosts = [
        host("10.2.0.1"),
        host("10.2.0.1"),
        host("10.2.0.1"),
        host("fd00:1::1"),
        host("224.0.0.1"),
        host("::ffff:10.2.0.1"),
        HostAddr::SVC_CS,
        HostAddr::Svc(77),
    ];
    *hosts.choose(random).unwrap()
}

/// A packet, who sent it, and how it comes in.
fn packet(random: &mut StdRng) -> (Vec<u8>, SocketAddr, Ingress) {
    let from_outside = random.random_bool(0.7);
    let path = path(random, from_outside);
    let entered = way_in(&path);
    let (sender, ingress) = if from_outside {
        let interface = match entered {
            1..=8 if random.random_bool(0.95) => entered,
            _ => random.random_range(1..=8),
        };
        (remote_of(interface), Ingress::External(interface))
    } else {
        let sender = match entered {
            11..20 if random.random_bool(0.9) => sibling(0),
            20.. if random.random_bool(0.9) => sibling(1),
            _ => "10.2.0.1:30042".parse().unwrap(),
        };
        (sender, Ingress::Internal(sender))
    };
    let isd_as = |random: &mut StdRng| *[LOCAL, FAR, OTHER].choose(random).unwrap();
    let hops: usize = path.segments.iter().map(|segment| segment.hops.len()).sum();
    let at_end = usize::from(path.hop) + 1 == hops;
    let source = match ingress {
        _ if random.random_bool(0.1) => isd_as(random),
        Ingress::Internal(_) if path.hop == 0 => LOCAL,
        _ => FAR,
    };
    let destination = match at_end {
        _ if random.random_bool(0.1) => isd_as(random),
        true => LOCAL,
        false => OTHER,
    };
    let mut packet = Packet::new(source, destination, &path);
    packet.source.1 = any_host(random);
    packet.destination.1 = any_host(random);
    if random.random_bool(0.5) {
        (packet.next_header, packet.payload) = payload(random);
    }
    if random.random_bool(0.05) {
        packet.path_type = random.random_range(0..5);
    }
    let mut bytes = packet.bytes();
    if random.random_bool(0.2) {
        // Anything at all, mostly in the header.
        for _ in 0..random.random_range(1..4) {
            let end = bytes.len();
            let at = if random.random_bool(0.5) {
                random.random_range(0..12)
            } else {
                random.random_range(0..end)
            };
            bytes[at] ^= 1 << random.random_range(0..8);
        }
    }
    if random.random_bool(0.03) {
        let len = random.random_range(0..=bytes.len());
        bytes.truncate(len);
    }
    (bytes, sender, ingress)
}

#[test]
fn random_packets_become_what_the_model_says() {
    if !root_or_skip() {
        return;
    }
    let bed = Bed::new();
    let seed = std::env::var("SIG_ROUTER_SEED").map_or(1, |seed| seed.parse().unwrap());
    let count = std::env::var("SIG_ROUTER_PACKETS").map_or(20_000, |count| count.parse().unwrap());
    let mut random = StdRng::seed_from_u64(seed);
    let mut sent = 0;
    let mut seen = std::collections::BTreeMap::new();
    bed.netns.run(|| {
        for number in 0..count {
            let (bytes, sender, ingress) = packet(&mut random);
            let frame = match ingress {
                Ingress::External(interface) => from_link(interface, &bytes),
                Ingress::Internal(_) if sender == sibling(0) => from_sibling(0, &bytes),
                Ingress::Internal(_) if sender == sibling(1) => from_sibling(1, &bytes),
                Ingress::Internal(_) => from_host(&bytes),
            };
            let outcome = bed.programs.test_run(&frame, None).unwrap();
            let mut model = bytes.clone();
            let expected = bed
                .engine
                .process(&mut model, ingress, NOW, &bed.conditions);
            let that =
                format!("packet {number} of seed {seed}: {ingress:?} {bytes:02x?}\n{expected:?}");
            *seen.entry(expected.fast).or_insert(0) += 1;
            let Some(reason) = expected.fast else {
                let expected = match expected.verdict {
                    Verdict::Forward { interface } => Sent::by_link(interface, model),
                    Verdict::Sibling(place) => Sent::to_sibling(place, model),
                    Verdict::Deliver(host) if host.ip().to_string() == "10.2.0.1" => {
                        Sent::to_host(host, model)
                    }
                    // The kernel decides whether it knows the host.
                    Verdict::Deliver(_) => {
                        assert_eq!(
                            (outcome.action, &outcome.frame),
                            (XDP_PASS, &frame),
                            "{that}"
                        );
                        continue;
                    }
                    _ => panic!("{that}"),
                };
                assert_eq!(outcome.action, XDP_REDIRECT, "{that}");
                assert_eq!(Sent::read(&outcome.frame), expected, "{that}");
                sent += 1;
                continue;
            };
            match reason.disposition() {
                Disposition::Drop => assert_eq!(outcome.action, XDP_DROP, "{that}"),
                Disposition::Slow | Disposition::Control => {
                    assert_eq!(
                        (outcome.action, &outcome.frame),
                        (XDP_PASS, &frame),
                        "{that}"
                    );
                }
            }
        }
    });
    println!("{sent} sent, {seen:?}");
    assert!(
        sent > count / 20,
        "only {sent} of {count} packets were forwarded: the test tests nothing"
    );
    let counted: u64 = counters(&bed).into_iter().map(|(_, packets)| packets).sum();
    assert!(counted > 0);
    for (reason, packets) in seen {
        if let Some(reason) = reason {
            // A host that the kernel does not know counts as well.
            let found = counters(&bed)
                .iter()
                .find(|(r, _)| *r == reason)
                .map_or(0, |(_, n)| *n);
            let slack = reason == Reason::NoFastWay || reason == Reason::NoNeighbour;
            assert!(
                found == packets || slack && found >= packets,
                "{reason:?}: {found}, the model says {packets}"
            );
        }
    }
    assert_eq!(local_of(1).port(), 50000);
}

/// What was not forwarded, at all places.
fn counters(bed: &Bed) -> Vec<(Reason, u64)> {
    let slots: Vec<u16> = [0]
        .into_iter()
        .chain(bed.slots.iter().map(|(_, slot)| slot))
        .collect();
    let reasons: Vec<_> = slots
        .iter()
        .map(|slot| bed.programs.reasons(*slot).unwrap())
        .collect();
    Reason::ALL
        .into_iter()
        .map(|reason| (reason, reasons.iter().map(|r| r.of(reason)).sum()))
        .collect()
}
