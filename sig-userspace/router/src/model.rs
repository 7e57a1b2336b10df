//! What a border router knows of its AS.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
    ops::RangeInclusive,
};

pub use sig_common::router::maps::LinkType;
use sig_common::{addr::IsdAs, router::delivery::is_dispatched, wire::scion::ENDHOST_PORT};

use sig_core::scion::HopKey;
pub use sig_core::topology::Bfd;

/// The AS as one of its border routers sees it. A value of this type is consistent: the configuration was checked.
#[derive(Clone, Debug)]
pub struct AsModel {
    /// Name of this router in the topology.
    pub router: String,
    /// ISD-AS.
    pub isd_as: IsdAs,
    /// Whether it is a core AS.
    pub core: bool,
    /// Largest SCION packet within the AS, bytes.
    pub mtu: u16,
    /// Where this router gets packets from hosts and siblings, and sends them from.
    pub internal: SocketAddr,
    /// UDP ports of hosts that packets are dispatched to; others go to port 30041, unless they are of
    /// [`Self::services`].
    pub ports: Option<RangeInclusive<u16>>,
    /// All interfaces of the AS by number, those of siblings as well.
    pub interfaces: BTreeMap<u16, Interface>,
    /// The other routers of the AS.
    pub siblings: Vec<Sibling>,
    /// Instances of the control service.
    pub control_services: Vec<SocketAddr>,
    /// Instances of the discovery service.
    pub discovery_services: Vec<SocketAddr>,
    /// Where services of the AS listen, of all kinds that the topology names.
    pub services: BTreeSet<SocketAddr>,
    /// BFD with siblings.
    pub sibling_bfd: Bfd,
    /// Signs hop fields of the AS.
    pub key: HopKey,
}

/// An interface of the AS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// The router that has it.
    pub owner: Owner,
    /// The AS at the other end.
    pub neighbour: IsdAs,
    /// The number of the interface at the other end, where configured.
    pub neighbour_interface: Option<u16>,
    /// What kind of AS the neighbour is.
    pub link_type: LinkType,
    /// Largest SCION packet on the link, bytes.
    pub mtu: u16,
    /// BFD on the link.
    pub bfd: Bfd,
}

/// The router that has an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// This one; the ends of the link in the underlay.
    Here {
        /// Ours.
        local: SocketAddr,
        /// The neighbour's.
        remote: SocketAddr,
    },
    /// A place in [`AsModel::siblings`].
    Sibling(usize),
}

/// Another router of the AS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sibling {
    /// Name in the topology.
    pub name: String,
    /// Its internal address.
    pub internal: SocketAddr,
}

impl AsModel {
    /// The interfaces of this router itself: number, interface, our end, the neighbour's end.
    pub fn links(&self) -> impl Iterator<Item = (u16, &Interface, SocketAddr, SocketAddr)> {
        self.interfaces
            .iter()
            .filter_map(|(number, interface)| match interface.owner {
                Owner::Here { local, remote } => Some((*number, interface, local, remote)),
                Owner::Sibling(_) => None,
            })
    }

    /// The sibling that sends from an address: its place in [`Self::siblings`].
    #[must_use]
    pub fn sibling_at(&self, address: SocketAddr) -> Option<usize> {
        self.siblings.iter().position(|s| s.internal == address)
    }

    /// Where a host gets what is for one of its ports: at that port if it is dispatched or that of a service, else at the
    /// end host port.
    #[must_use]
    pub fn host_address(&self, host: IpAddr, port: u16) -> SocketAddr {
        let address = SocketAddr::new(host, port);
        let dispatched = self
            .ports
            .as_ref()
            .is_some_and(|ports| is_dispatched(port, *ports.start(), *ports.end()));
        if dispatched || self.services.contains(&address) {
            address
        } else {
            SocketAddr::new(host, ENDHOST_PORT)
        }
    }
}

/// The number by which the procedure and the maps know a sibling, by its place in [`AsModel::siblings`]: 1 and up. Siblings
/// beyond the last number share that.
#[must_use]
pub fn sibling_number(place: usize) -> u16 {
    u16::try_from(place).unwrap_or(u16::MAX).saturating_add(1)
}
