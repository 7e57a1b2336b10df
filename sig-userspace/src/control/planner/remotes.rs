//! Numbers and counters of remote gateways.

use std::{
    collections::{HashMap, VecDeque},
    net::IpAddr,
    sync::Arc,
};

use ipnet::IpNet;
use sig_common::addr::IsdAs;

use super::per_worker;
use crate::control::plan;
use sig_core::dataplane::{RemoteCounters, lpm::Lpm};

/// A remote gateway of the plan.
#[derive(Clone, Debug)]
pub struct PlannedRemote {
    /// Names it in the workers' memory and in the BPF maps, below the number of shares.
    pub number: u16,
    /// What was received from it, per worker.
    pub counters: Arc<[RemoteCounters]>,
    accepted: Vec<IpNet>,
    pub(super) accepted_table: Arc<Lpm<()>>,
}

/// All of the plan, and the numbers of those that were in earlier ones.
pub(super) struct Remotes {
    shares: usize,
    idle_ns: u64,
    /// In the order of the plan; `None`: refused.
    planned: Vec<Option<PlannedRemote>>,
    /// By ISD-AS and host, the place in `planned`.
    places: HashMap<(IsdAs, IpAddr), usize>,
    /// Numbers from here on were never given away.
    next: usize,
    /// Numbers that were given back, and when.
    released: VecDeque<(u64, u16)>,
}

impl Remotes {
    /// Nobody is known. Numbers are below `shares`; one that was given back is used again after `idle_ns`.
    pub(super) fn new(shares: usize, idle_ns: u64) -> Self {
        Remotes {
            shares,
            idle_ns,
            planned: Vec::new(),
            places: HashMap::new(),
            next: 0,
            released: VecDeque::new(),
        }
    }

    /// In the order of the plan; `None`: refused.
    pub(super) fn planned(&self) -> &[Option<PlannedRemote>] {
        &self.planned
    }

    /// Makes these the remotes. Those that stay keep number and counters.
    pub(super) fn set_gateways(&mut self, now: u64, gateways: &[plan::Gateway], workers: usize) {
        let mut old = std::mem::take(&mut self.planned);
        let mut places = HashMap::with_capacity(gateways.len());
        let mut kept: Vec<Option<PlannedRemote>> = vec![None; gateways.len()];
        for (place, gateway) in gateways.iter().enumerate() {
            let key = (gateway.isd_as, gateway.host);
            if places.contains_key(&key) {
                tracing::error!(isd_as = %gateway.isd_as, host = %gateway.host, "a remote gateway appears twice in the plan");
                continue;
            }
            places.insert(key, place);
            kept[place] = self.places.get(&key).and_then(|place| old[*place].take());
        }
        for gone in old.into_iter().flatten() {
            self.released.push_back((now, gone.number));
        }
        for (place, gateway) in gateways.iter().enumerate() {
            if places.get(&(gateway.isd_as, gateway.host)) != Some(&place) {
                continue;
            }
            let accepted = &gateway.accepted;
            match &mut kept[place] {
                Some(known) if known.accepted == *accepted => {}
                Some(known) => {
                    known.accepted_table = table(accepted);
                    known.accepted.clone_from(accepted);
                }
                empty => {
                    let Some(number) = self.number(now) else {
                        tracing::error!(
                            isd_as = %gateway.isd_as, host = %gateway.host, limit = self.shares,
                            "too many remote gateways: dropping frames from this one"
                        );
                        continue;
                    };
                    *empty = Some(PlannedRemote {
                        number,
                        counters: per_worker(workers),
                        accepted: accepted.clone(),
                        accepted_table: table(accepted),
                    });
                }
            }
        }
        (self.planned, self.places) = (kept, places);
    }

    /// A number that nobody has, nor had lately.
    fn number(&mut self, now: u64) -> Option<u16> {
        let rested = |(released, _): &(u64, u16)| now.saturating_sub(*released) >= self.idle_ns;
        if self.released.front().is_some_and(rested) {
            return self.released.pop_front().map(|(_, number)| number);
        }
        if self.next >= self.shares {
            return None;
        }
        self.next += 1;
        u16::try_from(self.next - 1).ok()
    }
}

fn table(prefixes: &[IpNet]) -> Arc<Lpm<()>> {
    Arc::new(prefixes.iter().map(|prefix| (*prefix, ())).collect())
}
