//! Plans take effect: in the workers' tables, in the maps of the BPF programs, in the kernel's routes.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, HashSet},
    net::IpAddr,
    sync::Arc,
    time::Duration,
};

use ipnet::IpNet;
use sig_common::{addr::IsdAs, maps::LanRoute};
use tokio::{sync::watch, time::Instant};

use super::{ControlReport, Error, Shared, guard::Guard, lock, status};
use crate::{
    control::{
        Planner,
        config::{Config, Tunnel},
        plan::{Plan, SessionKey},
    },
    kernel::{neighbours::Reason, networks::Networks, routes::Route},
    observe::status::Status,
    scion,
};

/// How long sessions wait for the link-layer addresses of new next hops before they are switched to them.
const PATIENCE: Duration = Duration::from_millis(250);

/// For changing the running gateway and looking at it, from any task.
#[derive(Clone)]
pub struct HostHandle {
    shared: Arc<Shared>,
}

impl HostHandle {
    pub(super) fn new(shared: &Arc<Shared>) -> Self {
        HostHandle {
            shared: shared.clone(),
        }
    }

    /// Makes the gateway follow this plan. What is in it and in the one before is not touched; what is new
    /// gets its kernel routes when everything behind them is ready; what goes loses them first.
    ///
    /// Prefixes that would capture traffic of this host are left out and logged, now and whenever its networks
    /// change. Routes that the kernel refuses are logged and tried again. New kernel routes may still be under way
    /// when this returns, so that the next plan does not wait for thousands of them: see [`HostHandle::settle`].
    ///
    /// # Errors
    ///
    /// If the maps of the BPF programs do not take everything; the rest of the plan is in force then.
    pub async fn apply(&self, plan: Plan) -> Result<(), Error> {
        let mut outside = self.shared.outside.lock().await;
        outside.wanted = plan;
        self.put_in_force(&mut outside).await
    }

    /// Keeps the plan in force in step with the networks of this host.
    pub(super) async fn follow_networks(self, mut networks: watch::Receiver<Arc<Networks>>) {
        while networks.changed().await.is_ok() {
            let mut outside = self.shared.outside.lock().await;
            outside.networks = networks.borrow_and_update().clone();
            if let Err(error) = self.put_in_force(&mut outside).await {
                tracing::error!(
                    "a change of this host's networks has not taken effect in full: {error}"
                );
            }
        }
    }

    async fn put_in_force(&self, outside: &mut Outside) -> Result<(), Error> {
        let shared = &*self.shared;
        if outside.has_ended {
            return Ok(());
        }
        let (wanted, networks) = (outside.wanted.clone(), outside.networks.clone());
        let plan = outside.guard.admit(wanted, &networks);
        let home = outside.prefixes.iter().chain(plan.served.iter().flatten());
        let lan = lan_routes(&exported(&plan).collect(), home, &networks);
        let routes = outside.kernel_routes(&plan);
        if outside.is_complete
            && (&outside.lan, &outside.routes) == (&lan, &routes)
            && *lock(&shared.gateway).planner().current() == plan
        {
            return Ok(());
        }
        self.wait_for_next_hops(&plan).await;
        if let Some(lan_hops) = &shared.lan_hops {
            lan_hops.set_served(plan.served.clone().unwrap_or_else(everything));
        }
        let was_complete = std::mem::take(&mut outside.is_complete);
        let mut filled = Ok(());

        if outside.retain_routes(&routes) {
            // Whoever leaves a dead path must not wait until thousands of routes of others are gone.
            {
                let mut gateway = lock(&shared.gateway);
                let sooner = gateway.planner().current().with_paths_of(&plan);
                gateway.apply(sooner);
            }
            // Whoever keeps the routes has told what is wrong with which one, and goes on trying.
            let left = outside.routes.values().copied().collect();
            let _ = shared.routes.set(left).await;
        }
        if outside.retain_entries(&plan, &lan) {
            filled = self.fill_maps(outside);
        }

        let hops = plan.next_hops();
        filled = filled.and(shared.sources.set_next_hops(&hops, &shared.programs));
        let remotes = {
            let mut gateway = lock(&shared.gateway);
            gateway.apply(plan);
            numbers(gateway.planner())
        };
        shared.next_hops.set_targets(hops);

        if !was_complete || (&outside.remotes, &outside.lan) != (&remotes, &lan) {
            (outside.remotes, outside.lan) = (remotes, lan);
            filled = filled.and(self.fill_maps(outside));
        }
        if !was_complete || outside.routes != routes {
            outside.routes = routes;
            let routes = outside.routes.values().copied().collect();
            shared.routes.set_soon(routes).await;
        }
        outside.is_complete = filled.is_ok();
        filled
    }

    /// Tells which border routers the AS has: they may bring frames of remotes. None: whoever likes may.
    ///
    /// # Errors
    ///
    /// If the maps of the BPF programs do not take them.
    pub fn set_routers(&self, routers: impl IntoIterator<Item = IpAddr>) -> Result<(), Error> {
        let routers = routers.into_iter().collect();
        let shared = &*self.shared;
        shared.sources.set_routers(routers, &shared.programs)
    }

    /// These paths without those that begin at a border router on this host, which the data plane cannot reach: it
    /// sends frames out of the underlay interface only.
    ///
    /// # Errors
    ///
    /// If no other path is left: why.
    pub fn reachable(&self, paths: Vec<scion::Path>) -> Result<Vec<scion::Path>, String> {
        let networks = self.shared.networks.borrow().clone();
        let (on_this_host, left): (Vec<_>, Vec<_>) = paths
            .into_iter()
            .partition(|path| networks.has(path.next_hop.ip()));
        for router in on_this_host.iter().map(|path| path.next_hop.ip()) {
            if lock(&self.shared.own_routers).insert(router) {
                tracing::warn!(
                    next_hop = %router,
                    "paths over this border router are not used: {}", Reason::LocalAddress
                );
            }
        }
        match on_this_host.first() {
            Some(path) if left.is_empty() => Err(format!(
                "all paths begin at {}: {}",
                path.next_hop.ip(),
                Reason::LocalAddress
            )),
            _ => Ok(left),
        }
    }

    /// Waits until the kernel has been given the routes of the plan in force.
    pub async fn settle(&self) {
        // Fails only if the gateway has ended.
        let _ = self.shared.routes.settle().await;
    }

    /// The state now.
    #[must_use]
    pub fn status(&self) -> Status {
        status::of(&self.shared)
    }

    /// Makes `source` tell the control plane's part of the status, whenever somebody asks for it.
    pub fn report_control(&self, source: impl Fn() -> ControlReport + Send + Sync + 'static) {
        *lock(&self.shared.control) = Some(Arc::new(source));
    }

    /// Sessions that exist should not lose packets because their new next hops are not known yet.
    async fn wait_for_next_hops(&self, plan: &Plan) {
        let mut targets = plan.next_hops();
        let mut awaited: Vec<IpAddr> = {
            let gateway = lock(&self.shared.gateway);
            let current = gateway.planner().current();
            let before = current.next_hops();
            let known: HashSet<SessionKey> = current.sessions.iter().map(|s| s.key).collect();
            let sessions = plan.sessions.iter();
            let paths = sessions
                .filter(|session| known.contains(&session.key))
                .flat_map(|session| &session.paths);
            let hops = paths.map(|path| path.path.next_hop.ip());
            let new = hops.filter(|hop| !before.contains(hop)).collect();
            targets.extend(before);
            new
        };
        targets.sort_unstable();
        targets.dedup();
        self.shared.next_hops.set_targets(targets);
        let deadline = Instant::now() + PATIENCE;
        loop {
            {
                let gateway = lock(&self.shared.gateway);
                let neighbours = &gateway.surroundings().neighbours;
                awaited.retain(|hop| !neighbours.contains_key(hop));
            }
            if awaited.is_empty() || Instant::now() >= deadline {
                return;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    fn fill_maps(&self, outside: &Outside) -> Result<(), Error> {
        let mut programs = lock(&self.shared.programs);
        let sources = outside.remotes.iter();
        let sources = sources.map(|((isd_as, host), number)| (*isd_as, *host, *number));
        let remotes = programs.set_remotes(sources);
        let lan = programs.set_lan_routes(outside.lan.iter().map(|(net, route)| (*net, *route)));
        Ok(remotes.and(lan)?)
    }
}

/// The numbers of the remotes in the tables.
fn numbers(planner: &Planner) -> Remotes {
    let remotes = planner.current().gateways.iter().zip(planner.remotes());
    let known = remotes.filter_map(|(gateway, remote)| {
        let number = remote.as_ref()?.number;
        Some(((gateway.isd_as, gateway.host), number.into()))
    });
    known.collect()
}

type Remotes = BTreeMap<(IsdAs, IpAddr), u32>;

/// What follows from the plan in force, outside of the workers.
pub(super) struct Outside {
    has_ended: bool,
    /// Whether everything took effect.
    is_complete: bool,
    guard: Guard,
    tunnel: Tunnel,
    /// `[gateway] prefixes`.
    prefixes: Vec<IpNet>,
    networks: Arc<Networks>,
    /// The plan as it was given.
    wanted: Plan,
    remotes: Remotes,
    lan: BTreeMap<IpNet, LanRoute>,
    /// By their prefixes.
    routes: BTreeMap<IpNet, Route>,
}

impl Outside {
    /// Nothing does yet.
    pub(super) fn new(config: &Config, guard: Guard, networks: Arc<Networks>) -> Self {
        Outside {
            has_ended: false,
            is_complete: false,
            guard,
            tunnel: config.tunnel.clone(),
            prefixes: config.gateway.prefixes.clone(),
            networks,
            wanted: Plan::default(),
            remotes: BTreeMap::new(),
            lan: BTreeMap::new(),
            routes: BTreeMap::new(),
        }
    }

    /// Plans have no effect any more.
    pub(super) fn end(&mut self) {
        self.has_ended = true;
    }

    /// Forgets routes that are not among these; whether there were any.
    fn retain_routes(&mut self, wanted: &BTreeMap<IpNet, Route>) -> bool {
        let before = self.routes.len();
        self.routes.retain(|prefix, _| wanted.contains_key(prefix));
        self.routes.len() < before
    }

    /// Forgets remotes that are not in the plan, and prefixes that are not among these; whether there were
    /// any.
    fn retain_entries(&mut self, plan: &Plan, lan: &BTreeMap<IpNet, LanRoute>) -> bool {
        let gateways = plan.gateways.iter();
        let sources: HashSet<_> = gateways
            .map(|gateway| (gateway.isd_as, gateway.host))
            .collect();
        let before = self.remotes.len() + self.lan.len();
        self.remotes.retain(|source, _| sources.contains(source));
        self.lan.retain(|net, _| lan.contains_key(net));
        self.remotes.len() + self.lan.len() < before
    }

    fn kernel_routes(&self, plan: &Plan) -> BTreeMap<IpNet, Route> {
        let configured = [
            self.tunnel.src_ipv4.map(IpAddr::V4),
            self.tunnel.src_ipv6.map(IpAddr::V6),
        ];
        let served = served_addresses(&self.networks, plan.served.as_deref().unwrap_or_default());
        let [v4, v6] = [0, 1].map(|version| configured[version].or(served[version]));
        let route = |prefix| Route {
            prefix,
            source_hint: match prefix {
                IpNet::V4(_) => v4,
                IpNet::V6(_) => v6,
            },
        };
        exported(plan)
            .map(|prefix| (prefix, route(prefix)))
            .collect()
    }
}

/// Prefixes whose packets come to us.
fn exported(plan: &Plan) -> impl Iterator<Item = IpNet> {
    let sites = plan.sites.iter().filter(|site| site.exported);
    sites.flat_map(|site| site.prefixes.iter().map(IpNet::trunc))
}

/// What becomes of packets from the LAN: they go into the tunnel to the prefixes in it, except for what the kernel
/// would route elsewhere: the networks of this host, what is served here, and other routes that are more specific.
fn lan_routes<'a>(
    tunnel: &BTreeSet<IpNet>,
    served: impl Iterator<Item = &'a IpNet>,
    networks: &Networks,
) -> BTreeMap<IpNet, LanRoute> {
    let is_held = |net: &IpNet| {
        let mut wider = std::iter::successors(net.supernet(), IpNet::supernet);
        !tunnel.contains(net) && wider.any(|wide| tunnel.contains(&wide))
    };
    let served = served.map(IpNet::trunc).filter(is_held);
    let kept = tunnel.iter().flat_map(|prefix| {
        // Whether it is preferred to another prefix of the tunnel is asked when that one's turn comes.
        let within = networks.within(prefix);
        within.filter(move |net| net == prefix || !tunnel.contains(net))
    });
    let mut routes: BTreeMap<_, _> = tunnel.iter().map(|net| (*net, LanRoute::TUNNEL)).collect();
    for net in served.chain(kept) {
        routes.insert(net, LanRoute::PASS);
    }
    routes
}

/// An IPv4 and an IPv6 address of this host that are served: remotes accept packets of this host from there, and hosts
/// behind them know whose errors they get. Of several, one in the longest prefix.
fn served_addresses(networks: &Networks, served: &[IpNet]) -> [Option<IpAddr>; 2] {
    let candidates = networks.addresses.values().flatten().filter_map(|own| {
        let address = own.addr();
        let around = served.iter().filter(|net| net.contains(&address));
        Some((around.map(IpNet::prefix_len).max()?, Reverse(address)))
    });
    [IpAddr::is_ipv4, IpAddr::is_ipv6].map(|is_version| {
        let of_version = candidates
            .clone()
            .filter(|(_, Reverse(address))| is_version(address));
        of_version.max().map(|(_, Reverse(address))| address)
    })
}

fn everything() -> Vec<IpNet> {
    vec![
        IpNet::new_assert([0; 4].into(), 0),
        IpNet::new_assert([0; 16].into(), 0),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(text: &str) -> IpNet {
        text.parse().expect("a prefix")
    }

    #[test]
    fn packets_of_this_host_come_from_an_address_that_is_served() {
        let addresses = [
            (1, vec!["10.10.0.2/24", "fe80::1/64"]),
            (2, vec!["10.1.0.9/24", "10.1.0.1/24", "fd00:1::1/64"]),
        ];
        let addresses = addresses.map(|(place, nets)| (place, nets.into_iter().map(net).collect()));
        let networks = Networks {
            addresses: addresses.into(),
            ..Networks::default()
        };
        let found = |served: &[&str]| {
            let served: Vec<IpNet> = served.iter().map(|prefix| net(prefix)).collect();
            served_addresses(&networks, &served).map(|ip| ip.map(|ip| ip.to_string()))
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(
            found(&["10.1.0.0/24", "10.0.0.0/8"]),
            [some("10.1.0.1"), None]
        );
        assert_eq!(
            found(&["10.2.0.0/24", "fd00:1::/48"]),
            [None, some("fd00:1::1")]
        );
        assert_eq!(found(&[]), [None, None]);
    }

    #[test]
    fn the_lan_goes_where_the_kernel_would_route_it() {
        let tunnel = ["10.0.0.0/8", "10.6.0.0/16", "10.7.0.0/16", "fd00::/16"].map(net);
        let own = [
            "10.5.0.0/24",
            "10.5.0.1/32",
            "192.168.1.0/24",
            "fd00:5::/64",
        ];
        let routes = [
            ("10.6.0.0/16", 1000), // the tunnel's metric is lower
            ("10.7.0.0/16", 0),
            ("10.7.1.0/24", 1000),
            ("10.8.0.0/16", 1000),
            ("0.0.0.0/0", 0),
        ];
        let networks = Networks {
            own: own.map(|own| (net(own), "mg0".into())).into(),
            routes: routes.map(|(prefix, metric)| (net(prefix), metric)).into(),
            ..Networks::default()
        };
        let served = ["10.9.0.0/16", "10.6.0.0/16", "172.16.0.0/16"].map(net);
        let found = lan_routes(&tunnel.into(), served.iter(), &networks);
        let passed = found.iter().filter(|(_, route)| **route == LanRoute::PASS);
        let passed: Vec<String> = passed.map(|(net, _)| net.to_string()).collect();
        let expected = [
            "10.5.0.0/24",
            "10.5.0.1/32",
            "10.7.0.0/16",
            "10.7.1.0/24",
            "10.8.0.0/16",
            "10.9.0.0/16",
            "fd00:5::/64",
        ];
        assert_eq!(passed, expected);
        let mut taken = found
            .iter()
            .filter(|(_, route)| **route == LanRoute::TUNNEL);
        assert!(
            taken
                .by_ref()
                .map(|(net, _)| *net)
                .eq([tunnel[0], tunnel[1], tunnel[3]])
        );
    }
}
