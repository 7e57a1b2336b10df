//! The border router's fast path and the underlay: whose frames are its own, and what frames it makes. The real program, run by
//! the kernel.
#![cfg(feature = "xdp")]

mod support;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use sig::kernel::bpf::RouterOptions;
use sig::router::fast;
use sig_common::router::Reason;
use sig_common::router::maps::Traffic;
use sig_common::wire::ethernet::{self, Tag};
use support::netns::root_or_skip;
use support::router::{
    Bed, Conditions, FAR, Fate, LOCAL, OTHER, Packet, Path, Segment, Sent, frame, frame_with_tags,
    from_host, from_link, host, internal, local_of, remote_of,
};

const IP: usize = 14;

/// A packet by a link to another, and what it has become behind the router.
fn transit(ingress: u16, egress: u16) -> (Packet, Packet) {
    let mut segment = Segment::new(true, &[(0, 7), (ingress, egress), (9, 0)]);
    segment.beta = 0x4321;
    let path = |hop| Path::new(std::slice::from_ref(&segment), hop, true);
    (
        Packet::new(FAR, OTHER, &path(1)),
        Packet::new(FAR, OTHER, &path(2)),
    )
}

fn inbound() -> Packet {
    let path = Path::new(&[Segment::new(true, &[(0, 7), (1, 0)])], 1, true);
    Packet::new(FAR, LOCAL, &path)
}

fn tag(number: u16) -> Tag {
    Tag {
        tpid: ethernet::TPID_8021Q,
        tci: number,
    }
}

#[test]
fn frames_for_others_are_not_touched_and_not_counted() {
    if !root_or_skip() {
        return;
    }
    let bed = Bed::new();
    let (packet, _) = transit(1, 2);
    let frame = from_link(1, &packet.bytes());
    let with = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut frame = frame.clone();
        change(&mut frame);
        frame
    };
    let to = |address: &str, bytes: &[u8]| {
        support::router::frame(remote_of(1), address.parse().unwrap(), bytes)
    };
    let (v6, _) = transit(7, 8);
    let v6 = from_link(7, &v6.bytes());
    let with_v6 = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut frame = v6.clone();
        change(&mut frame);
        frame
    };
    let mapped = "::ffff:192.168.1.1"
        .parse::<std::net::Ipv6Addr>()
        .unwrap()
        .octets();
    for (that, frame) in [
        ("another address", to("192.168.1.9:50000", &packet.bytes())),
        ("another port", to("192.168.1.1:50001", &packet.bytes())),
        ("ARP", with(&|f| f[12..14].copy_from_slice(&[8, 6]))),
        ("not even Ethernet", frame[..14].to_vec()),
        ("half an IP header", frame[..30].to_vec()),
        ("TCP", with(&|f| f[IP + 9] = 6)),
        ("IPv4 of version 5", with(&|f| f[IP] = 0x55)),
        ("a short IPv4 header", with(&|f| f[IP] = 0x44)),
        ("a first fragment", with(&|f| f[IP + 6] = 0x20)),
        ("a later fragment", with(&|f| f[IP + 7] = 1)),
        (
            "IPv4 longer than the frame",
            with(&|f| f[IP + 2..IP + 4].copy_from_slice(&[5, 0])),
        ),
        (
            "UDP longer than IPv4",
            with(&|f| f[IP + 24..IP + 26].copy_from_slice(&[5, 0])),
        ),
        (
            "UDP shorter than its header",
            with(&|f| f[IP + 24..IP + 26].copy_from_slice(&[0, 7])),
        ),
        ("IPv6 of version 4", with_v6(&|f| f[IP] = 0x40)),
        ("IPv6 with extension headers", with_v6(&|f| f[IP + 6] = 0)),
        (
            "IPv6 longer than the frame",
            with_v6(&|f| f[IP + 4..IP + 6].copy_from_slice(&[5, 0])),
        ),
        (
            "IPv6 to an IPv4 endpoint",
            with_v6(&|f| {
                f[IP + 24..IP + 40].copy_from_slice(&mapped);
            }),
        ),
        ("three VLAN tags", {
            let mut tagged = frame_with_tags(
                remote_of(1),
                local_of(1),
                &packet.bytes(),
                [Some(tag(1)), Some(tag(2))],
            );
            tagged.splice(12..12, [0x81, 0, 0, 3]);
            tagged
        }),
    ] {
        bed.is_ignored(that, &frame);
    }
    let (bytes, endpoint) = (packet.bytes(), local_of(1));
    assert!(matches!(
        bed.fate(&support::router::frame(remote_of(1), endpoint, &bytes)),
        Fate::Sent(..)
    ));
}

#[test]
fn before_it_is_configured_the_program_touches_nothing() {
    if !root_or_skip() {
        return;
    }
    let programs = sig::kernel::bpf::RouterPrograms::load(RouterOptions::default()).unwrap();
    let frame = from_link(1, &transit(1, 2).0.bytes());
    let outcome = programs.test_run(&frame, None).unwrap();
    assert_eq!(
        (outcome.action, outcome.frame),
        (support::bpf::XDP_PASS, frame)
    );
}

#[test]
fn ip_options_and_a_spent_ttl_are_no_obstacle() {
    if !root_or_skip() {
        return;
    }
    let bed = Bed::new();
    let (packet, sent) = transit(1, 2);
    let plain = from_link(1, &packet.bytes());
    for words in 0..=10u8 {
        let mut frame = plain.clone();
        frame[IP] = 0x45 + words;
        frame[IP + 8] = 1;
        let options = usize::from(words) * 4;
        frame.splice(IP + 20..IP + 20, vec![1; options]);
        let len = (frame.len() - IP) as u16;
        frame[IP + 2..IP + 4].copy_from_slice(&len.to_be_bytes());
        let sent = Sent::by_link(2, sent.bytes());
        bed.is_sent(
            &format!("{words} words of options"),
            &frame,
            sent,
            Traffic::BrTransit,
        );
    }
}

#[test]
fn padding_behind_the_datagram_is_cut_off() {
    if !root_or_skip() {
        return;
    }
    let bed = Bed::new();
    for (ingress, egress) in [(1, 2), (7, 8), (7, 2), (1, 8)] {
        let (packet, sent) = transit(ingress, egress);
        for padding in [1, 2, 7, 40] {
            let mut frame = from_link(ingress, &packet.bytes());
            frame.extend(vec![0xaa; padding]);
            let that = format!("{ingress} to {egress}, {padding} bytes");
            bed.is_sent(
                &that,
                &frame,
                Sent::by_link(egress, sent.bytes()),
                Traffic::BrTransit,
            );
        }
    }
    let mut passed = from_link(3, &transit(1, 2).0.bytes());
    passed.extend([0xaa; 7]);
    bed.passes("what passes keeps it", &passed, Reason::IngressInterface);
}

#[test]
fn a_datagram_without_checksum_leaves_without_one_as_far_as_ip_allows() {
    if !root_or_skip() {
        return;
    }
    let bed = Bed::new();
    let without = |mut frame: Vec<u8>, at: usize| {
        frame[at + 6..at + 8].fill(0);
        frame
    };
    let (packet, sent) = transit(1, 2);
    let frame = without(from_link(1, &packet.bytes()), IP + 20);
    let sent = Sent {
        unchecked: true,
        ..Sent::by_link(2, sent.bytes())
    };
    bed.is_sent("IPv4", &frame, sent, Traffic::BrTransit);
    let (packet, _) = transit(1, 8);
    let frame = without(from_link(1, &packet.bytes()), IP + 20);
    bed.passes("IPv4 to IPv6", &frame, Reason::FamilyChange);
    for egress in [2, 8] {
        let (packet, _) = transit(7, egress);
        let frame = without(from_link(7, &packet.bytes()), IP + 40);
        bed.is_dropped("IPv6", &frame, Reason::NoChecksum);
    }
    let packet = inbound();
    let frame = without(from_link(1, &packet.bytes()), IP + 20);
    let sent = Sent {
        unchecked: true,
        ..Sent::to_host("10.2.0.1:31000".parse().unwrap(), packet.bytes())
    };
    bed.is_sent("to a host", &frame, sent, Traffic::In);
}

#[test]
fn every_checksum_is_carried_over_right() {
    if !root_or_skip() {
        return;
    }
    let bed = Bed::new();
    // One word of the payload moves the checksum through all its range.
    for (ingress, egress) in [(1, 2), (7, 8), (7, 2), (1, 8)] {
        let (mut packet, mut sent) = transit(ingress, egress);
        for word in (0..=u16::MAX).step_by(251).chain([0xfffe, 0xffff]) {
            packet.payload[8..10].copy_from_slice(&word.to_be_bytes());
            sent.payload = packet.payload.clone();
            let frame = from_link(ingress, &packet.bytes());
            let outcome = bed
                .netns
                .run(|| bed.programs.test_run(&frame, None))
                .unwrap();
            let found = Sent::read(&outcome.frame);
            assert!(!found.unchecked, "{word:#x}");
            assert_eq!(found.scion, sent.bytes());
        }
    }
}

#[test]
fn vlan_tags_stay_are_set_or_go_as_the_next_hop_says() {
    if !root_or_skip() {
        return;
    }
    let tags = |numbers: &[u16]| -> [Option<Tag>; 2] {
        [
            numbers.first().map(|n| tag(*n)),
            numbers.get(1).map(|n| tag(*n)),
        ]
    };
    let bytes = |numbers: &[u16]| -> Vec<[u8; 4]> {
        numbers
            .iter()
            .map(|n| [0x81, 0, (n >> 8) as u8, *n as u8])
            .collect()
    };
    let mut bed = Bed::new();
    for (set, kept) in [(None, false), (Some(300), false), (None, true)] {
        bed.conditions.vlan = set;
        bed.configure(support::router::model(), 0);
        if kept {
            for interface in [2, 8] {
                bed.programs
                    .update_interface(interface, |link| link.next_hop.vlan = 0)
                    .unwrap();
            }
        }
        for numbers in [&[][..], &[10], &[10, 20]] {
            let expected = match set {
                Some(number) => bytes(&[number]),
                None if kept => bytes(numbers),
                None => Vec::new(),
            };
            for (ingress, egress) in [(1, 2), (7, 8), (7, 2), (1, 8)] {
                let (packet, sent) = transit(ingress, egress);
                let frame = frame_with_tags(
                    remote_of(ingress),
                    local_of(ingress),
                    &packet.bytes(),
                    tags(numbers),
                );
                let sent = Sent {
                    tags: expected.clone(),
                    ..Sent::by_link(egress, sent.bytes())
                };
                let that = format!("{ingress} to {egress}, {numbers:?}, {set:?}, {kept}");
                bed.is_sent(&that, &frame, sent, Traffic::BrTransit);
            }
        }
        // Devices that hosts are behind have no tags.
        let packet = inbound();
        let frame = frame_with_tags(remote_of(1), local_of(1), &packet.bytes(), tags(&[10]));
        let sent = Sent::to_host("10.2.0.1:31000".parse().unwrap(), packet.bytes());
        bed.is_sent("to a host", &frame, sent, Traffic::In);
    }
}

#[test]
fn a_device_that_is_not_for_forwarding_is_left_to_the_kernel() {
    if !root_or_skip() {
        return;
    }
    let conditions = Conditions {
        ifindex: 4711,
        ..Conditions::default()
    };
    let mut bed = Bed::with(conditions, RouterOptions::default());
    let frame = from_link(1, &transit(1, 8).0.bytes());
    bed.passes("an unknown device", &frame, Reason::NoFastWay);
    let hosts = bed.netns.run(|| support::router::index_of("hosts"));
    bed.programs.remove_device(hosts).unwrap();
    bed.programs.remove_device(hosts).unwrap();
    bed.passes(
        "a device of hosts",
        &from_link(1, &inbound().bytes()),
        Reason::NoFastWay,
    );
}

#[test]
fn without_forwarding_in_the_kernel_hosts_are_left_to_it() {
    if !root_or_skip() {
        return;
    }
    let bed = Bed::new();
    bed.netns
        .run(|| std::fs::write("/proc/sys/net/ipv4/conf/lo/forwarding", "0").unwrap());
    bed.passes(
        "to a host",
        &from_link(1, &inbound().bytes()),
        Reason::NoFastWay,
    );
    assert!(matches!(
        bed.fate(&from_link(1, &transit(1, 2).0.bytes())),
        Fate::Sent(..)
    ));
}

#[test]
fn the_mtu_is_that_of_the_link_and_of_the_device() {
    if !root_or_skip() {
        return;
    }
    for (device, largest_v4, largest_v6) in [(1500, 1400, 1400), (1000, 972, 952), (0, 1400, 1400)]
    {
        let conditions = Conditions {
            mtu: device,
            ..Conditions::default()
        };
        let bed = Bed::with(conditions, RouterOptions::default());
        for (egress, largest) in [(2, largest_v4), (8, largest_v6)] {
            let (mut packet, _) = transit(1, egress);
            let header = packet.bytes().len() - packet.payload.len();
            packet.payload.resize(largest - header, 0);
            let fate = bed.fate(&from_link(1, &packet.bytes()));
            assert!(
                matches!(fate, Fate::Sent(..)),
                "{device}, {egress}: {fate:?}"
            );
            packet.payload.push(0);
            bed.passes(
                "one byte more",
                &from_link(1, &packet.bytes()),
                Reason::TooBig,
            );
        }
    }
}

#[test]
fn a_new_configuration_is_in_force_as_a_whole_and_the_old_one_gone() {
    if !root_or_skip() {
        return;
    }
    let mut bed = Bed::new();
    let (packet, sent) = transit(1, 2);
    let frame = from_link(1, &packet.bytes());
    for round in 0..5 {
        bed.is_sent(
            "before",
            &frame,
            Sent::by_link(2, sent.bytes()),
            Traffic::BrTransit,
        );
        let mut other = support::router::model();
        other.isd_as = OTHER;
        other.interfaces.remove(&2);
        bed.configure(other, 0);
        let fate = bed.fate(&frame);
        assert_ne!(
            fate,
            Fate::Passed(Reason::EgressInterface),
            "the AS has changed as well"
        );
        assert_eq!(
            fate,
            Fate::Passed(Reason::DestinationAddress),
            "round {round}"
        );
        bed.is_ignored("an endpoint that is gone", &from_link(2, &packet.bytes()));
        bed.configure(support::router::model(), 0);
    }
    // More than the maps hold changes nothing.
    let mut tables = fast::tables(&support::router::model(), &bed.conditions, &bed.slots, 0);
    let (_, interface) = tables.interfaces.iter().next().unwrap();
    let interface = *interface;
    tables.interfaces = (1..=u16::MAX)
        .map(|number| (number, interface))
        .collect::<BTreeMap<_, _>>();
    bed.programs.set(&tables).unwrap_err();
    bed.is_sent(
        "after an error",
        &frame,
        Sent::by_link(2, sent.bytes()),
        Traffic::BrTransit,
    );
    bed.configure(support::router::model(), 0);
    bed.is_sent(
        "after the next one",
        &frame,
        Sent::by_link(2, sent.bytes()),
        Traffic::BrTransit,
    );
}

#[test]
fn packets_are_counted_by_link_and_size() {
    if !root_or_skip() {
        return;
    }
    let bed = Bed::new();
    let slot = |interface| bed.slots.of(interface);
    let mut expected_bytes = 0;
    for len in [0, 100, 1000] {
        let (mut packet, _) = transit(1, 2);
        packet.payload.resize(len, 0);
        expected_bytes += packet.bytes().len() as u64;
        let fate = bed.fate(&from_link(1, &packet.bytes()));
        assert!(
            matches!(fate, Fate::Sent(_, Traffic::BrTransit, at) if at == slot(2)),
            "{fate:?}"
        );
    }
    for (interface, traffic) in [(1, Traffic::Input), (2, Traffic::BrTransit)] {
        let counted = bed.programs.traffic(slot(interface)).unwrap();
        let total = counted.total(traffic);
        assert_eq!((total.packets, total.bytes), (3, expected_bytes));
        let classes: Vec<_> = (0..9)
            .filter(|class| counted.of_size(traffic, *class).packets == 1)
            .collect();
        assert_eq!(classes, [1, 2, 5]);
    }
    let out = Path::new(&[Segment::new(false, &[(1, 0), (0, 7)])], 0, false);
    let out = Packet::new(LOCAL, FAR, &out);
    assert!(
        matches!(bed.fate(&from_host(&out.bytes())), Fate::Sent(_, Traffic::Out, at) if at == slot(1))
    );
    assert_eq!(
        bed.programs
            .traffic(0)
            .unwrap()
            .total(Traffic::Input)
            .packets,
        1
    );
    let fate = bed.fate(&from_link(2, &transit(1, 2).0.bytes()));
    assert_eq!(fate, Fate::Passed(Reason::IngressInterface));
    assert_eq!(
        bed.programs
            .reasons(slot(2))
            .unwrap()
            .of(Reason::IngressInterface),
        1
    );
    assert_eq!(
        bed.programs
            .reasons(slot(1))
            .unwrap()
            .of(Reason::IngressInterface),
        0
    );
}

#[test]
fn strangers_at_the_internal_address_are_hosts() {
    if !root_or_skip() {
        return;
    }
    let bed = Bed::new();
    let path = Path::new(&[Segment::new(false, &[(1, 0), (0, 7)])], 0, false);
    let mut packet = Packet::new(LOCAL, FAR, &path);
    packet.source.1 = host("10.77.0.1");
    let stranger: SocketAddr = "172.16.0.1:30042".parse().unwrap();
    let fate = bed.fate(&frame(stranger, internal(), &packet.bytes()));
    assert!(matches!(fate, Fate::Sent(_, Traffic::Out, _)), "{fate:?}");
}
