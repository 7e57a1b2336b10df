//! Which way packets to an address go, as the routing table has it.

use std::net::IpAddr;

use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::packet_route::route::{
    RouteAttribute, RouteMessage, RouteMetric, RouteType, RouteVia,
};

use super::{Reason, Resolved, family};
use crate::Error;
use crate::link::{self, Link, MAX_XDP_MTU};
use crate::netlink::Netlink;
use crate::watch::ip_of;

/// The road to a target as far as the routing table knows it.
#[derive(Clone, Copy)]
pub(super) struct ResolvedRoute {
    pub(super) ifindex: u32,
    source: IpAddr,
    pub(super) neighbour: IpAddr,
    interface_mac: [u8; 6],
    mtu: u32,
}

impl ResolvedRoute {
    pub(super) fn towards(self, destination_mac: [u8; 6]) -> Resolved {
        Resolved {
            ifindex: self.ifindex,
            source: self.source,
            neighbour: self.neighbour,
            destination_mac,
            interface_mac: self.interface_mac,
            mtu: self.mtu,
        }
    }
}

/// Asks the kernel which way packets from `source` to `target` go: over `only`, or over any interface if that is `None`.
///
/// # Errors
/// The reason why the target cannot be reached that way.
pub(super) async fn find_way(
    netlink: &Netlink,
    only: Option<&Link>,
    source: Option<IpAddr>,
    target: IpAddr,
) -> Result<ResolvedRoute, Reason> {
    let route = lookup(netlink, source, target).await?;
    if route.kind == RouteType::Local {
        return Err(Reason::LocalAddress);
    }
    if route.kind != RouteType::Unicast {
        return Err(Reason::NoRoute);
    }
    let ifindex = route.ifindex.ok_or(Reason::NoRoute)?;
    let found;
    let link = match only {
        Some(link) if link.ifindex != ifindex => return Err(Reason::OtherInterface(ifindex)),
        Some(link) => link,
        None => {
            found = usable(link::by_index(netlink, ifindex).await)?;
            &found
        }
    };
    Ok(ResolvedRoute {
        ifindex,
        source: route.source.ok_or(Reason::NoRoute)?,
        neighbour: route.gateway.unwrap_or(target),
        interface_mac: link.mac.ok_or(Reason::NotEthernet)?,
        mtu: route.mtu.map_or(link.mtu, |mtu| mtu.min(link.mtu)),
    })
}

/// Asks the kernel which way its own packets from `source` to `target` go, and whether it has to know a neighbour's address for that:
/// not on this host, nor over devices without such addresses.
///
/// # Errors
/// The reason why the target cannot be reached.
pub(super) async fn find_any_way(
    netlink: &Netlink,
    source: IpAddr,
    target: IpAddr,
) -> Result<(ResolvedRoute, bool), Reason> {
    let route = lookup(netlink, Some(source), target).await?;
    if !matches!(route.kind, RouteType::Local | RouteType::Unicast) {
        return Err(Reason::NoRoute);
    }
    let ifindex = route.ifindex.ok_or(Reason::NoRoute)?;
    let link = usable(link::by_index(netlink, ifindex).await)?;
    let has_neighbours = !link.loopback && !link.noarp && link.mac.is_some();
    let way = ResolvedRoute {
        ifindex,
        source: route.source.unwrap_or(source),
        neighbour: route.gateway.unwrap_or(target),
        interface_mac: link.mac.unwrap_or_default(),
        // A frame lies in one packet buffer, whatever the device takes.
        mtu: route
            .mtu
            .map_or(link.mtu, |mtu| mtu.min(link.mtu))
            .min(MAX_XDP_MTU),
    };
    Ok((way, has_neighbours))
}

/// The interface, if packets can leave by it.
pub(super) fn usable(found: Result<Option<Link>, Error>) -> Result<Link, Reason> {
    match found {
        Ok(Some(link)) if !(link.up && link.carrier) => Err(Reason::InterfaceDown),
        Ok(Some(link)) => Ok(link),
        Ok(None) => Err(Reason::NoInterface),
        Err(error) => Err(Reason::Kernel(error.to_string())),
    }
}

/// The kernel's answer to "which way does a packet go": a look at the table, no packet is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteLookup {
    /// Unicast, local, ...
    pub kind: RouteType,
    /// Outgoing interface
    pub ifindex: Option<u32>,
    /// Next router, if the destination is not on the link itself
    pub gateway: Option<IpAddr>,
    /// Source address the kernel would choose
    pub source: Option<IpAddr>,
    /// MTU set on the route
    pub mtu: Option<u32>,
}

/// Looks up the route to `target`, of packets with this source address: policy rules may ask for it. Without one, or with
/// one of the other family, the kernel chooses.
pub async fn lookup(
    netlink: &Netlink,
    source: Option<IpAddr>,
    target: IpAddr,
) -> Result<RouteLookup, Reason> {
    let mut request = RouteMessage::default();
    request.header.address_family = family(target);
    request.header.destination_prefix_length = if target.is_ipv4() { 32 } else { 128 };
    request
        .attributes
        .push(RouteAttribute::Destination(target.into()));
    let source = source.filter(|source| source.is_ipv4() == target.is_ipv4());
    if let Some(source) = source {
        request.header.source_prefix_length = request.header.destination_prefix_length;
        request
            .attributes
            .push(RouteAttribute::Source(source.into()));
    }
    let route = match netlink.get(RouteNetlinkMessage::GetRoute(request)).await {
        Ok(Some(RouteNetlinkMessage::NewRoute(route))) => route,
        Ok(_) => return Err(Reason::NoRoute),
        Err(error) => {
            return Err(match error.raw_os_error() {
                Some(
                    libc::ENETUNREACH
                    | libc::EHOSTUNREACH
                    | libc::EACCES
                    | libc::EINVAL
                    | libc::EAGAIN,
                ) => Reason::NoRoute,
                _ => Reason::Kernel(error.to_string()),
            });
        }
    };
    let mut found = RouteLookup::of(&route);
    // The kernel tells no more than it was not told.
    found.source = found.source.or(source);
    Ok(found)
}

impl RouteLookup {
    pub(crate) fn of(route: &RouteMessage) -> Self {
        let mut answer = RouteLookup {
            kind: route.header.kind,
            ifindex: None,
            gateway: None,
            source: None,
            mtu: None,
        };
        for attribute in &route.attributes {
            match attribute {
                RouteAttribute::Oif(index) => answer.ifindex = Some(*index),
                RouteAttribute::Gateway(address) => answer.gateway = ip_of(address),
                RouteAttribute::Via(RouteVia::Inet(ip)) => answer.gateway = Some((*ip).into()),
                RouteAttribute::Via(RouteVia::Inet6(ip)) => answer.gateway = Some((*ip).into()),
                RouteAttribute::PrefSource(address) => answer.source = ip_of(address),
                RouteAttribute::Metrics(metrics) => {
                    answer.mtu = metrics.iter().find_map(|metric| match metric {
                        RouteMetric::Mtu(mtu) if *mtu > 0 => Some(*mtu),
                        _ => None,
                    });
                }
                _ => {}
            }
        }
        answer
    }
}
