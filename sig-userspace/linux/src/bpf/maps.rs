//! The maps of a gateway's programs, and what is written to them.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    os::fd::{AsRawFd as _, BorrowedFd},
};

use aya::{
    Pod,
    maps::{
        Array, HashMap, LpmTrie, MapData, MapError, PerCpuArray, ProgramArray, RingBuf, XskMap,
        lpm_trie::Key,
    },
};
use ipnet::IpNet;
use sig_common::{
    addr::IsdAs,
    maps::{
        self, Dropped, Ip, LanPort, LanRoute, QueueKey, RemoteKey, RemoteValue, Sockets, Stat,
        TrunkKey, TrunkPort, UnderlayPort,
    },
    reason::DropReason,
    wire::{ethernet, underlay::Local},
};

use super::srv6::SrPrograms;
use super::{
    Programs, errors,
    object::{Object, Program},
};
use crate::Error;

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
    next: ProgramArray<MapData>,
    trunks: HashMap<MapData, TrunkKey, TrunkPort>,
    trunk_programs: ProgramArray<MapData>,
    lan_v4: LpmTrie<MapData, [u8; 4], LanRoute>,
    lan_v6: LpmTrie<MapData, [u8; 16], LanRoute>,
    drops: PerCpuArray<MapData, u64>,
    stats: PerCpuArray<MapData, u64>,
    drops_wanted: Array<MapData, u32>,
    dropped: RingBuf<MapData>,
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
            next: object.map(maps::NEXT)?,
            trunks: object.map(maps::TRUNKS)?,
            trunk_programs: object.map(maps::TRUNK_PROGRAMS)?,
            lan_v4: object.map(maps::LAN_V4)?,
            lan_v6: object.map(maps::LAN_V6)?,
            drops: object.map(maps::DROPS)?,
            stats: object.map(maps::STATS)?,
            drops_wanted: object.map(maps::DROPS_WANTED)?,
            dropped: object.map(maps::DROPPED)?,
            underlay_now: BTreeMap::new(),
            underlay_flags: 0,
            sources_now: BTreeMap::new(),
            remotes_now: BTreeMap::new(),
            lan_routes_now: BTreeMap::new(),
        })
    }

    /// Tells `sig_trunk` what to go on with.
    pub(super) fn set_trunk_programs(&mut self, object: &mut Object) -> Result<(), Error> {
        for (place, program) in [
            (TrunkPort::UNDERLAY, Program::Underlay),
            (TrunkPort::LAN, Program::Lan),
        ] {
            let fd = object.program_fd(program)?;
            self.trunk_programs
                .set(place, &fd, 0)
                .map_err(|e| errors::of_map("chain the programs of trunks".into(), e))?;
        }
        Ok(())
    }

    fn put_underlay_port(&mut self, ifindex: u32, port: UnderlayPort) -> Result<(), Error> {
        put(&mut self.local, ifindex, port, || {
            "set the underlay endpoint".into()
        })?;
        self.underlay_now.insert(ifindex, port);
        Ok(())
    }

    fn check_sources(&mut self, check: bool) -> Result<(), Error> {
        let flags = if check { UnderlayPort::CHECK_SOURCE } else { 0 };
        self.underlay_flags = flags;
        for (ifindex, port) in self.underlay_now.clone() {
            let flags = port.flags & !UnderlayPort::CHECK_SOURCE | flags;
            if port.flags != flags {
                self.put_underlay_port(ifindex, UnderlayPort { flags, ..port })?;
            }
        }
        Ok(())
    }
}

impl Programs {
    /// Sets our endpoint on the underlay device `ifindex`, which has the address `mac`. Frames to any other MAC
    /// address are left to the kernel. Sources are checked as on the other underlay devices.
    ///
    /// # Errors
    /// Too many devices.
    pub fn set_underlay_port(
        &mut self,
        ifindex: u32,
        local: &Local,
        mac: [u8; 6],
    ) -> Result<(), Error> {
        let port = UnderlayPort {
            local: *local,
            mac,
            flags: self.maps.underlay_flags,
        };
        self.maps.put_underlay_port(ifindex, port)
    }

    /// The underlay device `ifindex` has another MAC address now. Nothing happens if it is none.
    ///
    /// # Errors
    /// The kernel does not let us write.
    pub fn set_underlay_mac(&mut self, ifindex: u32, mac: [u8; 6]) -> Result<(), Error> {
        match self.maps.underlay_now.get(&ifindex) {
            Some(port) => {
                let port = UnderlayPort { mac, ..*port };
                self.maps.put_underlay_port(ifindex, port)
            }
            None => Ok(()),
        }
    }

    /// Makes these the underlay addresses that may bring frames of remotes, beside internal hosts that send frames
    /// of their own; `None`: whoever likes. Only differences are written.
    ///
    /// # Errors
    /// Too many prefixes. What was written before the error stays.
    pub fn set_sources(
        &mut self,
        sources: Option<impl IntoIterator<Item = IpNet>>,
    ) -> Result<(), Error> {
        // Whether sources are checked is part of each port: it begins when all of them are there, and ends before any
        // goes.
        let is_checked = sources.is_some();
        if !is_checked {
            self.maps.check_sources(false)?;
        }
        let sources = sources.into_iter().flatten();
        let wanted = sources.map(|net| (net.trunc(), 1)).collect();
        let map = &mut self.maps.sources;
        synchronize(&mut self.maps.sources_now, &wanted, |net, value| {
            let mapped = if net.addr().is_ipv4() { 96 } else { 0 };
            let Ip(address) = Ip::from(net.network());
            let key = Key::new(mapped + u32::from(net.prefix_len()), address);
            match value {
                Some(value) => map.insert(&key, value, 0),
                None => map.remove(&key),
            }
            .map_err(|e| errors::of_map(format!("set the underlay source {net}"), e))
        })?;
        if is_checked {
            self.maps.check_sources(true)?;
        }
        Ok(())
    }

    /// Underlay addresses whose frames were refused, the last one of each CPU; each once.
    ///
    /// # Errors
    /// The kernel does not let us read.
    pub fn refused_sources(&self) -> Result<Vec<IpAddr>, Error> {
        let refused = self.maps.refused.get(&0, 0);
        let values =
            refused.map_err(|e| errors::of_map("read refused underlay sources".into(), e))?;
        let mut sources: Vec<IpAddr> = values
            .iter()
            .filter(|ip| **ip != Ip([0; 16]))
            .map(|ip| IpAddr::from(*ip))
            .collect();
        sources.sort_unstable();
        sources.dedup();
        Ok(sources)
    }

    /// Sets the device `ifindex` to be a LAN port with the address `mac`. With `check_mac`, only frames to this
    /// address are taken. Packets longer than `mtu` bytes are left to the kernel.
    ///
    /// # Errors
    /// Too many devices.
    pub fn set_lan_port(
        &mut self,
        ifindex: u32,
        mac: [u8; 6],
        check_mac: bool,
        mtu: u32,
    ) -> Result<(), Error> {
        let before = self
            .maps
            .ports
            .get(&ifindex, 0)
            .map_or(0, |port| port.flags);
        let check = if check_mac { LanPort::CHECK_MAC } else { 0 };
        let port = LanPort {
            mac,
            flags: before & !LanPort::CHECK_MAC | check,
            max_len: mtu.saturating_add(ethernet::HEADER_LEN as u32),
        };
        let doing = || "set the LAN port".into();
        put(&mut self.maps.ports, ifindex, port, doing)
    }

    /// Forgets the LAN port `ifindex` with its `queues` receive queues: nothing is taken from there any more.
    ///
    /// # Errors
    /// The kernel does not let us write.
    pub fn remove_lan_port(&mut self, ifindex: u32, queues: u32) -> Result<(), Error> {
        for queue in 0..queues {
            let key = QueueKey {
                port: ifindex,
                queue,
            };
            remove(&mut self.maps.steering, &key, || {
                "remove the sockets of a receive queue".into()
            })?;
        }
        remove(&mut self.maps.ports, &ifindex, || {
            "remove a LAN port".into()
        })
    }

    /// Lets simple packets that come in through these devices take the fast path: an underlay device, or LAN ports, whose hosts may leave
    /// transport checksums to their network card if so said.
    ///
    /// # Errors
    /// The kernel does not let us write.
    pub fn set_fast(&mut self, ifindex: u32, partial_checksums: bool) -> Result<(), Error> {
        if let Some(port) = self.maps.underlay_now.get(&ifindex) {
            let flags = port.flags | UnderlayPort::FAST;
            self.maps
                .put_underlay_port(ifindex, UnderlayPort { flags, ..*port })?;
        }
        let doing = || "let packets of the LAN port take the fast path".into();
        if let Ok(port) = self.maps.ports.get(&ifindex, 0) {
            let partial = match partial_checksums {
                true => LanPort::PARTIAL_CHECKSUMS,
                false => 0,
            };
            let flags = port.flags | LanPort::FAST | partial;
            put(
                &mut self.maps.ports,
                ifindex,
                LanPort { flags, ..port },
                doing,
            )?;
        }
        Ok(())
    }

    /// Makes these the remote gateways whose frames are admitted: ISD-AS, host address and number. Only differences
    /// are written; the frames of a remote that stays are admitted all the time.
    ///
    /// # Errors
    /// Too many remotes. What was written before the error stays.
    pub fn set_remotes(
        &mut self,
        remotes: impl IntoIterator<Item = (IsdAs, IpAddr, u32)>,
    ) -> Result<(), Error> {
        let key = |isd_as, host: IpAddr| RemoteKey::new(isd_as, Ip::from(host.to_canonical()));
        let remotes = remotes.into_iter();
        let wanted = remotes
            .map(|(isd_as, host, number)| (key(isd_as, host), number))
            .collect();
        let map = &mut self.maps.remotes;
        synchronize(
            &mut self.maps.remotes_now,
            &wanted,
            |key, number| match number {
                Some(number) => put(map, key, RemoteValue { number }, || {
                    "add a remote gateway".into()
                }),
                None => map
                    .remove(&key)
                    .map_err(|e| errors::of_map("remove a remote gateway".into(), e)),
            },
        )
    }

    /// Makes these the routes of packets from the LAN. Only differences are written. Host bits are ignored; of two
    /// routes to one prefix the last one counts.
    ///
    /// # Errors
    /// Too many prefixes. What was written before the error stays.
    pub fn set_lan_routes(
        &mut self,
        routes: impl IntoIterator<Item = (IpNet, LanRoute)>,
    ) -> Result<(), Error> {
        let routes = routes.into_iter();
        let wanted = routes
            .map(|(net, route)| (net.trunc(), route.action))
            .collect();
        let (v4, v6) = (&mut self.maps.lan_v4, &mut self.maps.lan_v6);
        synchronize(&mut self.maps.lan_routes_now, &wanted, |net, action| {
            let len = u32::from(net.prefix_len());
            let route = action.map(|action| LanRoute { action });
            match net {
                IpNet::V4(net) => set_route(v4, &Key::new(len, net.network().octets()), route),
                IpNet::V6(net) => set_route(v6, &Key::new(len, net.network().octets()), route),
            }
            .map_err(|e| errors::of_map(format!("set the LAN route {net}"), e))
        })
    }

    /// Sets which sockets take the packets of a receive queue. `port` is an interface index or
    /// [`TUNNEL_PORT`](sig_common::maps::TUNNEL_PORT). A count of 0 leaves the packets to the kernel.
    ///
    /// # Errors
    /// Too many queues.
    pub fn set_steering(&mut self, port: u32, queue: u32, sockets: Sockets) -> Result<(), Error> {
        let doing = || "set the sockets of a receive queue".into();
        let key = QueueKey { port, queue };
        put(&mut self.maps.steering, key, sockets, doing)
    }

    /// Has the program on a trunk take the frames of a VLAN, as if they had come in by the device with this index: its VLAN device. VLAN
    /// id 0 stands for frames in no VLAN, and the trunk itself. `None` leaves them to the kernel.
    ///
    /// # Errors
    /// Too many VLANs.
    pub fn set_vlan(
        &mut self,
        trunk: u32,
        vlan: u16,
        port: Option<TrunkPort>,
    ) -> Result<(), Error> {
        let key = TrunkKey {
            trunk,
            vlan: vlan.into(),
        };
        let map = &mut self.maps.trunks;
        let Some(port) = port else {
            return match map.remove(&key) {
                Err(e) if errors::errno(&e) != Some(libc::ENOENT) => {
                    Err(errors::of_map(format!("leave VLAN {vlan}"), e))
                }
                _ => Ok(()),
            };
        };
        put(map, key, port, || format!("take VLAN {vlan}"))
    }

    /// Puts an AF_XDP socket at an index of the table that [`Self::set_steering`] refers to. It vanishes from the
    /// table when it is closed.
    ///
    /// # Errors
    /// Index out of range, or not an AF_XDP socket with a receive ring.
    pub fn set_socket(&mut self, index: u32, socket: BorrowedFd<'_>) -> Result<(), Error> {
        self.maps
            .sockets
            .set(index, socket.as_raw_fd(), 0)
            .map_err(|e| errors::of_map(format!("set AF_XDP socket {index}"), e))
    }

    /// Has the SR node's program take what the program of LAN interfaces leaves to the kernel, or nobody.
    ///
    /// # Errors
    /// The kernel does not let us write.
    pub fn set_next(&mut self, node: Option<&SrPrograms>) -> Result<(), Error> {
        let next = &mut self.maps.next;
        let done = match node {
            Some(node) => next.set(0, node.entry(), 0),
            None => match next.clear_index(&0) {
                Err(e) if errors::errno(&e) == Some(libc::ENOENT) => Ok(()),
                done => done,
            },
        };
        done.map_err(|e| errors::of_map("chain the programs".into(), e))
    }

    /// Reads how many packets had this verdict.
    ///
    /// # Errors
    /// The kernel does not let us read.
    pub fn stat(&self, stat: Stat) -> Result<u64, Error> {
        sum(&self.maps.stats, stat as u32)
    }

    /// Sets whether the programs copy what they drop, for [`Self::dropped`].
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn set_drops_wanted(&mut self, wanted: bool) -> Result<(), Error> {
        let set = self.maps.drops_wanted.set(0, u32::from(wanted), 0);
        set.map_err(|e| errors::of_map("ask for dropped packets".into(), e))
    }

    /// Hands over copies of dropped packets, the beginnings of their Ethernet frames, but not more than `limit`.
    pub fn dropped(&mut self, limit: usize, mut take: impl FnMut(&Dropped, &[u8])) {
        for _ in 0..limit {
            let Some(item) = self.maps.dropped.next() else {
                return;
            };
            if let Some((head, packet)) = item.split_first_chunk::<{ size_of::<Dropped>() }>() {
                // SAFETY: numbers: any bits are a value.
                let head: Dropped = unsafe { head.as_ptr().cast::<Dropped>().read_unaligned() };
                take(&head, packet);
            }
        }
    }

    /// Reads the counters of all programs, summed over the CPUs.
    ///
    /// # Errors
    /// The kernel does not let us read.
    pub fn counters(&self) -> Result<Counters, Error> {
        Ok(Counters {
            drops: sums(&self.maps.drops)?,
            stats: sums(&self.maps.stats)?,
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

/// Removes an entry, if it is there.
fn remove<K: Pod, V: Pod>(
    map: &mut HashMap<MapData, K, V>,
    key: &K,
    doing: impl FnOnce() -> String,
) -> Result<(), Error> {
    match map.remove(key) {
        Err(e) if errors::errno(&e) == Some(libc::ENOENT) => Ok(()),
        done => done.map_err(|e| errors::of_map(doing(), e)),
    }
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

fn sum(map: &PerCpuArray<MapData, u64>, index: u32) -> Result<u64, Error> {
    let values = map
        .get(&index, 0)
        .map_err(|e| errors::of_map("read BPF counters".into(), e))?;
    Ok(values.iter().fold(0, |a: u64, b| a.wrapping_add(*b)))
}

fn sums<const N: usize>(map: &PerCpuArray<MapData, u64>) -> Result<[u64; N], Error> {
    let mut sums = [0; N];
    for (index, value) in (0..).zip(&mut sums) {
        *value = sum(map, index)?;
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
