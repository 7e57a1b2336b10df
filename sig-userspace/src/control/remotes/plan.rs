//! The plan of the data plane, from the state of all remotes.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc, time::Duration};

use ipnet::IpNet;
use sig_common::addr::IsdAs;

use super::{
    Now, Remotes,
    owners::{self, Owners},
    remote_as::{RemoteAs, Session},
    sites::{self, Group},
};
use crate::control::plan::{self, Plan, SessionKey};
use sig_core::policy::{class::Condition, traffic::Fallback};

/// Which session carries a traffic class to a group of prefixes, and how often that has changed: by AS,
/// control addresses of the gateways in question, and policy.
pub(super) type Chains = BTreeMap<ChainKey, Chain>;

/// See [`Chains`].
pub(super) type ChainKey = (IsdAs, Vec<SocketAddr>, u32);

/// The session of a traffic class.
#[derive(Clone, Debug, Default)]
pub(super) struct Chain {
    /// Number in metrics.
    pub(super) id: u32,
    pub(super) current: Option<SessionKey>,
    pub(super) session_changes: u64,
    pub(super) state_changes: u64,
}

impl Remotes {
    /// The plan as of now.
    pub(super) fn make_plan(&mut self, now: Now) -> Plan {
        self.name_sessions();
        let mut plan = Plan {
            served: Some(self.own.served.clone()).filter(|served| !served.is_empty()),
            must_reach: self.must_reach.clone(),
            ..Plan::default()
        };
        let mut chains = Chains::new();
        let mut site_chains = Vec::new();
        let delay = self.settings.switch_delay;
        let owners = owners::find(&self.ases, &self.owners, &mut self.waiting, now, delay);
        owners::log_moves(&self.owners, &owners);
        for remote in self.ases.values() {
            let slots = add_gateways(&mut plan, remote, self.settings.data_addr.port());
            for group in groups(remote, &owners) {
                let (rules, keys) = rules(
                    remote,
                    &group,
                    &slots,
                    &self.chains,
                    &mut chains,
                    now,
                    delay,
                );
                site_chains.push(keys);
                let exported = rules.iter().any(|rule| rule.action != plan::Action::Drop);
                plan.sites.push(plan::Site {
                    isd_as: remote.isd_as,
                    prefixes: group.prefixes,
                    rules,
                    exported,
                });
            }
        }
        let mut next = self
            .chains
            .values()
            .map(|chain| chain.id)
            .max()
            .unwrap_or_default();
        for chain in chains.values_mut().filter(|chain| chain.id == 0) {
            next += 1;
            chain.id = next;
        }
        self.chains = chains;
        self.owners = owners;
        self.site_chains = site_chains;
        plan
    }

    /// Gives new sessions a key and a number: numbers differ among all sessions as long as 256 suffice, and
    /// always among those with one AS.
    fn name_sessions(&mut self) {
        let mut used = [0_u16; 256];
        let sessions = |remote: &RemoteAs| -> Vec<u8> {
            let sessions = remote.gateways.iter().flat_map(|gateway| &gateway.sessions);
            sessions.filter_map(|session| session.number).collect()
        };
        for number in self.ases.values().flat_map(sessions) {
            used[usize::from(number)] += 1;
        }
        for remote in self.ases.values_mut() {
            let mut here = sessions(remote);
            for session in remote
                .gateways
                .iter_mut()
                .flat_map(|gateway| &mut gateway.sessions)
            {
                if session.number.is_some() {
                    continue;
                }
                let free = (0..=u8::MAX)
                    .filter(|number| !here.contains(number))
                    .min_by_key(|number| used[usize::from(*number)]);
                let Some(number) = free else {
                    if !std::mem::replace(&mut session.is_known_unnumbered, true) {
                        tracing::warn!(
                            isd_as = %remote.isd_as,
                            policy = session.policy.name,
                            "out of session numbers: at most 256 sessions per remote AS"
                        );
                    }
                    continue;
                };
                used[usize::from(number)] += 1;
                here.push(number);
                session.number = Some(number);
                session.key = Some(Self::new_session_key(&mut self.next_session));
            }
        }
    }
}

/// Adds the gateways of an AS and their sessions; returns, per gateway and policy, the session's place.
fn add_gateways(plan: &mut Plan, remote: &RemoteAs, source_port: u16) -> Vec<Vec<Option<usize>>> {
    // Any gateway of the AS may send what any of its prefixes holds: which one does is its AS's choice.
    let mut accepted: Vec<IpNet> = remote.static_prefixes.clone();
    accepted.extend(remote.gateways.iter().flat_map(|gateway| &gateway.accepted));
    accepted.sort_unstable();
    accepted.dedup();
    let mut slots = Vec::with_capacity(remote.gateways.len());
    for gateway in &remote.gateways {
        let host = gateway.addresses.data.ip();
        let known = plan
            .gateways
            .iter()
            .position(|known| (known.isd_as, known.host) == (remote.isd_as, host));
        let (keyring, is_strict) = gateway.protection.receiving();
        if let Some(known) = known {
            // Others there may not protect their frames.
            plan.gateways[known].is_strict &= is_strict;
        }
        let place = known.unwrap_or_else(|| {
            plan.gateways.push(plan::Gateway {
                isd_as: remote.isd_as,
                host,
                accepted: accepted.clone(),
                keyring,
                is_strict,
            });
            plan.gateways.len() - 1
        });
        let mut of_gateway = Vec::with_capacity(gateway.sessions.len());
        for session in &gateway.sessions {
            let (Some(key), Some(number)) = (session.key, session.number) else {
                of_gateway.push(None);
                continue;
            };
            of_gateway.push(Some(plan.sessions.len()));
            plan.sessions.push(plan::Session {
                key,
                gateway: place,
                data_addr: gateway.addresses.data,
                number,
                policy_id: session.policy.id,
                paths: paths(session, source_port),
                keyring: gateway.protection.sending(),
            });
        }
        slots.push(of_gateway);
    }
    slots
}

fn paths(session: &Session, source_port: u16) -> Vec<plan::SessionPath> {
    let chosen = session.paths.iter();
    chosen
        .map(|state| plan::SessionPath {
            name: state.path.fingerprint.to_string()[..12].to_owned(),
            path: state.path.clone(),
            mtu: state.mtu,
            source_port,
            expired: false,
        })
        .collect()
}

/// The groups of prefixes of an AS, but for those that lead to another one.
fn groups(remote: &RemoteAs, owners: &Owners) -> Vec<Group> {
    let own = |prefixes: &[IpNet]| -> Vec<IpNet> {
        let is_own = |prefix: &&IpNet| owners.get(prefix) == Some(&remote.isd_as);
        prefixes.iter().filter(is_own).copied().collect()
    };
    let common = own(&remote.static_prefixes);
    let gateways = remote.gateways.iter();
    let learned: Vec<Vec<IpNet>> = gateways.map(|gateway| own(&gateway.accepted)).collect();
    let learned: Vec<&[IpNet]> = learned.iter().map(Vec::as_slice).collect();
    sites::group(&common, &learned)
}

fn rules(
    remote: &RemoteAs,
    group: &Group,
    slots: &[Vec<Option<usize>>],
    before: &Chains,
    chains: &mut Chains,
    now: Now,
    switch_delay: Duration,
) -> (Vec<plan::Rule>, Vec<ChainKey>) {
    let gateways: Vec<SocketAddr> = group
        .gateways
        .iter()
        .map(|gateway| remote.gateways[*gateway].addresses.control)
        .collect();
    let mut rules = Vec::with_capacity(remote.policies.len());
    let mut keys = Vec::with_capacity(remote.policies.len());
    for (place, policy) in remote.policies.iter().enumerate() {
        let key = (remote.isd_as, gateways.clone(), policy.id);
        let mut chain = before.get(&key).cloned().unwrap_or_default();
        let candidates = group
            .gateways
            .iter()
            .filter(|gateway| remote.gateways[**gateway].protection.may_send())
            .filter_map(|gateway| Some((*gateway, remote.gateways[*gateway].sessions.get(place)?)));
        if chain.current.is_none() {
            // There are more gateways, or fewer: what carries this class elsewhere goes on.
            let is_of_class = |((isd_as, _, id), _): &(&ChainKey, &Chain)| {
                (*isd_as, *id) == (remote.isd_as, policy.id)
            };
            let of_class = before.iter().filter(is_of_class);
            let in_use: Vec<_> = of_class.filter_map(|(_, chain)| chain.current).collect();
            let mut keys = candidates.clone().filter_map(|(_, session)| session.key);
            chain.current = keys.find(|key| in_use.contains(key));
        }
        let chosen = choose(candidates, chain.current, now, switch_delay);
        let current = chosen.and_then(|(_, session)| session.key);
        if current != chain.current {
            chain.session_changes += 1;
            chain.state_changes += u64::from(current.is_some() != chain.current.is_some());
            chain.current = current;
        }
        chains.insert(key.clone(), chain);
        keys.push(key);
        let session = chosen.and_then(|(gateway, _)| *slots.get(gateway)?.get(place)?);
        // Without a session, a class that falls back to the next ones leaves its packets to them.
        if session.is_some() || policy.fallback != Fallback::Next {
            let condition: &Arc<Condition> = &policy.condition;
            rules.push(plan::Rule {
                condition: condition.clone(),
                action: session.map_or(plan::Action::Drop, plan::Action::Session),
            });
        }
    }
    (rules, keys)
}

/// The session to use: the first usable one, except that the one in use stays until a better one has been up
/// for a while. Silent ones are left for others at once, and used if there are no others.
fn choose<'a>(
    candidates: impl Iterator<Item = (usize, &'a Session)> + Clone,
    current: Option<SessionKey>,
    now: Now,
    switch_delay: Duration,
) -> Option<(usize, &'a Session)> {
    let usable = candidates.filter(|(_, session)| session.is_usable());
    let in_use = usable
        .clone()
        .find(|(_, session)| current.is_some() && session.key == current);
    let mut answering = usable
        .clone()
        .filter(|(_, session)| !session.health.is_silent());
    match in_use {
        Some(in_use) if !in_use.1.health.is_silent() => answering
            .find(|(_, session)| {
                session.key == current || session.health.is_settled(now.monotonic, switch_delay)
            })
            .or(Some(in_use)),
        _ => answering
            .next()
            .or(in_use)
            .or_else(|| usable.clone().next()),
    }
}
