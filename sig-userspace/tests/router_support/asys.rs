//! An AS with a router under test and a sibling, and packets for it.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use sig_common::{
    addr::{HostAddr, IsdAs},
    wire::scion::path::SCION,
};
use sig_core::scion::{
    HopKey,
    packet::{self, Addresses},
    scmp::Scmp,
};
use sig_router::{
    AsModel, Bfd, Interface, Owner, Sibling,
    forward::{AllUp, Ingress, Outcome, Router},
    model::LinkType,
};

use super::path::{Hop, Segment, Stage, path};

/// The AS under test.
pub(crate) const LOCAL: IsdAs = IsdAs::new(1, 0xff00_0000_0110);
/// Another AS.
pub(crate) const A: IsdAs = IsdAs::new(1, 0xff00_0000_0111);
/// One more.
pub(crate) const B: IsdAs = IsdAs::new(1, 0xff00_0000_0112);
/// The timestamp of all segments.
pub(crate) const T: u32 = 1_700_000_000;
/// When packets come.
pub(crate) const NOW: Duration = Duration::from_secs(T as u64 + 60);
/// The router under test, as its AS sees it.
pub(crate) const INTERNAL: &str = "10.0.0.1:30001";
/// Its sibling.
pub(crate) const SIBLING: &str = "10.0.0.2:30002";
/// A host of the AS in the underlay.
pub(crate) const HOST: &str = "10.0.0.9:40000";
/// A control service.
pub(crate) const SERVICE: &str = "10.0.0.3:30252";
/// The host addresses that packets have if nothing else is said.
pub(crate) const FROM: HostAddr = HostAddr::V4([10, 1, 0, 1]);
/// See [`FROM`].
pub(crate) const TO: HostAddr = HostAddr::V4([10, 2, 0, 1]);

/// Interfaces: those below 10 are of the router under test.
pub(crate) const INTERFACES: [(u16, LinkType); 14] = [
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

pub(crate) fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

pub(crate) fn ip(text: &str) -> HostAddr {
    match text.parse::<IpAddr>().expect("an address") {
        IpAddr::V4(ip) => HostAddr::V4(ip.octets()),
        IpAddr::V6(ip) => HostAddr::V6(ip.octets()),
    }
}

/// The key of the AS under test.
pub(crate) fn key() -> HopKey {
    HopKey::new([b'2'; 16])
}

/// The key of all other ASes.
pub(crate) fn foreign() -> HopKey {
    HopKey::new([0xee; 16])
}

/// The AS at the other end of an interface.
pub(crate) const fn neighbour(interface: u16) -> IsdAs {
    IsdAs::new(1, 0xff00_0000_0200 + interface as u64)
}

/// The AS under test.
pub(crate) fn model() -> AsModel {
    let interface = |(number, link_type): (u16, LinkType)| {
        let end = |last| SocketAddr::new([192, 168, number as u8, last].into(), 50000);
        let interface = Interface {
            owner: if number < 10 {
                Owner::Here {
                    local: end(1),
                    remote: end(2),
                }
            } else {
                Owner::Sibling(0)
            },
            neighbour: neighbour(number),
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
        control_services: vec![address(SERVICE)],
        discovery_services: Vec::new(),
        services: Default::default(),
        sibling_bfd: Bfd::default(),
        key: key(),
    }
}

pub(crate) fn router() -> Router {
    Router::new(Arc::new(model()))
}

pub(crate) fn host() -> Ingress {
    Ingress::Internal(address(HOST))
}

pub(crate) fn sibling() -> Ingress {
    Ingress::Internal(address(SIBLING))
}

/// Runs a packet through the router under test while all links are up.
pub(crate) fn process(packet: &mut [u8], ingress: Ingress) -> Outcome {
    router().process(packet, ingress, NOW, &AllUp)
}

/// A hop of the AS under test.
pub(crate) fn ours(ingress: u16, egress: u16) -> Hop {
    Hop::new(&key(), ingress, egress)
}

/// A hop of another AS.
pub(crate) fn theirs(ingress: u16, egress: u16) -> Hop {
    Hop::new(&foreign(), ingress, egress)
}

/// A segment that is used in the direction in which it was made.
pub(crate) fn down(hops: Vec<Hop>) -> Segment {
    Segment {
        construction_direction: true,
        beta: 0x1234,
        timestamp: T,
        hops,
        peer: None,
    }
}

/// One that is used against it.
pub(crate) fn up(hops: Vec<Hop>) -> Segment {
    Segment {
        construction_direction: false,
        beta: 0x4321,
        ..down(hops)
    }
}

/// A packet and where it comes in.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) segments: Vec<Segment>,
    /// The current hop.
    pub(crate) current: usize,
    pub(crate) ingress: Ingress,
    pub(crate) source: (IsdAs, HostAddr),
    pub(crate) destination: (IsdAs, HostAddr),
}

impl Sent {
    /// From a neighbour, between two other ASes.
    pub(crate) fn by(interface: u16, segments: Vec<Segment>, current: usize) -> Self {
        Self {
            segments,
            current,
            ingress: Ingress::External(interface),
            source: (A, FROM),
            destination: (B, TO),
        }
    }

    /// From inside.
    pub(crate) fn from(self, ingress: Ingress) -> Self {
        Self { ingress, ..self }
    }

    pub(crate) fn source(self, isd_as: IsdAs, host: HostAddr) -> Self {
        Self {
            source: (isd_as, host),
            ..self
        }
    }

    pub(crate) fn to(self, isd_as: IsdAs, host: HostAddr) -> Self {
        Self {
            destination: (isd_as, host),
            ..self
        }
    }

    pub(crate) fn path(&self) -> Vec<u8> {
        let stage = match self.ingress {
            Ingress::External(_) => Stage::Arriving,
            Ingress::Internal(_) => Stage::Inside,
        };
        path(&self.segments, self.current, stage)
    }

    /// Offset of the path in the packet.
    pub(crate) fn path_offset(&self) -> usize {
        12 + 16 + self.source.1.len() + self.destination.1.len()
    }

    /// Offset of a hop field in the packet.
    pub(crate) fn hop_offset(&self, hop: usize) -> usize {
        self.path_offset() + 4 + 8 * self.segments.len() + 12 * hop
    }

    /// With a UDP datagram from port 32000 to port 31000.
    pub(crate) fn udp(&self) -> Vec<u8> {
        self.udp_to(31000, b"payload")
    }

    pub(crate) fn udp_to(&self, port: u16, payload: &[u8]) -> Vec<u8> {
        let addresses = Addresses {
            source: (self.source.0, self.source.1, 32000),
            destination: (self.destination.0, self.destination.1, port),
        };
        packet::udp(&addresses, SCION, &self.path(), payload).expect("a packet")
    }

    pub(crate) fn scmp(&self, message: &Scmp) -> Vec<u8> {
        packet::scmp(self.source, self.destination, SCION, &self.path(), message).expect("a packet")
    }

    /// What the router does with it.
    pub(crate) fn run(&self, packet: &mut [u8]) -> Outcome {
        process(packet, self.ingress)
    }
}
