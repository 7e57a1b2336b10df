//! The way to each peer.

use std::{
    collections::{HashMap, hash_map::RandomState},
    hash::BuildHasher as _,
    mem,
    net::{Ipv6Addr, SocketAddr, SocketAddrV6},
    sync::Arc,
};

use super::Peer;
use crate::sockets::Via;

/// A peer and the way to it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Route {
    pub(super) peer: Peer,
    pub(super) via: Via,
}

/// The routes of the addresses that stand for peers in quinn. Bounded: when it is full, those that were not used for
/// longest are forgotten, which costs a retransmission of those that come back.
#[derive(Debug)]
pub(super) struct Routes {
    recent: HashMap<SocketAddr, Arc<Route>>,
    older: HashMap<SocketAddr, Arc<Route>>,
    half: usize,
    keys: [RandomState; 2],
}

impl Routes {
    pub(super) fn new(capacity: usize) -> Self {
        Routes {
            recent: HashMap::new(),
            older: HashMap::new(),
            half: (capacity / 2).max(1),
            keys: [RandomState::new(), RandomState::new()],
        }
    }

    /// Remembers the way that a datagram came, and returns the address that stands for its sender at the end of this
    /// way: a keyed hash of both, which nobody outside can make collide. To QUIC another way is another address. It
    /// follows its peer there when a packet from there is authentic, and a datagram with a forged source changes
    /// nothing. Port, flow information and scope say nothing, as QUIC's address validation tokens hold IP address and
    /// port only.
    pub(super) fn learn(&mut self, peer: Peer, via: Via) -> SocketAddr {
        let route = Route { peer, via };
        let [high, low] = self.keys.each_ref().map(|key| key.hash_one(&route));
        let ip = Ipv6Addr::from(u128::from(high) << 64 | u128::from(low));
        let address = SocketAddrV6::new(ip, 1, 0, 0).into();
        if self.get(address).is_none() {
            self.remember(address, Arc::new(route));
        }
        address
    }

    /// From now on, what is for the [`synthetic`](Peer::synthetic) address of this peer goes this way.
    pub(super) fn set(&mut self, peer: Peer, via: Via) {
        let address = peer.synthetic();
        if self.get(address).is_none_or(|known| known.via != via) {
            self.remember(address, Arc::new(Route { peer, via }));
        }
    }

    pub(super) fn get(&mut self, address: SocketAddr) -> Option<Arc<Route>> {
        if let Some(route) = self.recent.get(&address) {
            return Some(Arc::clone(route));
        }
        let route = self.older.remove(&address)?;
        self.remember(address, Arc::clone(&route));
        Some(route)
    }

    fn remember(&mut self, address: SocketAddr, route: Arc<Route>) {
        if self.recent.len() >= self.half && !self.recent.contains_key(&address) {
            self.older = mem::take(&mut self.recent);
        }
        self.recent.insert(address, route);
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

    fn way(routes: &mut Routes, address: SocketAddr) -> Option<Via> {
        routes.get(address).map(|route| route.via.clone())
    }

    #[test]
    fn the_last_chosen_way_counts() {
        let mut routes = Routes::new(8);
        let address = peer(1).synthetic();
        assert_eq!(routes.get(address), None);
        routes.set(peer(1), via(1));
        routes.set(peer(1), via(2));
        assert_eq!(way(&mut routes, address), Some(via(2)));
    }

    #[test]
    fn a_learned_way_leaves_the_others_of_its_peer_alone() {
        let mut routes = Routes::new(8);
        let first = routes.learn(peer(1), via(1));
        let second = routes.learn(peer(1), via(2));
        assert_ne!(first, second);
        assert_ne!(first, routes.learn(peer(2), via(1)));
        assert_eq!(first, routes.learn(peer(1), via(1)));
        assert_eq!(way(&mut routes, first), Some(via(1)));
        assert_eq!(way(&mut routes, second), Some(via(2)));
    }

    #[test]
    fn a_flood_of_peers_takes_bounded_memory_and_spares_those_in_use() {
        let mut routes = Routes::new(100);
        let used = routes.learn(peer(0), via(0));
        let forgotten = routes.learn(peer(1), via(1));
        for port in 2..10_000 {
            routes.learn(peer(port), via(port));
            assert!(routes.recent.len() + routes.older.len() <= 100);
            assert!(routes.get(used).is_some());
        }
        assert_eq!(routes.get(forgotten), None);
    }
}
