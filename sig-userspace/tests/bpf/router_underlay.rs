//! The border router's fast path and the underlay: whose frames are its own, and what frames it makes. The real program, run by
//! the kernel.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use crate::router_bed::{
    Bed, Conditions, FAR, Fate, LOCAL, OTHER, Packet, Path, Segment, Sent, frame_with_tags,
    from_host, from_link, internal, local_of, remote_of, sibling,
};
use crate::support::netns::root_or_skip;
use sig_common::router::Reason;
use sig_common::router::maps::{Sender, Traffic};
use sig_common::wire::ethernet::{self, Tag};
use sig_common::wire::scion::{NEXT_BFD, NEXT_END_TO_END, NEXT_HOP_BY_HOP, NEXT_SCMP};
use sig_common::wire::{PROTO_UDP, checksum};
use sig_linux::bpf::RouterOptions;
use sig_router::fast;

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
        crate::router_bed::frame(remote_of(1), address.parse().unwrap(), bytes)
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
        bed.fate(&crate::router_bed::frame(remote_of(1), endpoint, &bytes)),
        Fate::Sent(..)
    ));
}

#[test]
fn before_it_is_configured_the_program_touches_nothing() {
    if !root_or_skip() {
        return;
    }
    let programs = sig_linux::bpf::RouterPrograms::load(RouterOptions::default()).unwrap();
    let frame = from_link(1, &transit(1, 2).0.bytes());
    let outcome = programs.test_run(&frame, None).unwrap();
    assert_eq!(
        (outcome.action, outcome.frame),
        (crate::frames::XDP_PASS, frame)
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

/// A VLAN as maps have it.
fn vlan(number: u16) -> u32 {
    fast::map_tag(tag(number))
}

#[test]
fn packets_get_the_vlans_of_the_next_hop_and_keep_their_priority() {
    if !root_or_skip() {
        return;
    }
    let mut bed = Bed::new();
    bed.conditions.vlans = vec![[0; 2], [vlan(10), 0], [vlan(10), vlan(20)]];
    let service_tag = Tag {
        tpid: ethernet::TPID_8021AD,
        tci: 300,
    };
    let hosts = bed.netns.run(|| crate::router_bed::index_of("hosts"));
    for (egress, bytes) in [
        ([0; 2], vec![]),
        ([vlan(300), 0], vec![[0x81, 0, 1, 44]]),
        (
            [fast::map_tag(service_tag), vlan(20)],
            vec![[0x88, 0xa8, 1, 44], [0x81, 0, 0, 20]],
        ),
    ] {
        bed.conditions.tags = egress;
        bed.configure(crate::router_bed::model(), 0);
        let sender = Sender {
            tags: egress,
            fragments: 0,
        };
        bed.programs.add_sender(hosts, hosts, sender).unwrap();
        for numbers in [&[][..], &[0], &[10], &[10, 20], &[0, 10]] {
            for priority in [0, 0xa000] {
                let tags: Vec<_> = numbers
                    .iter()
                    .map(|number| tag(number | priority))
                    .collect();
                let tags = [tags.first().copied(), tags.get(1).copied()];
                let mut bytes = bytes.clone();
                if !numbers.is_empty() {
                    for tag in &mut bytes {
                        tag[2] |= (priority >> 8) as u8;
                    }
                }
                for (ingress, egress) in [(1, 2), (7, 8), (7, 2), (1, 8)] {
                    let (packet, sent) = transit(ingress, egress);
                    let frame = frame_with_tags(
                        remote_of(ingress),
                        local_of(ingress),
                        &packet.bytes(),
                        tags,
                    );
                    let sent = Sent {
                        tags: bytes.clone(),
                        ..Sent::by_link(egress, sent.bytes())
                    };
                    let that = format!("{ingress} to {egress}, {tags:?}, {egress:?}");
                    bed.is_sent(&that, &frame, sent, Traffic::BrTransit);
                }
                let packet = inbound();
                let frame = frame_with_tags(remote_of(1), local_of(1), &packet.bytes(), tags);
                let sent = Sent {
                    tags: bytes,
                    ..Sent::to_host("10.2.0.1:31000".parse().unwrap(), packet.bytes())
                };
                bed.is_sent("to a host", &frame, sent, Traffic::In);
            }
        }
    }
}

/// Frames of a packet: untagged, and in VLANs 10, 20 and 30.
fn in_vlans(source: SocketAddr, destination: SocketAddr, bytes: &[u8]) -> [Vec<u8>; 4] {
    [None, Some(tag(10)), Some(tag(20)), Some(tag(30))]
        .map(|tag| frame_with_tags(source, destination, bytes, [tag, None]))
}

#[test]
fn addresses_are_open_on_their_own_devices_and_vlans_alone() {
    if !root_or_skip() {
        return;
    }
    let mut bed = Bed::new();
    bed.conditions.vlans = vec![[0; 2], [vlan(10), 0], [vlan(20), 0]];
    bed.conditions.places = BTreeMap::from([
        (internal(), Some(vec![[vlan(10), 0]])),
        (local_of(1), Some(vec![[vlan(20), 0]])),
        (local_of(2), None),
    ]);
    bed.configure(crate::router_bed::model(), 0);

    // A neighbour, or any stranger beside it, poses as a host of the AS.
    let path = Path::new(&[Segment::new(false, &[(1, 0), (0, 7)])], 0, false);
    let out = Packet::new(LOCAL, FAR, &path).bytes();
    for source in ["10.2.0.1:30042", "172.16.0.1:30042"] {
        let [untagged, own, other, unknown] = in_vlans(source.parse().unwrap(), internal(), &out);
        for frame in [&untagged, &other] {
            bed.is_dropped("at the inside", frame, Reason::WrongDevice);
        }
        bed.is_ignored("a VLAN that is not ours", &unknown);
        let fate = bed.fate(&own);
        assert!(matches!(fate, Fate::Sent(_, Traffic::Out, _)), "{fate:?}");
        let mut flooded = own.clone();
        flooded[5] ^= 1;
        bed.is_ignored("for another MAC address", &flooded);
    }

    // A tenant of another VLAN poses as the neighbour.
    let (packet, _) = transit(1, 2);
    let [untagged, other, own, unknown] = in_vlans(remote_of(1), local_of(1), &packet.bytes());
    for frame in [&untagged, &other] {
        bed.is_dropped("on a link", frame, Reason::WrongDevice);
    }
    bed.is_ignored("a VLAN that is not ours", &unknown);
    let fate = bed.fate(&own);
    assert!(matches!(fate, Fate::Sent(..)), "{fate:?}");

    // An address that is on no device in particular.
    let (packet, _) = transit(2, 1);
    let [all @ .., unknown] = in_vlans(remote_of(2), local_of(2), &packet.bytes());
    for frame in &all {
        let fate = bed.fate(frame);
        assert!(matches!(fate, Fate::Sent(..)), "{fate:?}");
        let mut flooded = frame.clone();
        flooded[5] ^= 1;
        bed.is_ignored("for another MAC address", &flooded);
    }
    bed.is_ignored("a VLAN that is not ours", &unknown);
}

/// Its packets need not come the way that ours go to it, nor does its BFD.
#[test]
fn a_sibling_is_known_by_whichever_device_of_the_inside_it_comes() {
    if !root_or_skip() {
        return;
    }
    let mut bed = Bed::new();
    bed.conditions.vlans = vec![[0; 2], [vlan(10), 0]];
    bed.configure(crate::router_bed::model(), 0);
    let segment = Segment::new(true, &[(0, 7), (11, 2), (9, 0)]);
    let packet = Packet::new(FAR, OTHER, &Path::new(&[segment], 1, false));
    let [untagged, tagged, ..] = in_vlans(sibling(0), internal(), &packet.bytes());
    for frame in [&untagged, &tagged] {
        let fate = bed.fate(frame);
        assert!(
            matches!(fate, Fate::Sent(_, Traffic::OutTransit, _)),
            "{fate:?}"
        );
    }
    let bfd = Packet {
        path_type: 0,
        path: Vec::new(),
        next_header: NEXT_BFD,
        payload: vec![0; 24],
        ..packet
    };
    let [untagged, tagged, ..] = in_vlans(sibling(0), internal(), &bfd.bytes());
    for frame in [&untagged, &tagged] {
        bed.passes("BFD", frame, Reason::Bfd);
    }
}

#[test]
fn frames_in_several_buffers_are_forwarded_and_counted_like_others() {
    if !root_or_skip() {
        return;
    }
    let mut bed = Bed::new();
    let mut model = crate::router_bed::model();
    model.mtu = 9000;
    for interface in model.interfaces.values_mut() {
        interface.mtu = 9000;
    }
    bed.conditions.mtu = 9000;
    bed.configure(model.clone(), 0);
    // The first buffer of a test run holds about 3500 bytes.
    for len in [3300, 3400, 3500, 3600, 5000, 8800] {
        for (ingress, egress) in [(1, 2), (7, 8), (7, 2), (1, 8)] {
            let (mut packet, mut sent) = transit(ingress, egress);
            packet.payload.resize(len, 0xa5);
            sent.payload.clone_from(&packet.payload);
            let that = format!("{ingress} to {egress}, {len} bytes");
            bed.is_sent(
                &that,
                &from_link(ingress, &packet.bytes()),
                Sent::by_link(egress, sent.bytes()),
                Traffic::BrTransit,
            );
            let mut forged = packet.clone();
            forged.path[30] ^= 1;
            let forged = from_link(ingress, &forged.bytes());
            bed.passes(&that, &forged, Reason::InvalidMac);
            let mut short = from_link(ingress, &packet.bytes());
            short.pop();
            bed.is_ignored("one byte is missing", &short);
        }
    }
    // What says which port gets the packet is in the second buffer: the slow path sees it.
    let extension = |next| {
        let mut header = vec![next, 255];
        header.resize(1024, 0);
        header
    };
    let mut quote = inbound();
    quote.path.resize(900, 0);
    quote.next_header = NEXT_HOP_BY_HOP;
    quote.payload = [extension(PROTO_UDP), vec![0x7d; 8]].concat();
    let quote = [vec![1; 8], quote.bytes()].concat();
    let behind = |next, payload: Vec<u8>| {
        let mut packet = inbound();
        packet.next_header = NEXT_HOP_BY_HOP;
        packet.payload = [extension(NEXT_END_TO_END), extension(next), payload].concat();
        packet.payload.resize(6000, 0);
        from_link(1, &packet.bytes())
    };
    let far = behind(NEXT_SCMP, quote);
    bed.passes("a port in the next buffer", &far, Reason::NoFastWay);
    bed.conditions.fragments = false;
    bed.configure(model, 0);
    let (mut packet, _) = transit(1, 2);
    packet.payload.resize(5000, 0);
    let frame = from_link(1, &packet.bytes());
    bed.passes(
        "to a device that sends no such frames",
        &frame,
        Reason::NoFastWay,
    );
}

#[test]
fn a_checksum_that_is_still_to_be_made_is_left_to_the_kernel() {
    if !root_or_skip() {
        return;
    }
    let bed = Bed::new();
    let open = |mut frame: Vec<u8>, addresses: std::ops::Range<usize>, udp: usize| {
        let len: [u8; 2] = frame[udp + 4..udp + 6].try_into().unwrap();
        let pseudo = checksum::Sum::of(&frame[addresses])
            .add_bytes(&[0, PROTO_UDP])
            .add_bytes(&len);
        frame[udp + 6..udp + 8].copy_from_slice(&pseudo.fold().to_be_bytes());
        frame
    };
    for egress in [2, 8] {
        let frame = from_link(1, &transit(1, egress).0.bytes());
        let frame = open(frame, IP + 12..IP + 20, IP + 20);
        bed.passes("IPv4", &frame, Reason::OpenChecksum);
        let frame = from_link(7, &transit(7, egress).0.bytes());
        let frame = open(frame, IP + 8..IP + 40, IP + 40);
        bed.passes("IPv6", &frame, Reason::OpenChecksum);
    }
    let frame = open(from_link(1, &inbound().bytes()), IP + 12..IP + 20, IP + 20);
    bed.passes("to a host", &frame, Reason::OpenChecksum);
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
    let hosts = bed.netns.run(|| crate::router_bed::index_of("hosts"));
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
    let forwarding = |device: &str, value| {
        let file = format!("/proc/sys/net/ipv4/conf/{device}/forwarding");
        bed.netns.run(|| std::fs::write(file, value).unwrap());
    };
    // No device that packets come in by needs it.
    for device in ["all", "default", "hosts"] {
        forwarding(device, "0");
    }
    forwarding("lo", "1");
    let fate = bed.fate(&from_link(1, &inbound().bytes()));
    assert!(matches!(fate, Fate::Sent(_, Traffic::In, _)), "{fate:?}");
    forwarding("lo", "0");
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
        let mut other = crate::router_bed::model();
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
        bed.configure(crate::router_bed::model(), 0);
    }
    // More than the maps hold changes nothing.
    let spread = fast::Spread::default();
    let mut tables = fast::tables(
        &crate::router_bed::model(),
        &bed.conditions,
        &bed.slots,
        spread,
    );
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
    bed.configure(crate::router_bed::model(), 0);
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
