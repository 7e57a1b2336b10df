//! Keeps the workers' tables in step with the kernel.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use ipnet::IpNet;
use tokio::{
    sync::watch,
    time::{MissedTickBehavior, interval},
};

use super::{Shared, lock, notices::Notices};
use crate::control::{Environment, Neighbour, config::Config};
use sig_core::dataplane::icmp::Sources;
use sig_linux::{
    neighbours::{Resolution, Snapshot},
    networks::Networks,
};

/// How often flows are spread anew.
const REBALANCE: Duration = Duration::from_secs(1);

/// What the configuration says of the place of the gateway in its network.
pub(super) struct Place {
    prefixes: Vec<IpNet>,
    /// Indexes of the LAN interfaces that are there.
    lan: watch::Receiver<Vec<u32>>,
    /// Addresses for ICMP errors where no LAN interface has one.
    sources: Vec<IpAddr>,
}

impl Place {
    pub(super) fn new(config: &Config, lan: watch::Receiver<Vec<u32>>) -> Self {
        let v4 = config.tunnel.src_ipv4.map(IpAddr::V4);
        let v6 = config.tunnel.src_ipv6.map(IpAddr::V6);
        let sources = v4.into_iter().chain(v6);
        Place {
            prefixes: config.gateway.prefixes.clone(),
            lan,
            sources: sources.chain([config.gateway.data_addr.ip()]).collect(),
        }
    }

    /// See [`Environment::home`].
    pub(super) fn home(&self, networks: &Networks) -> Vec<IpNet> {
        let own = networks.own.keys().copied();
        own.chain(self.prefixes.iter().copied()).collect()
    }

    /// ICMP errors come from the LAN side where hosts know the gateway, or else from whatever address the
    /// configuration names.
    pub(super) fn icmp_sources(&self, networks: &Networks) -> Sources {
        let lan = self.lan.borrow();
        let addresses = || {
            let lan = lan.iter().filter_map(|index| networks.addresses.get(index));
            let lan = lan.flatten().map(IpNet::addr);
            lan.chain(self.sources.iter().copied())
        };
        Sources {
            v4: addresses().find_map(|address| match address {
                IpAddr::V4(v4) if !v4.is_link_local() => Some(v4),
                _ => None,
            }),
            v6: addresses().find_map(|address| match address {
                IpAddr::V6(v6) if !v6.is_unicast_link_local() => Some(v6),
                _ => None,
            }),
        }
    }
}

/// Gives the workers new tables whenever a next hop, the way to a host on the LAN, or a network of this host
/// changes.
pub(super) async fn follow(
    shared: Arc<Shared>,
    mut place: Place,
    mut environment: Environment,
    mut networks: watch::Receiver<Arc<Networks>>,
) {
    let mut hops = shared.hops.clone();
    let mut lan = shared.lan.clone();
    let mut notices = Notices::default();
    let mut rebalance = interval(REBALANCE);
    rebalance.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let snapshot = hops.borrow_and_update().clone();
        let neighbours = neighbours(&snapshot, shared.max_mtu);
        let mut changed = environment.neighbours != neighbours;
        if changed {
            log_changes(&snapshot, &environment.neighbours, &neighbours);
            environment.neighbours = neighbours;
        }
        if let Some(table) = lan
            .table()
            .filter(|table| !Arc::ptr_eq(&environment.lan, table))
        {
            environment.lan = table;
            changed = true;
        }
        if networks.has_changed().unwrap_or(false) {
            let networks = networks.borrow_and_update();
            environment.home = place.home(&networks);
            environment.icmp = place.icmp_sources(&networks);
            changed = true;
        }
        if changed {
            lock(&shared.engine).update(&environment);
        }
        {
            let engine = lock(&shared.engine);
            let planner = engine.planner();
            let is_static = planner.config().control.is_none();
            notices.look(
                Instant::now(),
                &snapshot,
                planner.current(),
                is_static,
                shared.choice.has_sockets,
            );
        }
        let followed = tokio::select! {
            result = hops.changed() => result.is_ok(),
            followed = lan.changed() => followed,
            result = networks.changed() => {
                // It is looked at above.
                networks.mark_changed();
                result.is_ok()
            }
            result = place.lan.changed() => {
                networks.mark_changed();
                result.is_ok()
            }
            _ = rebalance.tick() => {
                lock(&shared.engine).rebalance();
                true
            }
        };
        if !followed {
            return;
        }
    }
}

/// The next hops that can be reached, with packets that the buffers take.
fn neighbours(snapshot: &Snapshot, max_mtu: u32) -> HashMap<IpAddr, Neighbour> {
    snapshot
        .iter()
        .filter_map(|(hop, state)| {
            let resolved = state.resolved()?;
            let neighbour = Neighbour {
                interface_mac: resolved.interface_mac,
                mac: resolved.destination_mac,
                mtu: resolved.mtu.min(max_mtu) as usize,
            };
            Some((*hop, neighbour))
        })
        .collect()
}

fn log_changes(
    snapshot: &Snapshot,
    before: &HashMap<IpAddr, Neighbour>,
    now: &HashMap<IpAddr, Neighbour>,
) {
    for (hop, state) in snapshot.iter() {
        match (before.get(hop), now.get(hop)) {
            (None, Some(_)) => tracing::info!(next_hop = %hop, "next hop is reachable"),
            (Some(_), None) => {
                if let Resolution::Unresolved(reason) = state {
                    tracing::warn!(next_hop = %hop, "next hop is unreachable: {reason}");
                }
            }
            (Some(old), Some(new)) if old != new => {
                tracing::info!(next_hop = %hop, "link-layer address or MTU of the next hop changed");
            }
            _ => {}
        }
    }
}
