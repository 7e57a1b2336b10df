//! What the border router's fast path leaves alone or throws away, by reason: the real program, run by the kernel.

use std::net::SocketAddr;

use crate::router_bed::{
    Bed, Conditions, FAR, Fate, LOCAL, OTHER, Packet, Path, Segment, Sent, T, frame, from_host,
    from_link, from_sibling, host, local_of, remote_of,
};
use crate::support::netns::root_or_skip;
use sig_common::router::Reason;
use sig_common::router::maps::Limit;
use sig_common::router::reason::Disposition;
use sig_common::wire::scion::{NEXT_BFD, NEXT_END_TO_END, NEXT_HOP_BY_HOP, NEXT_SCMP};
use sig_common::wire::{PROTO_TCP, PROTO_UDP};
use sig_linux::bpf::RouterOptions;

/// A packet in transit from link 1 to link 2.
fn transit() -> Packet {
    Packet::new(FAR, OTHER, &transit_path())
}

fn transit_path() -> Path {
    Path::new(&[Segment::new(true, &[(0, 7), (1, 2), (9, 0)])], 1, true)
}

/// A packet from link 1 to the host.
fn inbound() -> Packet {
    let path = Path::new(&[Segment::new(true, &[(0, 7), (1, 0)])], 1, true);
    Packet::new(FAR, LOCAL, &path)
}

/// A packet from the host to link 1.
fn outbound() -> Packet {
    let path = Path::new(&[Segment::new(false, &[(1, 0), (0, 7)])], 0, false);
    Packet::new(LOCAL, FAR, &path)
}

fn changed(packet: &Packet, change: impl FnOnce(&mut Packet)) -> Packet {
    let mut packet = packet.clone();
    change(&mut packet);
    packet
}

fn patched(packet: &Packet, offset: usize, value: u8) -> Vec<u8> {
    let mut bytes = packet.bytes();
    bytes[offset] = value;
    bytes
}

/// A packet with segments instead of its path.
fn along(packet: &Packet, segments: &[Segment], hop: u8) -> Packet {
    changed(packet, |packet| {
        packet.path = Path::new(segments, hop, true).bytes()
    })
}

/// Frames with the reason for which each is not forwarded.
fn stopped() -> Vec<(&'static str, Vec<u8>, Reason)> {
    let transit = transit();
    let link = |packet: &Packet| from_link(1, &packet.bytes());
    let hop = 4 + 8 + 12;
    let up = |hops: &[_]| Segment::new(false, hops);
    let down = |hops: &[_]| Segment::new(true, hops);
    let peer = |forward, hops: &[_]| Segment::peering(forward, hops);
    let typed = |kind, next| {
        changed(&transit, |packet| {
            packet.path_type = kind;
            packet.next_header = next;
            packet.path = if kind == 0 { Vec::new() } else { vec![0; 32] };
        })
    };
    let path_byte = |at: usize, value: u8| changed(&transit, |packet| packet.path[at] = value);
    let mut stun = vec![0, 1, 0, 0, 0x21, 0x12, 0xa4, 0x42];
    stun.resize(20, 7);
    let mut frames = vec![
        ("BFD of a neighbour", link(&typed(2, NEXT_BFD)), Reason::Bfd),
        (
            "BFD of a sibling",
            from_sibling(0, &typed(0, NEXT_BFD).bytes()),
            Reason::Bfd,
        ),
        (
            "BFD of a host",
            from_host(&typed(0, NEXT_BFD).bytes()),
            Reason::EmptyPath,
        ),
        (
            "BFD of a neighbour over the empty path",
            link(&typed(0, NEXT_BFD)),
            Reason::EmptyPath,
        ),
        ("a one-hop path", link(&typed(2, PROTO_UDP)), Reason::OneHop),
        (
            "an empty path",
            link(&typed(0, PROTO_UDP)),
            Reason::EmptyPath,
        ),
        ("EPIC", link(&typed(3, PROTO_UDP)), Reason::Epic),
        (
            "another path type",
            link(&typed(4, PROTO_UDP)),
            Reason::PathType,
        ),
        ("a STUN request", from_host(&stun), Reason::Stun),
        (
            "a STUN request over a link",
            from_link(1, &stun),
            Reason::AddressType,
        ),
        (
            "an alert for the way in",
            link(&path_byte(hop, 2)),
            Reason::IngressAlert,
        ),
        (
            "an alert for the way out",
            link(&path_byte(hop, 1)),
            Reason::EgressAlert,
        ),
        ("an empty datagram", from_link(1, &[]), Reason::HeaderLength),
        (
            "half a common header",
            from_link(1, &transit.bytes()[..8]),
            Reason::HeaderLength,
        ),
        (
            "half an address header",
            from_link(1, &transit.bytes()[..20]),
            Reason::HeaderLength,
        ),
        (
            "version 1",
            from_link(1, &patched(&transit, 0, 0x10)),
            Reason::Version,
        ),
        (
            "a header longer than the packet",
            from_link(1, &patched(&transit, 5, 255)),
            Reason::HeaderLength,
        ),
        (
            "a header that ends in the addresses",
            from_link(1, &patched(&transit, 5, 8)),
            Reason::HeaderLength,
        ),
        (
            "an unknown type of address",
            from_link(1, &patched(&transit, 9, 0x10)),
            Reason::AddressType,
        ),
        (
            "an unknown type of source",
            from_link(1, &patched(&transit, 9, 0x07)),
            Reason::AddressType,
        ),
        (
            "a payload longer than the packet",
            from_link(1, &patched(&transit, 7, 200)),
            Reason::PayloadLength,
        ),
        (
            "a payload shorter than the packet",
            from_link(1, &patched(&transit, 7, 1)),
            Reason::PayloadLength,
        ),
        (
            "a hop field of another interface",
            from_link(3, &transit.bytes()),
            Reason::IngressInterface,
        ),
        (
            "a source of this AS from outside",
            link(&changed(&transit, |p| p.source.0 = LOCAL)),
            Reason::SourceAddress,
        ),
        (
            "a foreign source from a host",
            from_host(&changed(&outbound(), |p| p.source.0 = FAR).bytes()),
            Reason::SourceAddress,
        ),
        (
            "a mapped source of this AS",
            from_host(&changed(&outbound(), |p| p.source.1 = host("::ffff:10.1.0.1")).bytes()),
            Reason::SourceAddress,
        ),
        (
            "to this AS from inside",
            from_host(&changed(&outbound(), |p| p.destination.0 = LOCAL).bytes()),
            Reason::DestinationAddress,
        ),
        (
            "to this AS, but the path goes on",
            link(&changed(&transit, |p| p.destination.0 = LOCAL)),
            Reason::DestinationAddress,
        ),
        (
            "to another AS, but the path ends",
            link(&changed(&inbound(), |p| p.destination.0 = OTHER)),
            Reason::DestinationAddress,
        ),
        (
            "a wrong MAC",
            link(&path_byte(hop + 6, 0)),
            Reason::InvalidMac,
        ),
        (
            "a changed expiry",
            link(&path_byte(hop + 1, 62)),
            Reason::InvalidMac,
        ),
        (
            "a changed egress",
            link(&path_byte(hop + 5, 3)),
            Reason::InvalidMac,
        ),
        (
            "a changed segment identifier",
            link(&path_byte(6, 0)),
            Reason::InvalidMac,
        ),
        (
            "a changed timestamp",
            link(&path_byte(11, 1)),
            Reason::InvalidMac,
        ),
        (
            "an unknown egress",
            link(&along(&transit, &[down(&[(0, 7), (1, 99), (9, 0)])], 1)),
            Reason::EgressInterface,
        ),
        (
            "no egress",
            link(&along(&transit, &[down(&[(0, 7), (1, 0), (9, 0)])], 1)),
            Reason::EgressInterface,
        ),
        (
            "from a host to a sibling",
            from_host(
                &changed(&outbound(), |p| {
                    p.path = Path::new(&[up(&[(11, 0), (0, 7)])], 0, false).bytes()
                })
                .bytes(),
            ),
            Reason::EgressInterface,
        ),
        (
            "from parent to parent",
            link(&along(&transit, &[down(&[(0, 7), (1, 7), (9, 0)])], 1)),
            Reason::PathForbidden,
        ),
        (
            "from parent to core",
            link(&along(&transit, &[down(&[(0, 7), (1, 4), (9, 0)])], 1)),
            Reason::PathForbidden,
        ),
        (
            "from parent to parent at a change",
            link(&along(
                &transit,
                &[down(&[(0, 9), (1, 0)]), up(&[(7, 0), (0, 9)])],
                1,
            )),
            Reason::SegmentChange,
        ),
        (
            "from core to core at a change",
            from_link(
                4,
                &along(
                    &transit,
                    &[down(&[(0, 9), (4, 0)]), up(&[(6, 0), (0, 9)])],
                    1,
                )
                .bytes(),
            ),
            Reason::SegmentChange,
        ),
        (
            "a change of segments inside",
            from_sibling(
                0,
                &changed(&transit, |p| {
                    p.path = Path::new(&[up(&[(9, 0), (0, 12)]), down(&[(0, 3), (9, 0)])], 1, false)
                        .bytes()
                })
                .bytes(),
            ),
            Reason::SegmentChange,
        ),
        (
            "from a stranger",
            frame(
                "192.168.1.3:30042".parse().unwrap(),
                local_of(1),
                &transit.bytes(),
            ),
            Reason::WrongPeer,
        ),
        (
            "CurrHF behind the end",
            link(&path_byte(0, 3)),
            Reason::MalformedPath,
        ),
        (
            "CurrINF of a segment that is not",
            link(&path_byte(0, 0x41)),
            Reason::MalformedPath,
        ),
        (
            "CurrINF of another segment",
            from_link(
                2,
                &changed(
                    &along(
                        &transit,
                        &[up(&[(9, 0), (1, 2)]), down(&[(1, 3), (9, 0)])],
                        1,
                    ),
                    |p| p.path[0] = 0x41,
                )
                .bytes(),
            ),
            Reason::MalformedPath,
        ),
        (
            "an empty first segment",
            link(&changed(&transit, |p| {
                p.path[1..4].copy_from_slice(&[0, 0, 3 << 6])
            })),
            Reason::MalformedPath,
        ),
        (
            "a gap between segments",
            link(&changed(&transit, |p| {
                p.path[1..4].copy_from_slice(&[0, 0x10, 2])
            })),
            Reason::MalformedPath,
        ),
        (
            "a path longer than its segments",
            link(&changed(&transit, |p| p.path.extend([0; 4]))),
            Reason::MalformedPath,
        ),
        (
            "no path meta header",
            link(&changed(&transit, |p| p.path.clear())),
            Reason::MalformedPath,
        ),
        (
            "a segment of one hop",
            link(&along(
                &transit,
                &[down(&[(1, 2)]), down(&[(9, 0), (8, 0)])],
                0,
            )),
            Reason::OneHopSegment,
        ),
        (
            "a segment of one hop to come",
            from_link(
                2,
                &along(&transit, &[up(&[(9, 0), (1, 2)]), down(&[(1, 3)])], 1).bytes(),
            ),
            Reason::OneHopSegment,
        ),
        (
            "peering of one segment",
            link(&along(
                &transit,
                &[peer(true, &[(0, 7), (1, 2), (9, 0)])],
                1,
            )),
            Reason::MalformedPeering,
        ),
        (
            "peering of three segments",
            from_link(
                2,
                &along(
                    &transit,
                    &[
                        peer(false, &[(9, 0), (5, 2)]),
                        peer(true, &[(6, 7), (9, 0)]),
                        down(&[(7, 7), (8, 8)]),
                    ],
                    1,
                )
                .bytes(),
            ),
            Reason::MalformedPeering,
        ),
        (
            "transit from a host",
            from_host(&transit.bytes()),
            Reason::TransitSource,
        ),
        (
            "the path ends at the way out",
            from_sibling(
                0,
                &changed(&transit, |p| {
                    p.path = Path::new(&[down(&[(0, 7), (11, 2)])], 1, false).bytes()
                })
                .bytes(),
            ),
            Reason::PathEnds,
        ),
        (
            "to a service",
            link(&changed(&inbound(), |p| {
                p.destination.1 = sig_common::addr::HostAddr::SVC_CS
            })),
            Reason::Service,
        ),
        (
            "to no address",
            link(&changed(&inbound(), |p| p.destination.1 = host("0.0.0.0"))),
            Reason::DestinationAddress,
        ),
        (
            "to a multicast address",
            link(&changed(&inbound(), |p| {
                p.destination.1 = host("224.0.0.1")
            })),
            Reason::DestinationAddress,
        ),
        (
            "to a multicast address of IPv6",
            link(&changed(&inbound(), |p| p.destination.1 = host("ff02::1"))),
            Reason::DestinationAddress,
        ),
        (
            "to a mapped address",
            link(&changed(&inbound(), |p| {
                p.destination.1 = host("::ffff:10.2.0.1")
            })),
            Reason::DestinationAddress,
        ),
        (
            "to no address of IPv6",
            link(&changed(&inbound(), |p| p.destination.1 = host("::"))),
            Reason::DestinationAddress,
        ),
        (
            "to the router",
            link(&changed(&inbound(), |p| p.destination.1 = host("10.0.0.1"))),
            Reason::Local,
        ),
        (
            "to this host",
            link(&changed(&inbound(), |p| p.destination.1 = host("10.2.0.9"))),
            Reason::NoFastWay,
        ),
        (
            "to a host without neighbour entry",
            link(&changed(&inbound(), |p| p.destination.1 = host("10.2.0.2"))),
            Reason::NoNeighbour,
        ),
        (
            "to an unreachable host",
            link(&changed(&inbound(), |p| p.destination.1 = host("10.8.0.1"))),
            Reason::NoHost,
        ),
        (
            "to a black hole",
            link(&changed(&inbound(), |p| p.destination.1 = host("10.9.0.1"))),
            Reason::NoHost,
        ),
        (
            "to a prohibited host",
            link(&changed(&inbound(), |p| {
                p.destination.1 = host("10.10.0.1")
            })),
            Reason::NoHost,
        ),
        (
            "to a host of another family",
            link(&changed(&inbound(), |p| {
                p.destination.1 = host("fd00:2::1")
            })),
            Reason::NoFastWay,
        ),
        (
            "half a UDP header",
            link(&changed(&inbound(), |p| p.payload.truncate(7))),
            Reason::NoPort,
        ),
        (
            "half a TCP header",
            link(&changed(&inbound(), |p| p.next_header = PROTO_TCP)),
            Reason::NoPort,
        ),
        (
            "two hop-by-hop headers",
            link(&changed(&inbound(), |p| {
                p.next_header = NEXT_HOP_BY_HOP;
                p.payload = vec![NEXT_HOP_BY_HOP, 0, 0, 0, PROTO_UDP, 0, 0, 0];
            })),
            Reason::DeepExtensions,
        ),
        (
            "extension headers in the wrong order",
            link(&changed(&inbound(), |p| {
                p.next_header = NEXT_END_TO_END;
                p.payload = vec![NEXT_HOP_BY_HOP, 0, 0, 0, PROTO_UDP, 0, 0, 0];
            })),
            Reason::DeepExtensions,
        ),
        (
            "an extension header that does not end",
            link(&changed(&inbound(), |p| {
                p.next_header = NEXT_HOP_BY_HOP;
                p.payload = vec![PROTO_UDP, 9, 0, 0, 0, 0, 0, 0];
            })),
            Reason::DeepExtensions,
        ),
        (
            "a packet larger than the link takes",
            link(&changed(&transit, |p| p.payload.resize(1400, 0))),
            Reason::TooBig,
        ),
        (
            "a packet larger than the host's network takes",
            link(&changed(&inbound(), |p| p.payload.resize(1310, 0))),
            Reason::TooBig,
        ),
    ];
    let expired = |timestamp, expiry| {
        let segment = Segment {
            timestamp,
            expiry,
            ..Segment::new(true, &[(0, 7), (1, 2), (9, 0)])
        };
        along(&transit, &[segment], 1)
    };
    frames.extend([
        (
            "an expired hop",
            link(&expired(T - 300, 0)),
            Reason::Expired,
        ),
        (
            "a hop that expired long ago",
            link(&expired(0, 255)),
            Reason::Expired,
        ),
    ]);
    // The second hop field of a change of segments is held to the same.
    let mut second = down(&[(1, 3), (9, 0)]);
    second.timestamp = T - 86_400;
    second.expiry = 254;
    let change = along(&transit, &[up(&[(9, 0), (1, 2)]), second], 1);
    frames.push((
        "a second hop that has expired",
        from_link(2, &change.bytes()),
        Reason::Expired,
    ));
    frames
}

#[test]
fn what_is_not_plain_passes_unchanged_or_is_dropped_for_its_reason() {
    if !root_or_skip() {
        return;
    }
    let bed = Bed::new();
    let mut wrong = Vec::new();
    for (that, frame, reason) in stopped() {
        let expected = match reason.disposition() {
            Disposition::Drop => Fate::Dropped(reason),
            Disposition::Slow => Fate::Passed(reason),
        };
        let fate = bed.fate(&frame);
        if fate != expected {
            wrong.push(format!("{that}: expected {expected:?}, got {fate:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_reason_of_the_fast_path_is_tested() {
    // What only the slow path finds out, and what further tests here are about.
    let elsewhere = [
        Reason::NoService,
        Reason::AnswersError,
        Reason::LinkDown,
        Reason::FamilyChange,
        Reason::NoChecksum,
        Reason::OpenChecksum,
        Reason::WrongDevice,
        Reason::RateLimited,
    ];
    let tested: Vec<_> = stopped().into_iter().map(|(_, _, reason)| reason).collect();
    for reason in Reason::ALL {
        assert_ne!(
            tested.contains(&reason),
            elsewhere.contains(&reason),
            "{reason:?}"
        );
    }
}

#[test]
fn hop_fields_live_until_their_last_second() {
    if !root_or_skip() {
        return;
    }
    let bed = Bed::new();
    // It is T + 60 s, and hop fields live in units of 337.5 s.
    for (age, expiry, expired) in [
        (337, 0, true),
        (200, 0, false),
        (3600, 9, true),
        (3600, 10, false),
        (3000, 9, false),
    ] {
        let segment = Segment {
            timestamp: T - age,
            expiry,
            ..Segment::new(true, &[(0, 7), (1, 2), (9, 0)])
        };
        let frame = from_link(1, &along(&transit(), &[segment], 1).bytes());
        let fate = bed.fate(&frame);
        assert_eq!(
            fate == Fate::Passed(Reason::Expired),
            expired,
            "{age} s, {expiry}: {fate:?}"
        );
    }
    // A timestamp to come is none of the router's business.
    let mut segment = Segment::new(true, &[(0, 7), (1, 2), (9, 0)]);
    segment.timestamp = u32::MAX;
    let fate = bed.fate(&from_link(1, &along(&transit(), &[segment], 1).bytes()));
    assert!(matches!(fate, Fate::Sent(..)), "{fate:?}");
}

#[test]
fn packets_do_not_leave_by_links_that_are_down_or_have_no_neighbour() {
    if !root_or_skip() {
        return;
    }
    let conditions = Conditions {
        down: [2, 12].into(),
        unknown: [remote_of(3).ip(), crate::router_bed::sibling(1).ip()].into(),
        ..Conditions::default()
    };
    let mut bed = Bed::with(conditions, RouterOptions::default());
    let to = |egress| {
        let segment = Segment::new(true, &[(0, 7), (1, egress), (9, 0)]);
        from_link(1, &along(&transit(), &[segment], 1).bytes())
    };
    bed.passes("a link that is down", &to(2), Reason::LinkDown);
    bed.passes("a sibling that is down", &to(12), Reason::LinkDown);
    bed.passes("a link without neighbour", &to(3), Reason::NoNeighbour);
    bed.passes("a sibling without neighbour", &to(22), Reason::NoNeighbour);
    bed.programs
        .update_interface(2, |link| link.up = 1)
        .unwrap();
    assert!(matches!(bed.fate(&to(2)), Fate::Sent(..)));
    bed.programs
        .update_interface(2, |link| link.up = 0)
        .unwrap();
    bed.passes("a link that is down again", &to(2), Reason::LinkDown);
    assert!(bed.programs.update_interface(99, |_| {}).is_err());
}

#[test]
fn packets_over_the_limit_of_their_reason_are_dropped() {
    if !root_or_skip() {
        return;
    }
    let mut bed = Bed::new();
    // Five at once, then one in an hour: no machine is that slow.
    let hour = 3_600_000_000_000;
    for reason in Reason::ALL {
        let limit = Limit {
            interval: hour,
            burst: 5 * hour,
        };
        bed.programs.set_limit(reason, limit).unwrap();
    }
    let cpus = std::thread::available_parallelism().unwrap().get();
    // On whatever CPU they come in: five of each link.
    let forged_on = |link, cpu| {
        let segment = Segment::new(true, &[(0, 7), (link, 8), (9, 0)]);
        let forged = changed(&along(&transit(), &[segment], 1), |packet| {
            packet.path[30] ^= 1
        });
        match bed.fate_on(cpu, &from_link(link, &forged.bytes())) {
            Fate::Passed(Reason::InvalidMac) => true,
            Fate::Dropped(Reason::RateLimited) => false,
            other => panic!("{other:?}"),
        }
    };
    for link in [1, 3] {
        for number in 0..25 {
            assert_eq!(
                forged_on(link, number % cpus),
                number < 5,
                "packet {number} of link {link}"
            );
        }
    }
    // Other reasons have theirs.
    bed.passes(
        "another reason",
        &from_link(3, &transit().bytes()),
        Reason::IngressInterface,
    );
    // Nor do siblings share what they send of BFD.
    let bfd = Packet {
        path_type: 0,
        path: Vec::new(),
        next_header: NEXT_BFD,
        payload: vec![0; 24],
        ..transit()
    };
    for place in [0, 1] {
        for number in 0..10 {
            let expected = if number < 5 {
                Fate::Passed(Reason::Bfd)
            } else {
                Fate::Dropped(Reason::RateLimited)
            };
            let fate = bed.fate(&from_sibling(place, &bfd.bytes()));
            assert_eq!(fate, expected, "packet {number} of sibling {place}");
        }
    }
    assert!(matches!(
        bed.fate(&from_link(1, &transit().bytes())),
        Fate::Sent(..)
    ));
}

/// The port of the host that gets a payload.
fn port_of(bed: &Bed, next_header: u8, payload: &[u8]) -> Fate {
    let packet = changed(&inbound(), |packet| {
        packet.next_header = next_header;
        packet.payload = payload.to_vec();
    });
    match bed.fate(&from_link(1, &packet.bytes())) {
        Fate::Sent(sent, traffic, slot) => {
            assert_eq!(sent.scion, packet.bytes());
            let port: SocketAddr = sent.destination;
            let mut sent = *sent;
            sent.scion = Vec::new();
            assert_eq!(sent, Sent::to_host(port, Vec::new()));
            Fate::Sent(Box::new(sent), traffic, slot)
        }
        other => other,
    }
}

fn scmp(kind: u8, rest: &[u8]) -> Vec<u8> {
    [&[kind, 0, 0, 0][..], rest].concat()
}

#[test]
fn hosts_get_packets_at_the_port_that_waits_for_them() {
    if !root_or_skip() {
        return;
    }
    let bed = Bed::new();
    let udp = |source: u16, destination: u16| {
        [
            source.to_be_bytes(),
            destination.to_be_bytes(),
            [0, 8],
            [0, 0],
        ]
        .concat()
    };
    let tcp = |destination: u16| [udp(1, destination), vec![0; 12]].concat();
    let extended = |kinds: &[u8], words: u8, protocol: u8, payload: &[u8]| {
        let mut bytes = Vec::new();
        for at in 0..kinds.len() {
            bytes.extend([*kinds.get(at + 1).unwrap_or(&protocol), words, 0, 0]);
            bytes.extend(vec![0; usize::from(words) * 4]);
        }
        (kinds[0], [&bytes[..], payload].concat())
    };
    let quoted = |next, payload: Vec<u8>| {
        let packet = changed(&outbound(), |packet| {
            packet.next_header = next;
            packet.payload = payload;
        });
        packet.bytes()
    };
    let error = |kind: u8, skipped: usize, quote: Vec<u8>| {
        scmp(kind, &[vec![0xff; skipped], quote].concat())
    };
    let echo = |id: u16| [&id.to_be_bytes()[..], &[0, 1]].concat();
    let traceroute = |id: u16| [&id.to_be_bytes()[..], &[0; 18]].concat();
    let (hbh, long) = extended(&[NEXT_HOP_BY_HOP], 2, PROTO_UDP, &udp(1, 31007));
    let (both, two) = extended(
        &[NEXT_HOP_BY_HOP, NEXT_END_TO_END],
        50,
        NEXT_SCMP,
        &scmp(129, &echo(31008)),
    );
    let (e2e, short) = extended(&[NEXT_END_TO_END], 0, PROTO_TCP, &tcp(31009));
    for (that, next, payload, port) in [
        ("UDP", PROTO_UDP, udp(1, 31005), 31005),
        ("UDP to the first port", PROTO_UDP, udp(1, 31000), 31000),
        ("UDP to the last port", PROTO_UDP, udp(1, 32767), 32767),
        ("UDP before the first port", PROTO_UDP, udp(1, 30999), 30041),
        ("UDP behind the last port", PROTO_UDP, udp(1, 32768), 30041),
        ("UDP to port 0", PROTO_UDP, udp(1, 0), 30041),
        ("UDP to a service", PROTO_UDP, udp(1, 30252), 30252),
        ("TCP", PROTO_TCP, tcp(31006), 31006),
        ("TCP to another port", PROTO_TCP, tcp(80), 30041),
        ("another protocol", 99, vec![1, 2, 3], 30041),
        ("nothing", 59, vec![], 30041),
        ("UDP behind a hop-by-hop header", hbh, long, 31007),
        ("TCP behind an end-to-end header", e2e, short, 31009),
        ("SCMP behind both", both, two, 31008),
        ("an echo request", NEXT_SCMP, scmp(128, &echo(31010)), 30041),
        ("an echo reply", NEXT_SCMP, scmp(129, &echo(31011)), 31011),
        (
            "an echo reply for no port",
            NEXT_SCMP,
            scmp(129, &echo(0)),
            30041,
        ),
        (
            "a traceroute request",
            NEXT_SCMP,
            scmp(130, &traceroute(31012)),
            30041,
        ),
        (
            "a traceroute reply",
            NEXT_SCMP,
            scmp(131, &traceroute(31013)),
            31013,
        ),
        (
            "an error about UDP: unreachable",
            NEXT_SCMP,
            error(1, 4, quoted(PROTO_UDP, udp(31014, 9))),
            31014,
        ),
        (
            "an error about UDP: too big",
            NEXT_SCMP,
            error(2, 4, quoted(PROTO_UDP, udp(31015, 9))),
            31015,
        ),
        (
            "an error about UDP: parameter",
            NEXT_SCMP,
            error(4, 4, quoted(PROTO_UDP, udp(31016, 9))),
            31016,
        ),
        (
            "an error about UDP: interface",
            NEXT_SCMP,
            error(5, 16, quoted(PROTO_UDP, udp(31017, 9))),
            31017,
        ),
        (
            "an error about UDP: connectivity",
            NEXT_SCMP,
            error(6, 24, quoted(PROTO_UDP, udp(31018, 9))),
            31018,
        ),
        (
            "an error about UDP from another port",
            NEXT_SCMP,
            error(1, 4, quoted(PROTO_UDP, udp(40000, 9))),
            30041,
        ),
        (
            "an error about an echo request",
            NEXT_SCMP,
            error(4, 4, quoted(NEXT_SCMP, scmp(128, &echo(31019)))),
            31019,
        ),
        (
            "an error about a traceroute request",
            NEXT_SCMP,
            error(4, 4, quoted(NEXT_SCMP, scmp(130, &traceroute(31020)))),
            31020,
        ),
    ] {
        match port_of(&bed, next, &payload) {
            Fate::Sent(sent, ..) => assert_eq!(sent.destination.port(), port, "{that}"),
            other => panic!("{that}: {other:?}"),
        }
    }
    for (that, payload) in [
        ("half an SCMP header", vec![129, 0, 0]),
        ("an echo reply without identifier", scmp(129, &[1])),
        ("a traceroute reply that is too short", scmp(131, &[0; 19])),
        ("an unknown error", scmp(100, &[0; 60])),
        ("an unknown message", scmp(200, &[0; 60])),
        ("an error without quote", error(1, 4, vec![])),
        (
            "an error about an error",
            error(1, 4, quoted(NEXT_SCMP, scmp(4, &[0; 40]))),
        ),
        (
            "an error about a reply",
            error(1, 4, quoted(NEXT_SCMP, scmp(129, &echo(31021)))),
        ),
        (
            "an error about UDP from port 0",
            error(1, 4, quoted(PROTO_UDP, udp(0, 9))),
        ),
        (
            "an error about an echo request of nobody",
            error(1, 4, quoted(NEXT_SCMP, scmp(128, &echo(0)))),
        ),
        (
            "an error about half a UDP header",
            error(1, 4, quoted(PROTO_UDP, vec![0x79, 0x18, 0, 9])),
        ),
        (
            "an error about TCP",
            error(1, 4, quoted(PROTO_TCP, tcp(31000))),
        ),
        (
            "an error about another version",
            error(
                1,
                4,
                [vec![0x10], quoted(PROTO_UDP, udp(31000, 9))[1..].to_vec()].concat(),
            ),
        ),
    ] {
        assert_eq!(
            port_of(&bed, NEXT_SCMP, &payload),
            Fate::Dropped(Reason::NoPort),
            "{that}"
        );
    }
}

#[test]
fn without_dispatched_ports_all_goes_to_the_end_host_port() {
    if !root_or_skip() {
        return;
    }
    let mut bed = Bed::new();
    let mut model = crate::router_bed::model();
    model.ports = None;
    bed.configure(model, 0);
    for port in [0u16, 1, 30041, 31000, 65535] {
        let payload = [[0, 1], port.to_be_bytes(), [0, 8], [0, 0]].concat();
        match port_of(&bed, PROTO_UDP, &payload) {
            Fate::Sent(sent, ..) => assert_eq!(sent.destination.port(), 30041, "{port}"),
            other => panic!("{port}: {other:?}"),
        }
    }
}
