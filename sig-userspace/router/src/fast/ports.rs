//! Which devices are inside, and by which devices packets to each of our addresses come in.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
};

use crate::{AsModel, config::Xdp};
use sig_linux::link::Link;

/// Number of the loopback interface in every network namespace.
const LOOPBACK: u32 = 1;

/// The devices by which packets to each of our addresses may come in.
///
/// Whoever sends to the internal address is a host or router of our AS, so it must not be open to neighbours: it is on
/// the devices of the inside only. Packets of a link come in by the device with our address on it, by the one that leads
/// to its other end, or by one that is configured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Arrivals {
    /// Interface indexes as sockets know them, VLAN devices too. `None`: any device.
    by: BTreeMap<SocketAddr, Option<BTreeSet<u32>>>,
    /// The devices of the inside are those that nothing speaks against.
    guessed: bool,
}

impl Arrivals {
    /// `xdp` names further devices, `way_to` tells the device that leads to an address.
    #[must_use]
    pub fn of(
        links: &[Link],
        model: &AsModel,
        xdp: &Xdp,
        way_to: &dyn Fn(IpAddr) -> Option<u32>,
    ) -> Self {
        let named = |names: &[String]| -> BTreeSet<u32> {
            let named = links.iter().filter(|link| names.contains(&link.name));
            named.map(|link| link.ifindex).collect()
        };
        let mut by = BTreeMap::new();
        let mut external = named(&xdp.link_devices);
        for (_, _, local, remote) in model.links() {
            let holders = holders(links, local.ip());
            let way = way_to(remote.ip());
            external.extend(holders.iter().copied().chain(way));
            // An address of the loopback interface belongs to no link layer: its packets come in anywhere.
            let devices = (!holders.is_empty()).then(|| {
                let devices = holders.into_iter().chain(way);
                devices.chain(named(&xdp.link_devices)).collect()
            });
            by.insert(local, devices);
        }
        let mut inside = holders(links, model.internal.ip());
        inside.extend(named(&xdp.internal_devices));
        let guessed = inside.is_empty();
        if guessed {
            // The address is one of the loopback interface: all that have an address, but lead to no neighbour.
            let links = links.iter().filter(|link| has_link_layer(link));
            let links = links.filter(|link| !external.contains(&link.ifindex));
            let links = links.filter(|link| {
                let mut addresses = link.addresses.iter().map(|net| net.addr());
                addresses.any(|ip| !is_link_local(ip))
            });
            inside = links.map(|link| link.ifindex).collect();
        }
        by.insert(model.internal, Some(inside));
        Self { by, guessed }
    }

    /// Whether a packet to one of our addresses may come in by a device. Over the loopback interface, from this host itself, it
    /// always may.
    #[must_use]
    pub fn admit(&self, local: SocketAddr, ifindex: u32) -> bool {
        match self.by.get(&local) {
            Some(Some(devices)) => ifindex == LOOPBACK || devices.contains(&ifindex),
            Some(None) | None => true,
        }
    }

    /// The devices of an address; `None`: any.
    pub(super) fn devices(&self, local: SocketAddr) -> Option<&BTreeSet<u32>> {
        self.by.get(&local)?.as_ref()
    }

    /// All devices that some address names.
    pub(super) fn all(&self) -> impl Iterator<Item = u32> {
        self.by.values().flatten().flatten().copied()
    }

    /// Whether no device has the internal address, and none is configured.
    pub(super) const fn are_guessed(&self) -> bool {
        self.guessed
    }
}

/// Whether frames come in by a device: Ethernet, but not one that only holds addresses.
pub(super) fn is_ethernet(link: &Link) -> bool {
    link.mac.is_some() && has_link_layer(link)
}

/// Whether packets of others come in by a device: a tunnel too, but not one that only holds addresses.
fn has_link_layer(link: &Link) -> bool {
    !link.loopback && !matches!(link.kind.as_deref(), Some("dummy" | "vrf"))
}

/// The devices with an address that packets come in by.
fn holders(links: &[Link], ip: IpAddr) -> BTreeSet<u32> {
    let holders = links.iter().filter(|link| has_link_layer(link));
    let holders = holders.filter(|link| link.has_address(ip));
    holders.map(|link| link.ifindex).collect()
}

/// Every device has such an address; it says nothing of what the device is for.
fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    use crate::{Bfd, Interface, Owner, config::RateLimits, model::LinkType};
    use sig_common::addr::IsdAs;
    use sig_core::scion::HopKey;

    const NEIGHBOUR: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));

    fn inside() -> SocketAddr {
        ([10, 0, 0, 1], 30_042).into()
    }

    fn link() -> SocketAddr {
        ([192, 0, 2, 1], 50_000).into()
    }

    fn model() -> AsModel {
        let interface = Interface {
            owner: Owner::Here {
                local: link(),
                remote: SocketAddr::new(NEIGHBOUR, 50_000),
            },
            neighbour: IsdAs::new(1, 2),
            neighbour_interface: None,
            link_type: LinkType::Child,
            mtu: 1400,
            bfd: Bfd::default(),
        };
        AsModel {
            router: "br".to_owned(),
            isd_as: IsdAs::new(1, 1),
            core: true,
            mtu: 1400,
            internal: inside(),
            ports: None,
            interfaces: [(1, interface)].into(),
            siblings: Vec::new(),
            control_services: Vec::new(),
            discovery_services: Vec::new(),
            services: BTreeSet::new(),
            sibling_bfd: Bfd::default(),
            key: HopKey::new([0; 16]),
        }
    }

    fn device(ifindex: u32, kind: &str, addresses: &[&str]) -> Link {
        Link {
            name: format!("eth{ifindex}"),
            ifindex,
            mac: (kind != "wireguard" && kind != "loopback").then_some([2; 6]),
            loopback: kind == "loopback",
            kind: Some(kind.to_owned()),
            addresses: addresses.iter().map(|net| net.parse().unwrap()).collect(),
            ..Link::default()
        }
    }

    fn xdp() -> Xdp {
        Xdp {
            mode: None,
            cpus: Vec::new(),
            devices: Vec::new(),
            exclude: Vec::new(),
            internal_devices: Vec::new(),
            link_devices: Vec::new(),
            rate_limits: RateLimits::default(),
        }
    }

    /// By which devices packets to the internal address and to that of the link come in.
    fn open(links: &[Link], xdp: &Xdp, way: Option<u32>) -> [Vec<u32>; 2] {
        let way_to = |ip| way.filter(|_| ip == NEIGHBOUR);
        let arrivals = Arrivals::of(links, &model(), xdp, &way_to);
        let open = |address| {
            let all = 1..=9;
            all.filter(|ifindex| arrivals.admit(address, *ifindex))
                .collect()
        };
        [open(inside()), open(link())]
    }

    #[test]
    fn addresses_are_open_on_the_devices_that_they_are_on() {
        let links = [
            device(1, "loopback", &["127.0.0.1/8"]),
            device(2, "veth", &["10.0.0.1/24"]),
            device(3, "veth", &["192.0.2.1/30"]),
            device(4, "veth", &["172.16.0.1/24"]),
        ];
        assert_eq!(open(&links, &xdp(), Some(3)), [vec![1, 2], vec![1, 3]]);
        // The way to the neighbour is another one.
        assert_eq!(open(&links, &xdp(), Some(4)), [vec![1, 2], vec![1, 3, 4]]);
        let xdp = Xdp {
            internal_devices: vec!["eth4".to_owned()],
            link_devices: vec!["eth5".to_owned()],
            ..xdp()
        };
        let links = [&links[..], &[device(5, "veth", &[])]].concat();
        assert_eq!(open(&links, &xdp, None), [vec![1, 2, 4], vec![1, 3, 5]]);
    }

    #[test]
    fn devices_that_are_not_ethernet_have_addresses_too() {
        let links = [
            device(1, "loopback", &[]),
            device(2, "wireguard", &["10.0.0.1/24"]),
            device(3, "wireguard", &["192.0.2.1/30"]),
            device(4, "veth", &["172.16.0.1/24"]),
        ];
        assert_eq!(open(&links, &xdp(), Some(3)), [vec![1, 2], vec![1, 3]]);
    }

    #[test]
    fn an_address_on_several_devices_is_open_on_all() {
        let links = [
            device(2, "veth", &["10.0.0.1/32"]),
            device(3, "veth", &["10.0.0.1/32", "192.0.2.1/30"]),
        ];
        assert_eq!(open(&links, &xdp(), Some(3)), [vec![1, 2, 3], vec![1, 3]]);
    }

    #[test]
    fn without_a_device_of_its_own_the_inside_is_where_no_neighbour_is() {
        for holder in ["loopback", "dummy", "vrf"] {
            let links = [
                device(1, holder, &["10.0.0.1/32", "192.0.2.1/32"]),
                device(2, "veth", &["172.16.0.1/24"]),
                device(3, "veth", &["172.16.1.1/24"]),
                device(4, "veth", &["fe80::1/64"]),
                device(5, "veth", &[]),
            ];
            let all = (1..=9).collect::<Vec<u32>>();
            assert_eq!(open(&links, &xdp(), Some(3)), [vec![1, 2], all.clone()]);
            let named = Xdp {
                internal_devices: vec!["eth5".to_owned()],
                ..xdp()
            };
            assert_eq!(open(&links, &named, Some(3)), [vec![1, 5], all]);
        }
    }
}
