//! Hop fields whose MACs the reference has computed.

use sig_common::{
    addr::IsdAs,
    wire::scion::path::{Meta, SCION},
};
use sig_core::scion::{
    HopKey,
    packet::{self, Addresses},
};
use sig_router::forward::{AllUp, Ingress, Outcome, Reason, Router, Traffic, Verdict};

use crate::router_support::asys::{A, B, FROM, LOCAL, NOW, T, TO, address, model};

/// The hop fields of a segment of three ASes with the keys `11..`, `22..` and `33..`, in construction direction; the
/// segment identifiers that they were made with are 0x1234, 0x24f0, 0xb05a.
const SEGMENT: [[u8; 12]; 3] = [
    [0, 63, 0, 0, 0, 1, 0x36, 0xc4, 0x7f, 0xc6, 0x0c, 0x5c],
    [0, 63, 0, 1, 0, 2, 0x94, 0xaa, 0xcc, 0x16, 0xfd, 0x71],
    [0, 63, 0, 1, 0, 0, 0x4e, 0x75, 0xbd, 0x76, 0xb4, 0x6c],
];

/// The second AS's hop field at its link 5 to a peer.
const PEER: [u8; 12] = [0, 63, 0, 5, 0, 2, 0xc0, 0x30, 0xb7, 0x47, 0x53, 0x1d];

/// Offset of the path in packets between IPv4 hosts.
const PATH: usize = 12 + 24;

/// A datagram with a path of this many hops of the first segment, all others in the second.
fn datagram(
    (source, destination): (IsdAs, IsdAs),
    infos: &[(u8, u16)],
    first: u8,
    hops: &[[u8; 12]],
    current: (u8, u8),
) -> Vec<u8> {
    let meta = Meta {
        current_info: current.0,
        current_hop: current.1,
        segments: [first, hops.len() as u8 - first, 0],
    };
    let mut path = meta.encode().to_vec();
    for (flags, segment_id) in infos {
        path.extend([*flags, 0]);
        path.extend(segment_id.to_be_bytes());
        path.extend(T.to_be_bytes());
    }
    path.extend(hops.as_flattened());
    let addresses = Addresses {
        source: (source, FROM, 32000),
        destination: (destination, TO, 31000),
    };
    packet::udp(&addresses, SCION, &path, b"payload").expect("a packet")
}

fn down(isd_ases: (IsdAs, IsdAs), segment_id: u16, current: u8) -> Vec<u8> {
    datagram(isd_ases, &[(1, segment_id)], 3, &SEGMENT, (0, current))
}

fn up(isd_ases: (IsdAs, IsdAs), segment_id: u16, current: u8) -> Vec<u8> {
    let [first, second, third] = SEGMENT;
    let hops = [third, second, first];
    datagram(isd_ases, &[(0, segment_id)], 3, &hops, (0, current))
}

/// Runs a packet through a router of the AS with this key.
fn process(key: u8, packet: &mut [u8], interface: u16) -> Outcome {
    let mut model = model();
    model.key = HopKey::new([key; 16]);
    let router = Router::new(model.into());
    router.process(packet, Ingress::External(interface), NOW, &AllUp)
}

fn segment_id(packet: &[u8]) -> u16 {
    u16::from_be_bytes([packet[PATH + 6], packet[PATH + 7]])
}

#[test]
fn a_packet_down_a_segment_leaves_with_the_next_segment_identifier() {
    let mut packet = down((A, B), 0x24f0, 1);
    let outcome = process(b'2', &mut packet, 1);
    assert_eq!(outcome.verdict, Verdict::Forward { interface: 2 });
    assert_eq!(outcome.traffic, Some(Traffic::BrTransit));
    assert_eq!((outcome.reason, outcome.fast), (None, None));
    assert_eq!((packet[PATH], segment_id(&packet)), (2, 0xb05a));
}

#[test]
fn a_packet_up_a_segment_takes_a_mac_off_the_segment_identifier() {
    let mut packet = up((B, A), 0xb05a, 1);
    let outcome = process(b'2', &mut packet, 2);
    assert_eq!(outcome.verdict, Verdict::Forward { interface: 1 });
    assert_eq!((packet[PATH], segment_id(&packet)), (2, 0x24f0));
}

#[test]
fn the_last_as_delivers_without_moving_the_pointers() {
    let host = Verdict::Deliver(address("10.2.0.1:31000"));
    let mut packet = up((B, LOCAL), 0x24f0, 2);
    assert_eq!(process(b'1', &mut packet, 1).verdict, host);
    assert_eq!((packet[PATH], segment_id(&packet)), (2, 0x1234));

    let mut packet = down((A, LOCAL), 0xb05a, 2);
    assert_eq!(process(b'3', &mut packet, 1).verdict, host);
    assert_eq!((packet[PATH], segment_id(&packet)), (2, 0xb05a));
}

#[test]
fn a_peering_hop_does_not_touch_the_segment_identifier() {
    let [_, _, last] = SEGMENT;
    let other = [[0, 63, 0, 9, 0, 0, 1, 2, 3, 4, 5, 6]; 2];

    let hops = [last, PEER, other[0], other[1]];
    let infos = [(2, 0xb05a), (3, 0x5555)];
    let mut packet = datagram((B, A), &infos, 2, &hops, (0, 1));
    let outcome = process(b'2', &mut packet, 2);
    assert_eq!(outcome.verdict, Verdict::Forward { interface: 5 });
    assert_eq!((packet[PATH], segment_id(&packet)), (1 << 6 | 2, 0xb05a));

    let hops = [other[0], other[1], PEER, last];
    let infos = [(2, 0x5555), (3, 0xb05a)];
    let mut packet = datagram((A, B), &infos, 2, &hops, (1, 2));
    let outcome = process(b'2', &mut packet, 5);
    assert_eq!(outcome.verdict, Verdict::Forward { interface: 2 });
    assert_eq!(packet[PATH], 1 << 6 | 3);
    assert_eq!(packet[PATH + 14..PATH + 16], [0xb0, 0x5a]);
}

#[test]
fn any_other_bit_in_what_the_mac_covers_is_refused() {
    // Segment identifier and timestamp, then expiry, interfaces and MAC of the current hop.
    let covered = (PATH + 6..PATH + 12).chain(PATH + 12 + 13..PATH + 12 + 24);
    for offset in covered {
        for bit in 0..8 {
            let mut packet = down((A, B), 0x24f0, 1);
            packet[offset] ^= 1 << bit;
            let sent = packet.clone();
            let outcome = process(b'2', &mut packet, 1);
            let reasons = [
                Reason::InvalidMac,
                Reason::Expired,
                Reason::IngressInterface,
            ];
            let reason = outcome.reason.expect("a reason");
            assert!(reasons.contains(&reason), "{offset} {bit}: {reason:?}");
            assert_eq!(outcome.fast, Some(reason));
            assert!(matches!(outcome.verdict, Verdict::Answer(_)));
            assert_eq!(packet, sent, "it was written to");
        }
    }
}
