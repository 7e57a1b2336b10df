//! Who is connected to whom.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use sig_common::addr::IsdAs;
use sig_core::{peer::GatewayAddresses, scion::HopKey};
use sig_router::model::{AsModel, Bfd, Interface, LinkType, Owner};

use crate::link::{End, Link};

/// An AS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct As {
    /// Its number.
    pub isd_as: IsdAs,
    /// Whether it is a core AS.
    pub core: bool,
    /// Largest SCION packet within it, in bytes.
    pub mtu: u16,
    /// First and last port to which its router delivers directly; both 0: none.
    pub ports: (u16, u16),
    /// Internal address of its router.
    pub router: SocketAddr,
    /// Where its control service gets service resolution requests.
    pub resolution: SocketAddr,
    /// Where its control service gets RPCs.
    pub control_service: SocketAddr,
    /// Whether paths to it name its discovery service, so that it need not be resolved.
    pub announces_discovery: bool,
    /// Its gateways, as its control service tells them.
    pub gateways: Vec<GatewayAddresses>,
}

impl As {
    /// From which the key of its hop fields is derived: no secret, but that of no other AS.
    #[must_use]
    pub fn master_key(&self) -> [u8; 16] {
        let mut key = [0; 16];
        key[8..].copy_from_slice(&self.isd_as.to_bytes());
        key
    }

    /// The key of its hop fields.
    #[must_use]
    pub fn key(&self) -> HopKey {
        HopKey::derive(&self.master_key())
    }
}

/// ASes and links.
#[derive(Clone, Debug, Default)]
pub struct Topology {
    ases: Vec<As>,
    links: Vec<Arc<Link>>,
}

impl Topology {
    /// Adds an AS.
    ///
    /// # Panics
    /// If it is there already.
    pub fn add(&mut self, new: As) {
        assert!(self.find(new.isd_as).is_none(), "{} twice", new.isd_as);
        self.ases.push(new);
    }

    /// Adds a link that carries SCION packets of up to `mtu` bytes. Between a core AS and one that is not, the core AS is
    /// the parent; between two core ASes none is; else the first one is.
    ///
    /// # Panics
    /// If an AS is not there, or one of its interfaces is used twice.
    pub fn connect(&mut self, ends: [End; 2], mtu: u16) -> Arc<Link> {
        self.connect_with_latency(ends, mtu, None)
    }

    /// The same, with a latency that paths announce.
    ///
    /// # Panics
    /// As [`Self::connect`].
    pub fn connect_with_latency(
        &mut self,
        ends: [End; 2],
        mtu: u16,
        announced_latency: Option<Duration>,
    ) -> Arc<Link> {
        for end in ends {
            assert!(self.find(end.isd_as).is_some(), "no {}", end.isd_as);
            let used = self.at(end.isd_as, end.interface).is_some();
            assert!(!used && end.interface != 0, "{end:?} is in use");
        }
        let link = Arc::new(Link::new(ends, mtu, announced_latency));
        self.links.push(Arc::clone(&link));
        link
    }

    /// The ASes.
    #[must_use]
    pub fn ases(&self) -> &[As] {
        &self.ases
    }

    /// The links, in the order in which they were added.
    #[must_use]
    pub fn links(&self) -> &[Arc<Link>] {
        &self.links
    }

    /// An AS.
    #[must_use]
    pub fn find(&self, isd_as: IsdAs) -> Option<&As> {
        self.ases.iter().find(|known| known.isd_as == isd_as)
    }

    /// The links of an AS, and which of their ends it has.
    pub fn links_of(&self, isd_as: IsdAs) -> impl Iterator<Item = (&Arc<Link>, usize)> {
        self.links.iter().flat_map(move |link| {
            let ends = [0, 1].into_iter();
            ends.filter(move |end| link.ends[*end].isd_as == isd_as)
                .map(move |end| (link, end))
        })
    }

    /// What the far end of a link is to the near one, `near`.
    #[must_use]
    pub fn link_type(&self, link: &Link, near: usize) -> LinkType {
        let [near_is_core, far_is_core] = [near, 1 - near].map(|end| {
            let isd_as = link.ends[end].isd_as;
            self.find(isd_as).is_some_and(|known| known.core)
        });
        match (near_is_core, far_is_core) {
            (true, true) => LinkType::Core,
            (true, false) => LinkType::Child,
            (false, true) => LinkType::Parent,
            (false, false) if near == 0 => LinkType::Child,
            (false, false) => LinkType::Parent,
        }
    }

    /// An AS as its router sees it.
    #[must_use]
    pub fn model(&self, own: &As) -> AsModel {
        let interfaces = self.links_of(own.isd_as).map(|(link, end)| {
            let [near, far] = [link.ends[end], link.ends[1 - end]];
            let interface = Interface {
                owner: Owner::Here {
                    local: near.underlay,
                    remote: far.underlay,
                },
                neighbour: far.isd_as,
                neighbour_interface: Some(far.interface),
                link_type: self.link_type(link, end),
                mtu: link.mtu,
                bfd: Bfd {
                    disabled: true,
                    ..Bfd::default()
                },
            };
            (near.interface, interface)
        });
        let (first, last) = own.ports;
        AsModel {
            router: format!("router of {}", own.isd_as),
            isd_as: own.isd_as,
            core: own.core,
            mtu: own.mtu,
            internal: own.router,
            ports: (last != 0).then_some(first..=last),
            interfaces: interfaces.collect(),
            siblings: Vec::new(),
            control_services: vec![own.resolution],
            discovery_services: vec![own.resolution],
            services: Default::default(),
            sibling_bfd: Bfd::default(),
            key: own.key(),
        }
    }

    /// The link at an interface, and which of its ends that is.
    #[must_use]
    pub fn at(&self, isd_as: IsdAs, interface: u16) -> Option<(&Arc<Link>, usize)> {
        self.links_of(isd_as)
            .find(|(link, end)| link.ends[*end].interface == interface)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) const A: IsdAs = IsdAs::new(1, 0xff00_0000_0110);
    pub(crate) const B: IsdAs = IsdAs::new(1, 0xff00_0000_0111);
    pub(crate) const CORE: IsdAs = IsdAs::new(1, 0xff00_0000_0112);

    pub(crate) fn address(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    /// A and B are children of the core AS, and connected with each other twice: first by their interfaces 1, then by their
    /// interfaces 2. Towards the core AS both have interface 3; it has 1 towards A and 2 towards B.
    pub(crate) fn triangle() -> Topology {
        let mut topology = Topology::default();
        for (number, isd_as) in [(10, A), (11, B), (12, CORE)] {
            topology.add(As {
                isd_as,
                core: isd_as == CORE,
                mtu: 1472,
                ports: (31000, 32767),
                router: address(&format!("10.{number}.0.1:30042")),
                resolution: address(&format!("10.{number}.0.3:30252")),
                control_service: address(&format!("10.{number}.0.3:30254")),
                announces_discovery: false,
                gateways: Vec::new(),
            });
        }
        let end = |isd_as: IsdAs, interface, number| End {
            isd_as,
            interface,
            underlay: address(&format!("10.99.0.{number}:50000")),
        };
        topology.connect([end(A, 1, 1), end(B, 1, 2)], 1472);
        topology.connect([end(A, 2, 3), end(B, 2, 4)], 1400);
        let latency = Some(Duration::from_millis(7));
        topology.connect_with_latency([end(CORE, 1, 5), end(A, 3, 6)], 1472, latency);
        topology.connect_with_latency([end(B, 3, 7), end(CORE, 2, 8)], 1300, latency);
        topology
    }
}
