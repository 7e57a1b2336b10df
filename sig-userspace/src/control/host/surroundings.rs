//! Keeps the workers' tables in step with the kernel.

use std::{collections::HashMap, net::IpAddr, sync::Arc, time::Duration};

use tokio::time::{MissedTickBehavior, interval};

use super::{Shared, lock};
use crate::{
    control::{Neighbour, Surroundings},
    kernel::neighbours::{Resolution, Snapshot},
};

/// How often flows are spread anew.
const REBALANCE: Duration = Duration::from_secs(1);

/// Gives the workers new tables whenever a next hop, or the way to a host on the LAN, changes.
pub(super) async fn follow(shared: Arc<Shared>, mut surroundings: Surroundings) {
    let mut hops = shared.hops.clone();
    let mut lan = shared.lan.clone();
    let mut rebalance = interval(REBALANCE);
    rebalance.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let snapshot = hops.borrow_and_update().clone();
        let neighbours = neighbours(&snapshot);
        let mut changed = surroundings.neighbours != neighbours;
        if changed {
            log_changes(&snapshot, &surroundings.neighbours, &neighbours);
            surroundings.neighbours = neighbours;
        }
        if let Some(table) = lan
            .table()
            .filter(|table| !Arc::ptr_eq(&surroundings.lan, table))
        {
            surroundings.lan = table;
            changed = true;
        }
        if changed {
            lock(&shared.gateway).update(&surroundings);
        }
        let followed = tokio::select! {
            result = hops.changed() => result.is_ok(),
            followed = lan.changed() => followed,
            _ = rebalance.tick() => {
                lock(&shared.gateway).rebalance();
                true
            }
        };
        if !followed {
            return;
        }
    }
}

/// The next hops that can be reached.
fn neighbours(snapshot: &Snapshot) -> HashMap<IpAddr, Neighbour> {
    snapshot
        .iter()
        .filter_map(|(hop, state)| {
            let resolved = state.resolved()?;
            let neighbour = Neighbour {
                interface_mac: resolved.interface_mac,
                mac: resolved.destination_mac,
                mtu: resolved.mtu as usize,
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
                    tracing::warn!(next_hop = %hop, "next hop is lost: {reason}");
                }
            }
            (Some(old), Some(new)) if old != new => {
                tracing::info!(next_hop = %hop, "link-layer address or MTU of the next hop changed");
            }
            _ => {}
        }
    }
}
