//! The programs of an SR node, and their maps.

use std::{
    collections::BTreeMap,
    hash::{BuildHasher as _, Hasher as _, RandomState},
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    os::fd::{AsRawFd, BorrowedFd, RawFd},
    sync::Arc,
};

use aya::maps::{
    Array, DevMapHash, HashMap, LpmTrie, MapData, MapError, PerCpuArray, PerCpuValues,
    ProgramArray, RingBuf, XskMap, lpm_trie::Key, xdp::XdpMapError,
};
use aya::programs::ProgramFd;
use ipnet::IpNet;
use sig_common::srv6::{
    Sid,
    filter::{Field, Head, MAX_CLASSES, MAX_ROWS, Row, WORDS},
    hmac::HmacKey,
    maps::{
        self, ADJACENCIES, AGAIN, Adjacency, BUDGET, CACHES, CLASSES, CONTROL, COPIES, Cache,
        Control, Copied, DEVICES, ENTRY, EVENTS, Event, FRAGMENTS, FUNCTIONS, Function, HEADS,
        HMAC_KEYS, LOCATORS, NUMBERS, PEERS, POLICIES, PORTS, PREFIXES, PROCESS, Peer, Policy,
        Port, ProbeToken, REASONS, ROWS, Reason, SIDS, SOCKET, STEERED_V4, STEERED_V6, TRAFFIC,
        Traffic, VERIFY,
    },
};
use sig_core::policy::rules;
use tokio::io::{Interest, unix::AsyncFd};

use super::{
    errors,
    object::{Attachment, Globals, Object, Program, ProgramFigures, TestOutcome, User, XdpMode},
};
use crate::{
    Error, cpus,
    netdev::{self, XdpFeatures},
};

/// All that the programs follow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sr {
    /// Devices that packets come in by.
    pub ports: BTreeMap<u32, Port>,
    /// Local SIDs.
    pub sids: BTreeMap<Ipv6Addr, Sid>,
    /// Prefixes that SIDs are taken from.
    pub locators: BTreeMap<IpNet, u32>,
    /// Destinations, and the policies that packets to them are steered into.
    pub steered: BTreeMap<IpNet, u32>,
    /// Policies by number.
    pub policies: BTreeMap<u32, Policy>,
    /// Neighbours by number.
    pub adjacencies: BTreeMap<u32, Adjacency>,
    /// Functions by number, below [`maps::MAX_FUNCTIONS`].
    pub functions: BTreeMap<u32, Function>,
    /// Keys of HMACs by their id.
    pub hmac_keys: BTreeMap<u32, HmacKey>,
    /// Functions that talk to this node by devices that functions return packets by.
    pub peers: BTreeMap<Peer, u32>,
    /// What is looked at before all of this.
    pub rules: Option<Rules>,
}

/// Rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Which packets satisfy which rows.
    pub tables: Arc<rules::Tables>,
    /// The class of each interface that rules name, by its index.
    pub interfaces: BTreeMap<u32, u16>,
    /// What rows stand for.
    pub rows: Vec<Row>,
}

/// The programs and their maps, attached to nothing at first. Until [`Self::set`] they pass every packet to the kernel.
pub struct SrPrograms {
    object: Object,
    ports: HashMap<MapData, u32, Port>,
    sids: HashMap<MapData, [u8; 16], Sid>,
    locators: LpmTrie<MapData, [u8; 16], u32>,
    steered_v4: LpmTrie<MapData, [u8; 4], u32>,
    steered_v6: LpmTrie<MapData, [u8; 16], u32>,
    policies: HashMap<MapData, u32, Policy>,
    adjacencies: HashMap<MapData, u32, Adjacency>,
    functions: HashMap<MapData, u32, Function>,
    hmac_keys: HashMap<MapData, u32, HmacKey>,
    peers: HashMap<MapData, Peer, u32>,
    caches: Array<MapData, Cache>,
    devices: DevMapHash<MapData>,
    fragments: HashMap<MapData, u32, u32>,
    traffic: PerCpuArray<MapData, Traffic>,
    reasons: PerCpuArray<MapData, u64>,
    budget: PerCpuArray<MapData, [u64; 2]>,
    socket: XskMap<MapData>,
    token: ProbeToken,
    rules: RuleMaps,
    /// What is in the maps.
    written: Sr,
    entry: ProgramFd,
    _again: ProgramArray<MapData>,
}

impl SrPrograms {
    /// Loads the programs into the kernel.
    ///
    /// # Errors
    /// Missing privileges (CAP_BPF, CAP_NET_ADMIN), or a kernel that does not take the programs.
    pub fn load() -> Result<(Self, Events), Error> {
        // Its keys are random, and so is what it makes of nothing.
        let token = RandomState::new().build_hasher().finish();
        let mut object = Object::new(&Globals {
            user: User::SrNode,
            token,
            ..Globals::default()
        })?;
        object.load(&PROGRAMS)?;
        let mut again: ProgramArray<MapData> = object.map(AGAIN)?;
        for (place, program) in [
            (PROCESS, Program::Srv6Again),
            (VERIFY, Program::Srv6Verify),
            (ENTRY, Program::Srv6),
        ] {
            let program = object.program_fd(program)?;
            again
                .set(place, &program, 0)
                .map_err(|e| errors::of_map("chain the programs".into(), e))?;
        }
        let events = Events::new(object.map(EVENTS)?)?;
        let programs = Self {
            ports: object.map(PORTS)?,
            sids: object.map(SIDS)?,
            locators: object.map(LOCATORS)?,
            steered_v4: object.map(STEERED_V4)?,
            steered_v6: object.map(STEERED_V6)?,
            policies: object.map(POLICIES)?,
            adjacencies: object.map(ADJACENCIES)?,
            functions: object.map(FUNCTIONS)?,
            hmac_keys: object.map(HMAC_KEYS)?,
            peers: object.map(PEERS)?,
            caches: object.map(CACHES)?,
            devices: object.map(DEVICES)?,
            fragments: object.map(FRAGMENTS)?,
            traffic: object.map(TRAFFIC)?,
            reasons: object.map(REASONS)?,
            budget: object.map(BUDGET)?,
            socket: object.map(SOCKET)?,
            token,
            rules: RuleMaps::take(&mut object)?,
            written: Sr::default(),
            entry: object.program_fd(Program::Srv6)?,
            _again: again,
            object,
        };
        Ok((programs, events))
    }

    /// Makes these the tables that the programs follow. What is in both is not touched. What is referred to is there before what
    /// refers to it, and leaves after it.
    ///
    /// # Errors
    /// More entries than the maps hold, or the kernel does not let us write. Then part of the change may be in force, and another
    /// call completes it.
    pub fn set(&mut self, new: &Sr) -> Result<(), Error> {
        let old = &mut self.written;
        add(
            &mut old.adjacencies,
            &new.adjacencies,
            "a neighbour",
            |k, v| self.adjacencies.insert(k, v, 0),
        )?;
        add(&mut old.policies, &new.policies, "a policy", |k, v| {
            self.policies.insert(k, v, 0)
        })?;
        for (number, function) in &old.functions {
            // Headers for another kind of proxy are of no use.
            let is_same = |new: &Function| {
                new.flags & !Function::UP == function.flags & !Function::UP
                    && new.policy == function.policy
                    && new.flows == function.flows
            };
            if new.functions.get(number).is_some_and(|new| !is_same(new)) {
                let cleared = self.caches.set(*number, EMPTY, 0);
                cleared.map_err(|e| errors::of_map("clear cached headers".into(), e))?;
            }
        }
        add(&mut old.functions, &new.functions, "a function", |k, v| {
            self.functions.insert(k, v, 0)
        })?;
        add(
            &mut old.locators,
            &new.locators,
            "a locator",
            |net, v| match net {
                IpNet::V6(net) => self.locators.insert(&key_v6(&net), v, 0),
                IpNet::V4(_) => Ok(()),
            },
        )?;
        add(&mut old.sids, &new.sids, "a SID", |address, v| {
            self.sids.insert(address.octets(), v, 0)
        })?;
        add(&mut old.hmac_keys, &new.hmac_keys, "a key", |k, v| {
            self.hmac_keys.insert(k, v, 0)
        })?;
        add(
            &mut old.peers,
            &new.peers,
            "a neighbour of a device",
            |k, v| self.peers.insert(k, v, 0),
        )?;
        add(&mut old.ports, &new.ports, "a device", |k, v| {
            self.ports.insert(k, v, 0)
        })?;
        let has_arguments = new.sids.values().any(|sid| sid.arguments != 0);
        self.rules.set(new.rules.as_ref(), has_arguments)?;
        add(
            &mut old.steered,
            &new.steered,
            "a steered prefix",
            |net, v| match net {
                IpNet::V4(net) => self.steered_v4.insert(&key_v4(&net), v, 0),
                IpNet::V6(net) => self.steered_v6.insert(&key_v6(&net), v, 0),
            },
        )?;

        remove(
            &mut old.steered,
            &new.steered,
            "a steered prefix",
            |net| match net {
                IpNet::V4(net) => self.steered_v4.remove(&key_v4(net)),
                IpNet::V6(net) => self.steered_v6.remove(&key_v6(net)),
            },
        )?;
        remove(&mut old.ports, &new.ports, "a device", |k| {
            self.ports.remove(k)
        })?;
        remove(&mut old.hmac_keys, &new.hmac_keys, "a key", |k| {
            self.hmac_keys.remove(k)
        })?;
        remove(&mut old.peers, &new.peers, "a neighbour of a device", |k| {
            self.peers.remove(k)
        })?;
        remove(&mut old.sids, &new.sids, "a SID", |k| {
            self.sids.remove(&k.octets())
        })?;
        remove(
            &mut old.locators,
            &new.locators,
            "a locator",
            |net| match net {
                IpNet::V6(net) => self.locators.remove(&key_v6(net)),
                IpNet::V4(_) => Ok(()),
            },
        )?;
        remove(&mut old.functions, &new.functions, "a function", |k| {
            // Its number may become that of another one.
            self.caches.set(*k, EMPTY, 0)?;
            self.functions.remove(k)
        })?;
        remove(&mut old.policies, &new.policies, "a policy", |k| {
            self.policies.remove(k)
        })?;
        remove(&mut old.adjacencies, &new.adjacencies, "a neighbour", |k| {
            self.adjacencies.remove(k)
        })
    }

    /// Lets packets out through a device of the calling thread's network namespace. In native mode, a veth device sends
    /// only if its other end has an XDP program or GRO; packets in several buffers leave only if the driver can.
    ///
    /// # Errors
    /// No such device, or too many.
    pub fn add_device(&mut self, ifindex: u32) -> Result<(), Error> {
        let features = netdev::xdp_features(ifindex).ok().flatten();
        let set = match features.is_some_and(XdpFeatures::transmit_fragments) {
            true => self.fragments.insert(ifindex, 1, 0),
            false => match self.fragments.remove(&ifindex) {
                Err(e) if errors::errno(&e) == Some(libc::ENOENT) => Ok(()),
                removed => removed,
            },
        };
        set.map_err(|e| errors::of_map(format!("send through {}", errors::device(ifindex)), e))?;
        let added = self.devices.insert(ifindex, ifindex, None, 0);
        added.map_err(|e| match e {
            XdpMapError::MapError(e) => {
                errors::of_map(format!("send through {}", errors::device(ifindex)), e)
            }
            e => Error::Refused(format!(
                "cannot send through {}: {e}",
                errors::device(ifindex)
            )),
        })
    }

    /// Lets no more packets out through a device.
    ///
    /// # Errors
    /// The kernel does not let us write. It is none that the device was not there.
    pub fn remove_device(&mut self, ifindex: u32) -> Result<(), Error> {
        match self.devices.remove(ifindex) {
            Err(e) if errors::errno(&e) != Some(libc::ENOENT) => {
                let device = errors::device(ifindex);
                Err(errors::of_map(format!("stop sending through {device}"), e))
            }
            _ => Ok(()),
        }
    }

    /// The program that packets come to first.
    pub(super) fn entry(&self) -> &ProgramFd {
        &self.entry
    }

    /// Packets and bytes at a slot, summed over the CPUs.
    ///
    /// # Errors
    /// The kernel does not let us read.
    pub fn traffic(&self, slot: u32) -> Result<Traffic, Error> {
        let values = self.traffic.get(&slot, 0);
        let values = values.map_err(|e| errors::of_map("read BPF counters".into(), e))?;
        Ok(values.iter().fold(Traffic::default(), |sum, of| Traffic {
            packets: sum.packets.wrapping_add(of.packets),
            bytes: sum.bytes.wrapping_add(of.bytes),
        }))
    }

    /// Counts anew at a slot.
    ///
    /// # Errors
    /// The kernel does not let us write.
    pub fn clear(&mut self, slot: u32) -> Result<(), Error> {
        let zero = vec![Traffic::default(); cpus::possible() as usize];
        PerCpuValues::try_from(zero)
            .map_err(MapError::IoError)
            .and_then(|zero| self.traffic.set(slot, zero, 0))
            .map_err(|e| errors::of_map("clear BPF counters".into(), e))
    }

    /// Lets the programs tell about packets as if they had been silent for long: for tests, which do not wait.
    ///
    /// # Errors
    /// The kernel does not let us write.
    #[doc(hidden)]
    pub fn refill(&mut self) -> Result<(), Error> {
        let zero = vec![[0; 2]; cpus::possible() as usize];
        PerCpuValues::try_from(zero)
            .map_err(MapError::IoError)
            .and_then(|zero| self.budget.set(0, zero, 0))
            .map_err(|e| errors::of_map("refill the budget of events".into(), e))
    }

    /// Packets with a reason, summed over the CPUs.
    ///
    /// # Errors
    /// The kernel does not let us read.
    pub fn refused(&self, reason: Reason) -> Result<u64, Error> {
        let values = self.reasons.get(&(reason as u32), 0);
        let values = values.map_err(|e| errors::of_map("read BPF counters".into(), e))?;
        Ok(values.iter().fold(0, |sum, of| sum.wrapping_add(*of)))
    }

    /// What probes through functions begin with: the programs tell about what a function returns with it.
    #[must_use]
    pub const fn token(&self) -> ProbeToken {
        self.token
    }

    /// How often the headers of the packets to a function have changed.
    ///
    /// # Errors
    /// The kernel does not let us read.
    pub fn changes(&self, function: u32) -> Result<u64, Error> {
        let cache = self.caches.get(&function, 0);
        let cache = cache.map_err(|e| errors::of_map("read cached headers".into(), e))?;
        Ok(cache.version / 2)
    }

    /// Hands all packets that come in by a device of the calling thread's network namespace to an AF_XDP socket on its queue 0:
    /// that of the functions in the process.
    ///
    /// # Errors
    /// As [`Self::attach`].
    pub fn attach_process(
        &mut self,
        ifindex: u32,
        socket: BorrowedFd<'_>,
    ) -> Result<Attachment, Error> {
        let set = self.socket.set(0, socket.as_raw_fd(), 0);
        set.map_err(|e| errors::of_map("set the AF_XDP socket of functions".into(), e))?;
        self.object
            .attach_xdp(Program::Srv6Process, ifindex, Some(XdpMode::Native))
    }

    /// What the programs copy for mirrors, once.
    ///
    /// # Errors
    /// It was taken before.
    pub fn take_copies(&mut self) -> Result<Copies, Error> {
        self.object.map(COPIES).map(Copies)
    }

    /// Attaches the program to a device. `mode` `None` is native mode if the driver has it, else generic.
    ///
    /// # Errors
    /// No such device, another XDP program on it, missing privileges, or an MTU too large for XDP.
    pub fn attach(&mut self, ifindex: u32, mode: Option<XdpMode>) -> Result<Attachment, Error> {
        self.object.attach_xdp(Program::Srv6, ifindex, mode)
    }

    /// Runs the program over an Ethernet frame as if it had come in through `lo`, whose interface index is 1.
    ///
    /// # Errors
    /// The kernel does not take the frame: shorter than an Ethernet header, or too long.
    pub fn test_run(&self, frame: &[u8]) -> Result<TestOutcome, Error> {
        self.object.test_run(Program::Srv6, frame)
    }

    /// What the kernel tells of the programs.
    ///
    /// # Errors
    /// The kernel does not tell.
    pub fn figures(&self) -> Result<Vec<ProgramFigures>, Error> {
        PROGRAMS
            .map(|program| self.object.figures(program))
            .into_iter()
            .collect()
    }
}

/// All of them; the first is that of devices.
const PROGRAMS: [Program; 4] = [
    Program::Srv6,
    Program::Srv6Again,
    Program::Srv6Verify,
    Program::Srv6Process,
];
/// The maps of rules. All are there twice: one generation is in force while the other is written.
struct RuleMaps {
    control: Array<MapData, u32>,
    heads: Array<MapData, Head>,
    prefixes: LpmTrie<MapData, [u8; 20], u32>,
    numbers: Array<MapData, [u16; 65536]>,
    classes: Array<MapData, [u64; WORDS]>,
    rows: Array<MapData, Row>,
    /// What is in the trie, of each generation.
    written: [BTreeMap<(Field, IpNet), u16>; 2],
    /// What is in force.
    word: u32,
    now: Option<Rules>,
}

impl RuleMaps {
    fn take(object: &mut Object) -> Result<Self, Error> {
        Ok(Self {
            control: object.map(CONTROL)?,
            heads: object.map(HEADS)?,
            prefixes: object.map(PREFIXES)?,
            numbers: object.map(NUMBERS)?,
            classes: object.map(CLASSES)?,
            rows: object.map(ROWS)?,
            written: Default::default(),
            word: 0,
            now: None,
        })
    }

    /// Makes other rules those in force, all at once.
    fn set(&mut self, new: Option<&Rules>, has_arguments: bool) -> Result<(), Error> {
        let mut word = self.word & Control::GENERATION;
        if let Some(new) = new {
            if self.now.as_ref() != Some(new) {
                word ^= Control::GENERATION;
                // Whatever packet began with this generation when it was last in force has ended.
                wait_for_programs();
                self.write(new, word)?;
            }
            word |= Control::RULES;
        }
        if has_arguments {
            word |= Control::ARGUMENTS;
        }
        if word != self.word {
            let switched = self.control.set(0, word, 0);
            switched.map_err(|e| errors::of_map("switch to other rules".into(), e))?;
            self.word = word;
        }
        self.now = new.cloned();
        Ok(())
    }

    fn write(&mut self, rules: &Rules, generation: u32) -> Result<(), Error> {
        let failed = |e| errors::of_map("write the rules".into(), e);
        let tables = &rules.tables;
        self.heads.set(generation, tables.head, 0).map_err(failed)?;
        let first = generation * tables.numbers.len() as u32;
        for (at, classes) in (first..).zip(&tables.numbers) {
            if let Ok(classes) = <&[u16; 65536]>::try_from(&classes[..]) {
                self.numbers.set(at, classes, 0).map_err(failed)?;
            }
        }
        for (at, class) in (generation * MAX_CLASSES as u32..).zip(&tables.classes) {
            self.classes.set(at, class, 0).map_err(failed)?;
        }
        for (at, row) in (generation * MAX_ROWS as u32..).zip(&rules.rows) {
            self.rows.set(at, row, 0).map_err(failed)?;
        }
        let named = rules.interfaces.iter().map(|(index, class)| {
            let index = IpAddr::from(Ipv4Addr::from_bits(*index));
            ((Field::Interface, IpNet::from(index)), *class)
        });
        let prefixes = tables.prefixes.iter().map(|(key, class)| (*key, *class));
        let new: BTreeMap<_, _> = prefixes.chain(named).collect();
        let Some(old) = self.written.get_mut(generation as usize) else {
            return Ok(());
        };
        remove(old, &new, "a prefix of rules", |(field, net)| {
            self.prefixes.remove(&prefix_key(generation, *field, net))
        })?;
        add(old, &new, "a prefix of rules", |(field, net), class| {
            let key = prefix_key(generation, field, &net);
            self.prefixes.insert(&key, u32::from(class), 0)
        })
    }
}

/// Waits until no program runs that runs now.
fn wait_for_programs() {
    // SAFETY: no pointers. The kernel waits for all sections in which programs run (`synchronize_rcu`), unless there is one CPU only,
    // which runs no program meanwhile.
    unsafe { libc::syscall(libc::SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0) };
}

/// `linux/membarrier.h`.
const MEMBARRIER_CMD_GLOBAL: libc::c_int = 1;

fn prefix_key(generation: u32, field: Field, net: &IpNet) -> Key<[u8; 20]> {
    let version = match net {
        _ if field == Field::Interface => 0,
        IpNet::V4(_) => 4,
        IpNet::V6(_) => 6,
    };
    let mut data = [0; 20];
    data[..3].copy_from_slice(&[generation as u8, field as u8, version]);
    match net.network() {
        IpAddr::V4(address) => data[4..8].copy_from_slice(&address.octets()),
        IpAddr::V6(address) => data[4..].copy_from_slice(&address.octets()),
    }
    Key::new(32 + u32::from(net.prefix_len()), data)
}

const EMPTY: Cache = Cache {
    version: 0,
    len: 0,
    exposed: 0,
    headers: [0; maps::MAX_HEADERS],
};

fn key_v4(net: &ipnet::Ipv4Net) -> Key<[u8; 4]> {
    let network: Ipv4Addr = net.network();
    Key::new(net.prefix_len().into(), network.octets())
}

fn key_v6(net: &ipnet::Ipv6Net) -> Key<[u8; 16]> {
    Key::new(net.prefix_len().into(), net.network().octets())
}

/// Writes what is new or changed.
fn add<K: Ord + Copy, V: PartialEq + Copy>(
    old: &mut BTreeMap<K, V>,
    new: &BTreeMap<K, V>,
    what: &str,
    mut write: impl FnMut(K, V) -> Result<(), MapError>,
) -> Result<(), Error> {
    for (key, value) in new {
        if old.get(key) != Some(value) {
            write(*key, *value).map_err(|e| errors::of_map(format!("add {what}"), e))?;
            old.insert(*key, *value);
        }
    }
    Ok(())
}

/// Removes what is no more.
fn remove<K: Ord + Copy, V>(
    old: &mut BTreeMap<K, V>,
    new: &BTreeMap<K, V>,
    what: &str,
    mut erase: impl FnMut(&K) -> Result<(), MapError>,
) -> Result<(), Error> {
    let gone: Vec<K> = old
        .keys()
        .filter(|key| !new.contains_key(key))
        .copied()
        .collect();
    for key in gone {
        match erase(&key) {
            Err(e) if errors::errno(&e) != Some(libc::ENOENT) => {
                return Err(errors::of_map(format!("remove {what}"), e));
            }
            _ => old.remove(&key),
        };
    }
    Ok(())
}

/// What the programs tell about packets.
pub struct Events {
    ring: AsyncFd<RingBuf<MapData>>,
}

impl Events {
    fn new(ring: RingBuf<MapData>) -> Result<Self, Error> {
        // SAFETY: the ring owns its file descriptor, always answers with the same one, and is owned by the AsyncFd, which takes it out
        // of the reactor before it drops it.
        let ring = unsafe { AsyncFd::register_with_interest(ring, Interest::READABLE) }
            .map_err(|e| Error::doing("watch the ring of events")(e.into()))?;
        Ok(Self { ring })
    }

    /// Waits for events and hands at most `limit` of them over, with the packet that each is about, from its IP header on.
    ///
    /// # Errors
    /// That of the ring's file descriptor.
    pub async fn next(
        &mut self,
        limit: usize,
        mut take: impl FnMut(&Event, &[u8]),
    ) -> io::Result<()> {
        let mut ready = self.ring.readable_mut().await?;
        if drain(ready.get_inner_mut(), limit, &mut take) < limit {
            ready.clear_ready();
        }
        Ok(())
    }

    /// As [`Self::next`], without waiting.
    pub fn now(&mut self, limit: usize, mut take: impl FnMut(&Event, &[u8])) {
        drain(self.ring.get_mut(), limit, &mut take);
    }
}

/// Copies of packets for mirrors.
pub struct Copies(RingBuf<MapData>);

impl Copies {
    /// Hands the next copy over, if there is one: what is said about it, and the packet.
    pub fn next(&mut self, take: impl FnOnce(&Copied, &[u8])) -> bool {
        let Some(item) = self.0.next() else {
            return false;
        };
        if let Some((head, packet)) = item.split_first_chunk::<{ size_of::<Copied>() }>() {
            // SAFETY: numbers and bytes: any bits are a value.
            let copied: Copied = unsafe { head.as_ptr().cast::<Copied>().read_unaligned() };
            take(&copied, packet);
        }
        true
    }
}

impl AsRawFd for Copies {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// Hands over what is in the ring; how much that was.
fn drain(ring: &mut RingBuf<MapData>, limit: usize, take: &mut impl FnMut(&Event, &[u8])) -> usize {
    for number in 0..limit {
        let Some(item) = ring.next() else {
            return number;
        };
        let Some((event, packet)) = item.split_first_chunk::<{ size_of::<Event>() }>() else {
            continue;
        };
        // SAFETY: numbers and bytes: any bits are a value.
        let event: Event = unsafe { event.as_ptr().cast::<Event>().read_unaligned() };
        if let Some(packet) = packet.get(..event.len as usize) {
            take(&event, packet);
        }
    }
    limit
}

/// The address in an event.
#[must_use]
pub fn address_of(event: &Event) -> IpAddr {
    Ipv6Addr::from(event.address).to_canonical()
}
