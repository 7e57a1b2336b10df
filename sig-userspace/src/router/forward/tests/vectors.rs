//! Hop fields whose MACs the reference has computed.

use sig_common::router::{Reason, maps::Traffic};

use super::{
    super::{Ingress, Verdict},
    fixture::{DOWN, LOCAL, UP, path, process, router, udp},
};

/// The hop fields of a segment of three ASes with the keys `11..`, `22..` and `33..`, in construction direction; the
/// segment identifiers that they were made with are 0x1234, 0x24f0, 0xb05a, and what follows is 0xfe2f.
const SEGMENT: [[u8; 12]; 3] = [
    [0, 63, 0, 0, 0, 1, 0x36, 0xc4, 0x7f, 0xc6, 0x0c, 0x5c],
    [0, 63, 0, 1, 0, 2, 0x94, 0xaa, 0xcc, 0x16, 0xfd, 0x71],
    [0, 63, 0, 1, 0, 0, 0x4e, 0x75, 0xbd, 0x76, 0xb4, 0x6c],
];

fn reversed() -> [[u8; 12]; 3] {
    let [first, second, third] = SEGMENT;
    [third, second, first]
}

/// Offset of the path in packets between IPv4 hosts.
const PATH: usize = 12 + 24;

fn segment_id(packet: &[u8]) -> u16 {
    u16::from_be_bytes([packet[PATH + 6], packet[PATH + 7]])
}

#[test]
fn a_packet_down_a_segment_leaves_with_the_next_segment_identifier() {
    let path = path(true, 0x24f0, &SEGMENT, 1);
    let mut packet = udp(UP, DOWN, 1, &path);
    let outcome = process(&router([b'2'; 16]), &mut packet, Ingress::External(1));
    assert_eq!(outcome.verdict, Verdict::Forward { interface: 2 });
    assert_eq!(outcome.traffic, Some(Traffic::BrTransit));
    assert_eq!((outcome.reason, outcome.fast), (None, None));
    assert_eq!((packet[PATH], segment_id(&packet)), (2, 0xb05a));
}

#[test]
fn a_packet_up_a_segment_takes_a_mac_off_the_segment_identifier() {
    let path = path(false, 0xb05a, &reversed(), 1);
    let mut packet = udp(DOWN, UP, 1, &path);
    let outcome = process(&router([b'2'; 16]), &mut packet, Ingress::External(2));
    assert_eq!(outcome.verdict, Verdict::Forward { interface: 1 });
    assert_eq!((packet[PATH], segment_id(&packet)), (2, 0x24f0));
}

#[test]
fn the_last_as_delivers_without_moving_the_pointers() {
    let up = path(false, 0x24f0, &reversed(), 2);
    let mut packet = udp(DOWN, LOCAL, 1, &up);
    let outcome = process(&router([b'1'; 16]), &mut packet, Ingress::External(1));
    assert_eq!(
        outcome.verdict,
        Verdict::Deliver("10.2.0.1:31000".parse().expect("an address"))
    );
    assert_eq!((packet[PATH], segment_id(&packet)), (2, 0x1234));

    let down = path(true, 0xb05a, &SEGMENT, 2);
    let mut packet = udp(UP, LOCAL, 1, &down);
    let outcome = process(&router([b'3'; 16]), &mut packet, Ingress::External(1));
    assert!(matches!(outcome.verdict, Verdict::Deliver(_)));
    assert_eq!((packet[PATH], segment_id(&packet)), (2, 0xb05a));
}

#[test]
fn any_other_bit_in_what_the_mac_covers_is_refused() {
    // Segment identifier and timestamp, then expiry, interfaces and MAC of the current hop.
    let covered = (PATH + 6..PATH + 12).chain(PATH + 12 + 13..PATH + 12 + 24);
    for offset in covered {
        for bit in 0..8 {
            let mut packet = udp(UP, DOWN, 1, &path(true, 0x24f0, &SEGMENT, 1));
            packet[offset] ^= 1 << bit;
            let sent = packet.clone();
            let outcome = process(&router([b'2'; 16]), &mut packet, Ingress::External(1));
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
