//! One remote AS: its paths, gateways and sessions.

use std::{
    collections::{BTreeSet, HashSet},
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

use ipnet::IpNet;
use sig_common::addr::IsdAs;

use super::{
    Action, Now, PREFIX_EXPIRY, RPC_INTERVAL, Settings,
    health::Health,
    poll::Poll,
    protection::Protection,
    quality::Excluded,
    vet::{Own, Refusal},
};
use crate::control::{config::RemoteProtection, plan::SessionKey};
use sig_core::{
    paths::{Monitor, PathState, Ranking, Revocations, Selection, Selector, enters_through},
    peer::{Announced, GatewayAddresses, PeerLimits},
    policy::{
        performance::{PerformancePolicy, Quality},
        prefix_set::PrefixSet,
        routing::RoutingPolicy,
        traffic::{AsPolicy, Fallback, SessionPolicy},
    },
    scion::{Fingerprint, Path},
};

/// How long a list without gateways is not believed after one with some: as long as the reference keeps what
/// it has learned of them.
const BLANK_IGNORED: Duration = PREFIX_EXPIRY;

/// A remote AS of the traffic policy.
#[derive(Debug)]
pub(super) struct RemoteAs {
    pub(super) isd_as: IsdAs,
    pub(super) static_prefixes: Vec<IpNet>,
    pub(super) policies: Vec<SessionPolicy>,
    pub(super) monitor: Monitor,
    pub(super) paths: Poll,
    pub(super) discovery: Poll,
    pub(super) gateways: Vec<Gateway>,
    /// What is announced and accepted by the routing policy, but refused.
    refused: BTreeSet<(IpNet, Refusal)>,
    /// When the control service last listed any.
    listed: Option<Instant>,
    pub(super) gateway_changes: u64,
    /// Failed requests for prefixes to gateways that are gone.
    pub(super) lost_fetch_errors: u64,
    /// The path of the next RPCs to the control service.
    rpc_path: Selector,
    switch_delay: Duration,
    pub(super) protection: RemoteProtection,
    workers: usize,
}

/// A gateway of a remote AS.
#[derive(Debug)]
pub(super) struct Gateway {
    pub(super) addresses: GatewayAddresses,
    pub(super) exchange: Poll,
    /// Wall clock of the last answer.
    pub(super) answered_at: Option<std::time::SystemTime>,
    etag: String,
    /// Ascending.
    announced: Vec<IpNet>,
    /// How many more it announces than there is room for.
    over_limit: usize,
    /// What of it is believed.
    pub(super) accepted: Vec<IpNet>,
    pub(super) accepted_count: u64,
    pub(super) rejected_count: u64,
    pub(super) sessions: Vec<Session>,
    pub(super) protection: Protection,
    rpc_path: Selector,
}

/// A session: one gateway under one policy.
#[derive(Debug)]
pub(super) struct Session {
    /// Given when the plan first mentions it.
    pub(super) key: Option<SessionKey>,
    pub(super) number: Option<u8>,
    /// Whether it has been logged that there is no number for it.
    pub(super) is_known_unnumbered: bool,
    pub(super) policy: SessionPolicy,
    pub(super) health: Health,
    pub(super) selector: Selector,
    excluded: Excluded,
    switch_delay: Duration,
    /// The paths that it uses now, best first.
    pub(super) paths: Vec<PathState>,
}

/// How prefixes of a gateway were taken.
#[derive(Debug, Default)]
pub(super) struct Accepted {
    pub(super) changed: bool,
    pub(super) malformed: usize,
    pub(super) over_limit: usize,
}

impl RemoteAs {
    pub(super) fn new(now: Now, isd_as: IsdAs, settings: &Settings) -> Self {
        RemoteAs {
            isd_as,
            static_prefixes: Vec::new(),
            policies: Vec::new(),
            // Others cannot guess what to answer.
            monitor: Monitor::new(isd_as, settings.paths, rand::random()),
            paths: Poll::new(now.monotonic, settings.path_interval),
            discovery: Poll::new(now.monotonic, RPC_INTERVAL),
            gateways: Vec::new(),
            refused: BTreeSet::new(),
            listed: None,
            gateway_changes: 0,
            lost_fetch_errors: 0,
            rpc_path: rpc_selector(settings.switch_delay),
            switch_delay: settings.switch_delay,
            protection: settings.protection.of(isd_as),
            workers: settings.workers,
        }
    }

    /// Takes over the policy; sessions whose policy stays are not touched.
    pub(super) fn set_policy(&mut self, now: Now, policy: &AsPolicy) {
        self.static_prefixes.clone_from(&policy.prefixes);
        self.policies.clone_from(&policy.policies);
        for gateway in &mut self.gateways {
            gateway.follow(now, &self.policies, self.switch_delay);
        }
    }

    pub(super) fn next_hops(&self) -> impl Iterator<Item = IpAddr> {
        self.monitor.paths().map(|path| path.next_hop.ip())
    }

    pub(super) fn handle_paths(&mut self, now: Now, result: Result<Vec<Path>, String>) {
        let result = match result {
            Ok(paths) if paths.is_empty() => Err("the daemon knows no path".to_owned()),
            other => other,
        };
        let news = self.paths.answer(
            now.monotonic,
            result.as_ref().map(|_| ()).map_err(String::as_str),
        );
        match result {
            Ok(mut paths) => {
                if news {
                    tracing::info!(isd_as = %self.isd_as, "path lookup recovered");
                }
                // If not all are watched, then those that somebody may use.
                paths.sort_by_cached_key(|path| !self.is_of_use(path));
                self.monitor.update(now.monotonic, now.wall, paths);
            }
            Err(problem) => {
                if news {
                    tracing::warn!(isd_as = %self.isd_as, "path lookup failed, keeping the known paths: {problem}");
                }
            }
        }
    }

    /// Whether there is a session that may use the path.
    fn is_of_use(&self, path: &Path) -> bool {
        let mut policies = self.policies.iter();
        let mut gateways = self.gateways.iter();
        policies.any(|policy| policy.path.evaluate(path).is_some())
            && (self.gateways.is_empty()
                || gateways.any(|g| enters_through(path, &g.addresses.allow_interfaces)))
    }

    pub(super) fn handle_gateways(
        &mut self,
        now: Now,
        result: Result<Vec<GatewayAddresses>, String>,
    ) {
        let news = self.discovery.answer(
            now.monotonic,
            result.as_ref().map(|_| ()).map_err(String::as_str),
        );
        let mut found = match result {
            Ok(found) => found,
            Err(problem) => {
                if news {
                    tracing::warn!(
                        isd_as = %self.isd_as,
                        "gateway discovery failed, keeping the known gateways: {problem}"
                    );
                }
                return;
            }
        };
        // A control service that has just started may not know its gateways yet.
        let is_blank = found.is_empty()
            && self
                .listed
                .is_some_and(|at| now.monotonic < at + BLANK_IGNORED);
        if is_blank {
            return;
        }
        self.listed = (!found.is_empty()).then_some(now.monotonic);
        found.sort();
        found.dedup_by_key(|gateway| gateway.control);
        let before = self.gateways.len();
        self.gateways.retain(|known| {
            let stays = found.contains(&known.addresses);
            if !stays {
                tracing::info!(isd_as = %self.isd_as, control = %known.addresses.control, "gateway removed");
                self.lost_fetch_errors += known.exchange.errors();
            }
            stays
        });
        let gone = before - self.gateways.len();
        self.gateway_changes += gone as u64;
        for addresses in found {
            if self
                .gateways
                .iter()
                .all(|known| known.addresses != addresses)
            {
                tracing::info!(
                    isd_as = %self.isd_as,
                    control = %addresses.control,
                    data = %addresses.data,
                    "gateway discovered"
                );
                self.gateway_changes += 1;
                let mut others = self.gateways.iter();
                let same = others.find(|other| other.addresses.data.ip() == addresses.data.ip());
                let taken = same.map(|same| same.protection.taken().clone());
                let protection = Protection::new(self.protection.clone(), self.workers, taken);
                let mut gateway = Gateway::new(now, addresses, self.switch_delay, protection);
                gateway.follow(now, &self.policies, self.switch_delay);
                self.gateways.push(gateway);
            }
        }
        // By the text of the address, as the reference: 10.0.0.10 before 10.0.0.9.
        self.gateways
            .sort_by_cached_key(|gateway| gateway.addresses.control.to_string());
    }

    pub(super) fn handle_prefixes(
        &mut self,
        now: Now,
        control: SocketAddr,
        result: Result<Announced, String>,
        limits: &PeerLimits,
    ) -> Accepted {
        let Some(gateway) = self
            .gateways
            .iter_mut()
            .find(|gateway| gateway.addresses.control == control)
        else {
            return Accepted::default();
        };
        let news = gateway.exchange.answer(
            now.monotonic,
            result.as_ref().map(|_| ()).map_err(String::as_str),
        );
        let announced = match result {
            Ok(announced) => announced,
            Err(problem) => {
                if news {
                    tracing::warn!(isd_as = %self.isd_as, %control, "prefix fetch failed: {problem}");
                }
                return Accepted::default();
            }
        };
        gateway.answered_at = Some(now.wall);
        let Announced::Prefixes {
            mut prefixes,
            malformed,
            etag,
        } = announced
        else {
            return Accepted::default();
        };
        prefixes.sort_unstable();
        prefixes.dedup();
        let most = limits.prefixes_per_gateway as usize;
        let over = prefixes.len().saturating_sub(most);
        if over > 0 {
            // What is known stays, so that only newcomers find no room.
            let is_new = |prefix: &IpNet| gateway.announced.binary_search(prefix).is_err();
            prefixes.sort_by_cached_key(|prefix| (is_new(prefix), *prefix));
            prefixes.truncate(most);
            prefixes.sort_unstable();
        }
        let over_limit = over.saturating_sub(gateway.over_limit);
        gateway.over_limit = over;
        let changed = prefixes != gateway.announced;
        gateway.announced = prefixes;
        gateway.etag = etag;
        Accepted {
            changed,
            malformed: malformed as usize,
            over_limit,
        }
    }

    /// Forgets prefixes that have not been confirmed for long. Whether any were forgotten.
    pub(super) fn expire(&mut self, now: Now) -> bool {
        let mut forgotten = false;
        for gateway in &mut self.gateways {
            let fresh = gateway
                .exchange
                .answered()
                .is_some_and(|at| now.monotonic < at + PREFIX_EXPIRY);
            if !fresh && !gateway.announced.is_empty() {
                tracing::warn!(
                    isd_as = %self.isd_as,
                    control = %gateway.addresses.control,
                    "prefix fetch failing for {} s, learned prefixes withdrawn",
                    PREFIX_EXPIRY.as_secs()
                );
                gateway.announced.clear();
                gateway.etag.clear();
                forgotten = true;
            }
        }
        forgotten
    }

    /// Decides which announced prefixes are believed; returns those that the policy accepts but that are at
    /// home elsewhere or nowhere, and that were not refused before.
    pub(super) fn vet(
        &mut self,
        local: IsdAs,
        routing: &RoutingPolicy,
        own: &Own,
        others: &[IpNet],
    ) -> Vec<(IpNet, Refusal)> {
        let believed = routing.believed(self.isd_as, local);
        let is_named =
            |part: &IpNet, whole: &IpNet| routing.names_part(self.isd_as, local, part, whole);
        let judge = |prefix: &IpNet| own.accepts(prefix, others, is_named);
        let mut refused = BTreeSet::new();
        for gateway in &mut self.gateways {
            // Each by itself: together with others, a prefix would be another one.
            let (mut wide, mut narrow, mut count) = (Vec::new(), Vec::new(), 0);
            for (place, prefix) in gateway.announced.iter().enumerate() {
                let before = wide.len() + narrow.len();
                // Longer prefixes inside keep a way of their own.
                let next = gateway.announced.get(place + 1);
                let is_wide = next.is_some_and(|next| prefix.contains(next));
                let believed = believed.intersection(&[*prefix].iter().collect());
                for part in believed.prefixes() {
                    match judge(&part) {
                        Ok(()) if is_wide => wide.push(part),
                        Ok(()) => narrow.push(part),
                        Err(refusal) => {
                            refused.insert((part, refusal));
                        }
                    }
                }
                count += usize::from(wide.len() + narrow.len() > before);
            }
            // What touches is joined, for shorter tables.
            let mut accepted = narrow.iter().collect::<PrefixSet>().prefixes();
            accepted.extend(wide);
            accepted.sort_unstable();
            accepted.dedup();
            gateway.accepted_count = count as u64;
            gateway.rejected_count = (gateway.announced.len() - count) as u64;
            gateway.accepted = accepted;
        }
        let new = refused.difference(&self.refused).copied().collect();
        self.refused = refused;
        new
    }

    /// `None` if nobody asked; otherwise whether the session has come up, or is not silent any more.
    pub(super) fn handle_session_reply(
        &mut self,
        now: Now,
        host: IpAddr,
        number: u32,
    ) -> Option<bool> {
        let isd_as = self.isd_as;
        let session = self
            .gateways
            .iter_mut()
            .filter(|gateway| gateway.addresses.probe.ip() == host)
            .flat_map(|gateway| &mut gateway.sessions)
            .find(|session| session.number.map(u32::from) == Some(number))?;
        let was_up = session.health.is_up();
        let changed = session.health.reply(now.monotonic);
        if !was_up {
            tracing::info!(%isd_as, session = number, policy = session.policy.name, "session is up");
        }
        Some(changed)
    }

    pub(super) fn handle_too_big(&mut self, now: Now, path: &[u8], mtu: u16) {
        let known = self
            .monitor
            .paths()
            .find(|known| same_hops(&known.raw, path))
            .map(|path| path.fingerprint);
        if let Some(fingerprint) = known {
            self.monitor.packet_too_big(now.monotonic, fingerprint, mtu);
        }
    }

    /// Lets every session, and the questions, choose their paths. Whether the choice of a session has changed.
    pub(super) fn select(&mut self, now: Now, revocations: &Revocations) -> bool {
        let states = self.monitor.states(now.monotonic, now.wall, revocations);
        self.rpc_path.select(now.monotonic, &states, |_| Some(0));
        let mut changed = false;
        let mut in_use = Vec::new();
        for gateway in &mut self.gateways {
            let allowed = &gateway.addresses.allow_interfaces;
            let pinned = |path: &Path| enters_through(path, allowed).then_some(0);
            gateway.rpc_path.select(now.monotonic, &states, pinned);
            for session in &mut gateway.sessions {
                changed |= session.select(now, &states, allowed);
                in_use.extend(session.paths.iter().map(PathState::fingerprint));
            }
        }
        self.monitor.set_in_use(now.monotonic, in_use);
        changed
    }

    /// Tells what is to be done now. Whether a session has gone down, or fallen silent.
    pub(super) fn poll(&mut self, now: Now, actions: &mut Vec<Action>) -> bool {
        let isd_as = self.isd_as;
        if self.paths.ask(now.monotonic) {
            actions.push(Action::AskPaths(isd_as));
        }
        for probe in self.monitor.poll_probes(now.monotonic, now.wall) {
            actions.push(Action::ProbePath {
                isd_as,
                path: probe.path,
                sequence: probe.sequence,
            });
        }
        // Without a path the question stays due, and is asked as soon as there is one.
        if let Some(path) = chosen_path(&self.monitor, &self.rpc_path)
            && self.discovery.ask(now.monotonic)
        {
            actions.push(Action::AskGateways { isd_as, path });
        }
        let mut down = false;
        for gateway in &mut self.gateways {
            if let Some(path) = chosen_path(&self.monitor, &gateway.rpc_path)
                && gateway.exchange.ask(now.monotonic)
            {
                actions.push(Action::AskPrefixes {
                    isd_as,
                    control: gateway.addresses.control,
                    path,
                    etag: gateway.etag.clone(),
                    hello: gateway.protection.hello(now.monotonic),
                });
            }
            for session in &mut gateway.sessions {
                if session.health.expire(now.monotonic) {
                    tracing::warn!(%isd_as, session = session.number, policy = session.policy.name, "session is down");
                    down = true;
                }
                if session.health.falls_silent(now.monotonic) {
                    tracing::debug!(%isd_as, session = session.number, policy = session.policy.name, "session is silent");
                    down = true;
                }
                if let Some(number) = session.number
                    && session
                        .health
                        .probe(now.monotonic, !session.paths.is_empty())
                    && let Some(state) = session.paths.first()
                {
                    actions.push(Action::ProbeSession {
                        isd_as,
                        address: gateway.addresses.probe,
                        session: number,
                        path: state.path.clone(),
                    });
                }
            }
        }
        down
    }

    /// When [`RemoteAs::poll`] has something to do. What waits for a path, or for a session number, has no time.
    pub(super) fn deadline(&self, now: Now) -> Option<Instant> {
        let question = |poll: &Poll, path: &Selector| {
            chosen_path(&self.monitor, path).and_then(|_| poll.deadline())
        };
        let gateways = self.gateways.iter().flat_map(|gateway| {
            let numbered = gateway.sessions.iter().filter(|s| s.number.is_some());
            let sessions = numbered.map(|session| session.health.deadline());
            sessions.chain(question(&gateway.exchange, &gateway.rpc_path))
        });
        gateways
            .chain(self.paths.deadline())
            .chain(question(&self.discovery, &self.rpc_path))
            .chain(self.monitor.next_deadline(now.monotonic, now.wall))
            .min()
    }
}

impl Gateway {
    fn new(
        now: Now,
        addresses: GatewayAddresses,
        switch_delay: Duration,
        protection: Protection,
    ) -> Self {
        Gateway {
            addresses,
            exchange: Poll::new(now.monotonic, RPC_INTERVAL),
            answered_at: None,
            etag: String::new(),
            announced: Vec::new(),
            over_limit: 0,
            accepted: Vec::new(),
            accepted_count: 0,
            rejected_count: 0,
            sessions: Vec::new(),
            protection,
            rpc_path: rpc_selector(switch_delay),
        }
    }

    /// Whether packets can be sent to it.
    pub(super) fn is_usable(&self) -> bool {
        self.protection.may_send() && self.sessions.iter().any(Session::is_usable)
    }

    /// Makes the sessions those of the policies.
    fn follow(&mut self, now: Now, policies: &[SessionPolicy], switch_delay: Duration) {
        let mut old = std::mem::take(&mut self.sessions);
        for policy in policies {
            let same = old
                .iter()
                .position(|session| session.policy.id == policy.id);
            let session = match same {
                Some(place) => {
                    let mut session = old.swap_remove(place);
                    session.adopt(policy, switch_delay);
                    session
                }
                None => Session::new(now, policy, switch_delay),
            };
            self.sessions.push(session);
        }
    }
}

impl Session {
    fn new(now: Now, policy: &SessionPolicy, switch_delay: Duration) -> Self {
        Session {
            key: None,
            number: None,
            is_known_unnumbered: false,
            health: Health::new(now.monotonic),
            selector: Selector::new(selection(policy, switch_delay)),
            excluded: Excluded::default(),
            switch_delay,
            policy: policy.clone(),
            paths: Vec::new(),
        }
    }

    /// The same session under a changed policy: what it uses goes on as far as the policy allows.
    fn adopt(&mut self, policy: &SessionPolicy, switch_delay: Duration) {
        self.selector.set_selection(selection(policy, switch_delay));
        if self.policy.performance != policy.performance {
            self.excluded = Excluded::default();
        }
        self.policy = policy.clone();
    }

    /// Whether packets can be sent.
    pub(super) fn is_usable(&self) -> bool {
        self.health.is_up() && !self.paths.is_empty()
    }

    fn select(&mut self, now: Now, states: &[PathState], allowed: &[u64]) -> bool {
        let policy = &self.policy;
        let good: HashSet<Fingerprint> = states
            .iter()
            .filter(|state| {
                let (path, good) = (state.fingerprint(), meets_limits(policy, state));
                self.excluded
                    .admit(now.monotonic, path, good, self.switch_delay)
            })
            .map(PathState::fingerprint)
            .collect();
        self.excluded.forget(now.monotonic);
        let admits = |path: &Path| {
            if !enters_through(path, allowed) {
                return None;
            }
            match policy.fallback {
                _ if good.contains(&path.fingerprint) => policy.weigh(path),
                Fallback::AnyPath => Some(0),
                Fallback::Drop | Fallback::Next => None,
            }
        };
        let chosen: Vec<PathState> = self
            .selector
            .select(now.monotonic, states, admits)
            .into_iter()
            .cloned()
            .collect();
        let same_paths = chosen
            .iter()
            .map(PathState::fingerprint)
            .eq(self.paths.iter().map(PathState::fingerprint));
        if !same_paths && !chosen.is_empty() {
            self.health.hurry(now.monotonic);
        }
        // New hop fields or another MTU change what is sent, too.
        let changed = !same_paths
            || chosen
                .iter()
                .zip(&self.paths)
                .any(|(new, old)| (&new.path, new.mtu) != (&old.path, old.mtu));
        self.paths = chosen;
        changed
    }
}

/// The path that a question takes now.
fn chosen_path(monitor: &Monitor, selector: &Selector) -> Option<Path> {
    let fingerprint = selector.chosen().first()?;
    monitor
        .paths()
        .find(|path| path.fingerprint == *fingerprint)
        .cloned()
}

/// Any path will do for questions.
fn rpc_selector(switch_delay: Duration) -> Selector {
    Selector::new(Selection {
        switch_delay,
        ..Selection::default()
    })
}

fn selection(policy: &SessionPolicy, switch_delay: Duration) -> Selection {
    Selection {
        ranking: policy
            .performance
            .as_deref()
            .map(ranking)
            .unwrap_or_default(),
        count: policy.path_count as usize,
        switch_delay,
    }
}

fn ranking(policy: &PerformancePolicy) -> Ranking {
    if policy.order.is_empty() {
        return Ranking::default();
    }
    // Paths that are equal by all of that are told apart as without a policy.
    let criteria = policy.order.iter().copied();
    Ranking(criteria.chain(Ranking::default().0).collect())
}

/// Whether a path offers what the policy asks for, as far as is known.
fn meets_limits(policy: &SessionPolicy, state: &PathState) -> bool {
    policy.performance.as_ref().is_none_or(|performance| {
        performance.limits.admit(&Quality {
            latency: state.latency,
            jitter: state.jitter,
            loss_ppm: state.loss_ppm,
            mtu: Some(state.mtu),
        })
    })
}

/// Whether two path headers have the same hop fields: routers change pointers, segment identifiers and alert
/// flags on the way, and nothing else.
fn same_hops(a: &[u8], b: &[u8]) -> bool {
    let hops = |raw: &[u8]| -> Option<Vec<[u8; 11]>> {
        let meta = u32::from_be_bytes(*raw.first_chunk()?);
        let segments = [meta >> 12, meta >> 6, meta].map(|length| (length & 0x3f) as usize);
        let infos = segments.iter().filter(|length| **length > 0).count();
        let fields = raw.get(4 + 8 * infos..)?.chunks_exact(12);
        // Behind the flags: expiry, interfaces, MAC.
        let fields: Vec<[u8; 11]> = fields
            .filter_map(|hop| hop[1..].first_chunk().copied())
            .collect();
        (!fields.is_empty()).then_some(fields)
    };
    a.len() == b.len() && hops(a).is_some() && hops(a) == hops(b)
}
