//! Functions behind proxies: draft-ietf-spring-sr-service-programming, section 6.

use sig_common::{
    maps::Ip,
    srv6::{
        Behavior, Flavors, Sid,
        maps::{Adjacency, Function, Peer, Port, Reason},
    },
};

use super::bed::{Bed, FOURTH, OUT, Outcome, SECOND, TABLE, one_after_the_other};
use super::encap::with_headers;
use super::packets::*;
use crate::frames::{LO, XDP_PASS, XDP_REDIRECT};

/// Behind the second router.
const FAR: &str = "2001:db8:b::9";
const AS: &str = "2001:db8:a::b0";
const AD4: &str = "2001:db8:a::b4";
const AD6: &str = "2001:db8:a::b6";
const AM: &str = "2001:db8:a::ba";
/// `End.AD4` that ends chains.
const LAST: &str = "2001:db8:a::bb";
/// SIDs of one function, the last of which ends chains.
const FLOWS: [&str; 3] = ["2001:db8:a::c1", "2001:db8:a::c2", "2001:db8:a::c3"];
const FLOWS6: &str = "2001:db8:a::c6";
/// `End.DT4`.
const DT4: &str = "2001:db8:a::f4";
/// Numbers of functions.
const STATIC: u32 = 0;
const DYNAMIC: u32 = 1;
const DYNAMIC6: u32 = 2;
const MASQUERADED: u32 = 3;
const PER_FLOW: u32 = 4;
/// Counters of what the dynamic one returned.
const SLOT: u32 = 31;

one_after_the_other! {
    packets_of_functions: node;
    a_static_proxy_has_headers_of_its_own
    a_dynamic_proxy_remembers_headers
    what_a_function_returns_may_have_changed
    the_last_chain_is_the_one_remembered
    a_dynamic_proxy_for_ipv6
    flows_have_headers_of_their_own
    packets_without_ports_are_of_one_flow
    a_flow_may_end_or_change_its_chain
    flows_are_not_those_of_the_next_function
    a_masquerading_proxy_shows_the_last_segment
    a_chain_has_to_go_on
    or_it_ends_where_it_may
    proxies_take_what_their_functions_know
    headers_to_remember_have_an_end
    a_function_that_is_down_is_left_out_or_waited_for
    what_is_not_of_a_chain_stays_between_function_and_kernel
    what_a_function_must_not_return
    probes_are_told_about_and_go_nowhere
    what_a_function_says_as_a_neighbour_is_the_kernels
    the_next_segment_may_be_here
    hops_run_out_in_front_of_a_function
    the_way_to_a_function
}

fn node(bed: &mut Bed) {
    bed.port(Port::TRUSTED, 0);
    let to = bed.adjacency();
    bed.flows += 2;
    let flows = bed.flows;
    bed.set(|sr| {
        for (number, kind) in [
            (STATIC, Function::CONFIGURED),
            (DYNAMIC, Function::CACHED),
            (DYNAMIC6, Function::CACHED),
            (MASQUERADED, Function::MASQUERADED),
            (PER_FLOW, Function::CACHED),
        ] {
            let function = Function {
                to,
                flags: kind | Function::UP,
                policy: 7,
                slot: 30 + number,
                flows: if number == PER_FLOW { flows } else { 0 },
            };
            sr.functions.insert(number, function);
        }
        let headers = ipv6(64, ROUTING, FAR, &srh(0, 1, &["2001:db8:b::7", FAR]));
        sr.policies.insert(7, with_headers(&headers, 40));
        for (address, behavior, flavors, target) in [
            (AS, Behavior::EndAs, Flavors(0), STATIC),
            (AD4, Behavior::EndAd4, Flavors(0), DYNAMIC),
            (LAST, Behavior::EndAd4, Flavors::LAST, DYNAMIC),
            (AD6, Behavior::EndAd6, Flavors(0), DYNAMIC6),
            (AM, Behavior::EndAm, Flavors(0), MASQUERADED),
            (FLOWS[0], Behavior::EndAd4, Flavors(0), PER_FLOW),
            (FLOWS[1], Behavior::EndAd4, Flavors(0), PER_FLOW),
            (FLOWS[2], Behavior::EndAd4, Flavors::LAST, PER_FLOW),
            (FLOWS6, Behavior::EndAd6, Flavors(0), PER_FLOW),
            (DT4, Behavior::EndDt4, Flavors(0), TABLE),
        ] {
            sr.sids.insert(
                address.parse().unwrap(),
                Sid::new(behavior, flavors, target, 40),
            );
        }
    });
}

/// Packets come from the network.
fn network(bed: &mut Bed) {
    bed.port(Port::TRUSTED, 0);
}

/// Packets come back from a function.
fn back_from(bed: &mut Bed, function: u32) {
    bed.port(Port::RETURN, function);
}

fn routed(hops: u8, next: u8, left: u8, list: &[&str], inside: &[u8]) -> Vec<u8> {
    ipv6(
        hops,
        ROUTING,
        list[usize::from(left)],
        &[&srh(next, left, list), inside].concat(),
    )
}

/// To a function: the packet inside as it is.
fn given(packet: &[u8]) -> Outcome {
    Outcome::sent(ether(FOURTH, OUT, packet))
}

/// What a function returned, sent on: without its flow label.
fn sent(bed: &mut Bed, frame: &[u8]) -> Vec<u8> {
    let outcome = bed.run(frame);
    assert_eq!(outcome.action, XDP_REDIRECT, "{outcome:?}");
    let mut sent = outcome.frame;
    sent[15] &= 0xf0;
    sent[16..18].fill(0);
    sent
}

fn out(packet: &[u8]) -> Vec<u8> {
    ether(SECOND, OUT, packet)
}

fn flags(bed: &mut Bed, function: u32, flags: u32) {
    bed.set(|sr| sr.functions.get_mut(&function).unwrap().flags = flags);
}

fn a_static_proxy_has_headers_of_its_own(bed: &mut Bed) {
    for (next, inner, back) in [
        (
            IPV4,
            ipv4(2, "10.2.0.9", &udp(4)),
            ipv4(1, "10.2.0.9", &udp(4)),
        ),
        (IPV6, small_v6(), ipv6(63, UDP, FAR, &udp(4))),
    ] {
        network(bed);
        for outer in [
            routed(64, next, 1, &[FAR, AS], &inner),
            routed(64, next, 0, &[AS, FAR], &inner),
            ipv6(64, next, AS, &inner),
        ] {
            bed.check("out, with all its hops", &frame(&outer), &given(&inner));
        }
        back_from(bed, STATIC);
        let list = ["2001:db8:b::7", FAR];
        let expected = out(&routed(64, next, 1, &list, &back));
        assert_eq!(sent(bed, &frame(&inner)), expected, "back, a hop less");
    }
}

fn a_dynamic_proxy_remembers_headers(bed: &mut Bed) {
    let inner = ipv4(1, "10.2.0.9", &udp(4));
    back_from(bed, DYNAMIC);
    bed.check(
        "nothing yet",
        &frame(&inner),
        &Outcome::dropped(Reason::NoHeaders),
    );
    network(bed);
    let mut list = srh(IPV4, 2, &["2001:db8:b::7", FAR, AD4]);
    list[5..8].copy_from_slice(&[0x80, 0x12, 0x34]);
    list[1] += 1;
    list.extend([4, 6, 0, 0, 0, 0, 0, 0]);
    let mut outer = ipv6(64, ROUTING, AD4, &[&list[..], &inner].concat());
    outer[1] = 0x2f;
    bed.check("out", &frame(&outer), &given(&inner));
    let mut padded = frame(&outer);
    padded.push(0xee);
    let mut expected = ether(FOURTH, OUT, &inner);
    expected.push(0xee);
    bed.check("padded", &padded, &Outcome::sent(expected));
    assert_eq!(
        bed.programs.changes(DYNAMIC).unwrap(),
        1,
        "the same headers"
    );

    back_from(bed, DYNAMIC);
    let before = bed.traffic(SLOT);
    list[3] = 1;
    let expected = out(&ipv6(63, ROUTING, FAR, &[&list[..], &inner].concat()));
    for _ in 0..2 {
        assert_eq!(sent(bed, &frame(&inner)), expected, "back, TLVs and all");
    }
    assert_eq!(
        bed.traffic(SLOT),
        (before.0 + 2, before.1 + 2 * inner.len() as u64)
    );
}

fn what_a_function_returns_may_have_changed(bed: &mut Bed) {
    bed.run(&frame(&routed(64, IPV4, 1, &[FAR, AD4], &small_v4())));
    back_from(bed, DYNAMIC);
    for mut inner in [ipv4(64, "10.7.7.7", &[]), ipv4(64, "10.8.8.8", &udp(500))] {
        inner[1] = 0xb8;
        let mut expected = routed(63, IPV4, 0, &[FAR, AD4], &inner);
        // The traffic class is that of the packet at hand.
        expected[0] = 0x6b;
        expected[1] = 0x80;
        expected[24..40].copy_from_slice(&address(FAR));
        let mut arrived = frame(&inner);
        assert_eq!(sent(bed, &arrived), out(&expected));
        arrived.extend([0xee; 20]);
        assert_eq!(sent(bed, &arrived), out(&expected), "padding");
    }
}

fn the_last_chain_is_the_one_remembered(bed: &mut Bed) {
    let inner = small_v4();
    let chains = [[FAR, AD4], ["2001:db8:b::7", AD4]];
    for round in 0..2 {
        for (index, list) in chains.iter().enumerate() {
            network(bed);
            bed.run(&frame(&routed(64, IPV4, 1, list, &inner)));
            let changes = bed.programs.changes(DYNAMIC).unwrap();
            assert_eq!(changes, 2 * round + index as u64 + 1);
            back_from(bed, DYNAMIC);
            let expected = ipv6(
                63,
                ROUTING,
                list[0],
                &[&srh(IPV4, 0, list)[..], &inner].concat(),
            );
            assert_eq!(sent(bed, &frame(&inner)), out(&expected));
        }
    }
    // The headers of a function that is gone are forgotten.
    let function = bed.sr.functions[&DYNAMIC];
    bed.set(|sr| {
        sr.functions.remove(&DYNAMIC);
    });
    bed.check("gone", &frame(&inner), &Outcome::passed(frame(&inner), &[]));
    bed.set(|sr| {
        sr.functions.insert(DYNAMIC, function);
    });
    bed.check(
        "another one",
        &frame(&inner),
        &Outcome::dropped(Reason::NoHeaders),
    );
}

fn a_dynamic_proxy_for_ipv6(bed: &mut Bed) {
    let inner = small_v6();
    // With options on both sides of the SRH.
    let headers = |left| {
        let list = srh(OPTIONS, left, &[FAR, AD6]);
        [&options(ROUTING)[..], &list, &options(IPV6), &inner].concat()
    };
    bed.check(
        "out",
        &frame(&ipv6(64, OPTIONS, AD6, &headers(1))),
        &given(&inner),
    );
    back_from(bed, DYNAMIC6);
    assert_eq!(
        sent(bed, &frame(&inner)),
        out(&ipv6(63, OPTIONS, FAR, &headers(0)))
    );
}

/// IPv4 packets between the same hosts.
fn from_port(port: u16) -> Vec<u8> {
    let mut packet = small_v4();
    packet[20..22].copy_from_slice(&port.to_be_bytes());
    packet
}

fn flows_have_headers_of_their_own(bed: &mut Bed) {
    let lists = [[FAR, FLOWS[0]], ["2001:db8:b::7", FLOWS[1]]];
    let packets = [from_port(1), from_port(2)];
    for (list, inner) in lists.iter().zip(&packets) {
        bed.check(
            "out",
            &frame(&routed(64, IPV4, 1, list, inner)),
            &given(inner),
        );
    }
    let v6 = small_v6();
    let out_v6 = frame(&routed(64, IPV6, 1, &[FAR, FLOWS6], &v6));
    bed.check("out", &out_v6, &given(&v6));
    let mut other = packets[0].clone();
    other[9] = 6;
    back_from(bed, PER_FLOW);
    for _ in 0..2 {
        for (list, inner) in lists.iter().zip(&packets) {
            // Neither the traffic class nor what it carries is of the flow.
            let mut inner = inner.clone();
            inner[1] = 0xb8;
            inner[28] ^= 1;
            let headers = srh(IPV4, 0, list);
            let mut expected = ipv6(63, ROUTING, list[0], &[&headers[..], &inner].concat());
            expected[0] = 0x6b;
            expected[1] = 0x80;
            assert_eq!(sent(bed, &frame(&inner)), out(&expected));
        }
    }
    let expected = ipv6(
        63,
        ROUTING,
        FAR,
        &[&srh(IPV6, 0, &[FAR, FLOWS6])[..], &v6].concat(),
    );
    assert_eq!(sent(bed, &frame(&v6)), out(&expected), "the other version");
    assert_eq!(bed.programs.changes(PER_FLOW).unwrap(), 0);
    flags(bed, PER_FLOW, Function::CACHED | Function::UP);
    let none = Outcome::dropped(Reason::NoHeaders);
    bed.check("another port", &frame(&from_port(3)), &none);
    bed.check("another protocol", &frame(&other), &none);
    bed.check(
        "another destination",
        &frame(&ipv4(64, "10.2.0.8", &udp(4))),
        &none,
    );
    bed.check(
        "cut",
        &frame(&packets[0][..31]),
        &Outcome::dropped(Reason::NotReturned),
    );
}

fn packets_without_ports_are_of_one_flow(bed: &mut Bed) {
    let fragment = |offset: u8| {
        let mut packet = small_v4();
        packet[6..8].copy_from_slice(&[0x20, offset]);
        packet
    };
    let list = [FAR, FLOWS[0]];
    bed.run(&frame(&routed(64, IPV4, 1, &list, &fragment(0))));
    back_from(bed, PER_FLOW);
    for inner in [fragment(0), fragment(9)] {
        let expected = ipv6(
            63,
            ROUTING,
            FAR,
            &[&srh(IPV4, 0, &list)[..], &inner].concat(),
        );
        assert_eq!(sent(bed, &frame(&inner)), out(&expected), "fragments");
    }
    let none = Outcome::dropped(Reason::NoHeaders);
    bed.check("put together", &frame(&small_v4()), &none);
}

fn a_flow_may_end_or_change_its_chain(bed: &mut Bed) {
    let inner = small_v4();
    let last = frame(&routed(64, IPV4, 0, &[FLOWS[2]], &inner));
    let lists = [[FAR, FLOWS[0]], ["2001:db8:b::7", FLOWS[2]]];
    flags(
        bed,
        PER_FLOW,
        Function::CACHED | Function::UP | Function::LAST,
    );
    for (changes, list) in lists.iter().enumerate() {
        network(bed);
        let changes = 2 * changes as u64;
        bed.run(&frame(&routed(64, IPV4, 1, list, &inner)));
        assert_eq!(bed.programs.changes(PER_FLOW).unwrap(), changes);
        back_from(bed, PER_FLOW);
        let expected = ipv6(
            63,
            ROUTING,
            list[0],
            &[&srh(IPV4, 0, list)[..], &inner].concat(),
        );
        assert_eq!(sent(bed, &frame(&inner)), out(&expected));

        // A hop less is no other chain, but what goes in circles has to end.
        network(bed);
        bed.run(&frame(&routed(9, IPV4, 1, list, &inner)));
        assert_eq!(bed.programs.changes(PER_FLOW).unwrap(), changes);
        back_from(bed, PER_FLOW);
        assert_eq!(sent(bed, &frame(&inner))[21], 8);

        network(bed);
        bed.check("out", &last, &given(&inner));
        assert_eq!(bed.programs.changes(PER_FLOW).unwrap(), changes + 1);
        back_from(bed, PER_FLOW);
        let routed = out(&ipv4(63, "10.2.0.9", &udp(4)));
        bed.check("by the table", &frame(&inner), &Outcome::sent(routed));
    }
    let unknown = ipv4(64, "10.2.0.8", &udp(4));
    let routed = out(&ipv4(63, "10.2.0.8", &udp(4)));
    bed.check(
        "what it invents too",
        &frame(&unknown),
        &Outcome::sent(routed),
    );
}

fn flows_are_not_those_of_the_next_function(bed: &mut Bed) {
    let inner = small_v4();
    bed.run(&frame(&routed(64, IPV4, 1, &[FAR, FLOWS[0]], &inner)));
    bed.set(|sr| sr.functions.get_mut(&PER_FLOW).unwrap().flows += 1);
    back_from(bed, PER_FLOW);
    bed.check(
        "it has the same number",
        &frame(&inner),
        &Outcome::dropped(Reason::NoHeaders),
    );
}

fn a_masquerading_proxy_shows_the_last_segment(bed: &mut Bed) {
    let list = ["2001:db8:ffff::9", FAR, AM];
    let packet = |hops, destination, left| {
        ipv6(
            hops,
            ROUTING,
            destination,
            &[&srh(UDP, left, &list)[..], &udp(4)].concat(),
        )
    };
    let shown = packet(63, list[0], 2);
    bed.check("out", &frame(&packet(64, AM, 2)), &given(&shown));
    back_from(bed, MASQUERADED);
    let expected = Outcome::sent(out(&packet(63, FAR, 1)));
    bed.check(
        "back, after the one hop on the way out",
        &frame(&shown),
        &expected,
    );
    for own in [small_v4(), small_v6()] {
        let own = frame(&own);
        bed.check("of its own", &own, &Outcome::passed(own.clone(), &[]));
    }
}

fn a_chain_has_to_go_on(bed: &mut Bed) {
    for (sid, next, inner) in [(AD4, IPV4, small_v4()), (AD6, IPV6, small_v6())] {
        let end = Outcome::dropped(Reason::ChainEnd);
        bed.check(
            "no segments left",
            &frame(&routed(64, next, 0, &[sid, FAR], &inner)),
            &end,
        );
        bed.check("no SRH", &frame(&ipv6(64, next, sid, &inner)), &end);
    }
    let packet = routed(64, IPV6, 0, &[AM, FAR], &small_v6());
    let expected = Outcome::told(Reason::UpperLayer, 80, &packet);
    bed.check("no segment to show", &frame(&packet), &expected);
}

fn or_it_ends_where_it_may(bed: &mut Bed) {
    let inner = small_v4();
    bed.check(
        "no segments left",
        &frame(&routed(64, IPV4, 0, &[LAST], &inner)),
        &given(&inner),
    );
    bed.check(
        "no SRH",
        &frame(&ipv6(0, IPV4, LAST, &inner)),
        &given(&inner),
    );
    assert_eq!(
        bed.programs.changes(DYNAMIC).unwrap(),
        0,
        "nothing to remember"
    );
    bed.check(
        "one left",
        &frame(&routed(64, IPV4, 1, &[FAR, LAST], &inner)),
        &given(&inner),
    );
    assert_eq!(bed.programs.changes(DYNAMIC).unwrap(), 1);
}

fn proxies_take_what_their_functions_know(bed: &mut Bed) {
    let inside_ethernet = frame(&small_v4());
    for (sid, next, inner) in [
        (AD4, IPV6, small_v6()),
        (AD6, IPV4, small_v4()),
        (AD4, UDP, udp(0)),
        (AS, UDP, udp(0)),
        // Nothing would put the frame behind headers again.
        (AS, ETHERNET, inside_ethernet.clone()),
        (AD4, ETHERNET, inside_ethernet),
    ] {
        let packet = routed(64, next, 1, &[FAR, sid], &inner);
        bed.check(
            sid,
            &frame(&packet),
            &Outcome::told(Reason::UpperLayer, 80, &packet),
        );
    }
    let cut = routed(64, IPV4, 1, &[FAR, AD4], &small_v4()[..30]);
    bed.check("cut", &frame(&cut), &Outcome::dropped(Reason::BadInner));
}

fn headers_to_remember_have_an_end(bed: &mut Bed) {
    let inner = small_v4();
    for (segments, is_taken) in [(10, true), (11, false)] {
        network(bed);
        let mut list = vec![FAR; segments];
        list[1] = AD4;
        let packet = routed(64, IPV4, 1, &list, &inner);
        let expected = match is_taken {
            true => given(&inner),
            false => Outcome::dropped(Reason::TooLong),
        };
        bed.check("so many segments", &frame(&packet), &expected);
        // A static proxy need not remember any.
        list[1] = AS;
        let packet = routed(64, IPV4, 1, &list, &inner);
        bed.check("static", &frame(&packet), &given(&inner));
        if is_taken {
            back_from(bed, DYNAMIC);
            list[1] = AD4;
            let next = ipv6(
                63,
                ROUTING,
                FAR,
                &[&srh(IPV4, 0, &list)[..], &inner].concat(),
            );
            assert_eq!(sent(bed, &frame(&inner)), out(&next));
        }
    }
}

fn a_function_that_is_down_is_left_out_or_waited_for(bed: &mut Bed) {
    let down = Outcome::dropped(Reason::FunctionDown);
    for (sid, function, kind) in [
        (AS, STATIC, Function::CONFIGURED),
        (AD4, DYNAMIC, Function::CACHED),
        (AM, MASQUERADED, Function::MASQUERADED),
    ] {
        let list = ["2001:db8:ffff::9", FAR, sid];
        let packet = routed(64, IPV4, 2, &list, &small_v4());
        flags(bed, function, kind);
        bed.check(sid, &frame(&packet), &down);
        flags(bed, function, kind | Function::BYPASS);
        let expected = match sid {
            // With the headers of its own.
            AS => {
                let inner = ipv4(63, "10.2.0.9", &udp(4));
                routed(64, IPV4, 1, &["2001:db8:b::7", FAR], &inner)
            }
            _ => routed(63, IPV4, 1, &list, &small_v4()),
        };
        assert_eq!(sent(bed, &frame(&packet)), out(&expected), "{sid}");
        bed.set(|sr| {
            sr.functions.remove(&function);
        });
        bed.check(sid, &frame(&packet), &down);
    }
}

fn what_is_not_of_a_chain_stays_between_function_and_kernel(bed: &mut Bed) {
    back_from(bed, DYNAMIC);
    let mut arp = frame(&small_v4());
    arp[13] = 6;
    let mut local = small_v6();
    local[8..10].copy_from_slice(&[0xfe, 0x80]);
    for (that, arrived) in [
        ("ARP", arp),
        ("IPv4 multicast", frame(&ipv4(1, "224.0.0.5", &[]))),
        ("IPv4 broadcast", frame(&ipv4(1, "255.255.255.255", &[]))),
        ("IPv4 link-local", frame(&ipv4(1, "169.254.1.1", &[]))),
        ("IPv6 multicast", frame(&ipv6(255, ICMPV6, "ff02::1", &[]))),
        (
            "to a link-local address",
            frame(&ipv6(255, ICMPV6, "fe80::1", &[])),
        ),
        ("from one", frame(&local)),
    ] {
        let expected = Outcome::passed(arrived.clone(), &[]);
        bed.check(that, &arrived, &expected);
    }
}

fn what_a_function_must_not_return(bed: &mut Bed) {
    bed.run(&frame(&routed(64, IPV4, 1, &[FAR, AD4], &small_v4())));
    back_from(bed, DYNAMIC);
    let not = Outcome::dropped(Reason::NotReturned);
    bed.check("another version than was sent", &frame(&small_v6()), &not);
    let cut = frame(&small_v4()[..31]);
    bed.check("an incomplete packet", &cut, &not);
    back_from(bed, STATIC);
    bed.check("likewise", &cut, &not);
    bed.set(|sr| sr.policies.get_mut(&7).unwrap().mtu = 111);
    let inner = small_v4();
    let expected = Outcome::told(Reason::TooBig, 111 - 80, &inner);
    bed.check("too big", &frame(&inner), &expected);
    bed.set(|sr| sr.policies.get_mut(&7).unwrap().len = 209);
    bed.check(
        "too long",
        &frame(&inner),
        &Outcome::dropped(Reason::TooLong),
    );
    bed.set(|sr| sr.policies.clear());
    bed.check(
        "no policy",
        &frame(&inner),
        &Outcome::dropped(Reason::NoHeaders),
    );
}

fn probes_are_told_about_and_go_nowhere(bed: &mut Bed) {
    bed.run(&frame(&routed(64, IPV4, 1, &[FAR, AD4], &small_v4())));
    let mut payload = udp(12);
    payload[8..16].copy_from_slice(&bed.programs.token().to_ne_bytes());
    for probe in [ipv4(1, "10.2.0.9", &payload), ipv6(1, UDP, FAR, &payload)] {
        for function in [STATIC, DYNAMIC, MASQUERADED, PER_FLOW] {
            back_from(bed, function);
            let told = Outcome::told(Reason::Probe, 0, &probe);
            bed.check("of whatever function", &frame(&probe), &told);
        }
    }
    back_from(bed, DYNAMIC);
    payload[8] ^= 1;
    let other = ipv4(1, "10.2.0.9", &payload);
    sent(bed, &frame(&other));
}

fn what_a_function_says_as_a_neighbour_is_the_kernels(bed: &mut Bed) {
    bed.run(&frame(&routed(64, IPV4, 1, &[FAR, AD4], &small_v4())));
    bed.run(&frame(&routed(64, IPV6, 1, &[FAR, AD6], &small_v6())));
    let (v4, v6) = ([10, 9, 0, 1], address("2001:db8:5::5"));
    let peer = |function, node| Peer {
        ifindex: LO,
        reserved: 0,
        function,
        node,
    };
    bed.set(|sr| {
        sr.peers.insert(peer(Ip::v4(v4), Ip::v4([10, 2, 0, 9])), 1);
        sr.peers.insert(peer(Ip(v6), Ip(address(FAR))), 1);
    });
    for (function, said, other) in [
        (DYNAMIC, small_v4(), ipv4(64, "10.2.0.8", &udp(4))),
        (
            DYNAMIC6,
            small_v6(),
            ipv6(64, UDP, "2001:db8:b::8", &udp(4)),
        ),
    ] {
        bed.port(Port::RETURN | Port::PEERS, function);
        let said = frame(&said);
        bed.check("to this node", &said, &Outcome::passed(said.clone(), &[]));
        sent(bed, &frame(&other));
        back_from(bed, function);
        sent(bed, &said);
    }
}

fn the_next_segment_may_be_here(bed: &mut Bed) {
    let inner = small_v4();
    let packet = routed(64, IPV4, 1, &[DT4, AD4], &inner);
    bed.check("out", &frame(&packet), &given(&inner));
    back_from(bed, DYNAMIC);
    let expected = given(&ipv4(63, "10.2.0.9", &udp(4)));
    bed.check("decapsulated when it is back", &frame(&inner), &expected);

    network(bed);
    let list = [FAR, AD4, AD4];
    let packet = routed(64, IPV4, 2, &list, &inner);
    bed.check(
        "the same function once more",
        &frame(&packet),
        &given(&inner),
    );
    back_from(bed, DYNAMIC);
    bed.check("again", &frame(&inner), &given(&inner));
    let expected = ipv6(
        62,
        ROUTING,
        FAR,
        &[&srh(IPV4, 0, &list)[..], &inner].concat(),
    );
    assert_eq!(sent(bed, &frame(&inner)), out(&expected), "and on");

    // What the kernel has to send is for this host.
    network(bed);
    let list = ["2001:db8:c::9", AD4];
    bed.run(&frame(&routed(64, IPV4, 1, &list, &inner)));
    back_from(bed, DYNAMIC);
    let mut outcome = bed.run(&frame(&inner));
    outcome.frame[15..18].fill(0);
    let expected = ipv6(
        63,
        ROUTING,
        list[0],
        &[&srh(IPV4, 0, &list)[..], &inner].concat(),
    );
    assert_eq!(outcome.action, XDP_PASS);
    assert_eq!(outcome.frame, frame(&expected));
}

fn hops_run_out_in_front_of_a_function(bed: &mut Bed) {
    for sid in [AS, AD4, AM] {
        let packet = routed(1, IPV4, 1, &[FAR, sid], &small_v4());
        bed.check(
            sid,
            &frame(&packet),
            &Outcome::told(Reason::HopLimit, 0, &packet),
        );
    }
}

fn the_way_to_a_function(bed: &mut Bed) {
    let good = bed.adjacency();
    let other = bed.other;
    let inner = small_v4();
    let packet = frame(&routed(64, IPV4, 1, &[FAR, AD4], &inner));
    for (to, expected) in [
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
            Adjacency { mtu: 31, ..good },
            Outcome::told(Reason::TooBig, 31, &inner),
        ),
        (Adjacency { mtu: 32, ..good }, given(&inner)),
    ] {
        bed.set(|sr| sr.functions.get_mut(&DYNAMIC).unwrap().to = to);
        bed.check("a way or none", &packet, &expected);
    }
}
