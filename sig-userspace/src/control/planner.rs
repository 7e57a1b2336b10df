//! From the plan and the environment to the workers' [`Tables`].

mod flows;
mod remotes;
mod session;
#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::{Duration, Instant},
};

use ipnet::IpNet;
use rand::{SeedableRng, rngs::StdRng};
use sig_common::{
    addr::{HostAddr, IsdAs},
    wire::underlay::Local,
};

use super::{
    config::Config,
    plan::{self, Plan, SessionKey, SessionPath},
};
pub(crate) use remotes::PlannedRemote;
use remotes::Remotes;
#[cfg(feature = "xdp")]
pub(crate) use session::PlannedPath;
pub(crate) use session::PlannedSession;
use sig_core::{
    dataplane::{
        Action, Path, PathError, PathSpec, Routing, Rule, Tables, filter::Filter, icmp::Sources,
        lan::LanTable, lpm::Lpm,
    },
    framing::StreamIds,
    scion::{Endpoints, NextHop},
};

/// Remote gateways that can be known at the same time.
pub(crate) const MAX_REMOTES: usize = 4096;

/// How a next hop is reached at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// MAC address of the underlay interface.
    pub interface_mac: [u8; 6],
    /// MAC address of the next hop, or of the router in front of it.
    pub mac: [u8; 6],
    /// Largest IP packet that the interface takes, bytes.
    pub mtu: usize,
}

/// What is around a gateway, and changes without it: what the tables depend on beside the plan.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    /// Next hops that are reachable. Paths through others are not used.
    pub neighbours: HashMap<IpAddr, Neighbour>,
    /// Networks that are at home here, beside the served prefixes: packets to them do not go into the
    /// tunnel, though a wider prefix of a remote contains them.
    pub home: Vec<IpNet>,
    /// MAC of the tunnel device, then MAC of its peer.
    pub tunnel_macs: [u8; 12],
    /// Where ICMP errors come from.
    pub icmp: Sources,
    /// Where decapsulated packets can be sent without the kernel; nowhere by default.
    pub lan: Arc<LanTable>,
}

/// Makes the tables, and remembers what must outlive them: streams, counters, which flows take which path.
pub struct Planner {
    config: Arc<Config>,
    workers: usize,
    /// Time 0.
    start: Instant,
    plan: Plan,
    generation: u64,
    last_path: u64,
    last_id: u64,
    streams: StreamIds<StdRng>,
    remotes: Remotes,
    sessions: Vec<PlannedSession>,
    served: Option<Arc<Lpm<()>>>,
    routing: Option<Arc<Routing>>,
    home: Vec<IpNet>,
    filter: Arc<Filter>,
}

impl Planner {
    /// A planner for `workers` workers, with the plan that the configuration contains.
    pub fn new(config: Arc<Config>, workers: usize) -> Self {
        let timeout = config.dataplane.limits.stream_timeout.as_nanos();
        let idle = u64::try_from(timeout).unwrap_or(u64::MAX);
        let mut planner = Planner {
            workers,
            start: Instant::now(),
            plan: Plan::default(),
            generation: 0,
            last_path: 0,
            last_id: 0,
            streams: StreamIds::new(StdRng::from_os_rng()),
            remotes: Remotes::new(MAX_REMOTES, idle),
            sessions: Vec::new(),
            served: None,
            routing: None,
            home: Vec::new(),
            filter: Arc::default(),
            config,
        };
        planner.set_plan(0, Plan::from_config(&planner.config));
        planner
    }

    /// The configuration.
    pub fn config(&self) -> &Arc<Config> {
        &self.config
    }

    /// The plan in force.
    pub fn current(&self) -> &Plan {
        &self.plan
    }

    /// What became of the plan's sessions, in their order, as of the last [`Planner::tables`].
    pub fn sessions(&self) -> &[PlannedSession] {
        &self.sessions
    }

    /// What became of the plan's gateways, in their order; `None`: refused, because there are too many.
    pub fn remotes(&self) -> &[Option<PlannedRemote>] {
        self.remotes.planned()
    }

    /// Makes these the rules, from the next [`Planner::tables`] on.
    #[cfg(feature = "xdp")]
    pub(crate) fn set_filter(&mut self, filter: Arc<Filter>) {
        self.filter = filter;
    }

    /// Makes this the plan, from the next [`Planner::tables`] on, at the monotonic time `now` in
    /// nanoseconds. What is in it and was in the one before keeps streams and counters.
    pub fn set_plan(&mut self, now: u64, plan: Plan) {
        self.remotes.set_gateways(now, &plan.gateways, self.workers);
        let old = std::mem::take(&mut self.sessions);
        let mut old: HashMap<SessionKey, PlannedSession> = old
            .into_iter()
            .map(|session| (session.key, session))
            .collect();
        let (last_path, streams) = (&mut self.last_path, &mut self.streams);
        let mut name = || {
            *last_path += 1;
            *last_path
        };
        let mut release = |stream| streams.release(now, stream);
        for session in &plan.sessions {
            let known = old.remove(&session.key);
            let state =
                PlannedSession::follow(known, session, self.workers, &mut name, &mut release);
            self.sessions.push(state);
        }
        let gone = old.values().flat_map(|session| &session.paths);
        gone.for_each(|path| path.streams.iter().copied().for_each(&mut release));
        if plan.sites != self.plan.sites
            || plan.served != self.plan.served
            || plan.sessions.len() != self.plan.sessions.len()
        {
            self.routing = None;
        }
        if plan.served != self.plan.served {
            let table = |served: &Vec<IpNet>| served.iter().map(|prefix| (*prefix, ())).collect();
            self.served = plan.served.as_ref().map(table).map(Arc::new);
        }
        self.plan = plan;
    }

    /// Tables for this environment, at the monotonic time `now` in nanoseconds. A path that stays
    /// usable with the same frame size keeps its streams.
    pub fn tables(&mut self, now: u64, environment: &Environment) -> Tables {
        self.generation += 1;
        let mut tables = Tables::empty(local(&self.config));
        tables.generation = self.generation;
        tables.served = self.served.clone();
        tables.tunnel_macs = environment.tunnel_macs;
        tables.tunnel_mtu = self.config.tunnel.mtu.into();
        tables.icmp = environment.icmp;
        tables.lan = environment.lan.clone();
        tables.filter = self.filter.clone();
        tables.routing = self.routing(&environment.home);
        for (gateway, remote) in self.plan.gateways.iter().zip(self.remotes.planned()) {
            if let Some(remote) = remote {
                let source = (gateway.isd_as, HostAddr::from(gateway.host.to_canonical()));
                let accepted = remote.accepted_table.clone();
                tables.add_remote(remote.number, source, accepted, remote.counters.clone());
                tables.protect_remote(source, gateway.keyring.clone(), gateway.is_strict);
            }
        }
        let at = self.at(now);
        let plan = std::mem::take(&mut self.plan);
        for (place, session) in plan.sessions.iter().enumerate().take(MAX_PLACES) {
            let gateway = plan.gateways.get(session.gateway);
            let mut usable = Vec::with_capacity(session.paths.len());
            for (number, path) in session.paths.iter().enumerate() {
                let room = usable.len() < flows::MAX_PATHS
                    && tables.paths.len() + usable.len() < MAX_PLACES;
                let made = match gateway {
                    None => Err("its remote gateway is not in the plan".into()),
                    Some(_) if !room => Err("there are too many paths".into()),
                    Some(_) if path.expired => Err("it has expired".into()),
                    Some(gateway) => {
                        let neighbour = environment.neighbours.get(&path.path.next_hop.ip());
                        self.path(now, (place, number), gateway, session, path, neighbour)
                    }
                };
                match made {
                    Ok(path) => usable.push(path),
                    Err(problem) => self.give_up(now, (place, number), problem),
                }
            }
            let state = &mut self.sessions[place];
            let names = state.usable();
            let spread = (!names.is_empty()).then(|| state.flows.spread(at, &names));
            // A session without a gateway has no paths either.
            let remote = gateway.map_or((IsdAs(0), HostAddr::SVC_NONE), |gateway| {
                (gateway.isd_as, HostAddr::from(gateway.host))
            });
            tables.add_session(remote, usable, spread.filter(|_| names.len() > 1));
            state.settle();
        }
        self.plan = plan;
        tables
    }

    /// Notices which flows have ended, and spreads those to come evenly over the paths. Whether the
    /// tables have to be made anew for that. To be called about every second.
    pub fn rebalance(&mut self, now: u64) -> bool {
        let at = self.at(now);
        let mut changed = false;
        for session in &mut self.sessions {
            session.settle();
            let names = session.usable();
            if names.len() > 1 {
                changed |= session.flows.even_out(at, &names);
            }
        }
        changed
    }

    fn at(&self, now: u64) -> Instant {
        self.start + Duration::from_nanos(now)
    }

    fn routing(&mut self, home: &[IpNet]) -> Arc<Routing> {
        if let Some(routing) = self.routing.as_ref().filter(|_| self.home == home) {
            return routing.clone();
        }
        let mut routing = Routing::default();
        let sessions = self.plan.sessions.len().min(MAX_PLACES);
        let exported = self.plan.sites.iter().filter(|site| site.exported);
        let exported: Lpm<()> = exported
            .flat_map(|site| site.prefixes.iter().map(|prefix| (*prefix, ())))
            .collect();
        for site in &self.plan.sites {
            // Packets for a remote that is out of reach go where a wider prefix leads, as in the kernel.
            let is_left = |prefix: &&IpNet| site.exported || !exported.holds(**prefix);
            let prefixes: Vec<IpNet> = site.prefixes.iter().filter(is_left).copied().collect();
            let rule = |rule: &plan::Rule| Rule {
                condition: rule.condition.clone(),
                action: match rule.action {
                    Action::Session(session) if session < sessions => {
                        Action::Session(session as u16)
                    }
                    Action::Session(_) | Action::Drop => Action::Drop,
                },
            };
            routing.add_site(&prefixes, site.rules.iter().map(rule).collect());
        }
        let served = self.plan.served.iter().flatten();
        home.iter()
            .chain(served)
            .for_each(|net| routing.add_home(*net));
        self.home = home.to_vec();
        self.routing.insert(Arc::new(routing)).clone()
    }

    fn path(
        &mut self,
        now: u64,
        (session, number): (usize, usize),
        gateway: &plan::Gateway,
        planned: &plan::Session,
        path: &SessionPath,
        neighbour: Option<&Neighbour>,
    ) -> Result<Path, String> {
        let next_hop = path.path.next_hop;
        let neighbour = neighbour.ok_or_else(|| {
            format!(
                "the MAC address of the next hop {} is not resolved",
                next_hop.ip()
            )
        })?;
        let own = &self.config.gateway;
        let spec = PathSpec {
            id: 0,
            ends: Endpoints {
                local_isd_as: own.isd_as,
                local: SocketAddr::new(own.data_addr.ip(), path.source_port),
                remote_isd_as: gateway.isd_as,
                remote: planned.data_addr,
            },
            next_hop: NextHop {
                address: next_hop,
                source_mac: neighbour.interface_mac,
                destination_mac: neighbour.mac,
            },
            path_type: path.path.path_type(),
            path: &path.path.raw,
            session: planned.number,
            path_mtu: path.mtu.into(),
            link_mtu: neighbour.mtu,
            streams: Box::default(),
            counters: self.sessions[session].paths[number].counters.clone(),
            keyring: planned.keyring.clone(),
        };
        let mut made = Path::new(spec).map_err(|error: PathError| error.to_string())?;
        self.open_streams(now, (session, number), made.packer.capacity())?;
        let state = &mut self.sessions[session].paths[number];
        state.problem = None;
        made.id = state.id;
        made.streams = state.streams.clone();
        Ok(made)
    }

    /// Sees to it that the path has streams for frames of this capacity.
    fn open_streams(
        &mut self,
        now: u64,
        (session, number): (usize, usize),
        capacity: usize,
    ) -> Result<(), String> {
        let state = &self.sessions[session].paths[number];
        if state.capacity == capacity && !state.streams.is_empty() {
            return Ok(());
        }
        self.release(now, (session, number));
        let mut streams = Vec::with_capacity(self.workers);
        for worker in 0..self.workers {
            match self.streams.allocate(now, worker as u8, self.workers as u8) {
                Some(stream) => streams.push(stream),
                None => {
                    streams
                        .into_iter()
                        .for_each(|stream| self.streams.release(now, stream));
                    return Err("all stream IDs are in use".into());
                }
            }
        }
        self.last_id += 1;
        let state = &mut self.sessions[session].paths[number];
        (state.streams, state.capacity, state.id) = (streams.into(), capacity, self.last_id);
        Ok(())
    }

    fn give_up(&mut self, now: u64, path: (usize, usize), problem: String) {
        self.release(now, path);
        self.sessions[path.0].paths[path.1].problem = Some(problem);
    }

    fn release(&mut self, now: u64, (session, number): (usize, usize)) {
        for stream in std::mem::take(&mut self.sessions[session].paths[number].streams) {
            self.streams.release(now, stream);
        }
    }
}

/// Our data address as frames carry it. Frames that the border router delivers to the end host port 30041, because the
/// data port lies outside of the AS's dispatched range, are ours too.
pub(super) fn local(config: &Config) -> Local {
    let gateway = &config.gateway;
    Local::new(
        gateway.isd_as,
        gateway.data_addr.ip(),
        gateway.data_addr.port(),
        true,
    )
}

/// Sessions and paths have numbers of 16 bits.
const MAX_PLACES: usize = 1 << 16;

/// One for each worker, and one for the XDP programs.
fn per_worker<T: Default>(workers: usize) -> Arc<[T]> {
    (0..=workers).map(|_| T::default()).collect()
}
