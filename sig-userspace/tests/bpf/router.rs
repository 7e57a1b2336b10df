//! The border router's fast path over single packets: the real program, run by the kernel.

use crate::router_bed::{
    Bed, Conditions, FAR, LOCAL, OTHER, Packet, Path, Segment, Sent, from_host, from_link,
    from_sibling, host,
};
use crate::support::netns::root_or_skip;
use sig_common::router::Reason;
use sig_common::router::maps::Traffic;
use sig_linux::bpf::{RouterOptions, RouterPrograms};

#[test]
fn the_verifier_takes_the_programs() {
    if !root_or_skip() {
        return;
    }
    let programs = RouterPrograms::load(RouterOptions::default()).unwrap();
    for figures in programs.figures().unwrap() {
        println!("{figures:?}");
        assert!(
            figures.verified < 200_000,
            "{figures:?}: a fifth of what the kernel takes"
        );
    }
}

/// A path as it is on the wire, with what a router changes in it.
struct Wire(Vec<u8>);

impl Wire {
    fn infos(&self) -> usize {
        let meta = u32::from_be_bytes(self.0[..4].try_into().unwrap());
        let lengths = [meta >> 12 & 0x3f, meta >> 6 & 0x3f, meta & 0x3f];
        lengths.into_iter().filter(|length| *length != 0).count()
    }

    /// The segment identifier of an info field takes the MAC of a hop field.
    fn chained(mut self, info: usize, hop: usize) -> Self {
        let mac = 4 + 8 * self.infos() + 12 * hop + 6;
        for at in 0..2 {
            self.0[4 + 8 * info + 2 + at] ^= self.0[mac + at];
        }
        self
    }

    fn pointing(mut self, info: u8, hop: u8) -> Self {
        self.0[0] = info << 6 | hop;
        self
    }
}

/// Where a packet of the table comes from, and where it must go.
#[derive(Clone, Copy, Debug)]
enum End {
    Link(u16),
    Sibling(usize),
    Host,
}

struct Case {
    that: &'static str,
    from: End,
    to: End,
    path: Path,
    changed: fn(Wire) -> Wire,
}

fn case(
    that: &'static str,
    from: End,
    to: End,
    segments: &[Segment],
    hop: u8,
    changed: fn(Wire) -> Wire,
) -> Case {
    let path = Path::new(segments, hop, matches!(from, End::Link(_)));
    Case {
        that,
        from,
        to,
        path,
        changed,
    }
}

fn down(hops: &[(u16, u16)]) -> Segment {
    Segment::new(true, hops)
}

fn up(hops: &[(u16, u16)]) -> Segment {
    Segment::new(false, hops)
}

/// All ways through the router, with what is written: segment identifiers and pointers.
fn cases() -> Vec<Case> {
    use End::{Host, Link};
    let of = End::Sibling;
    let peer = |forward, hops: &[_]| Segment::peering(forward, hops);
    vec![
        case(
            "link to link, down",
            Link(1),
            Link(2),
            &[down(&[(0, 7), (1, 2), (9, 0)])],
            1,
            |path| path.chained(0, 1).pointing(0, 2),
        ),
        case(
            "link to link, up",
            Link(2),
            Link(1),
            &[up(&[(9, 0), (1, 2), (0, 7)])],
            1,
            |path| path.chained(0, 1).pointing(0, 2),
        ),
        case(
            "link to link between cores",
            Link(4),
            Link(6),
            &[up(&[(9, 0), (6, 4), (0, 7)])],
            1,
            |path| path.chained(0, 1).pointing(0, 2),
        ),
        case(
            "up, then between cores",
            Link(2),
            Link(4),
            &[up(&[(9, 0), (0, 2)]), up(&[(4, 0), (7, 8), (0, 9)])],
            1,
            |path| path.chained(0, 1).pointing(1, 3),
        ),
        case(
            "up, then between cores in construction direction",
            Link(2),
            Link(4),
            &[up(&[(7, 0), (9, 8), (0, 2)]), down(&[(0, 4), (9, 0)])],
            2,
            |path| path.chained(0, 2).chained(1, 3).pointing(1, 4),
        ),
        case(
            "between cores in construction direction, then down",
            Link(4),
            Link(3),
            &[down(&[(0, 9), (4, 0)]), down(&[(0, 3), (9, 0)])],
            1,
            |path| path.chained(1, 2).pointing(1, 3),
        ),
        case(
            "up, then down",
            Link(2),
            Link(3),
            &[up(&[(9, 0), (1, 2)]), down(&[(1, 3), (9, 0)])],
            1,
            |path| path.chained(0, 1).chained(1, 2).pointing(1, 3),
        ),
        case(
            "up, core, then down at the third segment",
            Link(4),
            Link(2),
            &[
                up(&[(9, 0), (0, 8)]),
                up(&[(7, 0), (0, 4)]),
                down(&[(0, 2), (9, 0)]),
            ],
            3,
            |path| path.chained(1, 3).chained(2, 4).pointing(2, 5),
        ),
        case(
            "by a peering link",
            Link(2),
            Link(5),
            &[
                peer(false, &[(9, 0), (5, 2)]),
                peer(true, &[(6, 7), (9, 0)]),
            ],
            1,
            |path| path.pointing(1, 2),
        ),
        case(
            "from a peering link",
            Link(5),
            Link(2),
            &[
                peer(false, &[(9, 0), (7, 6)]),
                peer(true, &[(5, 2), (9, 0)]),
            ],
            2,
            |path| path.pointing(1, 3),
        ),
        case(
            "down behind a peering link",
            Link(1),
            Link(2),
            &[
                peer(false, &[(9, 0), (7, 6)]),
                peer(true, &[(8, 9), (1, 2), (9, 0)]),
            ],
            3,
            |path| path.chained(1, 3).pointing(1, 4),
        ),
        case(
            "up before a peering link",
            Link(2),
            Link(1),
            &[
                peer(false, &[(9, 0), (1, 2), (7, 6)]),
                peer(true, &[(8, 9), (9, 0)]),
            ],
            1,
            |path| path.chained(0, 1).pointing(0, 2),
        ),
        case(
            "one peering link between two segments of one hop",
            Link(2),
            Link(5),
            &[peer(false, &[(9, 0), (5, 2)]), peer(true, &[(6, 0)])],
            1,
            |path| path.pointing(1, 2),
        ),
        case(
            "link to sibling, down",
            Link(1),
            of(0),
            &[down(&[(0, 7), (1, 12), (9, 0)])],
            1,
            |path| path,
        ),
        case(
            "link to sibling, up",
            Link(2),
            of(1),
            &[up(&[(9, 0), (21, 2), (0, 7)])],
            1,
            |path| path.chained(0, 1),
        ),
        case(
            "up, then between cores by a sibling",
            Link(2),
            of(0),
            &[up(&[(9, 0), (0, 2)]), up(&[(14, 0), (0, 7)])],
            1,
            |path| path.chained(0, 1).pointing(1, 2),
        ),
        case(
            "up, then down by a sibling",
            Link(2),
            of(1),
            &[up(&[(9, 0), (0, 2)]), down(&[(0, 22), (9, 0)])],
            1,
            |path| path.chained(0, 1).pointing(1, 2),
        ),
        case(
            "by a peering link of a sibling",
            Link(2),
            of(0),
            &[
                peer(false, &[(9, 0), (15, 2)]),
                peer(true, &[(6, 7), (9, 0)]),
            ],
            1,
            |path| path,
        ),
        case(
            "sibling to link, down",
            of(0),
            Link(2),
            &[down(&[(0, 7), (11, 2), (9, 0)])],
            1,
            |path| path.chained(0, 1).pointing(0, 2),
        ),
        case(
            "sibling to link, up",
            of(0),
            Link(1),
            &[up(&[(9, 0), (1, 12), (0, 7)])],
            1,
            |path| path.pointing(0, 2),
        ),
        case(
            "sibling to link, of a path that the sibling has changed segments of",
            of(0),
            Link(3),
            &[up(&[(9, 0), (0, 12)]), down(&[(0, 3), (9, 0)])],
            2,
            |path| path.chained(1, 2).pointing(1, 3),
        ),
        case(
            "sibling to a peering link",
            of(0),
            Link(5),
            &[
                peer(false, &[(9, 0), (5, 12)]),
                peer(true, &[(6, 7), (9, 0)]),
            ],
            1,
            |path| path.pointing(1, 2),
        ),
        case(
            "from a peering link of a sibling",
            of(0),
            Link(2),
            &[
                peer(false, &[(9, 0), (7, 6)]),
                peer(true, &[(15, 2), (9, 0)]),
            ],
            2,
            |path| path.pointing(1, 3),
        ),
        case(
            "host to link, up",
            Host,
            Link(1),
            &[up(&[(1, 0), (0, 7)])],
            0,
            |path| path.pointing(0, 1),
        ),
        case(
            "host to link, down",
            Host,
            Link(2),
            &[down(&[(0, 2), (9, 0)])],
            0,
            |path| path.chained(0, 0).pointing(0, 1),
        ),
        case(
            "link to host, down",
            Link(1),
            Host,
            &[down(&[(0, 7), (1, 0)])],
            1,
            |path| path,
        ),
        case(
            "link to host, up",
            Link(2),
            Host,
            &[up(&[(9, 0), (0, 2)])],
            1,
            |path| path.chained(0, 1),
        ),
        case(
            "link to host at the end of a third segment",
            Link(1),
            Host,
            &[
                up(&[(9, 0), (0, 8)]),
                up(&[(7, 0), (0, 4)]),
                down(&[(0, 2), (1, 0)]),
            ],
            5,
            |path| path,
        ),
        case(
            "link of IPv6 to link of IPv6",
            Link(7),
            Link(8),
            &[down(&[(0, 7), (7, 8), (9, 0)])],
            1,
            |path| path.chained(0, 1).pointing(0, 2),
        ),
        case(
            "link of IPv6 to link of IPv4",
            Link(7),
            Link(2),
            &[down(&[(0, 7), (7, 2), (9, 0)])],
            1,
            |path| path.chained(0, 1).pointing(0, 2),
        ),
        case(
            "link of IPv4 to link of IPv6",
            Link(1),
            Link(8),
            &[down(&[(0, 7), (1, 8), (9, 0)])],
            1,
            |path| path.chained(0, 1).pointing(0, 2),
        ),
        case(
            "link of IPv6 to sibling",
            Link(7),
            of(0),
            &[down(&[(0, 7), (7, 12), (9, 0)])],
            1,
            |path| path,
        ),
        case(
            "sibling to link of IPv6",
            of(0),
            Link(7),
            &[up(&[(9, 0), (7, 12), (0, 7)])],
            1,
            |path| path.pointing(0, 2),
        ),
        case(
            "host to link of IPv6",
            Host,
            Link(7),
            &[up(&[(7, 0), (0, 7)])],
            0,
            |path| path.pointing(0, 1),
        ),
        case(
            "link of IPv6 to host",
            Link(7),
            Host,
            &[down(&[(0, 7), (7, 0)])],
            1,
            |path| path,
        ),
    ]
}

impl Case {
    fn packet(&self) -> Packet {
        let source = if matches!(self.from, End::Host) {
            LOCAL
        } else {
            FAR
        };
        let destination = if matches!(self.to, End::Host) {
            LOCAL
        } else {
            OTHER
        };
        Packet::new(source, destination, &self.path)
    }

    fn frame(&self, packet: &Packet) -> Vec<u8> {
        match self.from {
            End::Link(interface) => from_link(interface, &packet.bytes()),
            End::Sibling(place) => from_sibling(place, &packet.bytes()),
            End::Host => from_host(&packet.bytes()),
        }
    }

    /// What must come out of a packet with this path.
    fn sent(&self, packet: &Packet) -> Sent {
        let changed = Packet {
            path: (self.changed)(Wire(packet.path.clone())).0,
            ..packet.clone()
        };
        match self.to {
            End::Link(interface) => Sent::by_link(interface, changed.bytes()),
            End::Sibling(place) => Sent::to_sibling(place, changed.bytes()),
            End::Host => {
                let ip = packet.destination.1.ip().unwrap();
                Sent::to_host((ip, 31000).into(), changed.bytes())
            }
        }
    }

    const fn traffic(&self) -> Traffic {
        match (self.from, self.to) {
            (_, End::Host) => Traffic::In,
            (End::Host, _) => Traffic::Out,
            (_, End::Sibling(_)) => Traffic::InTransit,
            (End::Sibling(_), _) => Traffic::OutTransit,
            _ => Traffic::BrTransit,
        }
    }
}

#[test]
fn every_way_through_the_router_changes_what_it_must_and_nothing_else() {
    if !root_or_skip() {
        return;
    }
    let bed = Bed::new();
    for case in cases() {
        let packet = case.packet();
        bed.is_sent(
            case.that,
            &case.frame(&packet),
            case.sent(&packet),
            case.traffic(),
        );
    }
}

#[test]
fn hosts_of_packets_may_have_addresses_of_either_family() {
    if !root_or_skip() {
        return;
    }
    let bed = Bed::new();
    for case in cases() {
        for (source, destination) in [
            ("fd00:1::1", "fd00:2::1"),
            ("10.1.0.1", "fd00:2::1"),
            ("fd00:1::1", "10.2.0.1"),
        ] {
            let mut packet = case.packet();
            packet.source.1 = host(source);
            packet.destination.1 = host(destination);
            let frame = case.frame(&packet);
            let that = format!("{}, {source} to {destination}", case.that);
            if matches!(case.to, End::Host) && destination.contains(':') {
                // The internal address of the router is IPv4, so that it cannot send to the host itself.
                bed.passes(&that, &frame, Reason::NoFastWay);
            } else {
                bed.is_sent(&that, &frame, case.sent(&packet), case.traffic());
            }
        }
    }
}

#[test]
fn a_router_with_an_ipv6_address_inside_delivers_to_hosts_of_ipv6() {
    if !root_or_skip() {
        return;
    }
    let mut bed = Bed::new();
    let mut model = crate::router_bed::model();
    model.internal = "[fd00:2::9]:30001".parse().unwrap();
    bed.configure(model, 0);
    let path = Path::new(&[down(&[(0, 7), (1, 0)])], 1, true);
    let mut packet = Packet::new(FAR, LOCAL, &path);
    packet.destination.1 = host("fd00:2::1");
    let sent = Sent {
        source: "[fd00:2::9]:30001".parse().unwrap(),
        ..Sent::to_host("[fd00:2::1]:31000".parse().unwrap(), packet.bytes())
    };
    bed.is_sent(
        "from IPv4 to IPv6",
        &from_link(1, &packet.bytes()),
        sent,
        Traffic::In,
    );
    packet.path = Path::new(&[down(&[(0, 7), (7, 0)])], 1, true).bytes();
    let sent = Sent {
        source: "[fd00:2::9]:30001".parse().unwrap(),
        ..Sent::to_host("[fd00:2::1]:31000".parse().unwrap(), packet.bytes())
    };
    bed.is_sent(
        "all IPv6",
        &from_link(7, &packet.bytes()),
        sent,
        Traffic::In,
    );
}

#[test]
fn hop_fields_with_one_wrong_bit_are_never_forwarded() {
    if !root_or_skip() {
        return;
    }
    let bed = Bed::new();
    for case in cases() {
        let packet = case.packet();
        let current = usize::from(case.path.hop);
        let infos = case.path.segments.len();
        let hop = |hop: usize| 4 + 8 * infos + 12 * hop;
        // Of a change of segments both hop fields count.
        let mut hops = vec![current];
        let sent = case.sent(&packet);
        let pointer = usize::from(sent.scion[packet.path_offset()] & 0x3f);
        let is_change = match case.to {
            End::Link(_) => pointer == current + 2,
            End::Sibling(_) => pointer == current + 1,
            End::Host => false,
        };
        if is_change {
            hops.push(current + 1);
        }
        for number in hops {
            for bit in 0..48 {
                let mut forged = packet.clone();
                forged.path[hop(number) + 6 + bit / 8] ^= 1 << (bit % 8);
                let that = format!("{}, hop field {number}, bit {bit}", case.that);
                bed.passes(&that, &case.frame(&forged), Reason::InvalidMac);
            }
        }
    }
}

#[test]
fn verification_can_be_left_out_for_benchmarks_only_when_loading() {
    if !root_or_skip() {
        return;
    }
    let options = RouterOptions {
        forged_hops_pass_for_benchmarks: true,
    };
    let bed = Bed::with(Conditions::default(), options);
    for case in cases() {
        let packet = case.packet();
        bed.is_sent(
            case.that,
            &case.frame(&packet),
            case.sent(&packet),
            case.traffic(),
        );
        let mut forged = packet.clone();
        let last = 4 + 8 * case.path.segments.len() + 12 * usize::from(case.path.hop) + 11;
        forged.path[last] ^= 1;
        bed.is_sent(
            case.that,
            &case.frame(&forged),
            case.sent(&forged),
            case.traffic(),
        );
    }
}

#[test]
fn a_sender_inside_is_known_by_its_address() {
    if !root_or_skip() {
        return;
    }
    let bed = Bed::new();
    for case in cases() {
        if let End::Sibling(place) = case.from {
            let bytes = case.packet().bytes();
            bed.is_dropped(
                "another sibling",
                &from_sibling(1 - place, &bytes),
                Reason::TransitSource,
            );
            bed.is_dropped("a host", &from_host(&bytes), Reason::TransitSource);
        }
    }
}

/// What routers have got wrong. Each row goes through 99 times.
#[test]
fn known_mistakes_of_routers_are_not_made() {
    if !root_or_skip() {
        return;
    }
    let bed = Bed::new();
    let segment = Segment::new(true, &[(0, 7), (1, 2), (9, 0)]);
    let path = |segments: &[Segment], hop| Path::new(segments, hop, true);
    let valid = Packet::new(FAR, OTHER, &path(std::slice::from_ref(&segment), 1));
    let sent = Packet::new(FAR, OTHER, &path(std::slice::from_ref(&segment), 2));
    let changed = |change: &dyn Fn(&mut Packet)| {
        let mut packet = valid.clone();
        change(&mut packet);
        packet
    };
    let hosts = |packet: &Packet| {
        let mut packet = packet.clone();
        packet.source.1 = host("fd00:1::1");
        packet.destination.1 = host("fd00:2::1");
        packet
    };
    let expired = Segment {
        expiry: 0,
        timestamp: segment.timestamp - 3600,
        ..segment.clone()
    };
    let crossing = [up(&[(7, 0), (9, 8), (0, 2)]), down(&[(0, 3), (9, 0)])];
    let crossing = Packet::new(FAR, OTHER, &path(&crossing, 2));
    let crossed = Packet {
        path: Wire(crossing.path.clone())
            .chained(0, 2)
            .chained(1, 3)
            .pointing(1, 4)
            .0,
        ..crossing.clone()
    };
    let mut forged_second = crossing.clone();
    let second_mac = 4 + 2 * 8 + 3 * 12 + 6;
    forged_second.path[second_mac] ^= 0x80;
    let without_checksum = |mut frame: Vec<u8>| {
        frame[14 + 20 + 6..][..2].fill(0);
        frame
    };
    let padded = |mut frame: Vec<u8>| {
        frame.extend([0; 9]);
        frame
    };
    let by = |packet: &Packet| Sent::by_link(2, packet.bytes());
    let from = |packet: &Packet| from_link(1, &packet.bytes());
    for _ in 0..99 {
        for (that, frame, sent) in [
            ("valid", from(&valid), by(&sent)),
            (
                "crossover",
                from_link(2, &crossing.bytes()),
                Sent::by_link(3, crossed.bytes()),
            ),
            ("IPv6 hosts", from(&hosts(&valid)), by(&hosts(&sent))),
            (
                "no UDP checksum",
                without_checksum(from(&valid)),
                Sent {
                    unchecked: true,
                    ..by(&sent)
                },
            ),
            ("padding", padded(from(&valid)), by(&sent)),
        ] {
            bed.is_sent(that, &frame, sent, Traffic::BrTransit);
        }
        for (that, frame, reason) in [
            (
                "a bad MAC",
                from(&changed(&|p| p.path[30] ^= 1)),
                Reason::InvalidMac,
            ),
            (
                "an expired hop",
                from(&Packet::new(
                    FAR,
                    OTHER,
                    &path(std::slice::from_ref(&expired), 1),
                )),
                Reason::Expired,
            ),
            (
                "a forged second MAC at a crossover",
                from_link(2, &forged_second.bytes()),
                Reason::InvalidMac,
            ),
            (
                "a source of this AS from outside",
                from(&changed(&|p| p.source.0 = LOCAL)),
                Reason::SourceAddress,
            ),
            (
                "a router alert",
                from(&changed(&|p| p.path[24] = 2)),
                Reason::IngressAlert,
            ),
        ] {
            bed.passes(that, &frame, reason);
        }
    }
}
