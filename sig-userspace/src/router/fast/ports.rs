//! Which devices are inside, and by which devices packets to each of our addresses come in.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
};

use crate::{kernel::link::Link, router::AsModel};

/// Number of the loopback interface in every network namespace.
const LOOPBACK: u32 = 1;

/// The devices by which packets to each of our addresses may come in.
///
/// Whoever sends to the internal address is a host or router of our AS, so it must not be open to neighbours: it is on
/// the devices of the inside only. Packets of a link come in by the device with our address on it, or by the one that leads
/// to its other end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Arrivals {
    /// Interface indexes as sockets know them, VLAN devices too. `None`: any device.
    by: BTreeMap<SocketAddr, Option<BTreeSet<u32>>>,
}

impl Arrivals {
    /// `internal` names further devices of the inside, `way_to` tells the device that leads to an address.
    #[must_use]
    pub fn of(
        links: &[Link],
        model: &AsModel,
        internal: &[String],
        way_to: &dyn Fn(IpAddr) -> Option<u32>,
    ) -> Self {
        let mut by = BTreeMap::new();
        for (_, _, local, remote) in model.links() {
            // An address of the loopback interface belongs to no link layer: its packets come in anywhere.
            let devices = holder(links, local.ip()).map(|device| {
                let device = [device].into_iter();
                device.chain(way_to(remote.ip())).collect()
            });
            by.insert(local, devices);
        }
        by.insert(model.internal, Some(inside(links, model, internal)));
        Self { by }
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
}

/// Whether frames come in by a device: Ethernet, but not one that only holds addresses.
pub(super) fn is_ethernet(link: &Link) -> bool {
    link.mac.is_some() && !link.loopback && link.kind.as_deref() != Some("dummy")
}

/// The Ethernet device with an address.
fn holder(links: &[Link], ip: IpAddr) -> Option<u32> {
    let mut holders = links.iter().filter(|link| is_ethernet(link));
    let holder = holders.find(|link| link.addresses.iter().any(|net| net.addr() == ip))?;
    Some(holder.ifindex)
}

/// The devices of the inside: that with the internal address, and those configured. If there are none, because the address is
/// one of the loopback interface, all that have an address, but none of a link.
fn inside(links: &[Link], model: &AsModel, configured: &[String]) -> BTreeSet<u32> {
    let named = links
        .iter()
        .filter(|link| configured.contains(&link.name))
        .map(|link| link.ifindex);
    let inside: BTreeSet<u32> = holder(links, model.internal.ip())
        .into_iter()
        .chain(named)
        .collect();
    if !inside.is_empty() {
        return inside;
    }
    let external: BTreeSet<IpAddr> = model.links().map(|(_, _, local, _)| local.ip()).collect();
    let all = links
        .iter()
        .filter(|link| is_ethernet(link))
        .filter(|link| {
            let mut addresses = link.addresses.iter().map(|net| net.addr());
            addresses.any(|ip| !is_link_local(ip))
                && !link
                    .addresses
                    .iter()
                    .any(|net| external.contains(&net.addr()))
        });
    all.map(|link| link.ifindex).collect()
}

/// Every device has such an address; it says nothing of what the device is for.
fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}
