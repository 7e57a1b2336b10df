//! The way to each peer.

use std::{collections::HashMap, mem, sync::Arc};

use super::Peer;
use crate::sockets::Via;

/// The way to each peer that was heard of lately. Bounded: when it is full, those that were not used for longest are
/// forgotten, which costs a retransmission of those that come back.
#[derive(Debug)]
pub(super) struct Routes {
    recent: HashMap<Peer, Arc<Via>>,
    older: HashMap<Peer, Arc<Via>>,
    half: usize,
}

impl Routes {
    pub(super) fn new(capacity: usize) -> Self {
        Routes {
            recent: HashMap::new(),
            older: HashMap::new(),
            half: (capacity / 2).max(1),
        }
    }

    pub(super) fn set(&mut self, peer: Peer, via: Via) {
        if self.get(peer).is_none_or(|known| *known != via) {
            self.remember(peer, Arc::new(via));
        }
    }

    pub(super) fn get(&mut self, peer: Peer) -> Option<Arc<Via>> {
        if let Some(via) = self.recent.get(&peer) {
            return Some(Arc::clone(via));
        }
        let via = self.older.remove(&peer)?;
        self.remember(peer, Arc::clone(&via));
        Some(via)
    }

    fn remember(&mut self, peer: Peer, via: Arc<Via>) {
        if self.recent.len() >= self.half && !self.recent.contains_key(&peer) {
            self.older = mem::take(&mut self.recent);
        }
        self.recent.insert(peer, via);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(port: u16) -> Peer {
        Peer {
            isd_as: sig_common::addr::IsdAs(1),
            address: ([10, 0, 0, 1], port).into(),
        }
    }

    fn via(port: u16) -> Via {
        Via {
            path_type: 0,
            raw: Arc::default(),
            next_hop: ([10, 0, 0, 1], port).into(),
        }
    }

    #[test]
    fn the_last_way_counts() {
        let mut routes = Routes::new(8);
        assert_eq!(routes.get(peer(1)), None);
        routes.set(peer(1), via(1));
        routes.set(peer(1), via(2));
        assert_eq!(routes.get(peer(1)).as_deref(), Some(&via(2)));
    }

    #[test]
    fn a_flood_of_peers_takes_bounded_memory_and_spares_those_in_use() {
        let mut routes = Routes::new(100);
        routes.set(peer(0), via(0));
        for port in 1..10_000 {
            routes.set(peer(port), via(port));
            assert!(routes.recent.len() + routes.older.len() <= 100);
            assert!(routes.get(peer(0)).is_some());
        }
        assert_eq!(routes.get(peer(1)), None);
        assert!(routes.get(peer(9_999)).is_some());
    }
}
