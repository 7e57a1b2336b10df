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

use super::{
    ControlReport, Error, Shared,
    guard::Guard,
    lan_map::{LanMap, LanRoutes},
    lock, status,
};
use crate::control::{
    Planner,
    config::{Config, Tunnel},
    plan::{Plan, SessionKey},
};
use sig_core::{scion, status::Status};
use sig_linux::{neighbours::Reason, networks::Networks, routes::Route};

/// How long sessions wait for the link-layer addresses of new next hops before they are switched to them.
const PATIENCE: Duration = Duration::from_millis(250);
/// Between attempts to make a change of the host's networks take effect.
const RETRY: Duration = Duration::from_secs(5);

/// For changing the running gateway and looking at it, from any task.
#[derive(Clone)]
pub struct HostHandle {
    pub(super) shared: Arc<Shared>,
}

impl HostHandle {
    pub(super) fn new(shared: &Arc<Shared>) -> Self {
        HostHandle {
            shared: shared.clone(),
        }
    }

    /// Makes the gateway follow this plan. What is in it and in the one before is not touched; what is new
    /// gets its kernel routes when everything behind them is ready; what goes loses them first, unless other prefixes
    /// take its place.
    ///
    /// Prefixes that would capture traffic of this host are left out and logged, now and whenever its networks
    /// change. Routes that the kernel refuses are logged and tried again. New kernel routes may still be under way
    /// when this returns, so that the next plan does not wait for thousands of them: see [`HostHandle::settle`].
    ///
    /// # Errors
    ///
    /// If the maps of the BPF programs do not take everything; the rest of the plan is in force then.
    pub async fn apply(&self, plan: Plan) -> Result<(), Error> {
        let mut applied = self.shared.applied.lock().await;
        applied.wanted = plan;
        self.put_in_force(&mut applied).await
    }

    /// Takes the kernel routes into the tunnel away, or brings them back. Packets that come are carried all the same.
    ///
    /// # Errors
    ///
    /// As [`HostHandle::apply`].
    pub(crate) async fn set_draining(&self, draining: bool) -> Result<(), Error> {
        {
            let mut applied = self.shared.applied.lock().await;
            applied.draining = draining;
            self.put_in_force(&mut applied).await?;
        }
        self.settle().await;
        Ok(())
    }

    /// Keeps the plan in force in step with the networks of this host.
    pub(super) async fn follow_networks(self, mut networks: watch::Receiver<Arc<Networks>>) {
        let mut again = false;
        loop {
            tokio::select! {
                changed = networks.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(RETRY), if again => {}
            }
            let mut applied = self.shared.applied.lock().await;
            applied.networks = networks.borrow_and_update().clone();
            let result = self.put_in_force(&mut applied).await;
            again = result.is_err();
            if let Err(error) = result {
                tracing::error!(
                    "applying a change of this host's networks failed, retrying: {error}"
                );
            }
        }
    }

    /// Keeps packets from the LAN to SIDs behind the gateway out of the tunnel.
    pub(super) async fn protect_locators(&self) -> Result<(), Error> {
        let locators = lock(&self.shared.chains).locators();
        let mut applied = self.shared.applied.lock().await;
        if applied.locators == locators {
            return Ok(());
        }
        applied.locators = locators;
        self.put_in_force(&mut applied).await
    }

    async fn put_in_force(&self, applied: &mut Applied) -> Result<(), Error> {
        let shared = &*self.shared;
        if applied.has_ended {
            return Ok(());
        }
        let (wanted, networks) = (applied.wanted.clone(), applied.networks.clone());
        let plan = applied.guard.admit(wanted, &networks);
        let lan = applied.lan_routes(&plan);
        let routes = applied.kernel_routes(&plan);
        if applied.is_complete
            && (&applied.lan, &applied.routes) == (&lan, &routes)
            && *lock(&shared.engine).planner().current() == plan
        {
            return Ok(());
        }
        self.wait_for_next_hops(&plan).await;
        if let Some(lan_hops) = &shared.lan_hops {
            lan_hops.set_served(plan.served.clone().unwrap_or_else(everything));
        }
        let was_complete = std::mem::take(&mut applied.is_complete);
        let mut filled = Ok(());

        if applied.retain_routes(&routes) {
            // Whoever leaves a dead path must not wait until thousands of routes of others are gone.
            {
                let mut engine = lock(&shared.engine);
                let sooner = engine.planner().current().with_paths_of(&plan);
                engine.set_plan(sooner);
            }
            // Whoever keeps the routes has told what is wrong with which one, and goes on trying.
            let left = applied.routes.values().copied().collect();
            let _ = shared.routes.set(left).await;
        }
        if applied.retain_remotes(&plan) {
            filled = self.fill_remotes(applied);
        }
        if applied.retain_lan(&lan) {
            filled = filled.and(self.fill_lan(applied));
        }

        let hops = plan.next_hops();
        filled = filled.and(shared.sources.set_next_hops(&hops, &shared.programs));
        let remotes = {
            let mut engine = lock(&shared.engine);
            engine.set_plan(plan);
            numbers(engine.planner())
        };
        shared.next_hops.set_targets(hops);

        if !was_complete || applied.remotes != remotes {
            applied.remotes = remotes;
            filled = filled.and(self.fill_remotes(applied));
        }
        if !was_complete || applied.lan != lan {
            applied.lan = lan;
            filled = filled.and(self.fill_lan(applied));
        }
        if !was_complete || applied.routes != routes {
            applied.routes = routes;
            let routes = applied.routes.values().copied().collect();
            shared.routes.set_soon(routes).await;
        }
        applied.is_complete = filled.is_ok();
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

    /// These paths without those that begin at a border router on this host, which AF_XDP cannot reach: it sends frames
    /// out of the underlay interface only.
    ///
    /// # Errors
    ///
    /// If no other path is left: why.
    pub fn reachable(&self, paths: Vec<scion::Path>) -> Result<Vec<scion::Path>, String> {
        if self.shared.choice.has_sockets {
            return Ok(paths);
        }
        let networks = self.shared.networks.borrow().clone();
        let (on_this_host, left): (Vec<_>, Vec<_>) = paths
            .into_iter()
            .partition(|path| networks.has(path.next_hop.ip()));
        for router in on_this_host.iter().map(|path| path.next_hop.ip()) {
            if lock(&self.shared.own_routers).insert(router) {
                tracing::warn!(
                    next_hop = %router,
                    "not using paths through this border router: {}", Reason::LocalAddress
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

    /// Makes these the LAN interfaces: those that are there are taken into service, the others once they are. Returns what has changed, one
    /// line each, and what keeps interfaces that are there out of service, which is tried again.
    ///
    /// # Errors
    ///
    /// If the kernel does not tell which interfaces there are, or a part of the gateway has ended.
    pub(crate) async fn set_lan(
        &self,
        names: &[String],
    ) -> Result<(Vec<String>, Vec<String>), Error> {
        let outcome = self.shared.set_lans(names).await?;
        lock(&self.shared.beside).lan = names.to_vec();
        Ok((outcome.changes, outcome.errors))
    }

    /// Waits until the kernel has been given the routes of the plan in force.
    pub async fn settle(&self) {
        // Fails only if the gateway has ended.
        let _ = self.shared.routes.settle().await;
    }

    /// How often each worker has looked at its ports. One that lives does so at least every tenth of a second.
    #[must_use]
    pub(crate) fn rounds(&self) -> Vec<u64> {
        let engine = lock(&self.shared.engine);
        let counters = engine.counters().iter();
        counters.map(|counters| counters.rounds.get()).collect()
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
            let engine = lock(&self.shared.engine);
            let current = engine.planner().current();
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
                let engine = lock(&self.shared.engine);
                let neighbours = &engine.environment().neighbours;
                awaited.retain(|hop| !neighbours.contains_key(hop));
            }
            if awaited.is_empty() || Instant::now() >= deadline {
                return;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    fn fill_remotes(&self, applied: &Applied) -> Result<(), Error> {
        let sources = applied.remotes.iter();
        let sources = sources.map(|((isd_as, host), number)| (*isd_as, *host, *number));
        if let Some(programs) = lock(&self.shared.programs).as_mut() {
            programs.set_remotes(sources)?;
        }
        Ok(())
    }

    fn fill_lan(&self, applied: &Applied) -> Result<(), Error> {
        let routes = applied.lan.iter().map(|(net, route)| (*net, *route));
        if let Some(programs) = lock(&self.shared.programs).as_mut() {
            programs.set_lan_routes(routes)?;
        }
        Ok(())
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
pub(super) struct Applied {
    has_ended: bool,
    /// Whether everything took effect.
    is_complete: bool,
    /// There are no kernel routes.
    draining: bool,
    guard: Guard,
    tunnel: Tunnel,
    /// `[gateway] prefixes`.
    prefixes: Vec<IpNet>,
    /// Prefixes of SIDs behind the gateway.
    locators: Vec<IpNet>,
    networks: Arc<Networks>,
    /// The plan as it was given.
    wanted: Plan,
    remotes: Remotes,
    lan_map: LanMap,
    /// As it is in the map of the programs.
    lan: Arc<LanRoutes>,
    /// By their prefixes.
    routes: BTreeMap<IpNet, Route>,
}

impl Applied {
    /// Nothing does yet.
    pub(super) fn new(config: &Config, guard: Guard, networks: Arc<Networks>) -> Self {
        Applied {
            has_ended: false,
            is_complete: false,
            draining: false,
            guard,
            tunnel: config.tunnel.clone(),
            prefixes: config.gateway.prefixes.clone(),
            locators: Vec::new(),
            networks,
            wanted: Plan::default(),
            remotes: BTreeMap::new(),
            lan_map: LanMap::default(),
            lan: Arc::default(),
            routes: BTreeMap::new(),
        }
    }

    /// What LAN programs and kernel do with packets from the LAN to an address: the longest prefix, and what it says.
    pub(super) fn lan_route(&self, destination: IpAddr) -> Option<(IpNet, LanRoute)> {
        let all = IpNet::from(destination);
        let wider = std::iter::successors(Some(all), IpNet::supernet);
        wider
            .map(|net| net.trunc())
            .find_map(|net| Some((net, *self.lan.get(&net)?)))
    }

    /// The prefix of a remote that contains an address and that the guard left out.
    pub(super) fn excluded(&self, plan: &Plan, destination: IpAddr) -> Option<IpNet> {
        let is_there = |prefix: &IpNet| {
            let mut sites = plan.sites.iter();
            sites.any(|site| site.prefixes.contains(prefix))
        };
        let wanted = self.wanted.sites.iter().flat_map(|site| &site.prefixes);
        wanted
            .filter(|prefix| prefix.contains(&destination) && !is_there(prefix))
            .max_by_key(|prefix| prefix.prefix_len())
            .copied()
    }

    /// Plans have no effect any more.
    pub(super) fn end(&mut self) {
        self.has_ended = true;
    }

    /// Forgets routes that just go when these are wanted; whether there were any.
    fn retain_routes(&mut self, wanted: &BTreeMap<IpNet, Route>) -> bool {
        let gone = gone(&self.routes, wanted);
        self.routes.retain(|prefix, _| !gone.contains(prefix));
        !gone.is_empty()
    }

    /// Forgets remotes that are not in the plan; whether there were any.
    fn retain_remotes(&mut self, plan: &Plan) -> bool {
        let gateways = plan.gateways.iter();
        let sources: HashSet<_> = gateways
            .map(|gateway| (gateway.isd_as, gateway.host))
            .collect();
        let before = self.remotes.len();
        self.remotes.retain(|source, _| sources.contains(source));
        self.remotes.len() < before
    }

    /// Forgets entries that just go when these are wanted; whether there were any.
    fn retain_lan(&mut self, wanted: &Arc<LanRoutes>) -> bool {
        if Arc::ptr_eq(&self.lan, wanted) {
            return false;
        }
        let gone = gone(&self.lan, wanted);
        if !gone.is_empty() {
            Arc::make_mut(&mut self.lan).retain(|net, _| !gone.contains(net));
        }
        !gone.is_empty()
    }

    fn lan_routes(&mut self, plan: &Plan) -> Arc<LanRoutes> {
        let served = self.prefixes.iter().chain(plan.served.iter().flatten());
        let served = served.chain(&self.locators).copied().collect();
        let tunnel = exported(plan).collect();
        self.lan_map.make(tunnel, served, &self.networks)
    }

    fn kernel_routes(&self, plan: &Plan) -> BTreeMap<IpNet, Route> {
        if self.draining {
            return BTreeMap::new();
        }
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

/// What is no longer wanted and has no successor. A prefix that overlaps with a new one stays until that is there: it
/// may be another form of the same announcement, whose packets must find no gap.
fn gone<V>(now: &BTreeMap<IpNet, V>, wanted: &BTreeMap<IpNet, V>) -> HashSet<IpNet> {
    let new = wanted.keys().filter(|net| !now.contains_key(net));
    let new: BTreeSet<IpNet> = new.copied().collect();
    let has_successor = |net: &IpNet| {
        let last = IpNet::new_assert(net.broadcast(), net.max_prefix_len());
        let mut wider = std::iter::successors(Some(*net), IpNet::supernet);
        new.range(*net..=last).next().is_some() || wider.any(|wide| new.contains(&wide))
    };
    let unwanted = now.keys().filter(|net| !wanted.contains_key(net));
    unwanted
        .filter(|net| !has_successor(net))
        .copied()
        .collect()
}

/// Prefixes whose packets come to us.
fn exported(plan: &Plan) -> impl Iterator<Item = IpNet> {
    let sites = plan.sites.iter().filter(|site| site.exported);
    sites.flat_map(|site| site.prefixes.iter().map(IpNet::trunc))
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
    fn what_another_prefix_replaces_goes_last() {
        let nets = |texts: &[&str]| -> BTreeMap<IpNet, ()> {
            texts.iter().map(|text| (net(text), ())).collect()
        };
        let gone = |now: &[&str], wanted: &[&str]| -> Vec<String> {
            let mut gone: Vec<IpNet> = gone(&nets(now), &nets(wanted)).into_iter().collect();
            gone.sort_unstable();
            gone.iter().map(IpNet::to_string).collect()
        };
        let halves = ["10.0.0.0/24", "10.0.1.0/24", "fd00::/64"];
        let joined = ["10.0.0.0/23"];
        assert_eq!(gone(&halves, &joined), ["fd00::/64"]);
        assert_eq!(gone(&joined, &halves), [""; 0]);
        assert_eq!(gone(&joined, &halves[1..]), [""; 0]);
        assert_eq!(gone(&halves, &halves[2..]), halves[..2]);
        // What stays takes no part.
        let wide = ["0.0.0.0/0", "10.0.0.0/24"];
        assert_eq!(gone(&wide, &["0.0.0.0/0", "10.0.1.0/24"]), ["10.0.0.0/24"]);
    }
}
