//! Which AS a prefix leads to that several announce.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    time::Duration,
};

use ipnet::IpNet;
use sig_common::addr::IsdAs;

use super::{Now, remote_as::RemoteAs};

/// The AS of each prefix.
pub(super) type Owners = BTreeMap<IpNet, IsdAs>;

/// What speaks for an AS, the most important first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Claim {
    /// It has a session over which packets can be sent.
    is_alive: bool,
    /// It has the prefix already, or a session that has been up for long enough to take it over.
    is_settled: bool,
    /// As with the reference, of equals the highest wins.
    isd_as: IsdAs,
}

/// Prefixes with the AS that announces them, or has them by the traffic policy, once for each gateway that
/// leads there.
fn offers(remote: &RemoteAs) -> impl Iterator<Item = (usize, &IpNet)> {
    let gateways = remote.gateways.iter().enumerate();
    gateways.flat_map(|(place, gateway)| {
        let prefixes = remote.static_prefixes.iter().chain(&gateway.accepted);
        prefixes.map(move |prefix| (place, prefix))
    })
}

/// The owners as of now; `before` are those of the last plan.
pub(super) fn find(
    ases: &BTreeMap<IsdAs, RemoteAs>,
    before: &Owners,
    now: Now,
    switch_delay: Duration,
) -> Owners {
    let mut claims: BTreeMap<IpNet, Claim> = BTreeMap::new();
    for (isd_as, remote) in ases {
        let alive: Vec<(bool, bool)> = remote
            .gateways
            .iter()
            .map(|gateway| gateway.standing(now, switch_delay))
            .collect();
        for (gateway, prefix) in offers(remote) {
            let (is_alive, is_settled) = alive[gateway];
            let claim = Claim {
                is_alive,
                is_settled: is_settled || before.get(prefix) == Some(isd_as),
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
    owners
        .map(|(prefix, claim)| (prefix, claim.isd_as))
        .collect()
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
        tracing::info!(%from, %to, %prefix, count, "prefixes that both ASes have lead to another one now");
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
