//! Packets that no SID takes: RFC 8754, sections 4.3.1 and 5; RFC 8986, sections 4.1 and 4.1.1.

use sig_common::srv6::maps::Reason;

use super::bed::{Bed, FOURTH, Outcome, one_after_the_other};
use super::node::*;
use super::packets::*;

one_after_the_other! {
    packets_that_are_refused: node;
    a_sid_tells_where_something_is_that_it_has_no_use_for
    a_malformed_srh_is_told_at_segments_left
    a_second_routing_header_must_not_have_segments_left
    incomplete_packets_are_dropped
    sids_are_for_trusted_devices
}

fn a_sid_tells_where_something_is_that_it_has_no_use_for(bed: &mut Bed) {
    for (sid, next, inside) in [
        (END, UDP, udp(0)),
        (END, IPV4, small_v4()),
        (USP, IPV6, small_v6()),
        (USD, UDP, udp(0)),
        (USD, ETHERNET, frame(&small_v4())),
        (DT4, IPV6, small_v6()),
        (DX4, ETHERNET, frame(&small_v4())),
        (DT6, IPV4, small_v4()),
        (DX6, UDP, udp(0)),
        (DX2, IPV4, small_v4()),
        (DT46, ETHERNET, frame(&small_v4())),
        (DT46, FRAGMENT, vec![IPV4, 0, 0, 1, 0, 0, 0, 1]),
    ] {
        let packet = routed(64, next, 0, &[sid, FAR], &inside);
        bed.check(sid, &frame(&packet), &told(Reason::UpperLayer, 80, &packet));
        let packet = ipv6(64, next, sid, &inside);
        bed.check(sid, &frame(&packet), &told(Reason::UpperLayer, 40, &packet));
    }
    // An error quotes what fits into the smallest packet.
    let long = ipv6(64, UDP, END, &udp(1400));
    bed.check(
        "long",
        &frame(&long),
        &told(Reason::UpperLayer, 40, &long[..1232]),
    );
}

fn a_malformed_srh_is_told_at_segments_left(bed: &mut Bed) {
    for sid in [END, PSP, DT4, DX2] {
        let good = routed(64, IPV4, 1, &[FAR, sid], &small_v4());
        for (what, at, value) in [
            ("more segments left than Last Entry plus one", 43, 3),
            ("a list longer than the header", 44, 2),
            ("a header longer than the packet", 41, 100),
            ("a header too short for its list", 41, 2),
        ] {
            let mut packet = good.clone();
            packet[at] = value;
            bed.check(what, &frame(&packet), &told(Reason::BadHeader, 43, &packet));
        }
    }
    let before = [&options(ROUTING)[..], &srh(59, 3, &[FAR, END])].concat();
    let packet = ipv6(64, OPTIONS, END, &before);
    bed.check(
        "behind options",
        &frame(&packet),
        &told(Reason::BadHeader, 51, &packet),
    );
    for sid in [DX2, DX4, DX6, DT4, DT6, DT46] {
        let packet = routed(64, IPV4, 1, &[FAR, sid], &small_v4());
        bed.check(
            "not the last",
            &frame(&packet),
            &told(Reason::BadHeader, 43, &packet),
        );
    }
}

fn a_second_routing_header_must_not_have_segments_left(bed: &mut Bed) {
    for (left, kind, is_taken) in [(0, 4, true), (1, 4, false), (0, 2, true), (1, 2, false)] {
        let mut second = srh(IPV4, left, &[FAR]);
        second[2] = kind;
        let expected = |packet: &[u8], pointer| match is_taken {
            true => to(FOURTH, &ipv4(63, "10.2.0.9", &udp(4))),
            false => told(Reason::BadHeader, pointer, packet),
        };
        let packet = routed(64, ROUTING, 0, &[DT4], &[&second[..], &small_v4()].concat());
        bed.check("behind an SRH", &frame(&packet), &expected(&packet, 64 + 3));
        let three = [options(OPTIONS), options(OPTIONS), options(ROUTING)].concat();
        let packet = ipv6(
            64,
            OPTIONS,
            DT4,
            &[&three[..], &second, &small_v4()].concat(),
        );
        bed.check(
            "behind many options",
            &frame(&packet),
            &expected(&packet, 64 + 3),
        );
    }
}

fn incomplete_packets_are_dropped(bed: &mut Bed) {
    let malformed = Outcome::dropped(Reason::Malformed);
    let packet = routed(64, IPV4, 1, &[FAR, END], &small_v4());
    for len in [54, 55, 62, 80, 125] {
        bed.check("cut", &frame(&packet)[..len], &malformed);
    }
    let mut long = packet.clone();
    long[5] += 1;
    bed.check("a byte is missing", &frame(&long), &malformed);
    let mut version = packet.clone();
    version[0] = 0x40;
    let mut version = frame(&version);
    version[12..14].copy_from_slice(&[0x86, 0xdd]);
    bed.check("another version", &version, &malformed);
    let mut empty = packet.clone();
    empty[4..6].fill(0);
    bed.check("payload length 0", &frame(&empty), &malformed);
    let empty = ipv6(64, IPV4, DT4, &[]);
    let mut padded = frame(&empty);
    padded.extend(small_v4());
    let expected = Outcome::dropped(Reason::BadInner);
    bed.check("an IPv4 packet in the padding", &padded, &expected);
    let cut = &frame(&packet)[..53];
    bed.check("no whole address", cut, &Outcome::passed(cut.to_vec(), &[]));
}

fn sids_are_for_trusted_devices(bed: &mut Bed) {
    let packet = frame(&routed(64, IPV4, 0, &[DT4], &small_v4()));
    let unused = frame(&ipv6(64, UDP, "2001:db8:a::ffff", &udp(0)));
    let other = frame(&small_v6());
    let unchanged = |frame: &Vec<u8>| Outcome::passed(frame.clone(), &[]);
    bed.check("a locator's address", &unused, &unchanged(&unused));
    bed.check("another one", &other, &unchanged(&other));
    let mut stray = packet.clone();
    stray[5] ^= 1;
    bed.check("a frame for others", &stray, &unchanged(&stray));
    let mut tagged = packet.clone();
    tagged.splice(12..12, [0x81, 0, 0, 5]);
    bed.check("in a VLAN", &tagged, &unchanged(&tagged));

    bed.port(0, 0);
    let untrusted = Outcome::dropped(Reason::Untrusted);
    bed.check("a SID", &packet, &untrusted);
    bed.check("a locator", &unused, &untrusted);
    bed.check("neither", &other, &unchanged(&other));
    bed.check("for others", &stray, &unchanged(&stray));
    bed.set(|sr| sr.ports.clear());
    bed.check("a device that is not ours", &packet, &unchanged(&packet));
}
