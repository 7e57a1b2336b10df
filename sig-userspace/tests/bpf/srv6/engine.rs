//! Packets between the node and the engine of the gateway that it is part of.

use sig_common::{
    mark::Mark,
    srv6::{
        Behavior, Flavors, Sid,
        maps::{ENGINE, Port, Reason, TUNNEL},
    },
};

use super::{
    bed::{Bed, FOURTH, OUT, Outcome, one_after_the_other},
    encap::with_headers,
    packets::*,
};

const FIRST: &str = "2001:db8:a::e";
const LAST: &str = "2001:db8:a::d46";

one_after_the_other! {
    packets_of_the_engine: node;
    a_packet_passes_its_chain_and_returns
    its_hop_limit_runs_out_in_the_chain
    what_has_no_mark_is_the_kernels
    what_is_not_there_takes_nothing
    copies_leave_by_their_device
}

fn node(bed: &mut Bed) {
    bed.port(Port::ENGINE, 0);
    let engine = bed.adjacency();
    bed.set(|sr| {
        sr.locators.insert("2001:db8:a::/48".parse().unwrap(), 1);
        let sid = |behavior, target| Sid::new(behavior, Flavors(0), target, 0);
        sr.sids
            .insert(FIRST.parse().unwrap(), sid(Behavior::End, 0));
        sr.sids
            .insert(LAST.parse().unwrap(), sid(Behavior::EndDt46, TUNNEL));
        sr.adjacencies.insert(ENGINE, engine);
        sr.adjacencies.insert(8, engine);
        let headers = ipv6(64, ROUTING, FIRST, &srh(0, 1, &[LAST, FIRST]));
        sr.policies.insert(7, with_headers(&headers, 40));
    });
}

fn marked(mark: Mark, packet: &[u8]) -> Vec<u8> {
    ether(mark.address(), THEIRS, packet)
}

fn a_packet_passes_its_chain_and_returns(bed: &mut Bed) {
    let v6 = |hops| ipv6(hops, UDP, "2001:db8:b::9", &udp(4));
    for [before, after] in [
        [ipv4(64, "10.2.0.9", &udp(4)), ipv4(63, "10.2.0.9", &udp(4))],
        [v6(64), v6(63)],
    ] {
        let expected = Outcome::sent(ether(FOURTH, OUT, &after));
        bed.check("the chain", &marked(Mark::Policy(7), &before), &expected);
    }
}

fn its_hop_limit_runs_out_in_the_chain(bed: &mut Bed) {
    let packet = ipv4(1, "10.2.0.9", &udp(4));
    let expected = Outcome::told(Reason::HopLimit, 0, &packet);
    bed.check("the end", &marked(Mark::Policy(7), &packet), &expected);
}

fn what_has_no_mark_is_the_kernels(bed: &mut Bed) {
    let to_sid = ipv6(64, IPV4, LAST, &ipv4(64, "10.2.0.9", &udp(4)));
    for packet in [
        frame(&ipv4(64, "10.2.0.9", &udp(4))),
        frame(&to_sid),
        marked(Mark::Returned, &to_sid),
    ] {
        let expected = Outcome::passed(packet.clone(), &[]);
        bed.check("no mark", &packet, &expected);
    }
}

fn what_is_not_there_takes_nothing(bed: &mut Bed) {
    let packet = ipv4(64, "10.2.0.9", &udp(4));
    for (mark, reason) in [
        (Mark::Policy(9), Reason::NoPolicy),
        (Mark::Mirror(9), Reason::NoDevice),
    ] {
        let expected = Outcome::dropped(reason);
        bed.check("not there", &marked(mark, &packet), &expected);
    }
}

fn copies_leave_by_their_device(bed: &mut Bed) {
    let packet = ipv4(64, "10.2.0.9", &udp(4));
    let expected = Outcome::sent(ether(FOURTH, OUT, &packet));
    bed.check("a copy", &marked(Mark::Mirror(8), &packet), &expected);
}
