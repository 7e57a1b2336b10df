//! The AS under test, and packets for it.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use sig_common::{addr::HostAddr, addr::IsdAs, wire::scion::path::Meta};

use super::super::{AllUp, Ingress, Outcome, Router};
use crate::{
    router::model::{AsModel, Bfd, Interface, LinkType, Owner, Sibling},
    scion::{
        HopKey,
        packet::{self, Addresses},
    },
};

/// The AS under test.
pub(super) const LOCAL: IsdAs = IsdAs::new(1, 0xff00_0000_0110);
/// Where packets come from and go to.
pub(super) const UP: IsdAs = IsdAs::new(1, 0xff00_0000_0111);
/// See [`UP`].
pub(super) const DOWN: IsdAs = IsdAs::new(1, 0xff00_0000_0112);
/// The timestamp of all segments.
pub(super) const T: u32 = 1_700_000_000;
/// When packets come.
pub(super) const NOW: Duration = Duration::from_secs(T as u64 + 60);
/// The router under test, as its AS sees it.
pub(super) const INTERNAL: &str = "10.0.0.1:30001";
/// Its sibling.
pub(super) const SIBLING: &str = "10.0.0.2:30002";

pub(super) fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

/// Numbers of interfaces: the tens are the router (the one under test, or its sibling), the ones the kind of link.
pub(super) const INTERFACES: [(u16, LinkType); 14] = [
    (1, LinkType::Parent),
    (2, LinkType::Child),
    (3, LinkType::Child),
    (4, LinkType::Core),
    (5, LinkType::Peer),
    (6, LinkType::Core),
    (7, LinkType::Parent),
    (8, LinkType::Peer),
    (11, LinkType::Parent),
    (12, LinkType::Child),
    (13, LinkType::Child),
    (14, LinkType::Core),
    (15, LinkType::Peer),
    (16, LinkType::Core),
];

/// The AS under test with key `key`.
pub(super) fn model(key: [u8; 16]) -> AsModel {
    let interface = |(number, link_type): (u16, LinkType)| {
        let owner = if number < 10 {
            Owner::Here {
                local: SocketAddr::new([192, 168, number as u8, 1].into(), 50000),
                remote: SocketAddr::new([192, 168, number as u8, 2].into(), 50000),
            }
        } else {
            Owner::Sibling(0)
        };
        let interface = Interface {
            owner,
            neighbour: IsdAs::new(1, 0xff00_0000_0200 + u64::from(number)),
            neighbour_interface: None,
            link_type,
            mtu: 1472,
            bfd: Bfd::default(),
        };
        (number, interface)
    };
    AsModel {
        router: "br".to_owned(),
        isd_as: LOCAL,
        core: false,
        mtu: 1472,
        internal: address(INTERNAL),
        ports: Some(31000..=32767),
        interfaces: INTERFACES.into_iter().map(interface).collect(),
        siblings: vec![Sibling {
            name: "br-2".to_owned(),
            internal: address(SIBLING),
        }],
        control_services: vec![address("10.0.0.3:30252")],
        discovery_services: Vec::new(),
        sibling_bfd: Bfd::default(),
        key: HopKey::new(key),
    }
}

pub(super) fn router(key: [u8; 16]) -> Router {
    Router::new(Arc::new(model(key)))
}

/// Runs a packet through a router while all links are up.
pub(super) fn process(router: &Router, packet: &mut [u8], ingress: Ingress) -> Outcome {
    router.process(packet, ingress, NOW, &AllUp)
}

/// A path of one segment: construction direction, segment identifier, hop fields as on the wire, the current one.
pub(super) fn path(
    construction_direction: bool,
    segment_id: u16,
    hops: &[[u8; 12]],
    current: u8,
) -> Vec<u8> {
    let meta = Meta {
        current_info: 0,
        current_hop: current,
        segments: [hops.len() as u8, 0, 0],
    };
    let mut path = meta.encode().to_vec();
    path.extend([u8::from(construction_direction), 0]);
    path.extend(segment_id.to_be_bytes());
    path.extend(T.to_be_bytes());
    path.extend(hops.as_flattened());
    path
}

/// A UDP datagram from a host of one AS to one of another, to port 31000.
pub(super) fn udp(source: IsdAs, destination: IsdAs, path_type: u8, path: &[u8]) -> Vec<u8> {
    let addresses = Addresses {
        source: (source, HostAddr::V4([10, 1, 0, 1]), 32000),
        destination: (destination, HostAddr::V4([10, 2, 0, 1]), 31000),
    };
    packet::udp(&addresses, path_type, path, b"payload").expect("a packet")
}
