//! What is told about the remotes.

use std::{
    collections::HashMap,
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use super::{
    Now, Remotes, owners,
    plan::ChainKey,
    remote_as::{Gateway, RemoteAs, Session},
};
use crate::control::plan::SessionKey;
use sig_core::{
    paths::{PathState, Revocations},
    status::{
        Contested, DiscoveredGateway, Probing, Refused, RemoteAs as RemoteStatus, SessionPolicy,
        Site, SiteClass, WatchedPath,
    },
};

/// The remotes' part of the status.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    /// Remote ASes.
    pub ases: Vec<RemoteStatus>,
    /// What the traffic policy says.
    pub policies: Vec<SessionPolicy>,
    /// Prefixes with the same destination and rules.
    pub sites: Vec<Site>,
    /// Prefixes that several ASes have.
    pub contested: Vec<Contested>,
    /// Rejected input from peers.
    pub refused: Vec<Refused>,
    /// Whether the gateways of sessions answer.
    pub probing: HashMap<SessionKey, Probing>,
}

impl Remotes {
    /// What there is to tell now.
    #[must_use]
    pub(crate) fn snapshot(&mut self, now: Now) -> Snapshot {
        let Remotes {
            ases, revocations, ..
        } = &mut *self;
        let ases = ases
            .values_mut()
            .map(|remote| remote_as(now, remote, revocations))
            .collect();
        let sessions = || {
            let gateways = self.ases.values().flat_map(|remote| &remote.gateways);
            gateways.flat_map(|gateway| &gateway.sessions)
        };
        Snapshot {
            ases,
            policies: self.ases.values().flat_map(policies).collect(),
            sites: self.sites(),
            contested: self.contested(),
            refused: self
                .refused
                .iter()
                .map(|((isd_as, reason), count)| Refused {
                    isd_as: isd_as.to_string(),
                    reason: (*reason).into(),
                    count: *count,
                })
                .collect(),
            probing: sessions()
                .filter_map(|session| Some((session.key?, probing(session))))
                .collect(),
        }
    }

    fn sites(&self) -> Vec<Site> {
        let plan = self.current_plan();
        let sites = plan.sites.iter().zip(&self.site_chains);
        sites
            .map(|(site, chains)| Site {
                isd_as: site.isd_as.to_string(),
                prefixes: site.prefixes.clone(),
                exported: site.exported,
                classes: chains.iter().filter_map(|key| self.class(key)).collect(),
            })
            .collect()
    }

    fn contested(&self) -> Vec<Contested> {
        let contested = owners::contested(&self.ases, &self.owners).into_iter();
        contested
            .map(|(prefix, isd_as, others)| Contested {
                prefix,
                isd_as: isd_as.to_string(),
                others: others.iter().map(ToString::to_string).collect(),
            })
            .collect()
    }

    fn class(&self, key: &ChainKey) -> Option<SiteClass> {
        let (isd_as, gateways, policy) = key;
        let chain = self.chains.get(key)?;
        let remote = self.ases.get(isd_as)?;
        let sessions: Vec<&Session> = remote
            .gateways
            .iter()
            .filter(|gateway| gateways.contains(&gateway.addresses.control))
            .flat_map(|gateway| &gateway.sessions)
            .filter(|session| session.policy.id == *policy)
            .collect();
        let in_use = |session: &&&Session| session.key.is_some() && session.key == chain.current;
        Some(SiteClass {
            id: chain.id,
            condition: sessions.first()?.policy.condition.to_string(),
            sessions: sessions
                .iter()
                .filter_map(|session| session.number)
                .collect(),
            current: sessions
                .iter()
                .find(in_use)
                .and_then(|session| session.number),
            alive: sessions
                .iter()
                .filter(|session| session.is_usable())
                .count() as u64,
            session_changes: chain.session_changes,
            state_changes: chain.state_changes,
        })
    }
}

fn ms_ago(now: Now, at: Option<Instant>) -> Option<u64> {
    at.map(|at| now.monotonic.saturating_duration_since(at).as_millis() as u64)
}

fn unix(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

fn remote_as(now: Now, remote: &mut RemoteAs, revocations: &Revocations) -> RemoteStatus {
    let states = remote.monitor.states(now.monotonic, now.wall, revocations);
    let counters = remote.monitor.counters();
    RemoteStatus {
        isd_as: remote.isd_as.to_string(),
        static_prefixes: remote.static_prefixes.clone(),
        gateways: remote
            .gateways
            .iter()
            .map(|gateway| discovered(now, gateway))
            .collect(),
        discovered_ms_ago: ms_ago(now, remote.discovery.answered()),
        discovery_problem: remote.discovery.problem().map(str::to_owned),
        discovery_errors: remote.discovery.errors(),
        gateway_changes: remote.gateway_changes,
        paths: states.iter().map(|state| watched(remote, state)).collect(),
        probes_sent: counters.probes_sent,
        probes_received: counters.probes_received,
        probe_send_errors: counters.send_errors,
        paths_problem: remote.paths.problem().map(str::to_owned),
        fetch_errors: remote.lost_fetch_errors
            + remote
                .gateways
                .iter()
                .map(|gateway| gateway.exchange.errors())
                .sum::<u64>(),
    }
}

fn policies(remote: &RemoteAs) -> impl Iterator<Item = SessionPolicy> {
    remote.policies.iter().map(|policy| SessionPolicy {
        isd_as: remote.isd_as.to_string(),
        id: policy.id,
        traffic_matcher: policy.condition.to_string().into(),
        path_policy: policy.path.to_json(),
        perf_policy: policy
            .performance
            .as_ref()
            .map_or(serde_json::Value::Null, |performance| performance.to_json()),
        path_count: policy.path_count,
        prefixes: remote.static_prefixes.clone(),
    })
}

fn discovered(now: Now, gateway: &Gateway) -> DiscoveredGateway {
    DiscoveredGateway {
        addresses: gateway.addresses.clone(),
        accepted: gateway.accepted.clone(),
        prefixes_accepted: gateway.accepted_count,
        prefixes_rejected: gateway.rejected_count,
        fetched_ms_ago: ms_ago(now, gateway.exchange.answered()),
        fetched_at: gateway.answered_at.map(unix),
        fetch_problem: gateway.exchange.problem().map(str::to_owned),
        fetch_errors: gateway.exchange.errors(),
        protection: gateway.protection.status(now.monotonic),
    }
}

fn probing(session: &Session) -> Probing {
    Probing {
        healthy: session.health.is_up(),
        probes: session.health.probes,
        replies: session.health.replies,
        state_changes: session.health.changes,
        path_changes: session.selector.changes(),
        paths_alive: session.selector.availability().alive,
        paths_timeout: session.selector.availability().timeout,
        paths_rejected: session.selector.availability().rejected,
    }
}

fn watched(remote: &RemoteAs, state: &PathState) -> WatchedPath {
    let sessions = remote.gateways.iter().flat_map(|gateway| &gateway.sessions);
    let users = sessions.clone().filter(|session| {
        let mut paths = session.paths.iter();
        paths.any(|path| path.fingerprint() == state.fingerprint())
    });
    let rejecting = sessions.filter(|session| session.policy.path.evaluate(&state.path).is_none());
    let micros = |duration: std::time::Duration| duration.as_micros() as u64;
    WatchedPath {
        fingerprint: state.fingerprint().to_string(),
        text: state.path.to_string(),
        mtu: state.mtu,
        expires_at: state.path.expiry.map(unix),
        alive: state.is_alive(),
        revoked: state.revoked,
        latency_us: state.latency.map(micros),
        jitter_us: state.jitter.map(micros),
        loss_ppm: state.loss_ppm,
        used_by: users.filter_map(|session| session.number).collect(),
        rejected_by: rejecting.filter_map(|session| session.number).collect(),
    }
}
