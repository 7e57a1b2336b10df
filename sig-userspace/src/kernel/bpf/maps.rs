//! The maps of a gateway's programs.

use std::{collections::BTreeMap, net::IpAddr, os::fd::RawFd};

use aya::{
    Pod,
    maps::{HashMap, LpmTrie, MapData, MapError, PerCpuArray, XskMap, lpm_trie::Key},
};
use ipnet::IpNet;
use sig_common::{
    maps::{
        self, Ip, LanPort, LanRoute, QueueKey, RemoteKey, RemoteValue, Sockets, Stat, UnderlayPort,
    },
    reason::DropReason,
};

use super::{errors, object::Object};
use crate::kernel::Error;

/// What the programs counted, summed over the CPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counters {
    drops: [u64; DropReason::COUNT],
    stats: [u64; Stat::COUNT],
}

impl Counters {
    /// Packets dropped for this reason.
    #[must_use]
    pub const fn dropped(&self, reason: DropReason) -> u64 {
        self.drops[reason as usize]
    }

    /// Packets with this verdict.
    #[must_use]
    pub const fn stat(&self, stat: Stat) -> u64 {
        self.stats[stat as usize]
    }

    /// All reasons with their drops.
    pub fn drops(&self) -> impl Iterator<Item = (DropReason, u64)> {
        DropReason::ALL.into_iter().zip(self.drops)
    }

    /// All verdicts with their packets.
    pub fn stats(&self) -> impl Iterator<Item = (Stat, u64)> {
        Stat::ALL.into_iter().zip(self.stats)
    }
}

/// The maps, and what is in those that are written as differences.
pub(super) struct Maps {
    local: HashMap<MapData, u32, UnderlayPort>,
    sources: LpmTrie<MapData, [u8; 16], u32>,
    refused: PerCpuArray<MapData, Ip>,
    ports: HashMap<MapData, u32, LanPort>,
    remotes: HashMap<MapData, RemoteKey, RemoteValue>,
    steering: HashMap<MapData, QueueKey, Sockets>,
    sockets: XskMap<MapData>,
    lan_v4: LpmTrie<MapData, [u8; 4], LanRoute>,
    lan_v6: LpmTrie<MapData, [u8; 16], LanRoute>,
    drops: PerCpuArray<MapData, u64>,
    stats: PerCpuArray<MapData, u64>,
    underlay_now: BTreeMap<u32, UnderlayPort>,
    underlay_flags: u16,
    sources_now: BTreeMap<IpNet, u32>,
    remotes_now: BTreeMap<RemoteKey, u32>,
    lan_routes_now: BTreeMap<IpNet, u32>,
}

impl Maps {
    pub(super) fn take(object: &mut Object) -> Result<Self, Error> {
        Ok(Self {
            local: object.map(maps::LOCAL)?,
            sources: object.map(maps::SOURCES)?,
            refused: object.map(maps::REFUSED)?,
            ports: object.map(maps::PORTS)?,
            remotes: object.map(maps::REMOTES)?,
            steering: object.map(maps::STEERING)?,
            sockets: object.map(maps::XSKS)?,
            lan_v4: object.map(maps::LAN_V4)?,
            lan_v6: object.map(maps::LAN_V6)?,
            drops: object.map(maps::DROPS)?,
            stats: object.map(maps::STATS)?,
            underlay_now: BTreeMap::new(),
            underlay_flags: 0,
            sources_now: BTreeMap::new(),
            remotes_now: BTreeMap::new(),
            lan_routes_now: BTreeMap::new(),
        })
    }

    pub(super) fn set_underlay_port(
        &mut self,
        ifindex: u32,
        port: UnderlayPort,
    ) -> Result<(), Error> {
        put(&mut self.local, ifindex, port, || {
            "set the underlay endpoint".into()
        })?;
        self.underlay_now.insert(ifindex, port);
        Ok(())
    }

    /// Whether sources are checked is part of each port: it begins when all of them are there, and ends before any goes.
    pub(super) fn set_sources(
        &mut self,
        wanted: Option<&BTreeMap<IpNet, u32>>,
    ) -> Result<(), Error> {
        if wanted.is_none() {
            self.check_sources(false)?;
        }
        let map = &mut self.sources;
        let none = BTreeMap::new();
        synchronize(
            &mut self.sources_now,
            wanted.unwrap_or(&none),
            |net, value| {
                let mapped = if net.addr().is_ipv4() { 96 } else { 0 };
                let Ip(address) = Ip::from(net.network());
                let key = Key::new(mapped + u32::from(net.prefix_len()), address);
                match value {
                    Some(value) => map.insert(&key, value, 0),
                    None => map.remove(&key),
                }
                .map_err(|e| errors::of_map(format!("set the underlay source {net}"), e))
            },
        )?;
        if wanted.is_some() {
            self.check_sources(true)?;
        }
        Ok(())
    }

    fn check_sources(&mut self, check: bool) -> Result<(), Error> {
        let flags = if check { UnderlayPort::CHECK_SOURCE } else { 0 };
        self.underlay_flags = flags;
        let ports: Vec<_> = self
            .underlay_now
            .iter()
            .map(|(i, port)| (*i, *port))
            .collect();
        for (ifindex, port) in ports {
            if port.flags != flags {
                self.set_underlay_port(ifindex, UnderlayPort { flags, ..port })?;
            }
        }
        Ok(())
    }

    pub(super) fn refused_sources(&self) -> Result<Vec<IpAddr>, Error> {
        let values = self
            .refused
            .get(&0, 0)
            .map_err(|e| errors::of_map("read refused underlay sources".into(), e))?;
        let mut sources: Vec<IpAddr> = values
            .iter()
            .filter(|ip| **ip != Ip([0; 16]))
            .map(|ip| IpAddr::from(*ip))
            .collect();
        sources.sort_unstable();
        sources.dedup();
        Ok(sources)
    }

    /// Those of all underlay ports.
    pub(super) fn underlay_flags(&self) -> u16 {
        self.underlay_flags
    }

    pub(super) fn underlay_port(&self, ifindex: u32) -> Option<UnderlayPort> {
        self.underlay_now.get(&ifindex).copied()
    }

    pub(super) fn set_lan_port(&mut self, ifindex: u32, port: LanPort) -> Result<(), Error> {
        put(&mut self.ports, ifindex, port, || "set the LAN port".into())
    }

    pub(super) fn set_steering(&mut self, key: QueueKey, sockets: Sockets) -> Result<(), Error> {
        put(&mut self.steering, key, sockets, || {
            "set the sockets of a receive queue".into()
        })
    }

    pub(super) fn set_socket(&mut self, index: u32, socket: RawFd) -> Result<(), Error> {
        self.sockets
            .set(index, socket, 0)
            .map_err(|e| errors::of_map(format!("set AF_XDP socket {index}"), e))
    }

    pub(super) fn set_remotes(&mut self, wanted: &BTreeMap<RemoteKey, u32>) -> Result<(), Error> {
        let map = &mut self.remotes;
        synchronize(&mut self.remotes_now, wanted, |key, number| match number {
            Some(number) => put(map, key, RemoteValue { number }, || {
                "add a remote gateway".into()
            }),
            None => map
                .remove(&key)
                .map_err(|e| errors::of_map("remove a remote gateway".into(), e)),
        })
    }

    pub(super) fn set_lan_routes(&mut self, wanted: &BTreeMap<IpNet, u32>) -> Result<(), Error> {
        let (v4, v6) = (&mut self.lan_v4, &mut self.lan_v6);
        synchronize(&mut self.lan_routes_now, wanted, |net, action| {
            let len = u32::from(net.prefix_len());
            let route = action.map(|action| LanRoute { action });
            match net {
                IpNet::V4(net) => set_route(v4, &Key::new(len, net.network().octets()), route),
                IpNet::V6(net) => set_route(v6, &Key::new(len, net.network().octets()), route),
            }
            .map_err(|e| errors::of_map(format!("set the LAN route {net}"), e))
        })
    }

    pub(super) fn counters(&self) -> Result<Counters, Error> {
        Ok(Counters {
            drops: sums(&self.drops)?,
            stats: sums(&self.stats)?,
        })
    }
}

fn put<K: Pod, V: Pod>(
    map: &mut HashMap<MapData, K, V>,
    key: K,
    value: V,
    doing: impl FnOnce() -> String,
) -> Result<(), Error> {
    map.insert(key, value, 0)
        .map_err(|e| errors::of_map(doing(), e))
}

fn set_route<K: Pod>(
    map: &mut LpmTrie<MapData, K, LanRoute>,
    key: &Key<K>,
    route: Option<LanRoute>,
) -> Result<(), MapError> {
    match route {
        Some(route) => map.insert(key, route, 0),
        None => map.remove(key),
    }
}

/// Makes `now` equal to `wanted` by single steps: `Some` sets a value, `None` removes it. What is to come is set first,
/// so that a packet finds the old or the new, never a gap. Prefixes within others are after them in the order of keys:
/// they are set before and removed after these, so that exceptions are there all the time. `now` is true also after an
/// error.
fn synchronize<K: Ord + Copy>(
    now: &mut BTreeMap<K, u32>,
    wanted: &BTreeMap<K, u32>,
    mut step: impl FnMut(K, Option<u32>) -> Result<(), Error>,
) -> Result<(), Error> {
    for (&key, &value) in wanted.iter().rev() {
        if now.get(&key) != Some(&value) {
            step(key, Some(value))?;
            now.insert(key, value);
        }
    }
    let gone: Vec<K> = now
        .keys()
        .filter(|key| !wanted.contains_key(key))
        .copied()
        .collect();
    for key in gone {
        step(key, None)?;
        now.remove(&key);
    }
    Ok(())
}

fn sums<const N: usize>(map: &PerCpuArray<MapData, u64>) -> Result<[u64; N], Error> {
    let mut sums = [0; N];
    for (index, sum) in (0..).zip(&mut sums) {
        let values = map
            .get(&index, 0)
            .map_err(|e| errors::of_map("read BPF counters".into(), e))?;
        *sum = values.iter().fold(0, |a: u64, b| a.wrapping_add(*b));
    }
    Ok(sums)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_differences_are_written_and_additions_come_first() {
        let mut now = BTreeMap::from([(1, 10), (2, 20), (3, 30)]);
        let wanted = BTreeMap::from([(2, 20), (3, 31), (4, 40)]);
        let mut steps = Vec::new();
        synchronize(&mut now, &wanted, |key, value| {
            steps.push((key, value));
            Ok(())
        })
        .unwrap();
        assert_eq!(steps, [(4, Some(40)), (3, Some(31)), (1, None)]);
        assert_eq!(now, wanted);
    }

    #[test]
    fn prefixes_within_another_are_there_as_long_as_that_one() {
        let net = |text: &str| text.parse::<IpNet>().unwrap();
        let wanted = BTreeMap::from([
            (net("10.0.0.0/8"), 1),
            (net("10.0.0.0/16"), 0),
            (net("10.1.0.0/16"), 0),
        ]);
        let mut now = BTreeMap::new();
        let mut steps = Vec::new();
        for wanted in [&wanted, &BTreeMap::new()] {
            synchronize(&mut now, wanted, |key: IpNet, value| {
                steps.push((key.prefix_len(), value.is_some()));
                Ok(())
            })
            .unwrap();
        }
        let [added, removed] = [&steps[..3], &steps[3..]];
        assert_eq!(added, [(16, true), (16, true), (8, true)]);
        assert_eq!(removed, [(8, false), (16, false), (16, false)]);
    }

    #[test]
    fn after_an_error_only_what_is_missing_is_tried_again() {
        let mut now = BTreeMap::new();
        let wanted = BTreeMap::from([(1, 1), (2, 2)]);
        let full = || Error::Refused("full".into());
        let result = synchronize(&mut now, &wanted, |key, _| {
            if key == 1 { Err(full()) } else { Ok(()) }
        });
        assert!(result.is_err());
        let mut steps = Vec::new();
        synchronize(&mut now, &wanted, |key, _| {
            steps.push(key);
            Ok(())
        })
        .unwrap();
        assert_eq!(steps, [1]);
    }
}
