//! Where decapsulated packets go without the kernel's help.
//!
//! A copy of what the kernel knows: routes to the prefixes served here, and neighbours on the LAN
//! ports. It need not be complete: what it does not know is left to the kernel.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::IpAddr,
};

use ipnet::IpNet;
use sig_common::wire::{inner::InnerPacket, ipv4};

use super::{lpm::Lpm, mark::Mark};

/// What is known of the LANs, as a [`LanTable`] is made from it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LanFacts {
    /// Destinations that are the kernel's whatever the routes say, as its own addresses are.
    pub local: BTreeSet<IpNet>,
    /// Routes; the longest prefix counts.
    pub routes: BTreeMap<IpNet, LanRoute>,
    /// Neighbours by LAN port and address.
    pub neighbours: BTreeMap<(u16, IpAddr), LanNeighbour>,
}

/// What becomes of packets to the destinations of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LanRoute {
    /// The kernel decides.
    Kernel,
    /// They go to the destination itself, on LAN port number `port`.
    OnLink {
        /// Place of the interface among the LAN interfaces.
        port: u16,
    },
    /// They go to a router on LAN port number `port`.
    Gateway {
        /// Place of the interface among the LAN interfaces.
        port: u16,
        /// Address of the router.
        address: IpAddr,
    },
}

/// How a neighbour is addressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LanNeighbour {
    /// Its MAC address.
    pub mac: [u8; 6],
    /// MAC address of the LAN interface.
    pub interface_mac: [u8; 6],
    /// Longest IP packet that the interface takes, bytes.
    pub mtu: u16,
}

/// Routes and neighbours for looking up.
#[derive(Debug, Default)]
pub struct LanTable {
    local: Lpm<()>,
    routes: Lpm<LanRoute>,
    /// Places in `hops`.
    neighbours: HashMap<(u16, IpAddr), u32>,
    hops: Vec<Hop>,
}

/// A neighbour as the workers use it.
#[derive(Debug)]
pub(super) struct Hop {
    /// Destination MAC, then source MAC.
    pub(super) macs: [u8; 12],
    pub(super) port: u16,
    mtu: u16,
    used: Mark,
}

impl LanTable {
    /// A table of these facts; no neighbour is marked as used.
    pub fn new(facts: &LanFacts) -> Self {
        let mut table = LanTable {
            local: facts.local.iter().map(|prefix| (*prefix, ())).collect(),
            routes: facts.routes.iter().map(|(net, way)| (*net, *way)).collect(),
            ..LanTable::default()
        };
        for (key, neighbour) in &facts.neighbours {
            let mut macs = [0; 12];
            macs[..6].copy_from_slice(&neighbour.mac);
            macs[6..].copy_from_slice(&neighbour.interface_mac);
            table.neighbours.insert(*key, table.hops.len() as u32);
            table.hops.push(Hop {
                macs,
                port: key.0,
                mtu: neighbour.mtu,
                used: Mark::default(),
            });
        }
        table
    }

    /// The place of the next hop to `destination`; `None` leaves its packets to the kernel.
    pub(super) fn find(&self, destination: IpAddr) -> Option<u32> {
        if self.local.get(destination).is_some() {
            return None;
        }
        let key = match *self.routes.get(destination)? {
            LanRoute::Kernel => return None,
            LanRoute::OnLink { port } => (port, destination),
            LanRoute::Gateway { port, address } => (port, address),
        };
        self.neighbours.get(&key).copied()
    }

    /// The next hop at a place that [`LanTable::find`] told.
    #[inline]
    pub(super) fn hop(&self, place: u32) -> Option<&Hop> {
        self.hops.get(place as usize)
    }

    /// The MAC address that packets to `destination` are sent to; `None` if they are left to the kernel.
    pub fn next_mac(&self, destination: IpAddr) -> Option<[u8; 6]> {
        let hop = self.hop(self.find(destination)?)?;
        hop.macs.first_chunk().copied()
    }

    /// Marks the next hop to `destination` as used, as sending a packet there does; whether there is
    /// one.
    pub fn mark_used(&self, destination: IpAddr) -> bool {
        let hop = self.find(destination).and_then(|place| self.hop(place));
        hop.inspect(|hop| hop.mark_used()).is_some()
    }

    /// The neighbours in the order of their places: LAN port and address, and how they are addressed.
    pub fn in_order(&self) -> Vec<((u16, IpAddr), LanNeighbour)> {
        let mut places: Vec<_> = self.neighbours.iter().collect();
        places.sort_unstable_by_key(|(_, place)| **place);
        let neighbour = |(key, place): (&(u16, IpAddr), &u32)| {
            let hop = self.hop(*place)?;
            let (mac, interface_mac) = hop.macs.split_first_chunk()?;
            let neighbour = LanNeighbour {
                mac: *mac,
                interface_mac: interface_mac.try_into().ok()?,
                mtu: hop.mtu,
            };
            Some((*key, neighbour))
        };
        places.into_iter().filter_map(neighbour).collect()
    }

    /// Number of neighbours that packets can be sent to.
    pub fn neighbours(&self) -> usize {
        self.hops.len()
    }

    /// The neighbours that packets were sent to since the last call. A mark that a worker sets at
    /// the same time may be told by the next.
    pub fn take_used(&self) -> Vec<(u16, IpAddr)> {
        let used = |place: &u32| self.hop(*place).is_some_and(|hop| hop.used.take());
        self.neighbours
            .iter()
            .filter(|(_, place)| used(place))
            .map(|(key, _)| *key)
            .collect()
    }
}

impl Hop {
    /// Whether nothing about the packet needs the kernel: it has hops left, no IPv4 options, and
    /// fits the link.
    #[inline]
    pub(super) fn takes(&self, packet: &InnerPacket) -> bool {
        let has_options =
            packet.source.is_ipv4() && usize::from(packet.header_len) != ipv4::HEADER_LEN;
        packet.ttl > 1 && !has_options && packet.total_len <= self.mtu
    }

    /// Tells the control plane that packets go here.
    #[inline]
    pub(super) fn mark_used(&self) {
        self.used.set();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(text: &str) -> IpNet {
        text.parse().expect("a prefix")
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn facts() -> LanFacts {
        let neighbour = |last| LanNeighbour {
            mac: [2, 0, 0, 0, 0, last],
            interface_mac: [9; 6],
            mtu: 1500,
        };
        LanFacts {
            local: [net("10.1.0.1/32"), net("10.1.0.255/32")].into(),
            routes: [
                (net("10.1.0.0/24"), LanRoute::OnLink { port: 0 }),
                (
                    net("10.1.0.0/16"),
                    LanRoute::Gateway {
                        port: 1,
                        address: ip("fd00::7"),
                    },
                ),
                (net("10.1.9.0/24"), LanRoute::Kernel),
            ]
            .into(),
            neighbours: [
                ((0, ip("10.1.0.1")), neighbour(1)),
                ((0, ip("10.1.0.5")), neighbour(5)),
                ((1, ip("10.1.0.6")), neighbour(6)),
                ((1, ip("fd00::7")), neighbour(7)),
            ]
            .into(),
        }
    }

    #[test]
    fn only_what_is_known_in_full_has_a_next_hop() {
        let table = LanTable::new(&facts());
        let last = |destination| {
            let place = table.find(ip(destination))?;
            table.hop(place).map(|hop| (hop.port, hop.macs[5]))
        };
        assert_eq!(last("10.1.0.5"), Some((0, 5)));
        assert_eq!(last("10.1.77.1"), Some((1, 7)), "through the router");
        assert_eq!(last("10.1.0.6"), None, "a neighbour on another port");
        assert_eq!(last("10.1.0.9"), None, "no such neighbour");
        assert_eq!(last("10.1.0.1"), None, "this host");
        assert_eq!(last("10.1.0.255"), None, "a broadcast address");
        assert_eq!(last("10.1.9.1"), None, "a route of the kernel's");
        assert_eq!(last("10.2.0.1"), None, "no route");
    }

    #[test]
    fn neighbours_in_use_are_told_once() {
        let table = LanTable::new(&facts());
        assert!(table.take_used().is_empty());
        let place = table.find(ip("10.1.0.5")).expect("known");
        let hop = table.hop(place).expect("there");
        hop.mark_used();
        hop.mark_used();
        assert_eq!(table.take_used(), [(0, ip("10.1.0.5"))]);
        assert!(table.take_used().is_empty());
    }
}
