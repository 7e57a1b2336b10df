//! Which AS a prefix leads to that several announce.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    time::{Duration, Instant},
};

use ipnet::IpNet;
use sig_common::addr::IsdAs;

use super::{Now, remote_as::RemoteAs};

/// The AS of each prefix.
pub(super) type Owners = BTreeMap<IpNet, IsdAs>;

/// Since when ASes that do not have a prefix could have it: they announce it, and have a session.
pub(super) type Waiting = BTreeMap<(IpNet, IsdAs), Instant>;

/// What speaks for an AS, the most important first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Claim {
    /// It has a session over which packets can be sent.
    is_alive: bool,
    /// It has the prefix already, or could have had it for long enough to take it over.
    is_settled: bool,
    /// As with the reference, of equals the highest wins.
    isd_as: IsdAs,
}

/// Prefixes with the AS that announces them, or has them by the traffic policy, once for each gateway that
/// leads there; and whether that can be sent to.
fn offers(remote: &RemoteAs) -> impl Iterator<Item = (bool, &IpNet)> {
    remote.gateways.iter().flat_map(|gateway| {
        let is_alive = gateway.is_usable();
        let prefixes = remote.static_prefixes.iter().chain(&gateway.accepted);
        prefixes.map(move |prefix| (is_alive, prefix))
    })
}

/// The owners as of now; `before` are those of the last plan.
pub(super) fn find(
    ases: &BTreeMap<IsdAs, RemoteAs>,
    before: &Owners,
    waiting: &mut Waiting,
    now: Now,
    switch_delay: Duration,
) -> Owners {
    let mut claims: BTreeMap<IpNet, Claim> = BTreeMap::new();
    for (isd_as, remote) in ases {
        for (is_alive, prefix) in offers(remote) {
            let has_waited = || {
                let since = waiting.get(&(*prefix, *isd_as));
                since.is_some_and(|since| now.monotonic >= *since + switch_delay)
            };
            let claim = Claim {
                is_alive,
                is_settled: before.get(prefix) == Some(isd_as) || has_waited(),
                isd_as: *isd_as,
            };
            match claims.entry(*prefix) {
                Entry::Vacant(entry) => {
                    entry.insert(claim);
                }
                Entry::Occupied(mut entry) => {
                    let best = claim.max(*entry.get());
                    entry.insert(best);
                }
            }
        }
    }
    let owners = claims.into_iter();
    let owners: Owners = owners
        .map(|(prefix, claim)| (prefix, claim.isd_as))
        .collect();
    let waited = std::mem::take(waiting);
    for (isd_as, remote) in ases {
        let alive = offers(remote).filter(|(is_alive, _)| *is_alive);
        for (_, prefix) in alive.filter(|(_, prefix)| owners.get(prefix) != Some(isd_as)) {
            let key = (*prefix, *isd_as);
            let since = waited.get(&key).copied();
            waiting.insert(key, since.unwrap_or(now.monotonic));
        }
    }
    owners
}

/// Logs which prefixes go over to another AS.
pub(super) fn log_moves(before: &Owners, now: &Owners) {
    let mut moves: BTreeMap<(IsdAs, IsdAs), (IpNet, usize)> = BTreeMap::new();
    for (prefix, to) in now {
        if let Some(from) = before.get(prefix).filter(|from| *from != to) {
            moves.entry((*from, *to)).or_insert((*prefix, 0)).1 += 1;
        }
    }
    for ((from, to), (prefix, count)) in moves {
        tracing::info!(%from, %to, %prefix, count, "prefixes announced by both ASes now go to another AS");
    }
}

/// Prefixes of several ASes: the owner, then the others.
pub(super) fn contested(
    ases: &BTreeMap<IsdAs, RemoteAs>,
    owners: &Owners,
) -> Vec<(IpNet, IsdAs, Vec<IsdAs>)> {
    let mut others: BTreeMap<IpNet, Vec<IsdAs>> = BTreeMap::new();
    for (isd_as, remote) in ases {
        for (_, prefix) in offers(remote) {
            let is_other = owners.get(prefix).is_some_and(|owner| owner != isd_as);
            if is_other {
                let others = others.entry(*prefix).or_default();
                if others.last() != Some(isd_as) {
                    others.push(*isd_as);
                }
            }
        }
    }
    let contested = others.into_iter();
    contested
        .filter_map(|(prefix, others)| Some((prefix, *owners.get(&prefix)?, others)))
        .collect()
}
