//! The fast path follows the workers' tables: what the XDP programs need to repeat their decisions.

use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
    sync::{Arc, atomic::Ordering},
};

use sig_common::{
    fast_path::{self, FastPath, Hop, MAX_HEADERS, MAX_HOPS, MAX_PATHS, slot},
    wire::{flow::hash_of_key, inner::InnerPacket},
};

use super::{Error, Role, ports::PortFacts};
use crate::engine::{Device, InKernel};
use sig_core::{
    counter::Counter,
    dataplane::{
        Path, PathCounters, RemoteCounters, Session, Tables, Used,
        counters::Traffic,
        lan::{LanNeighbour, LanTable},
    },
    fast_path::{Shared, Words},
    status,
};
use sig_linux::{bpf::FastPathMaps, netdev};

/// The top bit of the stream ids on the wire: that of senders beside the workers.
const IN_KERNEL: u32 = 1 << 19;
/// Room that the driver must have in front of packets and that the kernel does not need for itself.
const MAX_HEADERS_WITH_ROOM: usize = 226;
const _: () = assert!(MAX_HEADERS_WITH_ROOM <= MAX_HEADERS);
/// Place of the underlay device among the outputs; those of the LANs follow.
const UNDERLAY: u16 = 0;
/// Small packets are better packed into frames by the workers when they are many: then waking a worker costs little, and each
/// frame that is saved spares two gateways and all routers between them their work. Packets per second of a path from which on that is
/// so, and the mean length up to which; measured, see docs/performance.md.
const PACKED_RATE: u64 = 150_000;
const PACKED_LEN: u64 = 400;
/// How long a path goes on to be packed when there is less, nanoseconds: a flow that changes between workers and fast path may
/// be reordered by losses on the way.
const PACKED_FOR_NS: u64 = 5_000_000_000;
/// How long workers may still send by old tables, nanoseconds.
const LEAVING_NS: u64 = 2_000_000_000;

/// Makes the XDP programs follow the tables.
pub(super) struct Follower {
    maps: FastPathMaps,
    /// By their place; `None`: no device is there now.
    outputs: Vec<Option<Output>>,
    /// Places that programs send to no more once the next tables are in force.
    emptied: Vec<u16>,
    generation: u16,
    /// Id of the next stream, without the top bit. They return after half a million streams, of which each path takes a few.
    next_stream: u32,
    /// By their [`Path::id`].
    paths: HashMap<u64, Known>,
    path_numbers: Numbers,
    hops: BTreeMap<(u16, IpAddr), (u32, Hop)>,
    hop_numbers: Numbers,
    remotes: HashMap<u16, Received>,
    /// What was sent on paths that have left.
    past: fast_path::Traffic,
    delivered_past: fast_path::Traffic,
    lan: Arc<LanTable>,
    /// What the programs had sent at the last look at the load, and when that was.
    load: (u64, u64),
    enabled: bool,
    now: u64,
}

/// A device that the programs may send through.
struct Output {
    device: Device,
    role: Role,
    works: bool,
    /// It sends packets in several buffers.
    buffers: bool,
}

impl Output {
    /// Looks whether the device takes packets from programs of others: a virtual one does only while the other end is ready
    /// for that. Whether there was a change.
    fn check(&mut self) -> bool {
        let (transmits, buffers) = match netdev::xdp_features(self.device.ifindex) {
            Ok(Some(features)) => (features.transmit(), features.transmit_fragments()),
            // Kernels before 6.3 do not tell; of a veth it depends on the other end.
            Ok(None) => (!self.device.is_veth, false),
            Err(_) => return false,
        };
        let works = self.device.native && transmits && !self.device.in_vlan;
        let changed = (works, buffers) != (self.works, self.buffers);
        (self.works, self.buffers) = (works, buffers);
        changed
    }

    /// Why nothing is sent through it, if that is so.
    fn problem(&self) -> Option<String> {
        if self.works {
            return None;
        }
        let interface = &self.device.interface;
        let what = match self.role {
            Role::Lan => "packets to hosts behind it",
            Role::Underlay | Role::Tunnel => "packets to remotes",
        };
        Some(match (self.device.native, self.device.in_vlan) {
            (false, _) => format!(
                "{interface}: {what} take the slower way, its XDP program is in generic mode"
            ),
            (true, true) => format!(
                "{interface}: {what} take the slower way, XDP programs do not send in VLANs"
            ),
            (true, false) => format!(
                "{interface}: {what} take the slower way, it does not transmit for XDP programs (of a veth pair, the other \
                 end must have GRO on: `ethtool -K DEVICE gro on`; if it is on already, off and on again while the device is up)"
            ),
        })
    }
}

struct Known {
    number: u32,
    value: FastPath,
    counters: Arc<[PathCounters]>,
    /// What the programs had sent on it under other numbers.
    before: fast_path::Traffic,
    /// Marks of the flows of its session, where these are spread.
    used: Option<Arc<Used>>,
    /// What was sent on it at the last look at the load, by whomever, and when that was.
    seen: (u64, fast_path::Traffic),
    /// Until when workers pack what is sent on it.
    packed_until: Option<u64>,
    /// Not in the tables any more.
    leaving: bool,
}

impl Known {
    /// Decides whether workers pack what is sent on it, given what was sent by now; whether that changed.
    fn choose_packing(&mut self, now: u64) -> bool {
        let sent = self.sent();
        let (since, before) = std::mem::replace(&mut self.seen, (now, sent));
        let traffic = minus(sent, before);
        let rate = u128::from(traffic.packets) * 1_000_000_000 / u128::from((now - since).max(1));
        let was_packed = self.packed_until.is_some();
        // Once packed, it takes half as much to stay so.
        let enough = u128::from(PACKED_RATE) >> u32::from(was_packed);
        if rate >= enough && traffic.bytes <= traffic.packets * PACKED_LEN {
            self.packed_until = Some(now + PACKED_FOR_NS);
        }
        self.packed_until = self.packed_until.filter(|until| now < *until);
        was_packed != self.packed_until.is_some()
    }

    /// What was sent on it, by workers and programs.
    fn sent(&self) -> fast_path::Traffic {
        let counters = self.counters.iter();
        let sent = counters.map(|counters| traffic(&counters.sent));
        sent.fold(fast_path::Traffic::default(), plus)
    }
}

struct Received {
    counters: Arc<[RemoteCounters]>,
    /// What had been counted under this number before.
    before: fast_path::Traffic,
}

/// Numbers below a bound; one that was given back is used again later.
struct Numbers {
    next: u32,
    end: u32,
    released: std::collections::VecDeque<(u64, u32)>,
}

impl Numbers {
    fn new(end: u32) -> Self {
        // 0 stands for none.
        Numbers {
            next: 1,
            end,
            released: Default::default(),
        }
    }

    fn take(&mut self, now: u64) -> Option<u32> {
        if self.next < self.end {
            self.next += 1;
            return Some(self.next - 1);
        }
        let is_free = |(since, _): &&(u64, u32)| now.saturating_sub(*since) > LEAVING_NS;
        self.released.front().filter(is_free)?;
        self.released.pop_front().map(|(_, number)| number)
    }

    fn give(&mut self, now: u64, number: u32) {
        self.released.push_back((now, number));
    }
}

impl Follower {
    /// Nothing takes the fast path yet. `backlog`: packets that wait in a socket above which its worker is taken to be behind.
    pub(super) fn new(maps: FastPathMaps, backlog: u64) -> Self {
        maps.shared().set_backlog(backlog);
        Follower {
            maps,
            outputs: Vec::new(),
            emptied: Vec::new(),
            generation: 0,
            next_stream: rand::random(),
            paths: HashMap::new(),
            path_numbers: Numbers::new(MAX_PATHS),
            hops: BTreeMap::new(),
            hop_numbers: Numbers::new(MAX_HOPS),
            remotes: HashMap::new(),
            past: fast_path::Traffic::default(),
            delivered_past: fast_path::Traffic::default(),
            lan: Arc::default(),
            load: (0, 0),
            enabled: true,
            now: 0,
        }
    }

    /// Sets the underlay device, once its program is attached, and logs if nothing is sent through it.
    pub(super) fn set_underlay(&mut self, facts: &PortFacts) -> Result<(), Error> {
        let device = facts.device();
        let works = self.set_output(UNDERLAY, Role::Underlay, Some(device))?;
        if works {
            tracing::info!("simple packets take the fast path in the kernel");
        }
        Ok(())
    }

    /// Sets the device at a place, and logs if nothing is sent through it; whether something is.
    fn set_output(
        &mut self,
        place: u16,
        role: Role,
        device: Option<Device>,
    ) -> Result<bool, Error> {
        let index = usize::from(place);
        if self.outputs.len() <= index {
            self.outputs.resize_with(index + 1, || None);
        }
        let before = self.outputs[index].take();
        let Some(device) = device else {
            if before.is_some() {
                self.emptied.push(place);
            }
            return Ok(false);
        };
        self.emptied.retain(|emptied| *emptied != place);
        self.maps.set_output(place.into(), device.ifindex)?;
        let mut output = Output {
            device,
            role,
            works: false,
            buffers: false,
        };
        output.check();
        if let Some(problem) = output.problem() {
            tracing::warn!("{problem}");
        }
        let works = output.works;
        self.outputs[index] = Some(output);
        Ok(works)
    }

    /// Looks whether the devices take packets from programs of others, and says so. Whether there was a change.
    fn follow_outputs(&mut self) -> bool {
        let before = self.problems();
        let mut changed = false;
        for output in self.outputs.iter_mut().flatten() {
            let has_changed = output.check();
            changed |= has_changed;
            if has_changed && output.works {
                tracing::info!(
                    interface = output.device.interface,
                    "XDP programs can send through it again"
                );
            }
        }
        let now = self.problems();
        for problem in now.iter().filter(|problem| !before.contains(problem)) {
            tracing::warn!("{problem}");
        }
        changed
    }

    /// What does not take the fast path, and why.
    fn problems(&self) -> Vec<String> {
        let outputs = self.outputs.iter().flatten();
        outputs.filter_map(Output::problem).collect()
    }

    /// Whether programs can send through it, and if so, whether also packets in several buffers, as [`FastPath::buffers`].
    fn works(&self, output: u16) -> Option<u16> {
        let output = self.outputs.get(usize::from(output))?.as_ref()?;
        output.works.then_some(output.buffers.into())
    }

    fn path(&mut self, path: &Path) -> Option<u32> {
        let buffers = self.works(UNDERLAY)?;
        // Programs can neither encrypt nor authenticate.
        if path.template.len() > MAX_HEADERS_WITH_ROOM || path.keyring.is_some() {
            return None;
        }
        let value = FastPath {
            output: UNDERLAY,
            buffers,
            capacity: path.packer.capacity() as u32,
            template: path.template.resize()?,
        };
        if let Some(known) = self.paths.get_mut(&path.id) {
            known.leaving = false;
            if known.packed_until.is_some() {
                return None;
            }
            if known.value != value {
                self.maps.set_path(known.number, Some(&value)).ok()?;
                known.value = value;
            }
            return Some(known.number);
        }
        let number = self.path_numbers.take(self.now)?;
        let shared = self.maps.shared();
        let first = self.next_stream;
        self.next_stream = first.wrapping_add(shared.sockets());
        shared.begin_path(number, |socket| {
            IN_KERNEL | (first.wrapping_add(socket) % IN_KERNEL)
        });
        let set = self
            .maps
            .forget_sent(number)
            .and_then(|()| self.maps.set_path(number, Some(&value)));
        if let Err(error) = set {
            tracing::warn!("a path does not take the fast path: {error}");
            self.path_numbers.give(self.now, number);
            return None;
        }
        // Under another number, the programs may have sent more than was counted at the last look.
        let same = |known: &&Known| Arc::ptr_eq(&known.counters, &path.counters);
        let before = match self.paths.values().find(same) {
            Some(known) => {
                let sent = self.maps.sent(known.number).unwrap_or_default();
                Some(plus(known.before, sent))
            }
            None => path.counters.last().map(|counters| traffic(&counters.sent)),
        };
        let mut known = Known {
            number,
            value,
            counters: path.counters.clone(),
            before: before.unwrap_or_default(),
            used: None,
            seen: (self.now, fast_path::Traffic::default()),
            packed_until: None,
            leaving: false,
        };
        known.seen.1 = known.sent();
        self.paths.insert(path.id, known);
        Some(number)
    }

    fn hops(&mut self, lan: &LanTable) -> Vec<u32> {
        let neighbours = lan.in_order();
        let mut before = std::mem::take(&mut self.hops);
        let mut hop = |key: (u16, IpAddr), neighbour: &LanNeighbour| {
            let output = UNDERLAY + 1 + key.0;
            let buffers = self.works(output)?;
            let mut macs = [0; 12];
            macs[..6].copy_from_slice(&neighbour.mac);
            macs[6..].copy_from_slice(&neighbour.interface_mac);
            let value = Hop {
                output,
                buffers,
                mtu: neighbour.mtu.into(),
                macs,
            };
            let (number, known) = match before.remove(&key) {
                Some((number, known)) => (number, Some(known)),
                None => (self.hop_numbers.take(self.now)?, None),
            };
            if known != Some(value) {
                self.maps.set_hop(number, Some(&value)).ok()?;
            }
            self.hops.insert(key, (number, value));
            Some(number)
        };
        let numbers = neighbours
            .iter()
            .map(|(key, neighbour)| hop(*key, neighbour).unwrap_or(0))
            .collect();
        for (number, _) in before.into_values() {
            let _ = self.maps.set_hop(number, None);
            self.hop_numbers.give(self.now, number);
        }
        numbers
    }

    /// Carries over what the programs counted.
    fn count(&mut self) {
        for known in self.paths.values() {
            if let (Ok(sent), Some(counters)) =
                (self.maps.sent(known.number), known.counters.last())
            {
                set(&counters.sent, plus(known.before, sent));
            }
        }
        for (id, received) in &self.remotes {
            if let (Ok(now), Some(counters)) =
                (self.maps.delivered((*id).into()), received.counters.last())
            {
                set(&counters.received, minus(now, received.before));
            }
        }
    }

    /// Tells whoever asks which flows and neighbours had packets.
    fn pass_on_marks(&mut self) {
        let shared = self.maps.shared().clone();
        let by_number: HashMap<u32, &Arc<Used>> = self
            .paths
            .values()
            .filter_map(|known| Some((known.number, known.used.as_ref()?)))
            .collect();
        for_each_used(&shared.flows_used, &shared.flows, |key, state| {
            if let Some(used) = by_number.get(&state) {
                used.mark(hash_of_key(&key));
            }
        });
        let lan = &self.lan;
        for_each_used(&shared.pairs_used, &shared.pairs, |key, _| {
            lan.mark_used(InnerPacket::of_flow(&key).destination);
        });
    }
}

/// Takes the marks of used slots, and tells what these hold.
fn for_each_used(marks: &Words, slots: &Words, mut used: impl FnMut([u64; 5], u32)) {
    let slots: &[[_; slot::WORDS]] = slots.all().as_chunks().0;
    for (word, slots) in marks.all().iter().zip(slots.chunks(8)) {
        if word.load(Ordering::Relaxed) == 0 {
            continue;
        }
        let marks = word.swap(0, Ordering::Relaxed).to_ne_bytes();
        for (_, words) in marks.iter().zip(slots).filter(|(mark, _)| **mark != 0) {
            let [first, state, key @ ..]: [u64; slot::SEALED] =
                std::array::from_fn(|word| words[word].load(Ordering::Relaxed));
            used(key.map(|word| word ^ first), (state ^ first) as u32);
        }
    }
}

impl InKernel for Follower {
    fn shared(&self) -> Arc<Shared> {
        self.maps.shared().clone()
    }

    fn prepare(&mut self, now: u64, tables: &mut Tables) {
        self.now = now;
        let before = self.generation;
        self.generation = before.checked_add(1).unwrap_or(1);
        tables.fast_generation = self.generation;
        for known in self.paths.values_mut() {
            known.leaving = true;
        }
        for path in &mut tables.paths {
            path.fast = self.path(path);
        }
        for session in &tables.sessions {
            if let Session::ManyPaths(first, spread) = session {
                let count = spread
                    .buckets
                    .iter()
                    .max()
                    .map_or(0, |last| usize::from(*last) + 1);
                let paths = tables.paths.iter().skip(usize::from(*first)).take(count);
                for path in paths {
                    if let Some(known) = self.paths.get_mut(&path.id) {
                        known.used = Some(spread.used.clone());
                    }
                }
            }
        }
        self.lan = tables.lan.clone();
        let lan = self.lan.clone();
        tables.fast_hops = self.hops(&lan);
        for remote in &tables.remotes {
            let is_new = self
                .remotes
                .get(&remote.id)
                .is_none_or(|known| !Arc::ptr_eq(&known.counters, &remote.counters));
            if is_new {
                let before = self.maps.delivered(remote.id.into()).unwrap_or_default();
                let received = Received {
                    counters: remote.counters.clone(),
                    before,
                };
                if let Some(old) = self.remotes.insert(remote.id, received) {
                    let counted = minus(before, old.before);
                    self.delivered_past = plus(self.delivered_past, counted);
                }
            }
        }
        self.maps.shared().renew(before, tables);
    }

    fn commit(&mut self) {
        let generation = if self.enabled { self.generation } else { 0 };
        self.maps.shared().set_generation(generation);
        for place in self.emptied.drain(..) {
            if let Err(error) = self.maps.clear_output(place.into()) {
                tracing::warn!("{error}");
            }
        }
        let Follower {
            maps,
            paths,
            path_numbers,
            past,
            now,
            ..
        } = self;
        paths.retain(|_, known| {
            if !known.leaving {
                return true;
            }
            // What is sent in this very moment is not counted.
            let _ = maps.set_path(known.number, None);
            let sent = maps.sent(known.number).unwrap_or_default();
            if let Some(counters) = known.counters.last() {
                set(&counters.sent, plus(known.before, sent));
            }
            *past = plus(*past, sent);
            path_numbers.give(*now, known.number);
            false
        });
    }

    fn look(&mut self, now: u64) -> bool {
        self.now = now;
        self.count();
        self.pass_on_marks();
        self.follow_outputs()
    }

    fn look_at_load(&mut self, now: u64, sent: u64) -> bool {
        let (since, before) = std::mem::replace(&mut self.load, (now, sent));
        let rate = u128::from(sent.saturating_sub(before)) * 1_000_000_000
            / u128::from(now.saturating_sub(since).max(1));
        let is_any_packed = self
            .paths
            .values()
            .any(|known| known.packed_until.is_some());
        if rate < PACKED_RATE.into() && !is_any_packed {
            return false;
        }
        self.count();
        let paths = self.paths.values_mut();
        let choose = |changed, known: &mut Known| known.choose_packing(now) | changed;
        paths.fold(false, choose)
    }

    fn status(&mut self) -> status::FastPath {
        self.count();
        let sent = self
            .paths
            .values()
            .map(|known| self.maps.sent(known.number));
        let sent = sent.flatten().fold(self.past, plus);
        let delivered = self.remotes.iter().map(|(id, received)| {
            let now = self.maps.delivered((*id).into()).unwrap_or_default();
            minus(now, received.before)
        });
        let delivered = delivered.fold(self.delivered_past, plus);
        let mut problems = self.problems();
        if !self.enabled {
            problems.push("off while packets are captured (\"sig capture\")".to_owned());
        }
        status::FastPath {
            on: self.enabled && self.outputs.iter().flatten().any(|output| output.works),
            problems,
            packets_sent: sent.packets,
            packet_bytes_sent: sent.bytes,
            packets_delivered: delivered.packets,
            packet_bytes_delivered: delivered.bytes,
        }
    }

    fn set_lan(&mut self, number: u16, device: Option<Device>) -> Result<(), Error> {
        self.set_output(UNDERLAY + 1 + number, Role::Lan, device)?;
        Ok(())
    }

    fn why_not(&self, path: &Path) -> Option<String> {
        if !self.enabled {
            return Some("the fast path is off while packets are captured".to_owned());
        }
        if self.works(UNDERLAY).is_none() {
            let underlay = |output: &&Output| output.role == Role::Underlay;
            let problem = self
                .outputs
                .iter()
                .flatten()
                .find(underlay)
                .and_then(Output::problem);
            return Some(problem.unwrap_or_else(|| "there is no underlay device".to_owned()));
        }
        if path.keyring.is_some() {
            return Some("frames to the remote are protected, which takes a worker".to_owned());
        }
        let headers = path.template.len();
        if headers > MAX_HEADERS_WITH_ROOM {
            return Some(format!(
                "the headers of the path take {headers} bytes, and XDP has room for {MAX_HEADERS_WITH_ROOM}"
            ));
        }
        let known = self.paths.get(&path.id);
        if known.is_some_and(|known| known.packed_until.is_some()) {
            return Some(
                "many small packets are under way, which workers pack into frames".to_owned(),
            );
        }
        match path.fast {
            Some(_) => None,
            None => Some(format!("more than {MAX_PATHS} paths are in use")),
        }
    }

    fn enable(&mut self, on: bool) {
        self.enabled = on;
        let generation = if on { self.generation } else { 0 };
        self.maps.shared().set_generation(generation);
    }
}

fn traffic(counters: &Traffic) -> fast_path::Traffic {
    fast_path::Traffic {
        packets: counters.packets.get(),
        bytes: counters.packet_bytes.get(),
    }
}

/// One packet is one frame.
fn set(counters: &Traffic, traffic: fast_path::Traffic) {
    const HEADER_LEN: u64 = sig_common::wire::sig_frame::HEADER_LEN as u64;
    let set = |counter: &Counter, value: u64| counter.set(value);
    set(&counters.frames, traffic.packets);
    set(
        &counters.frame_bytes,
        traffic.bytes + traffic.packets * HEADER_LEN,
    );
    set(&counters.packets, traffic.packets);
    set(&counters.packet_bytes, traffic.bytes);
}

fn plus(a: fast_path::Traffic, b: fast_path::Traffic) -> fast_path::Traffic {
    fast_path::Traffic {
        packets: a.packets.wrapping_add(b.packets),
        bytes: a.bytes.wrapping_add(b.bytes),
    }
}

fn minus(a: fast_path::Traffic, b: fast_path::Traffic) -> fast_path::Traffic {
    fast_path::Traffic {
        packets: a.packets.wrapping_sub(b.packets),
        bytes: a.bytes.wrapping_sub(b.bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sig_common::{
        addr::IsdAs,
        wire::template::{Endpoints, NextHop, Template},
    };

    fn known() -> Known {
        let address = "10.0.0.1:30056".parse().expect("an address");
        let ends = Endpoints {
            local_isd_as: IsdAs(1),
            local: address,
            remote_isd_as: IsdAs(2),
            remote: address,
        };
        let next_hop = NextHop {
            address,
            source_mac: [2; 6],
            destination_mac: [4; 6],
        };
        let template = Template::new(&ends, &next_hop, 0, &[], 0).expect("a template");
        Known {
            number: 1,
            value: FastPath {
                output: 0,
                buffers: 0,
                capacity: 1400,
                template: template.resize().expect("short headers"),
            },
            counters: Arc::new([PathCounters::default()]),
            before: fast_path::Traffic::default(),
            used: None,
            seen: (0, fast_path::Traffic::default()),
            packed_until: None,
            leaving: false,
        }
    }

    #[test]
    fn many_small_packets_are_packed_until_there_have_been_few_for_a_while() {
        const TICK: u64 = 100_000_000;
        let mut known = known();
        let mut now = 0;
        let mut send = |known: &mut Known, packets: u64, len: u64| {
            now += TICK;
            known.counters[0].sent.packets.add(packets);
            known.counters[0].sent.packet_bytes.add(packets * len);
            let changed = known.choose_packing(now);
            (changed, known.packed_until.is_some())
        };
        assert_eq!(send(&mut known, 14_000, 100), (false, false), "too few");
        assert_eq!(send(&mut known, 30_000, 1000), (false, false), "too long");
        assert_eq!(send(&mut known, 16_000, 100), (true, true));
        assert_eq!(
            send(&mut known, 8_000, 100),
            (false, true),
            "half is enough"
        );
        for _ in 0..49 {
            assert_eq!(send(&mut known, 1_000, 100), (false, true));
        }
        assert_eq!(send(&mut known, 1_000, 100), (true, false));
        assert_eq!(send(&mut known, 8_000, 100), (false, false));
    }

    #[test]
    fn numbers_come_back_when_no_worker_can_use_them_any_more() {
        let mut numbers = Numbers::new(3);
        assert_eq!([numbers.take(0), numbers.take(0)], [Some(1), Some(2)]);
        numbers.give(5, 2);
        assert_eq!(numbers.take(5 + LEAVING_NS), None);
        assert_eq!(numbers.take(6 + LEAVING_NS), Some(2));
        assert_eq!(numbers.take(u64::MAX), None);
    }
}
