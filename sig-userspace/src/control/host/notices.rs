//! What the log says about next hops: each thing when it begins, not again while it lasts.

use std::{
    collections::{HashMap, HashSet},
    net::IpAddr,
    time::{Duration, Instant},
};

use crate::control::plan::Plan;
use sig_linux::{
    link::{MAX_XDP_MTU, underlay_headers},
    neighbours::{Reason, Resolution, Snapshot},
};

/// How long a new next hop may take to answer before that is worth a warning.
const PATIENCE: Duration = Duration::from_secs(2);

/// What has been said.
#[derive(Debug, Default)]
pub(super) struct Notices {
    /// Since when next hops cannot be used; `None`: since what has been said.
    waiting: HashMap<IpAddr, Option<Instant>>,
    /// Next hops with an interface that is too small for the MTU of a path.
    too_small: HashSet<(IpAddr, u16)>,
}

impl Notices {
    /// Logs what is new.
    pub(super) fn look(
        &mut self,
        now: Instant,
        hops: &Snapshot,
        plan: &Plan,
        is_static: bool,
        has_sockets: bool,
    ) {
        for (hop, reason) in self.unusable(now, hops) {
            tracing::warn!(next_hop = %hop, "next hop is not usable: {reason}");
        }
        for (hop, path_mtu, fits) in self.too_large(hops, plan) {
            let is_limit = fits + underlay_headers(hop) == MAX_XDP_MTU;
            let limit = if has_sockets && is_limit {
                "what UDP sockets take, packets of at most 3506 bytes, whatever the MTU of the interface"
            } else {
                "the MTU of the underlay interface"
            };
            let remedy = if is_static {
                format!("lower `mtu` of the [[remote.path]] to {fits}")
            } else if has_sockets && is_limit {
                format!(
                    "lower `mtu` in topology.json of this AS to {fits}, or let the gateway use AF_XDP"
                )
            } else {
                format!(
                    "lower `mtu` in topology.json of this AS to {fits}, or raise the MTU of the interface"
                )
            };
            tracing::warn!(
                next_hop = %hop, path_mtu, fits,
                "the path MTU exceeds {limit}: the gateway sends smaller packets, \
                 but full-size packets from the remote gateway are lost; {remedy}"
            );
        }
    }

    /// Next hops that cannot be used for longer than is usual after they became next hops. Those that were
    /// lost are logged by whoever sees it.
    fn unusable(&mut self, now: Instant, hops: &Snapshot) -> Vec<(IpAddr, Reason)> {
        self.waiting.retain(|hop, _| hops.contains_key(hop));
        let mut found = Vec::new();
        for (hop, state) in hops.iter() {
            let Resolution::Unresolved(reason) = state else {
                self.waiting.insert(*hop, None);
                continue;
            };
            let since = self.waiting.entry(*hop).or_insert(Some(now));
            let patience = match reason {
                Reason::Resolving | Reason::NoAnswer(_) => PATIENCE,
                _ => Duration::ZERO,
            };
            if since.is_some_and(|since| now >= since + patience) {
                *since = None;
                found.push((*hop, reason.clone()));
            }
        }
        found
    }

    /// Next hops with the MTU of a path over them that is too large for the interface, and what fits.
    fn too_large(&mut self, hops: &Snapshot, plan: &Plan) -> Vec<(IpAddr, u16, u32)> {
        self.too_small.retain(|(hop, _)| hops.contains_key(hop));
        let mut found = Vec::new();
        for path in plan.sessions.iter().flat_map(|session| &session.paths) {
            let hop = path.path.next_hop.ip();
            let Some(link) = hops.get(&hop).and_then(Resolution::resolved) else {
                continue;
            };
            let fits = link.mtu.saturating_sub(underlay_headers(hop));
            if u32::from(path.mtu) > fits && self.too_small.insert((hop, path.mtu)) {
                found.push((hop, path.mtu, fits));
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::control::plan::{Session, SessionKey, SessionPath};
    use sig_core::scion;
    use sig_linux::neighbours::Resolved;

    fn hop(n: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, n])
    }

    fn resolved(mtu: u32) -> Resolution {
        Resolution::Resolved(Resolved {
            ifindex: 1,
            source: hop(1),
            neighbour: hop(2),
            destination_mac: [2; 6],
            interface_mac: [4; 6],
            mtu,
        })
    }

    fn snapshot(state: Resolution) -> Snapshot {
        Arc::new(HashMap::from([(hop(2), state)]))
    }

    #[test]
    fn a_next_hop_that_never_answers_is_named_once_after_two_seconds() {
        let silent = || Resolution::Unresolved(Reason::NoAnswer(hop(2)));
        let mut notices = Notices::default();
        let start = Instant::now();
        let mut at = |ms, state| {
            let now = start + Duration::from_millis(ms);
            notices.unusable(now, &snapshot(state)).len()
        };
        assert_eq!(at(0, Resolution::Unresolved(Reason::Resolving)), 0);
        assert_eq!(at(1999, Resolution::Unresolved(Reason::Resolving)), 0);
        assert_eq!(at(2000, silent()), 1);
        assert_eq!(at(60_000, silent()), 0, "said already");
        assert_eq!(at(61_000, resolved(1500)), 0);
        assert_eq!(at(70_000, silent()), 0, "the loss is logged elsewhere");
    }

    #[test]
    fn what_cannot_become_right_by_waiting_is_named_at_once() {
        let mut notices = Notices::default();
        let now = Instant::now();
        let own = snapshot(Resolution::Unresolved(Reason::LocalAddress));
        let said = notices.unusable(now, &own);
        assert_eq!(said, [(hop(2), Reason::LocalAddress)]);
        assert!(said[0].1.to_string().contains("address of this host"));
        assert_eq!(notices.unusable(now, &own), []);
        assert_eq!(notices.unusable(now, &Snapshot::default()), []);
        assert_eq!(notices.unusable(now, &own).len(), 1, "a new one");
    }

    #[test]
    fn a_path_mtu_beyond_the_interface_is_named_once() {
        let session = |mtu| Session {
            key: SessionKey(1),
            gateway: 0,
            data_addr: ([10, 11, 0, 2], 30056).into(),
            number: 0,
            policy_id: 0,
            keyring: None,
            paths: vec![SessionPath {
                name: "0".into(),
                path: scion::Path::configured(&[1], (hop(2), 30042).into(), mtu),
                mtu,
                source_port: 30056,
                expired: false,
            }],
        };
        let plan = |mtu| Plan {
            sessions: vec![session(mtu)],
            ..Plan::default()
        };
        let mut notices = Notices::default();
        let hops = snapshot(resolved(1500));
        assert_eq!(notices.too_large(&hops, &plan(1472)), []);
        let found = notices.too_large(&hops, &plan(1473));
        assert_eq!(found, [(hop(2), 1473, 1472)]);
        assert_eq!(notices.too_large(&hops, &plan(1473)), []);
        notices.too_large(&Snapshot::default(), &plan(1473));
        assert!(notices.too_small.is_empty(), "no longer a next hop");
        let unknown = snapshot(Resolution::Unresolved(Reason::Resolving));
        assert_eq!(notices.too_large(&unknown, &plan(9000)), []);
    }
}
