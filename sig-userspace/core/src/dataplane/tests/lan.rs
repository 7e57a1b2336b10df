//! Decapsulated packets that go straight to their next hop, and those that must not.

use std::net::IpAddr;

use ipnet::IpNet;
use proptest::prelude::*;

use super::*;
use crate::dataplane::lan::{LanFacts, LanNeighbour, LanRoute, LanTable};

const HOST: [u8; 6] = [2, 0, 0, 0, 2, 6];
const OURS: [u8; 6] = [2, 0, 0, 0, 2, 1];
const PORTS: usize = 2;

fn net(text: &str) -> IpNet {
    text.parse().expect("a prefix")
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn neighbour(mac: [u8; 6]) -> LanNeighbour {
    LanNeighbour {
        mac,
        interface_mac: OURS,
        mtu: 1500,
    }
}

/// The LAN of gateway 2: port 1, with the hosts that [`udp`] and [`udp6`] send to.
pub(super) fn facts() -> LanFacts {
    LanFacts {
        local: [net("10.2.0.1/32")].into(),
        routes: [net("10.2.0.0/16"), net("fd00:2::/32")]
            .map(|net| (net, LanRoute::OnLink { port: 1 }))
            .into(),
        neighbours: [ip("10.2.0.6"), ip("fd00:2::9")]
            .map(|ip| ((1, ip), neighbour(HOST)))
            .into(),
    }
}

impl Gateway {
    pub(super) fn learn(&mut self, facts: &LanFacts) {
        self.tables.generation += 1;
        self.tables.lan = Arc::new(LanTable::new(facts));
    }

    /// What leaves through the tunnel device and through each LAN port.
    pub(super) fn deliver(&mut self, frames: &[Vec<u8>]) -> (Vec<Vec<u8>>, Vec<Vec<Vec<u8>>>) {
        let underlay = frames.iter().map(|frame| self.frame(frame)).collect();
        let input = &mut Input {
            underlay,
            ..Input::default()
        };
        let (_, inner, lan) = self.run_with_lan(PORTS, 0, input);
        (inner, lan)
    }

    fn straight(&self) -> u64 {
        self.worker.counters().packets_straight.get()
    }
}

/// Sends `packet` from gateway 1 to gateway 2, which knows `facts`; whether it went straight to the
/// host, whole and one hop further.
fn goes_straight(facts: &LanFacts, packet: &[u8]) -> bool {
    let (mut a, mut b) = (gateway(1, 1472), gateway(2, 1472));
    b.learn(facts);
    let (frames, _) = a.send_lan(&[packet.to_vec()]);
    let (inner, lan) = b.deliver(&frames);
    let once = one_hop_on(packet.to_vec());
    let ethertype = if packet[0] >> 4 == 4 {
        [8, 0]
    } else {
        [0x86, 0xdd]
    };
    let straight = match (inner.as_slice(), lan.as_slice()) {
        ([helped], [first, second]) if first.is_empty() && second.is_empty() => {
            assert_eq!(helped[..12], b.tables.tunnel_macs);
            assert_eq!(helped[14..], once, "the helper takes from the hops itself");
            false
        }
        ([], [first, second]) if first.is_empty() => {
            let twice = one_hop_on(once);
            assert_eq!(*second, [[&HOST[..], &OURS, &ethertype, &twice].concat()]);
            true
        }
        other => panic!("one packet leaves, not {other:?}"),
    };
    assert_eq!(b.straight(), u64::from(straight));
    assert_eq!(b.worker.counters().received.packets.get(), 1);
    let used = b.tables.lan.take_used();
    assert_eq!(used.len(), usize::from(straight));
    a.assert_no_chunk_is_lost();
    b.assert_no_chunk_is_lost();
    straight
}

#[test]
fn packets_to_a_known_neighbour_go_straight_in_both_families() {
    for packet in [
        udp(72, 1, 64),
        udp(1472, 1, 64),
        udp6(72, 64),
        udp6(1452, 64),
    ] {
        assert!(goes_straight(&facts(), &packet));
    }
    // A packet split over two frames is put together first.
    let (mut a, mut b) = (gateway(1, 300), gateway(2, 300));
    b.learn(&facts());
    let (frames, _) = a.send_lan(&[udp(1472, 1, 64)]);
    assert!(frames.len() > 1);
    let (inner, lan) = b.deliver(&frames);
    assert_eq!((inner.len(), lan[1].len()), (0, 1));
    a.assert_no_chunk_is_lost();
    b.assert_no_chunk_is_lost();
}

#[test]
fn what_only_the_kernel_can_do_goes_through_the_helper() {
    // Gateway 1 takes one of the hops, so 1 is left.
    for packet in [udp(72, 1, 2), udp6(72, 2)] {
        assert!(!goes_straight(&facts(), &packet), "ICMP is the kernel's");
    }
    for packet in [udp(1473, 1, 64), udp6(1453, 64)] {
        assert!(!goes_straight(&facts(), &packet), "longer than the MTU");
    }
    let mut options = Vec::new();
    PacketBuilder::ip(etherparse::IpHeaders::Ipv4(
        {
            let mut header = etherparse::Ipv4Header::new(
                0,
                64,
                etherparse::IpNumber::UDP,
                [10, 1, 0, 5],
                [10, 2, 0, 6],
            )
            .expect("a header");
            header.options = [1, 1, 1, 0].into();
            header
        },
        Default::default(),
    ))
    .udp(1, 2)
    .write(&mut options, b"x")
    .expect("a packet");
    assert!(!goes_straight(&facts(), &options), "IPv4 options");
}

#[test]
fn what_is_not_known_goes_through_the_helper() {
    let packet = udp(72, 1, 64);
    let without = |change: &dyn Fn(&mut LanFacts)| {
        let mut facts = facts();
        change(&mut facts);
        goes_straight(&facts, &packet)
    };
    assert!(without(&|_| {}));
    assert!(!without(&|facts| facts.neighbours.clear()));
    assert!(!without(&|facts| facts.routes.clear()));
    assert!(!without(&|facts| {
        facts.local.insert(net("10.2.0.6/32"));
    }));
    assert!(!without(&|facts| {
        facts.routes.insert(net("10.2.0.0/24"), LanRoute::Kernel);
    }));
    assert!(!without(&|facts| {
        // A port that the worker does not have.
        let port = PORTS as u16;
        facts
            .routes
            .insert(net("10.2.0.0/16"), LanRoute::OnLink { port });
        facts
            .neighbours
            .insert((port, ip("10.2.0.6")), neighbour(HOST));
    }));
}

#[test]
fn packets_go_to_the_router_that_the_route_names_whatever_its_family() {
    for router in ["10.2.0.9", "fd00:2::7"].map(ip) {
        let mut facts = facts();
        let way = LanRoute::Gateway {
            port: 1,
            address: router,
        };
        facts.routes.insert(net("10.2.0.0/24"), way);
        facts.neighbours.clear();
        assert!(!goes_straight(&facts, &udp(72, 1, 64)));
        facts.neighbours.insert((1, router), neighbour(HOST));
        assert!(goes_straight(&facts, &udp(72, 1, 64)));
    }
}

#[test]
fn a_flow_follows_new_tables_and_nothing_else() {
    let (mut a, mut b) = (gateway(1, 1472), gateway(2, 1472));
    let mut send = |b: &mut Gateway| {
        let (frames, _) = a.send_lan(&[udp(72, 1, 64)]);
        let (inner, lan) = b.deliver(&frames);
        assert_eq!(inner.len() + lan[1].len(), 1);
        lan[1].first().map(|frame| frame[..6].to_vec())
    };
    assert_eq!(send(&mut b), None, "nothing is known yet");
    b.learn(&facts());
    for _ in 0..3 {
        assert_eq!(send(&mut b).as_deref(), Some(&HOST[..]));
    }
    let mut moved = facts();
    let other = [2, 0, 0, 0, 7, 7];
    moved
        .neighbours
        .insert((1, ip("10.2.0.6")), neighbour(other));
    b.learn(&moved);
    assert_eq!(send(&mut b).as_deref(), Some(&other[..]));
    b.learn(&LanFacts::default());
    assert_eq!(send(&mut b), None, "the neighbour is lost");
    a.assert_no_chunk_is_lost();
    b.assert_no_chunk_is_lost();
}

#[test]
fn refused_packets_do_not_go_straight_either() {
    let (mut a, mut b) = (gateway(1, 1472), gateway(2, 1472));
    b.learn(&facts());
    b.tables.served = Some(Arc::default());
    let (frames, _) = a.send_lan(&[udp(72, 1, 64)]);
    let (inner, lan) = b.deliver(&frames);
    assert!(inner.is_empty() && lan.iter().all(Vec::is_empty));
    assert_eq!(b.drops(DropReason::InnerDestination), 1);
    assert!(b.tables.lan.take_used().is_empty());
    a.assert_no_chunk_is_lost();
    b.assert_no_chunk_is_lost();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Straight or helped, each packet leaves once and unchanged, and each way keeps the order.
    #[test]
    fn every_packet_leaves_once_and_in_order(
        packets in proptest::collection::vec((0usize..1600, 2u8..6, any::<bool>()), 1..40)
    ) {
        let (mut a, mut b) = (gateway(1, 1472), gateway(2, 1472));
        b.learn(&facts());
        let packets: Vec<Vec<u8>> = packets
            .iter()
            .enumerate()
            .map(|(n, (len, ttl, v6))| {
                if *v6 { udp6(*len, *ttl) } else { udp(*len, n as u16, *ttl) }
            })
            .collect();
        let (frames, _) = a.send_lan(&packets);
        let (inner, lan) = b.deliver(&frames);
        let (mut straight, mut helped) = (Vec::new(), Vec::new());
        for packet in packets {
            let v6 = packet[0] >> 4 == 6;
            let ttl = packet[if v6 { 7 } else { 8 }];
            let once = one_hop_on(packet);
            if ttl > 2 && once.len() <= 1500 {
                straight.push(one_hop_on(once));
            } else {
                helped.push(once);
            }
        }
        let strip = |frames: &[Vec<u8>]| -> Vec<Vec<u8>> {
            frames.iter().map(|frame| frame[14..].to_vec()).collect()
        };
        prop_assert_eq!(strip(&inner), helped);
        prop_assert_eq!(strip(&lan[1]), straight);
        prop_assert!(lan[0].is_empty());
        a.assert_no_chunk_is_lost();
        b.assert_no_chunk_is_lost();
    }
}
