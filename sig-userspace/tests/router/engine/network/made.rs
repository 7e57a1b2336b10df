//! Paths as the library makes them for a network of which it knows all keys.

use sig_common::wire::scion::path::ScionPath;
use sig_core::scion::network::{As, End, Link, Network, Validity};

use super::*;

/// The ASes of the network.
const ASES: std::ops::RangeInclusive<u8> = 1..=9;

fn network() -> Network {
    let ases = ASES.map(|number| As {
        isd_as: isd_as(number),
        core: number < 3,
        mtu: 1472,
        key: key(number),
    });
    let links = LINKS.map(|(a, b)| Link {
        ends: [a, b].map(|(number, _, interface, _)| End {
            isd_as: isd_as(number),
            interface,
        }),
        link_type: a.3,
        mtu: 1472,
    });
    Network::new(ases.collect(), links.into()).expect("a network")
}

#[test]
fn every_path_that_is_made_leads_there_and_back() {
    let network = network();
    let validity = Validity {
        timestamp: T,
        expiry: 63,
    };
    let mut shapes = BTreeSet::new();
    for from in ASES {
        for to in ASES.filter(|to| *to != from) {
            let paths = network.paths(isd_as(from), isd_as(to), validity);
            let paths = paths.expect("paths");
            assert!(!paths.is_empty(), "{from} to {to}");
            for path in paths {
                let interfaces = &path.interfaces;
                let [first, .., last] = &interfaces[..] else {
                    panic!("{path:?}");
                };
                let packet = udp(host(from), host(to), &path.raw);
                let fate = carry(packet, from, first.id as u16, NOW, Down::default());
                let Fate::Arrived(number, address, packet) = fate else {
                    panic!("{interfaces:?}: {fate:?}");
                };
                assert_eq!((number, address), (to, socket(to)), "{interfaces:?}");

                let packet = packet::parse(&packet).expect("a packet");
                let (_, back) = reverse::reply_path(&packet.path).expect("a way back");
                let answer = udp(packet.destination, packet.source, &back);
                let fate = carry(answer, to, last.id as u16, NOW, Down::default());
                let Fate::Arrived(number, address, _) = fate else {
                    panic!("{interfaces:?}, back: {fate:?}");
                };
                assert_eq!((number, address), (from, socket(from)), "{interfaces:?}");

                let header = ScionPath::new_checked(&path.raw).expect("a path");
                let shape = header
                    .infos()
                    .map(|info| (info.construction_direction, info.peering));
                shapes.insert(shape.collect::<Vec<_>>());
            }
        }
    }
    let (up, down) = ((false, false), (true, false));
    let expected = [
        vec![up],
        vec![down],
        vec![up, up],
        vec![up, down],
        vec![up, up, down],
        vec![(false, true), (true, true)],
    ];
    assert_eq!(shapes, expected.into());
}
