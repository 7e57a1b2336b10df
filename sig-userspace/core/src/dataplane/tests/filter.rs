//! Rules about inner packets.

use sig_common::mark::Mark;

use super::*;
use crate::dataplane::filter::{Chain, Filter, FilterAction, FilterRule, Hits};

fn rule(condition: &str, action: FilterAction) -> FilterRule {
    FilterRule {
        condition: Arc::new(condition.parse().expect("a condition")),
        action,
        hits: Arc::new([Hits::default()]),
    }
}

fn hits(rules: &[FilterRule]) -> Vec<u64> {
    rules
        .iter()
        .map(|rule| rule.hits[0].packets.get())
        .collect()
}

impl Gateway {
    fn filter(&mut self, egress: &[FilterRule], ingress: &[FilterRule]) {
        let locators = [("fd00:1:5::/48".parse().expect("a prefix"), ())];
        self.tables.generation += 1;
        self.tables.filter = Arc::new(Filter::new(
            egress.to_vec(),
            ingress.to_vec(),
            locators.into_iter().collect(),
        ));
    }

    fn send_tunnel(&mut self, frame: &[u8]) -> (Packets, Packets) {
        let tunnel = vec![self.frame(frame)];
        self.run(
            0,
            &mut Input {
                tunnel,
                ..Input::default()
            },
        )
    }
}

const CHAIN: FilterAction = FilterAction::Chain(Chain {
    policy: 7,
    room: 1400,
    segment: 1400,
});

#[test]
fn the_first_rule_that_decides_counts() {
    let mut a = gateway(1, 1472);
    let rules = [
        rule("bool=true", FilterAction::Count),
        rule("srcport=1", FilterAction::Accept),
        rule("protocol=UDP", FilterAction::Drop),
        rule("bool=true", FilterAction::Count),
    ];
    a.filter(&rules, &[]);
    let (frames, _) = a.send_lan(&[udp(72, 1, 64), udp(72, 2, 64)]);
    assert_eq!(frames.len(), 1);
    assert_eq!(a.drops(DropReason::Filtered), 1);
    assert_eq!(hits(&rules), [2, 1, 1, 0]);
    a.assert_no_chunk_is_lost();
}

#[test]
fn a_chained_packet_leaves_as_it_came_and_is_sent_when_it_returns() {
    let (mut a, mut b) = (gateway(1, 1472), gateway(2, 1472));
    let rules = [rule("dstport=9", CHAIN)];
    a.filter(&rules, &[]);
    let packet = udp(72, 1, 64);
    let (frames, tunnel) = a.send_lan(std::slice::from_ref(&packet));
    assert!(frames.is_empty());
    assert_eq!(tunnel.len(), 1);
    assert_eq!(tunnel[0][..6], Mark::Policy(7).address());
    assert_eq!(tunnel[0][14..], packet);
    // Without the mark, it has just been routed here.
    assert!(a.send_tunnel(&ethernet(&packet)).0.is_empty());
    let mut returned = ethernet(&packet);
    returned[..6].copy_from_slice(&Mark::Returned.address());
    let (frames, tunnel) = a.send_tunnel(&returned);
    assert!(tunnel.is_empty());
    assert_eq!(b.send_underlay(0, &frames), [packet]);
    // Hosts cannot pretend to be a chain.
    let lan = vec![a.frame(&returned)];
    let input = &mut Input {
        lan,
        ..Input::default()
    };
    assert_eq!(a.run(0, input).0.len(), 0);
    assert_eq!(hits(&rules), [3]);
    // What does not fit is told.
    let (frames, tunnel) = a.send_lan(&[udp(1400, 1, 64)]);
    assert!(frames.is_empty() && tunnel[0][14 + 9] == 1);
    assert_eq!(
        tunnel[0][14 + 20..][..8],
        [3, 4, tunnel[0][36], tunnel[0][37], 0, 0, 5, 0x78]
    );
    a.assert_no_chunk_is_lost();
}

#[test]
fn packets_from_remotes_are_dropped_chained_and_copied() {
    let (mut a, mut b) = (gateway(1, 1472), gateway(2, 1472));
    let rules = [
        rule("srcport=3", FilterAction::Mirror(0x1234)),
        rule("srcport=1", FilterAction::Drop),
        rule("srcport=2", CHAIN),
    ];
    b.filter(&[], &rules);
    let packets = [1, 2, 3].map(|port| udp(72, port, 64));
    let (frames, _) = a.send_lan(&packets);
    let underlay = frames.iter().map(|frame| b.frame(frame)).collect();
    let input = &mut Input {
        underlay,
        ..Input::default()
    };
    let (_, inner) = b.run(0, input);
    assert_eq!(b.drops(DropReason::Filtered), 1);
    let expected = [
        (&packets[1], Mark::Policy(7).address()),
        (&packets[2], Mark::Mirror(0x1234).address()),
        (&packets[2], [0; 6]),
    ];
    assert_eq!(inner.len(), expected.len());
    for (frame, (packet, address)) in inner.iter().zip(expected) {
        assert_eq!(frame[..6], address);
        assert_eq!(frame[14..], one_hop_on(packet.clone()));
    }
    a.assert_no_chunk_is_lost();
    b.assert_no_chunk_is_lost();
}

#[test]
fn nothing_from_remotes_reaches_a_sid() {
    let (mut a, mut b) = (gateway(2, 1472), gateway(1, 1472));
    b.filter(&[], &[]);
    let packet = |destination: &str| {
        let mut packet = Vec::new();
        let source: std::net::Ipv6Addr = "fd00:2::9".parse().expect("an address");
        let destination: std::net::Ipv6Addr = destination.parse().expect("an address");
        PacketBuilder::ipv6(source.octets(), destination.octets(), 64)
            .udp(5, 9)
            .write(&mut packet, b"hello")
            .expect("a packet");
        packet
    };
    let (frames, _) = a.send_lan(&[packet("fd00:1:5::1"), packet("fd00:1:6::1")]);
    assert_eq!(b.send_underlay(0, &frames).len(), 1);
    assert_eq!(b.drops(DropReason::AddressScope), 1);
}

#[test]
fn nothing_gets_around_a_prohibition_in_fragments() {
    let mut a = gateway(1, 1472);
    let fragment = |offset: u8, more: u8| {
        let mut packet = udp(72, 1, 64);
        packet[6..8].copy_from_slice(&[more << 5, offset]);
        packet[10..12].fill(0);
        let sum = sig_common::wire::checksum::Sum::of(&packet[..20]).checksum();
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        packet
    };
    let packets = [fragment(0, 1), fragment(9, 0)];
    for (condition, action, sent) in [
        ("dstport=9", FilterAction::Drop, 0),
        ("all(protocol=TCP,dstport=9)", FilterAction::Drop, 2),
        ("not(dstport=9)", FilterAction::Drop, 0),
        ("any(dstport=9,bool=false)", CHAIN, 0),
        ("all(dstport=9,dst=10.3.0.0/16)", FilterAction::Drop, 2),
        ("dstport=9", FilterAction::Count, 2),
    ] {
        a.filter(&[rule(condition, action)], &[]);
        let before = a.worker.counters().sent.packets.get();
        a.send_lan(&packets);
        let after = a.worker.counters().sent.packets.get();
        assert_eq!(after - before, sent, "{condition} {action:?}");
    }
    a.assert_no_chunk_is_lost();
}

#[test]
fn conditions_can_be_turned_around() {
    let condition: Condition = "all(src=10.1.0.0/16,not(dstport=80-90),any(srcport=1,dscp=0x2))"
        .parse()
        .expect("a condition");
    let reversed = "all(dst=10.1.0.0/16,not(srcport=80-90),any(dstport=1-1,dscp=0x2))";
    assert_eq!(condition.reversed().to_string(), reversed);
    assert_eq!(condition.reversed().reversed(), condition);
}
