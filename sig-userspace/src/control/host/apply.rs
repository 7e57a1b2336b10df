//! Plans take effect: in the workers' tables, in the maps of the BPF programs, in the kernel's routes.

use std::{
    collections::{BTreeMap, HashSet},
    net::IpAddr,
    sync::Arc,
    time::Duration,
};

use ipnet::IpNet;
use sig_common::{addr::IsdAs, maps::LanRoute};
use tokio::time::Instant;

use super::{ControlReport, Error, Shared, guard::Guard, lock, status};
use crate::{
    control::{
        Planner,
        config::Tunnel,
        plan::{Plan, SessionKey},
    },
    kernel::routes::Route,
    observe::status::Status,
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
    /// Prefixes that would capture the gateway's own traffic are left out and logged. Routes that the kernel
    /// refuses are logged and tried again.
    ///
    /// # Errors
    ///
    /// If the maps of the BPF programs do not take everything; the rest of the plan is in force then.
    pub async fn apply(&self, plan: Plan) -> Result<(), Error> {
        let shared = &*self.shared;
        let mut outside = shared.outside.lock().await;
        if outside.has_ended {
            return Ok(());
        }
        let plan = outside.guard.admit(plan);
        if outside.is_complete && *lock(&shared.gateway).planner().current() == plan {
            return Ok(());
        }
        self.wait_for_next_hops(&plan).await;
        if let Some(lan_hops) = &shared.lan_hops {
            lan_hops.set_served(plan.served.clone().unwrap_or_else(everything));
        }
        let was_complete = std::mem::take(&mut outside.is_complete);
        let mut filled = Ok(());

        let (routes, lan) = (outside.kernel_routes(&plan), outside.lan_routes(&plan));
        if outside.retain_routes(&routes) {
            // Whoever leaves a dead path must not wait until thousands of routes of others are gone.
            {
                let mut gateway = lock(&shared.gateway);
                let sooner = gateway.planner().current().with_paths_of(&plan);
                gateway.apply(sooner);
            }
            self.set_routes(&outside).await;
        }
        if outside.retain_entries(&plan, &lan) {
            filled = self.fill_maps(&outside);
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
            filled = filled.and(self.fill_maps(&outside));
        }
        if !was_complete || outside.routes != routes {
            outside.routes = routes;
            self.set_routes(&outside).await;
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

    async fn set_routes(&self, outside: &Outside) {
        // Whoever keeps the routes has told what is wrong with which one, and goes on trying.
        let _ = self
            .shared
            .routes
            .set(outside.routes.values().copied().collect())
            .await;
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
    /// See [`Surroundings::home`](crate::control::Surroundings::home).
    home: Vec<IpNet>,
    remotes: Remotes,
    lan: BTreeMap<IpNet, LanRoute>,
    /// By their prefixes.
    routes: BTreeMap<IpNet, Route>,
}

impl Outside {
    /// Nothing does yet.
    pub(super) fn new(guard: Guard, tunnel: Tunnel, home: Vec<IpNet>) -> Self {
        Outside {
            has_ended: false,
            is_complete: false,
            guard,
            tunnel,
            home,
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

    /// The remotes' prefixes go into the tunnel; what is at home here stays, if a remote's prefix is wide
    /// enough to hold it.
    fn lan_routes(&self, plan: &Plan) -> BTreeMap<IpNet, LanRoute> {
        let mut routes: BTreeMap<_, _> = exported(plan)
            .map(|prefix| (prefix, LanRoute::TUNNEL))
            .collect();
        let is_held = |net: &IpNet| {
            let mut wider = std::iter::successors(net.supernet(), IpNet::supernet);
            !routes.contains_key(net) && wider.any(|wide| routes.contains_key(&wide))
        };
        let home = self.home.iter().chain(plan.served.iter().flatten());
        let held: Vec<IpNet> = home.copied().filter(is_held).collect();
        routes.extend(held.into_iter().map(|net| (net, LanRoute::PASS)));
        routes
    }

    fn kernel_routes(&self, plan: &Plan) -> BTreeMap<IpNet, Route> {
        let route = |prefix| Route {
            prefix,
            source_hint: match prefix {
                IpNet::V4(_) => self.tunnel.src_ipv4.map(IpAddr::V4),
                IpNet::V6(_) => self.tunnel.src_ipv6.map(IpAddr::V6),
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

fn everything() -> Vec<IpNet> {
    vec![
        IpNet::new_assert([0; 4].into(), 0),
        IpNet::new_assert([0; 16].into(), 0),
    ]
}
