//! Remote ASes, their gateways and the sessions with them: from what was asked and answered to the
//! [`Plan`] of the data plane.
//!
//! Pure: [`Remotes::handle`] takes what has happened, [`Remotes::poll`] tells what is to be done now, and
//! [`Remotes::deadline`] when to poll again at the latest. Nothing here sends, receives or asks for the time.
//!
//! ```text
//! traffic policy ──> RemoteAs ── paths (Monitor) ──────────────> Selector ──┐
//!                       └── gateways (discovery)                            ▼
//!                              ├── prefixes (exchange, vetted) ──> sites ──> Plan
//!                              └── sessions, one per policy (probed) ───────┘
//! ```

mod health;
mod keys;
mod owners;
mod plan;
mod poll;
mod protection;
mod quality;
mod remote_as;
mod sites;
mod status;
mod vet;

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, HashMap},
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use ipnet::IpNet;
use sig_common::addr::IsdAs;

use super::{
    config::{DefaultRoute, Protection, ProtectionMode},
    log_limit::LogLimit,
    plan::{Plan, SessionKey},
};
use remote_as::RemoteAs;
use sig_core::{
    paths::{Failure, Revocations},
    peer::{Announced, GatewayAddresses, PeerLimits},
    policy::{routing::RoutingPolicy, traffic::TrafficPolicy},
    protection::{Greeting, Hello, Offer, ReceiveKey, Reply},
    scion::{Interface, Path},
};
#[cfg(feature = "xdp")]
pub(crate) use status::Snapshot;
use vet::Own;

/// How often discovery and prefix exchange ask, as the reference does.
const RPC_INTERVAL: Duration = Duration::from_secs(5);
/// Learned prefixes are forgotten without a successful answer for this long, as in the reference.
const PREFIX_EXPIRY: Duration = Duration::from_secs(30);
/// How often sessions look at their paths, even if nothing is known to have changed.
const SELECT_INTERVAL: Duration = Duration::from_millis(250);

/// How often the same failure is logged, and told to the daemon, whose memory of it lasts for 10 s.
const DOWN_INTERVAL: Duration = Duration::from_secs(5);
/// Failures remembered for that; more are neither logged nor told.
const DOWN_LIMIT: usize = 64;

/// A moment, on both clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    /// For intervals.
    pub monotonic: Instant,
    /// For the expiry of paths.
    pub wall: SystemTime,
}

impl Now {
    /// This moment.
    #[must_use]
    pub(crate) fn read() -> Self {
        Now {
            monotonic: Instant::now(),
            wall: SystemTime::now(),
        }
    }
}

/// What does not change while the gateway runs.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// The own AS.
    pub isd_as: IsdAs,
    /// The own data address.
    pub data_addr: SocketAddr,
    /// Other addresses that must be reached past the tunnel: those of the control plane, here and at the daemon.
    pub control_addrs: Vec<IpAddr>,
    /// Prefixes served beside the advertised ones.
    pub served: Vec<IpNet>,
    /// Whether default routes are learned.
    pub default_route: DefaultRoute,
    /// How paths are probed.
    pub paths: sig_core::paths::Settings,
    /// How often the daemon is asked for paths.
    pub path_interval: Duration,
    /// How long a better path or gateway must have been better before it takes over.
    pub switch_delay: Duration,
    /// What peers can make us keep.
    pub limits: PeerLimits,
    /// Which frames are protected.
    pub protection: Protection,
    /// Workers, which number protected frames by themselves.
    pub workers: usize,
}

/// What has happened.
#[derive(Debug)]
pub(crate) enum Event {
    /// The daemon answered, or did not.
    Paths {
        /// The destination.
        isd_as: IsdAs,
        /// The paths, or why there are none.
        result: Result<Vec<Path>, String>,
    },
    /// A control service answered, or did not.
    Gateways {
        /// Its AS.
        isd_as: IsdAs,
        /// The gateways, or why not.
        result: Result<Vec<GatewayAddresses>, String>,
    },
    /// A gateway answered, or did not.
    Prefixes {
        /// Its AS.
        isd_as: IsdAs,
        /// Its control address.
        control: SocketAddr,
        /// The prefixes, or why not.
        result: Result<Announced, String>,
        /// What it said about the protection of frames.
        greeting: Option<Greeting>,
    },
    /// A border router answered a path probe.
    PathReply {
        /// Its AS.
        isd_as: IsdAs,
        /// The probe's sequence number.
        sequence: u16,
    },
    /// A path probe could not be sent.
    SendFailed {
        /// Where it was going.
        isd_as: IsdAs,
    },
    /// A gateway answered a session probe.
    SessionReply {
        /// Its AS.
        isd_as: IsdAs,
        /// Its host address.
        host: IpAddr,
        /// The session number in the answer.
        session: u32,
    },
    /// A border router reports that something on a path is down (SCMP).
    Down(Failure),
    /// A border router reports a packet as too big for the next link (SCMP).
    TooBig {
        /// Where the packet was going.
        isd_as: IsdAs,
        /// The path header of the packet, as far as it had come.
        path: Vec<u8>,
        /// Largest SCION packet in bytes.
        mtu: u16,
    },
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Action {
    /// Ask the daemon for paths to the AS.
    AskPaths(IsdAs),
    /// Ask the control service of the AS for its gateways, over this path.
    AskGateways {
        /// The AS.
        isd_as: IsdAs,
        /// The way.
        path: Path,
    },
    /// Ask a gateway for its prefixes, over this path.
    AskPrefixes {
        /// Its AS.
        isd_as: IsdAs,
        /// Its control address.
        control: SocketAddr,
        /// The way.
        path: Path,
        /// The name of the list that we know.
        etag: String,
        /// What to say about the protection of frames.
        hello: Option<Hello>,
    },
    /// Send an SCMP traceroute request to the last router of the path.
    ProbePath {
        /// The destination AS.
        isd_as: IsdAs,
        /// The way.
        path: Path,
        /// For the answer to be told from others.
        sequence: u16,
    },
    /// Send a session probe.
    ProbeSession {
        /// The AS of the gateway.
        isd_as: IsdAs,
        /// Its probe address.
        address: SocketAddr,
        /// Session number.
        session: u8,
        /// The way.
        path: Path,
    },
    /// Tell the daemon that an interface is down.
    ReportToDaemon(Interface),
    /// Give the data plane another plan.
    Apply(Plan),
}

/// All remote ASes.
#[derive(Debug)]
pub(crate) struct Remotes {
    settings: Settings,
    routing: RoutingPolicy,
    own: Own,
    /// Where frames and questions go: see [`Plan::must_reach`].
    must_reach: Vec<IpAddr>,
    ases: BTreeMap<IsdAs, RemoteAs>,
    revocations: Revocations,
    next_session: u64,
    chains: plan::Chains,
    owners: owners::Owners,
    waiting: owners::Waiting,
    /// Per site of the last plan, its classes.
    site_chains: Vec<Vec<plan::ChainKey>>,
    /// The last one handed out.
    plan: Plan,
    /// Whether the plan may have to change.
    stale: bool,
    select_at: Instant,
    /// When the next session, or AS, has been up for long enough to take over from a worse one.
    settled_at: Option<Instant>,
    /// Failures that the daemon was told of, and when.
    reported_down: HashMap<Failure, Instant>,
    refused: BTreeMap<(IsdAs, &'static str), u64>,
    refusals: LogLimit,
    outbox: Vec<Action>,
}

impl Remotes {
    /// Nobody is known yet.
    #[must_use]
    pub(crate) fn new(now: Now, settings: Settings) -> Self {
        let mut remotes = Remotes {
            routing: RoutingPolicy::default(),
            own: Own {
                served: Vec::new(),
                default_route: settings.default_route,
            },
            must_reach: Vec::new(),
            ases: BTreeMap::new(),
            revocations: Revocations::default(),
            next_session: 1,
            chains: plan::Chains::default(),
            owners: owners::Owners::default(),
            waiting: owners::Waiting::default(),
            site_chains: Vec::new(),
            plan: Plan::default(),
            stale: true,
            select_at: now.monotonic,
            settled_at: None,
            reported_down: HashMap::new(),
            refused: BTreeMap::new(),
            refusals: LogLimit::new(vet::LINES, now.monotonic),
            outbox: Vec::new(),
            settings,
        };
        remotes.refresh_local();
        remotes.refresh_routers();
        remotes
    }

    /// Takes over what operators want, as a difference: what stays the same is not touched.
    pub(crate) fn set_policies(
        &mut self,
        now: Now,
        traffic: &TrafficPolicy,
        routing: RoutingPolicy,
    ) {
        self.routing = routing;
        self.ases
            .retain(|isd_as, _| traffic.ases.contains_key(isd_as));
        for (isd_as, policy) in &traffic.ases {
            if *isd_as == self.settings.isd_as {
                tracing::warn!(%isd_as, "ignoring the entry of the local AS in the traffic policy");
                continue;
            }
            self.ases
                .entry(*isd_as)
                .or_insert_with(|| RemoteAs::new(now, *isd_as, &self.settings))
                .set_policy(now, policy);
        }
        self.refresh_local();
        self.refresh_routers();
        self.vet_all(now);
        self.select_at = now.monotonic;
        self.stale = true;
    }

    /// Takes note of what has happened.
    pub(crate) fn handle(&mut self, now: Now, event: Event) {
        match event {
            Event::Paths { isd_as, result } => {
                let Some(remote) = self.ases.get_mut(&isd_as) else {
                    return;
                };
                remote.handle_paths(now, result);
                self.refresh_routers();
            }
            Event::Gateways { isd_as, result } => {
                let Some(remote) = self.ases.get_mut(&isd_as) else {
                    return;
                };
                let before = remote.gateway_changes;
                remote.handle_gateways(now, result);
                self.stale |= remote.gateway_changes != before;
            }
            Event::Prefixes {
                isd_as,
                control,
                result,
                greeting,
            } => {
                let Some(remote) = self.ases.get_mut(&isd_as) else {
                    return;
                };
                let (result, changed) = remote.handle_greeting(now, control, result, greeting);
                self.stale |= changed;
                let outcome = remote.handle_prefixes(now, control, result, &self.settings.limits);
                self.refuse(isd_as, "malformed_prefix", outcome.malformed);
                self.refuse(isd_as, "prefixes_over_limit", outcome.over_limit);
                if outcome.changed {
                    self.vet(now, isd_as);
                }
            }
            Event::PathReply { isd_as, sequence } => match self.ases.get_mut(&isd_as) {
                Some(remote) => {
                    remote.monitor.handle_reply(now.monotonic, sequence, isd_as);
                }
                None => self.refuse(isd_as, "unexpected_path_reply", 1),
            },
            Event::SendFailed { isd_as } => {
                if let Some(remote) = self.ases.get_mut(&isd_as) {
                    remote.monitor.probe_not_sent();
                }
            }
            Event::SessionReply {
                isd_as,
                host,
                session,
            } => {
                let remote = self.ases.get_mut(&isd_as);
                let known =
                    remote.and_then(|remote| remote.handle_session_reply(now, host, session));
                match known {
                    Some(came_up) => self.stale |= came_up,
                    None => self.refuse(isd_as, "unexpected_session_reply", 1),
                }
            }
            Event::Down(failure) => self.handle_down(now, failure),
            Event::TooBig { isd_as, path, mtu } => {
                if let Some(remote) = self.ases.get_mut(&isd_as) {
                    remote.handle_too_big(now, &path, mtu);
                    self.select_at = now.monotonic;
                }
            }
        }
    }

    /// Whether frames to and from an AS may be protected.
    pub(crate) fn protects(&self, isd_as: IsdAs) -> bool {
        let remote = self.ases.get(&isd_as);
        remote.is_some_and(|remote| remote.protection.mode != ProtectionMode::Off)
    }

    /// What to answer a gateway that asks us for our prefixes about the protection of frames; `None`: nothing. A key for frames
    /// from it is made with `make`, and taken from then on. Whether there is something new to ask.
    pub(crate) fn greet(
        &mut self,
        now: Now,
        (isd_as, host): (IsdAs, IpAddr),
        offer: Option<&Offer>,
        make: &mut dyn FnMut() -> Option<Arc<ReceiveKey>>,
    ) -> (Option<Reply>, bool) {
        match self.ases.get_mut(&isd_as) {
            Some(remote) => remote.handle_offer(now, host, offer, make),
            None => (None, false),
        }
    }

    /// Whoever can send us packets can claim that something is down, so only what lies on a path under
    /// observation is believed, and no longer than probes say otherwise.
    fn handle_down(&mut self, now: Now, failure: Failure) {
        let monitors = self.ases.values().map(|remote| &remote.monitor);
        if !self.revocations.report(now.monotonic, failure, monitors) {
            self.refuse(IsdAs(0), "unknown_interface_down", 1);
            return;
        }
        // Every packet into a dead link brings another report.
        let is_recent = |at: &Instant| now.monotonic.saturating_duration_since(*at) < DOWN_INTERVAL;
        self.reported_down.retain(|_, at| is_recent(at));
        if self.reported_down.contains_key(&failure) || self.reported_down.len() >= DOWN_LIMIT {
            return;
        }
        self.reported_down.insert(failure, now.monotonic);
        tracing::info!(%failure, "a border router reported a failure");
        // The daemon knows interfaces only: of two, the one that packets should leave through.
        let interface = match failure {
            Failure::Interface(interface) => interface,
            Failure::Connectivity { isd_as, egress, .. } => Interface { isd_as, id: egress },
        };
        self.outbox.push(Action::ReportToDaemon(interface));
        self.select_at = now.monotonic;
    }

    /// What is to be done now.
    pub(crate) fn poll(&mut self, now: Now) -> Vec<Action> {
        let mut actions = std::mem::take(&mut self.outbox);
        let select = self.select_at <= now.monotonic;
        if select {
            self.select_at = now.monotonic + SELECT_INTERVAL;
        }
        let mut forgotten = Vec::new();
        for (isd_as, remote) in &mut self.ases {
            if remote.expire(now) {
                forgotten.push(*isd_as);
            }
            // Not later, lest a dead path is used until then.
            if remote.monitor.take_news(now.monotonic) || select {
                self.stale |= remote.select(now, &self.revocations);
            }
            if select {
                self.stale |= remote.look_at_keys(now);
            }
            self.stale |= remote.poll(now, &mut actions);
        }
        for isd_as in forgotten {
            self.vet(now, isd_as);
        }
        self.stale |= self.settled_at.is_some_and(|at| at <= now.monotonic);
        if self.stale {
            self.stale = false;
            let plan = self.make_plan(now);
            self.settled_at = self.next_settled(now);
            if plan != self.plan {
                self.plan = plan.clone();
                actions.push(Action::Apply(plan));
            }
        }
        actions
    }

    /// When [`Remotes::poll`] has something to do at the latest.
    #[must_use]
    pub(crate) fn deadline(&self, now: Now) -> Instant {
        let ases = self.ases.values().filter_map(|remote| remote.deadline(now));
        ases.chain(self.settled_at)
            .min()
            .map_or(self.select_at, |at| at.min(self.select_at))
    }

    fn next_settled(&self, now: Now) -> Option<Instant> {
        let gateways = self.ases.values().flat_map(|remote| &remote.gateways);
        let sessions = gateways.flat_map(|gateway| &gateway.sessions);
        let up = sessions.filter_map(|session| session.health.steady_since());
        up.chain(self.waiting.values().copied())
            .filter_map(|since| since.checked_add(self.settings.switch_delay))
            .filter(|at| *at > now.monotonic)
            .min()
    }

    /// The last plan handed out.
    #[must_use]
    pub(crate) fn current_plan(&self) -> &Plan {
        &self.plan
    }

    fn refuse(&mut self, isd_as: IsdAs, reason: &'static str, count: usize) {
        // Strangers can claim any AS: they share one entry.
        let isd_as = if self.ases.contains_key(&isd_as) {
            isd_as
        } else {
            IsdAs(0)
        };
        if count > 0 {
            let counter = self.refused.entry((isd_as, reason)).or_default();
            if *counter == 0 {
                tracing::warn!(%isd_as, reason, "rejected input from a peer; further cases are counted but not logged");
            }
            *counter += count as u64;
        }
    }

    /// Collects what must be reached past the tunnel.
    fn refresh_routers(&mut self) {
        let routers = self.ases.values().flat_map(RemoteAs::next_hops);
        let own = self.settings.control_addrs.iter().copied();
        let own = own.chain([self.settings.data_addr.ip()]);
        let mut must_reach: Vec<IpAddr> = routers.chain(own).collect();
        must_reach.sort_unstable();
        must_reach.dedup();
        self.stale |= must_reach != self.must_reach;
        self.must_reach = must_reach;
    }

    /// Collects what is served here.
    fn refresh_local(&mut self) {
        let mut served = self.settings.served.clone();
        served.extend(self.routing.all_advertised(self.settings.isd_as));
        served.sort_unstable();
        served.dedup();
        self.own.served = served;
    }

    fn vet_all(&mut self, now: Now) {
        let ases: Vec<IsdAs> = self.ases.keys().copied().collect();
        for isd_as in ases {
            self.vet(now, isd_as);
        }
    }

    /// Decides anew which of the prefixes that an AS announces are believed.
    fn vet(&mut self, now: Now, isd_as: IsdAs) {
        let others: Vec<IpNet> = self
            .ases
            .iter()
            .filter(|(other, _)| **other != isd_as)
            .flat_map(|(_, remote)| remote.static_prefixes.iter().copied())
            .collect();
        let Some(remote) = self.ases.get_mut(&isd_as) else {
            return;
        };
        let refused = remote.vet(self.settings.isd_as, &self.routing, &self.own, &others);
        self.stale = true;
        for (prefix, refusal) in refused {
            self.refused
                .entry((isd_as, refusal.word()))
                .and_modify(|count| *count += 1)
                .or_insert(1);
            let said = self.refusals.next(now.monotonic);
            vet::log(said, isd_as, prefix, refusal);
        }
    }

    fn new_session_key(next: &mut u64) -> SessionKey {
        *next += 1;
        SessionKey(*next - 1)
    }
}
