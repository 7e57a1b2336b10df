//! What is told to the gateways that ask for prefixes.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
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
    requests: Mutex<BTreeMap<IsdAs, u64>>,
}

impl Prefixes {
    pub(super) fn new(local: IsdAs, routing: RoutingPolicy) -> Self {
        Prefixes {
            local,
            routing: ArcSwap::from_pointee(routing),
            requests: Mutex::default(),
        }
    }

    pub(super) fn set_policy(&self, routing: RoutingPolicy) {
        self.routing.store(routing.into());
    }

    pub(super) fn policy(&self) -> Arc<RoutingPolicy> {
        self.routing.load_full()
    }

    /// Who has asked, and what they are told.
    pub(super) fn told(&self) -> Vec<Advertised> {
        let routing = self.routing.load();
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        requests
            .iter()
            .map(|(caller, requests)| Advertised {
                isd_as: caller.to_string(),
                prefixes: routing.advertised(self.local, *caller),
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
        self.routing.load().advertised(self.local, caller)
    }
}
