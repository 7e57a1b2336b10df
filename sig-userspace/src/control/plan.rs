//! What the control plane wants of the data plane: gateways, sessions with their paths, and which packets
//! go into which session.
//!
//! A plan is complete: what is not in it goes. What two plans have in common is not touched when the
//! second one takes effect: streams, sequence numbers, counters, kernel routes.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::SystemTime,
};

use ipnet::IpNet;
use sig_common::addr::IsdAs;

use super::config::{Config, Remote};
use sig_core::{dataplane, policy::class::Condition, protection::Keyring, scion};

/// The plan. Indexes into its lists are valid within one plan only; keys name a thing across plans.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Inner destinations that remotes may send to; `None`: all that do not lead back into the tunnel.
    pub served: Option<Vec<IpNet>>,
    /// Addresses beside those of next hops that frames and the control plane's questions go to. Prefixes of
    /// remotes that would capture them are left out.
    pub must_reach: Vec<IpAddr>,
    /// Remote gateways whose frames are accepted.
    pub gateways: Vec<Gateway>,
    /// Sessions with these gateways.
    pub sessions: Vec<Session>,
    /// Where packets go. Prefixes are in one site only; the longest that matches decides.
    pub sites: Vec<Site>,
}

/// A remote gateway, told by its ISD-AS and host address: the source of its frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gateway {
    /// The AS it stands in.
    pub isd_as: IsdAs,
    /// SCION host address of its data plane.
    pub host: IpAddr,
    /// Inner sources that it may send from.
    pub accepted: Vec<IpNet>,
    /// Keys for protected frames from it, if there may be such.
    pub keyring: Option<Arc<Keyring>>,
    /// Whether frames from it that are not protected are refused.
    pub is_strict: bool,
}

/// Names a session for as long as it exists. Never used again for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionKey(pub u64);

/// Frames to one gateway under one policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// Its name across plans.
    pub key: SessionKey,
    /// Place of its gateway in [`Plan::gateways`].
    pub gateway: usize,
    /// Where its frames go: SCION host address and UDP/SCION port of the gateway's data plane.
    pub data_addr: SocketAddr,
    /// Session number written into frames.
    pub number: u8,
    /// Number of its policy among those of the AS, for metrics.
    pub policy_id: u32,
    /// Paths in use; flows are spread over them. Empty: packets are dropped.
    pub paths: Vec<SessionPath>,
    /// Keys for its frames, if they are protected.
    pub keyring: Option<Arc<Keyring>>,
}

/// A path as a session uses it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionPath {
    /// Name in logs and in the status; not more than one of a session has it.
    pub name: String,
    /// The path. The same fingerprint and next hop in the next plan: streams go on, whatever has become
    /// of the hop fields.
    pub path: scion::Path,
    /// Largest SCION packet in bytes: that of the path, or what the network has been found to carry.
    pub mtu: u16,
    /// Source port of the frames, in the underlay and in UDP/SCION.
    pub source_port: u16,
    /// Its hop fields are no longer valid: nothing is sent on it.
    pub expired: bool,
}

/// Prefixes with the same destination and the same rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// The AS behind which they are, for logs and status.
    pub isd_as: IsdAs,
    /// Inner destinations. Canonical.
    pub prefixes: Vec<IpNet>,
    /// The first rule whose condition holds decides; none: the packet is dropped.
    pub rules: Vec<Rule>,
    /// Whether the kernel and the LAN ports send packets for the prefixes to us. Not while the remote is
    /// out of reach: other routes get their chance, and hosts an answer.
    pub exported: bool,
}

/// A rule of a site. It names a session by its place in [`Plan::sessions`].
pub type Rule = dataplane::Rule<usize>;

/// What a rule does.
pub type Action = dataplane::Action<usize>;

impl Plan {
    /// What the `[[remote]]` sections of a configuration say, whether or not their paths have expired;
    /// nobody is known where there are none.
    #[must_use]
    pub fn from_config(config: &Config) -> Self {
        let keys = (0..).map(SessionKey);
        Self::of_remotes(&config.gateway.prefixes, keys.zip(&config.remotes))
    }

    /// The plan of configured remotes with the names of their sessions.
    pub(super) fn of_remotes<'a>(
        served: &[IpNet],
        remotes: impl Iterator<Item = (SessionKey, &'a Remote)>,
    ) -> Self {
        let mut plan = Plan {
            served: Some(served.to_vec()),
            ..Plan::default()
        };
        for (number, (key, remote)) in remotes.enumerate() {
            plan.gateways.push(Gateway {
                isd_as: remote.isd_as,
                host: remote.gateway.ip(),
                accepted: remote.prefixes.clone(),
                keyring: None,
                is_strict: false,
            });
            let path = |path: &super::config::Path| SessionPath {
                name: path.name.clone(),
                path: scion::Path::configured(&path.raw, path.next_hop, path.mtu),
                mtu: path.mtu,
                source_port: path.source_port,
                expired: false,
            };
            plan.sessions.push(Session {
                key,
                gateway: number,
                data_addr: remote.gateway,
                number: remote.session,
                policy_id: 0,
                paths: remote.paths.iter().map(path).collect(),
                keyring: None,
            });
            plan.sites.push(Site {
                isd_as: remote.isd_as,
                prefixes: remote.prefixes.clone(),
                rules: vec![Rule {
                    condition: Arc::new(Condition::ALWAYS),
                    action: Action::Session(number),
                }],
                exported: true,
            });
        }
        plan
    }

    /// This plan at the time `now`: paths that have expired are not used, and prefixes to which no other path
    /// leads are not exported.
    #[must_use]
    pub fn at(mut self, now: SystemTime) -> Self {
        for path in self.sessions.iter_mut().flat_map(|s| &mut s.paths) {
            path.expired = path.path.is_expired(now);
        }
        let sessions = &self.sessions;
        let leads_on = |rule: &Rule| {
            let place = rule.action.session();
            let session = place.and_then(|place| sessions.get(place));
            session.is_some_and(|session| session.paths.iter().any(|path| !path.expired))
        };
        for site in &mut self.sites {
            site.exported &= site.rules.iter().any(leads_on);
        }
        self
    }

    /// This plan, but sessions that are in `newer` as well use their paths of there.
    #[must_use]
    pub fn with_paths_of(&self, newer: &Self) -> Self {
        let mut plan = self.clone();
        for session in &mut plan.sessions {
            let same = newer.sessions.iter().find(|other| other.key == session.key);
            if let Some(same) = same {
                session.paths.clone_from(&same.paths);
            }
        }
        plan
    }

    /// Addresses that must be reached past the tunnel, each once.
    #[must_use]
    pub fn outside(&self) -> Vec<IpAddr> {
        let mut outside = self.next_hops();
        outside.extend(&self.must_reach);
        outside.sort_unstable();
        outside.dedup();
        outside
    }

    /// Underlay addresses that the sessions' paths go to first, each once.
    #[must_use]
    pub fn next_hops(&self) -> Vec<IpAddr> {
        let paths = self.sessions.iter().flat_map(|session| &session.paths);
        let mut hops: Vec<IpAddr> = paths.map(|path| path.path.next_hop.ip()).collect();
        hops.sort_unstable();
        hops.dedup();
        hops
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(key: u64, hops: &[u8]) -> Session {
        let path = |hop: &u8| SessionPath {
            name: hop.to_string(),
            path: scion::Path::configured(&[*hop], ([10, 0, 0, *hop], 30042).into(), 1400),
            mtu: 1400,
            source_port: 30056,
            expired: false,
        };
        Session {
            key: SessionKey(key),
            gateway: 0,
            data_addr: ([10, 11, 0, 2], 30056).into(),
            number: 0,
            policy_id: 0,
            paths: hops.iter().map(path).collect(),
            keyring: None,
        }
    }

    fn plan(sessions: &[Session]) -> Plan {
        Plan {
            sessions: sessions.to_vec(),
            ..Plan::default()
        }
    }

    #[test]
    fn of_a_newer_plan_only_the_paths_of_known_sessions_are_taken() {
        let old = plan(&[session(1, &[1]), session(2, &[1, 2]), session(3, &[3])]);
        let new = plan(&[session(4, &[4]), session(3, &[2, 3]), session(1, &[])]);
        let expected = plan(&[session(1, &[]), session(2, &[1, 2]), session(3, &[2, 3])]);
        assert_eq!(old.with_paths_of(&new), expected);
    }
}
