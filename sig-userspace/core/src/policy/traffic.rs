//! The traffic policy: the ASes that traffic goes to, their prefixes, and which packets take which
//! paths.

mod read;

#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, sync::Arc};

use ipnet::IpNet;
use sig_common::addr::IsdAs;

use super::{
    class::Condition,
    path::{PathPolicy, Weight},
    performance::PerformancePolicy,
};
use crate::scion::Path;

pub use read::check;

/// A traffic policy; the default knows no remote AS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrafficPolicy {
    /// `ConfigVersion`; says nothing to the gateway.
    pub version: u64,
    /// The remote ASes.
    pub ases: BTreeMap<IsdAs, AsPolicy>,
}

/// What is wanted of one remote AS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AsPolicy {
    /// Prefixes that are reached there whatever its gateways announce, canonical.
    pub prefixes: Vec<IpNet>,
    /// What packets to it do, in the order of evaluation; at least one. A packet belongs to the
    /// first policy whose condition holds; one that belongs to none is dropped.
    pub policies: Vec<SessionPolicy>,
}

/// What the packets of one traffic class do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionPolicy {
    /// Place in the list, from 0. With the AS it names the policy, as in the reference.
    pub id: u32,
    /// What the file calls it, else the place in the list.
    pub name: String,
    /// The packets that it is for.
    pub condition: Arc<Condition>,
    /// The paths that they may take.
    pub path: Arc<PathPolicy>,
    /// Which of these paths are better; `None`: as the reference, fewer interfaces, then fingerprint.
    pub performance: Option<Arc<PerformancePolicy>>,
    /// How many paths are used at the same time, at least 1.
    pub path_count: u32,
    /// What happens while no path is usable.
    pub fallback: Fallback,
}

/// What happens to the packets of a policy while none of the paths that comply with its path policy
/// is usable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fallback {
    /// They are dropped, as in the reference.
    #[default]
    Drop,
    /// They go on to the later policies as if the condition did not hold.
    Next,
    /// The path policy is ignored: they take any usable path.
    AnyPath,
}

impl SessionPolicy {
    /// The one policy of an AS for which the file names none: everything, over any path.
    #[must_use]
    pub fn only(path_count: u32) -> Self {
        Self {
            id: 0,
            name: "default".to_owned(),
            condition: Arc::new(Condition::ALWAYS),
            path: Arc::default(),
            performance: None,
            path_count,
            fallback: Fallback::Drop,
        }
    }

    /// How much a path is wanted; `None` if it must not be used. Of the usable paths only those with
    /// the highest weight are used.
    ///
    /// A path that complies weighs one more than the path policy says, so that under
    /// [`Fallback::AnyPath`] one that does not comply can weigh less than all that do.
    #[must_use]
    pub fn weigh(&self, path: &Path) -> Option<Weight> {
        match self.path.evaluate(path) {
            Some(weight) => Some(weight.saturating_add(1)),
            None => (self.fallback == Fallback::AnyPath).then_some(0),
        }
    }
}
