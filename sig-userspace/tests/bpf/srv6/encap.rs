//! Packets steered into policies: H.Encaps and H.Encaps.Red, RFC 8986, section 5.

use sig_common::srv6::{
    Behavior, Flavors, Sid,
    maps::{MAX_HEADERS, Policy, Port, Reason},
};

use super::bed::{Bed, FOURTH, OUT, Outcome, SECOND, TABLE, one_after_the_other};
use super::packets::*;
use crate::frames::XDP_REDIRECT;

/// Behind the second router.
const FAR: &str = "2001:db8:b::9";
const SID: &str = "2001:db8:a::f4";
const SLOT: u32 = 5;

one_after_the_other! {
    packets_for_policies: node;
    a_whole_frame_into_a_policy
    headers_of_one_two_and_ten_segments
    reduced_headers_of_one_two_and_ten_segments
    the_packet_loses_a_hop_once
    the_flow_label_is_that_of_the_flow
    the_hop_limit_is_the_policys_or_the_packets
    padding_does_not_travel
    the_mtu_counts_headers
    headers_have_an_end
    the_kernel_gets_frames_for_this_host
    the_first_segment_may_be_here
    the_longest_prefix_decides
    only_what_is_to_be_steered_is
    a_whole_frame_behind_headers
    frames_of_all_kinds_go_into_the_policy
    frames_have_a_longest
    an_srh_in_a_packet
    an_srh_behind_hop_by_hop_options_and_before_all_else
    what_nothing_is_inserted_into
}

fn node(bed: &mut Bed) {
    bed.port(Port::TRUSTED | Port::STEERED, 0);
    bed.set(|sr| {
        sr.steered.insert("10.2.0.0/16".parse().unwrap(), 1);
        sr.steered.insert("2001:db8:b::/48".parse().unwrap(), 1);
    });
    policy(bed, &plain(&[FAR]));
}

fn policy(bed: &mut Bed, policy: &Policy) {
    bed.set(|sr| {
        sr.policies.insert(1, *policy);
    });
}

pub(crate) fn with_headers(packet: &[u8], next_header_at: u16) -> Policy {
    let mut headers = [0; MAX_HEADERS];
    headers[..packet.len()].copy_from_slice(packet);
    Policy {
        headers,
        len: packet.len() as u16,
        next_header_at,
        flags: 0,
        slot: SLOT,
        mtu: 1500,
    }
}

/// All segments are in the list, which is in the order of the wire.
fn plain(list: &[&str]) -> Policy {
    let last = list.len() - 1;
    with_headers(
        &ipv6(64, ROUTING, list[last], &srh(0, last as u8, list)),
        40,
    )
}

/// What is sent without its flow label, which has to be there.
fn sent(bed: &mut Bed, frame: &[u8]) -> Vec<u8> {
    let outcome = bed.run(frame);
    assert_eq!(
        (outcome.action, &outcome.reasons[..]),
        (XDP_REDIRECT, &[][..]),
        "{outcome:?}"
    );
    let mut sent = outcome.frame;
    assert_ne!(
        (sent[15] & 0xf, sent[16], sent[17]),
        (0, 0, 0),
        "no flow label"
    );
    sent[15] &= 0xf0;
    sent[16..18].fill(0);
    sent
}

fn v4(ttl: u8) -> Vec<u8> {
    ipv4(ttl, "10.2.0.9", &udp(4))
}

fn v6(hops: u8) -> Vec<u8> {
    ipv6(hops, UDP, FAR, &udp(4))
}

fn out(packet: &[u8]) -> Vec<u8> {
    ether(SECOND, OUT, packet)
}

fn a_whole_frame_into_a_policy(bed: &mut Bed) {
    policy(bed, &plain(&["2001:db8:b::2", "2001:db8:b::1"]));
    let arrived = hex("
        020000000002 020000000003 0800
        45b8 001c 1234 0000 40 11 52d1 0a090001 0a020009
        0007 0009 0008 0000");
    let expected = hex("
        020000000102 020000000101 86dd
        6b800000 0044 2b 40 20010db8000500000000000000000005 20010db8000b00000000000000000001
        04 04 04 01 01 00 0000
        20010db8000b00000000000000000002
        20010db8000b00000000000000000001
        45b8 001c 1234 0000 3f 11 53d1 0a090001 0a020009
        0007 0009 0008 0000");
    assert_eq!(sent(bed, &arrived), expected);
    assert_eq!(bed.traffic(SLOT), (1, 28));
}

fn headers_of_one_two_and_ten_segments(bed: &mut Bed) {
    for count in [1, 2, 10] {
        let list = vec![FAR; count];
        policy(bed, &plain(&list));
        for (next, before, after) in [(IPV4, v4(64), v4(63)), (IPV6, v6(64), v6(63))] {
            let inside = [&srh(next, count as u8 - 1, &list)[..], &after].concat();
            let expected = out(&ipv6(64, ROUTING, FAR, &inside));
            assert_eq!(sent(bed, &frame(&before)), expected, "{count} segments");
        }
    }
}

fn reduced_headers_of_one_two_and_ten_segments(bed: &mut Bed) {
    for count in [1, 2, 10] {
        let list = vec!["2001:db8:b::77"; count - 1];
        let left = count as u8 - 1;
        for (next, before, after) in [(IPV4, v4(64), v4(63)), (IPV6, v6(64), v6(63))] {
            // A single segment needs no SRH.
            let (made, packet) = match count {
                1 => (
                    with_headers(&ipv6(64, 0, FAR, &[]), 6),
                    ipv6(64, next, FAR, &after),
                ),
                _ => (
                    with_headers(&ipv6(64, ROUTING, FAR, &srh(0, left, &list)), 40),
                    ipv6(
                        64,
                        ROUTING,
                        FAR,
                        &[&srh(next, left, &list)[..], &after].concat(),
                    ),
                ),
            };
            policy(bed, &made);
            assert_eq!(sent(bed, &frame(&before)), out(&packet), "{count} segments");
        }
    }
}

fn the_packet_loses_a_hop_once(bed: &mut Bed) {
    for (next, packet) in [(IPV4, &v4 as &dyn Fn(u8) -> Vec<u8>), (IPV6, &v6)] {
        for hops in [2, 255] {
            let inside = [&srh(next, 0, &[FAR])[..], &packet(hops - 1)].concat();
            let expected = out(&ipv6(64, ROUTING, FAR, &inside));
            assert_eq!(sent(bed, &frame(&packet(hops))), expected);
        }
        for hops in [0, 1] {
            let arrived = frame(&packet(hops));
            let expected = Outcome::passed(arrived.clone(), &[]);
            bed.check("the kernel tells the sender", &arrived, &expected);
        }
    }
}

fn the_flow_label_is_that_of_the_flow(bed: &mut Bed) {
    let label = |bed: &mut Bed, packet: &[u8]| {
        let sent = bed.run(&frame(packet)).frame;
        (sent[15] & 0xf, sent[16], sent[17])
    };
    let first = label(bed, &v4(64));
    assert_eq!(
        label(bed, &ipv4(9, "10.2.0.9", &udp(40))),
        first,
        "the same flow"
    );
    assert_ne!(
        label(bed, &ipv4(64, "10.2.0.8", &udp(4))),
        first,
        "another host"
    );
    let mut ports = udp(4);
    ports[1] = 8;
    assert_ne!(
        label(bed, &ipv4(64, "10.2.0.9", &ports)),
        first,
        "another port"
    );
    assert_ne!(label(bed, &v6(64)), first);
}

fn the_hop_limit_is_the_policys_or_the_packets(bed: &mut Bed) {
    let mut made = plain(&[FAR]);
    made.flags = Policy::INHERIT_HOP_LIMIT;
    policy(bed, &made);
    let inside = [&srh(IPV6, 0, &[FAR])[..], &v6(8)].concat();
    assert_eq!(
        sent(bed, &frame(&v6(9))),
        out(&ipv6(8, ROUTING, FAR, &inside))
    );
    let inside = [&srh(IPV4, 0, &[FAR])[..], &v4(8)].concat();
    assert_eq!(
        sent(bed, &frame(&v4(9))),
        out(&ipv6(64, ROUTING, FAR, &inside))
    );
}

fn padding_does_not_travel(bed: &mut Bed) {
    let inside = [&srh(IPV4, 0, &[FAR])[..], &v4(63)].concat();
    let expected = out(&ipv6(64, ROUTING, FAR, &inside));
    for padding in [1, 14, 63] {
        let mut arrived = frame(&v4(64));
        arrived.resize(arrived.len() + padding, 0xee);
        assert_eq!(sent(bed, &arrived), expected, "{padding} bytes");
    }
    // What is no padding of Ethernet stays, and no length counts it.
    let mut arrived = frame(&v4(64));
    arrived.resize(arrived.len() + 64, 0xee);
    let mut expected = expected;
    expected.resize(expected.len() + 64, 0xee);
    assert_eq!(sent(bed, &arrived), expected);
}

fn the_mtu_counts_headers(bed: &mut Bed) {
    let mut made = plain(&[FAR]);
    for (mtu, is_sent) in [(96, true), (95, false)] {
        made.mtu = mtu;
        policy(bed, &made);
        let mut arrived = frame(&v4(64));
        assert_eq!(v4(64).len() + 64, 96);
        arrived.push(0xee);
        match is_sent {
            true => {
                sent(bed, &arrived);
            }
            false => {
                let expected = Outcome::told(Reason::TooBig, 95 - 64, &arrived[14..]);
                bed.check("the sender hears what fits", &arrived, &expected);
            }
        }
    }
}

fn headers_have_an_end(bed: &mut Bed) {
    let mut made = plain(&[FAR]);
    for len in [0, 39, MAX_HEADERS as u16 + 1, u16::MAX] {
        made.len = len;
        policy(bed, &made);
        bed.check(
            "no headers",
            &frame(&v4(64)),
            &Outcome::dropped(Reason::TooLong),
        );
    }
}

fn the_kernel_gets_frames_for_this_host(bed: &mut Bed) {
    for segment in ["2001:db8:c::9", "2001:db8:d::9", "2001:db8:ffff::9"] {
        policy(bed, &plain(&[segment]));
        let outcome = bed.run(&frame(&v6(64)));
        assert_eq!(outcome.reasons, [Reason::ToKernel]);
        let inside = [&srh(IPV6, 0, &[segment])[..], &v6(63)].concat();
        let mut passed = outcome.frame;
        passed[15..18].fill(0);
        // Of a stranger's frame the kernel takes nothing, and neither does it for an unknown neighbour's sake.
        assert_eq!(
            passed,
            frame(&ipv6(64, ROUTING, segment, &inside)),
            "{segment}"
        );
    }
}

fn the_first_segment_may_be_here(bed: &mut Bed) {
    bed.set(|sr| {
        let sid = Sid::new(Behavior::EndDt4, Flavors(0), TABLE, 6);
        sr.sids.insert(SID.parse().unwrap(), sid);
    });
    policy(bed, &plain(&[SID]));
    let expected = Outcome::sent(ether(FOURTH, OUT, &v4(62)));
    bed.check("and the only one", &frame(&v4(64)), &expected);
    bed.set(|sr| {
        let sid = Sid::new(Behavior::End, Flavors::PSP, 0, 6);
        sr.sids.insert(SID.parse().unwrap(), sid);
    });
    policy(bed, &plain(&[FAR, SID]));
    let expected = out(&ipv6(63, IPV4, FAR, &v4(63)));
    assert_eq!(sent(bed, &frame(&v4(64))), expected);
}

fn the_longest_prefix_decides(bed: &mut Bed) {
    bed.set(|sr| {
        sr.policies.insert(2, plain(&["2001:db8:b::2"]));
        sr.steered.insert("10.2.0.9/32".parse().unwrap(), 2);
        sr.steered.insert("0.0.0.0/0".parse().unwrap(), 1);
        // A policy that is not there.
        sr.steered.insert("10.2.8.0/24".parse().unwrap(), 3);
    });
    let mut check = |host: &str, segment: &str| {
        let after = ipv4(63, host, &[]);
        let inside = [&srh(IPV4, 0, &[segment])[..], &after].concat();
        let expected = out(&ipv6(64, ROUTING, segment, &inside));
        assert_eq!(sent(bed, &frame(&ipv4(64, host, &[]))), expected, "{host}");
    };
    check("10.2.0.9", "2001:db8:b::2");
    check("10.2.0.8", FAR);
    check("192.0.2.1", FAR);
    let arrived = frame(&ipv4(64, "10.2.8.1", &[]));
    let expected = Outcome::passed(arrived.clone(), &[]);
    bed.check("without its policy", &arrived, &expected);
}

fn only_what_is_to_be_steered_is(bed: &mut Bed) {
    let mut check = |that: &str, arrived: Vec<u8>| {
        let expected = Outcome::passed(arrived.clone(), &[]);
        bed.check(that, &arrived, &expected);
    };
    check("another destination", frame(&ipv4(64, "10.3.0.9", &udp(4))));
    let good = frame(&v4(64));
    let mut stray = good.clone();
    stray[0] ^= 2;
    check("a frame for others", stray);
    let mut arp = good.clone();
    arp[13] = 6;
    check("another protocol", arp);
    check("not even an address", good[..33].to_vec());
    let mut local = good.clone();
    local[26] = 127;
    check("from a host itself", local);
    let mut link = frame(&v6(64));
    link[22..24].copy_from_slice(&[0xfe, 0x80]);
    check("from the link", link);
    // The kernel might send on what it takes for a packet, without headers.
    let mut check = |that: &str, arrived: Vec<u8>, reason: Reason| {
        bed.check(that, &arrived, &Outcome::dropped(reason));
    };
    let mut cut = good.clone();
    cut.pop();
    check("an incomplete packet", cut, Reason::Malformed);
    let mut version = good.clone();
    version[14] = 0x65;
    check("another version", version, Reason::Malformed);
    let mut tagged = good.clone();
    tagged.splice(12..12, [0x81, 0, 0xe0, 0]);
    check("a priority tag", tagged, Reason::PriorityTag);
    bed.port(Port::TRUSTED, 0);
    let expected = Outcome::passed(good.clone(), &[]);
    bed.check("another device", &good, &expected);
}

/// RFC 8986, section 5.3: the frame as it is, whomever it is for, with its padding.
fn a_whole_frame_behind_headers(bed: &mut Bed) {
    policy(bed, &plain(&["2001:db8:b::2", "2001:db8:b::1"]));
    bed.port(Port::FRAMES, 1);
    let arrived = hex("
        020000000099 020000000003 0800
        45b8 001c 1234 0000 01 11 91d1 0a090001 0a020009
        0007 0009 0008 0000
        0000 0000");
    let expected = hex("
        020000000102 020000000101 86dd
        6b800000 0056 2b 40 20010db8000500000000000000000005 20010db8000b00000000000000000001
        8f 04 04 01 01 00 0000
        20010db8000b00000000000000000002
        20010db8000b00000000000000000001
        020000000099 020000000003 0800
        45b8 001c 1234 0000 01 11 91d1 0a090001 0a020009
        0007 0009 0008 0000
        0000 0000");
    let (packets, bytes) = bed.traffic(SLOT);
    assert_eq!(sent(bed, &arrived), expected);
    assert_eq!(bed.traffic(SLOT), (packets + 1, bytes + 46));
    // H.Encaps.L2.Red: a single segment needs no SRH.
    let mut made = with_headers(&ipv6(64, 0, FAR, &[]), 6);
    made.flags = Policy::INHERIT_HOP_LIMIT;
    policy(bed, &made);
    let arrived = frame(&v6(1));
    assert_eq!(
        sent(bed, &arrived),
        out(&ipv6(64, ETHERNET, FAR, &arrived)),
        "the hop limit inside is that of another network"
    );
}

fn frames_of_all_kinds_go_into_the_policy(bed: &mut Bed) {
    bed.port(Port::FRAMES, 1);
    let mut arp = frame(&v4(64));
    arp[13] = 6;
    let mut to_all = arp.clone();
    to_all[..6].fill(0xff);
    let mut cut = frame(&v6(64));
    cut.truncate(20);
    let empty = frame(&[])[..14].to_vec();
    for arrived in [arp, to_all, cut, empty] {
        let inside = [&srh(ETHERNET, 0, &[FAR])[..], &arrived].concat();
        assert_eq!(sent(bed, &arrived), out(&ipv6(64, ROUTING, FAR, &inside)));
    }
    bed.port(Port::FRAMES, 2);
    let arrived = frame(&v4(64));
    let expected = Outcome::passed(arrived.clone(), &[]);
    bed.check("without its policy", &arrived, &expected);
    // The kernel takes what is addressed to the device.
    bed.port(Port::FRAMES, 1);
    policy(bed, &plain(&["2001:db8:c::9"]));
    let outcome = bed.run(&frame(&v6(64)));
    assert_eq!(outcome.reasons, [Reason::ToKernel]);
    assert_eq!(outcome.frame[..12], [OURS, OURS].concat());
}

fn frames_have_a_longest(bed: &mut Bed) {
    bed.port(Port::FRAMES, 1);
    let mut made = plain(&[FAR]);
    let arrived = frame(&v4(64));
    made.mtu = 64 + arrived.len() as u32;
    policy(bed, &made);
    sent(bed, &arrived);
    made.mtu -= 1;
    policy(bed, &made);
    bed.check(
        "nobody is told",
        &arrived,
        &Outcome::dropped(Reason::TooBig),
    );
    for len in [0, 39, MAX_HEADERS as u16 - 13, u16::MAX] {
        made.len = len;
        policy(bed, &made);
        bed.check("no headers", &arrived, &Outcome::dropped(Reason::TooLong));
    }
    // The longest headers leave room for what the kernel puts in front.
    policy(bed, &plain(&[FAR; 9]));
    sent(bed, &arrived);
}

/// As [`plain`], for H.Insert: the last segment is the packet's destination, of which there is the place only.
fn inserted(list: &[&str]) -> Policy {
    let list = [&["::"], list].concat();
    Policy {
        flags: Policy::INSERT,
        ..plain(&list)
    }
}

/// draft-filsfils-spring-srv6-net-pgm-insertion, section 4.1.
fn an_srh_in_a_packet(bed: &mut Bed) {
    policy(bed, &inserted(&["2001:db8:b::2", "2001:db8:b::1"]));
    let arrived = hex("
        020000000002 020000000003 86dd
        6b812345 000a 11 40 20010db8000500000000000000000005 20010db8000b00000000000000000009
        0007 0009 000a 0000 abcd
        0000");
    let expected = hex("
        020000000102 020000000101 86dd
        6b812345 0042 2b 3f 20010db8000500000000000000000005 20010db8000b00000000000000000001
        11 06 04 02 02 00 0000
        20010db8000b00000000000000000009
        20010db8000b00000000000000000002
        20010db8000b00000000000000000001
        0007 0009 000a 0000 abcd");
    bed.check("H.Insert", &arrived, &Outcome::sent(expected));
    // H.Insert.Red: the first segment is the destination address alone.
    let mut made = with_headers(&ipv6(64, ROUTING, "2001:db8:b::1", &srh(0, 1, &["::"])), 40);
    made.flags = Policy::INSERT;
    policy(bed, &made);
    let inside = [&srh(UDP, 1, &[FAR])[..], &udp(4)].concat();
    let expected = Outcome::sent(out(&ipv6(63, ROUTING, "2001:db8:b::1", &inside)));
    bed.check("reduced", &frame(&v6(64)), &expected);
    // The first segment may be here.
    bed.set(|sr| {
        let sid = Sid::new(Behavior::End, Flavors::PSP, 0, 6);
        sr.sids.insert(SID.parse().unwrap(), sid);
    });
    policy(bed, &inserted(&[SID]));
    let expected = Outcome::sent(out(&v6(62)));
    bed.check("and removed again", &frame(&v6(64)), &expected);
}

fn an_srh_behind_hop_by_hop_options_and_before_all_else(bed: &mut Bed) {
    policy(bed, &inserted(&["2001:db8:b::1"]));
    let of = |front: &[u8], next: u8, first: u8, rest: &[u8]| {
        let list = [FAR, "2001:db8:b::1"];
        let payload = [front, &srh(next, 1, &list), rest].concat();
        Outcome::sent(out(&ipv6(63, first, list[1], &payload)))
    };
    let options_then_data = [&options(UDP)[..], &udp(4)].concat();
    let packet = ipv6(64, 0, FAR, &options_then_data);
    let expected = of(&options(ROUTING), UDP, 0, &udp(4));
    bed.check("hop-by-hop options", &frame(&packet), &expected);
    let packet = ipv6(64, OPTIONS, FAR, &options_then_data);
    let expected = of(&[], OPTIONS, ROUTING, &options_then_data);
    bed.check("destination options", &frame(&packet), &expected);
    let routed = [&srh(UDP, 1, &["2001:db8:b::3", FAR])[..], &udp(4)].concat();
    let packet = ipv6(64, ROUTING, FAR, &routed);
    let expected = of(&[], ROUTING, ROUTING, &routed);
    bed.check("another SRH", &frame(&packet), &expected);
    // As far as they can be moved.
    for (words, is_moved) in [(18, true), (19, false)] {
        let mut long = options(UDP).to_vec();
        long[1] = words;
        long.resize(8 * (usize::from(words) + 1), 0);
        let packet = ipv6(64, 0, FAR, &[&long[..], &udp(4)].concat());
        long[0] = ROUTING;
        let expected = match is_moved {
            true => of(&long, UDP, 0, &udp(4)),
            false => Outcome::dropped(Reason::TooLong),
        };
        bed.check("long options", &frame(&packet), &expected);
    }
}

fn what_nothing_is_inserted_into(bed: &mut Bed) {
    let mut made = inserted(&["2001:db8:b::1"]);
    policy(bed, &made);
    for packet in [v4(64), v6(1), v6(0)] {
        let arrived = frame(&packet);
        let expected = Outcome::passed(arrived.clone(), &[]);
        bed.check("the kernel's", &arrived, &expected);
    }
    let arrived = frame(&v6(64));
    made.mtu = v6(64).len() as u32 + 40;
    policy(bed, &made);
    assert_eq!(bed.run(&arrived).action, XDP_REDIRECT);
    made.mtu -= 1;
    policy(bed, &made);
    let expected = Outcome::told(Reason::TooBig, made.mtu - 40, &arrived[14..]);
    bed.check("the sender hears what fits", &arrived, &expected);
    for len in [0, 39, 63, MAX_HEADERS as u16 + 1, u16::MAX] {
        made.len = len;
        policy(bed, &made);
        bed.check("no SRH", &arrived, &Outcome::dropped(Reason::TooLong));
    }
    policy(bed, &inserted(&[FAR; 9]));
    assert_eq!(bed.run(&arrived).action, XDP_REDIRECT);
}
