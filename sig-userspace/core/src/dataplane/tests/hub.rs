//! Packets that one remote sends to another, or to itself.

use super::*;
use sig_common::wire::inner::BACK_TO_SENDER;

fn to(destination: [u8; 4]) -> Vec<u8> {
    let mut packet = Vec::new();
    PacketBuilder::ipv4([10, 1, 0, 5], destination, 64)
        .udp(4000, 9)
        .write(&mut packet, b"hello")
        .expect("a packet");
    packet
}

fn nets<const N: usize>(texts: [&str; N]) -> [ipnet::IpNet; N] {
    texts.map(|text| text.parse().expect("a prefix"))
}

#[test]
fn packets_for_another_remote_are_handed_to_the_kernel_and_those_that_would_go_back_are_marked() {
    let (mut spoke, mut hub) = (gateway(1, 1472), gateway(2, 1472));
    let aggregate = nets(["10.0.0.0/8"]);
    let mut routing = Routing::default();
    routing.add_site(&aggregate, vec![always(0)]);
    spoke.tables.routing = Arc::new(routing);

    // The hub serves the aggregate, and has a second spoke behind session 1.
    hub.tables.served = Some(Arc::new(aggregate.iter().map(|net| (*net, ())).collect()));
    let other = (isd_as(3), std::net::IpAddr::from([192, 0, 2, 3]).into());
    hub.tables
        .add_remote(1, other, Arc::default(), Arc::new([Default::default()]));
    let session = hub.tables.add_session(other, Vec::new(), None);
    let only_some = Rule {
        condition: Arc::new(Condition::Dscp(1)),
        action: Action::Session(0),
    };
    let mut routing = Routing::default();
    routing.add_site(&nets(["10.1.0.0/16"]), vec![always(0)]);
    routing.add_site(&nets(["10.3.0.0/16", "10.1.7.0/24"]), vec![always(session)]);
    routing.add_site(&nets(["10.1.8.0/24"]), vec![only_some.clone()]);
    routing.add_site(&nets(["10.1.9.0/24"]), vec![only_some, always(session)]);
    hub.tables.routing = Arc::new(routing);

    for (destination, goes_back) in [
        ([10, 1, 0, 77], true),
        ([10, 1, 8, 1], true),
        ([10, 3, 0, 1], false),
        ([10, 1, 7, 1], false),
        ([10, 1, 9, 1], false),
        ([10, 9, 0, 1], false),
    ] {
        let (frames, _) = spoke.send_lan(&[to(destination)]);
        let underlay = frames.iter().map(|frame| hub.frame(frame)).collect();
        let input = &mut Input {
            underlay,
            ..Input::default()
        };
        let (_, inner) = hub.run(0, input);
        assert_eq!(inner.len(), 1, "{destination:?}");
        assert_eq!(inner[0][14..], one_hop_on(to(destination)));
        let is_marked = inner[0][6..12] == BACK_TO_SENDER;
        assert_eq!(is_marked, goes_back, "{destination:?}");
        assert_eq!(inner[0][..6], hub.tables.tunnel_macs[..6]);
    }
}
