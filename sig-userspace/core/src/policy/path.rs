//! Path policies: which paths are used, as in the reference.

mod acl;
mod hop;
mod print;
pub(super) mod read;
mod sequence;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use sig_common::addr::IsdAs;

use crate::scion::Path;

pub use acl::{Acl, AclEntry};
pub use hop::{HopPredicate, Interfaces};
pub use sequence::Sequence;

/// How much a path is wanted; only those with the highest weight among the usable ones are used.
pub type Weight = u32;

/// Which paths are used. The default is every path. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathPolicy {
    /// The ASes that paths start in; `None` for any.
    pub local: Option<Arc<[IsdAs]>>,
    /// The ASes that paths end in, by the first rule that matches; `None` for any.
    pub remote: Option<Arc<[RemoteRule]>>,
    /// What paths may go through.
    pub acl: Option<Arc<Acl>>,
    /// The hops that they have to consist of.
    pub sequence: Option<Arc<Sequence>>,
    /// Unless empty: policies of which a path has to comply with one. What the policies of options
    /// themselves weigh does not count.
    pub options: Arc<[WeightedPolicy]>,
}

/// Says of an AS whether paths may end in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteRule {
    /// The AS; 0 as ISD or AS number stands for any.
    pub isd_as: IsdAs,
    /// Whether they may not.
    pub reject: bool,
}

/// An option of a [`PathPolicy`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WeightedPolicy {
    /// Weight of the paths that comply.
    pub weight: Weight,
    /// What they comply with.
    pub policy: Arc<PathPolicy>,
}

impl PathPolicy {
    /// The weight of a path that complies, `None` for one that does not. It is that of the heaviest
    /// option that the path complies with; 0 without options.
    ///
    /// Of a path without known interfaces nothing can be said about where it starts and ends: it
    /// does not comply if that matters. Sequences and lists take it for a path without hops.
    #[must_use]
    pub fn evaluate(&self, path: &Path) -> Option<Weight> {
        let complies = self.admits_ends(path)
            && self.acl.as_ref().is_none_or(|acl| acl.allows(path))
            && self.sequence.as_ref().is_none_or(|hops| hops.matches(path));
        if !complies {
            return None;
        }
        if self.options.is_empty() {
            return Some(0);
        }
        self.options
            .iter()
            .filter(|option| option.policy.evaluate(path).is_some())
            .map(|option| option.weight)
            .max()
    }

    fn admits_ends(&self, path: &Path) -> bool {
        let ends = path.interfaces.first().zip(path.interfaces.last());
        let ends = ends.map(|(first, last)| (first.isd_as, last.isd_as));
        let local = self.local.as_ref().is_none_or(|allowed| {
            ends.is_some_and(|(from, to)| from != to && allowed.contains(&from))
        });
        let remote = self.remote.as_ref().is_none_or(|rules| {
            ends.is_some_and(|(_, to)| {
                let mut rules = rules.iter();
                rules
                    .find(|rule| hop::matches_as(rule.isd_as, to))
                    .is_some_and(|rule| !rule.reject)
            })
        });
        local && remote
    }

    /// Takes over from `base` what this policy does not say itself.
    pub(super) fn extend(&mut self, base: &Self) {
        self.local = self.local.take().or_else(|| base.local.clone());
        self.remote = self.remote.take().or_else(|| base.remote.clone());
        self.acl = self.acl.take().or_else(|| base.acl.clone());
        self.sequence = self.sequence.take().or_else(|| base.sequence.clone());
        if self.options.is_empty() {
            self.options = Arc::clone(&base.options);
        }
    }
}
