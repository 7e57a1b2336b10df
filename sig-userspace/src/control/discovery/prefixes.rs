//! What is told to the gateways that ask for prefixes.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use arc_swap::ArcSwap;
use ipnet::IpNet;
use sig_common::addr::IsdAs;

use sig_core::{policy::routing::RoutingPolicy, status::Advertised};

/// ASes whose questions are counted one by one; anybody can ask.
const CALLERS: usize = 1024;

/// The prefixes that the routing policy advertises.
#[derive(Debug)]
pub(super) struct Prefixes {
    local: IsdAs,
    routing: ArcSwap<RoutingPolicy>,
    /// Nobody is told any.
    draining: AtomicBool,
    requests: Mutex<BTreeMap<IsdAs, u64>>,
}

impl Prefixes {
    pub(super) fn new(local: IsdAs, routing: RoutingPolicy) -> Self {
        Prefixes {
            local,
            routing: ArcSwap::from_pointee(routing),
            draining: AtomicBool::new(false),
            requests: Mutex::default(),
        }
    }

    pub(super) fn set_policy(&self, routing: RoutingPolicy) {
        self.routing.store(routing.into());
    }

    /// Whether all are told that there are none.
    pub(super) fn set_draining(&self, draining: bool) {
        self.draining.store(draining, Ordering::Relaxed);
    }

    pub(super) fn policy(&self) -> Arc<RoutingPolicy> {
        self.routing.load_full()
    }

    /// Who has asked, and what they are told.
    pub(super) fn told(&self) -> Vec<Advertised> {
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        requests
            .iter()
            .map(|(caller, requests)| Advertised {
                isd_as: caller.to_string(),
                prefixes: self.for_caller(*caller),
                requests: *requests,
            })
            .collect()
    }

    /// The answer to a question.
    pub(super) fn answer(&self, caller: IsdAs) -> Vec<IpNet> {
        {
            let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
            if requests.len() < CALLERS || requests.contains_key(&caller) {
                *requests.entry(caller).or_default() += 1;
            }
        }
        self.for_caller(caller)
    }

    fn for_caller(&self, caller: IsdAs) -> Vec<IpNet> {
        match self.draining.load(Ordering::Relaxed) {
            true => Vec::new(),
            false => self.routing.load().advertised(self.local, caller),
        }
    }
}

#[cfg(test)]
mod tests {
    use sig_core::policy::routing;

    use super::*;

    #[test]
    fn a_gateway_that_drains_advertises_nothing() {
        let isd_as = |text: &str| text.parse::<IsdAs>().expect("an ISD-AS");
        let text = "advertise 1-ff00:0:110 0-0 192.168.10.0/24\n";
        let policy = routing::check(text, "policy").expect("a policy");
        let prefixes = Prefixes::new(isd_as("1-ff00:0:110"), policy.clone());
        let caller = isd_as("1-ff00:0:111");
        let count = || {
            (
                prefixes.answer(caller).len(),
                prefixes.told()[0].prefixes.len(),
            )
        };
        assert_eq!(count(), (1, 1));
        prefixes.set_draining(true);
        prefixes.set_policy(policy);
        assert_eq!(count(), (0, 0));
        prefixes.set_draining(false);
        assert_eq!(count(), (1, 1));
    }
}
