extern crate alloc;

use alloc::vec::Vec;

use super::*;
use crate::wire::{
    PROTO_ICMPV6, PROTO_UDP, ipv6,
    srv6::{Header, NEXT_ETHERNET, NEXT_IPV4, NEXT_IPV6},
};

const SOURCE: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 0xa, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];

fn segment(last: u8) -> [u8; 16] {
    let mut segment = SOURCE;
    segment[15] = last;
    segment
}

/// An IPv4 packet with 8 bytes of UDP.
fn ipv4() -> Vec<u8> {
    let mut packet = [0; 28].to_vec();
    packet[..10].copy_from_slice(&[0x45, 0, 0, 28, 0, 0, 0, 0, 64, PROTO_UDP]);
    packet[12..20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    packet
}

/// A packet that is at its `at`th segment, from 0, with the hop limit.
fn packet(segments: &[[u8; 16]], at: usize, hops: u8, next_header: u8, inside: &[u8]) -> Vec<u8> {
    let header = Header {
        next_header,
        segments,
        reduced: false,
        flags: 0,
        tag: 0,
        tlvs: &[],
    };
    let mut srh = [0; 256];
    let len = header.emit(&mut srh).expect("room");
    srh[3] -= at as u8;
    plain(
        segments[at],
        hops,
        ipv6::ROUTING,
        &[&srh[..len], inside].concat(),
    )
}

/// An IPv6 packet.
fn plain(destination: [u8; 16], hop_limit: u8, next_header: u8, payload: &[u8]) -> Vec<u8> {
    let header = ipv6::Header {
        traffic_class: 0,
        flow_label: 0,
        payload_len: payload.len() as u16,
        next_header,
        hop_limit,
        source: SOURCE,
        destination,
    };
    let mut packet = [0; 40].to_vec();
    header.emit(&mut packet).expect("room");
    packet.extend(payload);
    packet
}

fn run(behavior: Behavior, flavors: Flavors, packet: &[u8]) -> Result<Step, Cause> {
    process(packet, &Sid::new(behavior, flavors, 7, 0)).map_err(|refusal| refusal.cause)
}

const NONE: Flavors = Flavors(0);

#[test]
fn transit_goes_on_to_the_next_segment() {
    let segments = [segment(1), segment(2), segment(3)];
    for (behavior, way) in [
        (Behavior::End, Way::Table),
        (Behavior::EndX, Way::Adjacency),
        (Behavior::EndT, Way::Table),
    ] {
        let step = run(
            behavior,
            NONE,
            &packet(&segments, 0, 64, NEXT_IPV4, &ipv4()),
        )
        .expect("taken");
        assert!(step.advances && !step.pops && step.strip == 0);
        assert_eq!((step.destination, step.way), (segment(2), way));
    }
    let last = packet(&segments, 1, 64, NEXT_IPV4, &ipv4());
    assert!(!run(Behavior::End, NONE, &last).expect("taken").pops);
    let step = run(Behavior::End, Flavors::PSP, &last).expect("taken");
    assert!(step.pops && step.destination == segment(3));
    assert!(
        !run(
            Behavior::End,
            Flavors::PSP,
            &packet(&segments, 0, 64, 4, &ipv4())
        )
        .expect("taken")
        .pops
    );
}

#[test]
fn hop_limits_run_out_with_segments_left_only() {
    let segments = [segment(1), segment(2)];
    for hops in [0, 1] {
        let under_way = packet(&segments, 0, hops, NEXT_IPV4, &ipv4());
        assert_eq!(run(Behavior::End, NONE, &under_way), Err(Cause::HopLimit));
        let at_end = packet(&segments, 1, hops, NEXT_IPV4, &ipv4());
        assert!(run(Behavior::EndDt4, NONE, &at_end).is_ok());
    }
}

#[test]
fn the_end_of_a_list_is_decapsulated_with_and_without_an_srh() {
    let segments = [segment(1), segment(2)];
    let v6 = plain(segment(9), 64, PROTO_UDP, &[0; 8]);
    for (behavior, next, inside, way) in [
        (Behavior::EndDx4, NEXT_IPV4, &ipv4()[..], Way::Adjacency),
        (Behavior::EndDt4, NEXT_IPV4, &ipv4()[..], Way::Table),
        (Behavior::EndDt46, NEXT_IPV4, &ipv4()[..], Way::Table),
        (Behavior::EndDx6, NEXT_IPV6, &v6[..], Way::Adjacency),
        (Behavior::EndDt6, NEXT_IPV6, &v6[..], Way::Table),
        (Behavior::EndDt46, NEXT_IPV6, &v6[..], Way::Table),
        (Behavior::EndDx2, NEXT_ETHERNET, &[0; 60][..], Way::Device),
    ] {
        let with = run(behavior, NONE, &packet(&segments, 1, 64, next, inside)).expect("taken");
        assert_eq!(
            (with.strip, with.exposed, with.way),
            (40 + 8 + 32, next, way)
        );
        let without = run(behavior, NONE, &plain(segment(2), 64, next, inside)).expect("taken");
        assert_eq!(
            (without.strip, without.exposed, without.way),
            (40, next, way)
        );
        let early = packet(&segments, 0, 64, next, inside);
        let refusal = process(&early[..], &Sid::new(behavior, NONE, 0, 0)).expect_err("early");
        assert_eq!((refusal.cause, refusal.pointer), (Cause::Header, 43));
    }
}

#[test]
fn what_a_sid_has_no_use_for_is_told_with_its_place() {
    let segments = [segment(1), segment(2)];
    let udp = packet(&segments, 1, 64, PROTO_UDP, &[0; 8]);
    for behavior in [Behavior::End, Behavior::EndDt4, Behavior::EndDx2] {
        let refusal = process(&udp[..], &Sid::new(behavior, NONE, 0, 0)).expect_err("UDP");
        assert_eq!((refusal.cause, refusal.pointer), (Cause::UpperLayer, 80));
    }
    let v6 = plain(segment(9), 64, PROTO_UDP, &[0; 8]);
    let other = packet(&segments, 1, 64, NEXT_IPV6, &v6);
    assert_eq!(run(Behavior::EndDt4, NONE, &other), Err(Cause::UpperLayer));
    assert_eq!(run(Behavior::End, NONE, &other), Err(Cause::UpperLayer));
    let step = run(Behavior::End, Flavors::USD, &other).expect("decapsulated");
    assert_eq!((step.strip, step.way), (80, Way::Table));
    // ICMPv6 is for the node itself.
    let ping = packet(&segments, 1, 64, PROTO_ICMPV6, &[128, 0, 0, 0, 0, 0, 0, 0]);
    let step = run(Behavior::EndDt4, NONE, &ping).expect("taken");
    assert_eq!((step.way, step.pops), (Way::Local, true));
    assert!(run(Behavior::End, Flavors::USP, &ping).expect("taken").pops);
}

#[test]
fn a_second_routing_header_needs_to_be_at_its_end() {
    for (left, expected) in [(0, None), (1, Some((Cause::Header, 80 + 8 + 3)))] {
        let mut second = [NEXT_IPV4, 0, 4, left, 0, 0, 0, 0].to_vec();
        second.extend(ipv4());
        let options = [ipv6::ROUTING, 0, 1, 4, 0, 0, 0, 0];
        let inside = [&options[..], &second].concat();
        let packet = packet(&[segment(1), segment(2)], 1, 64, ipv6::DESTINATION, &inside);
        let outcome = process(&packet[..], &Sid::new(Behavior::EndDt4, NONE, 0, 0));
        let refused = outcome.err().map(|it| (it.cause, it.pointer));
        assert_eq!(refused, expected, "{left} left");
    }
}

#[test]
fn what_is_inside_has_to_be_what_it_is_called() {
    let segments = [segment(1), segment(2)];
    let inside = ipv4();
    let cut = packet(&segments, 1, 64, NEXT_IPV4, &inside[..20]);
    assert_eq!(run(Behavior::EndDt4, NONE, &cut), Err(Cause::Inner));
    let v6_as_v4 = packet(&segments, 1, 64, NEXT_IPV6, &inside);
    assert_eq!(run(Behavior::EndDt6, NONE, &v6_as_v4), Err(Cause::Inner));
    let short = packet(&segments, 1, 64, NEXT_ETHERNET, &[0; 13]);
    assert_eq!(run(Behavior::EndDx2, NONE, &short), Err(Cause::Inner));
}

#[test]
fn proxies_need_somewhere_to_go_on_to() {
    let segments = [segment(1), segment(2)];
    let under_way = packet(&segments, 0, 64, NEXT_IPV4, &ipv4());
    let at_end = packet(&segments, 1, 64, NEXT_IPV4, &ipv4());
    let step = run(Behavior::EndAd4, NONE, &under_way).expect("taken");
    assert!(step.advances && step.destination == segment(2));
    assert_eq!((step.strip, step.way, step.target), (80, Way::Function, 7));
    assert_eq!(
        run(Behavior::EndAd6, NONE, &under_way),
        Err(Cause::UpperLayer)
    );
    assert_eq!(run(Behavior::EndAd4, NONE, &at_end), Err(Cause::ChainEnd));
    let step = run(Behavior::EndAd4, Flavors::LAST, &at_end).expect("taken");
    assert_eq!(
        (step.advances, step.strip, step.way),
        (false, 80, Way::Function)
    );
    let step = run(Behavior::EndAs, NONE, &at_end).expect("taken");
    assert_eq!((step.advances, step.strip), (false, 80));
    let step = run(
        Behavior::EndAm,
        NONE,
        &packet(&[segment(1), segment(2), segment(3)], 0, 9, 4, &ipv4()),
    )
    .expect("taken");
    assert!(step.masquerades && !step.advances && step.strip == 0);
    assert_eq!(step.destination, segment(3));
}

#[test]
fn a_malformed_srh_is_told_with_its_place() {
    let segments = [segment(1), segment(2)];
    for (at, value) in [(3, 3), (4, 9)] {
        let mut packet = packet(&segments, 0, 64, NEXT_IPV4, &ipv4());
        packet[40 + at] = value;
        for behavior in Behavior::ALL {
            let refusal =
                process(&packet[..], &Sid::new(behavior, NONE, 0, 0)).expect_err("malformed");
            assert_eq!(
                (refusal.cause, refusal.pointer),
                (Cause::Header, 43),
                "{behavior:?}"
            );
        }
    }
}

proptest::proptest! {
    #[test]
    fn any_bytes_are_refused_or_taken_within_their_bounds(
        bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200),
        behavior in 0..Behavior::ALL.len(),
        flavors in 0..16u8,
        valid in proptest::prelude::any::<bool>(),
    ) {
        let mut bytes = bytes;
        if valid && bytes.len() > 48 {
            bytes[0] = 0x60;
            let len = (bytes.len() - 40) as u16;
            bytes[4..6].copy_from_slice(&len.to_be_bytes());
            bytes[6] = ipv6::ROUTING;
            bytes[42] = 4;
            bytes[41] %= 8;
        }
        let sid = Sid::new(Behavior::ALL[behavior], Flavors(flavors), 0, 0);
        if let Ok(step) = process(&bytes[..], &sid) {
            proptest::prop_assert!(usize::from(step.strip) <= bytes.len());
            proptest::prop_assert!(usize::from(step.srh.offset) + usize::from(step.srh.len) <= bytes.len());
        }
    }
}
