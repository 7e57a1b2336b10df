//! From the kernel's routes to those that packets can follow without it.

use std::collections::BTreeMap;
use std::io;

use ipnet::IpNet;
use rtnetlink::packet_route::route::{
    RouteAttribute, RouteFlags, RouteMessage, RouteMetric, RouteType, RouteVia,
};
use rtnetlink::packet_route::{AddressFamily, RouteNetlinkMessage};

use super::{LOCAL, LanPort, MAIN};
use crate::neighbours::RouteLookup;
use crate::netlink::Netlink;
use crate::watch::RouteKey;
use sig_core::dataplane::lan::{LanFacts, LanRoute};

/// Flags that do not change where packets go.
const HARMLESS: RouteFlags = RouteFlags::Onlink
    .union(RouteFlags::Prefix)
    .union(RouteFlags::Offload)
    .union(RouteFlags::RtOffload);

/// All routes of a family.
pub(super) async fn dump(
    netlink: &Netlink,
    family: AddressFamily,
) -> io::Result<Vec<RouteMessage>> {
    let mut request = RouteMessage::default();
    request.header.address_family = family;
    let answers = netlink.dump(RouteNetlinkMessage::GetRoute(request)).await?;
    let routes = answers.into_iter().filter_map(|answer| match answer {
        RouteNetlinkMessage::NewRoute(route) => Some(route),
        _ => None,
    });
    Ok(routes.collect())
}

/// Whether two prefixes have addresses in common.
pub(super) fn overlap(a: &IpNet, b: &IpNet) -> bool {
    a.contains(b) || b.contains(a)
}

/// Adds the routes that matter to `served`.
pub(super) fn add(
    facts: &mut LanFacts,
    routes: &[RouteMessage],
    served: &[IpNet],
    ports: &[LanPort],
) {
    let mut best: BTreeMap<IpNet, (i64, LanRoute)> = BTreeMap::new();
    for route in routes {
        let Some(key) = RouteKey::of(route) else {
            continue;
        };
        if !served.iter().any(|prefix| overlap(prefix, &key.prefix)) {
            continue;
        }
        if key.table == LOCAL || is_for_this_host(route.header.kind) {
            facts.local.insert(key.prefix);
            continue;
        }
        if key.table != MAIN {
            continue;
        }
        // Of several routes to a prefix the least metric counts. One that is not for all packets spoils the prefix.
        let rank = if is_for_all(route) {
            i64::from(key.metric)
        } else {
            -1
        };
        let way = way(route, ports);
        best.entry(key.prefix)
            .and_modify(|best| {
                if rank < best.0 {
                    *best = (rank, way);
                } else if rank == best.0 {
                    // The kernel chooses among equals.
                    best.1 = LanRoute::Kernel;
                }
            })
            .or_insert((rank, way));
    }
    facts
        .routes
        .extend(best.into_iter().map(|(prefix, (_, way))| (prefix, way)));
}

/// On kernels without policy routing such routes are in the main table too.
fn is_for_this_host(kind: RouteType) -> bool {
    matches!(
        kind,
        RouteType::Local | RouteType::Broadcast | RouteType::Anycast | RouteType::Multicast
    )
}

/// Whether the route is for packets from everywhere and of every traffic class, and not what the kernel has learned
/// about a single destination.
fn is_for_all(route: &RouteMessage) -> bool {
    let header = &route.header;
    header.source_prefix_length == 0
        && header.tos == 0
        && !header.flags.contains(RouteFlags::Cloned)
}

/// What packets that follow a route need.
fn way(route: &RouteMessage, ports: &[LanPort]) -> LanRoute {
    let plain = route.header.kind == RouteType::Unicast
        && is_for_all(route)
        && (route.header.flags - HARMLESS).is_empty()
        && route.attributes.iter().all(is_plain);
    let found = RouteLookup::of(route);
    let port = ports
        .iter()
        .find(|port| found.ifindex == Some(port.ifindex));
    match (port, found.gateway) {
        (Some(port), None) if plain => LanRoute::OnLink { port: port.number },
        (Some(port), Some(address)) if plain => LanRoute::Gateway {
            port: port.number,
            address,
        },
        _ => LanRoute::Kernel,
    }
}

/// Whether an attribute is understood: several next hops, encapsulations, next-hop objects and MTUs are left to the
/// kernel, like whatever comes to be invented.
fn is_plain(attribute: &RouteAttribute) -> bool {
    match attribute {
        RouteAttribute::Destination(_)
        | RouteAttribute::Table(_)
        | RouteAttribute::Priority(_)
        | RouteAttribute::Oif(_)
        | RouteAttribute::Gateway(_)
        | RouteAttribute::Via(RouteVia::Inet(_) | RouteVia::Inet6(_))
        | RouteAttribute::PrefSource(_)
        | RouteAttribute::CacheInfo(_)
        | RouteAttribute::Preference(_)
        | RouteAttribute::Expires(_) => true,
        RouteAttribute::Metrics(metrics) => !metrics
            .iter()
            .any(|metric| matches!(metric, RouteMetric::Mtu(_) | RouteMetric::Lock(_))),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    const LAN: u32 = 7;

    fn net(text: &str) -> IpNet {
        text.parse().expect("a prefix")
    }

    fn route(prefix: &str, more: Vec<RouteAttribute>) -> RouteMessage {
        let prefix = net(prefix);
        let mut route = RouteMessage::default();
        route.header.address_family = match prefix {
            IpNet::V4(_) => AddressFamily::Inet,
            IpNet::V6(_) => AddressFamily::Inet6,
        };
        route.header.destination_prefix_length = prefix.prefix_len();
        route.header.kind = RouteType::Unicast;
        route.attributes = vec![
            RouteAttribute::Destination(prefix.addr().into()),
            RouteAttribute::Table(MAIN),
        ];
        route.attributes.extend(more);
        route
    }

    fn on_lan(prefix: &str, metric: u32) -> RouteMessage {
        let more = vec![RouteAttribute::Oif(LAN), RouteAttribute::Priority(metric)];
        route(prefix, more)
    }

    fn facts(routes: &[RouteMessage]) -> LanFacts {
        let ports = [LanPort {
            number: 3,
            ifindex: LAN,
            name: "lan".into(),
        }];
        let mut facts = LanFacts::default();
        add(
            &mut facts,
            routes,
            &[net("10.1.0.0/16"), net("fd00:1::/32")],
            &ports,
        );
        facts
    }

    fn only_way(routes: &[RouteMessage]) -> LanRoute {
        let facts = facts(routes);
        assert_eq!(facts.routes.len(), 1, "{facts:?}");
        facts.routes.into_values().next().expect("one")
    }

    const ON_LINK: LanRoute = LanRoute::OnLink { port: 3 };

    #[test]
    fn plain_routes_over_a_lan_port_are_followed() {
        assert_eq!(only_way(&[on_lan("10.1.2.0/24", 0)]), ON_LINK);
        for (prefix, router) in [
            ("0.0.0.0/0", "10.1.0.9"),
            ("0.0.0.0/0", "fe80::1"),
            ("fd00:1:2::/48", "fe80::1"),
        ] {
            let address: IpAddr = router.parse().expect("an address");
            let via = match (prefix.contains(':'), address) {
                (false, IpAddr::V6(v6)) => RouteAttribute::Via(RouteVia::Inet6(v6)),
                _ => RouteAttribute::Gateway(address.into()),
            };
            let found = only_way(&[route(prefix, vec![RouteAttribute::Oif(LAN), via])]);
            assert_eq!(found, LanRoute::Gateway { port: 3, address });
        }
    }

    #[test]
    fn routes_with_more_to_them_are_the_kernels() {
        let mut blackhole = on_lan("10.1.2.0/24", 0);
        blackhole.header.kind = RouteType::BlackHole;
        let mut dead = on_lan("10.1.2.0/24", 0);
        dead.header.flags = RouteFlags::Dead;
        let mut of_a_class = on_lan("10.1.2.0/24", 5);
        of_a_class.header.tos = 0x10;
        let mut from_somewhere = on_lan("fd00:1::/64", 5);
        from_somewhere.header.source_prefix_length = 64;
        let elsewhere = route("10.1.2.0/24", vec![RouteAttribute::Oif(LAN + 1)]);
        for odd in [blackhole, dead, of_a_class, from_somewhere, elsewhere] {
            assert_eq!(only_way(&[odd]), LanRoute::Kernel);
        }
        for attribute in [
            RouteAttribute::MultiPath(Vec::new()),
            RouteAttribute::NhId(1),
            RouteAttribute::Encap(Vec::new()),
            RouteAttribute::Metrics(vec![RouteMetric::Mtu(1400)]),
        ] {
            let mut odd = on_lan("10.1.2.0/24", 0);
            odd.attributes.push(attribute);
            assert_eq!(only_way(&[odd]), LanRoute::Kernel);
        }
    }

    #[test]
    fn the_least_metric_counts_and_equals_are_the_kernels() {
        let better = |metric| on_lan("10.1.2.0/24", metric);
        let worse = || {
            let more = vec![RouteAttribute::Oif(LAN + 1), RouteAttribute::Priority(10)];
            route("10.1.2.0/24", more)
        };
        assert_eq!(only_way(&[better(5), worse()]), ON_LINK);
        assert_eq!(only_way(&[worse(), better(5)]), ON_LINK);
        assert_eq!(only_way(&[worse(), better(20)]), LanRoute::Kernel);
        assert_eq!(only_way(&[better(5), better(5)]), LanRoute::Kernel);
        let mut of_a_class = worse();
        of_a_class.header.tos = 0x10;
        assert_eq!(only_way(&[better(5), of_a_class]), LanRoute::Kernel);
    }

    #[test]
    fn other_tables_and_other_destinations_do_not_matter_but_own_addresses_do() {
        let mut own = on_lan("10.1.0.1/32", 0);
        own.attributes[1] = RouteAttribute::Table(LOCAL);
        let mut broadcast = on_lan("10.1.0.255/32", 0);
        broadcast.header.kind = RouteType::Broadcast;
        let mut of_another_table = on_lan("10.1.3.0/24", 0);
        of_another_table.attributes[1] = RouteAttribute::Table(77);
        let facts = facts(&[
            own,
            broadcast,
            of_another_table,
            on_lan("10.2.0.0/16", 0),
            on_lan("10.0.0.0/8", 0),
        ]);
        let local = [net("10.1.0.1/32"), net("10.1.0.255/32")];
        assert!(facts.local.iter().eq(&local));
        assert!(facts.routes.keys().eq(&[net("10.0.0.0/8")]));
    }
}
