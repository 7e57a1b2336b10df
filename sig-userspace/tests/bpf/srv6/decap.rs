//! Packets whose last SID is here: RFC 8986, sections 4.4 to 4.9 and 4.16.

use sig_common::srv6::{Behavior, Flavors, Sid, maps::Reason};

use super::bed::{Bed, FOURTH, Outcome, SECOND, one_after_the_other};
use super::node::*;
use super::packets::*;

one_after_the_other! {
    packets_at_their_end: node;
    what_is_for_the_node_itself_goes_to_the_kernel
    frames_leave_as_they_are
    packets_are_decapsulated_and_routed
    tables_tell_where_packets_do_not_go
    what_is_inside_has_lengths_of_its_own
    the_checksum_of_ipv4_stays_right
}

fn what_is_for_the_node_itself_goes_to_the_kernel(bed: &mut Bed) {
    let ping = [128, 0, 0, 0, 0, 1, 0, 1];
    for sid in [END, DT4, DX2, USP] {
        let packet = routed(64, ICMPV6, 0, &[sid, FAR], &ping);
        let popped = frame(&ipv6(64, ICMPV6, sid, &ping));
        bed.check(sid, &frame(&packet), &Outcome::passed(popped, &[]));
    }
    let plain = ipv6(1, ICMPV6, USP, &ping);
    bed.check(
        "no SRH",
        &frame(&plain),
        &Outcome::passed(frame(&plain), &[]),
    );
}

fn frames_leave_as_they_are(bed: &mut Bed) {
    let inner = ether([6; 6], [8; 6], &small_v4());
    for packet in [
        ipv6(0, ETHERNET, DX2, &inner),
        routed(0, ETHERNET, 0, &[DX2, FAR], &inner),
    ] {
        let mut arrived = frame(&packet);
        bed.check("by the device", &arrived, &Outcome::sent(inner.clone()));
        arrived.extend([0xee; 80]);
        bed.check("without padding", &arrived, &Outcome::sent(inner.clone()));
    }
    let short = ipv6(64, ETHERNET, DX2, &inner[..14]);
    bed.check(
        "nothing but a header",
        &frame(&short),
        &Outcome::sent(inner[..14].to_vec()),
    );
    let short = ipv6(64, ETHERNET, DX2, &inner[..13]);
    bed.check(
        "not even that",
        &frame(&short),
        &Outcome::dropped(Reason::BadInner),
    );
    let other = bed.other;
    bed.set(|sr| {
        let sid = Sid::new(Behavior::EndDx2, Flavors(0), other, SLOT);
        sr.sids.insert(DX2.parse().unwrap(), sid);
    });
    let packet = ipv6(64, ETHERNET, DX2, &inner);
    bed.check(
        "by no device",
        &frame(&packet),
        &Outcome::dropped(Reason::NoDevice),
    );
}

fn packets_are_decapsulated_and_routed(bed: &mut Bed) {
    let v4 = |ttl| ipv4(ttl, "10.2.0.9", &udp(4));
    let v6 = |hops| ipv6(hops, UDP, FAR, &udp(4));
    for (sid, next, router, packet) in [
        (DX4, IPV4, FOURTH, &v4 as &dyn Fn(u8) -> Vec<u8>),
        (DT4, IPV4, FOURTH, &v4),
        (DT46, IPV4, FOURTH, &v4),
        (MAIN, IPV4, SECOND, &v4),
        (USD, IPV4, SECOND, &v4),
        (DX6, IPV6, FOURTH, &v6),
        (DT6, IPV6, FOURTH, &v6),
        (DT46, IPV6, FOURTH, &v6),
        (MAIN, IPV6, SECOND, &v6),
        (USD, IPV6, SECOND, &v6),
    ] {
        let expected = to(router, &packet(63));
        // The hop limit outside does not matter any more.
        let outer = ipv6(0, next, sid, &packet(64));
        bed.check(sid, &frame(&outer), &expected);
        let outer = routed(1, next, 0, &[sid, FAR, FAR], &packet(64));
        bed.check(sid, &frame(&outer), &expected);
        let behind = [&srh(OPTIONS, 0, &[sid])[..], &options(next), &packet(64)].concat();
        let outer = ipv6(1, ROUTING, sid, &behind);
        bed.check("options behind the SRH", &frame(&outer), &expected);

        let outer = ipv6(64, next, sid, &packet(1));
        let expected = match (sid, router) {
            (DX4 | DX6, _) => told(Reason::HopLimit, 0, &packet(1)),
            // Who is told by another table?
            (_, FOURTH) => Outcome::dropped(Reason::HopLimit),
            _ => Outcome::passed(frame(&packet(1)), &[Reason::ToKernel]),
        };
        bed.check("no hop left inside", &frame(&outer), &expected);
    }
    let with_options = |ttl| ipv4_with(&[1, 1, 1, 0], ttl, "10.2.0.9", &udp(4));
    let outer = ipv6(64, IPV4, DT4, &with_options(64));
    bed.check(
        "IPv4 options",
        &frame(&outer),
        &to(FOURTH, &with_options(63)),
    );
    let outer = ipv6(64, IPV4, MAIN, &with_options(64));
    let expected = Outcome::passed(frame(&with_options(64)), &[Reason::ToKernel]);
    bed.check("which the kernel may know", &frame(&outer), &expected);
}

fn tables_tell_where_packets_do_not_go(bed: &mut Bed) {
    let outer = |sid, packet: &[u8]| frame(&ipv6(64, IPV4, sid, packet));
    let unknown = ipv4(64, "10.4.0.9", &udp(4));
    let mut third = [0; 16];
    third[10..].copy_from_slice(&[0xff, 0xff, 10, 1, 0, 3]);
    let expected = Outcome::told_of(Reason::Resolve, 0, &unknown, bed.out, third);
    bed.check("a neighbour to resolve", &outer(DT4, &unknown), &expected);
    let nowhere = ipv4(64, "10.9.0.9", &udp(4));
    bed.check(
        "no route",
        &outer(DT4, &nowhere),
        &Outcome::dropped(Reason::NoRoute),
    );
    let big = ipv4(64, "10.3.0.9", &udp(600));
    bed.check(
        "too big",
        &outer(DT4, &big),
        &Outcome::dropped(Reason::TooBig),
    );
    for packet in [&unknown, &nowhere, &big] {
        let expected = Outcome::passed(frame(packet), &[Reason::ToKernel]);
        bed.check("the kernel's", &outer(MAIN, packet), &expected);
    }
}

fn what_is_inside_has_lengths_of_its_own(bed: &mut Bed) {
    let bad = Outcome::dropped(Reason::BadInner);
    let long = small_v4();
    let outer = ipv6(64, IPV4, DT4, &long[..31]);
    bed.check("a byte is missing", &frame(&outer), &bad);
    let mut padded = frame(&outer);
    padded.push(long[31]);
    bed.check("which the padding has", &padded, &bad);
    for (at, value) in [(0, 0x44), (0, 0x4f), (0, 0x65), (3, 19)] {
        let mut wrong = small_v4();
        wrong[at] = value;
        bed.check("no packet", &frame(&ipv6(64, IPV4, DT4, &wrong)), &bad);
    }
    let mut v6 = small_v6();
    v6[5] += 1;
    bed.check("IPv6", &frame(&ipv6(64, IPV6, DT6, &v6)), &bad);
    bed.check(
        "IPv4 as IPv6",
        &frame(&ipv6(64, IPV6, DT6, &small_v4())),
        &bad,
    );

    // More than the packet inside says is padding inside, and goes with it.
    let longer = |ttl| [ipv4(ttl, "10.2.0.9", &udp(4)), vec![0xee; 5]].concat();
    let outer = ipv6(64, IPV4, DT4, &longer(64));
    bed.check("a shorter packet", &frame(&outer), &to(FOURTH, &longer(63)));
}

fn the_checksum_of_ipv4_stays_right(bed: &mut Bed) {
    for id in 0..=u16::MAX {
        // Every checksum that there is.
        if id % 251 != 0 && !(0x5400..0x5700).contains(&id) {
            continue;
        }
        let with = |ttl: u8| {
            let mut packet = ipv4(ttl, "10.2.0.9", &[]);
            packet[4..6].copy_from_slice(&id.to_be_bytes());
            packet[10..12].fill(0);
            let sum = checksum(&packet);
            packet[10..12].copy_from_slice(&sum.to_be_bytes());
            packet
        };
        let outer = frame(&ipv6(64, IPV4, DT4, &with(64)));
        let sent = bed.programs.test_run(&outer).expect("a run").frame;
        assert_eq!(checksum(&sent[14..34]), 0, "{id}");
        assert_eq!(sent[22], 63);
    }
}
