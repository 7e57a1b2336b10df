//! What becomes of packets from the LAN, for the BPF map of the LAN programs.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use ipnet::IpNet;
use sig_common::maps::{LanRoute, MAX_PREFIXES};

use sig_linux::networks::Networks;

/// Destinations of packets from the LAN.
pub(super) type LanRoutes = BTreeMap<IpNet, LanRoute>;

/// The map for the LAN programs. It is made anew only when what it is made of has changed: where the tunnel has a
/// default route, it holds the whole routing table.
#[derive(Debug, Default)]
pub(super) struct LanMap {
    networks: Arc<Networks>,
    tunnel: BTreeSet<IpNet>,
    served: Vec<IpNet>,
    routes: Arc<LanRoutes>,
    left_out: Vec<IpNet>,
}

impl LanMap {
    /// The map for the prefixes in the `tunnel`, what is `served` here, and the networks of this host.
    pub(super) fn make(
        &mut self,
        tunnel: BTreeSet<IpNet>,
        served: Vec<IpNet>,
        networks: &Arc<Networks>,
    ) -> Arc<LanRoutes> {
        let is_same = Arc::ptr_eq(&self.networks, networks)
            && (&self.tunnel, &self.served) == (&tunnel, &served);
        if !is_same {
            let (routes, left_out) = lan_routes(&tunnel, &served, networks, MAX_PREFIXES as usize);
            for prefix in left_out.iter().filter(|net| !self.left_out.contains(net)) {
                tracing::warn!(
                    %prefix,
                    "this host has more than {MAX_PREFIXES} routes inside a tunnel prefix: packets from the \
                     LAN to that prefix take the slow path through the kernel"
                );
            }
            *self = LanMap {
                networks: networks.clone(),
                tunnel,
                served,
                routes: Arc::new(routes),
                left_out,
            };
        }
        self.routes.clone()
    }
}

/// Packets from the LAN go into the tunnel to the prefixes in it, except for what the kernel would route elsewhere: the
/// networks of this host, what is served here, and other routes that are more specific. Prefixes with more of these
/// than `limit` entries hold are left to the kernel as a whole, which knows the way: they are returned as well.
fn lan_routes(
    tunnel: &BTreeSet<IpNet>,
    served: &[IpNet],
    networks: &Networks,
    limit: usize,
) -> (LanRoutes, Vec<IpNet>) {
    let is_held = |net: &IpNet| {
        let mut wider = std::iter::successors(net.supernet(), IpNet::supernet);
        !tunnel.contains(net) && wider.any(|wide| tunnel.contains(&wide))
    };
    let served = served.iter().map(IpNet::trunc).filter(is_held);
    let mut routes: LanRoutes = served.map(|net| (net, LanRoute::PASS)).collect();
    let mut used = [routes.len(); 2];
    let mut left_out = Vec::new();
    // The longest first: a prefix that finds no room is within none that does.
    let mut prefixes: Vec<&IpNet> = tunnel.iter().collect();
    prefixes.sort_by_key(|prefix| Reverse(prefix.prefix_len()));
    for prefix in prefixes {
        let used = &mut used[usize::from(prefix.addr().is_ipv6())];
        let room = limit.saturating_sub(*used + 1);
        // Whether it is preferred to another prefix of the tunnel is asked when that one's turn comes.
        let within = networks.within(prefix);
        let kept = within.filter(|net| net == prefix || !tunnel.contains(net));
        let more = kept.filter(|net| !routes.contains_key(net));
        let more: Vec<IpNet> = more.take(room + 1).collect();
        if more.len() > room {
            left_out.push(*prefix);
            continue;
        }
        *used += 1 + more.len();
        routes.insert(*prefix, LanRoute::TUNNEL);
        routes.extend(more.into_iter().map(|net| (net, LanRoute::PASS)));
    }
    (routes, left_out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(text: &str) -> IpNet {
        text.parse().expect("a prefix")
    }

    fn networks(routes: &[(&str, u32)]) -> Networks {
        let own = [
            "10.5.0.0/24",
            "10.5.0.1/32",
            "192.168.1.0/24",
            "fd00:5::/64",
        ];
        let routes = routes.iter();
        Networks {
            own: own.map(|own| (net(own), "mg0".into())).into(),
            routes: routes
                .map(|(prefix, metric)| (net(prefix), *metric))
                .collect(),
            ..Networks::default()
        }
    }

    fn passed(routes: &LanRoutes) -> Vec<String> {
        let passed = routes.iter().filter(|(_, route)| **route == LanRoute::PASS);
        passed.map(|(net, _)| net.to_string()).collect()
    }

    #[test]
    fn the_lan_goes_where_the_kernel_would_route_it() {
        let tunnel = ["10.0.0.0/8", "10.6.0.0/16", "10.7.0.0/16", "fd00::/16"].map(net);
        let networks = networks(&[
            ("10.6.0.0/16", 1000), // the tunnel's metric is lower
            ("10.7.0.0/16", 0),
            ("10.7.1.0/24", 1000),
            ("10.8.0.0/16", 1000),
            ("0.0.0.0/0", 0),
        ]);
        let served = ["10.9.0.0/16", "10.6.0.0/16", "172.16.0.0/16"].map(net);
        let (found, left_out) = lan_routes(&tunnel.into(), &served, &networks, 100);
        assert_eq!(left_out, []);
        let expected = [
            "10.5.0.0/24",
            "10.5.0.1/32",
            "10.7.0.0/16",
            "10.7.1.0/24",
            "10.8.0.0/16",
            "10.9.0.0/16",
            "fd00:5::/64",
        ];
        assert_eq!(passed(&found), expected);
        let taken = found
            .iter()
            .filter(|(_, route)| **route == LanRoute::TUNNEL)
            .map(|(net, _)| *net);
        assert!(taken.eq([tunnel[0], tunnel[1], tunnel[3]]));
    }

    #[test]
    fn what_the_map_has_no_room_for_is_left_to_the_kernel_with_all_around_it() {
        let tunnel = ["0.0.0.0/0", "10.0.0.0/8", "10.5.0.0/16", "fd00::/16"].map(net);
        let networks = networks(&[("10.8.0.0/16", 1000), ("172.16.0.0/16", 0)]);
        let made = |limit| lan_routes(&tunnel.into(), &[], &networks, limit);
        let (all, left_out) = made(8);
        assert_eq!((left_out, all.len()), (vec![], 8 + 2));
        let (some, left_out) = made(7);
        assert_eq!(left_out, [tunnel[0]]);
        assert_eq!(
            passed(&some),
            ["10.5.0.0/24", "10.5.0.1/32", "10.8.0.0/16", "fd00:5::/64"]
        );
        assert_eq!(made(4).1, [tunnel[1], tunnel[0]]);
        assert_eq!(made(2).1, [tunnel[2], tunnel[1], tunnel[0]]);
    }

    #[test]
    fn it_is_made_anew_only_when_something_has_changed() {
        let mut map = LanMap::default();
        let networks = Arc::new(networks(&[]));
        let tunnel = BTreeSet::from([net("10.0.0.0/8")]);
        let first = map.make(tunnel.clone(), Vec::new(), &networks);
        assert_eq!(first.len(), 3);
        let same = map.make(tunnel.clone(), Vec::new(), &networks);
        assert!(Arc::ptr_eq(&first, &same));
        let served = vec![net("10.9.0.0/16")];
        assert_eq!(map.make(tunnel.clone(), served.clone(), &networks).len(), 4);
        let other = Arc::default();
        assert_eq!(map.make(tunnel, served, &other).len(), 2);
    }
}
