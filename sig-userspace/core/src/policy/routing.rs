//! The IP routing policy: which prefixes are believed of whom, and which are told to whom.

mod parse;
mod print;

#[cfg(test)]
mod tests;

use std::net::IpAddr;

use ipnet::IpNet;
use sig_common::addr::IsdAs;

use super::prefix_set::PrefixSet;
use crate::document::prefix;

pub use parse::{check, read};

/// A routing policy, as the lines of its file. The default, without any rule, believes nothing and
/// says nothing, as the reference does without a file.
///
/// Displayed as the reference prints it: columns aligned, at least four spaces between them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RoutingPolicy {
    /// The rules in the order of the file. Lines that only hold a comment are not kept.
    pub rules: Vec<Rule>,
}

/// A line of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// What to do.
    pub action: Action,
    /// The ASes that announce the prefixes.
    pub from: IsdAsMatcher,
    /// The ASes that they are announced to.
    pub to: IsdAsMatcher,
    /// The prefixes.
    pub networks: Networks,
    /// Next hop of an advertised prefix; without effect, as in the reference.
    pub next_hop: Option<IpAddr>,
    /// Text behind the `#`; empty if there is none.
    pub comment: String,
}

/// What a rule does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Believe the announcement.
    Accept,
    /// Do not believe it.
    Reject,
    /// Announce.
    Advertise,
    /// Without effect, as in the reference.
    RedistributeBgp,
}

/// A set of ASes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IsdAsMatcher {
    /// The AS; 0 as ISD or AS number stands for any.
    pub isd_as: IsdAs,
    /// Whether all others are meant.
    pub negated: bool,
}

/// A set of addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Networks {
    /// The prefixes as written; bits beyond the length do not count.
    pub prefixes: Vec<IpNet>,
    /// Whether all other addresses are meant, of both versions.
    pub negated: bool,
}

/// What became of an announcement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Accepted {
    /// The believed addresses as the fewest prefixes: IPv4 before IPv6, ascending.
    pub prefixes: Vec<IpNet>,
    /// How many of the announced prefixes were believed, at least in part.
    pub accepted: usize,
    /// How many were not.
    pub rejected: usize,
}

impl RoutingPolicy {
    /// What the AS `from` is believed when it announces prefixes to the AS `local`.
    ///
    /// For each address the first accept or reject rule with matching ASes that covers it decides;
    /// an address without such a rule is rejected. So an announced prefix may be accepted in part.
    #[must_use]
    pub fn accept(&self, from: IsdAs, local: IsdAs, announced: &[IpNet]) -> Accepted {
        let believed = self.believed(from, local);
        let accepted = announced
            .iter()
            .filter(|prefix| believed.overlaps(prefix))
            .count();
        Accepted {
            prefixes: believed
                .intersection(&announced.iter().collect())
                .prefixes(),
            accepted,
            rejected: announced.len() - accepted,
        }
    }

    /// All addresses that `from` could announce to `local` and be believed.
    #[must_use]
    pub fn believed(&self, from: IsdAs, local: IsdAs) -> PrefixSet {
        let decides = |rule: &&Rule| {
            matches!(rule.action, Action::Accept | Action::Reject)
                && rule.from.matches(from)
                && rule.to.matches(local)
        };
        let rules: Vec<&Rule> = self.rules.iter().filter(decides).collect();
        // From the last rule to the first, so that earlier ones overrule. Neighbours with the same
        // action are applied at once: long lists are often one action.
        let runs = rules.chunk_by(|a, b| a.action == b.action).rev();
        runs.fold(PrefixSet::default(), |believed, run| {
            let covered = Networks::union(run.iter().map(|rule| &rule.networks));
            match run.first().map(|rule| rule.action) {
                Some(Action::Accept) => believed.union(&covered),
                _ => believed.difference(&covered),
            }
        })
    }

    /// Whether accept rules name all of `prefix` as parts of `whole`: their networks are smaller than `whole`.
    #[must_use]
    pub fn names_part(&self, from: IsdAs, local: IsdAs, prefix: &IpNet, whole: &IpNet) -> bool {
        let is_part = |network: &IpNet| whole.contains(network) && network.trunc() != whole.trunc();
        let rules = self.rules.iter().filter(|rule| {
            rule.action == Action::Accept
                && rule.from.matches(from)
                && rule.to.matches(local)
                && !rule.networks.negated
        });
        let networks = rules.flat_map(|rule| &rule.networks.prefixes);
        let named: PrefixSet = networks.filter(|network| is_part(network)).collect();
        let wanted: PrefixSet = [*prefix].iter().collect();
        is_part(prefix) && wanted.difference(&named).is_empty()
    }

    /// The prefixes that the AS `local` announces to the AS `to`: those of all advertise rules for
    /// them, in the order of the file. Rules with a negated list of prefixes announce nothing, as in
    /// the reference.
    #[must_use]
    pub fn advertised(&self, local: IsdAs, to: IsdAs) -> Vec<IpNet> {
        self.advertising(local)
            .filter(|rule| rule.to.matches(to))
            .flat_map(announced)
            .collect()
    }

    /// The prefixes that the AS `local` announces to anyone, each once, in the order of the file.
    #[must_use]
    pub fn all_advertised(&self, local: IsdAs) -> Vec<IpNet> {
        let mut known = std::collections::HashSet::new();
        self.advertising(local)
            .flat_map(announced)
            .filter(|prefix| known.insert(*prefix))
            .collect()
    }

    fn advertising(&self, local: IsdAs) -> impl Iterator<Item = &Rule> {
        self.rules.iter().filter(move |rule| {
            rule.action == Action::Advertise && rule.from.matches(local) && !rule.networks.negated
        })
    }
}

/// What an advertise rule announces: not what nothing is carried to.
fn announced(rule: &Rule) -> impl Iterator<Item = IpNet> {
    let prefixes = rule.networks.prefixes.iter().map(IpNet::trunc);
    prefixes.filter(|prefix| prefix::refused(prefix).is_none())
}

impl IsdAsMatcher {
    /// Whether an AS is meant.
    #[must_use]
    pub fn matches(&self, isd_as: IsdAs) -> bool {
        let (isd, asn) = (self.isd_as.isd(), self.isd_as.asn());
        let same = (isd == 0 || isd == isd_as.isd()) && (asn == 0 || asn == isd_as.asn());
        same != self.negated
    }
}

impl Networks {
    fn union<'a>(all: impl Iterator<Item = &'a Self> + Clone) -> PrefixSet {
        let plain = all.clone().filter(|networks| !networks.negated);
        let plain: PrefixSet = plain.flat_map(|networks| &networks.prefixes).collect();
        let negated = all.filter(|networks| networks.negated);
        negated.fold(plain, |union, networks| {
            let named: PrefixSet = networks.prefixes.iter().collect();
            union.union(&named.complement())
        })
    }
}
