//! Packets under way by SIDs: RFC 8986, sections 4.1 to 4.3 and 4.16.

use sig_common::srv6::maps::{Adjacency, Reason};

use super::bed::{Bed, FOURTH, OUT, Outcome, SECOND, one_after_the_other};
use super::node::*;
use super::packets::*;

one_after_the_other! {
    packets_under_way: node;
    a_whole_frame_through_end
    end_makes_the_next_segment_the_active_one
    the_kernel_sends_what_the_program_cannot
    the_hop_limit_runs_out_at_one
    psp_removes_the_srh_before_the_last_segment
    end_x_goes_by_way_of_its_adjacency
    end_t_goes_by_its_table
    sids_in_a_row_are_processed_at_once
    there_is_an_end_of_sids_in_a_row
}

fn a_whole_frame_through_end(bed: &mut Bed) {
    let arrived = hex("
            020000000002 020000000003 86dd
            60000000 0030 2b 40 20010db8000500000000000000000005 20010db8000a0000000000000000000e
            11 04 04 01 01 00 0000
            20010db8000b00000000000000000009
            20010db8000a0000000000000000000e
            0007 0009 0008 0000");
    let sent = hex("
            020000000102 020000000101 86dd
            60000000 0030 2b 3f 20010db8000500000000000000000005 20010db8000b00000000000000000009
            11 04 04 00 01 00 0000
            20010db8000b00000000000000000009
            20010db8000a0000000000000000000e
            0007 0009 0008 0000");
    bed.check(
        "to the last of two segments",
        &arrived,
        &Outcome::sent(sent),
    );
    assert_eq!(bed.traffic(SLOT), (1, 88));
}

fn end_makes_the_next_segment_the_active_one(bed: &mut Bed) {
    let list = ["2001:db8:ffff::1", FAR, END];
    let mut packet = routed(64, IPV4, 2, &list, &small_v4());
    // Flags and tag, which are for others.
    packet[45..48].copy_from_slice(&[0xf1, 0xab, 0xcd]);
    let mut next = packet.clone();
    next[7] = 63;
    next[43] = 1;
    next[24..40].copy_from_slice(&address(FAR));
    bed.check("the second of three", &frame(&packet), &to(SECOND, &next));

    // A reduced list leaves the first segment out.
    let reduced = ipv6(64, ROUTING, END, &srh(59, 1, &[FAR]));
    let next = ipv6(63, ROUTING, FAR, &srh(59, 0, &[FAR]));
    bed.check("reduced", &frame(&reduced), &to(SECOND, &next));

    let mut tlv = srh(59, 1, &[FAR, END]);
    tlv[1] += 1;
    tlv.extend([5, 6, 1, 2, 3, 4, 5, 6]);
    let packet = ipv6(64, ROUTING, END, &tlv);
    tlv[3] = 0;
    let next = ipv6(63, ROUTING, FAR, &tlv);
    bed.check("TLVs stay", &frame(&packet), &to(SECOND, &next));

    let before = |left| [&options(ROUTING)[..], &srh(59, left, &[FAR, END])].concat();
    let (packet, next) = (
        ipv6(64, OPTIONS, END, &before(1)),
        ipv6(63, OPTIONS, FAR, &before(0)),
    );
    bed.check("options in front", &frame(&packet), &to(SECOND, &next));

    let mut padded = frame(&reduced);
    padded.extend([0xee; 9]);
    let mut sent = ether(SECOND, OUT, &ipv6(63, ROUTING, FAR, &srh(59, 0, &[FAR])));
    sent.extend([0xee; 9]);
    bed.check("padding is nobody's", &padded, &Outcome::sent(sent));
}

fn the_kernel_sends_what_the_program_cannot(bed: &mut Bed) {
    for (why, segment, hops) in [
        ("a neighbour to resolve", "2001:db8:c::9", 64),
        (
            "a device that takes no packets of XDP programs",
            "2001:db8:d::9",
            64,
        ),
        ("no route", "2001:db8:ffff::9", 64),
    ] {
        let packet = routed(hops, 59, 1, &[segment, END], &[]);
        // The kernel takes one from the hop limit itself.
        let next = ipv6(hops, ROUTING, segment, &srh(59, 0, &[segment, END]));
        let expected = Outcome::passed(frame(&next), &[Reason::ToKernel]);
        bed.check(why, &frame(&packet), &expected);
    }
    // The second one is in several buffers.
    for len in [1300, 5000] {
        let payload = vec![0; len];
        let headers = srh(59, 1, &["2001:db8:e::9", PSP]);
        let packet = ipv6(64, ROUTING, PSP, &[&headers[..], &payload].concat());
        let next = ipv6(64, 59, "2001:db8:e::9", &payload);
        let expected = Outcome::passed(frame(&next), &[Reason::ToKernel]);
        bed.check("too big", &frame(&packet), &expected);
    }
}

fn the_hop_limit_runs_out_at_one(bed: &mut Bed) {
    for sid in [END, PSP, X, T] {
        for hops in [0, 1] {
            let packet = routed(hops, 59, 1, &[FAR, sid], &[]);
            bed.check(sid, &frame(&packet), &told(Reason::HopLimit, 0, &packet));
        }
        let packet = routed(2, 59, 2, &[FAR, FAR, sid], &[]);
        let next = routed(1, 59, 1, &[FAR, FAR, sid], &[]);
        let router = if [X, T].contains(&sid) {
            FOURTH
        } else {
            SECOND
        };
        bed.check("two suffice", &frame(&packet), &to(router, &next));
    }
}

fn psp_removes_the_srh_before_the_last_segment(bed: &mut Bed) {
    let inner = small_v6();
    let packet = routed(64, IPV6, 1, &[FAR, PSP], &inner);
    let next = ipv6(63, IPV6, FAR, &inner);
    bed.check("one left", &frame(&packet), &to(SECOND, &next));

    let packet = routed(64, IPV6, 2, &[FAR, FAR, PSP], &inner);
    let next = routed(63, IPV6, 1, &[FAR, FAR, PSP], &inner);
    bed.check("two left", &frame(&packet), &to(SECOND, &next));

    let header = srh(IPV6, 1, &[FAR, PSP]);
    let packet = [&options(ROUTING)[..], &header, &inner].concat();
    let next = [&options(IPV6)[..], &inner].concat();
    bed.check(
        "behind destination options, which then announce what was behind it",
        &frame(&ipv6(64, OPTIONS, PSP, &packet)),
        &to(SECOND, &ipv6(63, OPTIONS, FAR, &next)),
    );
    let packet = [&options(OPTIONS)[..], &options(ROUTING), &header, &inner].concat();
    let next = [&options(OPTIONS)[..], &options(IPV6), &inner].concat();
    bed.check(
        "behind hop-by-hop and destination options",
        &frame(&ipv6(64, 0, PSP, &packet)),
        &to(SECOND, &ipv6(63, 0, FAR, &next)),
    );
    // As much as there is room for: 208 bytes with the Ethernet header, and eight more.
    for (words, is_taken) in [(18, true), (19, false)] {
        let mut long = options(ROUTING).to_vec();
        long[1] = words;
        long.resize((usize::from(words) + 1) * 8, 0);
        let packet = ipv6(64, OPTIONS, PSP, &[&long[..], &header, &inner].concat());
        long[0] = IPV6;
        let next = ipv6(63, OPTIONS, FAR, &[&long[..], &inner].concat());
        let expected = match is_taken {
            true => to(SECOND, &next),
            false => Outcome::dropped(Reason::TooLong),
        };
        bed.check("long options", &frame(&packet), &expected);
    }

    let mut padded = frame(&routed(64, 59, 1, &[FAR, PSP], &[]));
    padded.extend([0xee; 7]);
    let mut sent = ether(SECOND, OUT, &ipv6(63, 59, FAR, &[]));
    sent.extend([0xee; 7]);
    bed.check(
        "nothing but padding behind it",
        &padded,
        &Outcome::sent(sent),
    );
}

fn end_x_goes_by_way_of_its_adjacency(bed: &mut Bed) {
    let packet = routed(64, 59, 1, &["2001:db8:ffff::9", X], &[]);
    let next = ipv6(
        63,
        ROUTING,
        "2001:db8:ffff::9",
        &srh(59, 0, &["2001:db8:ffff::9", X]),
    );
    bed.check(
        "whatever routes there are",
        &frame(&packet),
        &to(FOURTH, &next),
    );
    let inner = routed(64, IPV6, 0, &[X], &small_v6());
    let expected = to(FOURTH, &ipv6(63, UDP, FAR, &udp(4)));
    bed.check("USD: what is inside, too", &frame(&inner), &expected);

    let good = bed.adjacency();
    let other = bed.other;
    let arrived = routed(64, 59, 1, &[FAR, X], &[0; 60]);
    let sent = ipv6(
        64,
        ROUTING,
        FAR,
        &[&srh(59, 0, &[FAR, X])[..], &[0; 60]].concat(),
    );
    for (adjacency, expected) in [
        (
            Adjacency { known: 0, ..good },
            Outcome::dropped(Reason::NoAdjacency),
        ),
        (
            Adjacency {
                ifindex: other,
                ..good
            },
            Outcome::dropped(Reason::NoDevice),
        ),
        (
            Adjacency { mtu: 139, ..good },
            told(Reason::TooBig, 139, &sent),
        ),
    ] {
        bed.set(|sr| {
            sr.adjacencies.insert(1, adjacency);
        });
        bed.check("no way", &frame(&arrived), &expected);
    }
    bed.set(|sr| {
        sr.adjacencies.remove(&1);
    });
    bed.check(
        "none",
        &frame(&arrived),
        &Outcome::dropped(Reason::NoAdjacency),
    );
}

fn end_t_goes_by_its_table(bed: &mut Bed) {
    let by = |segment: &str| routed(64, 59, 1, &[segment, T], &[]);
    let next = |segment: &str, hops| ipv6(hops, ROUTING, segment, &srh(59, 0, &[segment, T]));
    bed.check("a route", &frame(&by(FAR)), &to(FOURTH, &next(FAR, 63)));
    let unknown = "2001:db8:c::9";
    let third = address("2001:db8:1::3");
    let expected = Outcome::told_of(Reason::Resolve, 0, &next(unknown, 64), bed.out, third);
    bed.check("a neighbour to resolve", &frame(&by(unknown)), &expected);
    let expected = Outcome::dropped(Reason::NoDevice);
    bed.check(
        "a device of the kernel",
        &frame(&by("2001:db8:d::9")),
        &expected,
    );
    let nowhere = "2001:db8:ffff::9";
    let expected = Outcome::dropped(Reason::NoRoute);
    bed.check("no route", &frame(&by(nowhere)), &expected);
}

fn sids_in_a_row_are_processed_at_once(bed: &mut Bed) {
    let packet = routed(64, IPV4, 1, &[DT4, END], &small_v4());
    let expected = to(FOURTH, &ipv4(63, "10.2.0.9", &udp(4)));
    bed.check("End, then End.DT4", &frame(&packet), &expected);

    let packet = routed(64, 59, 3, &[FAR, END, X, END], &[]);
    bed.check(
        "every one takes a hop, and the adjacency of one is the way out",
        &frame(&packet),
        &to(
            FOURTH,
            &ipv6(62, ROUTING, END, &srh(59, 1, &[FAR, END, X, END])),
        ),
    );
    let list = [FAR, END, END, END];
    let packet = routed(64, 59, 3, &list, &[]);
    let next = ipv6(61, ROUTING, FAR, &srh(59, 0, &list));
    bed.check("three of them", &frame(&packet), &to(SECOND, &next));
    let packet = routed(2, 59, 3, &list, &[]);
    let second = routed(1, 59, 2, &list, &[]);
    let expected = told(Reason::HopLimit, 0, &second);
    bed.check("the second has no hop left", &frame(&packet), &expected);

    let inner = routed(64, IPV4, 1, &[DT4, END], &small_v4());
    for sid in [MAIN, DT6, DX6] {
        let outer = frame(&ipv6(64, IPV6, sid, &inner));
        let expected = Outcome::dropped(Reason::Untrusted);
        bed.check("a stranger's packet inside is for a SID", &outer, &expected);
    }
    let outer = ipv6(64, IPV6, USD, &inner);
    let expected = to(FOURTH, &ipv4(63, "10.2.0.9", &udp(4)));
    bed.check("the packet inside is for a SID", &frame(&outer), &expected);
}

fn there_is_an_end_of_sids_in_a_row(bed: &mut Bed) {
    // One is processed where the packet comes in, and one each of the 33 times that it starts over; then comes its way out.
    for (sids, is_sent) in [(33, true), (34, false)] {
        let mut list = vec![FAR];
        list.resize(sids + 1, END);
        let packet = routed(64, 59, sids as u8, &list, &[]);
        let expected = match is_sent {
            true => to(
                SECOND,
                &ipv6(64 - sids as u8, ROUTING, FAR, &srh(59, 0, &list)),
            ),
            false => Outcome::dropped(Reason::TooManySids),
        };
        bed.check("so many", &frame(&packet), &expected);
    }
}
